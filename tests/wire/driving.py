"""One way to drive httpx in a thread, on asyncio and on trio, so that each test is written once.

The async ones run in a thread of their own, which the test calls into.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import anyio.from_thread
import pytest

from httpx_safe_retry import (
    Backoff,
    Evidence,
    Outcome,
    RetryError,
    RetryPolicy,
    RetryReport,
    StopReason,
    get_report,
)
from tests.library import RetryTransport, httpx

QUICK = RetryPolicy(backoff=Backoff(base=0.001, jitter="none"))
"""The defaults, without waits that a test would notice."""

KEY = {"Idempotency-Key": "k1"}

HTTP2: dict[str, Any] = {"http1": False, "http2": True}
"""HTTP/2 by prior knowledge, on `http://`."""

everywhere = pytest.mark.parametrize("backend", [None, "asyncio", "trio"], ids=str)
"""Runs a test in a thread (None), on asyncio and on trio."""


@dataclass
class Got:
    """What a caller got for one request: a response or an error."""

    response: httpx.Response | None = None
    error: Exception | None = None

    @property
    def status(self) -> int | None:
        return None if self.response is None else self.response.status_code

    @property
    def report(self) -> RetryReport:
        if self.response is not None:
            return get_report(self.response)
        assert isinstance(self.error, RetryError), repr(self.error)
        return self.error.report

    @property
    def outcome(self) -> Outcome:
        return self.report.outcome

    @property
    def stop_reason(self) -> StopReason:
        return self.report.stop_reason

    @property
    def evidence(self) -> list[Evidence]:
        """What each attempt proved."""
        return [attempt.evidence for attempt in self.report.attempts]


class Wire:
    """A client over a `RetryTransport` over httpx's own transport."""

    def __init__(
        self,
        client: httpx.Client | httpx.AsyncClient,
        portal: anyio.from_thread.BlockingPortal | None,
    ) -> None:
        self._client = client
        self._portal = portal

    def send(self, method: str, url: str, *, stream: bool = False, **request: Any) -> Got:
        """Send one request. Only httpx's errors are what a caller may get; others fail the test."""
        client = self._client
        built = client.build_request(method, url, **request)
        try:
            if isinstance(client, httpx.Client):
                return Got(client.send(built, stream=stream))
            return Got(self._call(client.send, built, stream=stream))
        except httpx.TransportError as error:
            return Got(error=error)

    def chunks(self, response: httpx.Response) -> Iterator[bytes]:
        """The body of a streamed response, chunk by chunk."""
        if self._portal is None:
            yield from response.iter_raw()
            return
        iterator = response.aiter_raw()
        while (chunk := self._portal.call(_next, iterator)) is not None:
            yield chunk

    def close(self, response: httpx.Response) -> None:
        """Close a streamed response."""
        if self._portal is None:
            response.close()
        else:
            self._portal.call(response.aclose)

    def _call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        assert self._portal is not None

        async def call() -> Any:
            return await function(*args, **kwargs)

        return self._portal.call(call)


async def _next(iterator: AsyncIterator[bytes]) -> bytes | None:
    return await anext(iterator, None)


@contextlib.contextmanager
def wire(
    backend: str | None,
    *,
    policy: RetryPolicy = QUICK,
    timeout: float | httpx.Timeout = 10.0,
    **options: Any,
) -> Iterator[Wire]:
    """Open a client. `options` are those of httpx's own transport."""
    # What is unencrypted anyway should not load certificates each time.
    options.setdefault("verify", False)
    arguments: dict[str, Any] = {"timeout": timeout, "trust_env": False}
    if backend is None:
        wrapped = RetryTransport(httpx.HTTPTransport(**options), policy=policy, budget=None)
        with httpx.Client(transport=wrapped, **arguments) as client:
            yield Wire(client, None)
        return
    with anyio.from_thread.start_blocking_portal(backend) as portal:
        async_wrapped = RetryTransport(
            httpx.AsyncHTTPTransport(**options), policy=policy, budget=None
        )
        aclient = httpx.AsyncClient(transport=async_wrapped, **arguments)
        try:
            yield Wire(aclient, portal)
        finally:
            portal.call(aclient.aclose)
