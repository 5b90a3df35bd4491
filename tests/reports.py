"""Reports and attempts to test with, made without a transport."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from httpx_safe_retry import Attempt, Evidence, Outcome, RetryReport, StopReason


def attempt_of(number: int = 1, **fields: Any) -> Attempt:
    """An attempt that was answered 503, but for `fields`."""
    made: dict[str, Any] = {
        "status": 503,
        "error_type": None,
        "error_text": None,
        "evidence": Evidence.AMBIGUOUS,
        "elapsed": 0.25,
        "reason": "answered 503 Service Unavailable",
    }
    return Attempt(number, **{**made, **fields})


def report_of(
    outcome: Outcome = Outcome.EXHAUSTED,
    stop_reason: StopReason = StopReason.MAX_ATTEMPTS,
    *,
    attempts: Sequence[Attempt] | None = None,
    statuses: Sequence[int] = (503,),
    **fields: Any,
) -> RetryReport:
    """The report of a POST whose attempts were answered `statuses`, but for what is given."""
    if attempts is None:
        attempts = [attempt_of(number, status=status) for number, status in enumerate(statuses, 1)]
    made: dict[str, Any] = {
        "executed": False,
        "attempts": tuple(attempts),
        "elapsed": 1.5,
        "slept": 0.5,
        "replay_safe": False,
        "idempotency_key_present": False,
        "method": "POST",
        "url": "https://example.org/payments",
        "max_attempts": 3,
        "deadline": None,
        "is_write": True,
    }
    return RetryReport(outcome, stop_reason, **{**made, **fields})
