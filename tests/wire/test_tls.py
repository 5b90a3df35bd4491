"""Trust: what a certificate failure proves, and of which request."""

from __future__ import annotations

import pytest

from httpx_safe_retry import Evidence, Outcome, StopReason
from tests.library import httpx
from tests.peers import Answer, Drop, Http1Server, HttpProxy, Trouble, client_tls, server_tls

from .driving import everywhere, wire


@everywhere
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("trouble", ["self-signed", "unknown authority", "expired", "another name"])
def test_a_certificate_that_is_not_trusted_is_final_and_a_connect_error_to_httpx(
    backend: str | None, method: str, trouble: Trouble
) -> None:
    with Http1Server(tls=server_tls(trouble)) as server:
        with wire(backend, verify=client_tls()) as client:
            got = client.send(method, server.url)
        assert server.connections == 1
    assert (got.outcome, got.stop_reason) == (Outcome.PERMANENT_FAILURE, StopReason.NOT_TRANSIENT)
    assert got.report.executed is False
    assert got.evidence == [Evidence.NOT_SENT]
    assert isinstance(got.error, httpx.ConnectError)
    assert server.received == []


@everywhere
def test_by_default_a_self_signed_certificate_is_not_trusted(backend: str | None) -> None:
    with Http1Server(tls=server_tls("self-signed")) as server:
        with wire(backend, verify=True) as client:
            got = client.send("POST", server.url)
        assert server.connections == 1
    assert got.outcome is Outcome.PERMANENT_FAILURE
    assert isinstance(got.error, httpx.ConnectError)


@everywhere
def test_a_certificate_behind_a_proxy_is_judged_like_any_other(backend: str | None) -> None:
    with Http1Server(tls=server_tls("expired")) as server, HttpProxy() as proxy:
        with wire(backend, verify=client_tls(), proxy=proxy.url) as client:
            got = client.send("POST", server.url)
        assert len(proxy.received) == 1
    assert (got.outcome, got.evidence) == (Outcome.PERMANENT_FAILURE, [Evidence.NOT_SENT])


def test_what_failed_before_says_nothing_of_a_request_that_is_sent_while_it_is_handled() -> None:
    """Python makes the error that is being handled the context of each new one, in any function."""
    with (
        Http1Server(tls=server_tls("self-signed")) as primary,
        Http1Server([Drop("request", executed=True), Answer(201)]) as fallback,
        wire(None, verify=client_tls()) as client,
    ):
        failed = client.send("POST", primary.url)
        assert failed.error is not None
        try:
            raise failed.error
        except httpx.ConnectError:
            got = client.send("POST", fallback.url)
    assert (got.outcome, got.report.executed) == (Outcome.UNCERTAIN_WRITE, None)
    assert len(fallback.executed) == 1
