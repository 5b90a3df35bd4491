"""The course of one logical request: its attempts so far, and what follows from them.

It begins with the first thing that is not a plain success; most requests never get here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ._backoff import Random
from ._budget import Budget
from ._classify import Finding
from ._decide import Decision, Retry, Situation, Wish, decide, fail, outcome_of, replay_safe
from ._events import Observers
from ._facts import facts_of
from ._frozen import FrozenRequest
from ._outcome import Evidence, Outcome, StopReason
from ._policy import Terms
from ._proof import left_open, proved_by_answer
from ._record import Record
from ._report import RetryReport

if TYPE_CHECKING:
    import httpx

    from ._trace import SendProgress


@dataclass(frozen=True, slots=True)
class Setting:
    """What a transport lends to each of its requests."""

    random: Random
    budget: Budget | None
    observers: Observers


class Course:
    """Keeps what the attempts proved, and decides after each.

    `number`: of the attempt under way, 0 before the first. `began`: when that attempt and the
    request itself did. `allowed`: the seconds for all of it, or None.
    """

    def __init__(
        self,
        setting: Setting,
        terms: Terms,
        frozen: FrozenRequest,
        new_key: str | None,
        *,
        number: int,
        began: float,
        allowed: float | None,
    ) -> None:
        self._setting = setting
        self._terms = terms
        self._frozen = frozen
        self._origin = frozen.origin
        self._number = number
        self._began = self._attempt_began = began
        self._ends = None if allowed is None else began + allowed
        self._previous_delay: float | None = None
        self._ended = False
        facts = facts_of(frozen, terms.policy, new_key)
        self._record = Record(setting.observers, frozen, terms, facts, allowed, new_key)

    def attempt_starts(self, now: float) -> int:
        """Note that the next attempt is about to be sent, and return its number."""
        self._attempt_began = now
        self._number += 1
        self._record.attempt_starts(self._number)
        return self._number

    def proved_by(
        self, response: httpx.Response, progress: SendProgress | None, wall: float
    ) -> Finding:
        """Return what an answer proves. `wall`: Unix time."""
        earlier = self._record.findings[: self._number - 1]
        keyed = self._record.facts.keyed
        return proved_by_answer(
            self._terms.policy, response, self._frozen, earlier, progress, keyed=keyed, wall=wall
        )

    def found(self, finding: Finding) -> Finding:
        """Note what the attempt under way proved, in place of what was noted before."""
        self._record.findings[self._number - 1 :] = [finding]
        return finding

    def goes_on_after(self, status: int, *, replayed: bool) -> bool:
        """Whether an answer of a transient status is thrown away unseen, and the request sent
        again, if only time, budget and body allow it.
        """
        terms, record = self._terms, self._record
        if terms.policy.classify is not None or terms.policy.delay_hint is not None:
            return False
        if replayed and record.facts.keyed:
            return False  # it is the recorded result, and asking again gives it again
        refused = status in terms.policy.refusal_statuses
        finding = Finding(Evidence.REFUSED if refused else Evidence.AMBIGUOUS, True, "")
        earlier = record.findings[: self._number - 1]
        return self._number < terms.limit and replay_safe(record.facts, [*earlier, finding])

    def decide(
        self,
        obstacle: str | None,
        wish: Wish | None,
        now: float,
        task_left: float,
        status: int | None,
        error: Exception | None,
    ) -> Decision:
        """Return what happens after the attempt whose finding was noted last."""
        decision = self._decide(obstacle, wish, now, task_left)
        if isinstance(decision, Retry):
            self._previous_delay = decision.delay
        self._attempt_ended(status, error, now, wish, decision)
        return decision

    def _decide(
        self, obstacle: str | None, wish: Wish | None, now: float, task_left: float
    ) -> Decision:
        record, terms, setting = self._record, self._terms, self._setting
        soonest = now + task_left
        situation = Situation(
            attempts=self._number,
            limit=terms.limit,
            limit_reason=terms.limit_reason,
            now=now,
            deadline_at=soonest if self._ends is None else min(soonest, self._ends),
            obstacle=obstacle,
            wish=wish,
            previous_delay=self._previous_delay,
        )
        decision = decide(terms.policy, record.facts, record.findings, situation, setting.random)
        if (
            isinstance(decision, Retry)
            and setting.budget is not None
            and not setting.budget.withdraw(self._origin)
        ):
            reason = f"{record.findings[-1].reason}: the retry budget for this origin is spent"
            return fail(record.facts, record.findings, StopReason.BUDGET, reason)
        return decision

    def waited(self, seconds: float) -> None:
        """Note how long a wait took."""
        self._record.slept += seconds

    def broke_off(
        self,
        error: BaseException,
        progress: SendProgress | None,
        now: float,
        status: int | None,
        cause: Exception | None,
    ) -> None:
        """Note that the request ended in an error that no decision led to, if it hadn't ended yet.

        Cancellation and KeyboardInterrupt end an attempt or a wait like this, and so does a
        callable of the policy that raises. `cause`: the transport error it was asked about.
        """
        if self._ended:
            return
        if len(self._record.attempts) < self._number:
            # Whatever ended it, the attempt was sent, and may have run.
            if len(self._record.findings) < self._number:
                self.found(left_open(error, self._frozen, progress, None))
            self._attempt_ended(status, cause or error, now)
        self.cut_short(
            StopReason.NOT_TRANSIENT if isinstance(error, Exception) else StopReason.CANCELLED, now
        )

    def cut_short(self, stop_reason: StopReason, now: float) -> RetryReport:
        """End it for a reason beside the last attempt, and return the report."""
        record = self._record
        ending = fail(record.facts, record.findings, stop_reason, stop_reason.value)
        return self.end(*outcome_of(ending), now)

    def end(self, outcome: Outcome, stop_reason: StopReason, now: float) -> RetryReport:
        """End it, and return the report."""
        self._ended = True
        return self._record.request_ended(outcome, stop_reason, now - self._began)

    def _attempt_ended(
        self,
        status: int | None,
        error: BaseException | None,
        now: float,
        wish: Wish | None = None,
        decision: Decision | None = None,
    ) -> None:
        self._record.attempt_ended(
            status=status,
            error=error,
            elapsed=now - self._attempt_began,
            wish=wish,
            decision=decision,
        )
