"""Evidence that is about another sending, or another request, is not believed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from httpx_safe_retry import (
    Outcome,
    RequestFinished,
    RetriesExhaustedError,
    RetryPolicy,
    UncertainWriteError,
    get_report,
)
from httpx_safe_retry.testing import Fault, LoopbackServer, VirtualClock
from tests.library import RetryTransport, ScriptedTransport, httpx

Finish = Callable[[httpx.Request], httpx.Response]


class SendsTwice(httpx.BaseTransport):
    """A layer of somebody's own: it sends, does not like what it gets, and tries once more."""

    def __init__(self, again: Finish) -> None:
        self._wire = httpx.HTTPTransport()
        self._again = again

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        try:
            response = self._wire.handle_request(request)
            response.close()
        except httpx.TransportError:
            pass
        return self._again(request)


def refuse(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused")


def test_no_connection_the_second_time_does_not_take_back_the_first() -> None:
    with LoopbackServer(Fault(), repeat=True) as server:
        transport = RetryTransport(SendsTwice(refuse), clock=VirtualClock())
        with httpx.Client(transport=transport) as client, pytest.raises(UncertainWriteError):
            client.post(f"{server.url}/payments")
        assert len(server.ledger) == 1


def test_a_refusal_the_second_time_does_not_take_back_the_first() -> None:
    with LoopbackServer(Fault(), 429, repeat=True) as server:
        wire = httpx.HTTPTransport()
        transport = RetryTransport(SendsTwice(wire.handle_request), clock=VirtualClock())
        with httpx.Client(transport=transport) as client, wire:
            report = get_report(client.post(f"{server.url}/payments"))
        assert (report.outcome, report.executed) == (Outcome.UNCERTAIN_WRITE, None)
        assert len(server.ledger) == 1


def test_a_refusal_of_all_that_was_sent_is_one() -> None:
    with LoopbackServer(429, 201) as server:
        transport = RetryTransport(httpx.HTTPTransport(), clock=VirtualClock())
        with httpx.Client(transport=transport) as client:
            report = get_report(client.post(f"{server.url}/payments"))
        assert (report.outcome, len(report.attempts)) == (Outcome.SUCCESS, 2)
        assert len(server.ledger) == 1


def test_a_success_the_second_time_is_one() -> None:
    policy = RetryPolicy(classify=lambda request, outcome: None)  # so that it is looked at closely
    with LoopbackServer(429, 201, repeat=True) as server:
        wire = httpx.HTTPTransport()
        transport = RetryTransport(SendsTwice(wire.handle_request), policy=policy)
        with httpx.Client(transport=transport) as client, wire:
            report = get_report(client.post(f"{server.url}/payments"))
        assert (report.outcome, report.executed) == (Outcome.SUCCESS, True)
        assert len(server.ledger) == 1


def asks_downstream(transport: httpx.BaseTransport) -> Callable[..., list[bytes]]:
    """A WSGI app that runs the request, then asks another service and lets its failure out."""

    def app(environ: object, start_response: object) -> list[bytes]:
        RAN.append("once")
        with httpx.Client(transport=transport) as client:
            client.get("https://downstream.test/")
        raise AssertionError("the service answered")

    return app


RAN: list[str] = []


@pytest.mark.parametrize("wrap", [lambda wire: wire, RetryTransport], ids=["plain", "retried"])
def test_what_an_app_met_downstream_says_nothing_of_the_request_to_it(
    wrap: Callable[[httpx.BaseTransport], httpx.BaseTransport],
) -> None:
    RAN.clear()
    app = asks_downstream(wrap(ScriptedTransport(httpx.ConnectError, repeat=True)))
    transport = RetryTransport(httpx.WSGITransport(app=app), clock=VirtualClock())
    with httpx.Client(transport=transport) as client, pytest.raises(UncertainWriteError):
        client.post("https://service.test/orders")
    assert RAN == ["once"]


def test_a_request_that_was_rewritten_on_its_way_is_still_the_same() -> None:
    def rewrite(request: httpx.Request) -> httpx.Response:
        request.url = httpx.URL("https://10.0.0.1/orders")
        raise httpx.ConnectError("refused", request=request)

    policy = RetryPolicy(max_attempts=1)
    transport = RetryTransport(httpx.MockTransport(rewrite), policy=policy)
    with httpx.Client(transport=transport) as client, pytest.raises(RetriesExhaustedError):
        client.put("https://service.test/orders")


class Forwarded(httpx.SyncByteStream):
    """A body that comes from another service, and breaks off there."""

    def __iter__(self) -> Iterator[bytes]:
        yield b"n"
        raise httpx.ReadError("died", request=httpx.Request("GET", "https://downstream.test/"))


def test_where_a_body_was_lost_does_not_change_what_was_answered() -> None:
    headers = {"Content-Length": "9"}
    answers = httpx.MockTransport(
        lambda _: httpx.Response(404, headers=headers, stream=Forwarded())
    )
    transport = RetryTransport(answers, policy=RetryPolicy(max_attempts=1))
    with (
        httpx.Client(transport=transport) as client,
        pytest.raises(RetriesExhaustedError) as caught,
    ):
        client.post("https://service.test/orders")
    assert caught.value.report.executed is False


def test_a_layer_inside_that_names_our_own_request_is_believed() -> None:
    script = ScriptedTransport(httpx.ConnectError, repeat=True)
    inner = RetryTransport(script, policy=RetryPolicy(max_attempts=2), clock=VirtualClock())
    outer = RetryTransport(inner, policy=RetryPolicy(max_attempts=2), clock=VirtualClock())
    with httpx.Client(transport=outer) as client, pytest.raises(RetriesExhaustedError) as caught:
        client.post("https://service.test/orders")
    assert caught.value.report.executed is False
    assert len(script.requests) == 2


class AppError(Exception):
    """An error of somebody's own, whose request is none of HTTP."""

    def __init__(self, request: object) -> None:
        super().__init__("no stock")
        self.request = request


class WordlessError(Exception):
    """An error that has no text."""

    def __str__(self) -> str:
        raise ValueError("no text")


class WordlessReadError(WordlessError, httpx.ReadError):
    """A transport's error that has none."""


@pytest.mark.parametrize(
    "error",
    [AppError({"id": 1}), AppError("POST /x"), RetriesExhaustedError("a mock"), WordlessError()],
    ids=lambda error: type(error).__name__,
)
def test_what_somebody_elses_error_lacks_takes_nothing_from_it(error: Exception) -> None:
    reports: list[object] = []
    script = ScriptedTransport(error)
    transport = RetryTransport(script, clock=VirtualClock(), listeners=[reports.append])
    with httpx.Client(transport=transport) as client, pytest.raises(type(error)) as caught:
        client.post("https://a.test/")
    assert caught.value is error
    (finished,) = (event for event in reports if isinstance(event, RequestFinished))
    assert finished.report.outcome is Outcome.UNCERTAIN_WRITE


def test_a_transport_error_without_words_is_judged_as_any() -> None:
    transport = RetryTransport(ScriptedTransport(WordlessReadError("lost")), clock=VirtualClock())
    with httpx.Client(transport=transport) as client, pytest.raises(UncertainWriteError) as caught:
        client.post("https://a.test/")
    assert caught.value.report.attempts[0].error_text == ""
