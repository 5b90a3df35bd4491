"""`deadline(...)`: every request inside a block shares what is left of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import anyio

from ._checks import check_seconds
from ._clock import Clock, SystemClock

_System = SystemClock()

# When the innermost block ends, and on which clock; the soonest of nested blocks is kept.
_ends: ContextVar[tuple[float, Clock] | None] = ContextVar(
    "httpx_safe_retry_deadline", default=None
)


@contextmanager
def deadline(seconds: float, *, clock: Clock | None = None) -> Iterator[None]:
    """Give everything inside the block `seconds` in all: attempts, waits, redirects, auth flows.

    Nested blocks and `RetryPolicy.deadline` can only shorten it: the soonest wins. The block itself
    raises nothing; a request that runs out of time does, or returns the last response it got. It
    holds for the thread or task that enters it and for tasks started inside. `clock` is for tests:
    the one that the transport was given.

    Raises `TypeError` or `ValueError` for anything but a finite number above 0.
    """
    check_seconds("deadline", seconds, above_zero=True)
    clock = _System if clock is None else clock
    outer = _ends.get()
    end = clock.monotonic() + seconds
    if outer is not None:
        end = min(end, clock.monotonic() + remaining_of(outer))
    token = _ends.set((end, clock))
    try:
        yield
    finally:
        _ends.reset(token)


current: Callable[[], tuple[float, Clock] | None] = _ends.get
"""The innermost block, if any, as `remaining_of` takes it."""


def remaining_of(block: tuple[float, Clock]) -> float:
    """Return the seconds that are left of a block. Below 0: it is over."""
    end, clock = block
    return end - clock.monotonic()


def of_thread() -> float:
    """In threads: no cancel scope can end a wait."""
    return float("inf")


def of_task() -> float:
    """Return the seconds until the current task's own cancel scopes end it, infinite without
    any.
    """
    return anyio.current_effective_deadline() - anyio.current_time()
