"""What happens after an attempt: the ladder of reasons not to send the same request again.

The rungs stand in the order of what they cost to get wrong. Usefulness first, because most answers
end there. Safety before everything that is only about effort: no deadline, count or token may ever
be the reason why a write was sent twice. Then what can't be (the body), what was agreed (attempts,
time). The budget comes last, because asking it takes a token, and a token must not be spent on a
retry that another rung would have refused; it is the engine's to ask, since everything here is a
pure function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ._backoff import Backoff, Random
from ._checks import check_seconds
from ._classify import Finding
from ._outcome import UNEXECUTED, DelaySource, Evidence, Outcome, StopReason
from ._policy import RetryPolicy


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of the logical request before it is sent."""

    is_write: bool
    idempotent: bool
    keyed: bool


@dataclass(frozen=True, slots=True)
class Wish:
    """The wait that the server asked for, or why its wish can't be followed."""

    seconds: float | None
    source: DelaySource
    anomaly: str | None = None


@dataclass(frozen=True, slots=True)
class Situation:
    """Where the logical request stands after an attempt, in readings of one monotonic clock."""

    attempts: int
    """How many there have been."""
    limit: int
    limit_reason: StopReason
    now: float
    deadline_at: float | None
    obstacle: str | None = None
    """Why the body can't be sent again."""
    wish: Wish | None = None
    previous_delay: float | None = None


@dataclass(frozen=True, slots=True)
class Succeed:
    """The request is done."""

    reason: str


@dataclass(frozen=True, slots=True)
class Retry:
    """Send the same again after `delay` seconds, if the budget allows."""

    delay: float
    source: DelaySource
    reason: str


@dataclass(frozen=True, slots=True)
class FailPermanent:
    """Sending the same again can't help. A write did not happen."""

    reason: str


@dataclass(frozen=True, slots=True)
class FailExhausted:
    """A limit ended a transient failure. A write did not happen."""

    stop_reason: StopReason
    reason: str


@dataclass(frozen=True, slots=True)
class FailUncertainWrite:
    """A write may have happened, or did and its answer was lost."""

    stop_reason: StopReason
    reason: str


Ending = Succeed | FailPermanent | FailExhausted | FailUncertainWrite
Decision = Retry | Ending


def decide(
    policy: RetryPolicy, facts: Facts, findings: Sequence[Finding], at: Situation, random: Random
) -> Decision:
    """Return what happens after the last of `findings`, one for each attempt so far.

    `random` is drawn from once if the answer is a retry with jitter.
    """
    last = findings[-1]
    if last.success:
        return Succeed(last.reason)
    if not last.transient:
        return fail(facts, findings, StopReason.NOT_TRANSIENT, last.reason)
    if not replay_safe(facts, findings):
        reason = f"{last.reason}: not safe to send again"
        return fail(facts, findings, StopReason.NOT_REPLAY_SAFE, reason)
    if at.obstacle is not None:
        reason = f"{last.reason}: {at.obstacle}"
        return fail(facts, findings, StopReason.BODY_NOT_REPLAYABLE, reason)
    if at.attempts >= at.limit:
        reason = f"{last.reason}: attempt {at.attempts} of {at.limit}"
        return fail(facts, findings, at.limit_reason, reason)
    return _when(policy, facts, findings, at, random)


def fail(facts: Facts, findings: Sequence[Finding], stop_reason: StopReason, reason: str) -> Ending:
    """Return the failure that `stop_reason` means here.

    Every failure but an uncertain write promises that a write did not happen, so that uncertainty
    wins over every limit.
    """
    if facts.is_write and executed(facts, findings) is not False:
        return FailUncertainWrite(stop_reason, reason)
    if stop_reason is StopReason.NOT_TRANSIENT:
        return FailPermanent(reason)
    return FailExhausted(stop_reason, reason)


def outcome_of(ending: Ending) -> tuple[Outcome, StopReason]:
    """Return how a request ended by this decision."""
    if isinstance(ending, Succeed):
        return Outcome.SUCCESS, StopReason.DONE
    if isinstance(ending, FailPermanent):
        return Outcome.PERMANENT_FAILURE, StopReason.NOT_TRANSIENT
    if isinstance(ending, FailUncertainWrite):
        return Outcome.UNCERTAIN_WRITE, ending.stop_reason
    return _LIMITS.get(ending.stop_reason, Outcome.EXHAUSTED), ending.stop_reason


