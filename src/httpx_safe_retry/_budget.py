"""How many retries an origin may get: a token bucket per origin.

The rule: retries <= ratio x logical requests + capacity, for every origin, at any time, whatever
the threads and however many origins there are. A first attempt is never held back.

- *Exact.* Tokens are counted in integers. Ten floats of 0.1 add up to 0.999..., which would refuse
  the retry that ten requests have earned.
- *The happy path takes no lock.* An origin that owes nothing has no bucket: it is full, and a
  deposit into a full bucket changes nothing. Other deposits are counted, and added up at the next
  withdrawal: one clamp after all of them leaves the same tokens as one clamp after each.
- *Bounded in memory.* A full bucket can be forgotten, since a new one is full too. A drained one
  can't: whoever drains one origin after the other would find `capacity` fresh tokens at every
  return. So what is forgotten leaves its debt behind in a table of fixed size, and no origin comes
  back richer than it left.
- *Locks guard arithmetic only.* Nothing waits under the lock, and no code of a caller runs there.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Collection
from fractions import Fraction
from typing import Protocol

__all__ = ["Budget", "Origin", "RetryBudget"]

Origin = tuple[str, str, int | None]
"""Scheme, host, port; None stands for the scheme's default port."""

# One byte each. Python salts the hashes of strings, so nobody can aim at the place of another.
_PLACES = 1 << 16
_WHOLE_DEBT = 255


class Budget(Protocol):
    """What `RetryTransport(budget=...)` takes: a `RetryBudget`, or one that processes share.

    Both methods are called from any thread, and in async code on the event loop: they should return
    at once. They should not raise either: the exception would take the place of the response. An
    origin is a tuple of scheme, host and port; None stands for the scheme's default port.
    """

    def deposit(self, origin: Origin) -> None:
        """Note one logical request, when its first attempt starts and whatever comes of it."""
        ...

    def withdraw(self, origin: Origin) -> bool:
        """Take one token for one retry. False: refused, the retry is not made."""
        ...


