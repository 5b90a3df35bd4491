"""httpx and its kin: what one such library is made of, and what is made for it.

The rule: nothing here or in the core imports one of them. `_for_httpx.py` and `httpx2.py` each make
a `Library` of theirs and hand it on, so that one core serves both in one process, and neither has
to be installed for the other. The types are those of httpx: the other's look the same.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from ._classify import FAMILIES
from ._private import Behind
from ._streams import AsyncStream, Chunks, Replayable, Stream, SyncStream

if TYPE_CHECKING:
    import httpx


class Library:
    """The classes of one library that are asked for, raised or made here."""

    def __init__(self, module: ModuleType) -> None:
        library: Any = module
        self._module = library
        self.name = module.__name__
        self.request: type[httpx.Request] = library.Request
        self.byte_stream: type[httpx.ByteStream] = library.ByteStream
        self.read_timeout: type[httpx.ReadTimeout] = library.ReadTimeout
        self.stream_consumed: type[httpx.StreamConsumed] = library.StreamConsumed
        self.errors: tuple[type[Exception], ...] = (library.HTTPError, library.StreamError)
        self.clients: tuple[type, type] = (library.Client, library.AsyncClient)
        self.behind = Behind(module)
        # Clients and transports ask for their own stream classes.
        sync, asynchronous = library.SyncByteStream, library.AsyncByteStream
        self._async_byte_stream: type[httpx.AsyncByteStream] = asynchronous
        self._sync_byte_stream: type[httpx.SyncByteStream] = sync
        self._chunks: Any = type("Chunks", (Chunks, sync), {})
        self._sync: Any = type("SyncStream", (SyncStream, sync), {})
        self._async: Any = type("AsyncStream", (AsyncStream, asynchronous), {})
        self._dual: Any = type("DualStream", (SyncStream, AsyncStream, sync, asynchronous), {})

    def http_transport(self) -> httpx.HTTPTransport:
        """Build the library's own transport for threads."""
        built: httpx.HTTPTransport = self._module.HTTPTransport()
        return built

    def async_http_transport(self) -> httpx.AsyncHTTPTransport:
        """Build the library's own transport for tasks."""
        built: httpx.AsyncHTTPTransport = self._module.AsyncHTTPTransport()
        return built

    def is_sync(self, stream: object) -> bool:
        """Whether a thread can read the stream."""
        return isinstance(stream, self._sync_byte_stream)

    def is_async(self, stream: object) -> bool:
        """Whether a task can read the stream."""
        return isinstance(stream, self._async_byte_stream)

    def stream_of(self, chunks: tuple[bytes, ...]) -> Stream:
        """A stream of these chunks."""
        return cast("Stream", self._chunks(chunks))

    def stream_for(self, body: Replayable, source: Stream) -> Stream:
        """A stream for `body` that is sync, async or both, as its source is."""
        if not self.is_async(source):
            return cast("Stream", self._sync(body))
        return cast("Stream", (self._dual if self.is_sync(source) else self._async)(body))

    @staticmethod
    def public_name(name: str, member: str = "RetryTransport") -> str:
        """Where that `member` for the library of this name is found."""
        package = __package__ if name == "httpx" else f"{__package__}.{name}"
        return f"{package}.{member}"

    def refuse_request(self, request: object) -> None:
        """Raise `TypeError` for a request of the other library. A duck-typed one is accepted."""
        theirs = self.other_library_of(request, "Request")
        if theirs is not None:
            raise TypeError(
                f"this RetryTransport is made for {self.name}, and its client for {theirs}: "
                f"give it {self.public_name(theirs)} instead"
            )

    def other_library_of(self, thing: object, *names: str) -> str | None:
        """The name of the other library of which `thing` is an instance; None: of no other.

        `names`: of the classes, the same in each.
        """
        if isinstance(thing, _classes(self._module, names)):
            return None
        for name in FAMILIES:
            # Where httpx is an alias of httpx2, both names stand for one module.
            if isinstance(thing, _classes(sys.modules.get(name), names)):
                return name
        return None


def _classes(module: object, names: tuple[str, ...]) -> tuple[type, ...]:
    # A module that another thread is still importing holds some of its names only.
    found: list[object] = [getattr(module, name, None) for name in names]
    return tuple(one for one in found if isinstance(one, type))
