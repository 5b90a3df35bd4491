"""How far our own request got, as httpcore's `trace` extension tells it.

httpcore swallows write errors in HTTP/1.1 (the server may have answered early), and a reset after
the whole request looks like one before it. Only the trace tells the two apart: until
`send_request_headers` is complete, no server can have run the request.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any


class SendProgress:
    """Follows the events of one attempt. The caller's own `trace` still sees every one of them."""

    __slots__ = ("_asynchronous", "_caller", "_ours", "_seen", "_sent", "stream_id")

    def __init__(self, caller: Any, *, asynchronous: bool) -> None:
        self._caller = caller
        self._asynchronous = asynchronous
        self._seen = False
        self._ours = False
        self._sent = False
        self.stream_id: int | None = None
        """The HTTP/2 stream that carries the request, once there is one."""

    def anew(self) -> SendProgress:
        """Return one like this for the next attempt."""
        return SendProgress(self._caller, asynchronous=self._asynchronous)

    @property
    def never_sent(self) -> bool:
        """Whether the head of our request provably never went out whole.

        A transport that emits no events at all proves nothing.
        """
        return self._seen and not self._sent

    @property
    def callback(self) -> Callable[[str, Any], Any]:
        """What goes into the `trace` extension."""
        return self._aobserve if self._asynchronous else self._observe

    def _observe(self, name: str, info: Mapping[str, Any]) -> None:
        self._note(name, info)
        if self._caller is not None:
            self._caller(name, info)

    def _aobserve(self, name: str, info: Mapping[str, Any]) -> Coroutine[Any, Any, None]:
        self._note(name, info)
        # httpcore checks that what it got is a coroutine, so that the caller's own will do.
        return _nothing() if self._caller is None else self._caller(name, info)

    def _note(self, name: str, info: Mapping[str, Any]) -> None:
        self._seen = True
        protocol, _, event = name.partition(".")
        if event == "send_request_headers.started":
            # A CONNECT asks the proxy for a tunnel; it isn't our request. A second start of our own
            # means that httpcore found the first one unprocessed (GOAWAY with a lower stream id)
            # and begins anew, so what the first one proved no longer counts.
            self._ours = info["request"].method != b"CONNECT"
            self._sent = False
            self.stream_id = info.get("stream_id")
        elif event == "send_request_headers.complete":
            self._sent = self._ours
        elif event == "send_request_headers.failed":
            self._sent = self._ours and self._may_have_left(protocol, info["exception"])

    def _may_have_left(self, protocol: str, error: BaseException) -> bool:
        if _is_protocol_error(error):
            return False  # nothing was even handed to the socket
        # On an HTTP/2 connection whichever task holds the write lock sends what others have queued:
        # the error may be about their frames, after ours went out.
        if protocol == "http2":
            return True
        # A failed write leaves the head incomplete, but an event loop takes the bytes over before
        # it waits for room: after a timeout or a cancellation they may still go out.
        return self._asynchronous and type(error).__name__ != "WriteError"


def _is_protocol_error(error: BaseException) -> bool:
    return any(cls.__name__.endswith("ProtocolError") for cls in type(error).__mro__)


async def _nothing() -> None:
    pass
