"""What happened to one logical request, as a small value to keep, pickle and explain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import _explain
from ._outcome import DelaySource, Evidence, Outcome, StopReason


@dataclass(frozen=True, slots=True)
class Attempt:
    """One call of the wrapped transport, and what was decided after it. Durations are seconds.

    number: 1 for the first; 2 and later are retries.
    status: of the answer, also when its body was then lost on the way; None without one.
    error_type: the class name of the error that ended the attempt, or None.
    error_text: the text of that error, without anything secret, or None.
    evidence: what it proves about whether the server ran the request.
    elapsed: until the answer was there, or the error; no wait is part of it.
    retry_after: the wait that the server asked for, before any clamping.
    anomaly: why the server's wish could not be followed, when it was not a valid one.
    delay: the wait before the next attempt; None when there was none.
    delay_source: which rule chose that wait.
    reason: why the request was sent again, or was not.
    """

    number: int
    status: int | None
    error_type: str | None
    error_text: str | None
    evidence: Evidence
    elapsed: float
    retry_after: float | None = None
    anomaly: str | None = None
    delay: float | None = None
    delay_source: DelaySource | None = None
    reason: str = ""


class _Unfolded:
    # A request that succeeds at once leaves only the means to fill in its report; the fields are
    # made when somebody looks at one. Most reports are never looked at, and building them would
    # cost more than all the rest of the happy path.
    __slots__ = ("_folded",)
    _folded: tuple[Callable[..., tuple[Any, ...]], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class RetryReport(_Unfolded):
    """How a logical request ended, and how it came to that. Durations are seconds.

    Nothing secret is in here: no header values, no userinfo, query string or fragment.

    outcome: how it ended.
    stop_reason: which rule ended it.
    executed: whether the server ran the request: True it confirmed it, False it provably did not,
        None nobody knows.
    attempts: in order; none if it ended before the first.
    elapsed: from the start of the first attempt until the end, waits included.
    slept: how much of that was spent waiting between attempts.
    replay_safe: whether sending the same request again, with the same idempotency key if it has
        one, can't run it twice.
    idempotency_key_present: whether it carried such a key, its own or one that the policy made.
    method: as it was sent.
    url: scheme, host, port and path; nothing else of the URL.
    max_attempts: how many attempts were allowed: 1 where retries were off.
    deadline: the total time that was allowed, or None.
    is_write: whether the request can change something on the server.
    """

    outcome: Outcome
    stop_reason: StopReason
    executed: bool | None
    attempts: tuple[Attempt, ...]
    elapsed: float
    slept: float
    replay_safe: bool
    idempotency_key_present: bool
    method: str
    url: str
    max_attempts: int
    deadline: float | None
    is_write: bool

    def explain(self) -> str:
        """Return what happened, what is known and what to do about it, in plain words."""
        return _explain.explain(self)

    def summary(self) -> str:
        """Return the same in one line, for a log."""
        return _explain.summary(self)

    def __getattr__(self, name: str) -> Any:
        # Reached only for what isn't there: a field that isn't filled in yet, or nothing of ours.
        if name not in type(self).__dataclass_fields__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        unfold, facts = self._folded
        fields = unfold(*facts)
        # The facts are those of the whole request, and the report may be kept for longer than that.
        _fold(self, (tuple, (fields,)))
        RetryReport.__init__(self, *fields)
        return getattr(self, name)


_new = object.__new__
_fold = _Unfolded.__dict__["_folded"].__set__


def folded_report(unfold: Callable[..., tuple[Any, ...]], *facts: Any) -> RetryReport:
    """Make a report whose fields `unfold(*facts)` returns, in order, when one is looked at."""
    report: RetryReport = _new(RetryReport)
    _fold(report, (unfold, facts))
    return report
