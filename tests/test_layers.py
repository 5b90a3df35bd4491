"""One layer retries: nested ones, and services that are called in the same task or thread, don't
multiply.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from typing import Any

import anyio
import pytest

from httpx_safe_retry import (
    Evidence,
    Outcome,
    RequestFinished,
    RetryError,
    RetryEvent,
    RetryPolicy,
    StopReason,
    UncertainWriteError,
    get_report,
)
from httpx_safe_retry.testing import LoopbackServer, ScriptItem, VirtualClock
from tests.drive import POLICY, Drive, Sent, everywhere
from tests.library import RetryTransport, ScriptedTransport, httpx, wrap_client

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

QUICK = RetryPolicy(backoff=lambda retry: 0.0)


class Budget:
    """Grants everything, and counts."""

    def __init__(self) -> None:
        self.deposits = 0
        self.withdrawals = 0

    def deposit(self, origin: object) -> None:
        self.deposits += 1

    def withdraw(self, origin: object) -> bool:
        self.withdrawals += 1
        return True


# A RetryTransport inside another ------------------------------------------------------------------


def nested(
    drive: Drive, *script: ScriptItem, inner: RetryPolicy = POLICY, **request: Any
) -> tuple[Sent, list[list[RetryEvent]], list[Budget]]:
    """Send through three layers; return what the listeners heard, and the budgets, inside out."""
    clock = VirtualClock()
    sent = Sent(ScriptedTransport(*script, clock=clock), clock)
    heard: list[list[RetryEvent]] = [[], [], []]
    budgets = [Budget(), Budget(), Budget()]
    transport: Any = sent.script
    for policy, events, budget in zip((inner, inner, POLICY), heard, budgets, strict=True):
        transport = RetryTransport(
            transport, policy=policy, clock=clock, budget=budget, listeners=[events.append]
        )
    drive.through(transport, sent, **request)
    assert [reply for reply in sent.script.responses if reply.closes != 1] == []
    return sent, heard, budgets


@everywhere
@pytest.mark.parametrize("fault", [503, httpx.ConnectError, httpx.ReadTimeout])
def test_three_layers_of_three_attempts_send_three_requests(
    drive: Drive, fault: ScriptItem
) -> None:
    sent, _, _ = nested(drive, *[fault] * 9)
    assert (len(sent.requests), sent.waits) == (3, [1.0, 2.0])
    outcome = sent.outcome
    assert isinstance(outcome, (httpx.Response, RetryError))
    report = get_report(outcome) if isinstance(outcome, httpx.Response) else outcome.report
    assert (report.outcome, report.stop_reason) == (Outcome.EXHAUSTED, StopReason.MAX_ATTEMPTS)
    assert len(report.attempts) == 3


@everywhere
def test_the_outermost_gets_through_for_all_of_them(drive: Drive) -> None:
    sent, _, _ = nested(drive, 503, httpx.ReadError, 200)
    assert (sent.response.status_code, len(sent.requests)) == (200, 3)
    assert get_report(sent.response).outcome is Outcome.SUCCESS


@everywhere
def test_an_inner_layer_reports_each_of_the_attempts_as_its_own_request(drive: Drive) -> None:
    _, (inner, between, outer), _ = nested(drive, 503, 200)

    def finished(events: list[RetryEvent]) -> list[tuple[Outcome, int]]:
        reports = [event.report for event in events if isinstance(event, RequestFinished)]
        return [(report.outcome, len(report.attempts)) for report in reports]

    assert finished(inner) == finished(between) == [(Outcome.EXHAUSTED, 1), (Outcome.SUCCESS, 1)]
    assert finished(outer) == [(Outcome.SUCCESS, 2)]


@everywhere
def test_only_the_outermost_layers_budget_is_used(drive: Drive) -> None:
    _, _, budgets = nested(drive, 503, 503, 200)
    assert [(one.deposits, one.withdrawals) for one in budgets] == [(0, 0), (0, 0), (1, 2)]


@everywhere
def test_an_inner_layer_that_raises_on_failure_leaves_the_answer_to_the_outer_one(
    drive: Drive,
) -> None:
    sent, _, _ = nested(drive, 503, 404, inner=POLICY.replace(raise_on_failure=True))
    assert (sent.response.status_code, len(sent.requests)) == (404, 2)


@everywhere
def test_an_unkeyed_write_is_as_uncertain_through_three_layers_as_through_one(drive: Drive) -> None:
    sent, _, _ = nested(drive, httpx.ReadTimeout, 200, method="POST", content=b"pay")
    assert isinstance(sent.error, UncertainWriteError)
    assert isinstance(sent.error, httpx.ReadTimeout)
    assert len(sent.requests) == 1


@everywhere
def test_what_provably_was_not_sent_is_known_through_three_layers(drive: Drive) -> None:
    sent, _, _ = nested(drive, httpx.ConnectError, 201, method="POST", content=b"pay")
    assert (sent.response.status_code, len(sent.requests)) == (201, 2)
    evidence = [attempt.evidence for attempt in get_report(sent.response).attempts]
    assert evidence == [Evidence.NOT_SENT, Evidence.EXECUTED]


# A service in the same task, or the same thread ---------------------------------------------------


class Service:
    """An ASGI service that asks the next one with a client of its own, and hands on what it got."""

    def __init__(self, transport: httpx.AsyncBaseTransport, url: str) -> None:
        self.transport = transport
        self.url = url
        self.attempts: list[int] = []

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        transport = RetryTransport(self.transport, policy=QUICK)
        async with httpx.AsyncClient(transport=transport) as client:
            try:
                response = await client.request(scope["method"], self.url)
                status, report = response.status_code, get_report(response)
            except RetryError as error:
                status, report = 502, error.report
        self.attempts.append(len(report.attempts))
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})


@pytest.mark.anyio
async def test_a_gateway_and_two_services_of_three_attempts_each_send_three_requests(
    anyio_backend: str,
) -> None:
    with LoopbackServer(503, repeat=True) as downstream:
        second = Service(httpx.AsyncHTTPTransport(verify=False), downstream.url)
        first = Service(httpx.ASGITransport(second), "http://second.test/")
        transport = RetryTransport(httpx.ASGITransport(first), policy=QUICK)
        async with httpx.AsyncClient(transport=transport) as gateway:
            response = await gateway.get("http://first.test/")
    assert len(downstream.requests) == 3
    assert (first.attempts, second.attempts) == ([1, 1, 1], [1, 1, 1])
    report = get_report(response)
    assert (response.status_code, len(report.attempts)) == (503, 3)
    assert (report.outcome, report.stop_reason) == (Outcome.EXHAUSTED, StopReason.MAX_ATTEMPTS)


@pytest.mark.anyio
async def test_a_service_that_is_called_without_retries_around_it_retries_itself(
    anyio_backend: str,
) -> None:
    with LoopbackServer(503, 200) as downstream:
        service = Service(httpx.AsyncHTTPTransport(verify=False), downstream.url)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(service)) as client:
            response = await client.get("http://service.test/")
    assert (response.status_code, service.attempts) == (200, [2])


def test_a_wsgi_service_in_the_same_thread_stays_at_the_outer_layers_attempts() -> None:
    attempts: list[int] = []

    with LoopbackServer(503, repeat=True) as downstream:

        def service(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            inner = RetryTransport(httpx.HTTPTransport(verify=False), policy=QUICK)
            with httpx.Client(transport=inner) as client:
                response = client.get(downstream.url)
            attempts.append(len(get_report(response).attempts))
            start_response(f"{response.status_code} As Below", [])
            return [b""]

        transport = RetryTransport(httpx.WSGITransport(service), policy=QUICK)
        with httpx.Client(transport=transport) as gateway:
            response = gateway.get("http://service.test/")
    assert (response.status_code, attempts, len(downstream.requests)) == (503, [1, 1, 1], 3)


@pytest.mark.anyio
async def test_a_task_that_an_attempt_started_and_left_behind_retries_itself(
    anyio_backend: str,
) -> None:
    """It inherits the attempt's context, but the attempt is over: nobody else retries for it."""
    answered = anyio.Event()
    attempts: list[int] = []

    async def after() -> None:
        await answered.wait()
        transport = RetryTransport(ScriptedTransport(503, 503, 200), policy=QUICK)
        async with httpx.AsyncClient(transport=transport) as client:
            response = await client.get("http://a.test/")
        attempts.append(len(get_report(response).attempts))

    async with anyio.create_task_group() as background:

        def answer(request: httpx.Request) -> httpx.Response:
            background.start_soon(after)
            return httpx.Response(200)

        transport = RetryTransport(httpx.MockTransport(answer), policy=QUICK)
        async with httpx.AsyncClient(transport=transport) as client:
            await client.get("http://a.test/")
        answered.set()
    assert attempts == [3]


