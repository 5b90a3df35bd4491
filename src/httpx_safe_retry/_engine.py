"""One logical request, sans-IO: it is told what happened and answers what to do.

The drivers in `_transport.py` send, read, discard and wait; when, whether and with what is decided
here. No clock is read and no randomness drawn: both come in, as numbers or as the callables of
`Setting`.

    start() -> the request to send ---------------------------------+
       succeeded(response, now)? -> hand it out                     |
       answered(response, ...), failed(error, ...) -> Wait | Done <-+
                                                     |              |
       (discard, wait)  halted(now)? -> raise it <---+              |
       again(now) -> the request to send ---------------------------+
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from . import _events
from ._answer import asks_for_a_wait, checked_verdict, replayed, view, wish_of
from ._budget import Budget
from ._classify import Finding, classify_answer, classify_error
from ._clock import EitherEvent, Random
from ._decide import Decision, Retry, Situation, Wish, decide, fail, outcome_of
from ._errors import RetryError, error_for
from ._facts import facts_of, needs_evidence, usable_key
from ._frozen import FrozenRequest
from ._outcome import Evidence, Outcome, StopReason
from ._policy import Terms
from ._record import Record, unfold_success
from ._report import RetryReport
from ._trace import SendProgress

if TYPE_CHECKING:
    import threading

    import httpx

    from ._body import Body


@dataclass(frozen=True, slots=True)
class Setting:
    """What a transport lends to each of its requests."""

    random: Random
    budget: Budget | None
    observers: _events.Observers


@dataclass(frozen=True, slots=True)
class Wait:
    """Discard what the attempt left, wait for so many seconds, and go on."""

    delay: float


@dataclass(frozen=True, slots=True)
class Done:
    """The logical request has ended.

    `error` is to be raised; None hands out what the attempt gave, response or error, as it is.
    """

    error: RetryError | None = None


AS_IT_IS = Done()


class LogicalRequest:
    """What is known of one logical request, and what to do next about it."""

    # Defaults of the class, so that a request that succeeds at once sets next to nothing.
    under_way = False
    """Whether an attempt is at this moment in the wrapped transport."""
    answer: httpx.Response | None = None
    """What the last attempt was answered, if it was."""
    read: bytes | None = None
    """The body of that answer, if it was read within the attempt."""
    cause: Exception | None = None
    """The transport error that ended the last attempt, if one did."""
    remaining: float | None = None
    """The seconds that the attempt under way may take, or None for no limit."""
    timeouts: dict[str, float | None] | None = None
    """The timeouts of the attempt under way, where they are its own to change."""
    _new_key: str | None = None
    _progress: SendProgress | None = None
    _kept: Record | None = None
    _previous_delay: float | None = None
    _ended = False

    def __init__(
        self,
        setting: Setting,
        terms: Terms,
        frozen: FrozenRequest,
        body: Body | None,
        now: float,
        allowed: float | None,
        closing: threading.Event,
    ) -> None:
        self._setting = setting
        self._terms = terms
        self._policy = terms.policy
        self._frozen = frozen
        self.body = body
        self._started = self._attempt_started = now
        self.allowed = allowed
        self._closing = closing

    @property
    def prefetch(self) -> int:
        """How long a body may be to be read within the attempt."""
        return self._policy.prefetch if self._terms.active else 0

    @property
    def sent_timeouts(self) -> dict[str, float | None]:
        """The timeouts that the attempt under way was given."""
        return (
            self._frozen.extensions.get("timeout", {}) if self.timeouts is None else self.timeouts
        )

    @property
    def wake(self) -> threading.Event:
        """What ends a wait early: the transport is closed, or the caller's own event is set."""
        cancel = self._terms.cancel
        return self._closing if cancel is None else EitherEvent(cancel, self._closing)

    # What is sent ---------------------------------------------------------------------------------

    def start(self, *, asynchronous: bool) -> httpx.Request:
        """Return the request to send first.

        Raises `RetryError` if it is cancelled or out of time already, and `TypeError` or
        `ValueError` if `RetryPolicy.idempotency_key` makes no usable key.
        """
        terms, policy, frozen = self._terms, self._policy, self._frozen
        if self.allowed is not None or terms.cancel is not None:
            self.check(self._started)
        if policy.idempotency_key is not None and frozen.method in ("POST", "PATCH"):
            if not frozen.has_header(policy.key_names):
                self._new_key = usable_key(policy.idempotency_key())
        elif needs_evidence(frozen, terms):
            caller = frozen.extensions.get("trace")
            self._progress = SendProgress(caller, asynchronous=asynchronous)
        if self._setting.budget is not None and not terms.passive:
            self._setting.budget.deposit(frozen.origin)
        if self._setting.observers.curious:
            self._record.attempt_starts(1)
        return self._outgoing(1, self._started)

    def again(self, now: float) -> httpx.Request:
        """Return the request to send next, `now` that the wait is over."""
        self._attempt_started = now
        if self._progress is not None:
            self._progress = self._progress.anew()
        self.answer = None
        self.cause = None
        self.read = None
        number = len(self._record.attempts) + 1
        self._record.attempt_starts(number)
        return self._outgoing(number, now)

    def _outgoing(self, number: int, now: float) -> httpx.Request:
        policy, frozen = self._policy, self._frozen
        extensions: dict[str, object] = {}
        headers: dict[str, str] = {}
        if self.allowed is not None:
            self.remaining = self._started + self.allowed - now
            if policy.deadline_header is not None:
                headers[policy.deadline_header] = str(int(self.remaining * 1000))
        if number > 1 or self.remaining is not None:
            self.timeouts = extensions["timeout"] = frozen.timeouts(self.remaining)
        if number > 1 and policy.attempt_header is not None:
            headers[policy.attempt_header] = str(number)
        if self._new_key is not None:
            headers[policy.idempotency_headers[0]] = self._new_key
        if self._progress is not None:
            extensions["trace"] = self._progress.callback
        stream = None
        if self.body is not None:
            stream = self.body.stream()
            if self.body.content_length is not None:
                headers["Content-Length"] = str(self.body.content_length)
        elif number == 1 and not extensions and not headers:
            return frozen.request
        return frozen.copy(first=number == 1, stream=stream, headers=headers, extensions=extensions)

    # What came back -------------------------------------------------------------------------------

    def succeeded(self, response: httpx.Response, now: float) -> bool:
        """Whether the first answer is a plain success, which needs no further thought."""
        status, policy = response.status_code, self._policy
        if (
            not 200 <= status < 400
            or self._kept is not None
            or policy.classify is not None
            or status in policy.statuses
            or status in policy.refusal_statuses
        ):
            return False
        elapsed = now - self._started
        response.extensions["retry"] = RetryReport.folded(
            partial(
                unfold_success,
                self._frozen,
                self._terms,
                self._new_key,
                status,
                elapsed,
                self.allowed,
            )
        )
        return True

    def answered(
        self, response: httpx.Response, now: float, wall: float, task_left: float
    ) -> Wait | Done:
        """Decide after an answer.

        `wall`: Unix time. `task_left`: the seconds until the task's own cancel scopes end it.
        """
        policy, request = self._policy, self._frozen.request
        finding = self._judge(response, wall)
        if policy.classify is not None:
            seen = view(response, request, self.read)
            finding = finding.amended(checked_verdict(policy.classify(request, seen)))
        wish = None
        if finding.transient:
            wish = wish_of(policy, view(response, request, self.read), wall)
        self._record.findings.append(finding)
        return self._conclude(finding, wish, now, task_left, response.status_code)

    def failed(
        self,
        error: BaseException,
        now: float,
        wall: float,
        task_left: float,
    ) -> Wait | Done:
        """Decide after an error, which may have come while the body of the answer was being
        read.
        """
        response = self.answer
        self.answer = None
        answer = None if response is None else self._judge(response, wall)
        status = None if response is None else response.status_code
        finding = self._prove(error, answer)
        if finding is None or not isinstance(error, Exception):
            self._record.findings.append(self._unproved(error, answer))
            self._record.attempt_ended(
                status=status, error=error, elapsed=now - self._attempt_started
            )
            self.broke_off(error, now)
            return AS_IT_IS
        self.cause = error
        self._record.findings.append(finding)
        return self._conclude(finding, None, now, task_left, status)

    def waited(self, seconds: float) -> None:
        """Note how long a wait took."""
        self._record.slept += seconds

    def broke_off(self, error: BaseException, now: float) -> None:
        """Note that the request ended in an error that is not the transport's, if it hadn't ended
        yet.

        Cancellation and KeyboardInterrupt end an attempt or a wait like this, and so does a
        callable of the policy that raises.
        """
        if not self._ended:
            cancelled = not isinstance(error, Exception)
            self._cut_short(StopReason.CANCELLED if cancelled else StopReason.NOT_TRANSIENT, now)

    def check(self, now: float) -> None:
        """Raise `RetryError` if no attempt may start any more: it was cancelled, or time is up."""
        cancel = self._terms.cancel
        if self._closing.is_set() or (cancel is not None and cancel.is_set()):
            report = self._cut_short(StopReason.CANCELLED, now)
        elif self.allowed is not None and now >= self._started + self.allowed:
            report = self._cut_short(StopReason.DEADLINE, now)
        else:
            return
        request = self._frozen.request
        raise error_for(report, request, cause=self.cause, response=self.answer) from self.cause

    def release(self) -> None:
        """Let go of the last error: its traceback leads back to here, and would keep all this
        alive.
        """
        self.cause = None

    # What it means --------------------------------------------------------------------------------

    @property
    def _record(self) -> Record:
        if self._kept is None:
            facts = facts_of(self._frozen, self._policy, self._new_key)
            self._kept = Record(
                self._setting.observers, self._frozen, self._terms, facts, self.allowed
            )
        return self._kept

    def _judge(self, response: httpx.Response, wall: float) -> Finding:
        status = response.status_code
        record = self._record
        return classify_answer(
            self._policy,
            status,
            keyed=record.facts.keyed,
            replayed=replayed(response),
            valid_retry_after=status == 413 and asks_for_a_wait(response, wall),
            after_ambiguous=any(past.evidence is Evidence.AMBIGUOUS for past in record.findings),
        )

    def _prove(self, error: BaseException, answer: Finding | None) -> Finding | None:
        if not isinstance(error, Exception) or self._body_failed:
            return None
        progress = self._progress
        finding = classify_error(
            self._policy,
            error,
            never_sent=self._never_sent(error),
            stream_id=None if progress is None else progress.stream_id,
            answer=answer,
        )
        if self._policy.classify is None:
            return finding
        verdict = checked_verdict(self._policy.classify(self._frozen.request, error))
        if finding is None and verdict is not None:
            finding = self._unproved(error, answer)
        return None if finding is None else finding.amended(verdict)

    def _unproved(self, error: BaseException, answer: Finding | None) -> Finding:
        reason = f"{type(error).__name__}"
        if answer is not None:
            return Finding(answer.evidence, False, reason, answer.speaks_for_key)
        evidence = Evidence.NOT_SENT if self._never_sent(error) else Evidence.AMBIGUOUS
        return Finding(evidence, False, reason)

    def _never_sent(self, error: BaseException) -> bool:
        if isinstance(error, RetryError):
            # A passive layer inside has looked closer than we can.
            return error.report.executed is False
        return self._progress is not None and self._progress.never_sent

    @property
    def _body_failed(self) -> bool:
        return self.body is not None and self.body.failure is not None

    # What to do about it --------------------------------------------------------------------------

    def _conclude(
        self,
        finding: Finding,
        wish: Wish | None,
        now: float,
        task_left: float,
        status: int | None,
    ) -> Wait | Done:
        record = self._record
        decision = self._decide(finding, wish, now, task_left)
        record.attempt_ended(
            status=status,
            error=self.cause,
            elapsed=now - self._attempt_started,
            wish=wish,
            decision=decision,
        )
        if isinstance(decision, Retry):
            self._previous_delay = decision.delay
            return Wait(decision.delay)
        return self._hand_over(self._end(*outcome_of(decision), now))

    def _decide(
        self, finding: Finding, wish: Wish | None, now: float, task_left: float
    ) -> Decision:
        record, terms = self._record, self._terms
        ends = [now + task_left]
        if self.allowed is not None:
            ends.append(self._started + self.allowed)
        obstacle = None
        if finding.transient and self.body is not None:
            obstacle = self.body.obstacle()
        situation = Situation(
            attempts=len(record.findings),
            limit=terms.limit,
            limit_reason=terms.limit_reason,
            now=now,
            deadline_at=min(ends),
            obstacle=obstacle,
            wish=wish,
            previous_delay=self._previous_delay,
        )
        decision = decide(
            self._policy, record.facts, record.findings, situation, self._setting.random
        )
        budget = self._setting.budget
        if (
            isinstance(decision, Retry)
            and budget is not None
            and not budget.withdraw(self._frozen.origin)
        ):
            reason = f"{finding.reason}: the retry budget for this origin is spent"
            return fail(record.facts, record.findings, StopReason.BUDGET, reason)
        return decision

    def _hand_over(self, report: RetryReport) -> Done:
        request, response = self._frozen.request, self.answer
        if response is None:
            return Done(error_for(report, request, cause=self.cause))
        response.extensions["retry"] = report
        if self._policy.raise_on_failure and report.outcome is not Outcome.SUCCESS:
            return Done(error_for(report, request, response=view(response, request, self.read)))
        return AS_IT_IS

    def _cut_short(self, stop_reason: StopReason, now: float) -> RetryReport:
        record = self._record
        ending = fail(record.facts, record.findings, stop_reason, stop_reason.value)
        return self._end(*outcome_of(ending), now)

    def _end(self, outcome: Outcome, stop_reason: StopReason, now: float) -> RetryReport:
        self._ended = True
        return self._record.request_ended(outcome, stop_reason, now - self._started)
