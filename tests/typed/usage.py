"""Typical uses, for the type checkers alone: this file is checked and never run.

What is wrong on purpose carries a comment that says which complaint is expected; one that is not
raised is an error itself, in mypy as in pyright.
"""

from __future__ import annotations

import logging
import random
import threading
import uuid
from collections.abc import Callable

import httpx
import httpx2
import pytest
from typing_extensions import assert_never, assert_type

from httpx_safe_retry import (
    Attempt,
    AttemptFinished,
    AttemptStarted,
    Backoff,
    Budget,
    Clock,
    DeadlineExceededError,
    DelaySource,
    Evidence,
    Outcome,
    PermanentFailureError,
    RequestFinished,
    RetriesExhaustedError,
    RetryBudget,
    RetryError,
    RetryEvent,
    RetryOverrides,
    RetryPolicy,
    RetryRefused,
    RetryReport,
    RetryScheduled,
    RetryTransport,
    StopReason,
    UncertainWriteError,
    Verdict,
    deadline,
    get_report,
    incoming_deadline,
    raise_for_outcome,
    wrap_client,
)
from httpx_safe_retry.testing import Fault, LoopbackServer, Reply, ScriptedTransport, VirtualClock

URL = "https://api.example.com/payments"


# Threads and tasks -------------------------------------------------------------------------------


def pay(key: str) -> httpx.Response:
    policy = RetryPolicy(max_attempts=4, deadline=10.0)
    with httpx.Client(transport=RetryTransport(policy=policy)) as client:
        headers = {"Idempotency-Key": key}
        return client.post(URL, json={"amount": 100}, headers=headers)


async def pay_in_a_task(key: str) -> httpx.Response:
    transport = RetryTransport(httpx.AsyncHTTPTransport(http2=True), budget=None)
    async with httpx.AsyncClient(transport=transport) as client:
        return await client.post(URL, json={"amount": 100}, headers={"Idempotency-Key": key})


def one_for_both() -> None:
    transport = RetryTransport()
    httpx.Client(transport=transport, mounts={"https://": transport})
    httpx.AsyncClient(transport=transport, mounts={"https://": transport})


# Overrides ---------------------------------------------------------------------------------------


def override(client: httpx.Client, stop: threading.Event) -> None:
    retry: RetryOverrides = {"max_attempts": 2, "deadline": 1.5, "cancel": stop}
    client.get(URL, extensions={"retry": retry})
    client.get(URL, extensions={"retry": {"max_attempts": 2}})
    client.get(URL, extensions={"retry": RetryOverrides(idempotent=True, backoff=Backoff(base=1))})
    client.get(URL, extensions={"retry": RetryPolicy(max_attempts=5)})
    client.get(URL, extensions={"retry": None})
    retry["statuses"] = {503}
    retry["statuses"] = range(500, 600)


def derive(policy: RetryPolicy) -> RetryPolicy:
    patient = policy.replace(max_attempts=6, deadline=None, retry_after_over="stop")
    assert_type(patient, RetryPolicy)
    return patient.replace(backoff=lambda retry: 0.5 * retry, idempotency_key=new_key)


