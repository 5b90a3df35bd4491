"""How far our own request got, as httpcore's `trace` extension tells it.

httpcore swallows write errors in HTTP/1.1 (the server may have answered early), and a reset after
the whole request looks like one before it. Only the trace tells the two apart: until a head is out
whole, no server can have run the request.

"Never sent" is a promise, so it is made only where no interleaving can break it. In doubt, a head
counts as sent:

| how the head ended | never sent? |
|---|---|
| it was not begun: still connecting, TLS, a proxy's CONNECT, HTTP/2's preface | yes |
| h11 or h2 refused to make it | yes: they raise before they hand anything on |
| HTTP/1.1: a write error of the operating system | yes: it did not take the rest |
| HTTP/1.1: a timeout | no: the event loop may hold the rest and still send it |
| HTTP/1.1: anything else (cancelled, a signal handler raised) | no: it may have come after |
| HTTP/2: any other failure | no: whoever writes next sends what others have queued |
| complete, but above the last stream id of a GOAWAY | yes (RFC 9113 section 6.8) |
| complete | no |

It holds for the error that the trace ended in. A transport of somebody's own may give up on
httpcore and try something else, which the trace knows nothing of.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from ._classify import causes

_HTTPCORE = frozenset({"connection", "http11", "http2", "proxy", "socks"})
"""What the names of its events begin with."""

_AFTER_THE_HEAD = ("send_request_body.failed", "receive_response_headers.failed")


class SendProgress:
    """Follows the events of one attempt. The caller's own `trace` still sees every one of them."""

    __slots__ = ("_asynchronous", "_caller", "_failures", "_ours", "_seen", "sent", "stream_id")

    def __init__(self, caller: Any, *, asynchronous: bool) -> None:
        self._caller = caller
        self._asynchronous = asynchronous
        self._seen = False
        self._ours = False
        self._failures: list[BaseException] = []
        # A count, because what is wrapped may send more than once within one attempt: httpcore
        # after a GOAWAY, some other layer for reasons of its own. What one sending proves says
        # nothing of another.
        self.sent = 0
        """How many heads of our request may have gone out, and may have been read."""
        self.stream_id: int | None = None
        """The HTTP/2 stream that carries the request, once there is one."""

    def anew(self) -> SendProgress:
        """Return one like this for the next attempt."""
        return SendProgress(self._caller, asynchronous=self._asynchronous)

    def never_sent(self, error: BaseException) -> bool:
        """Whether an attempt that ended in `error` provably never sent the head of our request.

        A transport that emits no events, or none that we know, proves nothing.
        """
        if self.sent or not self._seen:
            return False
        # What is wrapped may give up on httpcore and go another way, of which the trace knows
        # nothing. httpcore says that a proxy opens no tunnel outside of any event.
        if not self._failures:
            return any(cls.__name__ == "ProxyError" for cls in type(error).__mro__)
        return any(
            cause is failure and _is_told_by(error, failure)
            for cause in causes(error)
            for failure in self._failures
        )

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
        protocol, _, event = name.partition(".")
        if protocol not in _HTTPCORE:
            return
        self._seen = True
        if event.endswith(".failed"):
            self._failures.append(info["exception"])
        if event == "send_request_headers.started":
            # A CONNECT asks the proxy for a tunnel; it isn't our request.
            self._ours = info["request"].method != b"CONNECT"
            self.stream_id = info.get("stream_id")
        elif event == "send_request_headers.complete":
            self.sent += self._ours
        elif event == "send_request_headers.failed":
            self.sent += self._ours and _may_have_left(protocol, info["exception"])
        elif event in _AFTER_THE_HEAD and _was_not_processed(info["exception"]):
            self.sent -= 1


def _may_have_left(protocol: str, error: BaseException) -> bool:
    if protocol != "http11":
        return not (_is_protocol_error(error) and _out_of(error, "send_headers"))
    if _is_protocol_error(error):
        return False
    if type(error).__name__ != "WriteError":
        return True
    # Only the operating system can say that it did not take the rest, and its errors have a number.
    # A signal handler may raise an OSError of its own, even behind the last byte (the example in
    # Python's signal documentation does); and anyio says of a stream that somebody closed while a
    # send waited that it is closed, whether or not all of it had been taken.
    *_, first = causes(error)
    return not (isinstance(first, OSError) and first.errno is not None)


def _is_told_by(error: BaseException, failure: BaseException) -> bool:
    # httpx gives each error of httpcore one of its own by the same name. Under another name, it is
    # somebody else's word about several ways. What the deadline cut off, we word ourselves.
    names = {cls.__name__ for cls in type(error).__mro__}
    return type(failure).__name__ in names or not isinstance(failure, Exception)


def _is_protocol_error(error: BaseException) -> bool:
    return any(cls.__name__.endswith("ProtocolError") for cls in type(error).__mro__)


def _out_of(error: BaseException, function: str) -> bool:
    # h2 queues a head as the last act of its `send_headers`. httpcore then widens the stream's
    # window, and with threads that can fail too: when the head has gone out with another thread's
    # data, and its answer is already there. The class of the error is the same, and httpcore shows
    # nothing but the error.
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_name == function:
            return True
        trace = trace.tb_next
    return False


def _was_not_processed(error: BaseException) -> bool:
    # What httpcore's pool is told of a stream above the last one of a GOAWAY: it sends the request
    # again on another connection.
    return type(error).__name__ == "ConnectionNotAvailable"


async def _nothing() -> None:
    pass
