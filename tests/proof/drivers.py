"""The clients: one request each, in a thread, on asyncio and on trio.

The rule: a driver looks at what a caller sees, the response or the exception, and at nothing else.
"""

from __future__ import annotations

import errno
import importlib
import ssl
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

import anyio
import anyio.lowlevel

from httpx_safe_retry import Backoff, Outcome, RetryError, RetryPolicy, RetryReport, get_report
from tests.library import RetryTransport, httpcore, httpx

from .cases import ANSWER, CHUNKS, Break, Case, Cut, Reset
from .server import PATIENCE, Server

Client: TypeAlias = Literal["ours", "httpx", "httpx-retries"]
CLIENTS: tuple[Client, ...] = get_args(Client)

_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # never used; making one for each run takes long
_NO_WAIT = Backoff(base=0, cap=0, jitter="none")
_SILENCE = 0.08
"""Seconds that a client waits for a server which has fallen silent."""


@dataclass(frozen=True)
class Claim:
    """What a caller is told."""

    success: bool
    uncertain: bool = False
    """Whether it says that nobody knows."""
    executed: bool | None = None
    """What it says about the server, if it says anything."""
    unexpected: str | None = None
    """What the caller was not promised: an exception of another kind, a torn answer."""
    attempts: int = 1
    broke_off: bool = False
    """Whether it came with an answer whose body, of a length that was not said, then broke off."""
    words: str = ""


@dataclass(frozen=True)
class Truth:
    """What the server has seen of it."""

    executed: int
    bodies: tuple[bytes, ...]
    """Of each request that came in whole."""


def _truth(server: Server, path: str) -> Truth:
    server.assert_well()
    return Truth(server.executed.pop(path, 0), tuple(server.bodies.pop(path, ())))


def _claim_of(report: RetryReport) -> Claim:
    return Claim(
        success=report.outcome is Outcome.SUCCESS,
        uncertain=report.outcome is Outcome.UNCERTAIN_WRITE,
        executed=report.executed,
        attempts=len(report.attempts),
        words=report.summary(),
    )


def _claim_of_response(client: Client, response: httpx.Response) -> Claim:
    if client == "ours":
        return _claim_of(get_report(response))
    return Claim(success=response.is_success, words=str(response.status_code))


def _claim_of_error(client: Client, error: Exception) -> Claim:
    if isinstance(error, RetryError):
        return _claim_of(error.report)
    # To the other clients' callers, an exception of any kind is a failure.
    return Claim(
        success=False, unexpected=repr(error) if client == "ours" else None, words=repr(error)
    )


def claim_of_body(client: Client, case: Case, claim: Claim, body: bytes | Exception) -> Claim:
    """Return what is left of a claim after its answer was read."""
    if isinstance(body, bytes):
        if body == b"".join(ANSWER):
            return claim
        return replace(claim, unexpected=f"{body!r} passed for the whole answer")
    if case.answer == "length":
        return _claim_of_error(client, body)
    # An answer without a length may go on for ever, and has to be handed out before its end.
    return replace(claim, broke_off=True)


# The client's own socket --------------------------------------------------------------------------


class _Breaker:
    """Counts what the sockets of one client take, and fails at the given place, once."""

    def __init__(self, fault: Break, *, takes_over: bool) -> None:
        self._left = fault.at
        self._error: type[Exception] = getattr(httpcore, fault.by)
        # An event loop takes all bytes over before it waits for room: after a timeout they may
        # still go out.
        self._takes_over = takes_over and fault.by == "WriteTimeout"
        self.armed = False

    def cut(self, size: int) -> int | None:
        """How many of `size` bytes still go out before the socket fails; None: it doesn't."""
        if not self.armed:
            return None
        if self._left >= size:
            self._left -= size
            return None
        self.armed = False
        return size if self._takes_over else self._left

    def failure(self) -> Exception:
        """What the socket fails with, made as httpcore makes it."""
        if self._error is httpcore.WriteTimeout:
            return _caused(httpcore.WriteTimeout, TimeoutError("timed out"))
        return _reset(httpcore.WriteError)


