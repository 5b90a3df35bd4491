"""A frozen body, and the streams that carry it: what every kind of body has in common.

The rule: what goes on an attempt's request is sync, async or both, as the caller's own stream is,
and can be iterated again and again, within one attempt too. Closing it, as a transport may, changes
nothing for the attempts that follow.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    import httpx

Stream: TypeAlias = "httpx.SyncByteStream | httpx.AsyncByteStream"


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


class Fixed:
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


# `Library` makes streams out of these, each with the class that its own transports ask for.


class Chunks:
    """The chunks of a caller's list, which may change meanwhile."""

    def __init__(self, chunks: tuple[bytes, ...]) -> None:
        self._chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._chunks)


class Replayable(Body, Protocol):
    def chunks(self) -> Iterator[bytes]: ...

    def achunks(self) -> AsyncIterator[bytes]: ...


class Replay:
    """A stream that carries a body of ours."""

    def __init__(self, body: Replayable) -> None:
        self.body = body


class SyncStream(Replay):
    def __iter__(self) -> Iterator[bytes]:
        return self.body.chunks()


class AsyncStream(Replay):
    def __aiter__(self) -> AsyncIterator[bytes]:
        return self.body.achunks()


class Inner(Fixed):
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
