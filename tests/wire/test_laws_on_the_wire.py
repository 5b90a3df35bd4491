"""The two laws, checked against the ledgers of servers that fail at random.

A write that is not replay-safe runs at most once, and every failure but an uncertain write promises
that the write did not happen. Many requests share one connection, so that each also meets what
happens to the others.
"""

from __future__ import annotations

import contextlib
import random
import socket
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import h2.exceptions
import pytest

from httpx_safe_retry import Outcome, RetryError, get_report
from tests.library import RetryTransport, httpx
from tests.peers import (
    Answer,
    Drop,
    GoAway,
    Http1Item,
    Http1Server,
    Http2Item,
    Http2Server,
    Reset,
    client_tls,
    server_tls,
)

from .driving import HTTP2, QUICK, everywhere

AT_ONCE = 8
REQUESTS = 48
POLICY = QUICK.replace(max_attempts=4)

Outcomes = dict[bytes, Outcome]


class Http2ServerForThreads(Http2Server):
    """Ends the connection when heads come in the wrong order, and makes no fuss about it.

    httpcore numbers its streams before it sends their heads, and threads may overtake each other in
    between: to h2 that is a protocol error (RFC 9113 section 5.1.1).
    """

    def serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(h2.exceptions.ProtocolError):
            super().serve(connection)


def post_all(
    backend: str | None, url: str, bodies: Sequence[bytes], at_once: int = AT_ONCE, **options: Any
) -> Outcomes:
    """Send an unkeyed POST for each body, `at_once` at a time, through one client."""
    outcomes: Outcomes = {}

    if backend is None:
        wrapped = RetryTransport(httpx.HTTPTransport(**options), policy=POLICY, budget=None)
        with httpx.Client(transport=wrapped, timeout=20) as client:

            def post(body: bytes) -> None:
                try:
                    # What becomes of a body of unknown length is for the caller to see.
                    with client.stream("POST", url, content=body) as response:
                        outcomes[body] = get_report(response).outcome
                except RetryError as error:
                    outcomes[body] = error.report.outcome

            with ThreadPoolExecutor(at_once) as threads:
                list(threads.map(post, bodies))
        return outcomes

    async def post_them() -> None:
        wrapped = RetryTransport(httpx.AsyncHTTPTransport(**options), policy=POLICY, budget=None)
        limiter = anyio.CapacityLimiter(at_once)
        async with httpx.AsyncClient(transport=wrapped, timeout=20) as client:

            async def post(body: bytes) -> None:
                async with limiter:
                    try:
                        async with client.stream("POST", url, content=body) as response:
                            outcomes[body] = get_report(response).outcome
                    except RetryError as error:
                        outcomes[body] = error.report.outcome

            async with anyio.create_task_group() as tasks:
                for body in bodies:
                    tasks.start_soon(post, body)

    anyio.run(post_them, backend=backend)
    return outcomes


def assert_laws(outcomes: Outcomes, ledger: Sequence[bytes], bodies: Sequence[bytes]) -> None:
    times_run = Counter(ledger)
    assert sorted(outcomes) == sorted(bodies)
    for body, outcome in outcomes.items():
        assert times_run[body] <= 1
        if outcome is Outcome.SUCCESS:
            assert times_run[body] == 1
        elif outcome is not Outcome.UNCERTAIN_WRITE:
            assert times_run[body] == 0, outcome


def requests(prefix: bytes) -> list[bytes]:
    # Some need several frames, and some several packets.
    return [prefix + b"-%d-" % n + b"x" * (n % 4) * 20_000 for n in range(REQUESTS)]


@everywhere
@pytest.mark.parametrize("seed", range(3))
def test_over_http2_with_many_streams_on_each_connection(backend: str | None, seed: int) -> None:
    kinds: list[Http2Item] = [
        Answer(201),
        Answer(201),
        Answer(503, executed=True),
        Answer(503, executed=False),
        Answer(429, executed=False),
        Reset(7),
        Reset(7, at="head"),
        Reset(8, executed=True),
        Reset(2, at="head"),
        Drop("request", executed=True),
        Drop("head", hard=True),
    ]
    script = random.Random(seed).choices(kinds, k=REQUESTS * 2)
    bodies = requests(b"%d" % seed)
    with Http2ServerForThreads(script, tls=server_tls()) as server:
        outcomes = post_all(backend, server.url, bodies, http2=True, verify=client_tls())
    assert_laws(outcomes, [request.body for request in server.executed], bodies)


@everywhere
@pytest.mark.parametrize("seed", range(3))
def test_over_http1_with_connections_that_break_at_every_moment(
    backend: str | None, seed: int
) -> None:
    kinds: list[Http1Item] = [
        Answer(201),
        Answer(201),
        Answer(503, executed=True),
        Answer(429, executed=False),
        Answer(201, body=b"receipt", cut=3, then=Drop()),
        Drop("accept"),
        Drop("accept", hard=True),
        Drop("head", hard=True),
        Drop("request", executed=True),
        Drop("request", hard=True, executed=True),
    ]
    script = random.Random(seed).choices(kinds, k=REQUESTS * 2)
    bodies = requests(b"%d" % seed)
    with Http1Server(script) as server:
        outcomes = post_all(backend, server.url, bodies)
    assert_laws(outcomes, [request.body for request in server.executed], bodies)


@everywhere
@pytest.mark.parametrize("seed", range(3))
def test_over_http2_with_connections_that_go_away(backend: str | None, seed: int) -> None:
    # One at a time: a server that keeps its word about streams runs none above the last.
    kinds: list[Http2Item] = [
        Answer(201),
        Answer(201),
        GoAway(last=0, at="head"),
        GoAway(last=0, at="request"),
        GoAway(last="before", at="head"),
        GoAway(last="before", at="request"),
        GoAway(last="own", executed=True),
        GoAway(last="own", at="head"),
        GoAway(last=2**31 - 1, executed=True),
        GoAway(last="own", executed=True, then=Answer(201)),
        Drop("request", executed=True),
    ]
    script = random.Random(seed).choices(kinds, k=REQUESTS * 4)
    bodies = requests(b"%d" % seed)
    with Http2Server(script) as server:
        outcomes = post_all(backend, server.url, bodies, at_once=1, **HTTP2)
    assert_laws(outcomes, [request.body for request in server.executed], bodies)
