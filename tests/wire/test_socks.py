"""SOCKS5 proxies: nothing was sent before they have connected."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from httpx_safe_retry import Evidence, Outcome
from tests.library import httpx
from tests.peers import (
    Answer,
    Drop,
    Http1Server,
    SocksProxy,
    SocksReply,
    Tunnel,
    client_tls,
    server_tls,
)

from .driving import everywhere, wire

NOT_SENT, EXECUTED = Evidence.NOT_SENT, Evidence.EXECUTED

# httpcore doesn't close what it has connected when the talk with a SOCKS proxy then fails.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.usefixtures("_left_open_by_httpcore"),
]


@pytest.fixture
def _left_open_by_httpcore() -> Iterator[None]:
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def through(proxy: SocksProxy) -> dict[str, Any]:
    return {"proxy": proxy.url, "verify": client_tls()}


HOST_UNREACHABLE, REFUSED = 4, 5  # RFC 1928 section 6


@everywhere
@pytest.mark.parametrize("code", [HOST_UNREACHABLE, REFUSED])
def test_a_socks_proxy_that_could_not_connect_is_asked_again(
    backend: str | None, code: int
) -> None:
    with (
        Http1Server([Answer(201)], tls=server_tls()) as server,
        SocksProxy([SocksReply(code), Tunnel()]) as proxy,
        wire(backend, **through(proxy)) as client,
    ):
        got = client.send("POST", server.url, content=b"pay")
    assert (got.status, got.evidence) == (201, [NOT_SENT, EXECUTED])
    assert len(server.executed) == 1


@everywhere
def test_a_socks_proxy_that_wants_other_credentials_is_asked_once(backend: str | None) -> None:
    with (
        Http1Server(tls=server_tls()) as server,
        SocksProxy(credentials=("user", "secret")) as proxy,
        wire(backend, **through(proxy)) as client,
    ):
        got = client.send("POST", server.url, content=b"pay")
        assert proxy.connections == 1
    assert (got.outcome, got.evidence) == (Outcome.PERMANENT_FAILURE, [NOT_SENT])
    assert isinstance(got.error, httpx.ProxyError)


@everywhere
@pytest.mark.parametrize(
    "trouble", [Drop("accept", hard=True), Drop("request", hard=True)], ids=str
)
def test_a_socks_proxy_that_resets_the_connection_is_asked_again(
    backend: str | None, trouble: Drop
) -> None:
    with (
        Http1Server([Answer(201)], tls=server_tls()) as server,
        SocksProxy([trouble]) as proxy,
        wire(backend, **through(proxy)) as client,
    ):
        got = client.send("POST", server.url, content=b"pay")
    assert (got.status, got.evidence) == (201, [NOT_SENT, EXECUTED])
    assert len(server.executed) == 1
