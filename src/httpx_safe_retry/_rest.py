"""What becomes of an answer's body when it is not simply handed out: read within the attempt, or
discarded.

The functions for threads and for tasks are twins.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable

import anyio
import httpx

from ._events import logger

_BODILESS = frozenset({204, 304})

_DRAIN_BYTES = 64 * 1024
_DRAIN_SECONDS = 0.5
"""A new connection costs a few round trips: past this, closing is cheaper than waiting for the
rest.
"""


def is_short(request: httpx.Request, response: httpx.Response, limit: int) -> bool:
    """Whether the answer has a body of known length up to `limit` that is still to be read."""
    if type(response.stream) is httpx.ByteStream:
        return False
    length = _length(response)
    if length is None or not 0 < length <= limit:
        return False
    # These have no body, whatever Content-Length says (RFC 9110 section 8.6).
    return request.method != "HEAD" and response.status_code not in _BODILESS


def _length(response: httpx.Response) -> int | None:
    headers = response.headers
    value = headers.get("Content-Length", "")
    if not (value.isascii() and value.isdigit() and len(value) <= 18):
        return None
    return None if "Transfer-Encoding" in headers else int(value)


def read_rest(response: httpx.Response) -> bytes:
    """Read the body, still encoded, and put it back, so that the caller finds it unread."""
    stream = response.stream
    assert isinstance(stream, httpx.SyncByteStream)
    body = b"".join(stream)
    stream.close()
    response.stream = httpx.ByteStream(body)
    return body


async def aread_rest(response: httpx.Response) -> bytes:
    """Read the body, still encoded, and put it back, so that the caller finds it unread."""
    stream = response.stream
    assert isinstance(stream, httpx.AsyncByteStream)
    body = b"".join([chunk async for chunk in stream])
    await stream.aclose()
    response.stream = httpx.ByteStream(body)
    return body


def discard(
    response: httpx.Response, timeouts: dict[str, float | None], own: bool, now: Callable[[], float]
) -> None:
    """Close an answer that nobody wants, exactly once, after reading a short rest of it.

    A connection is used again only when its answer was read to the end: a retry should cost no new
    handshake while the server is struggling. `timeouts`: those of the attempt; `own`: whether they
    may be changed, so that a server which stalls is not waited for. `now`: reads a monotonic clock.
    """
    if own:
        # httpcore looks at them when it starts to read.
        timeouts["read"] = min(_DRAIN_SECONDS, timeouts["read"] or _DRAIN_SECONDS)
    try:
        if timeouts.get("read") is not None and _may_be_short(response):
            _drain(response, now)
    except Exception as error:
        _note(error)
    finally:
        close(response)


def close(response: httpx.Response) -> None:
    """Close an answer; an error in that changes nothing about what became of the request."""
    try:
        response.close()
    except Exception as error:
        _note(error)


def _drain(response: httpx.Response, now: Callable[[], float]) -> None:
    end = now() + _DRAIN_SECONDS
    left = _DRAIN_BYTES
    assert isinstance(response.stream, httpx.SyncByteStream)
    for chunk in response.stream:
        left -= len(chunk)
        if left < 0 or now() > end:
            return


async def adiscard(response: httpx.Response) -> None:
    """Close an answer that nobody wants, exactly once, after reading a short rest of it.

    In a task, half a second is all that the rest gets.
    """
    try:
        if _may_be_short(response):
            with anyio.move_on_after(_DRAIN_SECONDS):
                await _adrain(response)
    except Exception as error:
        _note(error)
    finally:
        await aclose(response)


async def aclose(response: httpx.Response) -> None:
    """Close an answer, whatever cancels the task meanwhile."""
    with anyio.CancelScope(shield=True):
        try:
            await response.aclose()
        except Exception as error:
            _note(error)


async def _adrain(response: httpx.Response) -> None:
    left = _DRAIN_BYTES
    assert isinstance(response.stream, httpx.AsyncByteStream)
    chunks = aiter(response.stream)
    try:
        async for chunk in chunks:
            left -= len(chunk)
            if left < 0:
                return
    finally:
        # An async generator that is dropped half-way is finished by the event loop, some time
        # later.
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()


def _may_be_short(response: httpx.Response) -> bool:
    if type(response.stream) is httpx.ByteStream:
        return False
    length = _length(response)
    return length is None or length <= _DRAIN_BYTES


def _note(error: Exception) -> None:
    # The answer has been judged and nobody will read it: all that is lost is a connection.
    logger.debug("closing a discarded response: %s", type(error).__name__)
