"""The request body, frozen before attempt 1 and sent again by every retry.

The rule: attempt n sends byte for byte what attempt 1 sent, or there is no attempt n. `freeze`
finds out, in this order, what kind of body it is:

| body | what is kept | sent again |
|---|---|---|
| bytes: `content=bytes`, `json=`, `data=` | the stream itself | always |
| a list or tuple of bytes | references | always |
| a file that can seek | its position, size and modification time | unless those changed |
| multipart of bytes and such files | size and modification time of each | unless those changed |
| anything else | what passed while an attempt sent it (`_recording.py`) | up to `limit` bytes |

The last row is everything that can be read once only, and everything whose second reading nobody
vouches for (a caller's own `SyncByteStream` or `AsyncByteStream`). Its iterator is ours from the
first chunk to the last: an attempt that stops early leaves it where it is, the next attempt sends
what is recorded and goes on from there.

Each kind may be iterated twice within one attempt: httpcore sends a body again by itself when
HTTP/2's GOAWAY says that the server did not process it (RFC 9113 section 6.8).

httpx keeps one stream through all redirects of a request, so the next logical request may bring a
body that an earlier one has read. A file goes on from where it started, unless somebody moved it;
an iterator that is used up fails instead of sending an empty body.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Protocol, TypeVar, cast
from weakref import WeakKeyDictionary, WeakSet

import anyio
import anyio.to_thread
import httpx

from ._httpx_private import content_behind, files_behind, is_multipart
from ._recording import Recording

__all__ = ["Body", "freeze"]

_T = TypeVar("_T")
Stream = httpx.SyncByteStream | httpx.AsyncByteStream

# How much waits for the temporary file. A thread costs some 100 us, so the async side hands over
# more at a time.
_BATCH = 1 << 16
_BATCH_FOR_THREAD = 1 << 20


class Body(Protocol):
    """One logical request's body, as every attempt sends it."""

    @property
    def failure(self) -> Exception | None:
        """What the caller's own iterator or file raised, None: nothing.

        It goes to the caller as it is, whatever the wrapped transport made of it, and such a body
        is never sent again. A cancellation is not the caller's failure and not kept here.
        """
        ...

    @property
    def content_length(self) -> int | None:
        """What Content-Length has to be where httpx's own is wrong, None: as it is.

        httpx announces the whole length of a file and sends what lies beyond its position.
        """
        ...

    def stream(self) -> Stream:
        """The stream to put on the next attempt's request."""
        ...

    def obstacle(self) -> str | None:
        """Why the body can't be sent again now, as a clause about "it"; None: it can."""
        ...

    def close(self) -> None:
        """Let go of what is kept; an upload that is still going on is not disturbed."""
        ...

    async def aclose(self) -> None:
        """The same without blocking the event loop on the disk."""
        ...


def freeze(request: httpx.Request, *, memory: int, limit: int) -> Body:
    """Make the request's body repeatable, once, before attempt 1. Reads nothing of it.

    `memory`, `limit`: how many bytes of a one-shot body are kept in memory, and in all.
    """
    stream = request.stream
    if type(stream) is httpx.ByteStream:
        return _Fixed(stream)
    return _freeze_stream(request, stream, memory, limit)


def _freeze_stream(request: httpx.Request, stream: Stream, memory: int, limit: int) -> Body:
    if isinstance(stream, (_SyncStream, _AsyncStream)):
        return _Inner(stream, stream.body)
    if isinstance(stream, _Chunks):
        return _Fixed(stream)
    if is_multipart(stream):
        files = files_behind(stream)
        prints = None if files is None else _fingerprints(files)
        if prints is not None:
            return _Rereadable(stream, prints) if prints else _Fixed(stream)
        return _recorded(stream, memory, limit, one_shot=True)
    content = content_behind(stream)
    if isinstance(content, (list, tuple)):
        chunks = tuple(cast("list[object] | tuple[object, ...]", content))
        if {type(chunk) for chunk in chunks} <= {bytes}:
            return _Fixed(_Chunks(cast("tuple[bytes, ...]", chunks)))
    elif hasattr(content, "read") and isinstance(stream, httpx.SyncByteStream):
        prints = _fingerprints([content])
        if prints:
            return _File(stream, prints, request.headers.get("content-length"))
    one_shot = any(hasattr(content, name) for name in ("__next__", "__anext__", "read", "aread"))
    return _recorded(stream, memory, limit, one_shot=one_shot)


