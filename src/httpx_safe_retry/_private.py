"""Attributes of httpx and its kin that have no public name, or whose public one is slow.

They wrap what the caller passed as `content=` or `files=` in stream classes of their own and show
no way back to it. Everything that needs the way back asks here. Each function answers None as soon
as a library is not what it was, and its caller then takes the safe way (a body is recorded instead
of being read again). `tests/test_body.py` fails when one changes an attribute that is read here.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import httpx


class Behind:
    """What the caller passed, behind the streams that one library wraps it in."""

    __slots__ = ("_async_iterator", "_iterator", "_multipart")

    def __init__(self, library: Any) -> None:
        def stream_class(**body: Any) -> type[object]:
            # Found out by asking: the classes have no public name.
            stream: object = library.Request("PUT", "http://localhost", **body).stream
            return type(stream)

        self._iterator = stream_class(content=iter(()))
        chunks = (chunk async for chunk in library.ByteStream(b""))
        self._async_iterator = stream_class(content=chunks)
        self._multipart = stream_class(files={"file": b""})

    def content(self, stream: object) -> object | None:
        """What was passed as `content=`; None: not such a stream, or the library has changed."""
        if type(stream) is self._iterator or type(stream) is self._async_iterator:
            return cast("object | None", getattr(stream, "_stream", None))
        return None

    def is_multipart(self, stream: object) -> bool:
        """Whether the library made this stream out of `files=`."""
        return type(stream) is self._multipart

    def files(self, stream: object) -> list[object] | None:
        """The file objects among the parts of a multipart stream, those in memory left out.

        None: not a multipart stream, or the library has changed.
        """
        fields = getattr(stream, "fields", None) if self.is_multipart(stream) else None
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

    They are kept in just this form. The public `raw` takes five times as long, on every request.
    """
    try:
        return tuple(vars(headers)["_list"])
    except KeyError:
        return tuple((name, name.lower(), value) for name, value in headers.raw)


_Origin = tuple[str, str, "int | None"]
_kept_origin: Callable[[Any], _Origin] = attrgetter(
    "_uri_reference.scheme", "_uri_reference.host", "_uri_reference.port"
)


def _public_origin(url: httpx.URL) -> _Origin:
    return url.scheme, url.raw_host.decode("ascii"), url.port


_origins: dict[type, Callable[[Any], _Origin]] = {}


def origin_of(url: httpx.URL) -> _Origin:
    """Scheme, host and port of a URL, the host as it goes over the wire.

    They are kept in just this form. The public properties take five times as long, on every
    request, and a host that was written in another script is decoded each time.
    """
    way = _origins.get(type(url))
    if way is None:
        way = _origins.setdefault(type(url), _quickest_origin(type(url)))
    return way(url)


def _quickest_origin(kind: type[httpx.URL]) -> Callable[[Any], _Origin]:
    try:
        url = kind("https://user@xn--fiqs8s.test:8443/path")
        return _kept_origin if _kept_origin(url) == _public_origin(url) else _public_origin
    except (AttributeError, TypeError):  # not kept like that, or a caller's own class of URL
        return _public_origin


def connect_retries(transport: object) -> int:
    """How often a library's own HTTP transport tries to connect again by itself."""
    retries = getattr(getattr(transport, "_pool", None), "_retries", 0)
    return retries if isinstance(retries, int) else 0


def replace_transports(client: object, change: Callable[[Any], Any]) -> bool:
    """Put `change(transport)` in the place of each transport of a client, mounts included.

    One that serves several patterns is changed once. False: the library has changed, nothing was
    done.
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
