"""Bodies that are read again from the caller's files.

The rule: a file is known by what it can do, never by its type, and it is sent again only if nobody
has changed it since it was frozen. It stays the caller's: it is never closed here, and its position
afterwards is where reading it leaves it, as with plain httpx.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from ._library import Library
from ._streams import Stream

if TYPE_CHECKING:
    import httpx

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
            is_regular = stat.S_ISREG(status.st_mode)
            return (status.st_size, status.st_mtime_ns) if is_regular else None
        if isinstance(file, io.BytesIO):
            value = file.getvalue()  # shared until somebody writes: no copy
            return len(value), value
        file.seek(0, os.SEEK_END)
        size = file.tell()
        file.seek(position)
    except Exception:
        return None
    return int(size), None


Fingerprints = list[tuple[Any, _Fingerprint]]


def fingerprints(files: list[Any]) -> Fingerprints | None:
    prints: Fingerprints = []
    for file in files:
        found = _fingerprint(file)
        if found is None:
            return None
        prints.append((file, found))
    return prints


class Rereadable:
    """A body that httpx's own stream reads again from the caller's files: multipart."""

    __slots__ = ("_files", "_library", "_source", "_turn", "content_length", "failure")

    def __init__(self, library: Library, source: Stream, files: Fingerprints) -> None:
        self._library = library
        self._source = source
        self._files = files
        self._turn: object = None
        self.failure: Exception | None = None
        self.content_length: int | None = None

    def stream(self) -> Stream:
        return self._library.stream_for(self, self._source)

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


class File(Rereadable):
    """One file that can seek, sent from where the caller left it."""

    __slots__ = ("_start",)

    def __init__(
        self, library: Library, source: Stream, files: Fingerprints, headers: httpx.Headers
    ) -> None:
        super().__init__(library, source, files)
        file, (size, _) = files[0]
        start, left = _LEFT.get(source, (0, None))
        position = file.tell()
        self._start: int = start if position == left else position
        if self._start and headers.get("Content-Length") == str(size):
            self.content_length = max(size - self._start, 0)

    def rewind(self) -> None:
        self._files[0][0].seek(self._start)

    def close(self) -> None:
        with contextlib.suppress(Exception):  # the file is the caller's, and may be closed
            _LEFT[self._source] = self._start, self._files[0][0].tell()
