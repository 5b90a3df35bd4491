"""Requests that are sent nowhere: a real `RetryTransport` around one that plays what came back.

What follows from that is asked for here and written down nowhere, so that the command line can't
say anything but what the library does. What came back is made up, in the shape that httpcore gives
it: HTTP/2's refusals are imitations of h2's events, which a test compares with real ones.
"""

from __future__ import annotations

import errno
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import h11  # not a requirement of ours: httpx comes with httpcore, which speaks HTTP/1.1 through it
import httpx

from ._errors import RetryError, raise_for_outcome
from ._events import RequestFinished, RetryEvent
from ._for_httpx import RetryTransport
from ._policy import DEFAULT_POLICY, RetryPolicy
from ._report import RetryReport
from .testing._clock import VirtualClock

Ending = Callable[[httpx.Request], httpx.Response]
"""What one attempt ends in: it returns an answer, or raises."""

ERRORS: dict[str, type[httpx.RequestError]] = {
    name: found
    for name, found in sorted(vars(httpx).items())
    if isinstance(found, type) and issubclass(found, httpx.RequestError)
}
"""The errors of httpx that an attempt may end in, by name."""


class Cancelled(BaseException):
    """What stands for cancellation and Ctrl-C."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of one request whose attempts ended as they were told to."""

    report: RetryReport
    response: bool
    """Whether the caller got a response."""
    error: str | None
    """The error that the caller got, or gets of the response by `raise_for_outcome`."""
    as_it_was: bool = False
    """Whether that is the attempt's own error, as it was."""

    def sent(self, number: int) -> bool:
        """Whether there was an attempt of that number."""
        return len(self.report.attempts) >= number


def request_for(
    method: str, *, keyed: bool = False, endings: Sequence[Ending] = ()
) -> httpx.Request:
    """Return a request of that method, with an idempotency key or without, whose attempts can end
    like this.
    """
    headers = {"Idempotency-Key": "1"} if keyed else {}
    content = _failing_body() if own_body in endings else b"{}"
    return httpx.Request(method, "https://api.example.com/", headers=headers, content=content)


def run(
    request: httpx.Request,
    endings: Sequence[Ending],
    *,
    policy: RetryPolicy = DEFAULT_POLICY,
    drawn: float = 0.0,
) -> Trial:
    """Send a request whose attempts end like this, the last ending again and again.

    `drawn`: what each draw of randomness gives. No wait takes any time.
    """
    reports: list[RetryReport] = []

    def listen(event: RetryEvent) -> None:
        if isinstance(event, RequestFinished):
            reports.append(event.report)

    transport = RetryTransport(
        _Played(endings),
        policy=policy,
        budget=None,
        listeners=[listen],
        clock=VirtualClock(epoch=time.time()),
        random=lambda: drawn,
    )
    response = None
    try:
        response = transport.handle_request(request)
        response.close()
        response.request = request
        raise_for_outcome(response)
    except RetryError as error:
        return Trial(reports[0], response is not None, type(error).__name__)
    except (Exception, Cancelled) as error:
        return Trial(reports[0], False, type(error).__name__, as_it_was=True)
    return Trial(reports[0], True, None)


class _Played(httpx.BaseTransport):
    def __init__(self, endings: Sequence[Ending]) -> None:
        self._endings = endings
        self._sent = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        ending = self._endings[min(self._sent, len(self._endings) - 1)]
        self._sent += 1
        assert isinstance(request.stream, httpx.SyncByteStream)
        for _ in request.stream:
            pass
        return ending(request)


# Endings ------------------------------------------------------------------------------------------


def answer(status: int, *headers: tuple[str, str]) -> Ending:
    """End in an answer."""
    # As bytes, since a header may come with anything in it.
    lines = [(name.encode(), value.encode("utf-8", "surrogateescape")) for name, value in headers]
    return lambda request: httpx.Response(status, headers=lines)


def error(name: str, *causes: BaseException, text: str = "") -> Ending:
    """End in an error of httpx, made from `causes`: each from the next."""

    def fail(request: httpx.Request) -> httpx.Response:
        error: BaseException = ERRORS[name](text, request=request)
        for outer, cause in zip((error, *causes), causes, strict=False):
            outer.__cause__ = cause
        raise error

    return fail


