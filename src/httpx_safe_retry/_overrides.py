"""What one request may say about itself, as type checkers and editors see it.

The fields are those of `RetryPolicy`, which checks the values themselves; a test holds the two
equal.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import Literal, TypedDict

from ._backoff import Backoff
from ._policy import Classify, DelayHint


class PolicyChanges(TypedDict, total=False):
    """What `RetryPolicy.replace` takes: any of the policy's fields."""

    max_attempts: int
    deadline: float | None
    min_attempt_time: float
    backoff: Backoff | Callable[[int], float]
    statuses: Collection[int]
    refusal_statuses: Collection[int]
    idempotent_methods: Collection[str]
    idempotent: bool | None
    idempotency_headers: Sequence[str]
    idempotency_key: Callable[[], str] | None
    classify: Classify | None
    respect_retry_after: bool
    delay_hint: DelayHint | None
    retry_after_max: float
    retry_after_over: Literal["clamp", "stop", "backoff"]
    retry_after_past_deadline: Literal["backoff", "stop"]
    retry_after_jitter: float
    offline: bool
    replay_memory: int
    replay_limit: int
    prefetch: int
    attempt_header: str | None
    deadline_header: str | None
    raise_on_failure: bool


class RetryOverrides(PolicyChanges, total=False):
    """What `extensions={"retry": ...}` of one request may hold: any of `RetryPolicy`'s fields, and
    `cancel`, a `threading.Event` that ends the waits of this request.

    A plain mapping does the same. Annotated with this, type checkers refuse what no policy has, and
    editors complete what it does:

        retry: RetryOverrides = {"max_attempts": 2, "deadline": 1.5}
        client.get(url, extensions={"retry": retry})
    """

    cancel: threading.Event | None