class _Fixed:
    """A body in memory: its stream can be iterated any number of times."""

    __slots__ = ("_stream",)

    content_length: int | None = None

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    @property
    def failure(self) -> Exception | None:
        return None

    def stream(self) -> Stream:
        return self._stream

    def obstacle(self) -> str | None:
        return None

    def close(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


class _Chunks(httpx.SyncByteStream):
    """The chunks of a caller's list, which may change meanwhile."""

    def __init__(self, chunks: tuple[bytes, ...]) -> None:
        self._chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._chunks)


class _Replayable(Body, Protocol):
    def chunks(self) -> Iterator[bytes]: ...

    def achunks(self) -> AsyncIterator[bytes]: ...


# What goes on the request. Closing it, as a transport may, must not let go of the recording.
class _SyncStream(httpx.SyncByteStream):
    def __init__(self, body: _Replayable) -> None:
        self.body = body

    def __iter__(self) -> Iterator[bytes]:
        return self.body.chunks()


class _AsyncStream(httpx.AsyncByteStream):
    def __init__(self, body: _Replayable) -> None:
        self.body = body

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self.body.achunks()


class _DualStream(_SyncStream, _AsyncStream):
    pass


def _wrapped(body: _Replayable, source: Stream) -> Stream:
    """A stream for `body` that is sync, async or both, as its source is: transports ask for it."""
    if not isinstance(source, httpx.AsyncByteStream):
        return _SyncStream(body)
    return (_DualStream if isinstance(source, httpx.SyncByteStream) else _AsyncStream)(body)


class _Inner(_Fixed):
    """The body of a layer inside another: the outer one keeps it, and records it once."""

    __slots__ = ("_outer",)

    def __init__(self, stream: Stream, outer: Body) -> None:
        super().__init__(stream)
        self._outer = outer

    @property
    def failure(self) -> Exception | None:
        return self._outer.failure

    def obstacle(self) -> str | None:
        return self._outer.obstacle()


# --- files -------------------------------------------------------------------------------------

_Fingerprint = tuple[int, object]


def _fingerprint(file: Any) -> _Fingerprint | None:
    """A file's size, and what else shows that it has changed. None: it can't be read twice.

    What a file can do is found out by doing it; whatever it raises means that it can't.
    """
    try:
        if hasattr(file, "seekable") and not file.seekable():
            return None
        position = file.tell()
        file.seek(position)
        try:
            status = os.fstat(file.fileno())
        except (AttributeError, OSError):
            pass
        else:
            # Some devices can seek and give something else at every reading.
            regular = stat.S_ISREG(status.st_mode)
            return (status.st_size, status.st_mtime_ns) if regular else None
        if isinstance(file, io.BytesIO):
            value = file.getvalue()  # shared until somebody writes: no copy
            return len(value), value
        file.seek(0, os.SEEK_END)
        size = file.tell()
        file.seek(position)
    except Exception:
        return None
    return int(size), None


_Fingerprints = list[tuple[Any, _Fingerprint]]


def _fingerprints(files: list[Any]) -> _Fingerprints | None:
    prints: _Fingerprints = []
    for file in files:
        found = _fingerprint(file)
        if found is None:
            return None
        prints.append((file, found))
    return prints


