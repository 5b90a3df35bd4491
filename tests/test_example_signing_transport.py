"""The signing transport to copy: whatever happens around it, the server finds nothing wrong."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from httpx_safe_retry import RetryTransport, UncertainWriteError, get_report, raise_for_outcome
from httpx_safe_retry.testing import LoopbackServer, ServerRequest, ServerResponse, VirtualClock

from .examples import loaded, shown_by

example = loaded("signing_transport.py")

Handler = Callable[[ServerRequest], ServerResponse]


def signer(clock: VirtualClock) -> Any:
    return example.Signer("key-1", example.SECRET, now=clock.time)


def verifier(clock: VirtualClock, busy: int = 1) -> Any:
    return example.Verifier(clock.time, busy=busy, retry_after=1)


def client_for(clock: VirtualClock) -> httpx.Client:
    signing = example.SigningTransport(httpx.HTTPTransport(), signer(clock))
    return httpx.Client(transport=RetryTransport(signing, clock=clock))


def test_signed_inside_each_attempt_is_good_and_signed_outside_no_retry_is() -> None:
    assert [line.strip() for line in shown_by("signing_transport.py").splitlines()] == [
        "Signed inside:",
        "2 attempts, 1 s apart; signatures: 2; 200 stored",
        "2 attempts, 600 s apart; signatures: 2; 200 stored",
        "Signed outside, by an httpx.Auth:",
        "2 attempts, 1 s apart; signatures: 1; 403 the signature was used before",
        "2 attempts, 600 s apart; signatures: 1; 403 the signature is too old",
    ]


def test_a_write_that_is_signed_outside_ends_uncertain() -> None:
    clock = VirtualClock()
    transport = RetryTransport(clock=clock)
    with (
        LoopbackServer(handler=verifier(clock)) as server,
        httpx.Client(transport=transport, auth=example.SigningAuth(signer(clock))) as client,
    ):
        response = client.post(server.url, content=b"a", headers={"Idempotency-Key": "k"})
    with pytest.raises(UncertainWriteError):
        raise_for_outcome(response)


@pytest.mark.anyio
async def test_the_async_one_signs_each_attempt_too() -> None:
    clock = VirtualClock()
    signing = example.AsyncSigningTransport(httpx.AsyncHTTPTransport(), signer(clock))
    with LoopbackServer(handler=verifier(clock, busy=2)) as server:
        async with httpx.AsyncClient(transport=RetryTransport(signing, clock=clock)) as client:
            response = await client.put(server.url, content=b"a thing")
    assert response.status_code == 200
    assert len({request.headers["Authorization"] for request in server.requests}) == 3


def test_the_callers_own_request_is_left_alone() -> None:
    clock = VirtualClock()
    with LoopbackServer(handler=verifier(clock, busy=0)) as server, client_for(clock) as client:
        request = client.build_request("PUT", server.url, content=b"a thing")
        before = request.headers.raw
        client.send(request)
    assert request.headers.raw == before


def test_after_a_redirect_without_the_body_the_signature_is_good() -> None:
    clock = VirtualClock()
    verify = verifier(clock, busy=0)

    def moves(request: ServerRequest) -> ServerResponse:
        if request.method == "POST":
            return ServerResponse(status=303, headers={"Location": "/result"})
        answer: ServerResponse = verify(request)
        return answer

    with LoopbackServer(handler=moves) as server, client_for(clock) as client:
        response = client.post(server.url, content=b"a thing", follow_redirects=True)
    assert (response.status_code, response.text) == (200, "stored")


def test_a_stream_that_nobody_has_hashed_is_not_sent() -> None:
    clock = VirtualClock()
    with LoopbackServer() as server, client_for(clock) as client:
        with pytest.raises(httpx.RequestNotRead):
            client.put(server.url, content=iter([b"a", b"b"]))
        assert server.requests == []


def generated() -> Iterator[bytes]:
    yield b"a"
    yield b"b"


@pytest.mark.parametrize(
    ("content", "digest"),
    [
        pytest.param(io.BytesIO(b"ab"), hashlib.sha256(b"ab").hexdigest(), id="a file, hashed"),
        pytest.param(generated(), "UNSIGNED", id="a generator, not hashed"),
    ],
)
def test_a_stream_is_signed_and_sent_again_with_the_hash_of_its_owner(
    content: Any, digest: str
) -> None:
    clock = VirtualClock()
    with LoopbackServer(handler=verifier(clock)) as server, client_for(clock) as client:
        headers = {example.CONTENT: digest}
        response = client.put(server.url, content=content, headers=headers)
    assert (response.status_code, response.text) == (200, "stored")
    assert [request.body for request in server.requests] == [b"ab", b"ab"]


def test_what_follows_an_attempt_sees_through_the_copy() -> None:
    clock = VirtualClock()
    seen: list[str] = []
    with LoopbackServer(handler=verifier(clock)) as server, client_for(clock) as client:
        trace = {"trace": lambda name, info: seen.append(name)}
        response = client.put(server.url, content=b"a thing", extensions=trace)
    assert len(get_report(response).attempts) == 2
    assert seen.count("http11.send_request_headers.complete") == 2


def changed(request: ServerRequest, what: str) -> None:
    if what == "the method":
        request.method = "DELETE"
    elif what == "the path":
        request.path = "/things/8"
    elif what == "the query":
        request.path = "/things/7?force=1"
    elif what == "the host":
        request.headers["Host"] = "other.example"
    elif what == "the date":
        request.headers[example.DATE] += "1"
    elif what == "the body":
        request.body = b"another"
    elif what == "its hash":
        request.headers[example.CONTENT] = hashlib.sha256(b"another").hexdigest()
        request.body = b"another"


@pytest.mark.parametrize(
    "what",
    [
        "nothing",
        "the method",
        "the path",
        "the query",
        "the host",
        "the date",
        "the body",
        "its hash",
    ],
)
def test_nothing_that_was_signed_can_be_changed_on_the_way(what: str) -> None:
    clock = VirtualClock()
    signed = signer(clock).signed(
        httpx.Request("PUT", "https://api.example.com/things/7", content=b"a thing")
    )
    arrived = ServerRequest(1, "PUT", "/things/7", httpx.Headers(signed.headers), b"a thing")
    changed(arrived, what)
    refused = verifier(clock).wrong_with(arrived) is not None
    assert refused == (what != "nothing")
