"""Failed answers are got rid of quickly, and their connections are used again."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest

from httpx_safe_retry import Outcome
from httpx_safe_retry.testing import LoopbackServer, ServerResponse
from tests.library import httpx
from tests.peers import Answer, Drop, Http1Server, Http2Server, read_body, read_head

from .driving import HTTP2, QUICK, everywhere, wire

SHORT: Any = pytest.param(b'{"error": "busy"}', id="Content-Length")
CHUNKED: Any = pytest.param([b'{"error": ', b'"busy"}'], id="chunked")
EMPTY: Any = pytest.param(b"", id="empty")
LONG: Any = pytest.param([b"x" * 50_000] * 20, id="long")


@everywhere
@pytest.mark.parametrize("body", [SHORT, CHUNKED, EMPTY])
@pytest.mark.parametrize("prefetch", [QUICK.prefetch, 0])
def test_ten_operations_that_meet_two_failures_each_use_one_connection(
    backend: str | None, prefetch: int, body: Any
) -> None:
    busy = ServerResponse(status=503, body=body)
    script = [busy, busy, ServerResponse(status=200, body=b"done")] * 10
    policy = QUICK.replace(prefetch=prefetch)
    with LoopbackServer(*script) as server, wire(backend, policy=policy) as client:
        for _ in range(10):
            got = client.send("PUT", server.url, content=b"12345")
            assert got.response is not None
            assert (got.status, got.response.content) == (200, b"done")
            assert len(got.report.attempts) == 3
    assert server.connections == 1
    assert [request.body for request in server.requests] == [b"12345"] * 30


@everywhere
def test_over_http2_failures_leave_the_connection_alone_as_well(backend: str | None) -> None:
    busy = Answer(503, body=b"x" * 1000)
    with Http2Server([busy, busy, Answer()] * 10) as server, wire(backend, **HTTP2) as client:
        for _ in range(10):
            assert client.send("PUT", server.url, content=b"12345").status == 200
        assert server.connections == 1


@everywhere
# Trio tells of the generators that httpcore leaves behind when an answer is not read to its end.
@pytest.mark.filterwarnings("ignore:Async generator 'httpcore:ResourceWarning")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("body", [SHORT, CHUNKED, EMPTY, LONG])
def test_a_pool_of_one_connection_is_never_exhausted(
    backend: str | None, body: Any, stream: bool
) -> None:
    busy = ServerResponse(status=429, body=body)
    limits = httpx.Limits(max_connections=1)
    with LoopbackServer(busy, busy) as server, wire(backend, timeout=5, limits=limits) as client:
        for _ in range(2):
            got = client.send("GET", server.url, stream=stream)
            assert got.response is not None, got.error
            assert (got.status, got.outcome) == (200, Outcome.SUCCESS)
            client.close(got.response)


class Trickles(Http1Server):
    """Answers 503 and sends its body a byte at a time, or not at all. Later, all is well."""

    def __init__(self, framing: str, pause: float) -> None:
        super().__init__()
        self._framing = framing
        self._pause = pause
        self.first_answer = 0.0
        self.second_request = 0.0

    def serve(self, connection: socket.socket) -> None:
        if self.connections > 1:
            self.second_request = time.monotonic()
            super().serve(connection)
            return
        with connection.makefile("rb") as stream:
            read_body(stream, read_head(stream))
        head = f"HTTP/1.1 503 Busy\r\n{self._framing}\r\n\r\n"
        connection.sendall(head.encode())
        self.first_answer = time.monotonic()
        chunk = b"1\r\nx\r\n" if "chunked" in self._framing else b"x"
        connection.settimeout(self._pause)
        while True:
            try:
                if not connection.recv(1):
                    return  # the client has closed
            except TimeoutError:
                connection.sendall(chunk)


@everywhere
@pytest.mark.parametrize("pause", [0.1, 60.0], ids=["trickling", "stalled"])
@pytest.mark.parametrize("framing", ["Content-Length: 60000", "Transfer-Encoding: chunked"])
def test_a_failed_answer_that_does_not_end_does_not_hold_up_the_retry(
    backend: str | None, framing: str, pause: float
) -> None:
    # Half a second is what it gets. Only where no byte comes at all, and a thread waits for it, it
    # is the read timeout of the caller, whose own request the first attempt sends.
    with Trickles(framing, pause) as server, wire(backend, timeout=2) as client:
        got = client.send("GET", server.url)
        assert got.status == 200
    assert server.second_request - server.first_answer < 5


@everywhere
@pytest.mark.parametrize("framing", ["Content-Length: 60000", "Transfer-Encoding: chunked"])
def test_with_a_deadline_a_stalled_answer_holds_up_no_thread_either(
    backend: str | None, framing: str
) -> None:
    policy = QUICK.replace(deadline=60.0)
    with Trickles(framing, 60.0) as server, wire(backend, policy=policy, timeout=60) as client:
        got = client.send("GET", server.url)
        assert got.status == 200
    assert server.second_request - server.first_answer < 5


@everywhere
def test_a_rest_that_nobody_wants_takes_no_time_from_the_attempt_that_follows(
    backend: str | None,
) -> None:
    # Half a second for the rest, and the wait, would leave nothing of the deadline.
    policy = QUICK.replace(deadline=0.9, backoff=lambda retry: 0.45, min_attempt_time=0.35)
    framing = "Transfer-Encoding: chunked"
    with Trickles(framing, 60.0) as server, wire(backend, policy=policy, timeout=60) as client:
        assert client.send("GET", server.url).status == 200


@everywhere
def test_a_failed_answer_whose_body_is_lost_is_discarded_like_any_other(
    backend: str | None,
) -> None:
    lost = Answer(503, body=b"12345", cut=2, then=Drop())
    with Http1Server([lost, lost]) as server, wire(backend) as client:
        got = client.send("GET", server.url)
    assert [attempt.status for attempt in got.report.attempts] == [503, 503, 200]


@everywhere
def test_the_last_failed_answer_is_read_and_handed_out(backend: str | None) -> None:
    with Http1Server([Answer(503, body=b"why")] * 3) as server, wire(backend) as client:
        got = client.send("GET", server.url)
    assert got.response is not None
    assert (got.status, got.response.content, got.outcome) == (503, b"why", Outcome.EXHAUSTED)
