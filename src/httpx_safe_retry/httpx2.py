"""`RetryTransport` and `wrap_client` for httpx2, the maintained continuation of httpx.

    from httpx_safe_retry import RetryPolicy
    from httpx_safe_retry.httpx2 import RetryTransport

    client = httpx2.Client(transport=RetryTransport(policy=RetryPolicy(deadline=10.0)))

Everything else is shared and found in `httpx_safe_retry`: policies, budgets, reports, errors. A
typed error is also of the httpx2 class of its cause, and `except RetryError` catches those of both
libraries. Needs the extra: `pip install 'httpx-safe-retry[httpx2]'`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeVar

try:
    import httpx2
except ModuleNotFoundError as error:
    raise ImportError(
        "httpx_safe_retry.httpx2 needs httpx2: pip install 'httpx-safe-retry[httpx2]'"
    ) from error

from ._backoff import Random
from ._budget import Budget
from ._client import wrap
from ._clock import Clock
from ._events import Listener
from ._library import Library
from ._policy import DEFAULT_POLICY, RetryPolicy
from ._transport import Driver

__all__ = ["RetryTransport", "wrap_client"]

_LIBRARY = Library(httpx2)

_Client = TypeVar("_Client", bound="httpx2.Client | httpx2.AsyncClient")

if TYPE_CHECKING:

    class _Base(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
        """The driver, whose types are those of httpx, as it is here."""

        _library: Library

        def __init__(self, transport: object, **settings: Any) -> None: ...
else:

    class _Base(Driver, httpx2.BaseTransport, httpx2.AsyncBaseTransport):
        pass


class RetryTransport(_Base):
    """An httpx2 transport that sends a request again where that is useful, safe, in time and
    affordable.

        client = httpx2.Client(transport=RetryTransport())

    transport: what to wrap. Left out: httpx2's own, built when the first request needs it.
    policy: a `RetryPolicy`, or a callable from the request to one.
    budget: what limits retries per origin; may be shared. Left out: a `RetryBudget` of its own.
        None: no limit.
    listeners: callables that take a `RetryEvent`.
    clock, random: for tests; see `Clock`. `random` returns a float in [0, 1).

    It is `httpx_safe_retry.RetryTransport` for httpx2: that tells what comes back, what is raised,
    and what a request may override.
    """

    _library = _LIBRARY

    def __init__(
        self,
        transport: httpx2.BaseTransport | httpx2.AsyncBaseTransport | None = None,
        *,
        policy: RetryPolicy | Callable[[httpx2.Request], RetryPolicy] = DEFAULT_POLICY,
        budget: Budget | Literal["own"] | None = "own",
        listeners: Iterable[Listener] = (),
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        super().__init__(
            transport,
            policy=policy,
            budget=budget,
            listeners=listeners,
            clock=clock,
            random=random,
        )


def wrap_client(
    client: _Client,
    *,
    policy: RetryPolicy | Callable[[httpx2.Request], RetryPolicy] = DEFAULT_POLICY,
    budget: Budget | Literal["own"] | None = "own",
    listeners: Iterable[Listener] = (),
    clock: Clock | None = None,
    random: Random | None = None,
) -> _Client:
    """Put a `RetryTransport` around every transport of `client`, proxies and mounts included.

    The client itself is changed, and returned. All its transports share one budget. What is wrapped
    already is left as it is, so that a second call changes nothing. The other arguments are those
    of `RetryTransport`.

    Raises `TypeError` for anything but an `httpx2.Client` or `httpx2.AsyncClient`, and for one
    whose transports can't be reached; pass `transport=RetryTransport(...)` to its constructor then.
    """
    wrap(
        RetryTransport,
        _LIBRARY,
        client,
        policy=policy,
        budget=budget,
        listeners=listeners,
        clock=clock,
        random=random,
    )
    return client
