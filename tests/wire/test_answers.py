"""Bodies of answers: what is read within the attempt, what is lost, and what is not held back."""

from __future__ import annotations

import gzip
import socket
import threading
from typing import Any

import pytest

from httpx_safe_retry import Evidence, Outcome, StopReason, UncertainWriteError
from httpx_safe_retry.testing import Fault, LoopbackServer, ServerRequest, ServerResponse
from tests.library import httpx
from tests.peers import (
    PATIENCE,
    Answer,
    Drop,
    GoAway,
    Http1Server,
    Http2Server,
    Reset,
    read_body,
    read_head,
)

from .driving import HTTP2, KEY, everywhere, wire

AMBIGUOUS, EXECUTED = Evidence.AMBIGUOUS, Evidence.EXECUTED

# Lost on the way ----------------------------------------------------------------------------------


@everywhere
@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("cut", [0, 2, 4])
def test_a_get_whose_short_answer_is_cut_is_sent_again(
    backend: str | None, cut: int, hard: bool
) -> None:
    lost = Answer(200, body=b"12345", cut=cut, then=Drop(hard=hard))
    with Http1Server([lost, Answer(200, body=b"12345")]) as server, wire(backend) as client:
        got = client.send("GET", server.url)
    assert got.response is not None
    assert (got.status, got.response.content) == (200, b"12345")
    assert len(got.report.attempts) == 2


@everywhere
def test_a_get_whose_short_answer_is_cut_on_its_stream_is_sent_again(backend: str | None) -> None:
    body = ("content-length", "5")
    lost = Answer(200, headers=[body], body=b"12345", cut=2, then=Reset(2))
    with (
        Http2Server([lost, Answer(200, headers=[body], body=b"12345")]) as server,
        wire(backend, **HTTP2) as client,
    ):
        got = client.send("GET", server.url)
    assert got.response is not None
    assert (got.response.content, len(got.report.attempts)) == (b"12345", 2)


@everywhere
@pytest.mark.parametrize("cut", [0, 2])
def test_an_unkeyed_post_whose_confirmed_answer_is_cut_did_happen(
    backend: str | None, cut: int
) -> None:
    lost = Answer(201, body=b"receipt", cut=cut, then=Drop())
    with Http1Server([lost]) as server, wire(backend) as client:
        got = client.send("POST", server.url, content=b"pay")
    assert isinstance(got.error, UncertainWriteError)
    assert isinstance(got.error, httpx.RemoteProtocolError)
    assert (got.outcome, got.report.executed) == (Outcome.UNCERTAIN_WRITE, True)
    assert got.report.attempts[0].status == 201
    assert len(server.executed) == len(server.received) == 1


@everywhere
def test_a_keyed_post_whose_confirmed_answer_is_cut_gets_the_recorded_one(
    backend: str | None,
) -> None:
    def pay(request: ServerRequest) -> ServerResponse:
        return ServerResponse(status=201, body=b"receipt")

    with (
        LoopbackServer(Fault(response_bytes=45), handler=pay, dedupe=True) as server,
        wire(backend) as client,
    ):
        got = client.send("POST", server.url, content=b"pay", headers=KEY)
    assert got.response is not None
    assert (got.status, got.response.content) == (201, b"receipt")
    assert (len(server.ledger), len(server.requests)) == (1, 2)


@everywhere
@pytest.mark.parametrize("hard", [False, True])
def test_a_long_answer_that_dies_while_it_is_streamed_is_the_callers_to_see(
    backend: str | None, hard: bool
) -> None:
    body = bytes(200_000)
    lost = Answer(200, body=body, cut=100_000, then=Drop(hard=hard))
    with Http1Server([lost]) as server, wire(backend) as client:
        got = client.send("GET", server.url, stream=True)
        assert got.response is not None
        received: list[bytes] = []
        with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
            received.extend(client.chunks(got.response))
        client.close(got.response)
        assert body.startswith(b"".join(received))
        assert server.connections == 1
    assert len(server.received) == len(got.report.attempts) == 1


@everywhere
def test_an_http2_answer_outlives_a_graceful_goaway(backend: str | None) -> None:
    bye = GoAway(last="own", then=Answer(200, body=b"12345"))
    with Http2Server([bye]) as server, wire(backend, **HTTP2) as client:
        got = client.send("GET", server.url)
    assert got.outcome is Outcome.SUCCESS
    assert len(server.received) <= 3


# Read within the attempt --------------------------------------------------------------------------


@everywhere
@pytest.mark.parametrize("stream", [False, True])
def test_a_compressed_answer_is_decoded_as_ever(backend: str | None, stream: bool) -> None:
    packed = gzip.compress(b"12345" * 100)
    answer = Answer(200, headers=[("Content-Encoding", "gzip")], body=packed)
    with Http1Server([answer]) as server, wire(backend) as client:
        got = client.send("GET", server.url, stream=stream)
        assert got.response is not None
        if stream:
            assert b"".join(client.chunks(got.response)) == packed
        else:
            assert got.response.content == b"12345" * 100


class AnswersInSteps(Http1Server):
    """Sends the parts of one answer; each but the first only when the client has the one before."""

    def __init__(self, *parts: bytes) -> None:
        super().__init__()
        self._parts = parts
        self.arrived = threading.Semaphore(1)

    def serve(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as stream:
            read_body(stream, read_head(stream))
        for part in self._parts:
            assert self.arrived.acquire(timeout=PATIENCE), "the client is still waiting"
            connection.sendall(part)
        self.arrived.acquire(timeout=PATIENCE)


EVENTS = [b"data: 1\n\n", b"data: 2\n\n", b"data: 3\n\n"]
UNTIL_CLOSED: Any = pytest.param(
    [b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + EVENTS[0], *EVENTS[1:]],
    id="until the end of the connection",
)
CHUNKED: Any = pytest.param(
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n" + EVENTS[0] + b"\r\n",
        *(b"9\r\n" + event + b"\r\n" for event in EVENTS[1:]),
    ],
    id="chunked",
)
LONG: Any = pytest.param(
    [b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + EVENTS[0], *EVENTS[1:]],
    id="longer than prefetch",
)


@everywhere
@pytest.mark.filterwarnings("ignore:Async generator 'httpcore:ResourceWarning")
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("parts", [UNTIL_CLOSED, CHUNKED, LONG])
def test_no_byte_of_a_long_or_endless_answer_is_held_back(
    backend: str | None, method: str, parts: list[bytes]
) -> None:
    with AnswersInSteps(*parts) as server, wire(backend) as client:
        got = client.send(method, server.url, stream=True)
        assert got.response is not None
        assert got.outcome is Outcome.SUCCESS
        chunks = client.chunks(got.response)
        for event in EVENTS:
            assert next(chunks) == event
            server.arrived.release()
        client.close(got.response)


@everywhere
@pytest.mark.parametrize(
    ("method", "head"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
        ("GET", b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"),
        ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    ],
)
def test_an_answer_without_a_body_is_not_waited_for(
    backend: str | None, method: str, head: bytes
) -> None:
    with AnswersInSteps(head) as server, wire(backend) as client:
        got = client.send(method, server.url)
        server.arrived.release()
    assert got.response is not None
    assert (got.outcome, got.stop_reason) == (Outcome.SUCCESS, StopReason.DONE)
    assert got.response.content == b""
