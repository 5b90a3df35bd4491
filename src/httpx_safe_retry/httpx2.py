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

    It is `httpx_safe_retry.RetryTransport` for httpx2: that tells what the arguments mean, what
    comes back and what is raised.
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

    It is `httpx_safe_retry.wrap_client` for an `httpx2.Client` or `httpx2.AsyncClient`. The client
    itself is changed, and returned.

    Raises `TypeError` for anything else, and for one whose transports can't be reached.
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
