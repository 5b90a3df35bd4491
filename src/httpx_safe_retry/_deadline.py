"""`deadline(...)`: every request inside a block shares what is left of it."""

from __future__ import annotations

from collections.abc import Callable, Generator
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
def deadline(seconds: float, *, clock: Clock | None = None) -> Generator[None, None, None]:
    """Give everything inside the block `seconds` in all: attempts, waits, redirects, auth flows.

    Nested blocks and `RetryPolicy.deadline` can only shorten it: the soonest wins. The block itself
    raises nothing; a request that runs out of time does, or returns the last response it got. It
    holds for the thread or task that enters it and for tasks started inside. `clock` is for tests:
    the one that the transport was given.

    Raises `TypeError` or `ValueError` for anything but a finite number above 0.
    """
    check_seconds("deadline", seconds, above_zero=True)
    with _block(seconds, _System if clock is None else clock):
        yield


@contextmanager
def incoming_deadline(
    value: str | None, *, clock: Clock | None = None
) -> Generator[None, None, None]:
    """Pass on the deadline that came with a request: the server's side of `deadline_header`.

    `value`: the header as it came, milliseconds in decimal digits. Missing (None) or malformed, it
    sets no deadline: a client must not be able to break the server with it. With "0" time is up,
    and every request inside fails at once. Otherwise the block is like `deadline`. `clock` is for
    tests.
    """
    # 15 digits are 30,000 years: more can only be an attempt at something.
    if value is None or not (value.isascii() and value.isdigit() and len(value) <= 15):
        yield
        return
    with _block(int(value) / 1000, _System if clock is None else clock):
        yield


@contextmanager
def _block(seconds: float, clock: Clock) -> Generator[None, None, None]:
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
    """Return the seconds until the task's own cancel scopes end it, infinite without any."""
    return anyio.current_effective_deadline() - anyio.current_time()