class _Rereadable:
    """A body that httpx's own stream reads again from the caller's files: multipart."""

    __slots__ = ("_files", "_source", "_turn", "content_length", "failure")

    def __init__(self, source: Stream, files: _Fingerprints) -> None:
        self._source = source
        self._files = files
        self._turn: object = None
        self.failure: Exception | None = None
        self.content_length: int | None = None

    def stream(self) -> Stream:
        return _wrapped(self, self._source)

    def obstacle(self) -> str | None:
        if self.failure is not None:
            return f"reading it failed ({type(self.failure).__name__})"
        for file, before in self._files:
            now = _fingerprint(file)
            if now is None:
                return "its file can't be read again"
            if now != before:
                return "its file has changed since attempt 1"
        return None

    def close(self) -> None:
        pass

    async def aclose(self) -> None:
        self.close()

    def rewind(self) -> None:
        """Multipart has nothing to do here: httpx reads its files from their beginning."""

    def chunks(self) -> Iterator[bytes]:
        # The files have one position: whoever starts last owns it.
        turn = self._turn = object()
        source: Iterator[bytes] | None = None
        while True:
            if self._turn is not turn:
                raise RuntimeError("the request body is read from its beginning by somebody else")
            try:
                if source is None:
                    self.rewind()
                    source = iter(cast("httpx.SyncByteStream", self._source))
                chunk = next(source)
            except StopIteration:
                return
            except Exception as exc:
                self.failure = exc
                raise
            yield chunk

    def achunks(self) -> AsyncIterator[bytes]:
        return _Asynchronous(self.chunks())


class _Asynchronous:
    """An async iterator over a sync one. Not a generator: trio complains of abandoned ones."""

    __slots__ = ("_chunks",)

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        for chunk in self._chunks:
            return chunk
        raise StopAsyncIteration


# Where a file started when it was last sent, and where sending left it.
_LEFT: WeakKeyDictionary[Stream, tuple[int, int]] = WeakKeyDictionary()


class _File(_Rereadable):
    """One file that can seek, sent from where the caller left it."""

    __slots__ = ("_start",)

    def __init__(self, source: Stream, files: _Fingerprints, announced: str | None) -> None:
        super().__init__(source, files)
        file, (size, _) = files[0]
        start, left = _LEFT.get(source, (0, None))
        position = file.tell()
        self._start: int = start if position == left else position
        if self._start and announced == str(size):
            self.content_length = max(size - self._start, 0)

    def rewind(self) -> None:
        self._files[0][0].seek(self._start)

    def close(self) -> None:
        with contextlib.suppress(Exception):  # the file is the caller's, and may be closed
            _LEFT[self._source] = self._start, self._files[0][0].tell()


# --- what can be read once ---------------------------------------------------------------------

# Streams whose one-shot content has been read, at least in part, by an earlier logical request.
_SPENT: WeakSet[Stream] = WeakSet()


def _recorded(source: Stream, memory: int, limit: int, *, one_shot: bool) -> Body:
    asynchronous = isinstance(source, httpx.AsyncByteStream)
    recording = Recording(memory, limit, _BATCH_FOR_THREAD if asynchronous else _BATCH)
    return _Recorded(source, recording, one_shot=one_shot)


