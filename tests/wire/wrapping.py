"""A client as its owner builds it, with retries put around it afterwards.

`driving.wire` gives a client its transport; here the client has made its own, out of `http2=`,
`verify=`, `proxy=`, `mounts=` and the environment, and `wrap_client` has to find them all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import anyio.from_thread

from tests.library import httpx, wrap_client

from .driving import QUICK, Wire


@contextlib.contextmanager
def wrapped(
    backend: str | None,
    *,
    wrap: Callable[..., Any] = wrap_client,
    options: dict[str, Any] | None = None,
    **arguments: Any,
) -> Iterator[Wire]:
    """Build a client out of `arguments`, wrap it with `options`, open it."""
    # Plain HTTP should not load certificates each time.
    arguments.setdefault("verify", False)
    arguments.setdefault("timeout", 10.0)
    options = {"policy": QUICK, **(options or {})}
    if backend is None:
        with wrap(httpx.Client(**arguments), **options) as client:
            yield Wire(client, None)
        return
    with anyio.from_thread.start_blocking_portal(backend) as portal:
        aclient = wrap(httpx.AsyncClient(**arguments), **options)
        try:
            yield Wire(aclient, portal)
        finally:
            portal.call(aclient.aclose)
