"""One request through a client, in a thread, on asyncio and on trio: what holds for all three is
written once.

Every request that is sent with this module also shows, whatever became of it, that each response
was closed exactly once and that the caller's own request is as it was.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio
import pytest

from httpx_safe_retry import (
    Backoff,
    Budget,
    RequestFinished,
    RetryError,
    RetryEvent,
    RetryPolicy,
    RetryReport,
    get_report,
)
from httpx_safe_retry.testing import ScriptItem, SentRequest, VirtualClock
from tests.library import RetryTransport, ScriptedTransport, httpx

URL = "https://example.org/path"

POLICY = RetryPolicy(backoff=Backoff(base=1, factor=2, cap=60, jitter="none"))
"""Waits of 1, 2, 4, ... seconds, to be written down in tests."""

KEY = {"Idempotency-Key": "k1"}

# What a response is read with, when it is streamed.
Reading = Literal["read", "iter_raw", "iter_bytes"]


@dataclass
class Sent:
    """What became of one logical request."""

    script: ScriptedTransport
    clock: VirtualClock
    events: list[RetryEvent] = field(default_factory=list[RetryEvent])
    outcome: httpx.Response | BaseException | None = None
    streamed: bytes | None = None
    """What a streamed response gave."""

    @property
    def response(self) -> httpx.Response:
        """The response that the caller got."""
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        assert self.outcome is not None
        return self.outcome

    @property
    def error(self) -> BaseException:
        """The error that the caller got."""
        assert isinstance(self.outcome, BaseException), self.outcome
        return self.outcome

    @property
    def report(self) -> RetryReport:
        """The report, wherever the caller finds it; for an error that is not ours, a listener."""
        if isinstance(self.outcome, httpx.Response):
            return get_report(self.outcome)
        if isinstance(self.outcome, RetryError):
            return self.outcome.report
        (finished,) = (event for event in self.events if isinstance(event, RequestFinished))
        return finished.report

    @property
    def requests(self) -> list[SentRequest]:
        """What the wrapped transport got."""
        return self.script.requests

    @property
    def waits(self) -> list[float]:
        """The waits between the attempts, in seconds."""
        return self.clock.sleeps


class Drive:
    """Sends requests through `httpx.Client`, or through `httpx.AsyncClient` on one backend."""

    def __init__(self, backend: str | None = None) -> None:
        self.backend = backend

    def body(self, *chunks: bytes | Exception) -> Any:
        """A one-shot body of these chunks; an exception among them is raised there."""
        return _chunks(chunks) if self.backend is None else _achunks(chunks)

    def send(
        self,
        *script: ScriptItem,
        method: str = "GET",
        url: str = URL,
        policy: RetryPolicy | Callable[[httpx.Request], RetryPolicy] = POLICY,
        budget: Budget | Literal["own"] | None = "own",
        clock: VirtualClock | None = None,
        random: Callable[[], float] = lambda: 0.5,
        listen: bool = False,
        on_wait: Callable[[Sent], object] | None = None,
        stream: Reading | None = None,
        client: Mapping[str, Any] | None = None,
        **request: Any,
    ) -> Sent:
        """Send one request over a wrapped transport that plays `script`.

        `listen`: keep the events. `on_wait`: called in every wait. `client`: arguments of the
        client, `request` of the request.
        """
        clock = VirtualClock() if clock is None else clock
        sent = Sent(ScriptedTransport(*script, clock=clock), clock)
        if on_wait is not None:
            clock.on_sleep = lambda seconds: on_wait(sent)
        transport = RetryTransport(
            sent.script,
            policy=policy,
            budget=budget,
            clock=clock,
            random=random,
            listeners=[sent.events.append] if listen else [],
        )
        self.through(transport, sent, method, url, stream=stream, client=client, **request)
        assert [reply for reply in sent.script.responses if reply.closes != 1] == []
        return sent

    def through(
        self,
        transport: RetryTransport,
        sent: Sent,
        method: str = "GET",
        url: str = URL,
        *,
        stream: Reading | None = None,
        client: Mapping[str, Any] | None = None,
        **request: Any,
    ) -> None:
        """Send one request over `transport`, and note in `sent` what the caller got."""
        arguments = {"transport": transport, **(client or {})}
        if self.backend is None:
            with httpx.Client(**arguments) as threaded:
                built = threaded.build_request(method, url, **request)
                before = _picture(built)
                try:
                    sent.outcome = threaded.send(built, stream=stream is not None)
                    if stream is not None:
                        sent.streamed = _read(sent.outcome, stream)
                except BaseException as error:
                    sent.outcome = error
                assert _picture(built) == before
            return

        async def main() -> None:
            async with httpx.AsyncClient(**arguments) as tasked:
                built = tasked.build_request(method, url, **request)
                before = _picture(built)
                try:
                    sent.outcome = await tasked.send(built, stream=stream is not None)
                    if stream is not None:
                        sent.streamed = await _aread(sent.outcome, stream)
                except BaseException as error:
                    sent.outcome = error
                assert _picture(built) == before

        anyio.run(main, backend=self.backend)


SYNC, ASYNCIO, TRIO = Drive(), Drive("asyncio"), Drive("trio")

everywhere = pytest.mark.parametrize(
    "drive",
    [
        pytest.param(SYNC, id="sync"),
        pytest.param(ASYNCIO, id="asyncio"),
        pytest.param(TRIO, id="trio"),
    ],
)
"""Runs a test that takes a `drive` in a thread, on asyncio and on trio."""


def _picture(request: httpx.Request) -> dict[str, object]:
    """A request as the caller left it, mappings in its extensions by value."""
    return {
        **vars(request),
        "headers": list(request.headers.raw),
        "extensions": {
            name: dict(value) if isinstance(value, dict) else value
            for name, value in request.extensions.items()
        },
    }


def _read(response: httpx.Response, reading: Reading) -> bytes:
    try:
        return response.read() if reading == "read" else b"".join(getattr(response, reading)())
    finally:
        response.close()


async def _aread(response: httpx.Response, reading: Reading) -> bytes:
    try:
        if reading == "read":
            return await response.aread()
        chunks = getattr(response, f"a{reading}")()
        return b"".join([chunk async for chunk in chunks])
    finally:
        await response.aclose()


def _chunks(chunks: Iterable[bytes | Exception]) -> Iterator[bytes]:
    for chunk in chunks:
        if isinstance(chunk, Exception):
            raise chunk
        yield chunk


async def _achunks(chunks: Iterable[bytes | Exception]) -> AsyncIterator[bytes]:
    for chunk in _chunks(chunks):
        yield chunk
