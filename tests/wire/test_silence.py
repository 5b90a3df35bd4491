"""A server that says nothing: the deadline ends the attempt itself."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest

from httpx_safe_retry import Evidence, Outcome, StopReason
from httpx_safe_retry.testing import Fault, LoopbackServer
from tests.library import httpx
from tests.peers import Http1Server, read_body, read_head, silent_port

from .driving import KEY, QUICK, everywhere, wire

SILENT = Fault(by="silence")
LONG_BEFORE_THE_TEST_IS_STUCK = 8.0
HALF_A_SECOND = QUICK.replace(deadline=0.5)


@everywhere
@pytest.mark.parametrize("more", [{"method": "GET"}, {"method": "POST", "headers": KEY}], ids=str)
def test_what_is_replay_safe_ends_at_the_deadline(
    backend: str | None, more: dict[str, Any]
) -> None:
    with (
        LoopbackServer(SILENT, repeat=True) as server,
        wire(backend, policy=HALF_A_SECOND, timeout=60) as client,
    ):
        began = time.monotonic()
        got = client.send(url=server.url, **more)
        assert time.monotonic() - began < LONG_BEFORE_THE_TEST_IS_STUCK
    uncertain = more["method"] == "POST"
    assert got.outcome is (Outcome.UNCERTAIN_WRITE if uncertain else Outcome.DEADLINE_EXCEEDED)
    assert got.stop_reason is StopReason.DEADLINE
    assert isinstance(got.error, httpx.ReadTimeout)
    assert len(server.requests) == 1


@everywhere
def test_an_unkeyed_post_is_uncertain_at_the_deadline(backend: str | None) -> None:
    with (
        LoopbackServer(SILENT) as server,
        wire(backend, policy=HALF_A_SECOND, timeout=60) as client,
    ):
        began = time.monotonic()
        got = client.send("POST", server.url, content=b"pay")
        assert time.monotonic() - began < LONG_BEFORE_THE_TEST_IS_STUCK
    assert (got.outcome, got.report.executed) == (Outcome.UNCERTAIN_WRITE, None)
    assert isinstance(got.error, httpx.ReadTimeout)
    assert len(server.ledger) == 1


@everywhere
def test_a_connection_that_is_never_made_ends_at_the_deadline_without_doubt(
    backend: str | None,
) -> None:
    with silent_port() as port, wire(backend, policy=HALF_A_SECOND, timeout=60) as client:
        began = time.monotonic()
        got = client.send("POST", f"http://127.0.0.1:{port}/", content=b"pay")
        assert time.monotonic() - began < LONG_BEFORE_THE_TEST_IS_STUCK
    assert (got.outcome, got.report.executed) == (Outcome.DEADLINE_EXCEEDED, False)
    assert got.evidence == [Evidence.NOT_SENT]
    assert isinstance(got.error, httpx.TimeoutException)


class NeverComesToThePoint(Http1Server):
    """Sends a head that does not end, a byte at a time: no read ever times out."""

    def serve(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as stream:
            request = read_head(stream)
            read_body(stream, request)
        self.execute(request)
        connection.sendall(b"HTTP/1.1 200 OK\r\nX-Thoughts: ")
        connection.settimeout(0.05)
        while True:
            try:
                if not connection.recv(1):
                    return
            except TimeoutError:
                connection.sendall(b"m")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_task_is_ended_at_the_deadline_even_while_bytes_keep_coming(backend: str) -> None:
    with NeverComesToThePoint() as server, wire(backend, policy=HALF_A_SECOND) as client:
        began = time.monotonic()
        got = client.send("POST", server.url, content=b"pay")
        assert time.monotonic() - began < LONG_BEFORE_THE_TEST_IS_STUCK
    assert (got.outcome, got.report.executed) == (Outcome.UNCERTAIN_WRITE, None)
    assert isinstance(got.error, httpx.ReadTimeout)
    assert len(server.executed) == 1
