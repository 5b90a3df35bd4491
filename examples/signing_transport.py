"""Sign every attempt anew: a signing transport goes inside the `RetryTransport`.

The idea: a signature with a date (AWS SigV4 and its kin) is good for a few minutes and for one
request, so it belongs to the attempt, not to the logical request. What is inside is asked once per
attempt, and sees the request as it was before the first:

    client = httpx.Client(transport=RetryTransport(SigningTransport(httpx.HTTPTransport(), signer)))

Signing any further out, in an `httpx.Auth` or an event hook of the client, happens once. A retry
then repeats a signature that the server has seen, or that is too old by now: it is refused, and
after an attempt that may have run the caller is left with an `UncertainWriteError`.

A transport may do to its request what it likes: no later attempt shows it. But the first attempt
may be given the caller's own request, which httpx also makes redirects out of. So a copy is signed,
and nothing of one signature is left over for the next.

A body in memory is hashed here. A stream must not be: reading it would take it away from the
attempt, or hold all of it in memory. Hash the file before you send it and set `X-Content-SHA256`
yourself, to "UNSIGNED" if the server allows that for bodies whose content nobody knows beforehand.

Run it to see both ways, in virtual time:

    python examples/signing_transport.py
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from collections.abc import Callable, Generator, Mapping

import httpx

from httpx_safe_retry import RetryPolicy, RetryTransport, get_report
from httpx_safe_retry.testing import LoopbackServer, ServerRequest, ServerResponse, VirtualClock

CONTENT = "X-Content-SHA256"
DATE = "X-Date"


def signature(secret: bytes, method: str, target: bytes, headers: Mapping[str, str]) -> str:
    """Sign what the server must be sure of; `headers` hold the host, the date and the hash."""
    parts = (method, target.decode("ascii"), headers["Host"], headers[DATE], headers[CONTENT])
    return hmac.new(secret, "\n".join(parts).encode(), hashlib.sha256).hexdigest()


class Signer:
    """`now` returns Unix time. It has to be a fine one: two attempts must not share a date."""

    def __init__(self, key_id: str, secret: bytes, *, now: Callable[[], float] = time.time) -> None:
        self._key_id = key_id
        self._secret = secret
        self._now = now

    def headers(self, request: httpx.Request) -> httpx.Headers:
        """Return the headers of the request together with those that sign it."""
        headers = httpx.Headers(request.headers)
        headers[DATE] = f"{self._now():.6f}"
        if CONTENT not in headers:
            # Raises httpx.RequestNotRead for a stream.
            headers[CONTENT] = hashlib.sha256(request.content).hexdigest()
        signed = signature(self._secret, request.method, request.url.raw_path, headers)
        headers["Authorization"] = f"HMAC {self._key_id}:{signed}"
        return headers

    def signed(self, request: httpx.Request) -> httpx.Request:
        """Return a signed copy. Its extensions go along: timeouts, and how far sending got."""
        return httpx.Request(
            request.method,
            request.url,
            headers=self.headers(request),
            stream=request.stream,
            extensions=request.extensions,
        )


class SigningTransport(httpx.BaseTransport):
    def __init__(self, transport: httpx.BaseTransport, signer: Signer) -> None:
        self._transport = transport
        self._signer = signer

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._transport.handle_request(self._signer.signed(request))

    def close(self) -> None:
        self._transport.close()


class AsyncSigningTransport(httpx.AsyncBaseTransport):
    def __init__(self, transport: httpx.AsyncBaseTransport, signer: Signer) -> None:
        self._transport = transport
        self._signer = signer

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self._transport.handle_async_request(self._signer.signed(request))

    async def aclose(self) -> None:
        await self._transport.aclose()


# What happens -----------------------------------------------------------------------------------

SECRET = b"not so secret"


class Verifier:
    """The server: a signature is good for 5 minutes, and once. It is busy `busy` times."""

    def __init__(self, now: Callable[[], float], *, busy: int, retry_after: int) -> None:
        self._now = now
        self._busy = busy
        self._retry_after = str(retry_after)
        self._seen: set[str] = set()

    def __call__(self, request: ServerRequest) -> ServerResponse:
        wrong = self.wrong_with(request)
        if wrong is not None:
            return ServerResponse(status=403, body=wrong.encode())
        if self._busy > 0:
            self._busy -= 1
            return ServerResponse(status=503, headers={"Retry-After": self._retry_after})
        return ServerResponse(body=b"stored")

    def wrong_with(self, request: ServerRequest) -> str | None:
        headers = request.headers
        given = headers["Authorization"].rpartition(":")[2]
        right = signature(SECRET, request.method, request.path.encode(), headers)
        if not hmac.compare_digest(given, right):
            return "the signature is wrong"
        if headers[CONTENT] not in ("UNSIGNED", hashlib.sha256(request.body).hexdigest()):
            return "the body is another one"
        if abs(self._now() - float(headers[DATE])) > 300:
            return "the signature is too old"
        if given in self._seen:
            return "the signature was used before"
        self._seen.add(given)
        return None


class SigningAuth(httpx.Auth):
    """The wrong way: once per request of the client."""

    def __init__(self, signer: Signer) -> None:
        self._signer = signer

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers.update(self._signer.headers(request))
        yield request


def store(*, inside: bool, retry_after: int) -> None:
    clock = VirtualClock()
    signer = Signer("key-1", SECRET, now=clock.time)
    transport: httpx.BaseTransport = httpx.HTTPTransport()
    if inside:
        transport = SigningTransport(transport, signer)
    policy = RetryPolicy(retry_after_max=600.0)
    retrying = RetryTransport(transport, policy=policy, clock=clock)
    auth = None if inside else SigningAuth(signer)
    verifier = Verifier(clock.time, busy=1, retry_after=retry_after)
    with (
        LoopbackServer(handler=verifier) as server,
        httpx.Client(transport=retrying, auth=auth) as client,
    ):
        response = client.put(f"{server.url}/things/7?draft=1", content=b"a thing")
        signatures = {request.headers["Authorization"] for request in server.requests}
    attempts = len(get_report(response).attempts)
    print(f"   {attempts} attempts, {retry_after} s apart; signatures: {len(signatures)};", end=" ")
    print(f"{response.status_code} {response.text}")


def main() -> None:
    print("Signed inside:")
    store(inside=True, retry_after=1)
    store(inside=True, retry_after=600)
    print("Signed outside, by an httpx.Auth:")
    store(inside=False, retry_after=1)
    store(inside=False, retry_after=600)


if __name__ == "__main__":
    logging.getLogger("httpx_safe_retry").setLevel(logging.ERROR)
    main()
