"""HTTP/2: what a server says by RST_STREAM and GOAWAY (RFC 9113 sections 6.8 and 8.7)."""

from __future__ import annotations

import dataclasses
from typing import Literal

import pytest

from httpx_safe_retry import Evidence, Outcome, StopReason
from tests.library import httpx
from tests.peers import (
    Answer,
    Drop,
    GoAway,
    Http2Item,
    Http2Server,
    HttpProxy,
    Reset,
    Tunnel,
    client_tls,
    server_tls,
)

from .driving import HTTP2, KEY, everywhere, wire

REFUSED_STREAM, CANCEL, INTERNAL_ERROR = 7, 8, 2


@everywhere
@pytest.mark.parametrize("at", ["head", "request"])
@pytest.mark.parametrize(
    "refusal", [Reset(REFUSED_STREAM), GoAway(last=0), GoAway(last=0, code=INTERNAL_ERROR)]
)
def test_an_unkeyed_post_that_the_server_refused_is_sent_again(
    backend: str | None, refusal: Reset | GoAway, at: Literal["head", "request"]
) -> None:
    script = [dataclasses.replace(refusal, at=at), Answer(201)]
    with Http2Server(script) as server, wire(backend, **HTTP2) as client:
        got = client.send("POST", server.url, content=b"pay")
    assert (got.status, got.outcome) == (201, Outcome.SUCCESS)
    assert got.evidence == [Evidence.REFUSED, Evidence.EXECUTED]
    assert [request.body for request in server.executed] == [b"pay"]


@everywhere
def test_a_refusal_counts_over_tls_as_well(backend: str | None) -> None:
    with (
        Http2Server([Reset(REFUSED_STREAM), Answer(201)], tls=server_tls()) as server,
        wire(backend, http2=True, verify=client_tls()) as client,
    ):
        got = client.send("POST", server.url, content=b"pay")
    assert got.evidence == [Evidence.REFUSED, Evidence.EXECUTED]
    assert len(server.executed) == 1


@everywhere
@pytest.mark.parametrize(
    "failure",
    [
        GoAway(last="own", executed=True),
        GoAway(last=2**31 - 1, executed=True),
        Reset(CANCEL, executed=True),
        Reset(INTERNAL_ERROR, executed=True),
        Drop("request", executed=True),
        Drop("request", hard=True, executed=True),
    ],
    ids=["GOAWAY", "graceful GOAWAY", "CANCEL", "INTERNAL_ERROR", "FIN", "RST"],
)
def test_an_unkeyed_post_that_may_have_run_is_not_sent_again(
    backend: str | None, failure: GoAway | Reset | Drop
) -> None:
    with Http2Server([failure]) as server, wire(backend, **HTTP2) as client:
        got = client.send("POST", server.url, content=b"pay")
    assert (got.outcome, got.stop_reason) == (Outcome.UNCERTAIN_WRITE, StopReason.NOT_REPLAY_SAFE)
    assert got.report.executed is None
    assert isinstance(got.error, httpx.TransportError)
    assert len(server.executed) == len(server.received) == 1


@everywhere
def test_httpcore_sends_again_by_itself_what_a_goaway_left_out(backend: str | None) -> None:
    script: list[Http2Item] = [Answer(200), GoAway(last="before"), Answer(201)]
    with Http2Server(script) as server, wire(backend, **HTTP2) as client:
        client.send("GET", server.url)
        got = client.send("POST", server.url, content=b"pay")
        assert server.connections == 2
    assert got.status == 201
    assert len(got.report.attempts) == 1
    assert [request.body for request in server.executed] == [b"", b"pay"]


@everywhere
def test_when_the_second_sending_after_a_goaway_is_lost_the_write_is_uncertain(
    backend: str | None,
) -> None:
    script: list[Http2Item] = [Answer(200), GoAway(last="before"), Drop("request", executed=True)]
    with Http2Server(script) as server, wire(backend, **HTTP2) as client:
        client.send("GET", server.url)
        got = client.send("POST", server.url, content=b"pay")
    assert (got.outcome, got.evidence) == (Outcome.UNCERTAIN_WRITE, [Evidence.AMBIGUOUS])
    assert [request.method for request in server.executed] == ["GET", "POST"]


@everywhere
def test_when_no_tunnel_opens_for_the_second_sending_after_a_goaway_nothing_was_sent(
    backend: str | None,
) -> None:
    with (
        Http2Server([Answer(200), GoAway(last="before"), Answer(201)], tls=server_tls()) as server,
        HttpProxy([Tunnel(), Drop("request")]) as proxy,
        wire(backend, http2=True, verify=client_tls(), proxy=proxy.url) as client,
    ):
        client.send("GET", server.url)
        got = client.send("POST", server.url, content=b"pay")
    assert got.evidence == [Evidence.NOT_SENT, Evidence.EXECUTED]
    assert [request.method for request in server.executed] == ["GET", "POST"]


@everywhere
def test_a_header_that_http2_forbids_is_a_permanent_failure(backend: str | None) -> None:
    with Http2Server() as server, wire(backend, **HTTP2) as client:
        got = client.send("POST", server.url, content=b"pay", headers={"TE": "gzip"})
    assert (got.outcome, got.evidence) == (Outcome.PERMANENT_FAILURE, [Evidence.NOT_SENT])
    assert isinstance(got.error, httpx.LocalProtocolError)
    assert server.received == []


@everywhere
@pytest.mark.parametrize("failure", [GoAway(last="own"), Reset(CANCEL), Drop("request")])
def test_a_keyed_post_is_sent_again_whatever_happened(
    backend: str | None, failure: GoAway | Reset | Drop
) -> None:
    with Http2Server([failure, Answer(201)]) as server, wire(backend, **HTTP2) as client:
        got = client.send("POST", server.url, content=b"pay", headers=KEY)
    assert (got.status, len(got.report.attempts)) == (201, 2)
    assert [request.body for request in server.received] == [b"pay", b"pay"]


@everywhere
@pytest.mark.parametrize(
    ("last", "evidence"), [(0, [Evidence.REFUSED] * 3), (1, [Evidence.AMBIGUOUS])]
)
def test_a_body_that_waits_for_the_window_when_goaway_comes_is_judged_by_its_stream(
    backend: str | None, last: int, evidence: list[Evidence]
) -> None:
    body = b"x" * 100_000  # more than the first window of 65,535 bytes
    script = [GoAway(last=last, at="data")] * 3
    with Http2Server(script, grants_window=False) as server, wire(backend, **HTTP2) as client:
        got = client.send("POST", server.url, content=body)
    assert got.evidence == evidence
    assert server.executed == []
