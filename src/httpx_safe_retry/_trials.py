"""Requests that are sent nowhere: a real `RetryTransport` around one that plays what came back.

What the command line shows is asked for here, and nothing of it is written down, so that it can't
say anything but what the library does.
"""

from __future__ import annotations

import errno
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import h11
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


class Stopped(BaseException):
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
    method: str, *, keyed: bool = False, content: bytes | Iterable[bytes] = b"{}"
) -> httpx.Request:
    """Return a request of that method, with an idempotency key or without."""
    headers = {"Idempotency-Key": "1"} if keyed else {}
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
    except (Exception, Stopped) as error:
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
    _trace(request, "connection.start_tls.failed", {"exception": cause})
    return error("ReadError", cause)(request)


def _trace(request: httpx.Request, name: str, info: Mapping[str, object]) -> None:
    # As httpcore does, where somebody wants to know.
    trace = request.extensions.get("trace")
    if trace is not None:
        trace(name, info)


def stopped(request: httpx.Request) -> httpx.Response:
    """End as cancellation and Ctrl-C do."""
    raise Stopped


def somebody_elses(request: httpx.Request) -> httpx.Response:
    """End in an error that is none of the transport's."""
    raise RuntimeError


def failing_body() -> Iterator[bytes]:
    """Return a body that raises an error of its own."""
    yield b"{"
    raise httpx.ReadError("of the stream that it was read from")
