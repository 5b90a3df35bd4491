"""An httpx transport that retries what can succeed and never repeats a write that may have run."""

from ._backoff import Backoff
from ._budget import Budget, RetryBudget
from ._client import wrap_client
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
from ._transport import RetryTransport

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
    globals()[_name].__module__ = __name__
