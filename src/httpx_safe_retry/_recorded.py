"""Bodies that can be read once: recorded while an attempt sends them.

The rule: the caller's iterator is ours from its first chunk to its last. An attempt that stops
early leaves it where it is, and the next one sends what is recorded and goes on from there. Once
the iterator has raised, or was cancelled, it is never asked again: an async generator that was
cancelled looks exactly like one that has come to its end, and the body would be cut short.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, TypeVar, cast
from weakref import WeakSet

import anyio
import anyio.to_thread

from ._library import Library
from ._recording import Recording
from ._streams import Body, Stream

_T = TypeVar("_T")

# How much waits for the temporary file. A thread costs some 100 us, so the async side hands over
# more at a time.
_BATCH = 1 << 16
_BATCH_FOR_THREAD = 1 << 20

# Streams whose one-shot content has been read, at least in part, by an earlier logical request.
_SPENT: WeakSet[Stream] = WeakSet()


def recorded(library: Library, source: Stream, memory: int, limit: int, *, one_shot: bool) -> Body:
    batch = _BATCH_FOR_THREAD if library.is_async(source) else _BATCH
    recording = Recording(memory, limit, batch, library.stream_consumed)
    return _Recorded(library, source, recording, one_shot=one_shot)


class _Recorded:
    """A body that is recorded while it is sent."""

    __slots__ = (
        "_broken",
        "_ended",
        "_library",
        "_live",
        "_lock",
        "_one_shot",
        "_source",
        "failure",
        "recording",
    )

    content_length: int | None = None

    def __init__(
        self, library: Library, source: Stream, recording: Recording, *, one_shot: bool
    ) -> None:
        self._library = library
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
        return self._library.stream_for(self, self._source)

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
            self.failure = self.failure or self._library.stream_consumed()
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
    """A copy of a chunk that the caller may change once it is sent."""
    try:
        return bytes(memoryview(chunk))
    except TypeError:
        kind = type(chunk).__name__
        raise TypeError(f"the chunks of a request body must be bytes, not {kind}") from None


async def _in_thread(call: Callable[..., _T], *args: Any) -> _T:
    # The default limiter may be taken by threads that wait for this very upload.
    return await anyio.to_thread.run_sync(call, *args, limiter=anyio.CapacityLimiter(1))
