"""Over real sockets, the server's second body is the first one in full, or there was no second."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterator
from typing import Any, Literal, TypeAlias

import anyio
import pytest

from httpx_safe_retry import RetryError, RetryPolicy, StopReason, get_report
from httpx_safe_retry.testing import VirtualClock
from tests.library import RetryTransport, httpx

from .bodies import (
    ASYNC_KINDS,
    DATA,
    SYNC_KINDS,
    Kind,
    agenerate,
    generate,
    name_of,
)
from .peers import Answer, Drop, GoAway, Http1Server, Http2Server

Flavour: TypeAlias = Literal["sync", "asyncio", "trio"]
Version: TypeAlias = Literal["HTTP/1.1", "HTTP/2"]

CASES = [("sync", kind) for kind in SYNC_KINDS] + [
    (flavour, kind) for flavour in ("asyncio", "trio") for kind in ASYNC_KINDS
]
every_kind = pytest.mark.parametrize(
    ("flavour", "kind"), CASES, ids=[f"{flavour}-{kind.name}" for flavour, kind in CASES]
)
every_flavour = pytest.mark.parametrize("flavour", ["sync", "asyncio", "trio"])
every_version = pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/2"])


def server_for(version: Version, *items: Any) -> Http1Server | Http2Server:
    return Http1Server(items) if version == "HTTP/1.1" else Http2Server(items)


# Made once: what httpx makes for each transport reads all of the machine's certificates.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class Cut(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Real transports whose first attempt breaks off after so many chunks of the body.

    As a connection that is lost does; on a socket the kernel takes some megabytes before it tells.
    """

    def __init__(self, version: Version, chunks: int | None = None) -> None:
        protocol: dict[str, Any] = {
            "http1": version == "HTTP/1.1",
            "http2": version == "HTTP/2",
            "verify": NO_TLS,
        }
        self._sync = httpx.HTTPTransport(**protocol)
        self._async = httpx.AsyncHTTPTransport(**protocol)
        self._chunks = chunks

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self._chunks is not None:
            request.stream = CutStream(request.stream, self._chunks)
            self._chunks = None
        return self._sync.handle_request(request)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self._chunks is not None:
            request.stream = CutStream(request.stream, self._chunks)
            self._chunks = None
        return await self._async.handle_async_request(request)

    def close(self) -> None:
        self._sync.close()

    async def aclose(self) -> None:
        await self._async.aclose()


class CutStream(httpx.SyncByteStream, httpx.AsyncByteStream):
    def __init__(self, stream: Any, chunks: int) -> None:
        self._stream = stream
        self._chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        left = self._chunks
        for chunk in self._stream:
            if left == 0:
                break
            left -= 1
            yield chunk
        raise httpx.WriteError("the connection is lost")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._chunks
        async for chunk in self._stream:
            if left == 0:
                break
            left -= 1
            yield chunk
        raise httpx.WriteError("the connection is lost")


def send(
    flavour: Flavour, transport: Cut, *requests: httpx.Request, **policy: Any
) -> httpx.Response:
    """Send one logical request after the other through `RetryTransport`; answer the last."""
    retrying = RetryTransport(transport, policy=RetryPolicy(**policy), clock=VirtualClock())
    if flavour == "sync":
        with httpx.Client(transport=retrying) as client:
            return [client.send(request, follow_redirects=True) for request in requests][-1]

    async def main() -> httpx.Response:
        async with httpx.AsyncClient(transport=retrying) as client:
            return [await client.send(request, follow_redirects=True) for request in requests][-1]

    return anyio.run(main, backend=flavour)


ONE_SHOT: dict[str, Kind] = {
    "sync": Kind("generator", lambda: {"content": generate()}),
    "asyncio": Kind("async generator", lambda: {"content": agenerate()}),
    "trio": Kind("async generator", lambda: {"content": agenerate()}),
}
FILES = [
    kind
    for kind in SYNC_KINDS
    if kind.name
    in (
        "file in memory",
        "file that is not at its beginning",
        "multipart of a file in memory",
        "list",
    )
]


def bodies(server: Http1Server | Http2Server) -> list[bytes]:
    return [received.body for received in server.received]


@every_version
@every_kind
def test_the_body_after_a_503_is_the_first_one(
    version: Version, flavour: Flavour, kind: Kind
) -> None:
    with server_for(version, Answer(503)) as server:
        response = send(flavour, Cut(version), kind.request(server.url), replay_memory=5)
    assert response.status_code == 200
    assert bodies(server) == [kind.sent] * 2
    first, second = server.received
    assert first.headers == second.headers


@every_version
@every_kind
def test_a_length_that_the_caller_announces_is_announced_again(
    version: Version, flavour: Flavour, kind: Kind
) -> None:
    announced = {"Content-Length": str(len(kind.sent))}
    with server_for(version, Answer(503)) as server:
        request = kind.request(server.url, headers=announced)
        assert send(flavour, Cut(version), request).status_code == 200
    assert bodies(server) == [kind.sent] * 2
    for received in server.received:
        assert received.header("content-length") == announced["Content-Length"]
        assert received.header("transfer-encoding") is None