class _Recorded:
    """A body that is recorded while it is sent."""

    __slots__ = (
        "_broken",
        "_ended",
        "_live",
        "_lock",
        "_one_shot",
        "_source",
        "failure",
        "recording",
    )

    content_length: int | None = None

    def __init__(self, source: Stream, recording: Recording, *, one_shot: bool) -> None:
        self.recording = recording
        self.failure: Exception | None = None
        self._source = source
        self._one_shot = one_shot
        self._live: Any = None
        self._ended = False
        spent = one_shot and source in _SPENT
        self._broken = "an earlier request has read it" if spent else None
        self._lock = threading.Lock()

    def stream(self) -> Stream:
        return _wrapped(self, self._source)

    def obstacle(self) -> str | None:
        return self._broken or self.recording.lost

    def close(self) -> None:
        self.recording.close()

    async def aclose(self) -> None:
        if self.recording.has_file:
            with anyio.CancelScope(shield=True):
                await _in_thread(self.recording.close)
        else:
            self.recording.close()

    def chunks(self) -> Iterator[bytes]:
        return _SyncCursor(self)

    def achunks(self) -> AsyncIterator[bytes]:
        return _AsyncCursor(self)

    def enter(self) -> None:
        """Keep a second reader out, who would tear the body in two, and any from a broken body."""
        if self._broken is not None:
            self.failure = self.failure or httpx.StreamConsumed()
            raise self.failure
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("the request body is being read by somebody else")

    def leave(self) -> None:
        self._lock.release()

    def pull(self) -> bytes:
        """The next chunk of the caller's iterator."""
        if self._ended:
            raise StopIteration
        try:
            if self._live is None:
                self._start(iter)
            chunk: object = next(cast("Iterator[object]", self._live))
            return chunk if type(chunk) is bytes else _bytes(chunk)
        except StopIteration:
            self._ended = True
            raise
        except BaseException as exc:
            self._break(exc)
            raise

    async def apull(self) -> bytes:
        """The same of an async one."""
        if self._ended:
            raise StopAsyncIteration
        try:
            if self._live is None:
                self._start(aiter)
            chunk: object = await anext(cast("AsyncIterator[object]", self._live))
            return chunk if type(chunk) is bytes else _bytes(chunk)
        except StopAsyncIteration:
            self._ended = True
            raise
        except BaseException as exc:
            self._break(exc)
            raise

    def _start(self, iterate: Any) -> None:
        self._live = iterate(self._source)
        if self._one_shot:
            _SPENT.add(self._source)

    def _break(self, exc: BaseException) -> None:
        """Never pull again: a generator that has raised looks as if it had come to its end.

        That holds for a cancellation too, which an async generator sees as an exception.
        """
        if isinstance(exc, Exception):
            self.failure = exc
            self._broken = f"its iterator failed ({type(exc).__name__})"
        else:
            self._broken = f"its iterator was interrupted ({type(exc).__name__})"
        self.recording.lose(self._broken)


class _SyncCursor:
    """One reading of a recorded body, from its first byte."""

    __slots__ = ("_body", "_index", "_sent")

    def __init__(self, body: _Recorded) -> None:
        self._body = body
        self._index = 0  # of the recorded piece that comes next
        self._sent = 0

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        body, recording = self._body, self._body.recording
        body.enter()
        try:
            if self._sent == recording.total:
                chunk = body.pull()
                if recording.keep(chunk):
                    recording.flush()
                self._index = recording.pieces
            else:
                piece = recording.piece(self._index)
                chunk = recording.read(self._sent) if piece is None else piece
                self._index += 1
            self._sent += len(chunk)
            return chunk
        finally:
            body.leave()


class _AsyncCursor:
    """The same for an async body; the disk is left to a thread."""

    __slots__ = ("_body", "_index", "_sent")

    def __init__(self, body: _Recorded) -> None:
        self._body = body
        self._index = 0
        self._sent = 0

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        body, recording = self._body, self._body.recording
        body.enter()
        try:
            if self._sent == recording.total:
                chunk = await body.apull()
                if recording.keep(chunk):
                    await _in_thread(recording.flush)
                self._index = recording.pieces
            else:
                piece = recording.piece(self._index)
                chunk = await _in_thread(recording.read, self._sent) if piece is None else piece
                self._index += 1
            self._sent += len(chunk)
            return chunk
        finally:
            body.leave()


def _bytes(chunk: Any) -> bytes:
    """A chunk that the caller may change once it is sent."""
    if isinstance(chunk, (bytes, bytearray, memoryview)):
        return bytes(cast("bytes | bytearray | memoryview[int]", chunk))
    raise TypeError(f"the chunks of a request body must be bytes, not {type(chunk).__name__}")


async def _in_thread(call: Callable[..., _T], *args: Any) -> _T:
    # The default limiter may be taken by threads that wait for this very upload.
    return await anyio.to_thread.run_sync(call, *args, limiter=anyio.CapacityLimiter(1))
