"""A transport that plays a script, and remembers what it was sent and what became of its answers.
No HTTP library is imported: `_transport.py` and `httpx2.py` make one for each.

The rule: it treats a request as a socket would. It takes the body chunk by chunk out of the stream,
never through `request.read()`, which quietly turns a one-shot body into one that can be sent again;
and its responses are one-shot streams that somebody has to close.
"""

from __future__ import annotations

import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from inspect import isawaitable
from itertools import islice
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeAlias, cast

import anyio.lowlevel

from ._clock import VirtualClock

if TYPE_CHECKING:
    import httpx

    class _Stream(httpx.SyncByteStream, httpx.AsyncByteStream):
        """What a body is to a client; the classes of which library, `streams_of` says."""
else:
    _Stream = object

Failure: TypeAlias = "BaseException | type[BaseException]"
Pieces: TypeAlias = "Iterable[bytes | Failure] | AsyncIterable[bytes | Failure]"
Answer: TypeAlias = "int | httpx.Response | Failure | Reply"
ScriptItem: TypeAlias = "Answer | Callable[[httpx.Request], Answer | Awaitable[Answer]]"
"""What a `ScriptedTransport` can be told to do with one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer of the script, in full.

    status: the status code.
    headers: the header fields. A body of bytes gets a Content-Length unless they say otherwise, by
    a Content-Length or a Transfer-Encoding of their own.
    body: bytes, or the chunks of a body of unknown length; an exception among them is raised there,
    as when the connection dies in the middle of a response.
    error: raised in place of a response.
    delay: seconds that pass on the transport's clock before the answer. One that is longer than the
    request's read timeout ends in `httpx.ReadTimeout` when that is over, as on a socket; `math.inf`
    is a server that never answers.
    read_chunks: how many chunks of the request's body are taken before the answer. None: all.
    extensions: the response's extensions.
    """

    status: int = 200
    headers: Mapping[str, str] | Sequence[tuple[str, str]] = ()
    body: bytes | Pieces = b""
    error: Failure | None = None
    delay: float = 0.0
    read_chunks: int | None = None
    extensions: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(slots=True)
class SentRequest:
    """One attempt as the transport got it, copied before anybody could change it.

    number: 1 for the first attempt that this transport saw.
    timeouts: the connect, read, write and pool timeouts of this attempt, in seconds.
    time: when the attempt began, in seconds on the transport's clock; None without a clock.
    chunks: what was taken out of the request's body, as it came.
    """

    number: int
    method: str
    url: httpx.URL
    headers: httpx.Headers
    extensions: dict[str, Any]
    timeouts: dict[str, float | None]
    time: float | None
    chunks: list[bytes] = field(default_factory=list[bytes])

    @property
    def body(self) -> bytes:
        """What was taken of the request's body."""
        return b"".join(self.chunks)


class SentResponse(_Stream):
    """The body of one response that was handed out, and what became of it.

    number: of the request that it answered.
    status: the status code.
    read: whether it was read to its end.
    closes: how often it was closed: once, if its receiver makes no mistake.
    """

    _library: ClassVar[Any]

    def __init__(self, number: int, status: int, pieces: Pieces) -> None:
        self.number = number
        self.status = status
        self.read = False
        self.closes = 0
        self._pieces = pieces
        self._started = False

    def __repr__(self) -> str:
        read = "read" if self.read else "unread"
        return f"<response {self.number}: {self.status}, {read}, closed {self.closes} times>"

    def __iter__(self) -> Iterator[bytes]:
        self._start()
        assert isinstance(self._pieces, Iterable), "an async response body in a sync client"
        for piece in self._pieces:
            yield _chunk(piece)
        self.read = True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self._start()
        if isinstance(self._pieces, AsyncIterable):
            async for piece in self._pieces:
                yield _chunk(piece)
        else:
            for piece in self._pieces:
                await anyio.lowlevel.checkpoint()
                yield _chunk(piece)
        self.read = True

    def close(self) -> None:
        """Note that it was closed, and close what it was made from."""
        self.closes += 1
        if isinstance(self._pieces, self._library.SyncByteStream):
            cast("httpx.SyncByteStream", self._pieces).close()

    async def aclose(self) -> None:
        """Note that it was closed, and close what it was made from."""
        self.closes += 1
        if isinstance(self._pieces, self._library.AsyncByteStream):
            await cast("httpx.AsyncByteStream", self._pieces).aclose()

    def _start(self) -> None:
        if self.closes:
            raise self._library.StreamClosed
        if self._started:
            raise self._library.StreamConsumed
        self._started = True


def streams_of(library: ModuleType) -> type[Any]:
    """Make the class of a library's responses' bodies."""
    bases = (SentResponse, library.SyncByteStream, library.AsyncByteStream)
    return type("SentResponse", bases, {"_library": library, "__module__": __package__})


