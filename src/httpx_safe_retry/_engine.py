"""One logical request, sans-IO: it is told what happened and answers what to do.

The drivers in `_transport.py` send, read, discard and wait; when, whether and with what is decided
here. No clock is read and no randomness drawn: both come in, as numbers or as the callables of
`Setting`.

    start() -> the request to send -------------------------------+
       succeeded(response, now)? -> hand it out                   |
       answered(response, ...), failed(error, ...) -> Step <------+
          Wait: discard, wait, waited(seconds)                    |
                again(now) -> the request to send ----------------+
          Raise: discard, raise error(report)
          None: hand out what the attempt gave, response or error, as it is

`broke_off(error, now)` is told of whatever else ends the request on this way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ._answer import checked_verdict, is_replayed, view, wish_of
from ._clock import EitherEvent
from ._course import Course, Setting
from ._decide import Retry, Wish, outcome_of
from ._errors import RetryError, error_for
from ._facts import needs_evidence, usable_key
from ._frozen import FrozenRequest
from ._outcome import Outcome, StopReason
from ._policy import Terms
from ._proof import left_open, proved_by_error
from ._record import attach, attach_success
from ._report import RetryReport
from ._trace import SendProgress

if TYPE_CHECKING:
    import threading

    import httpx

    from ._body import Body


@dataclass(frozen=True, slots=True)
class Wait:
    """Discard what the attempt left, wait for so many seconds, and go on."""

    delay: float


@dataclass(frozen=True, slots=True)
class Raise:
    """Discard what the attempt left, and raise the error for this report."""

    report: RetryReport


Step = Wait | Raise | None


class LogicalRequest:
    """What is known of one logical request, and what to do next about it."""

    # Defaults of the class, so that a request that succeeds at once sets next to nothing.
    answer: httpx.Response | None = None
    """What the last attempt was answered, if it was."""
    read: bytes | None = None
    """The body of that answer, if it was read to its end."""
    remaining: float | None = None
    """The seconds that the attempt under way may take, or None for no limit."""
    timeouts: dict[str, float | None] | None = None
    """The timeouts of the attempt under way, where they are its own to change."""
    task_ends = float("inf")
    """When the task's own cancel scopes end it: what `RetryPolicy.deadline_header` tells of them.
    """
    sent = False
    """Whether the first attempt was made."""
    _cause: Exception | None = None  # the error that ended the last attempt, if one did
    _new_key: str | None = None
    _begun: Course | None = None

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
        self._progress = frozen.progress
        self.body = body
        self._started = now
        self.allowed = allowed
        self._closing = closing

    @property
    def method(self) -> str:
        """The method of every attempt."""
        return self._frozen.method

    def prefetch(self, status: int) -> int:
        """How long the body of an answer may be to be read within the attempt.

        One that is thrown away is not read first: a server that is struggling may take its time.
        """
        if not self._terms.active:
            return 0
        policy = self._policy
        if status not in policy.statuses and status not in policy.refusal_statuses:
            return policy.prefetch
        assert self.answer is not None
        replayed = is_replayed(self.answer.headers)
        return 0 if self._course.goes_on_after(status, replayed=replayed) else policy.prefetch

    @property
    def ends(self) -> float | None:
        """When the deadline ends it, on the clock that `now` is read from; None: never."""
        return None if self.allowed is None else self._started + self.allowed

    def spare_until(self, step: Wait | Raise) -> float | None:
        """Until when there is time for what nobody waits for, on the same clock; None: no limit."""
        if self.ends is None or isinstance(step, Raise):
            return self.ends
        return self.ends - step.delay - self._policy.min_attempt_time

    @property
    def sent_timeouts(self) -> dict[str, float | None]:
        """The timeouts that the attempt under way was given."""
        return self._frozen.timeouts(None) if self.timeouts is None else self.timeouts

    @property
    def wake(self) -> threading.Event:
        """What ends a wait early: the transport is closed, or the caller's own event is set."""
        cancel = self._terms.cancel
        return self._closing if cancel is None else EitherEvent(cancel, self._closing)

    @property
    def _course(self) -> Course:
        if self._begun is None:
            self._begun = Course(
                self._setting,
                self._terms,
                self._frozen,
                self._new_key,
                number=1 if self.sent else 0,
                began=self._started,
                allowed=self.allowed,
            )
        return self._begun

    # What is sent ---------------------------------------------------------------------------------

    def start(self, *, asynchronous: bool) -> httpx.Request:
        """Return the request to send first.

        Raises `RetryError` if it is cancelled or out of time already, and `TypeError` or
        `ValueError` if `RetryPolicy.idempotency_key` makes no usable key.
        """
        terms, policy, frozen = self._terms, self._policy, self._frozen
        if self.allowed is not None or terms.cancel is not None:
            self._check(self._started)
        if policy.idempotency_key is not None and frozen.method in ("POST", "PATCH"):
            if not frozen.has_header(policy.key_names):
                self._new_key = usable_key(policy.idempotency_key())
        elif needs_evidence(frozen, terms):
            caller = frozen.extensions.get("trace")
            self._progress = SendProgress(caller, asynchronous=asynchronous)
        if self._setting.budget is not None and not terms.covered:
            self._setting.budget.deposit(frozen.origin)
        if self._setting.observers.curious:
            self._course.attempt_starts(self._started)
        self.sent = True
        return self._outgoing(1, self._started)

    def again(self, now: float) -> httpx.Request:
        """Return the request to send next, `now` that the wait is over.

        Raises `RetryError` if it was cancelled meanwhile, or is out of time.
        """
        self._check(now)
        if self._progress is not None:
            self._progress = self._progress.anew()
        self.answer = self.read = self._cause = None
        return self._outgoing(self._course.attempt_starts(now), now)

    def _check(self, now: float) -> None:
        cancel = self._terms.cancel
        if self._closing.is_set() or (cancel is not None and cancel.is_set()):
            report = self._course.cut_short(StopReason.CANCELLED, now)
        elif self.ends is not None and now >= self.ends:
            report = self._course.cut_short(StopReason.DEADLINE, now)
        else:
            return
        raise self.error(report) from self._cause

    def _outgoing(self, number: int, now: float) -> httpx.Request:
        policy, frozen = self._policy, self._frozen
        extensions: dict[str, object] = {}
        headers: dict[str, str] = {}
        if self.allowed is not None:
            self.remaining = self._started + self.allowed - now
        if policy.deadline_header is not None:
            ends = self.task_ends if self.ends is None else min(self.task_ends, self.ends)
            if ends != float("inf"):
                left = min(max(ends - now, 0), 1e9)  # so that no float overflows
                headers[policy.deadline_header] = str(int(left * 1000))
        if number > 1 or self.remaining is not None:
            self.timeouts = extensions["timeout"] = frozen.timeouts(self.remaining)
        if number > 1:
            extensions["retry_attempt"] = number
            if policy.attempt_header is not None:
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
            return frozen.outgoing
        return frozen.copy(first=number == 1, stream=stream, headers=headers, extensions=extensions)

    # What came back -------------------------------------------------------------------------------

    def succeeded(self, response: httpx.Response, now: float) -> bool:
        """Whether the first answer is a plain success, which needs no further thought."""
        status, policy = response.status_code, self._policy
        if (
            not 200 <= status < 400
            or self._begun is not None
            or policy.classify is not None
            or status in policy.statuses
            or status in policy.refusal_statuses
        ):
            return False
        self._hand_out()
        elapsed = now - self._started
        attach_success(response, self._frozen, self._terms, self._new_key, elapsed, self.allowed)
        return True

    def answered(self, response: httpx.Response, now: float, wall: float, task_left: float) -> Step:
        """Decide after an answer.

        `wall`: Unix time. `task_left`: the seconds until the task's own cancel scopes end it.
        """
        policy, course = self._policy, self._course
        # On record before a callable of the policy is asked: should that raise, the report still
        # says what may have run.
        finding = course.found(course.proved_by(response, self._progress, wall))
        if policy.classify is not None:
            verdict = policy.classify(self._frozen.request, self._view(response))
            finding = course.found(finding.amended(checked_verdict(verdict)))
        wish = None
        if finding.transient:
            wish = wish_of(policy, self._view(response), wall)
        return self._conclude(finding.transient, wish, now, task_left)

    def failed(self, error: BaseException, now: float, wall: float, task_left: float) -> Step:
        """Decide after an error, which may have come while the body of the answer was being read.

        What the caller's own body raised is raised here, should the wrapped transport have made
        something else of it.
        """
        course = self._course
        answer = (
            None if self.answer is None else course.proved_by(self.answer, self._progress, wall)
        )
        unknown = course.found(left_open(error, self._frozen, self._progress, answer))
        theirs = None if self.body is None else self.body.failure
        if theirs is None and isinstance(error, Exception):
            self._cause = error
            known = proved_by_error(self._policy, error, self._frozen, self._progress, answer)
            finding = course.found(known or unknown)
            verdict = None
            if self._policy.classify is not None:
                verdict = checked_verdict(self._policy.classify(self._frozen.request, error))
            if known is not None or verdict is not None:
                transient = course.found(finding.amended(verdict)).transient
                return self._conclude(transient, None, now, task_left)
        self.broke_off(error, now)
        if theirs is not None and theirs is not error and isinstance(error, Exception):
            raise theirs
        return None

    def discarded(self, rest: bytes | None) -> None:
        """Note that the answer was discarded, and what its body was, if all of it was read."""
        if self.read is None:
            self.read = rest

    def waited(self, seconds: float) -> None:
        """Note how long a wait took."""
        self._course.waited(seconds)

    def broke_off(self, error: BaseException, now: float) -> None:
        """Note that it ended in an error that no decision led to, if it hadn't ended yet."""
        self._course.broke_off(error, self._progress, now, self._status, self._cause)

    def release(self) -> None:
        """Let go of the last error: its traceback leads here, and would keep all this alive."""
        self._cause = None

    def _conclude(self, transient: bool, wish: Wish | None, now: float, task_left: float) -> Step:
        obstacle = self.body.obstacle() if transient and self.body is not None else None
        decision = self._course.decide(obstacle, wish, now, task_left, self._status, self._cause)
        if isinstance(decision, Retry):
            return Wait(decision.delay)
        report = self._course.end(*outcome_of(decision), now)
        if self._cause is not None or self.answer is None:
            return Raise(report)
        attach(report, self.answer)
        if (
            self._policy.raise_on_failure
            and report.outcome is not Outcome.SUCCESS
            # It is left to a layer around this one, which has yet to judge the answer.
            and not self._terms.covered
        ):
            return Raise(report)
        self._hand_out()
        return None

    def _hand_out(self) -> None:
        # Its body is read with the timeouts of its attempt, which httpcore looks up when reading
        # starts. From here on it is the caller's, and so is the time that it takes.
        if self.timeouts is not None:
            self.timeouts.update(self._frozen.timeouts(None))

    def error(self, report: RetryReport) -> RetryError:
        """Return the error that says so."""
        request, response = self._frozen.request, self.answer
        if self._cause is not None or response is None:
            return error_for(report, request, cause=self._cause)
        attach(report, response)
        return error_for(report, request, response=self._view(response))

    @property
    def _status(self) -> int | None:
        return None if self.answer is None else self.answer.status_code

    def _view(self, response: httpx.Response) -> httpx.Response:
        return view(response, self._frozen.request, self.read)
