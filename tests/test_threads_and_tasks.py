"""One transport for many threads and tasks: nothing of one request shows in another, and nobody
blocks anybody.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import anyio.to_thread
import pytest

from httpx_safe_retry import Backoff, Outcome, RetryPolicy, RetryReport, StopReason, get_report
from httpx_safe_retry.testing import Fault, LoopbackServer, Reply, VirtualClock
from tests.drive import POLICY, URL, Drive, everywhere
from tests.library import RetryTransport, ScriptedTransport, httpx


class FailsOnce(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Answers the first attempt for each path with 503 and the next with 200, and says which."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self._lock = threading.Lock()

    def _answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        with self._lock:
            self.seen[path] += 1
            first = self.seen[path] == 1
        return httpx.Response(503 if first else 200, text=path)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        time.sleep(0.001)
        return self._answer(request)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await anyio.sleep(0.001)
        return self._answer(request)


def _as_it_was_alone(report: RetryReport, path: str) -> bool:
    statuses = [attempt.status for attempt in report.attempts]
    return report.url.endswith(path) and statuses == [503, 200]


def test_sixteen_threads_each_have_their_own_history() -> None:
    wrapped = FailsOnce()
    transport = RetryTransport(
        wrapped, policy=RetryPolicy(backoff=lambda number: 0.001), budget=None
    )
    with httpx.Client(transport=transport) as client, ThreadPoolExecutor(16) as threads:

        def send(number: int) -> bool:
            response = client.get(f"https://example.org/{number}")
            path = f"/{number}"
            return response.text == path and _as_it_was_alone(get_report(response), path)

        assert all(threads.map(send, range(160)))
    assert set(wrapped.seen.values()) == {2}


@pytest.mark.anyio
async def test_a_hundred_tasks_each_have_their_own_history() -> None:
    wrapped = FailsOnce()
    transport = RetryTransport(
        wrapped, policy=RetryPolicy(backoff=lambda number: 0.001), budget=None
    )
    right: list[bool] = []

    async with httpx.AsyncClient(transport=transport) as client:

        async def send(number: int) -> None:
            response = await client.get(f"https://example.org/{number}")
            path = f"/{number}"
            right.append(response.text == path and _as_it_was_alone(get_report(response), path))

        async with anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(send, number)
    assert right == [True] * 100
    assert set(wrapped.seen.values()) == {2}


@everywhere
def test_one_request_that_is_exhausted_leaves_nothing_to_the_next(drive: Drive) -> None:
    script = ScriptedTransport(503, 503, 503, 503, Reply(body=b"done"))
    clock = VirtualClock()
    transport = RetryTransport(script, policy=POLICY, clock=clock)
    reports: list[RetryReport] = []

    async def asend() -> None:
        for _ in range(2):
            response = await transport.handle_async_request(httpx.Request("GET", URL))
            await response.aread()
            reports.append(get_report(response))

    if drive.backend is None:
        for _ in range(2):
            response = transport.handle_request(httpx.Request("GET", URL))
            response.read()
            reports.append(get_report(response))
    else:
        anyio.run(asend, backend=drive.backend)
    assert [(report.outcome, len(report.attempts)) for report in reports] == [
        (Outcome.EXHAUSTED, 3),
        (Outcome.SUCCESS, 2),
    ]
    assert [report.slept for report in reports] == [3.0, 1.0]


@pytest.mark.anyio
async def test_a_heart_goes_on_beating_beside_a_wait() -> None:
    transport = RetryTransport(
        ScriptedTransport(503, 200),
        policy=RetryPolicy(backoff=Backoff(base=0.3, jitter="none")),
    )
    beats = 0

    async def heart() -> None:
        nonlocal beats
        while True:
            await anyio.sleep(0.01)
            beats += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(heart)
        response = await transport.handle_async_request(httpx.Request("GET", URL))
        tasks.cancel_scope.cancel()
    assert response.status_code == 200
    assert beats >= 5


@pytest.mark.anyio
async def test_waits_of_tasks_overlap() -> None:
    transport = RetryTransport(
        FailsOnce(), policy=RetryPolicy(backoff=lambda number: 0.3), budget=None
    )
    began = time.monotonic()
    async with anyio.create_task_group() as tasks:
        for number in range(50):
            request = httpx.Request("GET", f"https://example.org/{number}")
            tasks.start_soon(transport.handle_async_request, request)
    assert 0.3 <= time.monotonic() - began < 5


def test_waits_of_threads_overlap() -> None:
    transport = RetryTransport(
        FailsOnce(), policy=RetryPolicy(backoff=lambda number: 0.3), budget=None
    )
    began = time.monotonic()
    with ThreadPoolExecutor(16) as threads:
        requests = [httpx.Request("GET", f"https://example.org/{n}") for n in range(16)]
        list(threads.map(transport.handle_request, requests))
    assert 0.3 <= time.monotonic() - began < 4


@pytest.mark.anyio
async def test_one_task_that_is_cancelled_leaves_the_others_alone() -> None:
    script = ScriptedTransport(503, 503, 200)
    transport = RetryTransport(script, policy=RetryPolicy(backoff=lambda number: 0.05))
    statuses: list[int] = []

    async def send() -> None:
        response = await transport.handle_async_request(httpx.Request("GET", URL))
        statuses.append(response.status_code)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as cancelled:
                cancelled.start_soon(send)
                while len(script.requests) < 2:
                    await anyio.sleep(0.001)
                scope.cancel()
    assert (statuses, len(script.requests)) == ([200], 3)


@pytest.mark.anyio
async def test_one_transport_serves_threads_and_tasks() -> None:
    script = ScriptedTransport(503, 200, 503, 200)
    transport = RetryTransport(script, policy=POLICY, clock=VirtualClock())
    response = await transport.handle_async_request(httpx.Request("GET", URL))
    assert response.status_code == 200
    request = httpx.Request("GET", URL)
    response = await anyio.to_thread.run_sync(transport.handle_request, request)
    assert response.status_code == 200


@pytest.mark.anyio
async def test_closing_wakes_the_threads_that_share_the_transport_with_tasks() -> None:
    script = ScriptedTransport(503, 200)
    transport = RetryTransport(script, policy=RetryPolicy(backoff=lambda number: 600))
    caught: list[Any] = []

    def send() -> None:
        try:
            transport.handle_request(httpx.Request("GET", URL))
        except Exception as error:
            caught.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    while not script.responses or not script.responses[0].closes:
        await anyio.sleep(0.001)
    await transport.aclose()
    await anyio.to_thread.run_sync(thread.join, 10)
    assert [error.report.stop_reason for error in caught] == [StopReason.CANCELLED]


@pytest.mark.parametrize("where", ["attempt", "wait", "body"])
def test_a_native_cancellation_of_asyncio_is_not_swallowed(where: str) -> None:
    busy = Reply(status=503)

    async def hang(request: httpx.Request) -> Reply:
        if where == "attempt":
            await asyncio.sleep(60)
        if where == "wait":
            return busy

        async def body() -> AsyncIterator[bytes]:
            yield b"1"
            await asyncio.sleep(60)

        return Reply(headers={"Content-Length": "5"}, body=body())

    script = ScriptedTransport(hang, 200)
    transport = RetryTransport(script, policy=RetryPolicy(backoff=lambda number: 60))

    async def main() -> None:
        sending = asyncio.create_task(transport.handle_async_request(httpx.Request("GET", URL)))
        await asyncio.sleep(0.05)
        assert sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert sending.cancelled()
        async with httpx.AsyncClient(transport=transport) as client:
            assert (await client.get(URL)).status_code == 200

    asyncio.run(main())
    script.assert_done()


@pytest.mark.anyio
@pytest.mark.parametrize("where", ["attempt", "wait"])
async def test_a_pool_of_one_connection_survives_a_cancelled_request(where: str) -> None:
    first = Fault(by="silence") if where == "attempt" else 503
    limits = httpx.Limits(max_connections=1)
    with LoopbackServer(first, 200) as server:
        transport = RetryTransport(
            httpx.AsyncHTTPTransport(limits=limits, verify=False),
            policy=RetryPolicy(backoff=lambda number: 60),
        )
        async with httpx.AsyncClient(transport=transport) as client:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.get, server.url)
                while not server.requests:
                    await anyio.sleep(0.01)
                await anyio.sleep(0.1)
                tasks.cancel_scope.cancel()
            assert (await client.get(server.url)).status_code == 200


@pytest.mark.parametrize("policy", [POLICY, POLICY.replace(classify=lambda request, result: None)])
def test_a_request_that_is_abandoned_without_an_event_loop_ends_quietly(
    policy: RetryPolicy,
) -> None:
    """As when a loop was stopped, and the garbage collector finds what it had not finished."""

    class Pending:
        def __await__(self) -> Generator[None, None, None]:
            yield

    class Transport(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            await Pending()
            raise AssertionError("it is never resumed")

    transport = RetryTransport(Transport(), policy=policy)
    sending = transport.handle_async_request(httpx.Request("PUT", URL))
    sending.send(None)
    sending.close()
