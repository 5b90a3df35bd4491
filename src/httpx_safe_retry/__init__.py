"""An httpx transport that retries what can succeed and never repeats a write that may have run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._backoff import Backoff
from ._budget import Budget, RetryBudget
from ._clock import Clock
from ._deadline import deadline, incoming_deadline
from ._errors import (
    DeadlineExceededError,
    PermanentFailureError,
    RetriesExhaustedError,
    RetryError,
    UncertainWriteError,
    get_report,
    raise_for_outcome,
)
from ._events import (
    AttemptFinished,
    AttemptStarted,
    RequestFinished,
    RetryEvent,
    RetryRefused,
    RetryScheduled,
)
from ._outcome import DelaySource, Evidence, Outcome, StopReason, Verdict
from ._overrides import RetryOverrides
from ._policy import RetryPolicy
from ._report import Attempt, RetryReport

if TYPE_CHECKING:
    from ._for_httpx import RetryTransport, wrap_client

__all__ = [
    "Attempt",
    "AttemptFinished",
    "AttemptStarted",
    "Backoff",
    "Budget",
    "Clock",
    "DeadlineExceededError",
    "DelaySource",
    "Evidence",
    "Outcome",
    "PermanentFailureError",
    "RequestFinished",
    "RetriesExhaustedError",
    "RetryBudget",
    "RetryError",
    "RetryEvent",
    "RetryOverrides",
    "RetryPolicy",
    "RetryRefused",
    "RetryReport",
    "RetryScheduled",
    "RetryTransport",
    "StopReason",
    "UncertainWriteError",
    "Verdict",
    "deadline",
    "get_report",
    "incoming_deadline",
    "raise_for_outcome",
    "wrap_client",
]

for _name in __all__:
    if _name in globals():
        globals()[_name].__module__ = __name__


def __getattr__(name: str) -> object:
    # What needs httpx itself. Whoever came for `httpx_safe_retry.httpx2` may not want it.
    if name not in ("RetryTransport", "wrap_client"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import _for_httpx

    globals().update(RetryTransport=_for_httpx.RetryTransport, wrap_client=_for_httpx.wrap_client)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