def _caused(kind: type[Exception], cause: OSError) -> Exception:
    error = kind(cause)
    error.__cause__ = cause
    return error


def _reset(kind: type[Exception]) -> Exception:
    return _caused(kind, ConnectionResetError(errno.ECONNRESET, "broken on purpose"))


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, breaker: _Breaker) -> None:
        self._stream = stream
        self._breaker = breaker
        self._broken = False

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._broken:
            raise _reset(httpcore.ReadError)
        return self._stream.read(max_bytes, timeout)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if self._broken:
            raise _reset(httpcore.WriteError)
        cut = self._breaker.cut(len(buffer))
        if cut is None:
            self._stream.write(buffer, timeout)
            return
        self._broken = True
        self._stream.write(buffer[:cut], timeout)
        raise self._breaker.failure()

    def close(self) -> None:
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Backend(httpcore.SyncBackend):
    def __init__(self, breaker: _Breaker) -> None:
        super().__init__()
        self._breaker = breaker

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        stream = super().connect_tcp(host, port, timeout, local_address, socket_options)
        return _Stream(stream, self._breaker)


class _AsyncStream(httpcore.AsyncNetworkStream):
    def __init__(self, stream: httpcore.AsyncNetworkStream, breaker: _Breaker) -> None:
        self._stream = stream
        self._breaker = breaker
        self._broken = False

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._broken:
            raise _reset(httpcore.ReadError)
        return await self._stream.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if self._broken:
            raise _reset(httpcore.WriteError)
        cut = self._breaker.cut(len(buffer))
        if cut is None:
            await self._stream.write(buffer, timeout)
            return
        self._broken = True
        await self._stream.write(buffer[:cut], timeout)
        raise self._breaker.failure()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _AsyncBackend(httpcore.AnyIOBackend):
    def __init__(self, breaker: _Breaker) -> None:
        self._breaker = breaker

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        stream = await super().connect_tcp(host, port, timeout, local_address, socket_options)
        return _AsyncStream(stream, self._breaker)


def _break_sockets(transport: httpx.HTTPTransport | httpx.AsyncHTTPTransport, backend: Any) -> None:
    # The seam is httpcore's own (`ConnectionPool(network_backend=...)`); httpx has no way to it.
    vars(transport._pool)["_network_backend"] = backend


# What comes back ----------------------------------------------------------------------------------


def _read(response: httpx.Response) -> bytes | Exception:
    try:
        return response.read()
    except Exception as error:
        return error
    finally:
        response.close()


async def _aread(response: httpx.Response) -> bytes | Exception:
    try:
        return await response.aread()
    except Exception as error:
        return error
    finally:
        await response.aclose()


# What is sent -------------------------------------------------------------------------------------


class _Chunks(AsyncIterator[bytes]):
    # No generator: httpx leaves those unfinished when a request fails, and trio says so.
    def __init__(self) -> None:
        self._left = iter(CHUNKS)

    async def __anext__(self) -> bytes:
        for chunk in self._left:
            return chunk
        raise StopAsyncIteration


# In HTTP/2, the length of a text varies with its letters, and these are of the shortest code
# (RFC 7541 appendix B): so that each case finds its byte where it was counted, each request of a
# kind has to be as long as any other.
_SHORT = str.maketrans("0123456789", "012aceiost")
_HOST = "proof.test"


def _request(case: Case, url: str, number: int) -> tuple[httpx.Request, str]:
    name = f"{number:07d}".translate(_SHORT)
    path = f"/{name}"
    content: bytes | Iterator[bytes] | AsyncIterator[bytes] | None = None
    if case.framing == "chunked":
        content = iter(CHUNKS) if case.family == "sync" else _Chunks()
    elif case.framing != "none":
        content = case.body
    headers = {"Host": _HOST}
    if case.operation.keyed:
        headers["Idempotency-Key"] = name
    request = httpx.Request(
        case.operation.method,
        url + path,
        headers=headers,
        content=content,
        extensions={"timeout": _timeouts(case)},
    )
    return request, path


