"""`wrap_client`: retries for a client that is already built.

A client ignores its own `http2`, `verify`, `cert`, `limits` and `proxy` when it is given a
`transport`. To wrap the transports that it has built from them keeps them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Literal

from ._budget import Budget, RetryBudget
from ._events import Listener
from ._library import Library
from ._private import replace_transports
from ._transport import Driver


def wrap(
    kind: Callable[..., object],
    library: Library,
    client: object,
    *,
    budget: Budget | Literal["own"] | None,
    listeners: Iterable[Listener],
    **settings: Any,
) -> None:
    """Put a transport of this `kind` around every one of `client`, for the `wrap_client` of one
    library.
    """
    names = " or ".join(f"an {library.name}.{name}" for name in ("Client", "AsyncClient"))
    if not isinstance(client, library.clients):
        theirs = library.other_library_of(client, "Client", "AsyncClient")
        hint = "" if theirs is None else f": {library.public_name(theirs, 'wrap_client')} wraps it"
        raise TypeError(f"client must be {names}, not {client!r}{hint}")
    shared = RetryBudget() if budget == "own" else budget
    with suppress(TypeError):  # for which the transport has a word that names the argument
        listeners = tuple(listeners)

    def around(transport: object) -> object:
        if isinstance(transport, Driver):
            return transport
        return kind(transport, budget=shared, listeners=listeners, **settings)

    if not replace_transports(client, around):
        raise TypeError(
            f"the transports of {type(client).__name__} are not where {library.name} keeps them: "
            "build it with transport=RetryTransport(...) instead"
        )
