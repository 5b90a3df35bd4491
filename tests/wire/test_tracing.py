"""The `trace` extension: ours where it can change a decision, and the caller's always."""

from __future__ import annotations

from typing import Any

import pytest

from httpx_safe_retry import Backoff, RetryPolicy
from tests.library import RetryTransport, ScriptedTransport, httpx
from tests.peers import Http1Server, Http2Server, client_tls, server_tls

from .driving import HTTP2, KEY, everywhere, wire


def recorder(backend: str | None) -> tuple[list[str], Any]:
    """The names of the events that a caller's trace has seen, and that trace."""
    names: list[str] = []

    def trace(name: str, info: dict[str, Any]) -> None:
        names.append(name)

    async def atrace(name: str, info: dict[str, Any]) -> None:
        names.append(name)

    return names, trace if backend is None else atrace


@everywhere
@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTPS", "HTTP/2"])
def test_the_callers_trace_sees_what_it_would_see_without_us(
    backend: str | None, version: str
) -> None:
    server = Http2Server() if version == "HTTP/2" else Http1Server(tls=_tls(version))
    options = HTTP2 if version == "HTTP/2" else {"verify": client_tls()}
    seen = []
    # Once as it is, once with retries off and so without a trace of ours.
    overrides: list[dict[str, Any] | None] = [{}, None]
    with server:
        for retry in overrides:
            names, trace = recorder(backend)
            with wire(backend, **options) as client:
                extensions = {"trace": trace, "retry": retry}
                assert client.send("POST", server.url, content=b"x", extensions=extensions).status
            seen.append(names)
    assert seen[0] == seen[1]
    assert any(name.endswith("send_request_headers.complete") for name in seen[0])


def _tls(version: str) -> Any:
    return server_tls() if version == "HTTPS" else None


@pytest.mark.parametrize(
    ("request_", "installed"),
    [
        ({"method": "POST"}, True),
        ({"method": "PATCH"}, True),
        ({"method": "MADE-UP"}, True),
        ({"method": "POST", "headers": KEY}, False),
        ({"method": "POST", "extensions": {"retry": {"idempotent": True}}}, False),
        ({"method": "POST", "extensions": {"retry": {"max_attempts": 1}}}, False),
        ({"method": "POST", "extensions": {"retry": None}}, False),
        ({"method": "POST", "extensions": {"retry": {"idempotency_key": lambda: "k"}}}, False),
        ({"method": "GET"}, False),
        ({"method": "PUT"}, False),
        ({"method": "DELETE"}, False),
        # In a trace it can't be told from what asks a proxy for a tunnel.
        ({"method": "CONNECT"}, False),
    ],
    ids=str,
)
def test_a_trace_is_installed_only_where_it_can_change_a_decision(
    request_: dict[str, Any], installed: bool
) -> None:
    script = ScriptedTransport(200)
    with httpx.Client(transport=RetryTransport(script)) as client:
        client.request(url="https://example.org", **request_)
    assert ("trace" in script.requests[0].extensions) is installed


def test_where_none_is_installed_the_callers_own_is_handed_on_as_it_is() -> None:
    _, trace = recorder(None)
    script = ScriptedTransport(503, 200)
    policy = RetryPolicy(backoff=Backoff(base=0))
    with httpx.Client(transport=RetryTransport(script, policy=policy)) as client:
        client.get("https://example.org", extensions={"trace": trace})
    assert [sent.extensions["trace"] for sent in script.requests] == [trace, trace]