def refused(policy: RetryPolicy) -> None:
    # Each line is a mistake that both checkers have to find. An ignore that none needs is an error.
    unknown: RetryOverrides = {"max_attempt": 2}  # type: ignore[typeddict-unknown-key]  # pyright: ignore[reportAssignmentType]  # no policy has that field
    wrong: RetryOverrides = {"deadline": "soon"}  # type: ignore[typeddict-item]  # pyright: ignore[reportAssignmentType]  # seconds are a number
    choice: RetryOverrides = {"retry_after_over": "wait"}  # type: ignore[typeddict-item]  # pyright: ignore[reportAssignmentType]  # none of the three words
    policy.replace(max_attempt=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]  # no policy has that field
    policy.replace(cancel=threading.Event())  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]  # a request has it, no policy
    policy.replace(deadline="soon")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # seconds are a number
    policy.max_attempts = 2  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]  # it is frozen
    RetryPolicy(5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]  # by name alone
    RetryPolicy(offline="yes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # True or False
    RetryPolicy(classify=lambda request: None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # it is given two arguments
    RetryPolicy(classify=says_yes)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # it returns a verdict
    Backoff(jitter="some")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # no such jitter
    RetryTransport(policy={"max_attempts": 2})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # a mapping is for overrides
    RetryTransport(budget=0.1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # a budget is an object
    Verdict(transient=True, evidence="executed")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # a member of the enum
    wrap_client(URL)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]  # that is no client
    print(unknown, wrong, choice)


# The policy's callables --------------------------------------------------------------------------


def new_key() -> str:
    return str(uuid.uuid4())


def classify(request: httpx.Request, result: httpx.Response | Exception) -> Verdict | None:
    if isinstance(result, httpx.Response) and result.headers.get("X-Status") == "try-later":
        return Verdict(transient=True, evidence=Evidence.REFUSED, reason=f"{request.url.host} asks")
    return None


def classify2(request: httpx2.Request, result: httpx2.Response | Exception) -> Verdict | None:
    if isinstance(result, httpx2.Response) and result.status_code == 520:
        return Verdict(transient=request.method == "GET")
    return None


def says_yes(request: httpx.Request, result: httpx.Response | Exception) -> bool:
    return True


def hint(response: httpx.Response) -> float | None:
    milliseconds = response.headers.get("retry-after-ms")
    return float(milliseconds) / 1000 if milliseconds else None


def hint2(response: httpx2.Response) -> float | None:
    return response.elapsed.total_seconds()


class Classifier:
    def __call__(
        self, request: httpx.Request, result: httpx.Response | Exception
    ) -> Verdict | None:
        return Verdict(transient=False) if isinstance(result, httpx.ReadError) else None

    def method(self, request: httpx2.Request, result: object) -> Verdict:
        return Verdict(transient=result is None and request.method == "GET")


def callables() -> None:
    RetryPolicy(classify=classify, delay_hint=hint)
    RetryPolicy(classify=classify2, delay_hint=hint2)
    RetryPolicy(classify=Classifier())
    RetryPolicy(classify=Classifier().method)
    RetryPolicy(classify=lambda request, result: None, delay_hint=lambda response: 1)
    RetryPolicy(
        classify=lambda request, result: Verdict(transient=request.method == "GET"),
        delay_hint=lambda response: float(response.headers.get("RateLimit-Reset", "0")),
    )
    RetryPolicy().replace(classify=classify2, delay_hint=hint2)
    both: RetryOverrides = {"classify": classify, "delay_hint": hint2}
    print(both)


def by_host(request: httpx.Request) -> RetryPolicy:
    return RetryPolicy(max_attempts=6 if request.url.host == "batch.example.com" else 2)


def policies() -> None:
    RetryTransport(policy=by_host)
    RetryTransport(policy=lambda request: RetryPolicy(idempotent=request.method == "POST"))


# What belongs to the transport -------------------------------------------------------------------


class SharedBudget:
    def deposit(self, origin: tuple[str, str, int | None]) -> None:
        scheme, host, port = origin
        print(scheme, host, port)

    def withdraw(self, origin: tuple[str, str, int | None]) -> bool:
        return origin[0] == "https"


class SlowClock:
    def monotonic(self) -> float:
        return 0.0

    def time(self) -> float:
        return 0.0

    def sleep(self, seconds: float, wake: threading.Event) -> None:
        wake.wait(seconds * 2)

    async def asleep(self, seconds: float) -> None:
        return None


class NoClock:
    def time(self) -> float:
        return 0.0


def state() -> None:
    budget: Budget = SharedBudget()
    clock: Clock = SlowClock()
    RetryTransport(budget=budget, clock=clock, random=random.Random(7).random)
    RetryTransport(budget=RetryBudget(ratio=0.2, capacity=20, max_origins=10))
    RetryTransport(clock=VirtualClock())
    RetryTransport(clock=NoClock())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def on_event(event: RetryEvent) -> None:
    match event:
        case AttemptStarted(number=number):
            assert_type(number, int)
        case AttemptFinished(attempt=attempt):
            assert_type(attempt, Attempt)
        case RetryScheduled(delay=delay, source=source):
            assert_type(delay, float)
            assert_type(source, DelaySource)
        case RetryRefused(stop_reason=stop_reason, reason=reason):
            assert_type(stop_reason, StopReason)
            assert_type(reason, str)
        case RequestFinished(report=report):
            assert_type(report, RetryReport)
        case _:
            logging.info("%s of request %d", event.url, event.request_id)


def listen(seen: list[RetryEvent], tell: Callable[[object], bool]) -> None:
    RetryTransport(listeners=[on_event, seen.append, tell, lambda event: print(event.method)])


# What comes of a request -------------------------------------------------------------------------


def told(report: RetryReport) -> str:
    assert_type(report.executed, bool | None)
    assert_type(report.attempts, tuple[Attempt, ...])
    assert_type(report.explain(), str)
    for attempt in report.attempts:
        assert_type(attempt.evidence, Evidence)
        assert_type(attempt.delay, float | None)
    match report.outcome:
        case Outcome.SUCCESS:
            return "paid"
        case Outcome.PERMANENT_FAILURE | Outcome.CANCELLED:
            return "not paid"
        case Outcome.EXHAUSTED | Outcome.DEADLINE_EXCEEDED:
            return "not paid, try again"
        case Outcome.UNCERTAIN_WRITE:
            return "nobody knows"
    assert_never(report.outcome)


def forgotten(report: RetryReport) -> str:
    match report.outcome:  # pyright: ignore[reportMatchNotExhaustive]
        case Outcome.SUCCESS | Outcome.CANCELLED | Outcome.EXHAUSTED | Outcome.DEADLINE_EXCEEDED:
            return "paid or not"
        case Outcome.PERMANENT_FAILURE:
            return "not paid"
    assert_never(report.outcome)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def responses(response: httpx.Response, response2: httpx2.Response) -> None:
    assert_type(get_report(response), RetryReport)
    assert_type(get_report(response2), RetryReport)
    assert_type(raise_for_outcome(response), httpx.Response)
    assert_type(raise_for_outcome(response2), httpx2.Response)
    get_report("a response")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def errors(client: httpx.Client) -> RetryReport:
    try:
        return get_report(raise_for_outcome(client.post(URL)))
    except UncertainWriteError as error:
        assert_type(error.report, RetryReport)
        return error.report
    except (RetriesExhaustedError, DeadlineExceededError, PermanentFailureError) as error:
        if error.response is not None:
            logging.info("%s", error.response.status_code)
        return error.report
    except RetryError as error:
        # Of the library that the client is of.
        request: httpx.Request = error.request
        logging.info("%s", request.url.host)
        return error.report


def errors2(client: httpx2.Client) -> None:
    try:
        client.post(URL)
    except RetryError as error:
        if isinstance(error.request, httpx2.Request):
            assert_type(error.request.url.host, str)


# Around a client ---------------------------------------------------------------------------------


class ApiClient(httpx.Client):
    def orders(self) -> httpx.Response:
        return self.get("https://api.example.com/orders")


class AsyncApiClient(httpx.AsyncClient):
    async def orders(self) -> httpx.Response:
        return await self.get("https://api.example.com/orders")


def wrapped() -> None:
    assert_type(wrap_client(httpx.Client(http2=True)), httpx.Client)
    assert_type(wrap_client(httpx.AsyncClient(), policy=RetryPolicy(deadline=5)), httpx.AsyncClient)
    assert_type(wrap_client(ApiClient()), ApiClient)
    wrap_client(ApiClient(), policy=by_host, budget=None, listeners=[on_event]).orders()
    assert_type(wrap_client(AsyncApiClient()), AsyncApiClient)


async def in_time(client: httpx.AsyncClient, header: str | None) -> None:
    with incoming_deadline(header), deadline(3.0):
        await client.get(URL)


# In users' own tests -----------------------------------------------------------------------------


def test_a_busy_server_is_asked_again() -> None:
    clock = VirtualClock()
    reply = Reply(status=429, headers={"Retry-After": "7"})
    script = ScriptedTransport(reply, httpx.ReadTimeout, httpx.Response(200), clock=clock)
    with httpx.Client(transport=RetryTransport(script, clock=clock)) as client:
        report = get_report(client.get(URL))
    assert report.slept == pytest.approx(7)
    assert_type(clock.sleeps, list[float])
    assert [sent.body for sent in script.requests] == [b"", b"", b""]


def test_a_lost_answer_is_no_second_payment() -> None:
    with LoopbackServer(Fault()) as server, httpx.Client(transport=RetryTransport()) as client:
        client.post(f"{server.url}/payments", headers={"Idempotency-Key": new_key()})
        assert len(server.ledger) == 2
