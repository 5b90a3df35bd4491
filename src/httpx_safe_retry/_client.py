"""`wrap_client`: retries for a client that is already built.

A client ignores its own `http2`, `verify`, `cert`, `limits` and `proxy` when it is given a
`transport`. To wrap the transports that it has built from them keeps them all.
"""

from __future__ import annotations

import random as _random
from collections.abc import Callable, Iterable
from typing import Literal, TypeVar

import httpx

from ._backoff import Random
from ._budget import Budget, RetryBudget
from ._clock import Clock
from ._events import Listener
from ._httpx_private import replace_transports
from ._policy import DEFAULT_POLICY, RetryPolicy
from ._transport import RetryTransport

# Bound, not constrained: an SDK's own subclass comes back as what it is.
_Client = TypeVar("_Client", bound="httpx.Client | httpx.AsyncClient")


def wrap_client(
    client: _Client,
    *,
    policy: RetryPolicy | Callable[[httpx.Request], RetryPolicy] = DEFAULT_POLICY,
    budget: Budget | Literal["own"] | None = "own",
    listeners: Iterable[Listener] = (),
    clock: Clock | None = None,
    random: Random = _random.random,
) -> _Client:
    """Put a `RetryTransport` around every transport of `client`, proxies and mounts included.

    The client itself is changed, and returned. All its transports share one budget. What is wrapped
    already is left as it is, so that a second call changes nothing. The other arguments are those
    of `RetryTransport`.

    Raises `TypeError` for anything but an `httpx.Client` or `httpx.AsyncClient`, and for one whose
    transports can't be reached; pass `transport=RetryTransport(...)` to its constructor then.
    """
    if not isinstance(client, (httpx.Client, httpx.AsyncClient)):
        raise TypeError(f"client must be an httpx.Client or httpx.AsyncClient, not {client!r}")
    shared = RetryBudget() if budget == "own" else budget
    listeners = tuple(listeners)

    def wrap(transport: httpx.BaseTransport) -> httpx.BaseTransport:
        if isinstance(transport, RetryTransport):
            return transport
        return RetryTransport(
            transport,
            policy=policy,
            budget=shared,
            listeners=listeners,
            clock=clock,
            random=random,
        )

    if not replace_transports(client, wrap):
        raise TypeError(
            f"the transports of {type(client).__name__} are not where httpx keeps them: build it "
            "with transport=RetryTransport(...) instead"
        )
    return client
