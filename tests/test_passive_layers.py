"""What a layer inside another knows, keeps and says, and which code counts as being inside."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from typing import Any

import anyio
import anyio.to_thread
import pytest

from httpx_safe_retry import (
    Budget,
    DeadlineExceededError,
    Outcome,
    RequestFinished,
    RetryError,
    RetryEvent,
    RetryPolicy,
    RetryScheduled,
    StopReason,
    UncertainWriteError,
    deadline,
    get_report,
)
from httpx_safe_retry.testing import Reply, SentRequest, VirtualClock
from tests.drive import KEY, POLICY, URL, Drive, Sent, everywhere
from tests.library import RetryTransport, ScriptedTransport, httpx


def layered(
    drive: Drive,
    *script: Any,
    depth: int = 2,
    inner: RetryPolicy = POLICY,
    outer: RetryPolicy = POLICY,
    inner_events: list[Any] | None = None,
    method: str = "GET",
    **request: Any,
) -> Sent:
    """Send one request through a `RetryTransport` around others."""
    clock = VirtualClock()
    sent = Sent(ScriptedTransport(*script, clock=clock), clock)
    transport: Any = sent.script
    listeners = [] if inner_events is None else [inner_events.append]
    for _ in range(depth - 1):
        transport = RetryTransport(transport, policy=inner, clock=clock, listeners=listeners)
    transport = RetryTransport(transport, policy=outer, clock=clock, listeners=[sent.events.append])
    drive.through(transport, sent, method, **request)
    assert [reply for reply in sent.script.responses if reply.closes != 1] == []
    return sent


@everywhere
def test_a_passive_layer_keeps_a_report_of_its_one_attempt(drive: Drive) -> None:
    events: list[Any] = []
    sent = layered(drive, 503, Reply(body=b"done"), inner_events=events)
    assert sent.response.content == b"done"
    reports = [event.report for event in events if isinstance(event, RequestFinished)]
    assert [(len(report.attempts), report.stop_reason) for report in reports] == [
        (1, StopReason.DISABLED),
        (1, StopReason.DONE),
    ]


@everywhere
def test_the_layer_around_it_knows_what_a_passive_layer_has_found_out(drive: Drive) -> None:
    sent = layered(drive, httpx.ConnectError, 201, method="POST")
    assert sent.response.status_code == 201
    uncertain = layered(drive, httpx.ReadTimeout, 201, method="POST")
    assert isinstance(uncertain.error, UncertainWriteError)
    assert isinstance(uncertain.error, httpx.ReadTimeout)
    assert len(uncertain.requests) == 1
    keyed = layered(drive, httpx.ReadTimeout, 201, method="POST", headers=KEY)
    assert keyed.response.status_code == 201


@everywhere
def test_only_the_outermost_layer_warns_of_an_uncertain_write(
    drive: Drive, caplog: pytest.LogCaptureFixture
) -> None:
    layered(drive, 503, 200, method="PUT")
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    layered(drive, 503, method="POST")
    warned = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warned) == 1


# A request of its own, on the way of another ------------------------------------------------------


def on_the_way(
    drive: Drive,
    *script: Any,
    method: str = "POST",
    url: str = "https://payments.test/charge",
    policy: RetryPolicy = POLICY,
    original: str = "GET",
    budget: Budget | None = None,
) -> tuple[list[RetryEvent], list[SentRequest], Sent]:
    """Send one request of its own out of each attempt of another, with that one's extensions, and
    answer with what it gave; return its events and what was sent of it.
    """
    clock, events = VirtualClock(), list[RetryEvent]()
    played = ScriptedTransport(*script, clock=clock)
    inside: Any = RetryTransport(
        played, policy=policy, budget=budget, clock=clock, listeners=[events.append]
    )

    def own(request: httpx.Request) -> httpx.Request:
        return httpx.Request(method, url, content=b"{}", extensions=request.extensions)

    def answer(request: httpx.Request) -> Any:
        try:
            return inside.handle_request(own(request)).status_code
        except RetryError:
            return 502

    async def answer_async(request: httpx.Request) -> Any:
        try:
            return (await inside.handle_async_request(own(request))).status_code
        except RetryError:
            return 502

    replies = [answer if drive.backend is None else answer_async] * 3
    sent = drive.send(*replies, method=original, clock=clock, listen=True)
    return events, played.requests, sent


@everywhere
def test_an_uncertain_write_on_the_way_is_warned_of_and_told_as_a_request_of_its_own(
    drive: Drive, caplog: pytest.LogCaptureFixture
) -> None:
    events, requests, sent = on_the_way(drive, httpx.ReadTimeout, 201)
    assert (sent.response.status_code, len(requests)) == (201, 2)
    assert {event.passive for event in events} == {False}
    warned = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.message.split(":")[:2] for record in warned] == [
        ["POST https", "//payments.test/charge may have happened"]
    ]


@everywhere
def test_no_layer_but_the_outermost_sends_a_request_on_the_way_again(drive: Drive) -> None:
    events, requests, sent = on_the_way(drive, 503, 503, 503, method="GET")
    assert (sent.response.status_code, len(requests)) == (503, 3)
    assert [event for event in events if isinstance(event, RetryScheduled)] == []


@everywhere
@pytest.mark.parametrize(
    ("method", "url", "passive"),
    [
        ("GET", URL, True),
        ("GET", "https://EXAMPLE.org:443/path#part", True),
        ("HEAD", URL, False),
        ("GET", "http://example.org/path", False),
        ("GET", "https://example.com/path", False),
        ("GET", "https://example.org:8443/path", False),
        ("GET", "https://example.org/other", False),
        ("GET", f"{URL}?page=2", False),
    ],
)
def test_it_is_the_same_request_if_method_and_url_are(
    drive: Drive, method: str, url: str, passive: bool
) -> None:
    events, _, _ = on_the_way(drive, 200, method=method, url=url)
    assert {event.passive for event in events} == {passive}


def test_a_request_that_the_transport_around_it_rewrites_stays_the_same() -> None:
    events: list[RetryEvent] = []
    inside = RetryTransport(ScriptedTransport(200), listeners=[events.append])

    class Signs(httpx.BaseTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            request.url = request.url.copy_merge_params({"signature": "1"})
            return inside.handle_request(request)

    with httpx.Client(transport=RetryTransport(Signs())) as client:
        client.get(URL)
    assert {event.passive for event in events} == {True}


@everywhere
def test_a_request_on_the_way_that_raises_on_failure_does_so(drive: Drive) -> None:
    raising = POLICY.replace(raise_on_failure=True)
    _, _, sent = on_the_way(drive, 404, policy=raising, original="POST")
    assert sent.response.status_code == 502


class Deposits:
    """A budget that remembers for which origins requests were deposited."""

    def __init__(self) -> None:
        self.origins: list[object] = []

    def deposit(self, origin: object) -> None:
        self.origins.append(origin)

    def withdraw(self, origin: object) -> bool:
        raise AssertionError


@everywhere
def test_a_request_on_the_way_counts_for_the_budget_of_where_it_goes(drive: Drive) -> None:
    budget = Deposits()
    on_the_way(drive, 201, budget=budget)
    assert budget.origins == [("https", "payments.test", None)]
    on_the_way(drive, 200, method="GET", url=URL, budget=budget)
    assert len(budget.origins) == 1


@everywhere
def test_a_request_on_the_way_counts_its_attempts_anew(drive: Drive) -> None:
    _, requests, _ = on_the_way(drive, 503, 200, method="GET")
    assert [request.extensions.get("retry_attempt") for request in requests] == [None, None]
    _, requests, _ = on_the_way(drive, 503, 200, method="GET", url=URL)
    assert [request.extensions.get("retry_attempt") for request in requests] == [None, 2]


def test_extensions_that_a_later_request_is_given_do_not_number_it() -> None:
    extensions = {"retry_attempt": 2, "other": 1}
    script = ScriptedTransport(200)
    RetryTransport(script).handle_request(httpx.Request("GET", URL, extensions=extensions))
    assert script.requests[0].extensions == {"other": 1}
    assert extensions == {"retry_attempt": 2, "other": 1}


@everywhere
def test_an_error_of_the_callers_body_passes_through_all_layers(drive: Drive) -> None:
    raised = ValueError("in the body")
    sent = layered(drive, 200, depth=3, method="PUT", content=drive.body(b"1", raised))
    assert sent.error is raised


@everywhere
def test_a_one_shot_body_is_replayed_through_all_layers(drive: Drive) -> None:
    body = drive.body(b"12", b"34")
    sent = layered(drive, 503, 503, 200, depth=3, method="PUT", content=body)
    assert [request.body for request in sent.requests] == [b"1234"] * 3


@everywhere
def test_layers_share_the_deadline_of_the_outermost(drive: Drive) -> None:
    sent = layered(
        drive,
        Reply(delay=2, status=503),
        200,
        inner=POLICY.replace(deadline=50),
        outer=POLICY.replace(deadline=10),
        timeout=None,
    )
    assert [request.timeouts["read"] for request in sent.requests] == [10.0, 7.0]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_thread_of_the_attempt_is_within_it(backend: str) -> None:
    clock = VirtualClock()
    script = ScriptedTransport(503, 503, 503)
    inside = RetryTransport(script, policy=POLICY, clock=clock)

    async def answer(request: httpx.Request) -> int:
        response = await anyio.to_thread.run_sync(inside.handle_request, httpx.Request("GET", URL))
        return response.status_code

    outside = RetryTransport(ScriptedTransport(answer, answer, answer), policy=POLICY, clock=clock)

    async def main() -> httpx.Response:
        return await outside.handle_async_request(httpx.Request("GET", URL))

    assert anyio.run(main, backend=backend).status_code == 503
    assert len(script.requests) == 3


def test_another_thread_is_not() -> None:
    clock = VirtualClock()
    script = ScriptedTransport(503, 503, 200)
    inside = RetryTransport(script, policy=POLICY, clock=clock)

    def answer(request: httpx.Request) -> int:
        statuses: list[int] = []
        thread = threading.Thread(
            target=lambda: statuses.append(
                inside.handle_request(httpx.Request("GET", URL)).status_code
            )
        )
        thread.start()
        thread.join()
        return statuses[0]

    outside = RetryTransport(ScriptedTransport(answer), policy=POLICY, clock=clock)
    assert outside.handle_request(httpx.Request("GET", URL)).status_code == 200
    assert len(script.requests) == 3


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_task_that_an_attempt_leaves_behind_keeps_nothing_of_the_request(backend: str) -> None:
    kept: list[object] = []

    async def main() -> None:
        async with anyio.create_task_group() as tasks:

            async def answer(request: httpx.Request) -> int:
                tasks.start_soon(anyio.sleep_forever)
                return 200

            async def send() -> weakref.ref[httpx.Request]:
                request = httpx.Request("POST", URL, content=b"x" * 1000)
                await transport.handle_async_request(request)
                return weakref.ref(request)

            transport = RetryTransport(ScriptedTransport(answer), policy=POLICY)
            reference = await send()
            gc.collect()
            kept.append(reference())
            tasks.cancel_scope.cancel()

    anyio.run(main, backend=backend)
    assert kept == [None]


@everywhere
def test_a_layer_inside_that_is_not_passive_is_believed(drive: Drive) -> None:
    """One that runs in another thread, say: it has sent more often than we can see."""
    clock = VirtualClock()

    def answer(request: httpx.Request) -> Any:
        inner = RetryTransport(
            ScriptedTransport(httpx.ReadTimeout, httpx.ConnectError, clock=clock),
            policy=POLICY.replace(max_attempts=2),
            clock=clock,
        )
        errors: list[BaseException] = []

        def send() -> None:
            try:
                inner.handle_request(httpx.Request("POST", URL, headers=KEY))
            except RetryError as error:
                errors.append(error)

        thread = threading.Thread(target=send)
        thread.start()
        thread.join()
        raise errors[0]

    sent = drive.send(answer, 201, method="POST")
    assert isinstance(sent.error, UncertainWriteError)
    assert isinstance(sent.error, httpx.ConnectError)
    assert len(sent.requests) == 1


@everywhere
def test_a_layer_inside_that_has_sent_nothing_is_believed_too(drive: Drive) -> None:
    def answer(request: httpx.Request) -> Any:
        clock = VirtualClock()
        with deadline(1, clock=clock):
            clock.advance(2)
            with pytest.raises(DeadlineExceededError) as caught:
                RetryTransport(ScriptedTransport(), clock=clock).handle_request(request)
        assert isinstance(caught.value, httpx.TimeoutException)
        return caught.value

    sent = drive.send(answer, 201, method="POST")
    assert sent.response.status_code == 201
    assert sent.report.attempts[0].error_type == "DeadlineExceededError"


def test_the_report_on_a_response_is_that_of_the_outermost_layer() -> None:
    clock = VirtualClock()
    inner = RetryTransport(ScriptedTransport(503, 200), policy=POLICY, clock=clock)
    outer = RetryTransport(inner, policy=POLICY, clock=clock)
    report = get_report(outer.handle_request(httpx.Request("GET", URL)))
    assert (report.outcome, len(report.attempts)) == (Outcome.SUCCESS, 2)