class Script:
    """What a `ScriptedTransport` does, whichever library it belongs to."""

    _library: ClassVar[Any]
    _stream: ClassVar[type[Any]]

    def __init__(
        self, *script: ScriptItem, clock: VirtualClock | None = None, repeat: bool = False
    ) -> None:
        self.requests: list[SentRequest] = []
        self.responses: list[SentResponse] = []
        self.closes = 0
        self._script = script
        self._clock = clock
        self._repeat = repeat
        self._lock = threading.Lock()

    @property
    def unclosed(self) -> list[SentResponse]:
        """The responses that were handed out and not closed."""
        return [response for response in self.responses if not response.closes]

    @property
    def unread(self) -> list[SentResponse]:
        """The responses that were handed out and not read to the end."""
        return [response for response in self.responses if not response.read]

    def assert_done(self) -> None:
        """Check that the script was played to its end and each response closed exactly once."""
        played, expected = len(self.requests), len(self._script)
        assert played >= expected, f"the script has {expected} items, {played} were played"
        wrong = [response for response in self.responses if response.closes != 1]
        assert not wrong, f"not closed exactly once: {wrong}"

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        sent, item = self._begin(request)
        reply = _as_reply(self._library, _play(item, request))
        stream = request.stream
        assert isinstance(stream, self._library.SyncByteStream), "an async body in a sync client"
        for chunk in islice(cast("httpx.SyncByteStream", stream), reply.read_chunks):
            sent.chunks.append(chunk)
        return self._answer(sent, reply)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        sent, item = self._begin(request)
        answer = _play(item, request)
        reply = _as_reply(self._library, await answer if isawaitable(answer) else answer)
        stream = request.stream
        assert isinstance(stream, self._library.AsyncByteStream), "a sync body in an async client"
        await _take(cast("httpx.AsyncByteStream", stream), reply.read_chunks, sent.chunks)
        await anyio.lowlevel.checkpoint()
        return self._answer(sent, reply)

    def close(self) -> None:
        self.closes += 1

    async def aclose(self) -> None:
        self.closes += 1

    def _begin(self, request: httpx.Request) -> tuple[SentRequest, ScriptItem]:
        with self._lock:
            number = len(self.requests) + 1
            sent = SentRequest(
                number=number,
                method=request.method,
                url=request.url,
                headers=request.headers.copy(),
                extensions=dict(request.extensions),
                timeouts=dict(request.extensions.get("timeout", {})),
                time=None if self._clock is None else self._clock.monotonic(),
            )
            self.requests.append(sent)
        expected = len(self._script)
        if number > expected and not (self._repeat and expected):
            raise AssertionError(
                f"the script has {expected} items, and this is request {number}: "
                f"{request.method} {request.url.path}"
            )
        return sent, self._script[min(number, expected) - 1]

    def _answer(self, sent: SentRequest, reply: Reply) -> httpx.Response:
        if reply.delay:
            self._wait(reply.delay, sent.timeouts.get("read"))
        if reply.error is not None:
            _fail(reply.error)
        headers: httpx.Headers = self._library.Headers(reply.headers)
        pieces = reply.body
        if isinstance(pieces, bytes):
            if pieces and not {"content-length", "transfer-encoding"} & headers.keys():
                headers["Content-Length"] = str(len(pieces))
            pieces = [pieces] if pieces else []
        stream: SentResponse = self._stream(sent.number, reply.status, pieces)
        with self._lock:
            self.responses.append(stream)
        response: httpx.Response = self._library.Response(
            reply.status, headers=headers, stream=stream, extensions=dict(reply.extensions)
        )
        return response

    def _wait(self, delay: float, timeout: float | None) -> None:
        assert self._clock is not None, "Reply.delay needs ScriptedTransport(clock=...)"
        if timeout is not None and delay > timeout:
            self._clock.advance(timeout)
            raise self._library.ReadTimeout("scripted ReadTimeout")
        assert delay < float("inf"), "without a read timeout the client waits for ever"
        self._clock.advance(delay)


def _play(item: ScriptItem, request: httpx.Request) -> Answer | Awaitable[Answer]:
    # An exception class is callable too.
    if callable(item) and not isinstance(item, type):
        return item(request)
    return item


def _as_reply(library: Any, answer: Answer | Awaitable[Answer]) -> Reply:
    if isinstance(answer, library.Response):
        response = cast("httpx.Response", answer)
        return Reply(
            status=response.status_code,
            headers=response.headers.multi_items(),
            body=cast("Pieces", response.stream),
            extensions=response.extensions,
        )
    match answer:
        case Reply():
            return answer
        case int():
            return Reply(status=answer)
        case BaseException() | type():
            return Reply(error=answer)
        case _:
            raise TypeError(f"not an answer that can be scripted: {answer!r}")


async def _take(stream: httpx.AsyncByteStream, limit: int | None, chunks: list[bytes]) -> None:
    # Closed here: trio warns of an async generator that is left to the garbage collector.
    iterator = stream.__aiter__()
    try:
        while len(chunks) != limit:
            chunk = await anext(iterator, None)
            if chunk is None:
                break
            chunks.append(chunk)
    finally:
        if isinstance(iterator, AsyncGenerator):
            await iterator.aclose()


def _chunk(piece: bytes | Failure) -> bytes:
    return piece if isinstance(piece, bytes) else _fail(piece)


def _fail(failure: Failure) -> NoReturn:
    if isinstance(failure, BaseException):
        # The same instance may be raised several times: it starts each time without a past.
        raise failure.with_traceback(None)
    if any(base.__name__ == "RequestError" for base in failure.__mro__):  # wants words of its own
        raise failure(f"scripted {failure.__name__}")
    raise failure