class RetryBudget:
    """Keeps retries within `ratio` x requests + `capacity` per origin, at any size of the fleet:
    when every client keeps that bound, so does their sum.

    - `ratio`: tokens that one logical request earns its origin (>= 0). 0.1 affords one retry for
      ten requests in the long run.
    - `capacity`: tokens that an origin starts with, and the most that it can save up (>= 0). Below
      1 there are no retries.
    - `max_origins`: how many origins are followed exactly (>= 1). Only those count that spent
      tokens and have not earned them back yet. Beyond that, the fullest are forgotten: an origin
      that comes back starts with what it had left, at most. A new one may find such a debt in its
      place and start with less than `capacity`, never with more.

    A retry takes one token. Share one object among the transports of a process; threads and tasks
    may use it freely. A value of the wrong type is a `TypeError`, one out of range a `ValueError`;
    both name the field.
    """

    def __init__(
        self, ratio: float = 0.1, capacity: float = 10, *, max_origins: int = 1024
    ) -> None:
        earned = _exactly("budget.ratio", ratio)
        full = _exactly("budget.capacity", capacity)
        if isinstance(max_origins, bool) or not isinstance(max_origins, int):
            raise TypeError(f"budget.max_origins must be an int, not {max_origins!r}")
        if max_origins < 1:
            raise ValueError(f"budget.max_origins must be >= 1, not {max_origins!r}")
        self._ratio = ratio
        self._capacity = capacity
        self._max_origins = max_origins
        # A unit is the largest part of a token that measures both amounts in whole numbers.
        self._token = math.lcm(earned.denominator, full.denominator)
        self._earned = int(earned * self._token)
        self._full = int(full * self._token)
        self._buckets: dict[Origin, _Bucket] = {}
        self._debts = bytearray(_PLACES)
        # Reentrant: a signal handler or a finalizer may send a request of its own while its thread
        # is in here, and must not wait for itself.
        self._lock = threading.RLock()

    @property
    def ratio(self) -> float:
        """Tokens that one logical request earns."""
        return self._ratio

    @property
    def capacity(self) -> float:
        """Tokens to start with, and the most that can be saved up."""
        return self._capacity

    @property
    def max_origins(self) -> int:
        """How many origins in debt are followed exactly."""
        return self._max_origins

    def __repr__(self) -> str:
        return (
            f"RetryBudget(ratio={self._ratio!r}, capacity={self._capacity!r}, "
            f"max_origins={self._max_origins!r})"
        )

    def deposit(self, origin: Origin) -> None:
        """Note one logical request to `origin`: it earns `ratio` tokens, up to `capacity`."""
        bucket = self._buckets.get(origin)
        if bucket is not None:
            next(bucket.deposits)

    def withdraw(self, origin: Origin) -> bool:
        """Take one token of `origin` for one retry. False: it has less than one, none is taken."""
        if self._full < self._token:
            return False
        with self._lock:
            bucket = self._buckets.get(origin) or self._open(origin)
            self._collect(bucket)
            if bucket.units < self._token:
                return False
            bucket.units -= self._token
            return True

    def tokens(self, origin: Origin) -> float:
        """The tokens that `origin` has now, in [0, capacity]: the retries it could still get."""
        with self._lock:
            bucket = self._buckets.get(origin)
            if bucket is None:
                return self._start(origin) / self._token
            self._collect(bucket)
            return bucket.units / self._token

    def _collect(self, bucket: _Bucket) -> None:
        # A counter is read by counting on, so each reading is noted like a deposit. Noted first: a
        # signal handler can come in when `next` returns (not later, as no call follows) and may
        # collect the very deposits that this reading has seen.
        bucket.counted += 1
        fresh = next(bucket.deposits) - bucket.counted
        if fresh > 0:
            bucket.counted += fresh
            units = bucket.units + self._earned * fresh
            bucket.units = units if units < self._full else self._full

    def _open(self, origin: Origin) -> _Bucket:
        if len(self._buckets) >= self._max_origins:
            self._make_room()
        return self._buckets.setdefault(origin, _Bucket(self._start(origin)))

    def _start(self, origin: Origin) -> int:
        debt = self._debts[hash(origin) % _PLACES]
        return self._full * (_WHOLE_DEBT - debt) // _WHOLE_DEBT

    def _make_room(self) -> None:
        """Forget a quarter of the buckets, the fullest, as they leave the least debt behind.

        A quarter at once, so that the search costs each new origin next to nothing. A deposit that
        another thread makes into a bucket just as it is forgotten is lost: fewer retries, not more.
        """
        buckets = list(self._buckets.items())
        for _, bucket in buckets:
            self._collect(bucket)
        buckets.sort(key=lambda item: item[1].units, reverse=True)
        for origin, bucket in buckets[: math.ceil(self._max_origins / 4)]:
            # Rounded up: what is remembered is never less than what is owed.
            debt = -(-_WHOLE_DEBT * (self._full - bucket.units) // self._full)
            place = hash(origin) % _PLACES
            self._debts[place] = max(self._debts[place], debt)
            self._buckets.pop(origin, None)


def debtors(budget: Budget | None) -> Collection[object]:
    """Return what is empty for as long as no deposit changes anything, whoever it is for."""
    if budget is None:
        return ()
    # A subclass may count deposits, or keep them elsewhere.
    return budget._buckets if type(budget) is RetryBudget else ("unknown",)


class _Bucket:
    """The tokens of one origin, in units, and the deposits that have been made since."""

    __slots__ = ("counted", "deposits", "units")

    def __init__(self, units: int) -> None:
        self.units = units
        self.counted = -1
        # CPython's `next(count)` is atomic: one C call under the GIL, compare-and-exchange in the
        # free-threaded builds (gh-117657). `x += 1` is neither.
        self.deposits = itertools.count()


def _exactly(name: str, value: object) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number of type int or float, not {value!r}")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"{name} is too large for a float") from None
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{name} must be finite and >= 0, not {value!r}")
    # The number that was written, not the binary one nearest to it: ten times 0.1 is 1.
    return Fraction(value) if isinstance(value, int) else Fraction(repr(number))
