"""The request body, frozen before attempt 1 and sent again by every retry.

The rule: attempt n sends byte for byte what attempt 1 sent, or there is no attempt n. `freeze`
finds out, in this order, what kind of body it is:

| body | what is kept | sent again |
|---|---|---|
| bytes: `content=bytes`, `json=`, `data=` | the stream itself | always |
| a list or tuple of bytes | references | always |
| a file that can seek | its position, size and modification time | unless those changed |
| multipart of bytes and such files | size and modification time of each | unless those changed |
| anything else | what passed while an attempt sent it (`_recorded.py`) | up to `limit` bytes |

The last row is everything that can be read once only, and everything whose second reading nobody
vouches for (a caller's own `SyncByteStream` or `AsyncByteStream`).

Each kind may be iterated twice within one attempt: httpcore sends a body again by itself when
HTTP/2's GOAWAY says that the server did not process it (RFC 9113 section 6.8).

httpx keeps one stream through all redirects of a request, so the next logical request may bring a
body that an earlier one has read. A file goes on from where it started, unless somebody moved it;
an iterator that is used up fails instead of sending an empty body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ._files import File, Rereadable, fingerprints
from ._library import Library
from ._recorded import recorded
from ._streams import Body, Chunks, Fixed, Inner, Replay, Stream

if TYPE_CHECKING:
    import httpx

__all__ = ["Body", "freeze"]


def freeze(library: Library, request: httpx.Request, *, memory: int, limit: int) -> Body:
    """Make the request's body repeatable, once, before attempt 1. Reads nothing of it.

    `memory`, `limit`: how many bytes of a one-shot body are kept in memory, and in all.
    """
    stream = request.stream
    if type(stream) is library.byte_stream:
        return Fixed(stream)
    return _freeze_stream(library, request, stream, memory, limit)


def _freeze_stream(
    library: Library, request: httpx.Request, stream: Stream, memory: int, limit: int
) -> Body:
    if isinstance(stream, Replay):
        return Inner(cast("Stream", stream), stream.body)
    if isinstance(stream, Chunks):
        return Fixed(cast("Stream", stream))
    if library.behind.is_multipart(stream):
        files = library.behind.files(stream)
        prints = None if files is None else fingerprints(files)
        if prints is not None:
            return Rereadable(library, stream, prints) if prints else Fixed(stream)
        return recorded(library, stream, memory, limit, one_shot=True)
    content: Any = library.behind.content(stream)
    if type(content) in (list, tuple):
        chunks = tuple(cast("list[object] | tuple[object, ...]", content))
        if {type(chunk) for chunk in chunks} <= {bytes}:
            return Fixed(library.stream_of(cast("tuple[bytes, ...]", chunks)))
    elif hasattr(content, "read") and library.is_sync(stream):
        prints = fingerprints([content])
        if prints:
            return File(library, stream, prints, request.headers)
    one_shot = any(hasattr(content, name) for name in ("__next__", "__anext__", "read", "aread"))
    return recorded(library, stream, memory, limit, one_shot=one_shot)
