"""What a `RetryTransport` wraps: a transport that was given, or the library's own, built when
needed.
"""

from __future__ import annotations

import inspect
import threading
import warnings
from typing import TYPE_CHECKING, cast

from ._library import Library
from ._private import connect_retries

if TYPE_CHECKING:
    import httpx


class Wrapped:
    """The transport for threads and the one for tasks; one object may be both.

    Raises `TypeError` for what is no transport at all, and for one of another library.
    """

    def __init__(self, library: Library, transport: object) -> None:
        self._library = library
        self._given = transport
        # By capability: a transport that only looks like one of httpx's is as good.
        self.sync = cast(
            "httpx.BaseTransport | None",
            transport if hasattr(transport, "handle_request") else None,
        )
        """The one for threads, if there is one by now."""
        self.asynchronous = cast(
            "httpx.AsyncBaseTransport | None",
            transport if hasattr(transport, "handle_async_request") else None,
        )
        """The one for tasks, if there is one by now."""
        if transport is not None and self.sync is None and self.asynchronous is None:
            raise TypeError(f"transport must be an {library.name} transport, not {transport!r}")
        theirs = library.other_library_of(transport, "BaseTransport", "AsyncBaseTransport")
        if theirs is not None:
            raise TypeError(
                f"transport must be an {library.name} transport, and {type(transport).__name__} is "
                f"one of {theirs}: {library.public_name(theirs)} wraps it"
            )
        self._building = threading.Lock()

    def for_threads(self) -> httpx.BaseTransport:
        """Build the transport for threads, now that it is needed.

        Raises `TypeError` if one for tasks was given.
        """
        if self._given is not None:
            raise self._wrong_kind("an async", "Client", "HTTPTransport")
        with self._building:
            if self.sync is None:
                self.sync = self._library.http_transport()
            return self.sync

    def for_tasks(self) -> httpx.AsyncBaseTransport:
        """Build the transport for tasks, now that it is needed.

        Raises `TypeError` if one for threads was given.
        """
        if self._given is not None:
            raise self._wrong_kind("a sync", "AsyncClient", "AsyncHTTPTransport")
        with self._building:
            if self.asynchronous is None:
                self.asynchronous = self._library.async_http_transport()
            return self.asynchronous

    def _wrong_kind(self, kind: str, client: str, wanted: str) -> TypeError:
        name = self._library.name
        return TypeError(
            f"this RetryTransport wraps {kind} transport ({type(self._given).__name__}), but "
            f"{name}.{client} was given it: wrap {name}.{wanted} or another of its kind instead"
        )


class Made:
    """An attempt that was made already: "sending" it again gives what came of it, once."""

    def __init__(
        self,
        outgoing: httpx.Request,
        answer: httpx.Response | None,
        error: BaseException | None,
    ) -> None:
        self.outgoing = outgoing
        """What was sent."""
        self._answer = answer
        self._error = error

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Return or raise what came of the attempt."""
        # It is let go of here: an error that is kept where its traceback leads never goes away.
        error, self._error = self._error, None
        answer, self._answer = self._answer, None
        try:
            if error is not None:
                raise error
            assert answer is not None
            return answer
        finally:
            del error, answer

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Return or raise what came of the attempt."""
        return self.handle_request(request)


def warn_of_retries_inside(transport: object) -> None:
    """Point out, once for each line that does it, a transport that tries again by itself."""
    if connect_retries(transport) > 0:
        warnings.warn(
            "the wrapped transport was made with retries=...: each attempt of this one "
            "multiplies them, and they know no deadline. Leave them at 0",
            stacklevel=_level_of_caller(),
        )


def _level_of_caller() -> int:
    """Return how far up the stack the code is that uses this package: it gets the warning, and
    each line of it once.
    """
    level, frame = 0, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__package__") == __package__:
        level, frame = level + 1, frame.f_back
    return level
