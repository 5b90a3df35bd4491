"""Proxies: what fails before a tunnel is open was not sent, whatever the error looks like."""

from __future__ import annotations

from typing import Any

import pytest

from httpx_safe_retry import Evidence, Outcome
from tests.library import httpx
from tests.peers import (
    Answer,
    Drop,
    Http1Server,
    HttpProxy,
    ProxyItem,
    Raw,
    client_tls,
    refusing_port,
    server_tls,
)

from .driving import KEY, everywhere, wire

NOT_SENT, AMBIGUOUS, EXECUTED = Evidence.NOT_SENT, Evidence.AMBIGUOUS, Evidence.EXECUTED


def through(proxy: HttpProxy) -> dict[str, Any]:
    return {"proxy": proxy.url, "verify": client_tls()}


@everywhere
@pytest.mark.parametrize(
    "trouble",
    [
        Answer(502),
        Answer(503, headers=[("Retry-After", "0")]),
        Drop("head"),
        Drop("request"),
        Drop("request", hard=True),
        Drop("accept"),
        Raw(b"HTTP/1.1 200 Conn"),
    ],
    ids=str,
)
def test_an_unkeyed_post_is_sent_again_when_no_tunnel_was_opened(
    backend: str | None, trouble: ProxyItem
) -> None:
    with (
        Http1Server([Answer(201)], tls=server_tls()) as server,
        HttpProxy([trouble]) as proxy,
        wire(backend, **through(proxy)) as client,
    ):
        got = client.send("POST", server.url, content=b"pay")
    assert (got.status, got.evidence) == (201, [NOT_SENT, EXECUTED])
    assert [request.body for request in server.executed] == [b"pay"]


@everywhere
@pytest.mark.parametrize("more", [{"method": "GET"}, {"method": "POST", "headers": KEY}], ids=str)
def test_what_is_replay_safe_is_sent_again_as_well(
    backend: str | None, more: dict[str, Any]
) -> None:
    with (
        Http1Server(tls=server_tls()) as server,
        HttpProxy([Answer(502), Drop("request")]) as proxy,
        wire(backend, **through(proxy)) as client,
    ):
        got = client.send(url=server.url, **more)
    assert (got.status, len(got.report.attempts)) == (200, 3)
    assert len(server.executed) == 1


@everywhere
def test_a_tunnel_that_never_opens_is_a_failure_without_doubt(backend: str | None) -> None:
    with (
        Http1Server(tls=server_tls()) as server,
        HttpProxy([Answer(502), Answer(504), Drop("request")]) as proxy,
        wire(backend, **through(proxy)) as client,
    ):
        got = client.send("POST", server.url, content=b"pay")
    assert (got.outcome, got.report.executed) == (Outcome.EXHAUSTED, False)
    assert got.evidence == [NOT_SENT] * 3
    assert server.connections == 0


@everywhere
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("status", [407, 403, 404, 501])
def test_a_proxy_that_will_never_open_the_tunnel_is_asked_once(
    backend: str | None, method: str, status: int
) -> None:
    with (
        Http1Server(tls=server_tls()) as server,
        HttpProxy([Answer(status)]) as proxy,
        wire(backend, **through(proxy)) as client,
    ):
        got = client.send(method, server.url)
    assert (got.outcome, got.evidence) == (Outcome.PERMANENT_FAILURE, [NOT_SENT])
    assert isinstance(got.error, httpx.ProxyError)
    assert len(proxy.received) == 1


@everywhere
def test_what_is_lost_behind_the_tunnel_is_as_uncertain_as_without(backend: str | None) -> None:
    with (
        Http1Server([Drop("request", executed=True)], tls=server_tls()) as server,
        HttpProxy() as proxy,
        wire(backend, **through(proxy)) as client,
    ):
        got = client.send("POST", server.url, content=b"pay")
    assert (got.outcome, got.evidence) == (Outcome.UNCERTAIN_WRITE, [AMBIGUOUS])
    assert len(server.executed) == len(server.received) == 1


@everywhere
def test_a_forward_proxys_bad_gateway_is_ambiguous(backend: str | None) -> None:
    """Only a CONNECT separates the proxy's failure from that of the request."""
    with (
        Http1Server() as server,
        HttpProxy([Answer(502)]) as proxy,
        wire(backend, proxy=proxy.url) as client,
    ):
        got = client.send("POST", server.url, content=b"pay")
    assert (got.status, got.outcome, got.evidence) == (502, Outcome.UNCERTAIN_WRITE, [AMBIGUOUS])


@everywhere
def test_a_proxy_that_nobody_listens_at_is_a_failure_without_doubt(backend: str | None) -> None:
    with (
        Http1Server(tls=server_tls()) as server,
        refusing_port() as port,
        wire(backend, proxy=f"http://127.0.0.1:{port}", verify=client_tls()) as client,
    ):
        got = client.send("POST", server.url, content=b"pay")
    assert (got.outcome, got.evidence) == (Outcome.EXHAUSTED, [NOT_SENT] * 3)
    assert isinstance(got.error, httpx.ConnectError)