# HTTPTransport(retries=n) underneath --------------------------------------------------------------


@pytest.fixture
def shown() -> Iterator[list[warnings.WarningMessage]]:
    """The warnings that Python would show, by its default rule: each line's once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        yield caught


KINDS = pytest.mark.parametrize("kind", [httpx.HTTPTransport, httpx.AsyncHTTPTransport])


@KINDS
def test_connection_retries_underneath_are_pointed_out_once_for_each_line(
    kind: type[Any], shown: list[warnings.WarningMessage]
) -> None:
    for _ in range(3):
        RetryTransport(kind(retries=2, verify=False))
    (warning,) = shown
    assert warning.category is UserWarning
    assert "retries=..." in str(warning.message)
    assert warning.filename == __file__
    RetryTransport(kind(retries=1, verify=False))
    assert len(shown) == 2


def test_no_request_points_it_out_again(shown: list[warnings.WarningMessage]) -> None:
    with (
        LoopbackServer(503, 200, 200) as server,
        httpx.Client(
            transport=RetryTransport(httpx.HTTPTransport(retries=1, verify=False), policy=QUICK)
        ) as client,
    ):
        client.get(server.url)
        client.get(server.url)
    assert len(shown) == 1


@pytest.mark.anyio
async def test_no_request_in_a_task_points_it_out_again(
    anyio_backend: str, shown: list[warnings.WarningMessage]
) -> None:
    inner = httpx.AsyncHTTPTransport(retries=1, verify=False)
    transport = RetryTransport(inner, policy=QUICK)
    with LoopbackServer(503, 200, 200) as server:
        async with httpx.AsyncClient(transport=transport) as client:
            await client.get(server.url)
            await client.get(server.url)
    assert len(shown) == 1


def test_wrap_client_points_it_out_at_the_line_that_wraps(
    shown: list[warnings.WarningMessage],
) -> None:
    def client() -> httpx.Client:
        retrying = {name: httpx.HTTPTransport(retries=1, verify=False) for name in "ab"}
        mounts = {f"all://{name}.test": transport for name, transport in retrying.items()}
        return httpx.Client(verify=False, mounts=mounts)

    frame = inspect.currentframe()
    assert frame is not None
    wrap_client(client())
    line = frame.f_lineno - 1
    assert [(one.filename, one.lineno) for one in shown] == [(__file__, line)]


@KINDS
def test_transports_without_retries_of_their_own_are_taken_without_a_word(
    kind: type[Any], shown: list[warnings.WarningMessage]
) -> None:
    RetryTransport()
    RetryTransport(kind(verify=False))
    RetryTransport(kind(retries=0, verify=False))
    RetryTransport(ScriptedTransport())
    RetryTransport(RetryTransport(kind(verify=False)))
    assert shown == []