def lost_in_the_body(request: httpx.Request) -> httpx.Response:
    """End in a success whose body breaks off."""
    return httpx.Response(200, headers={"Content-Length": "2"}, stream=_Broken())


class _Broken(httpx.SyncByteStream):
    def __iter__(self) -> Iterator[bytes]:
        yield b"{"
        raise httpx.ReadError("")


def untrusted() -> Ending:
    """End in a certificate that nobody vouches for."""
    return error("ConnectError", ssl.SSLCertVerificationError(1, "certificate verify failed"))


def offline() -> Ending:
    """End in a machine without a network."""
    return error("ConnectError", OSError(errno.ENETUNREACH, "Network is unreachable"))


def refused_tunnel(text: str) -> Ending:
    """End in a proxy that opens no tunnel: its answer is all that httpcore tells of it."""
    return error("ProxyError", text=text)


def malformed() -> Ending:
    """End in an answer that is none."""
    return error("RemoteProtocolError", h11.RemoteProtocolError("illegal status line"))


def unsendable() -> Ending:
    """End in a request that h11 does not write."""
    return error("LocalProtocolError", h11.LocalProtocolError("Illegal header value"))


def refused_stream() -> Ending:
    """End in HTTP/2's REFUSED_STREAM, as httpcore hands it on from h2."""
    return _http2(SimpleNamespace(error_code=7, remote_reset=True))


def went_away(last_stream_id: int) -> Ending:
    """End in HTTP/2's GOAWAY; our request is on stream 3."""
    return _http2(SimpleNamespace(error_code=0, last_stream_id=last_stream_id))


def _http2(event: object) -> Ending:
    fail = error("RemoteProtocolError", Exception(event))

    def send(request: httpx.Request) -> httpx.Response:
        head = {"request": SimpleNamespace(method=request.method.encode()), "stream_id": 3}
        _trace(request, "http2.send_request_headers.started", head)
        _trace(request, "http2.send_request_headers.complete", {})
        return fail(request)

    return send


def before_the_head(request: httpx.Request) -> httpx.Response:
    """End in an error while the connection is still being made."""
    cause = OSError(errno.ECONNRESET, "Connection reset by peer")
    try:
        return error("ReadError", cause)(request)
    except httpx.ReadError as failure:
        _trace(request, "connection.start_tls.failed", {"exception": failure})
        raise


def _trace(request: httpx.Request, name: str, info: Mapping[str, object]) -> None:
    # As httpcore does, where somebody wants to know.
    trace = request.extensions.get("trace")
    if trace is not None:
        trace(name, info)


own_body = answer(200)
"""End in an error of the request's own body: `request_for` gives it one that breaks off."""


def _failing_body() -> Iterator[bytes]:
    yield b"{"
    raise httpx.ReadError("of the stream that it was read from")


def somebody_elses(request: httpx.Request) -> httpx.Response:
    """End in an error that is none of the transport's."""
    raise RuntimeError


def cancelled(request: httpx.Request) -> httpx.Response:
    """End as cancellation and Ctrl-C do."""
    raise Cancelled


@dataclass(frozen=True, slots=True)
class Case:
    """An ending of which more is known than the class of its error."""

    label: str
    ending: Ending


CASES = {
    "lost-body": Case("200, lost in its body", lost_in_the_body),
    "untrusted": Case("untrusted certificate", untrusted()),
    "offline": Case("network unreachable", offline()),
    "proxy-407": Case("proxy answered 407", refused_tunnel("407 Proxy Authentication Required")),
    "proxy-503": Case("proxy answered 503", refused_tunnel("503 Service Unavailable")),
    "no-head": Case("head never went out", before_the_head),
    "refused-stream": Case("HTTP/2 REFUSED_STREAM", refused_stream()),
    "goaway-0": Case("HTTP/2 GOAWAY, stream 0", went_away(0)),
    "goaway-below": Case("HTTP/2 GOAWAY below ours", went_away(1)),
    "malformed": Case("malformed answer", malformed()),
    "unsendable": Case("unsendable request", unsendable()),
    "own-body": Case("error of your own body", own_body),
    "other": Case("any other exception", somebody_elses),
    "cancelled": Case("cancelled, Ctrl-C", cancelled),
}
"""Such endings, by the names that the command line has for them."""
