"""The closed vocabulary of this library: what is known about one attempt, how a request ended.

The values are plain strings, so that they can go into logs and metrics as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ._checks import check_boolean, check_instance


class _Word(str, Enum):
    # A member formats as its value on every Python (3.11 changed what str.format makes of a
    # mixed-in enum).
    def __str__(self) -> str:
        return str(self.value)

    def __format__(self, spec: str) -> str:
        return format(str(self.value), spec)


class Outcome(_Word):
    """How a logical request ended.

    Every failure but `UNCERTAIN_WRITE` promises that a write did not happen.

    SUCCESS: an answer that is not an error; redirects, too.
    PERMANENT_FAILURE: sending the same again is not expected to help.
    EXHAUSTED: a transient failure that a limit ended; `StopReason` says which.
    DEADLINE_EXCEEDED: a transient failure that the deadline ended.
    CANCELLED: the caller ended it.
    UNCERTAIN_WRITE: a write that may have happened, or did and gave no usable answer.
    """

    SUCCESS = "success"
    PERMANENT_FAILURE = "permanent_failure"
    EXHAUSTED = "exhausted"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    CANCELLED = "cancelled"
    UNCERTAIN_WRITE = "uncertain_write"


class StopReason(_Word):
    """Which rule ended a logical request.

    DONE: it succeeded.
    NOT_TRANSIENT: the same again is not expected to help.
    NOT_REPLAY_SAFE: repeating it could run it twice.
    BODY_NOT_REPLAYABLE: its body can't be sent again byte for byte.
    MAX_ATTEMPTS: no attempts were left.
    RETRY_AFTER: the server asked for a longer wait than the policy allows.
    DEADLINE: no time was left for another attempt.
    BUDGET: the retry budget of its origin was spent.
    DISABLED: retries were off for this request.
    CANCELLED: the caller ended it.
    """

    DONE = "done"
    NOT_TRANSIENT = "not_transient"
    NOT_REPLAY_SAFE = "not_replay_safe"
    BODY_NOT_REPLAYABLE = "body_not_replayable"
    MAX_ATTEMPTS = "max_attempts"
    RETRY_AFTER = "retry_after"
    DEADLINE = "deadline"
    BUDGET = "budget"
    DISABLED = "disabled"
    CANCELLED = "cancelled"


class Evidence(_Word):
    """What one attempt proves about whether the server ran the request.

    EXECUTED: the server confirmed it.
    REFUSED: the server, or a layer in front of it, says that it did not run it.
    NOT_SENT: the request never went out whole, so nothing can have run it.
    AMBIGUOUS: nobody knows.
    """

    EXECUTED = "executed"
    REFUSED = "refused"
    NOT_SENT = "not_sent"
    AMBIGUOUS = "ambiguous"


UNEXECUTED = frozenset({Evidence.REFUSED, Evidence.NOT_SENT})
"""The evidence that proves that an attempt changed nothing."""


class DelaySource(_Word):
    """Which rule chose a wait.

    BACKOFF: the policy's `backoff`.
    RETRY_AFTER: the response's Retry-After.
    DELAY_HINT: the policy's `delay_hint`.
    """

    BACKOFF = "backoff"
    RETRY_AFTER = "retry-after"
    DELAY_HINT = "delay-hint"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What `RetryPolicy.classify` says of one attempt.

    `transient`: whether sending the same again may succeed. `evidence`: what the attempt proves
    about whether the server ran the request; None leaves that to the library's own table. `reason`:
    words for the report and the log; "" leaves the usual ones.

    A verdict decides what is *useful*; whether it is *safe* is still for the evidence to say: a
    write that isn't replay-safe and may have run is not sent again, whatever `transient` says.

    Raises `TypeError` for a field of the wrong kind.
    """

    transient: bool
    evidence: Evidence | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        check_boolean("transient", self.transient)
        if self.evidence is not None:
            # The plain string compares equal to the member, but is not it.
            check_instance("evidence", self.evidence, Evidence)
        check_instance("reason", self.reason, str)
