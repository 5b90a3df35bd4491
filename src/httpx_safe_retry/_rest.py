"""What becomes of an answer's body when it is not simply handed out: read within the attempt, or
discarded.

The functions for threads and for tasks are twins.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, MutableMapping
from typing import TYPE_CHECKING, cast

import anyio

from ._classify import known_name
from ._events import logger
from ._library import Library
from ._private import header_lines

if TYPE_CHECKING:
    import httpx

Timeouts = MutableMapping[str, float | None]

_DRAIN_BYTES = 64 * 1024
_DRAIN_SECONDS = 0.5
"""A new connection costs a few round trips: past this, closing is cheaper than waiting for the
rest.
"""

_HTTPCORE = frozenset({"httpcore", "httpcore2"})


def is_short(library: Library, method: str, response: httpx.Response, limit: int) -> bool:
    """Whether the answer has a body of known length up to `limit`, still to be read."""
    if type(response.stream) is library.byte_stream or _was_read(response):
        return False
    length = _length(response)
    return length is not None and 0 < length <= limit and not _is_bodiless(method, response)


def _was_read(response: httpx.Response) -> bool:
    # By what is wrapped (to log it, to keep it in a cache), at least in part. Its connection may
    # carry somebody else's answer by now.
    return response.is_closed or response.is_stream_consumed


def _is_bodiless(method: str, response: httpx.Response) -> bool:
    # Whatever Content-Length says (RFC 9112 section 6.3). After 101 and a CONNECT the connection
    # itself is what the caller wants.
    status = response.status_code
    return (
        method == "HEAD"
        or status in (204, 304)
        or status < 200
        or (method == "CONNECT" and status < 300)
    )


def _length(response: httpx.Response) -> int | None:
    length = b""
    for _, name, value in header_lines(response.headers):
        if name == b"transfer-encoding" or (name == b"content-length" and length):
            return None
        if name == b"content-length":
            length = value.strip()
    return int(length) if length.isdigit() and len(length) <= 18 else None


def read_rest(
    library: Library,
    response: httpx.Response,
    timeouts: Timeouts | None,
    ends: float | None,
    now: Callable[[], float],
) -> bytes:
    """Read the body, still encoded, and put it back, so that the caller finds it unread.

    `ends`: when the deadline ends the attempt, or None; `now`: reads the clock it is meant for;
    `timeouts`: those of the attempt, if they may be changed. A thread can't be ended as a task can.

    Raises what the stream does, and a `ReadTimeout` at the deadline.
    """
    stream = cast("httpx.SyncByteStream", response.stream)
    if ends is None or timeouts is None:
        body = b"".join(stream)
    else:
        chunks = _until(ends, stream, _length(response) or 0, timeouts, now, library.read_timeout)
        body = b"".join(chunks)
    try:
        stream.close()
    except Exception as error:
        _note(error)
    response.stream = library.byte_stream(body)
    return body


def _until(
    ends: float,
    stream: httpx.SyncByteStream,
    length: int,
    timeouts: Timeouts,
    now: Callable[[], float],
    timeout: type[httpx.ReadTimeout],
) -> Iterator[bytes]:
    # httpcore looks at the timeout when it starts to read. What is there already takes no time.
    timeouts["read"] = max(ends - now(), 0.001)
    for chunk in stream:
        length -= len(chunk)
        if length > 0 and now() >= ends:
            raise timeout("the deadline ended the attempt")
        yield chunk


async def aread_rest(library: Library, response: httpx.Response) -> bytes:
    """Read the body, still encoded, and put it back, so that the caller finds it unread.

    Raises what the stream does.
    """
    stream = cast("httpx.AsyncByteStream", response.stream)
    body = b"".join([chunk async for chunk in stream])
    try:
        await stream.aclose()
    except Exception as error:
        _note(error)
    response.stream = library.byte_stream(body)
    return body


def discard(
    library: Library,
    method: str,
    response: httpx.Response,
    timeouts: Timeouts,
    own: bool,
    ends: float | None,
    now: Callable[[], float],
) -> bytes | None:
    """Close an answer that nobody wants, exactly once, after reading a short rest of it, which is
    returned if it came to its end.

    A connection is used again only when its answer was read to the end: a retry should cost no new
    handshake while the server is struggling. `timeouts`: those of the attempt; `own`: whether they
    may be changed, so that a server which stalls is not waited for. `ends`: until when the deadline
    leaves time for it, or None; `now`: reads the clock that is meant for.
    """
    seconds = _seconds_for_the_rest(ends, now)
    if own:
        # httpcore looks at them when it starts to read.
        timeouts["read"] = min(seconds, timeouts["read"] or seconds)
    try:
        # Without a timeout, a server that stalls would be waited for without an end.
        if _has_a_short_rest(library, method, response, bounded=timeouts["read"] is not None):
            return _drain(response, now() + seconds, now)
    except Exception as error:
        if not _is_the_transports(library, error):
            raise
        _note(error)
    finally:
        close(response)
    return None


def close(response: httpx.Response) -> None:
    """Close an answer; an error in that changes nothing about what became of the request."""
    try:
        response.close()
    except Exception as error:
        _note(error)


def _seconds_for_the_rest(ends: float | None, now: Callable[[], float]) -> float:
    # What is there already takes no time, and no socket waits for less than none.
    return _DRAIN_SECONDS if ends is None else min(max(ends - now(), 0.001), _DRAIN_SECONDS)


def _drain(response: httpx.Response, end: float, now: Callable[[], float]) -> bytes | None:
    rest = bytearray()
    for chunk in cast("httpx.SyncByteStream", response.stream):
        rest += chunk
        if len(rest) > _DRAIN_BYTES or now() >= end:
            return None
    return bytes(rest)


async def adiscard(
    library: Library,
    method: str,
    response: httpx.Response,
    ends: float | None,
    now: Callable[[], float],
) -> bytes | None:
    """Close an answer that nobody wants, exactly once, after reading a short rest of it, which is
    returned if it came to its end.

    In a task, half a second is all that the rest gets, and less where the deadline leaves less.
    """
    try:
        if _has_a_short_rest(library, method, response, bounded=True):
            with anyio.move_on_after(_seconds_for_the_rest(ends, now)):
                return await _adrain(response)
    except Exception as error:
        if not _is_the_transports(library, error):
            raise
        _note(error)
    finally:
        await aclose(response)
    return None


async def aclose(response: httpx.Response) -> None:
    """Close an answer, whatever cancels the task meanwhile."""
    with anyio.CancelScope(shield=True):
        try:
            await response.aclose()
        except Exception as error:
            _note(error)


async def _adrain(response: httpx.Response) -> bytes | None:
    rest = bytearray()
    chunks = aiter(cast("httpx.AsyncByteStream", response.stream))
    try:
        async for chunk in chunks:
            rest += chunk
            if len(rest) > _DRAIN_BYTES:
                return None
        return bytes(rest)
    finally:
        # An async generator that is dropped half-way is finished by the event loop, some time
        # later.
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()


def _has_a_short_rest(
    library: Library, method: str, response: httpx.Response, *, bounded: bool
) -> bool:
    """Whether the rest of an answer is worth reading. `bounded`: whether that ends by itself."""
    if type(response.stream) is library.byte_stream or _was_read(response):
        return False
    if _is_bodiless(method, response):
        return True
    length = _length(response)
    return bounded and (length is None or length <= _DRAIN_BYTES)


def _is_the_transports(library: Library, error: Exception) -> bool:
    # Reading the rest of an answer that nobody wants may fail, and not all that httpcore lets out
    # is of httpx's classes. Anything else comes from outside (a signal handler that enforces a time
    # limit) and is the caller's to see.
    return (
        isinstance(error, (*library.errors, ConnectionError))
        or known_name(type(error)) is not None
        or type(error).__module__.partition(".")[0] in _HTTPCORE
    )


def _note(error: Exception) -> None:
    # The answer has been judged and nobody will read it: all that is lost is a connection.
    logger.debug("closing a discarded response: %s", type(error).__name__)