_LIMITS = {
    StopReason.DEADLINE: Outcome.DEADLINE_EXCEEDED,
    StopReason.CANCELLED: Outcome.CANCELLED,
}
"""The limits that have an outcome of their own."""


def replay_safe(facts: Facts, findings: Sequence[Finding]) -> bool:
    """Whether sending the request again can't run it twice."""
    return (
        facts.idempotent
        or facts.keyed
        or all(finding.evidence in UNEXECUTED for finding in findings)
    )


def executed(facts: Facts, findings: Sequence[Finding]) -> bool | None:
    """Whether the server ran the request: True it said so, False it provably did not, None nobody
    knows.

    One ambiguous attempt makes it unknown for good: a DELETE that times out and is then answered
    404 may well have been what removed the thing. The exception is a keyed request whose last
    answer is the server's word on the key.
    """
    if any(finding.evidence is Evidence.EXECUTED for finding in findings):
        return True
    if all(finding.evidence in UNEXECUTED for finding in findings):
        return False
    if facts.keyed and findings[-1].speaks_for_key:
        return False
    return None


def _when(
    policy: RetryPolicy, facts: Facts, findings: Sequence[Finding], at: Situation, random: Random
) -> Decision:
    last = findings[-1]
    asked = _asked_for(policy, at.wish)
    note = ""
    if asked is not None and asked > policy.retry_after_max:
        longest = f"{policy.retry_after_max:g} s"
        if policy.retry_after_over == "stop":
            reason = f"{last.reason}: it asks for {asked:g} s, more than {longest}"
            return fail(facts, findings, StopReason.RETRY_AFTER, reason)
        note = f", which asked for {asked:g} s, more than {longest}"
        asked = policy.retry_after_max if policy.retry_after_over == "clamp" else None
    if asked is not None and not _fits(policy, at, asked):
        if policy.retry_after_past_deadline == "stop":
            return _no_time(policy, facts, findings, at, asked)
        note = note or f", which asked for {asked:g} s, past the deadline"
        asked = None
    if asked is not None:
        assert at.wish is not None
        return Retry(_spread(policy, at, asked, random), at.wish.source, f"{last.reason}{note}")
    delay = _backoff(policy, at, random)
    if not _fits(policy, at, delay):
        return _no_time(policy, facts, findings, at, delay)
    return Retry(delay, DelaySource.BACKOFF, f"{last.reason}{note}")


def _asked_for(policy: RetryPolicy, wish: Wish | None) -> float | None:
    if wish is None:
        return None
    if wish.source is DelaySource.RETRY_AFTER and not policy.respect_retry_after:
        return None
    return wish.seconds


def _fits(policy: RetryPolicy, at: Situation, delay: float) -> bool:
    # Strictly: a retry that starts at the deadline has no time at all.
    return at.deadline_at is None or at.now + delay + policy.min_attempt_time < at.deadline_at


def _spread(policy: RetryPolicy, at: Situation, asked: float, random: Random) -> float:
    # On top, so that the server's wish stays a minimum, and never so much that it breaks the
    # deadline.
    most = policy.retry_after_jitter
    if most == 0:
        return asked
    if at.deadline_at is not None:
        most = min(most, at.deadline_at - at.now - asked - policy.min_attempt_time)
    delay = max(asked, asked + random() * most)
    # What is left may be rounded, and a draw close to 1 with it, up to the deadline itself.
    return delay if _fits(policy, at, delay) else asked


def _backoff(policy: RetryPolicy, at: Situation, random: Random) -> float:
    if isinstance(policy.backoff, Backoff):
        return policy.backoff.delay(at.attempts, at.previous_delay, random)
    delay = policy.backoff(at.attempts)
    check_seconds("what backoff returns", delay)
    return float(delay)


def _no_time(
    policy: RetryPolicy, facts: Facts, findings: Sequence[Finding], at: Situation, delay: float
) -> Ending:
    assert at.deadline_at is not None
    left = max(0.0, at.deadline_at - at.now)
    reason = f"{findings[-1].reason}: a wait of {delay:.3g} s does not fit the {left:.3g} s left"
    if policy.min_attempt_time > 0:
        reason += f", {policy.min_attempt_time:g} s of which are kept for the attempt"
    return fail(facts, findings, StopReason.DEADLINE, reason)
