"""How long to wait before a retry when the server does not say: truncated exponential backoff.

The rule: `min(cap, base * factor**n)` seconds, n = 0 for the first retry, spread by at most one
random draw. Whatever the strategy, the draw and the retry's number, the wait is finite and lies in
[0, cap].

The spread is what matters in a fleet: clients that failed together and all wait d come back
together. Strategies and formulas are those of Brooker, "Exponential Backoff And Jitter", AWS
Architecture Blog, 2015.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

__all__ = ["Backoff", "Jitter", "JitterFunction", "Random"]

Random = Callable[[], float]
"""Draws a float from [0, 1), as `random.random` does."""
Jitter = Literal["none", "full", "equal", "decorrelated"]
JitterFunction = Callable[[float, Random], float]


@dataclass(frozen=True, slots=True)
class Backoff:
    """Truncated exponential backoff: d = `min(cap, base * factor**n)`, n = 0 for the first retry.

    - `base`: seconds before the first retry (>= 0; 0 retries at once).
    - `factor`: what d grows by from retry to retry (>= 1).
    - `cap`: seconds, the longest wait of all, whatever the jitter (>= `base`).
    - `jitter`: how d is spread, U being a uniform draw. `"none"` waits d; `"full"` U(0, d);
      `"equal"` d/2 + U(0, d/2); `"decorrelated"` min(cap, U(base, 3 * the wait before)), for which
      `factor` does not count. Or a callable that gets d and the source of randomness and returns
      the seconds; a result above `cap` becomes `cap`.

    A value of the wrong type raises `TypeError`, one out of range `ValueError`, naming the field.
    """

    base: float = 0.1
    factor: float = 2.0
    cap: float = 10.0
    jitter: Jitter | JitterFunction = "full"

    def __post_init__(self) -> None:
        for field in ("base", "factor", "cap"):
            # As floats, since integers would grow without bound instead of overflowing.
            object.__setattr__(self, field, _number(f"backoff.{field}", getattr(self, field)))
        if self.factor < 1:
            raise ValueError(f"backoff.factor must be >= 1, not {self.factor!r}")
        if self.cap < self.base:
            raise ValueError(
                f"backoff.cap must be >= backoff.base ({self.base!r}), not {self.cap!r}"
            )
        _check_jitter(self.jitter)

    def delay(self, retry: int, previous: float | None, random: Random) -> float:
        """Seconds to wait before a retry: finite and in [0, cap].

        `retry` is 1 for the first retry. `previous` is the wait before the last retry, None if
        there was none: decorrelated jitter builds on it. `random` returns a float in [0, 1); no
        named strategy calls it twice. A `jitter` callable that returns anything but a finite number
        >= 0 raises `TypeError` or `ValueError`.
        """
        wait = self._exponential(retry - 1)
        if self.jitter == "none":
            return wait
        if self.jitter == "full":
            return _uniform(0.0, wait, random)
        if self.jitter == "equal":
            return _uniform(wait / 2, wait, random)
        if self.jitter == "decorrelated":
            # Brooker takes the base for the wait before the first, so that this one is spread too.
            # When Retry-After set the last wait, it may lie below the base or above the cap.
            last = self.base if previous is None else min(previous, self.cap)
            return min(self.cap, _uniform(self.base, max(self.base, 3 * last), random))
        return min(self.cap, _number("what backoff.jitter returns", self.jitter(wait, random)))

    def _exponential(self, n: int) -> float:
        try:
            return min(self.cap, self.base * self.factor**n)
        except OverflowError:
            # The power alone is beyond 10^308: past any cap, from any base but 0. It is raised by
            # `**` itself, where the product would quietly become inf and be cut by the cap.
            return self.cap if self.base > 0 else 0.0


def _uniform(low: float, high: float, random: Random) -> float:
    """U(low, high), drawn from (low, high].

    `random` may return exactly 0.0 but never 1.0, and a wait of 0 is no backoff at all.
    """
    return low + (1.0 - random()) * (high - low)


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be an int or a float, not {value!r}")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"{name} is too large for a float") from None
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{name} must be finite and >= 0, not {value!r}")
    return number


def _check_jitter(jitter: object) -> None:
    names = get_args(Jitter)
    if isinstance(jitter, str):
        if jitter not in names:
            raise ValueError(f"backoff.jitter must be one of {names} or a callable, not {jitter!r}")
    elif not callable(jitter):
        raise TypeError(f"backoff.jitter must be one of {names} or a callable, not {jitter!r}")
