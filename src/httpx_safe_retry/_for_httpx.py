"""`RetryTransport` and `wrap_client` for httpx. `httpx2.py` is their twin for httpx2."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, TypeVar

import httpx

from ._backoff import Random
from ._budget import Budget
from ._client import wrap
from ._clock import Clock
from ._events import Listener
from ._library import Library
from ._policy import DEFAULT_POLICY, RetryPolicy
from ._transport import Driver

_LIBRARY = Library(httpx)

# Bound, not constrained: an SDK's own subclass comes back as what it is.
_Client = TypeVar("_Client", bound="httpx.Client | httpx.AsyncClient")


class RetryTransport(Driver, httpx.BaseTransport, httpx.AsyncBaseTransport):
    """An httpx transport that sends a request again where that is useful, safe, in time and
    affordable.

    It wraps any other transport: the sync methods need a sync one, the async methods an async one.

        client = httpx.Client(transport=RetryTransport())

    transport: what to wrap. Left out: httpx's own, built when the first request needs it.
    policy: a `RetryPolicy`, or a callable from the request to one.
    budget: what limits retries per origin; may be shared. Left out: a `RetryBudget` of its own.
        None: no limit.
    listeners: callables that take a `RetryEvent`.
    clock, random: for tests; see `Clock`. `random` returns a float in [0, 1).

    A response carries a `RetryReport` in `extensions["retry"]` (see `get_report`). A transport
    error is raised as a `RetryError` that is also of the class that httpx would have raised.
    Anything else (cancellation, an error out of the request's own body) passes through as it is.

    `extensions={"retry": ...}` of a request overrides the policy for it: a `RetryPolicy`, a mapping
    of its fields, or None for no retries. The mapping may also hold `cancel`: a `threading.Event`
    that ends the wait of a thread at once, and after which no attempt starts in a task either.

    Raises `TypeError` for arguments of the wrong kind.
    """

    _library = _LIBRARY

    def __init__(
        self,
        transport: httpx.BaseTransport | httpx.AsyncBaseTransport | None = None,
        *,
        policy: RetryPolicy | Callable[[httpx.Request], RetryPolicy] = DEFAULT_POLICY,
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
    policy: RetryPolicy | Callable[[httpx.Request], RetryPolicy] = DEFAULT_POLICY,
    budget: Budget | Literal["own"] | None = "own",
    listeners: Iterable[Listener] = (),
    clock: Clock | None = None,
    random: Random | None = None,
) -> _Client:
    """Put a `RetryTransport` around every transport of `client`, proxies and mounts included.

    The client itself is changed, and returned. All its transports share one budget. What is wrapped
    already is left as it is, so that a second call changes nothing. The other arguments are those
    of `RetryTransport`.

    Raises `TypeError` for anything but an `httpx.Client` or `httpx.AsyncClient`, and for one whose
    transports can't be reached; pass `transport=RetryTransport(...)` to its constructor then.
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


for _public in (RetryTransport, wrap_client):
    _public.__module__ = "httpx_safe_retry"
