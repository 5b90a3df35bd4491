"""The one module that looks behind httpx's public surface.

httpx wraps what the caller passed as `content=` or `files=` in stream classes of its own and shows
no way back to it. Everything that needs the way back asks here. Each function answers None as soon
as httpx is not what it was, and its caller then takes the safe way (a body is recorded instead of
being read again). `tests/test_body.py` fails when httpx changes one of the attributes read here.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, cast

import httpx


def _stream_class(**body: Any) -> type[object]:
    """The class that this httpx wraps such a body in; found out by asking, without its name."""
    return type(httpx.Request("PUT", "http://localhost", **body).stream)


_ITERATOR = _stream_class(content=iter(()))
_ASYNC_ITERATOR = _stream_class(content=(chunk async for chunk in httpx.ByteStream(b"")))
_MULTIPART = _stream_class(files={"file": b""})


def content_behind(stream: object) -> object | None:
    """What the caller passed as `content=`; None: not such a stream, or httpx has changed."""
    if type(stream) is _ITERATOR or type(stream) is _ASYNC_ITERATOR:
        return cast("object | None", getattr(stream, "_stream", None))
    return None


def is_multipart(stream: object) -> bool:
    """Whether httpx made this stream out of `files=`."""
    return type(stream) is _MULTIPART


def files_behind(stream: object) -> list[object] | None:
    """The file objects among the parts of a multipart stream, those in memory left out.

    None: not a multipart stream, or httpx has changed.
    """
    fields = getattr(stream, "fields", None) if is_multipart(stream) else None
    if not isinstance(fields, list):
        return None
    files: list[object] = []
    for field in cast("list[object]", fields):
        held: object = getattr(field, "file", getattr(field, "value", None))
        if held is None:
            return None
        if not isinstance(held, (bytes, str)):
            files.append(held)
    return files


def header_lines(headers: httpx.Headers) -> tuple[tuple[bytes, bytes, bytes], ...]:
    """Each header line as (name as sent, name in lower case, value), as it is at this moment.

    httpx keeps them in just this form. Its public `raw` takes five times as long, on every request.
    """
    try:
        return tuple(vars(headers)["_list"])
    except KeyError:
        return tuple((name, name.lower(), value) for name, value in headers.raw)


def _public_origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.raw_host.decode("ascii"), url.port


def _quickest_origin() -> Callable[[httpx.URL], tuple[str, str, int | None]]:
    kept = attrgetter("_uri_reference.scheme", "_uri_reference.host", "_uri_reference.port")
    url = httpx.URL("https://user@xn--fiqs8s.test:8443/path")
    try:
        return kept if kept(url) == _public_origin(url) else _public_origin
    except AttributeError:
        return _public_origin


origin_of = _quickest_origin()
"""Scheme, host and port of a URL, the host as it goes over the wire.

httpx keeps them in just this form. Its public properties take five times as long, on every request,
and a host that was written in another script is decoded each time.
"""


def connect_retries(transport: object) -> int:
    """How often an `httpx.HTTPTransport` or its async twin tries to connect again by itself."""
    retries = getattr(getattr(transport, "_pool", None), "_retries", 0)
    return retries if isinstance(retries, int) else 0


def replace_transports(client: object, change: Callable[[Any], Any]) -> bool:
    """Put `change(transport)` in the place of each transport of a client, mounts included.

    One that serves several patterns is changed once. False: httpx has changed, nothing was done.
    """
    transport = getattr(client, "_transport", None)
    mounts = getattr(client, "_mounts", None)
    if transport is None or not isinstance(mounts, dict):
        return False
    routes = cast("dict[object, object]", mounts)
    # None mounted on a pattern means the client's own transport: "no proxy for these".
    old = {id(route): route for route in (transport, *routes.values()) if route is not None}
    new = {key: change(route) for key, route in old.items()}
    for pattern, route in routes.items():
        if route is not None:
            routes[pattern] = new[id(route)]
    vars(client)["_transport"] = new[id(transport)]
    return True
