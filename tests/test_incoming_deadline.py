"""The server's side of a deadline: what came in a header holds for all that the server asks of
others, and no value of it breaks the server.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import anyio
import pytest

from httpx_safe_retry import (
    DeadlineExceededError,
    Outcome,
    RetryError,
    RetryPolicy,
    StopReason,
    deadline,
    get_report,
    incoming_deadline,
)
from httpx_safe_retry.testing import (
    Fault,
    LoopbackServer,
    Reply,
    ServerRequest,
    ServerResponse,
    VirtualClock,
)
from tests.drive import POLICY, SYNC, Drive, everywhere
from tests.library import RetryTransport, ScriptedTransport, httpx

LEFT = "X-Milliseconds-Left"

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

# What a value means -------------------------------------------------------------------------------


@everywhere
def test_requests_inside_share_what_the_header_says_is_left(drive: Drive) -> None:
    clock = VirtualClock()
    with incoming_deadline("2500", clock=clock):
        first = drive.send(503, 200, clock=clock)
        assert (first.response.status_code, first.waits) == (200, [1.0])
        second = drive.send(503, 503, 200, clock=clock)
    # 1.5 s were left: enough for a wait of one second, and not for the two seconds after it.
    assert (second.report.outcome, second.report.stop_reason) == (
        Outcome.DEADLINE_EXCEEDED,
        StopReason.DEADLINE,
    )
    assert (len(second.requests), clock.monotonic()) == (2, 2.0)


@everywhere
def test_each_attempt_gets_no_more_time_than_is_left(drive: Drive) -> None:
    clock = VirtualClock()
    with incoming_deadline("2500", clock=clock):
        sent = drive.send(503, 200, clock=clock, client={"timeout": 60.0})
    assert [one.timeouts["read"] for one in sent.requests] == [2.5, 1.5]


@everywhere
def test_a_slow_answer_is_not_waited_for(drive: Drive) -> None:
    clock = VirtualClock()
    with incoming_deadline("700", clock=clock):
        sent = drive.send(Reply(delay=math.inf), clock=clock, client={"timeout": 60.0})
    assert isinstance(sent.error, DeadlineExceededError)
    assert isinstance(sent.error, httpx.ReadTimeout)


@everywhere
@pytest.mark.parametrize("value", ["0", "00", "000000"])
def test_zero_means_that_time_is_up_and_nothing_is_sent(drive: Drive, value: str) -> None:
    clock = VirtualClock()
    with incoming_deadline(value, clock=clock):
        sent = drive.send(200, clock=clock)
    assert isinstance(sent.error, DeadlineExceededError)
    assert (sent.requests, sent.report.executed, clock.sleeps) == ([], False, [])


MALFORMED = [
    None,
    "",
    " ",
    "soon",
    "-1",
    "-0",
    "+5",
    "1.5",
    " 5",
    "5 ",
    "5,6",
    "5, 5",
    "1e3",
    "0x10",
    "1_000",
    "nan",
    "inf",
    "５",  # noqa: RUF001 - a full-width digit, as only somebody who means it would send
    "٣",
    "²",
    "5\x00",
    "9" * 16,
    "9" * 5000,
]


@everywhere
@pytest.mark.parametrize("value", MALFORMED, ids=repr)
def test_missing_or_malformed_sets_no_deadline(drive: Drive, value: str | None) -> None:
    clock = VirtualClock()
    with incoming_deadline(value, clock=clock):
        sent = drive.send(503, 503, 200, clock=clock, client={"timeout": 60.0})
    assert (sent.response.status_code, sent.waits) == (200, [1.0, 2.0])
    assert [one.timeouts["read"] for one in sent.requests] == [60.0] * 3


@everywhere
@pytest.mark.parametrize("value", ["1", "86400000", "9" * 10, "9" * 15])
def test_no_value_breaks_a_request_on_a_socket(drive: Drive, value: str) -> None:
    outcome: httpx.Response | Exception | None = None
    with LoopbackServer() as server, incoming_deadline(value):
        try:
            outcome = fetch(drive, server.url)
        except RetryError as error:
            outcome = error
    if value == "1":
        assert isinstance(outcome, (httpx.Response, DeadlineExceededError))
    else:
        assert isinstance(outcome, httpx.Response)


@everywhere
@pytest.mark.parametrize("seconds", [2_147_484, 4_294_967.4, 1e12])
def test_a_timeout_that_a_socket_would_take_for_another_is_not_made_of_it(
    drive: Drive, seconds: float
) -> None:
    """poll() takes an int of milliseconds: what is longer than 24 days wraps around."""
    clock = VirtualClock()
    with incoming_deadline(str(int(seconds * 1000)), clock=clock):
        endless = drive.send(200, clock=clock, client={"timeout": None})
        own = drive.send(200, clock=clock, client={"timeout": 5.0})
    assert set(endless.requests[0].timeouts.values()) == {None}
    assert set(own.requests[0].timeouts.values()) == {5.0}


def fetch(drive: Drive, url: str) -> httpx.Response:
    if drive.backend is None:
        transport = RetryTransport(httpx.HTTPTransport(verify=False))
        with httpx.Client(transport=transport, timeout=None) as client:
            return client.get(url)

    async def main() -> httpx.Response:
        transport = RetryTransport(httpx.AsyncHTTPTransport(verify=False))
        async with httpx.AsyncClient(transport=transport, timeout=None) as client:
            return await client.get(url)

    return anyio.run(main, backend=drive.backend)


# Nesting ------------------------------------------------------------------------------------------


@everywhere
@pytest.mark.parametrize(
    ("outer", "inner"), [("2500", "9000"), ("9000", "2500"), ("2500", None), ("2500", "-1")]
)
def test_the_soonest_of_two_headers_wins(drive: Drive, outer: str, inner: str | None) -> None:
    clock = VirtualClock()
    with incoming_deadline(outer, clock=clock), incoming_deadline(inner, clock=clock):
        sent = drive.send(503, 200, clock=clock, client={"timeout": 60.0})
    assert [one.timeouts["read"] for one in sent.requests] == [2.5, 1.5]


@everywhere
def test_it_can_only_shorten_a_deadline_around_it_and_the_other_way_round(drive: Drive) -> None:
    clock = VirtualClock()
    timeouts: list[float | None] = []

    def send() -> None:
        sent = drive.send(200, clock=clock, client={"timeout": 60.0})
        timeouts.append(sent.requests[0].timeouts["read"])

    with deadline(3, clock=clock):
        with incoming_deadline("5000", clock=clock):
            send()
        with incoming_deadline("1000", clock=clock):
            send()
            with deadline(2, clock=clock):
                send()
            with deadline(0.5, clock=clock):
                send()
        send()
    send()
    assert timeouts == [3.0, 1.0, 1.0, 0.5, 3.0, 60.0]


@everywhere
def test_the_requests_own_deadline_counts_too(drive: Drive) -> None:
    clock = VirtualClock()
    with incoming_deadline("2500", clock=clock):
        sooner = drive.send(200, clock=clock, extensions={"retry": {"deadline": 1.0}})
        later = drive.send(200, clock=clock, extensions={"retry": {"deadline": 5.0}})
    assert sooner.requests[0].timeouts["read"] == 1.0
    assert later.requests[0].timeouts["read"] == 2.5


@everywhere
def test_it_holds_for_a_request_without_retries_as_well(drive: Drive) -> None:
    clock = VirtualClock()
    with incoming_deadline("2500", clock=clock):
        sent = drive.send(200, clock=clock, extensions={"retry": None})
    assert sent.requests[0].timeouts["read"] == 2.5


def test_it_ends_with_its_block_even_if_that_raises() -> None:
    clock = VirtualClock()
    with pytest.raises(ZeroDivisionError), incoming_deadline("0", clock=clock):
        raise ZeroDivisionError
    assert SYNC.send(200, clock=clock).response.status_code == 200


def test_it_holds_for_its_own_thread_alone() -> None:
    statuses: list[int] = []

    def other() -> None:
        statuses.append(SYNC.send(200).response.status_code)

    with incoming_deadline("0"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert statuses == [200]


@pytest.mark.anyio
async def test_it_holds_for_tasks_started_inside_and_for_no_other(anyio_backend: str) -> None:
    clock = VirtualClock()
    script = ScriptedTransport(*[200] * 3, clock=clock)
    outside = anyio.Event()
    timeouts: list[float | None] = []
    transport = RetryTransport(script, clock=clock, policy=POLICY)
    async with httpx.AsyncClient(transport=transport, timeout=60.0) as client:

        async def send() -> None:
            await client.get("http://a.test/")
            timeouts.append(script.requests[-1].timeouts["read"])

        async def late() -> None:
            await outside.wait()
            await send()

        async with anyio.create_task_group() as around:
            around.start_soon(late)
            with incoming_deadline("2500", clock=clock):
                async with anyio.create_task_group() as inside:
                    inside.start_soon(send)
                outside.set()
                await anyio.wait_all_tasks_blocked()
                await send()
    assert timeouts == [2.5, 60.0, 2.5]


# There and back -----------------------------------------------------------------------------------


@everywhere
def test_what_the_client_tells_is_what_the_server_keeps_to(drive: Drive) -> None:
    """Rounded down to whole milliseconds: more than there is would be a promise nobody keeps."""
    clock = VirtualClock()
    policy = POLICY.replace(deadline=2.5009, deadline_header=LEFT)
    told = drive.send(503, 200, clock=clock, policy=policy).requests
    values = [one.headers[LEFT] for one in told]
    assert values == ["2500", "1500"]
    with incoming_deadline(values[1], clock=clock):
        sent = drive.send(200, clock=clock, client={"timeout": 60.0})
    assert sent.requests[0].timeouts["read"] == 1.5


@everywhere
def test_less_than_a_millisecond_is_told_as_none_at_all(drive: Drive) -> None:
    clock = VirtualClock()
    policy = POLICY.replace(deadline=1.0009, deadline_header=LEFT)
    told = drive.send(503, 200, clock=clock, policy=policy).requests
    assert [one.headers[LEFT] for one in told] == ["1000", "0"]


class Service:
    """An ASGI service that asks another server, in the time that its own caller has left.

    It is a plain callable of three arguments: what every ASGI framework comes down to.
    """

    def __init__(self, downstream: str, *, passes_it_on: bool = True) -> None:
        self.downstream = downstream
        self.passes_it_on = passes_it_on
        self.reports: list[tuple[Outcome, int, float]] = []
        """Of each request that it sent: the outcome, the attempts, the seconds."""

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        headers = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
        left = headers.get(LEFT.lower()) if self.passes_it_on else None
        policy = RetryPolicy(backoff=lambda retry: 0.01)
        transport = RetryTransport(httpx.AsyncHTTPTransport(verify=False), policy=policy)
        with incoming_deadline(left):
            # A timeout of its own that is longer than any test should take.
            async with httpx.AsyncClient(transport=transport, timeout=30.0) as client:
                try:
                    report = get_report(await client.get(self.downstream))
                    status = report.attempts[-1].status or 500
                except RetryError as error:
                    report, status = error.report, 504
        self.reports.append((report.outcome, len(report.attempts), report.elapsed))
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})


def over_a_socket(service: Service) -> LoopbackServer:
    """The service on a socket, in threads of their own, as a server would run it."""

    def handle(request: ServerRequest) -> ServerResponse:
        async def call() -> httpx.Response:
            transport = httpx.ASGITransport(service)
            async with httpx.AsyncClient(transport=transport) as inside:
                url = f"http://service.test{request.path}"
                return await inside.request(request.method, url, headers=request.headers)

        response = anyio.run(call)
        return ServerResponse(status=response.status_code, body=response.content)

    return LoopbackServer(handler=handle)


GATEWAY = RetryPolicy(deadline=0.3, deadline_header=LEFT, backoff=lambda retry: 0.01)
SILENCE = Fault(by="silence")


@pytest.mark.anyio
async def test_an_asgi_service_stops_asking_when_its_caller_has_stopped_waiting(
    anyio_backend: str,
) -> None:
    with LoopbackServer(SILENCE, repeat=True) as downstream:
        service = Service(downstream.url)
        with over_a_socket(service) as server:
            transport = RetryTransport(httpx.AsyncHTTPTransport(verify=False), policy=GATEWAY)
            async with httpx.AsyncClient(transport=transport) as client:
                try:
                    response = await client.get(server.url)
                    # The service stopped first, and its answer was just in time.
                    assert response.status_code == 504
                    report = get_report(response)
                except DeadlineExceededError as error:
                    report = error.report
    assert (report.outcome, report.elapsed < 5) == (Outcome.DEADLINE_EXCEEDED, True)
    # Leaving the server has waited for its threads: the service is done, long before its timeout.
    ((outcome, attempts, elapsed),) = service.reports
    assert (outcome, attempts) == (Outcome.DEADLINE_EXCEEDED, 1)
    assert elapsed < 5


@pytest.mark.anyio
async def test_in_the_same_task_the_service_is_ended_with_its_caller(anyio_backend: str) -> None:
    with LoopbackServer(SILENCE, repeat=True) as downstream:
        transport = RetryTransport(httpx.ASGITransport(Service(downstream.url)), policy=GATEWAY)
        async with httpx.AsyncClient(transport=transport) as client:
            try:
                report = get_report(await client.get("http://service.test/"))
            except DeadlineExceededError as error:
                report = error.report
        assert (report.outcome, report.elapsed < 5) == (Outcome.DEADLINE_EXCEEDED, True)
        assert len(downstream.requests) == 1


@pytest.mark.anyio
async def test_a_service_with_time_left_answers_as_if_there_was_no_deadline(
    anyio_backend: str,
) -> None:
    policy = GATEWAY.replace(deadline=20.0)
    with LoopbackServer(503, 200) as downstream:
        service = Service(downstream.url)
        with over_a_socket(service) as server:
            transport = RetryTransport(httpx.AsyncHTTPTransport(verify=False), policy=policy)
            async with httpx.AsyncClient(transport=transport) as client:
                response = await client.get(server.url)
    assert (response.status_code, len(get_report(response).attempts)) == (200, 1)
    assert [(outcome, attempts) for outcome, attempts, _ in service.reports] == [
        (Outcome.SUCCESS, 2)
    ]
