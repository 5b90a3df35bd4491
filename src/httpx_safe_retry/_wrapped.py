"""What a `RetryTransport` wraps: a transport that was given, or httpx's own, built when needed."""

from __future__ import annotations

import threading
from typing import cast

import httpx


class Wrapped:
    """The transport for threads and the one for tasks; one object may be both.

    Raises `TypeError` for what is no transport at all.
    """

    def __init__(self, transport: httpx.BaseTransport | httpx.AsyncBaseTransport | None) -> None:
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
            raise TypeError(f"transport must be an httpx transport, not {transport!r}")
        self._building = threading.Lock()

    def for_threads(self) -> httpx.BaseTransport:
        """Build the transport for threads, now that it is needed.

        Raises `TypeError` if one for tasks was given.
        """
        if self._given is not None:
            raise _wrong_kind(self._given, "an async", "httpx.Client", "httpx.HTTPTransport")
        with self._building:
            if self.sync is None:
                self.sync = httpx.HTTPTransport()
            return self.sync

    def for_tasks(self) -> httpx.AsyncBaseTransport:
        """Build the transport for tasks, now that it is needed.

        Raises `TypeError` if one for threads was given.
        """
        if self._given is not None:
            raise _wrong_kind(
                self._given, "a sync", "httpx.AsyncClient", "httpx.AsyncHTTPTransport"
            )
        with self._building:
            if self.asynchronous is None:
                self.asynchronous = httpx.AsyncHTTPTransport()
            return self.asynchronous


class Made(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """An attempt that was made already: "sending" it again gives what came of it, once."""

    def __init__(self, outgoing: httpx.Request, result: httpx.Response | BaseException) -> None:
        self.outgoing = outgoing
        """What was sent."""
        self._result: httpx.Response | BaseException | None = result

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Return or raise what came of the attempt."""
        # It is let go of here: an error that is kept where its traceback leads never goes away.
        result, self._result = self._result, None
        try:
            if isinstance(result, BaseException):
                raise result
            assert result is not None
            return result
        finally:
            del result

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Return or raise what came of the attempt."""
        return self.handle_request(request)


def _wrong_kind(transport: object, kind: str, client: str, wanted: str) -> TypeError:
    return TypeError(
        f"this RetryTransport wraps {kind} transport ({type(transport).__name__}), but "
        f"{client} was given it: wrap {wanted} or another of its kind instead"
    )