def _meets_silence(case: Case) -> bool:
    if isinstance(case.fault, Cut):
        return case.fault.by == "silence"
    # Waiting for the window of a stream, httpcore does not see that it was reset.
    return isinstance(case.fault, Reset) and case.framing == "long"


def _timeouts(case: Case) -> dict[str, float | None]:
    read = _SILENCE if _meets_silence(case) else PATIENCE
    return {"connect": PATIENCE, "read": read, "write": PATIENCE, "pool": PATIENCE}


def _wrapped(client: Client, transport: Any, case: Case) -> Any:
    # On a busy machine, a healthy server may seem silent for a moment, too.
    attempts = 10 if _meets_silence(case) else 3
    if client == "ours":
        policy = RetryPolicy(max_attempts=attempts, backoff=_NO_WAIT)
        return RetryTransport(transport, policy=policy, budget=None)
    if client == "httpx-retries":
        peer: Any = importlib.import_module("httpx_retries")
        methods = ("GET", "PUT", "DELETE", "POST", "PATCH")
        retry = peer.Retry(total=attempts - 1, allowed_methods=methods)
        return peer.RetryTransport(transport=transport, retry=retry)
    return transport


def _options(case: Case) -> dict[str, Any]:
    http2 = case.protocol == "http/2"
    return {"verify": _TLS, "trust_env": False, "http1": not http2, "http2": http2}


class LeftOpenError(Exception):
    """A client closed its pool, and a connection stayed open."""


def run(client: Client, server: Server, case: Case, number: int) -> tuple[Claim, Truth]:
    """Send one request in a thread; return what the caller is told, and what is true."""
    fault = case.fault
    breaker = None
    with httpx.HTTPTransport(**_options(case)) as transport:
        if isinstance(fault, Break):
            breaker = _Breaker(fault, takes_over=False)
            _break_sockets(transport, _Backend(breaker))
        with httpx.Client(transport=_wrapped(client, transport, case), trust_env=False) as sender:
            if case.reused:
                server.arm(case.commit, None, reused=False)
                sender.get(f"{server.url}/warm-up").raise_for_status()
            server.arm(case.commit, fault, reused=case.reused, answer=case.answer)
            if breaker is not None:
                breaker.armed = True
            request, path = _request(case, server.url, number)
            try:
                response = sender.send(request, stream=True)
            except Exception as error:
                claim = _claim_of_error(client, error)
            else:
                claim = _claim_of_response(client, response)
                claim = claim_of_body(client, case, claim, _read(response))
    if not server.settle().wait(PATIENCE):
        raise LeftOpenError(str(case))
    return claim, _truth(server, path)


async def arun(client: Client, server: Server, case: Case, number: int) -> tuple[Claim, Truth]:
    """Send one request in a task; return what the caller is told, and what is true."""
    fault = case.fault
    breaker = None
    async with httpx.AsyncHTTPTransport(**_options(case)) as transport:
        if isinstance(fault, Break):
            breaker = _Breaker(fault, takes_over=case.family == "asyncio")
            _break_sockets(transport, _AsyncBackend(breaker))
        wrapped = _wrapped(client, transport, case)
        async with httpx.AsyncClient(transport=wrapped, trust_env=False) as sender:
            if case.reused:
                server.arm(case.commit, None, reused=False)
                (await sender.get(f"{server.url}/warm-up")).raise_for_status()
            server.arm(case.commit, fault, reused=case.reused, answer=case.answer)
            if breaker is not None:
                breaker.armed = True
            request, path = _request(case, server.url, number)
            try:
                response = await sender.send(request, stream=True)
            except Exception as error:
                claim = _claim_of_error(client, error)
            else:
                claim = _claim_of_response(client, response)
                claim = claim_of_body(client, case, claim, await _aread(response))
    # An event loop closes sockets some rounds later.
    settled = server.settle()
    with anyio.move_on_after(PATIENCE):
        for _ in range(10):
            await anyio.lowlevel.checkpoint()
        while not settled.wait(0.001):
            await anyio.lowlevel.checkpoint()
    if not settled.is_set():
        raise LeftOpenError(str(case))
    return claim, _truth(server, path)
