"""One operation, one key: a server that remembers, and a client that asks again."""

from __future__ import annotations

import threading

import pytest

from httpx_safe_retry import Evidence, Outcome, StopReason
from httpx_safe_retry.testing import Fault, FaultKind, LoopbackServer, ServerRequest, ServerResponse
from tests.library import httpx

from .driving import KEY, QUICK, everywhere, wire

IMPATIENT = httpx.Timeout(10, read=0.5)


def pay(request: ServerRequest) -> ServerResponse:
    return ServerResponse(status=201, body=b"receipt for " + request.body)


@everywhere
@pytest.mark.parametrize("by", ["fin", "rst", "silence"])
def test_with_a_key_a_lost_answer_costs_one_payment_and_brings_the_receipt(
    backend: str | None, by: FaultKind
) -> None:
    fault = Fault(by=by)
    with (
        LoopbackServer(fault, fault, handler=pay, dedupe=True) as server,
        wire(backend, timeout=IMPATIENT) as client,
    ):
        got = client.send("POST", server.url, content=b"bread", headers=KEY)
        assert got.response is not None, got.error
        assert (got.status, got.response.content) == (201, b"receipt for bread")
    assert (got.outcome, got.report.executed) == (Outcome.SUCCESS, True)
    assert [operation.body for operation in server.ledger] == [b"bread"]
    assert [request.key for request in server.requests] == ["k1"] * 3


@everywhere
@pytest.mark.parametrize("by", ["fin", "rst", "silence"])
def test_without_a_key_a_lost_answer_costs_one_payment_and_is_called_uncertain(
    backend: str | None, by: FaultKind
) -> None:
    with (
        LoopbackServer(Fault(by=by), handler=pay) as server,
        wire(backend, timeout=IMPATIENT) as client,
    ):
        got = client.send("POST", server.url, content=b"bread")
    assert (got.outcome, got.report.executed) == (Outcome.UNCERTAIN_WRITE, None)
    assert len(server.ledger) == len(server.requests) == 1


@everywhere
def test_the_policy_makes_one_key_for_all_attempts(backend: str | None) -> None:
    made: list[str] = []

    def make() -> str:
        made.append(f"made-{len(made)}")
        return made[-1]

    policy = QUICK.replace(idempotency_key=make)
    with (
        LoopbackServer(Fault(), Fault(by="rst"), handler=pay, dedupe=True) as server,
        wire(backend, policy=policy) as client,
    ):
        assert client.send("POST", server.url, content=b"bread").status == 201
        assert client.send("POST", server.url, content=b"milk").status == 201
    assert [request.key for request in server.requests] == ["made-0"] * 3 + ["made-1"]
    assert [operation.body for operation in server.ledger] == [b"bread", b"milk"]


@everywhere
def test_while_the_first_attempt_is_still_running_409_means_wait_and_then_the_result_comes(
    backend: str | None,
) -> None:
    told_to_wait = threading.Event()

    def pay_slowly(request: ServerRequest) -> ServerResponse:
        assert told_to_wait.wait(10)
        return pay(request)

    def backoff(retry: int) -> float:
        # The second wait follows the first 409.
        if retry > 1:
            told_to_wait.set()
        return 0.05

    policy = QUICK.replace(max_attempts=20, backoff=backoff)
    with (
        LoopbackServer(handler=pay_slowly, dedupe=True) as server,
        wire(backend, policy=policy, timeout=IMPATIENT) as client,
    ):
        got = client.send("POST", server.url, content=b"bread", headers=KEY)
        assert got.response is not None, got.error
        assert (got.status, got.response.content) == (201, b"receipt for bread")
        assert got.response.headers["Idempotent-Replayed"] == "true"
    first, second, *_ = got.report.attempts
    assert (first.error_type, first.evidence) == ("ReadTimeout", Evidence.AMBIGUOUS)
    assert (second.status, second.evidence) == (409, Evidence.AMBIGUOUS)
    assert len(server.ledger) == 1


@everywhere
@pytest.mark.parametrize("headers", [{}, KEY], ids=["unkeyed", "keyed"])
def test_a_409_that_nothing_came_before_is_the_answer(
    backend: str | None, headers: dict[str, str]
) -> None:
    with LoopbackServer(409, handler=pay) as server, wire(backend) as client:
        got = client.send("POST", server.url, content=b"bread", headers=headers)
    assert (got.status, got.outcome) == (409, Outcome.PERMANENT_FAILURE)
    assert (got.stop_reason, got.report.executed) == (StopReason.NOT_TRANSIENT, False)
    assert len(server.requests) == 1
