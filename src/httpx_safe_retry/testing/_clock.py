"""Virtual time: a wait moves the clock and takes none of the test's own time.

The rule: time moves by `advance` and by waits, never by itself, so that every instant a test meets
can be written down as a number.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import anyio.lowlevel

# Sun, 06 Nov 1994 08:49:37 GMT, which RFC 9110 section 5.6.7 writes in all three date forms.
_RFC_9110_EXAMPLE = 784111777.0


class VirtualClock:
    """A clock for `RetryTransport(clock=...)` on which waits end at once.

    ```python
    clock = VirtualClock()
    client = httpx.Client(transport=RetryTransport(ScriptedTransport(503, 200), clock=clock))
    client.get("https://example.org")
    assert clock.sleeps == [clock.monotonic()]
    ```

    start: what `monotonic()` begins with, in seconds.
    epoch: what `time()` begins with, in seconds of Unix time.
    on_sleep: called with the seconds of every wait in the middle of it, so that a test can set an
    event, cancel a scope or look around. It may be replaced at any time.

    Waits of concurrent tasks overlap, as they do in the world; waits of threads add up.
    """

    def __init__(
        self,
        start: float = 0.0,
        epoch: float = _RFC_9110_EXAMPLE,
        on_sleep: Callable[[float], object] | None = None,
    ) -> None:
        self.sleeps: list[float] = []
        """The waits asked for, in seconds and in order, those that were cut short included."""
        self.on_sleep = on_sleep
        self._now = start
        self._epoch = epoch - start
        self._lock = threading.Lock()

    def monotonic(self) -> float:
        """The seconds on this clock."""
        return self._now

    def time(self) -> float:
        """The Unix time on this clock."""
        return self._epoch + self._now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        with self._lock:
            self._now += seconds

    def sleep(self, seconds: float, wake: threading.Event) -> None:
        """Wait in virtual time; when `wake` is set, before or by `on_sleep`, no time passes."""
        due = self._begin_wait(seconds)
        if not wake.is_set():
            self._reach(due)

    async def asleep(self, seconds: float) -> None:
        """Wait in virtual time; a checkpoint: a cancelled wait lets no time pass."""
        due = self._begin_wait(seconds)
        await anyio.lowlevel.checkpoint()
        self._reach(due)

    def _begin_wait(self, seconds: float) -> float:
        with self._lock:
            self.sleeps.append(seconds)
            due = self._now + seconds
        if self.on_sleep is not None:
            self.on_sleep(seconds)
        return due

    def _reach(self, instant: float) -> None:
        with self._lock:
            self._now = max(self._now, instant)
