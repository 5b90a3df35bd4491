"""Every kind of request body that httpx takes, and the attempts that send it.

`send` and `asend` take what a socket would take: chunk by chunk, and they may stop anywhere.
"""

from __future__ import annotations

import io
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from httpx_safe_retry._body import Body
from tests.library import NAME, httpx

CHUNKS = (b"0123", b"45", b"6789" * 20, b"the end")
DATA = b"".join(CHUNKS)

_BOUNDARY = {"Content-Type": "multipart/form-data; boundary=limit"}
_PART = (
    b'--limit\r\nContent-Disposition: form-data; name="f"; filename="a"\r\n'
    b"Content-Type: application/octet-stream\r\n\r\n%s\r\n--limit--\r\n"
)


class Duck:
    """A file by behaviour alone: no file descriptor, not iterable line by line."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def __iter__(self) -> Iterator[bytes]:
        raise AssertionError("httpx reads it with read()")

    def read(self, size: int = -1) -> bytes:
        return self._file.read(size)


class SeekableDuck(Duck):
    """One that can seek; `seek` answers nothing, as in old file-likes."""

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int | None:
        position = self._file.seek(offset, whence)
        # httpx2 asks for the answer itself, before we see the file.
        return None if NAME == "httpx" else position

    def tell(self) -> int:
        return self._file.tell()


class NonSeekable(io.BytesIO):
    """What a pipe or a socket's file says of itself."""

    def seekable(self) -> bool:
        return False

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        raise io.UnsupportedOperation("seek")

    def tell(self) -> int:
        raise io.UnsupportedOperation("tell")


class AsyncFile:
    """An async file as httpx takes it: by `aread`."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def __aiter__(self) -> AsyncIterator[bytes]:
        raise AssertionError("httpx reads it with aread()")

    async def aread(self, size: int) -> bytes:
        return self._file.read(size)


class AsyncLocalFile(AsyncFile):
    """One with all methods of a file, each of them async, as anyio's and aiofiles' have."""

    async def read(self, size: int = -1) -> bytes:
        raise AssertionError("httpx reads it with aread()")

    async def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        raise AssertionError("nobody seeks in it")

    async def tell(self) -> int:
        raise AssertionError("nobody asks for its position")


class OnceStream(httpx.SyncByteStream):
    """A stream of the caller's that gives nothing when it is iterated again."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)

    def __iter__(self) -> Iterator[bytes]:
        yield from self._chunks


class AsyncOnceStream(httpx.AsyncByteStream):
    """The same, async."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk


class DualOnceStream(OnceStream, AsyncOnceStream):
    """The same, for either client."""


class AsyncSequence:
    """An async iterator that is not a generator."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        for chunk in self._chunks:
            return chunk
        raise StopAsyncIteration


def generate(chunks: Iterable[bytes] = CHUNKS) -> Iterator[bytes]:
    yield from chunks


async def agenerate(chunks: Iterable[bytes] = CHUNKS) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


def at(file: Any, position: int) -> Any:
    """The same file, moved there."""
    file.seek(position)
    return file


@dataclass(frozen=True)
class Kind:
    """One kind of body: what to pass to httpx, and the bytes that this has to send."""

    name: str
    arguments: Callable[[], dict[str, Any]]
    sent: bytes = DATA
    headers: dict[str, str] = field(default_factory=dict[str, str])

    def request(
        self,
        url: str = "http://test/",
        *,
        method: str = "PUT",
        headers: dict[str, str] | None = None,
    ) -> httpx.Request:
        arguments = self.arguments()
        request = httpx.Request(method, url, headers=self.headers | (headers or {}), **arguments)
        if "stream" in arguments:
            # With a stream of the caller's own, httpx leaves these to the caller too.
            request.headers["Host"] = request.url.netloc.decode()
            if "Content-Length" not in request.headers:
                request.headers["Transfer-Encoding"] = "chunked"
        return request


def _multipart(name: str, make: Callable[[], Any]) -> Kind:
    return Kind(name, lambda: {"files": {"f": ("a", make())}}, _PART % DATA, _BOUNDARY)


MULTIPART = (
    _multipart("multipart of bytes", lambda: DATA),
    _multipart("multipart of a file in memory", lambda: io.BytesIO(DATA)),
    _multipart("multipart of a file that is not at its beginning", lambda: at(io.BytesIO(DATA), 4)),
    _multipart("multipart of a file that can't seek", lambda: NonSeekable(DATA)),
    _multipart("multipart of a duck-typed file", lambda: Duck(DATA)),
)
FIXED = (
    Kind("no body", dict, b""),
    Kind("bytes", lambda: {"content": DATA}),
    Kind("json", lambda: {"json": ["a"]}, b'["a"]'),
    Kind("form data", lambda: {"data": {"a": "1"}}, b"a=1"),
)
SYNC_ONLY = (
    Kind("list", lambda: {"content": list(CHUNKS)}),
    Kind("tuple", lambda: {"content": CHUNKS}),
    Kind("list with a bytearray", lambda: {"content": [bytearray(b"01"), b"23"]}, b"0123"),
    Kind("generator", lambda: {"content": generate()}),
    Kind("iter", lambda: {"content": iter(CHUNKS)}),
    Kind("map", lambda: {"content": map(bytes.upper, CHUNKS)}, DATA.upper()),
    Kind("sync stream", lambda: {"stream": OnceStream(CHUNKS)}),
    Kind("file in memory", lambda: {"content": io.BytesIO(DATA)}),
    Kind(
        "file that is not at its beginning", lambda: {"content": at(io.BytesIO(DATA), 4)}, DATA[4:]
    ),
    Kind("duck-typed file", lambda: {"content": Duck(DATA)}),
    Kind("duck-typed file that can seek", lambda: {"content": SeekableDuck(DATA)}),
    Kind("file that can't seek", lambda: {"content": NonSeekable(DATA)}),
)
ASYNC_ONLY = (
    Kind("async generator", lambda: {"content": agenerate()}),
    Kind("async iterator", lambda: {"content": AsyncSequence(CHUNKS)}),
    Kind("async stream", lambda: {"stream": AsyncOnceStream(CHUNKS)}),
    Kind("async file", lambda: {"content": AsyncFile(DATA)}),
    Kind("async file with a file's methods", lambda: {"content": AsyncLocalFile(DATA)}),
)
DUAL = (Kind("stream for both", lambda: {"stream": DualOnceStream(CHUNKS)}),)

SYNC_KINDS = FIXED + SYNC_ONLY + MULTIPART + DUAL
ASYNC_KINDS = FIXED + ASYNC_ONLY + MULTIPART + DUAL


def name_of(kind: Kind) -> str:
    return kind.name


def take(stream: object, chunks: int | None = None) -> bytes:
    """What comes out of a stream until it ends, or until so many chunks have come."""
    taken: list[bytes] = []
    if chunks == 0:
        return b""
    for chunk in cast("httpx.SyncByteStream", stream):
        taken.append(chunk)
        if len(taken) == chunks:
            break
    return b"".join(taken)


async def atake(stream: object, chunks: int | None = None) -> bytes:
    """The same, async."""
    taken: list[bytes] = []
    if chunks == 0:
        return b""
    async for chunk in cast("httpx.AsyncByteStream", stream):
        taken.append(chunk)
        if len(taken) == chunks:
            break
    return b"".join(taken)


def send(body: Body, chunks: int | None = None) -> bytes:
    """One attempt, cut after so many chunks."""
    return take(body.stream(), chunks)


async def asend(body: Body, chunks: int | None = None) -> bytes:
    """One async attempt, cut after so many chunks."""
    return await atake(body.stream(), chunks)
