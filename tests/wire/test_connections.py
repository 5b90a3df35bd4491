"""Connections that can't be made or that break: what each proves about the request."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any

import pytest

from httpx_safe_retry import Evidence, Outcome, StopReason
from tests.library import httpx
from tests.peers import (
    PATIENCE,
    Answer,
    Drop,
    Http1Server,
    NamespacesRefusedError,
    Raw,
    client_tls,
    end,
    read_body,
    read_head,
    refusing_port,
    render,
    server_tls,
    silent_port,
    without_network,
)

from .driving import KEY, QUICK, everywhere, wire

NOT_SENT, AMBIGUOUS, EXECUTED = Evidence.NOT_SENT, Evidence.AMBIGUOUS, Evidence.EXECUTED

# Nobody there -------------------------------------------------------------------------------------


@everywhere
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_refused_connection_is_tried_again_and_promises_that_nothing_happened(
    backend: str | None, method: str
) -> None:
    with refusing_port() as port, wire(backend) as client:
        got = client.send(method, f"http://127.0.0.1:{port}/")
    assert (got.outcome, got.report.executed) == (Outcome.EXHAUSTED, False)
    assert got.evidence == [NOT_SENT] * 3
    assert isinstance(got.error, httpx.ConnectError)


@everywhere
def test_a_connection_that_times_out_was_not_made(backend: str | None) -> None:
    with silent_port() as port, wire(backend, timeout=0.2) as client:
        got = client.send("POST", f"http://127.0.0.1:{port}/", content=b"pay")
    assert (got.outcome, got.evidence) == (Outcome.EXHAUSTED, [NOT_SENT] * 3)
    assert isinstance(got.error, httpx.ConnectTimeout)


Offline = dict[tuple[str | None, bool], tuple[Outcome, list[Evidence], bool | None]]


def sent_offline() -> Offline:
    """What becomes of a POST, by backend and `policy.offline`. For a process of its own."""
    results: Offline = {}
    for backend in (None, "asyncio", "trio"):
        for offline in (False, True):
            with wire(backend, policy=QUICK.replace(offline=offline)) as client:
                got = client.send("POST", "http://127.0.0.1:9/", content=b"pay")
            results[backend, offline] = (got.outcome, got.evidence, got.report.executed)
    return results


@pytest.fixture(scope="module")
def offline_results() -> Offline:
    try:
        return without_network(sent_offline)
    except NamespacesRefusedError as refusal:
        pytest.skip(f"needs a network of its own, which this machine refuses: {refusal}")


@everywhere
def test_without_a_network_there_is_one_attempt(
    backend: str | None, offline_results: Offline
) -> None:
    assert offline_results[backend, False] == (Outcome.PERMANENT_FAILURE, [NOT_SENT], False)


@everywhere
def test_a_policy_may_hope_that_the_network_comes_back(
    backend: str | None, offline_results: Offline
) -> None:
    assert offline_results[backend, True] == (Outcome.EXHAUSTED, [NOT_SENT] * 3, False)


# Broken before the request ------------------------------------------------------------------------


@everywhere
@pytest.mark.parametrize("body", [b"", b"pay", b"x" * 1_000_000], ids=len)
def test_a_reset_at_accept_gets_an_honest_verdict(backend: str | None, body: bytes) -> None:
    """Whether the head got out first is a race; the verdict goes by what the trace showed."""
    for _ in range(5):
        with Http1Server([Drop("accept", hard=True)]) as server, wire(backend) as client:
            got = client.send("POST", server.url, content=body)
        first = got.evidence[0]
        assert first in (NOT_SENT, AMBIGUOUS)
        if first is NOT_SENT:
            assert (got.status, len(server.executed)) == (200, 1)
        else:
            assert (got.outcome, got.report.executed) == (Outcome.UNCERTAIN_WRITE, None)
            assert server.executed == []


class ClosesWhenTold(Http1Server):
    """Answers one request, keeps the connection, and ends it when it is told to."""

    def __init__(self, *, hard: bool) -> None:
        super().__init__()
        self._hard = hard
        self._told = threading.Event()
        self._ended = threading.Event()

    def end_idle_connection(self) -> None:
        """Returns when the end has reached the client's side: on loopback, that is at once."""
        self._told.set()
        assert self._ended.wait(PATIENCE)

    def serve(self, connection: Any) -> None:
        if self.connections > 1:
            super().serve(connection)
            return
        with connection.makefile("rb") as stream:
            request = read_head(stream)
            read_body(stream, request)
        connection.sendall(render(Answer()))
        assert self._told.wait(PATIENCE)
        if self._hard:
            end(connection, hard=True)
        else:
            connection.close()
        self._ended.set()


def at_the_last_moment(backend: str | None, act: Callable[[], None]) -> Any:
    """A trace that acts right before the head of the request is written."""

    def trace(name: str, info: Any) -> None:
        if name == "http11.send_request_headers.started":
            act()

    async def atrace(name: str, info: Any) -> None:
        trace(name, info)

    return trace if backend is None else atrace


