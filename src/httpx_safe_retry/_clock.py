"""Where time and chance come from, so that tests can bring their own.

The core never looks at a clock: the drivers read one and pass the numbers on.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

import anyio


class Clock(Protocol):
    """What a `RetryTransport` needs to know about time. All durations are seconds."""

    def monotonic(self) -> float:
        """Return a time that never goes back, for elapsed times and deadlines."""
        ...

    def time(self) -> float:
        """Return Unix time. It is read for HTTP dates alone."""
        ...

    def sleep(self, seconds: float, wake: threading.Event) -> None:
        """Block the thread for `seconds`, or until `wake` is set."""
        ...

    async def asleep(self, seconds: float) -> None:
        """Suspend the task for `seconds`. Cancelling the task ends it at once."""
        ...


class SystemClock:
    """The machine's own clock. Async waits go through anyio: asyncio and trio both work."""

    monotonic = staticmethod(time.monotonic)
    time = staticmethod(time.time)

    def sleep(self, seconds: float, wake: threading.Event) -> None:
        """Block the thread for `seconds`, or until `wake` is set."""
        # A lock can't wait for longer than this (292 years on Linux): past it, Python raises
        # OverflowError.
        wake.wait(min(seconds, threading.TIMEOUT_MAX))

    async def asleep(self, seconds: float) -> None:
        """Suspend the task for `seconds`."""
        await anyio.sleep(seconds)


class EitherEvent(threading.Event):
    """An event that is set as soon as one of two others is.

    Python has no wait on two events, so this one looks at them in turn. Only a wait that has both
    the caller's cancel event and the transport's own to heed needs it.
    """

    _GLANCE = 0.02

    def __init__(self, first: threading.Event, second: threading.Event) -> None:
        super().__init__()
        self._first = first
        self._second = second

    def is_set(self) -> bool:
        """Tell whether one of the two is set."""
        return self._first.is_set() or self._second.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until one of the two is set, or `timeout` seconds have passed."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self.is_set():
            left = self._GLANCE if end is None else min(self._GLANCE, end - time.monotonic())
            if left <= 0:
                return False
            self._first.wait(left)
        return True
