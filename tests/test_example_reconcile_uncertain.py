"""Reconciling by a lookup: one order, whatever the server did, or an error that is right."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from httpx_safe_retry import (
    Outcome,
    PermanentFailureError,
    RetryError,
    RetryPolicy,
    RetryTransport,
    UncertainWriteError,
)
from httpx_safe_retry.testing import (
    Fault,
    LoopbackServer,
    ServerRequest,
    ServerResponse,
    VirtualClock,
)

from .examples import loaded, shown_by

example = loaded("reconcile_uncertain.py")

LOST_REQUEST = Fault(request_bytes=20)
LOST_ANSWER = Fault()


class Shop:
    """A server of orders, a client, and a clock for both."""

    def __init__(self, *script: Any, late: float = 0.0) -> None:
        self.clock = VirtualClock()
        self.orders = example.OrdersServer(self.clock, late=late)
        self.requests: list[httpx.Request] = []
        self.server = LoopbackServer(*script, handler=self.orders)

    def create(self, *, sendings: int = 2) -> Any:
        with (
            self.server,
            httpx.Client(
                base_url=self.server.url,
                transport=RetryTransport(policy=RetryPolicy(max_attempts=2), clock=self.clock),
                event_hooks={"request": [self.requests.append]},
            ) as http,
        ):
            client = example.OrdersClient(
                http, settled_after=30.0, now=self.clock.monotonic, sleep=self.clock.advance
            )
            return client.create("ref-1", "a bread", sendings=sendings)

    @property
    def sent(self) -> int:
        return sum(request.method == "POST" for request in self.requests)


def test_each_way_ends_in_one_order() -> None:
    taken, taken_so, lost, lost_so, late, late_so = shown_by("reconcile_uncertain.py").splitlines()
    assert "sent 1, looked up 1, known after 0.0 s" in taken
    assert "sent 2" in lost
    assert "after 30.0 s" in lost
    assert "sent 1" in late
    one = "   Order(number='N-1', reference='ref-7130'); orders on the server: 1"
    assert taken_so == lost_so == late_so == one


@pytest.mark.parametrize("late", [0.0, 0.4, 29.9, 30.0])
def test_what_the_server_does_within_its_time_is_found_and_not_sent_again(late: float) -> None:
    shop = Shop(LOST_ANSWER, late=late)
    assert shop.create() == example.Order("N-1", "ref-1")
    assert shop.sent == len(shop.orders.taken()) == 1
    assert shop.clock.monotonic() <= 30.0


def test_what_the_server_does_during_a_slow_lookup_is_found() -> None:
    shop = Shop(late=28.0)

    def slowly(request: ServerRequest) -> ServerResponse:
        answer: ServerResponse = shop.orders(request)
        if request.method == "GET":
            shop.clock.advance(7.0)
        return answer

    shop.server = LoopbackServer(LOST_ANSWER, handler=slowly)
    assert shop.create() == example.Order("N-1", "ref-1")
    assert shop.sent == 1


def test_what_was_lost_is_not_sent_again_before_the_server_has_settled() -> None:
    shop = Shop(LOST_REQUEST)
    times: list[float] = []

    def note(request: ServerRequest) -> ServerResponse:
        if request.method == "POST":
            times.append(shop.clock.monotonic())
        answer: ServerResponse = shop.orders(request)
        return answer

    shop.server = LoopbackServer(LOST_REQUEST, handler=note)
    assert shop.create() == example.Order("N-1", "ref-1")
    assert times == [30.0]


def test_an_order_that_is_lost_each_time_did_not_happen() -> None:
    nothing = ServerResponse(body=b"[]")
    shop = Shop(LOST_REQUEST, *[nothing] * 8, LOST_REQUEST)
    with pytest.raises(example.NotCreatedError, match="ref-1"):
        shop.create()
    assert shop.sent == 2


def test_an_order_that_is_refused_is_not_looked_up() -> None:
    shop = Shop(422)
    with pytest.raises(PermanentFailureError):
        shop.create()
    assert len(shop.requests) == 1


def test_an_order_stays_uncertain_when_the_server_cannot_be_asked() -> None:
    shop = Shop(LOST_ANSWER, 503, 503)
    with pytest.raises(UncertainWriteError) as raised:
        shop.create()
    assert raised.value.request.method == "POST"
    assert raised.value.report.outcome is Outcome.UNCERTAIN_WRITE
    assert type(raised.value.__cause__) is httpx.RemoteProtocolError
    assert shop.sent == 1


def test_an_order_stays_uncertain_when_the_lookup_makes_no_sense() -> None:
    shop = Shop(LOST_ANSWER, ServerResponse(body=b"<html>"))
    with pytest.raises(UncertainWriteError):
        shop.create()
    assert shop.sent == 1


def test_an_order_that_was_confirmed_is_never_sent_again() -> None:
    shop = Shop(Fault(response_bytes=60), late=99.0)
    with pytest.raises(UncertainWriteError) as raised:
        shop.create()
    assert raised.value.report.executed
    assert type(raised.value.__cause__) is httpx.RemoteProtocolError
    assert shop.sent == 1


class TakesEachReferenceOnce(Shop):
    """Refuses a second order of the same reference, as soon as the first one has come."""

    def __init__(self, *script: Any, refusal: int = 409, late: float) -> None:
        super().__init__(late=late)
        self.refusal = refusal
        self.came = 0
        self.server = LoopbackServer(*script, handler=self.take)

    def take(self, request: ServerRequest) -> ServerResponse:
        self.came += request.method == "POST"
        if request.method == "POST" and self.came > 1:
            return ServerResponse(status=self.refusal)
        answer: ServerResponse = self.orders(request)
        return answer


@pytest.mark.parametrize("refusal", [409, 429])
def test_an_order_that_is_refused_after_an_uncertain_one_is_looked_for_again(refusal: int) -> None:
    shop = TakesEachReferenceOnce(LOST_ANSWER, refusal=refusal, late=60.0)
    assert shop.create() == example.Order("N-1", "ref-1")
    assert shop.sent == 2


@pytest.mark.parametrize("refusal", [409, 429])
def test_an_order_that_is_refused_after_an_uncertain_one_and_not_found_stays_uncertain(
    refusal: int,
) -> None:
    shop = TakesEachReferenceOnce(LOST_ANSWER, refusal=refusal, late=99.0)
    with pytest.raises(UncertainWriteError) as raised:
        shop.create(sendings=3)
    assert isinstance(raised.value.__cause__, RetryError)
    assert raised.value.__cause__.response is not None
    assert raised.value.__cause__.response.status_code == refusal
    assert shop.sent == 2


def test_an_order_that_is_refused_after_an_uncertain_one_stays_so_when_nobody_can_be_asked() -> (
    None
):
    nothing = ServerResponse(body=b"[]")
    shop = TakesEachReferenceOnce(LOST_ANSWER, *[nothing] * 8, None, 503, 503, late=99.0)
    with pytest.raises(UncertainWriteError) as raised:
        shop.create()
    assert isinstance(raised.value.__cause__, PermanentFailureError)
    assert shop.sent == 2