@everywhere
@pytest.mark.parametrize("hard", [False, True])
def test_a_post_on_an_idle_connection_that_has_just_ended_is_never_duplicated(
    backend: str | None, hard: bool
) -> None:
    """The operating system refuses bytes for a reset connection and takes them for a closed one.

    An event loop takes them in any case, and tells nobody what became of them.
    """
    with ClosesWhenTold(hard=hard) as server, wire(backend) as client:
        assert client.send("GET", server.url).status == 200
        trace = at_the_last_moment(backend, server.end_idle_connection)
        got = client.send("POST", server.url, content=b"pay", extensions={"trace": trace})
    if hard and backend != "asyncio":
        assert (got.status, got.evidence) == (200, [NOT_SENT, EXECUTED])
        assert [request.body for request in server.executed] == [b"pay"]
    else:
        assert (got.outcome, got.evidence) == (Outcome.UNCERTAIN_WRITE, [AMBIGUOUS])
        assert got.report.executed is None
        assert server.executed == []


# Broken after the request -------------------------------------------------------------------------


@everywhere
@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("at", ["head", "request"])
@pytest.mark.parametrize("body", [b"", b"pay", b"x" * 1_000_000], ids=len)
def test_an_unkeyed_post_whose_answer_is_lost_is_uncertain(
    backend: str | None, at: Any, hard: bool, body: bytes
) -> None:
    with Http1Server([Drop(at, hard=hard, executed=True)]) as server, wire(backend) as client:
        got = client.send("POST", server.url, content=body)
    assert (got.outcome, got.stop_reason) == (Outcome.UNCERTAIN_WRITE, StopReason.NOT_REPLAY_SAFE)
    assert (got.report.executed, got.report.replay_safe) == (None, False)
    assert got.evidence == [AMBIGUOUS]
    assert server.connections == 1


@everywhere
@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("more", [{"method": "GET"}, {"method": "POST", "headers": KEY}], ids=str)
def test_what_is_replay_safe_is_sent_again_when_the_answer_is_lost(
    backend: str | None, more: dict[str, Any], hard: bool
) -> None:
    script = [Drop("request", hard=hard), Drop("head", hard=hard)]
    with Http1Server(script) as server, wire(backend) as client:
        got = client.send(url=server.url, **more)
    assert (got.status, got.evidence) == (200, [AMBIGUOUS, AMBIGUOUS, EXECUTED])


@everywhere
@pytest.mark.parametrize(
    ("method", "outcome"),
    [("GET", Outcome.PERMANENT_FAILURE), ("POST", Outcome.UNCERTAIN_WRITE)],
)
@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 two hundred\r\n\r\n", b"\x15\x03\x01\x00\x02\x02\x46", b"ICY 200 OK\r\n\r\n"],
    ids=["status", "TLS alert", "another protocol"],
)
def test_a_malformed_answer_is_not_asked_for_again(
    backend: str | None, method: str, outcome: Outcome, answer: bytes
) -> None:
    with Http1Server([Raw(answer)]) as server, wire(backend) as client:
        got = client.send(method, server.url)
    assert (got.outcome, got.stop_reason) == (outcome, StopReason.NOT_TRANSIENT)
    assert isinstance(got.error, httpx.RemoteProtocolError)
    assert len(server.received) == 1


# A client that is not welcome ---------------------------------------------------------------------


class SaysWhy(Http1Server):
    """Leaves the client the time to read the alert that ended the handshake."""

    def _shake_hands(self, connection: ssl.SSLSocket) -> None:
        try:
            super()._shake_hands(connection)
        except OSError:
            connection.settimeout(PATIENCE)
            socket.socket.shutdown(connection, socket.SHUT_WR)
            # Closing while bytes are unread would send RST, which may overtake the alert.
            while socket.socket.recv(connection, 65536):
                pass
            raise


@everywhere
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_server_that_wants_a_certificate_of_ours_is_asked_once(
    backend: str | None, version: ssl.TLSVersion, method: str
) -> None:
    tls = server_tls()
    tls.minimum_version = tls.maximum_version = version
    tls.verify_mode = ssl.CERT_REQUIRED
    # In TLS 1.3 the client learns it only when it has sent its request (RFC 8446 section 4.4.2.4).
    late = version is ssl.TLSVersion.TLSv1_3
    with SaysWhy(tls=tls) as server, wire(backend, verify=client_tls()) as client:
        if late and backend == "asyncio":
            # httpcore has no class for it there: it is no transport error, and passes through.
            with pytest.raises(ssl.SSLError, match="certificate required"):
                client.send(method, server.url, content=b"x")
            assert server.connections == 1
            return
        got = client.send(method, server.url, content=b"x")
        assert server.connections == 1
    assert got.stop_reason is StopReason.NOT_TRANSIENT
    assert server.received == []
    assert got.evidence == [AMBIGUOUS if late else NOT_SENT]
    assert isinstance(got.error, httpx.ReadError if late else httpx.ConnectError)
