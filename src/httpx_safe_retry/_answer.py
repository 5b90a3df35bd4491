"""Reading an answer: the wait that it asks for, and a view of it for the policy's own callables."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ._checks import check_seconds
from ._decide import Wish
from ._outcome import DelaySource, Verdict
from ._policy import RetryPolicy
from ._retry_after import RetryAfter, parse_retry_after

if TYPE_CHECKING:
    import httpx


def view(response: httpx.Response, request: httpx.Request, read: bytes | None) -> httpx.Response:
    """Return the answer as the policy's callables may use it: with its request, and its body if
    `read`.

    What they do to the view leaves the answer itself unread for the caller.
    """
    if read is not None:
        # A body that can't be decoded is the caller's to meet, in the way that they read it; and
        # somebody's own class may not be made like this.
        with suppress(Exception):
            return type(response)(
                response.status_code,
                headers=response.headers,
                content=read,
                request=request,
                extensions=response.extensions,
            )
    response.request = request
    return response


def is_replayed(headers: httpx.Headers) -> bool:
    """Whether an answer with these headers is marked as the recorded result of its key."""
    return bool(headers.get("Idempotent-Replayed", "").strip().lower() == "true")


def wish_of(policy: RetryPolicy, seen: httpx.Response, wall: float) -> Wish | None:
    """Return the wait that an answer asks for: the policy's own `delay_hint` first, then
    Retry-After.

    `wall`: Unix time.
    """
    if policy.delay_hint is not None:
        seconds = policy.delay_hint(seen)
        if seconds is not None:
            return _hinted(seconds)
    asked = _retry_after(seen, wall)
    return None if asked is None else Wish(asked.seconds, DelaySource.RETRY_AFTER, asked.anomaly)


def asks_for_a_wait(response: httpx.Response, wall: float) -> bool:
    """Whether the answer carries a valid Retry-After."""
    asked = _retry_after(response, wall)
    return asked is not None and asked.seconds is not None


def checked_verdict(verdict: object) -> Verdict | None:
    """Return what `RetryPolicy.classify` said; `TypeError` for anything but a `Verdict` or None."""
    if verdict is None or isinstance(verdict, Verdict):
        return verdict
    raise TypeError(f"classify must return a Verdict or None, not {verdict!r}")


def _retry_after(response: httpx.Response, wall: float) -> RetryAfter | None:
    headers = response.headers
    return parse_retry_after(headers.get_list("Retry-After"), now=wall, date=headers.get("Date"))


def _hinted(seconds: float) -> Wish:
    try:
        check_seconds("delay_hint", seconds)
    except (TypeError, ValueError):
        return Wish(None, DelaySource.DELAY_HINT, "delay_hint returned no number of seconds")
    return Wish(float(seconds), DelaySource.DELAY_HINT)
