"""Deadlines and whatever else ends a wait early: no attempt starts too late, none is waited for in
vain.

Real time passes in few tests only, and there with wide margins.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import ExitStack
from typing import Any

import anyio
import pytest

from httpx_safe_retry import (
    AttemptStarted,
    Backoff,
    DeadlineExceededError,
    Outcome,
    RetriesExhaustedError,
    RetryError,
    RetryPolicy,
    StopReason,
    UncertainWriteError,
    deadline,
    get_report,
)
from httpx_safe_retry.testing import Reply, VirtualClock
from tests.drive import KEY, POLICY, URL, Drive, Sent, everywhere
from tests.library import RetryTransport, ScriptedTransport, httpx

AT_ONCE = POLICY.replace(backoff=Backoff(base=0, cap=0, jitter="none"))
NEVER_ANSWERS = Reply(delay=math.inf)
NAMES = ("connect", "read", "write", "pool")


# --- the policy's deadline


@everywhere
def test_a_wait_that_does_not_fit_is_not_begun(drive: Drive) -> None:
    policy = RetryPolicy(deadline=5, backoff=lambda number: 10)
    sent = drive.send(503, 200, policy=policy)
    assert (sent.response.status_code, sent.waits) == (503, [])
    assert (sent.report.outcome, sent.report.stop_reason) == (
        Outcome.DEADLINE_EXCEEDED,
        StopReason.DEADLINE,
    )
    assert (sent.report.elapsed, sent.report.deadline) == (0, 5)


@everywhere
def test_an_attempt_that_burns_the_deadline_is_the_last(drive: Drive) -> None:
    sent = drive.send(NEVER_ANSWERS, 200, policy=AT_ONCE.replace(deadline=3))
    assert isinstance(sent.error, DeadlineExceededError)
    assert isinstance(sent.error, httpx.ReadTimeout)
    assert (sent.waits, sent.clock.monotonic()) == ([], 3.0)


@everywhere
def test_every_timeout_is_cut_to_what_is_left(drive: Drive) -> None:
    policy = AT_ONCE.replace(deadline=45)
    sent = drive.send(*[NEVER_ANSWERS] * 3, policy=policy, timeout=30)
    assert [request.timeouts for request in sent.requests] == [
        dict.fromkeys(NAMES, 30.0),
        dict.fromkeys(NAMES, 15.0),
    ]
    assert isinstance(sent.error, DeadlineExceededError)
    assert sent.clock.monotonic() == 45.0


@everywhere
def test_a_timeout_is_cut_where_there_is_none_and_left_where_it_is_shorter(drive: Drive) -> None:
    timeout = httpx.Timeout(None, connect=2)
    sent = drive.send(NEVER_ANSWERS, policy=AT_ONCE.replace(deadline=10), timeout=timeout)
    (request,) = sent.requests
    assert request.timeouts == {"connect": 2, "read": 10.0, "write": 10.0, "pool": 10.0}


@everywhere
@pytest.mark.parametrize("status", [200, 404, 503])
@pytest.mark.parametrize("classify", [None, lambda request, result: None])
def test_an_answer_that_is_handed_out_is_read_with_the_callers_timeouts(
    drive: Drive, status: int, classify: Any
) -> None:
    held: list[Any] = []

    def answer(request: httpx.Request) -> Reply:
        held.append(request.extensions["timeout"])
        return Reply(status=status, body=[b"data: 1", b"data: 2"])

    policy = AT_ONCE.replace(deadline=2, max_attempts=1, classify=classify)
    timeout = httpx.Timeout(None, connect=1)
    sent = drive.send(answer, policy=policy, timeout=timeout, stream="iter_raw")
    assert sent.requests[0].timeouts == {"connect": 1, "read": 2, "write": 2, "pool": 2}
    assert held == [{"connect": 1, "read": None, "write": None, "pool": None}]


@everywhere
def test_without_a_deadline_every_attempt_has_the_callers_timeouts(drive: Drive) -> None:
    sent = drive.send(503, 200, timeout=httpx.Timeout(None, read=7))
    expected = {"connect": None, "read": 7, "write": None, "pool": None}
    assert [request.timeouts for request in sent.requests] == [expected, expected]
    assert sent.report.deadline is None


def test_a_request_without_timeouts_is_given_them_by_the_deadline_alone() -> None:
    script = ScriptedTransport(503, 200)
    transport = RetryTransport(script, policy=AT_ONCE, clock=VirtualClock())
    request = httpx.Request("GET", URL)
    transport.handle_request(request)
    assert (request.extensions, script.requests[0].extensions) == ({}, {})
    assert script.requests[1].timeouts == dict.fromkeys(NAMES)
    script = ScriptedTransport(200)
    RetryTransport(script, policy=AT_ONCE.replace(deadline=3)).handle_request(request)
    assert all(0 < (value or 0) <= 3 for value in script.requests[0].timeouts.values())
    assert request.extensions == {}


@everywhere
@pytest.mark.parametrize("answer", ["stop", "backoff"])
def test_a_server_that_asks_for_more_than_is_left(drive: Drive, answer: Any) -> None:
    policy = POLICY.replace(
        deadline=300,
        max_attempts=20,
        retry_after_max=600,
        retry_after_past_deadline=answer,
    )
    busy = Reply(status=429, headers={"Retry-After": "120"})
    sent = drive.send(*[busy] * 20, policy=policy, budget=None)
    waits = {"stop": [120.0, 120.0], "backoff": [120.0, 120.0, 4.0, 8.0, 16.0]}[answer]
    assert sent.waits == waits
    assert sent.report.stop_reason is StopReason.DEADLINE
    assert sent.report.elapsed < 300


@everywhere
def test_no_retry_starts_with_less_time_than_it_needs(drive: Drive) -> None:
    policy = POLICY.replace(deadline=2, min_attempt_time=1)
    assert drive.send(503, policy=policy).report.stop_reason is StopReason.DEADLINE
    policy = policy.replace(min_attempt_time=0.9)
    assert drive.send(503, 200, policy=policy).response.status_code == 200


@everywhere
def test_the_error_names_attempts_and_limit(drive: Drive) -> None:
    slow = Reply(delay=20, error=httpx.ReadError)
    policy = AT_ONCE.replace(deadline=45, max_attempts=10)
    sent = drive.send(slow, slow, NEVER_ANSWERS, policy=policy, timeout=None)
    assert isinstance(sent.error, DeadlineExceededError)
    assert "3 of 10" in str(sent.error)
    assert "45 s" in str(sent.error)


@everywhere
def test_a_write_that_the_deadline_ends_is_uncertain(drive: Drive) -> None:
    policy = AT_ONCE.replace(deadline=3)
    sent = drive.send(NEVER_ANSWERS, method="POST", headers=KEY, policy=policy)
    assert isinstance(sent.error, UncertainWriteError)
    assert isinstance(sent.error, httpx.ReadTimeout)
    assert (sent.report.stop_reason, sent.report.replay_safe) == (StopReason.DEADLINE, True)


@everywhere
def test_a_retry_that_was_due_in_time_but_comes_too_late_is_not_sent(drive: Drive) -> None:
    def oversleep(sent: Sent) -> None:
        sent.clock.advance(5)

    policy = POLICY.replace(deadline=3)
    sent = drive.send(Reply(status=503, body=b"why"), policy=policy, on_wait=oversleep)
    assert isinstance(sent.error, DeadlineExceededError)
    assert isinstance(sent.error, httpx.HTTPStatusError)
    assert sent.error.response.content == b"why"
    assert get_report(sent.error.response) is sent.report
    assert len(sent.requests) == 1


def test_a_clock_that_stands_on_the_deadline_lets_no_attempt_start() -> None:
    """The time between one look at the clock and the next must not let a timeout of 0 through."""
    clock = VirtualClock()
    script = ScriptedTransport(503)

    class Ticking(VirtualClock):
        def monotonic(self) -> float:
            now = super().monotonic()
            if self.sleeps:
                self.advance(0.0625)
            return now

    clock = Ticking()
    policy = POLICY.replace(deadline=1 + 0.0625, backoff=lambda number: 1)
    transport = RetryTransport(script, policy=policy, clock=clock)
    with pytest.raises(DeadlineExceededError):
        transport.handle_request(httpx.Request("GET", URL))
    assert len(script.requests) == 1


# --- a thread's deadline while a body is read


def test_a_body_that_comes_drop_by_drop_ends_at_the_deadline() -> None:
    clock = VirtualClock()
    timeouts: list[float] = []

    def answer(request: httpx.Request) -> Reply:
        def drops() -> Iterator[bytes]:
            timeouts.append(request.extensions["timeout"]["read"])
            for _ in range(1000):
                clock.advance(1)
                yield b"x"

        return Reply(headers={"Content-Length": "1000"}, body=drops(), delay=2)

    script = ScriptedTransport(answer, clock=clock)
    transport = RetryTransport(script, policy=AT_ONCE.replace(deadline=10), clock=clock)
    with pytest.raises(DeadlineExceededError) as caught:
        transport.handle_request(httpx.Request("GET", URL, extensions={"timeout": {"read": 9}}))
    assert isinstance(caught.value, httpx.ReadTimeout)
    assert caught.value.report.attempts[0].status == 200
    assert clock.monotonic() == 10.0
    assert timeouts == [8.0]
    script.assert_done()


def test_a_body_that_is_whole_is_taken_however_late() -> None:
    clock = VirtualClock()

    def late() -> Iterator[bytes]:
        yield b"12"
        clock.advance(20)
        yield b"345"

    reply = Reply(headers={"Content-Length": "5"}, body=late())
    transport = RetryTransport(
        ScriptedTransport(reply), policy=AT_ONCE.replace(deadline=10), clock=clock
    )
    assert transport.handle_request(httpx.Request("GET", URL)).read() == b"12345"


# --- deadline(...)


@everywhere
def test_requests_in_a_block_share_what_is_left(drive: Drive) -> None:
    clock = VirtualClock()
    with deadline(4, clock=clock):
        first = drive.send(503, 503, 200, clock=clock)
        assert first.response.status_code == 200
        second = drive.send(503, clock=clock)
        third = drive.send(Reply(delay=math.inf), clock=clock)
        fourth = drive.send(200, clock=clock)
    assert second.report.stop_reason is StopReason.DEADLINE
    assert third.requests[0].timeouts["read"] == 1.0
    assert isinstance(fourth.error, DeadlineExceededError)
    assert isinstance(fourth.error, httpx.TimeoutException)
    assert (fourth.requests, fourth.report.attempts) == ([], ())
    assert drive.send(200, clock=clock).response.status_code == 200


@everywhere
@pytest.mark.parametrize(
    ("policy", "outer", "inner", "left"),
    [(3, 9, 9, 3), (9, 3, 9, 3), (9, 9, 3, 3), (None, 3, 9, 3)],
)
def test_the_soonest_deadline_wins(
    drive: Drive, policy: float | None, outer: float, inner: float, left: float
) -> None:
    clock = VirtualClock()
    with deadline(outer, clock=clock), deadline(inner, clock=clock):
        sent = drive.send(200, policy=POLICY.replace(deadline=policy), clock=clock, timeout=None)
    assert sent.requests[0].timeouts["read"] == left
    assert sent.report.deadline == left


@everywhere
def test_a_block_holds_where_retries_are_off(drive: Drive) -> None:
    clock = VirtualClock()
    policy = POLICY.replace(deadline=1)
    with deadline(3, clock=clock):
        sent = drive.send(200, clock=clock, timeout=None, policy=policy, extensions={"retry": None})
    assert sent.requests[0].timeouts["read"] == 3.0


@everywhere
def test_a_block_spans_redirects_and_the_rounds_of_authentication(drive: Drive) -> None:
    class TwoRounds(httpx.Auth):
        def auth_flow(
            self, request: httpx.Request
        ) -> Generator[httpx.Request, httpx.Response, None]:
            response = yield request
            if response.status_code == 401:
                token = yield httpx.Request("GET", "https://example.org/token")
                assert token.status_code == 200
                yield httpx.Request("GET", "https://example.org/again")

    clock = VirtualClock()
    script = ScriptedTransport(
        Reply(status=401, delay=1),
        503,  # the token's first attempt: a wait of 1 s
        Reply(delay=1),
        Reply(status=302, headers={"Location": "/b"}, delay=1),
        Reply(delay=1),
        clock=clock,
    )
    sent = Sent(script, clock)
    # One clock for what a request may take, which each of them would have for itself.
    transport = RetryTransport(script, policy=POLICY.replace(deadline=100), clock=clock)
    with deadline(10, clock=clock):
        built: dict[str, Any] = {"auth": TwoRounds(), "follow_redirects": True, "timeout": None}
        drive.through(transport, sent, client=built)
    assert sent.response.status_code == 200
    paths = [request.url.path for request in script.requests]
    assert paths == ["/path", "/token", "/token", "/again", "/b"]
    assert [request.timeouts.get("read") for request in script.requests] == [10, 9, 8, 7, 6]
    script.assert_done()


def test_a_block_holds_on_the_machines_own_clock() -> None:
    script = ScriptedTransport(200)
    with deadline(100), deadline(200):
        RetryTransport(script).handle_request(httpx.Request("GET", URL))
    assert 90 < (script.requests[0].timeouts["read"] or 0) <= 100


def test_a_block_holds_for_the_thread_that_entered_it_alone() -> None:
    script = ScriptedTransport(200)

    def other() -> None:
        RetryTransport(script).handle_request(httpx.Request("GET", URL))

    with deadline(5):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert script.requests[0].timeouts == {}


@pytest.mark.parametrize("seconds", [0, -1, math.nan, math.inf, "1", None, True])
def test_a_deadline_is_a_finite_number_above_zero(seconds: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="deadline must be"):
        deadline(seconds).__enter__()


# --- the header that passes it down


@everywhere
def test_the_server_is_told_the_milliseconds_that_are_left(drive: Drive) -> None:
    policy = POLICY.replace(deadline=10, deadline_header="X-Left")
    headers = [("x-left", "mine"), ("X-Left", "too")]
    slow = Reply(status=503, delay=0.25)
    sent = drive.send(slow, slow, 200, policy=policy, headers=headers)
    told = [request.headers.get_list("X-Left") for request in sent.requests]
    assert told == [["10000"], ["8750"], ["6500"]]


@everywhere
def test_the_header_is_left_alone_where_there_is_no_deadline(drive: Drive) -> None:
    policy = POLICY.replace(deadline_header="X-Left")
    sent = drive.send(503, 200, policy=policy, headers={"X-Left": "mine"})
    assert [request.headers["X-Left"] for request in sent.requests] == ["mine"] * 2


@everywhere
def test_a_deadline_beyond_all_bounds_breaks_nothing(drive: Drive) -> None:
    policy = POLICY.replace(deadline=1e308, deadline_header="X-Left")
    sent = drive.send(503, 200, policy=policy, timeout=None)
    assert sent.response.status_code == 200
    assert sent.requests[0].headers["X-Left"].isdigit()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_header_counts_the_scopes_around_the_task(backend: str) -> None:
    script = ScriptedTransport(503, 200, 200)
    policy = AT_ONCE.replace(deadline=500, deadline_header="X-Left")
    transport = RetryTransport(script, policy=policy, clock=VirtualClock())

    async def main() -> None:
        with anyio.fail_after(50):
            await transport.handle_async_request(httpx.Request("GET", URL))
        await transport.handle_async_request(httpx.Request("GET", URL))

    anyio.run(main, backend=backend)
    told = [int(request.headers["X-Left"]) for request in script.requests]
    assert 40_000 < told[0] <= 50_000
    assert 40_000 < told[1] <= 50_000
    assert told[2] == 500_000


# --- scopes around a task


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_wait_that_the_task_would_not_survive_is_not_begun(backend: str) -> None:
    script = ScriptedTransport(503, 200)
    transport = RetryTransport(script, policy=RetryPolicy(backoff=lambda number: 1000))

    async def main() -> httpx.Response:
        with anyio.fail_after(500):
            return await transport.handle_async_request(httpx.Request("GET", URL))

    response = anyio.run(main, backend=backend)
    report = get_report(response)
    assert (report.outcome, report.stop_reason) == (
        Outcome.DEADLINE_EXCEEDED,
        StopReason.DEADLINE,
    )
    assert len(script.requests) == 1


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_scope_that_ends_during_an_attempt_ends_the_request(backend: str) -> None:
    async def hang(request: httpx.Request) -> int:
        await anyio.sleep_forever()
        return 200

    events: list[Any] = []
    script = ScriptedTransport(hang, 200)
    transport = RetryTransport(script, policy=AT_ONCE, listeners=[events.append])

    async def main() -> None:
        with pytest.raises(TimeoutError):
            with anyio.fail_after(0.05):
                await transport.handle_async_request(httpx.Request("PUT", URL))
        assert (await transport.handle_async_request(httpx.Request("GET", URL))).status_code == 200

    anyio.run(main, backend=backend)
    report = events[2].report
    assert (report.outcome, report.stop_reason) == (
        Outcome.UNCERTAIN_WRITE,
        StopReason.CANCELLED,
    )


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("where", ["attempt", "body"])
def test_an_attempt_is_ended_at_the_deadline_whatever_it_does(backend: str, where: str) -> None:
    async def hang(request: httpx.Request) -> Reply:
        if where == "attempt":
            await anyio.sleep_forever()

        async def body() -> AsyncIterator[bytes]:
            yield b"12"
            await anyio.sleep_forever()

        return Reply(headers={"Content-Length": "5"}, body=body())

    script = ScriptedTransport(hang)
    transport = RetryTransport(script, policy=RetryPolicy(deadline=0.1))

    async def main() -> None:
        with pytest.raises(DeadlineExceededError) as caught:
            await transport.handle_async_request(httpx.Request("GET", URL))
        assert isinstance(caught.value, httpx.ReadTimeout)
        assert caught.value.report.attempts[0].status == (None if where == "attempt" else 200)

    began = time.monotonic()
    anyio.run(main, backend=backend)
    assert time.monotonic() - began < 5
    script.assert_done()


# --- the cancel event, and close()


@everywhere
def test_an_event_that_is_set_already_lets_nothing_be_sent(drive: Drive) -> None:
    cancel = threading.Event()
    cancel.set()
    sent = drive.send(200, extensions={"retry": {"cancel": cancel}}, method="POST")
    assert isinstance(sent.error, RetryError)
    assert (sent.report.outcome, sent.report.executed) == (Outcome.CANCELLED, False)
    assert sent.requests == []


@everywhere
@pytest.mark.parametrize(
    ("first", "kind"), [(503, httpx.HTTPStatusError), (httpx.ReadTimeout, httpx.ReadTimeout)]
)
def test_an_event_that_is_set_in_a_wait_lets_no_attempt_follow(
    drive: Drive, first: Any, kind: type[Exception]
) -> None:
    cancel = threading.Event()
    sent = drive.send(
        first, 200, extensions={"retry": {"cancel": cancel}}, on_wait=lambda sent: cancel.set()
    )
    assert isinstance(sent.error, RetryError)
    assert isinstance(sent.error, kind)
    assert (sent.report.outcome, sent.report.stop_reason) == (
        Outcome.CANCELLED,
        StopReason.CANCELLED,
    )
    assert len(sent.requests) == 1
    assert sent.report.slept == (0 if drive.backend is None else 1)


@everywhere
def test_a_cancelled_write_that_may_have_run_says_so(drive: Drive) -> None:
    cancel = threading.Event()
    sent = drive.send(
        httpx.ReadTimeout,
        method="PUT",
        extensions={"retry": {"cancel": cancel}},
        on_wait=lambda sent: cancel.set(),
    )
    assert isinstance(sent.error, UncertainWriteError)
    assert isinstance(sent.error, httpx.ReadTimeout)
    assert (sent.report.executed, sent.report.stop_reason) == (None, StopReason.CANCELLED)


@everywhere
def test_an_event_that_is_not_set_changes_nothing(drive: Drive) -> None:
    sent = drive.send(503, 200, extensions={"retry": {"cancel": threading.Event()}})
    assert (sent.response.status_code, sent.waits) == (200, [1.0])


@pytest.mark.parametrize("how", ["event", "close", "exit", "both"])
def test_another_thread_ends_a_wait_at_once(how: str) -> None:
    cancel = threading.Event()
    waiting = threading.Event()
    script = ScriptedTransport(503, 200)

    def heard(event: object) -> None:
        if not isinstance(event, AttemptStarted):
            waiting.set()

    transport = RetryTransport(
        script, policy=RetryPolicy(backoff=lambda number: 600), listeners=[heard]
    )
    override = {"retry": {"cancel": cancel}} if how in ("event", "both") else {}
    caught: list[BaseException] = []

    def send() -> None:
        try:
            transport.handle_request(httpx.Request("GET", URL, extensions=override))
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=send)
    began = time.monotonic()
    thread.start()
    assert waiting.wait(10)
    with ExitStack() as stack:
        if how == "event":
            cancel.set()
        elif how == "exit":
            stack.enter_context(transport)
        else:
            transport.close()
    thread.join(10)
    assert time.monotonic() - began < 10
    (error,) = caught
    assert isinstance(error, RetryError)
    assert error.report.outcome is Outcome.CANCELLED
    assert len(script.requests) == 1
    assert script.closes == (0 if how == "event" else 1)


def test_a_wait_with_an_event_of_the_callers_ends_by_itself() -> None:
    script = ScriptedTransport(503, 200)
    transport = RetryTransport(script, policy=RetryPolicy(backoff=lambda number: 0.05))
    override = {"retry": {"cancel": threading.Event()}}
    began = time.monotonic()
    response = transport.handle_request(httpx.Request("GET", URL, extensions=override))
    assert response.status_code == 200
    assert 0.05 <= time.monotonic() - began < 10
    assert get_report(response).slept >= 0.05


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_no_attempt_follows_the_close_of_an_async_transport(backend: str) -> None:
    script = ScriptedTransport(503, 200)
    transport = RetryTransport(script, policy=RetryPolicy(backoff=lambda number: 0.05))

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(closes)
            with pytest.raises(RetryError) as caught:
                await transport.handle_async_request(httpx.Request("GET", URL))
            assert caught.value.report.outcome is Outcome.CANCELLED

    async def closes() -> None:
        while not script.requests:
            await anyio.sleep(0.001)
        await transport.aclose()

    anyio.run(main, backend=backend)
    assert len(script.requests) == 1


@everywhere
@pytest.mark.parametrize("first", [503, httpx.ReadError])
def test_a_transport_that_is_closed_during_an_attempt_makes_no_other(
    drive: Drive, first: Any
) -> None:
    def close(request: httpx.Request) -> Any:
        transport.close()
        return first

    clock = VirtualClock()
    script = ScriptedTransport(close, 200, clock=clock)
    transport = RetryTransport(script, policy=POLICY, clock=clock)
    sent = Sent(script, clock)
    drive.through(transport, sent)
    assert isinstance(sent.error, RetryError)
    assert sent.report.stop_reason is StopReason.CANCELLED
    assert len(script.requests) == 1


def test_a_transport_that_was_closed_can_be_used_again() -> None:
    script = ScriptedTransport(503, 200)
    transport = RetryTransport(script, policy=POLICY, clock=VirtualClock())
    transport.close()
    assert transport.handle_request(httpx.Request("GET", URL)).status_code == 200


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_cancelling_a_task_ends_its_wait_at_once(backend: str) -> None:
    events: list[Any] = []
    script = ScriptedTransport(503, 200)
    transport = RetryTransport(
        script, policy=RetryPolicy(backoff=lambda number: 600), listeners=[events.append]
    )

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(transport.handle_async_request, httpx.Request("PUT", URL))
            while len(events) < 3:  # until the retry is scheduled
                await anyio.sleep(0.001)
            tasks.cancel_scope.cancel()

    began = time.monotonic()
    anyio.run(main, backend=backend)
    assert time.monotonic() - began < 10
    report = events[-1].report
    assert (report.outcome, report.stop_reason) == (
        Outcome.UNCERTAIN_WRITE,
        StopReason.CANCELLED,
    )
    assert [reply.closes for reply in script.responses] == [1]


def test_an_interrupt_in_a_threads_wait_comes_out_and_what_was_slept_is_told() -> None:
    events: list[Any] = []

    class Interrupted(VirtualClock):
        def sleep(self, seconds: float, wake: threading.Event) -> None:
            self.advance(seconds / 4)
            raise KeyboardInterrupt

    transport = RetryTransport(
        ScriptedTransport(503, 200), policy=POLICY, clock=Interrupted(), listeners=[events.append]
    )
    with pytest.raises(KeyboardInterrupt):
        transport.handle_request(httpx.Request("GET", URL))
    report = events[-1].report
    assert (report.outcome, report.slept, report.elapsed) == (Outcome.CANCELLED, 0.25, 0.25)


@everywhere
def test_exhaustion_is_told_apart_from_the_deadline(drive: Drive) -> None:
    sent = drive.send(*[httpx.ReadTimeout] * 3, policy=POLICY.replace(deadline=100))
    assert isinstance(sent.error, RetriesExhaustedError)
    assert not isinstance(sent.error, DeadlineExceededError)