@every_version
@every_flavour
def test_an_upload_that_the_server_cuts_short_is_sent_again_from_its_first_byte(
    version: Version, flavour: Flavour
) -> None:
    chunks = [bytes([number]) * (1 << 16) for number in range(128)]
    content: Any = generate(chunks) if flavour == "sync" else agenerate(chunks)
    with server_for(version, Drop("head", hard=True), Drop("head", hard=True)) as server:
        request = httpx.Request("PUT", server.url, content=content)
        assert send(flavour, Cut(version), request).status_code == 200
    assert bodies(server) == [b"".join(chunks)]
    assert server.connections == 3


@every_version
@every_kind
def test_the_body_after_a_cut_upload_is_the_whole_one(
    version: Version, flavour: Flavour, kind: Kind
) -> None:
    with server_for(version) as server:
        for cut in range(6):
            transport = Cut(version, cut)
            response = send(flavour, transport, kind.request(server.url), replay_memory=5)
            assert response.status_code == 200
            assert len(get_report(response).attempts) == 2
    # A body that was cut behind its last byte may have arrived too.
    assert len(server.received) >= 6
    assert set(bodies(server)) == {kind.sent}


@every_version
@every_flavour
@pytest.mark.parametrize("size", [0, len(DATA) - 1])
def test_a_body_beyond_the_limit_is_sent_once_and_the_503_is_what_the_caller_gets(
    version: Version, flavour: Flavour, size: int
) -> None:
    kind = ONE_SHOT[flavour]
    with server_for(version, Answer(503, body=b"why")) as server:
        response = send(flavour, Cut(version), kind.request(server.url), replay_limit=size)
    assert (response.status_code, response.content) == (503, b"why")
    assert get_report(response).stop_reason is StopReason.BODY_NOT_REPLAYABLE
    assert bodies(server) == [DATA]


@every_version
@every_flavour
def test_a_body_beyond_the_limit_is_not_sent_again_when_the_connection_is_lost(
    version: Version, flavour: Flavour
) -> None:
    kind = ONE_SHOT[flavour]
    with server_for(version, Drop("request", hard=True)) as server, pytest.raises(RetryError) as e:
        send(flavour, Cut(version), kind.request(server.url), replay_limit=len(DATA) - 1)
    assert isinstance(e.value, httpx.TransportError)
    assert e.value.report.stop_reason is StopReason.BODY_NOT_REPLAYABLE
    assert bodies(server) == [DATA]


@every_version
@every_flavour
@pytest.mark.parametrize("error", [ValueError("no"), httpx.ReadError("proxied")], ids=repr)
def test_the_callers_error_ends_the_request_and_no_server_takes_the_body_for_complete(
    version: Version, flavour: Flavour, error: Exception
) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"01"
        yield b"23"
        raise error

    content: Any = chunks() if flavour == "sync" else agenerate(chunks())
    with server_for(version) as server, pytest.raises(type(error)) as raised:
        send(flavour, Cut(version), httpx.Request("PUT", server.url, content=content))
    assert raised.value is error
    assert server.received == []
    assert server.connections <= 1


@every_flavour
@pytest.mark.parametrize("stage", ["data", "request"])
def test_a_body_arrives_whole_after_goaway(
    flavour: Flavour, stage: Literal["data", "request"]
) -> None:
    kind = ONE_SHOT[flavour]
    with server_for("HTTP/2", GoAway("own", at=stage)) as server:
        request = kind.request(server.url, method="POST", headers={"Idempotency-Key": "k"})
        response = send(flavour, Cut("HTTP/2"), request, replay_memory=5)
    assert len(get_report(response).attempts) == 2
    assert set(bodies(server)) == {DATA}


HTTP2_KINDS = [(flavour, kind) for flavour, kind in CASES if kind.sent and flavour != "trio"]


@pytest.mark.parametrize(
    ("flavour", "kind"), HTTP2_KINDS, ids=[f"{way}-{kind.name}" for way, kind in HTTP2_KINDS]
)
def test_a_body_arrives_whole_when_httpcore_sends_it_twice_within_one_attempt(
    flavour: Flavour, kind: Kind
) -> None:
    # It does when GOAWAY tells that this stream was not processed, but an earlier one was.
    with server_for("HTTP/2", Answer(), GoAway("before", at="request")) as server:
        first = httpx.Request("GET", server.url)
        response = send(flavour, Cut("HTTP/2"), first, kind.request(server.url), replay_memory=5)
    assert len(get_report(response).attempts) == 1
    assert bodies(server) == [b"", kind.sent, kind.sent]


@every_flavour
def test_a_body_beyond_the_limit_is_never_cut_when_httpcore_sends_it_twice(
    flavour: Flavour,
) -> None:
    kind = ONE_SHOT[flavour]
    with server_for("HTTP/2", Answer(), GoAway("before", at="request")) as server:
        first, second = httpx.Request("GET", server.url), kind.request(server.url)
        with pytest.raises(httpx.StreamConsumed):
            send(flavour, Cut("HTTP/2"), first, second, replay_limit=len(DATA) - 1)
    assert bodies(server) == [b"", DATA]


@pytest.mark.parametrize("kind", FILES, ids=name_of)
@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/2"])
def test_a_file_is_sent_whole_to_where_a_redirect_leads(version: Version, kind: Kind) -> None:
    moved = Answer(307, headers=[("Location", "/b")])
    with server_for(version, moved, Answer(503)) as server:
        response = send("sync", Cut(version), kind.request(server.url))
    assert response.status_code == 200
    assert [received.target for received in server.received] == ["/", "/b", "/b"]
    assert bodies(server) == [kind.sent] * 3
