"""The one module that looks behind httpx's public surface.

httpx wraps what the caller passed as `content=` or `files=` in stream classes of its own and shows
no way back to it. Everything that needs the way back asks here. Each function answers None as soon
as httpx is not what it was, and its caller then takes the safe way (a body is recorded instead of
being read again). `tests/test_body.py` fails when httpx changes one of the attributes read here.
"""

from __future__ import annotations

from typing import Any, cast

import httpx


async def _no_chunks() -> Any:
    yield b""


def _stream_class(**body: Any) -> type[object]:
    """The class that this httpx wraps such a body in; found out by asking, without its name."""
    return type(httpx.Request("PUT", "http://localhost", **body).stream)


_ITERATOR = _stream_class(content=iter(()))
_ASYNC_ITERATOR = _stream_class(content=_no_chunks())
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
        return tuple(cast("list[tuple[bytes, bytes, bytes]]", headers._list))
    except AttributeError:
        return tuple((name, name.lower(), value) for name, value in headers.raw)
