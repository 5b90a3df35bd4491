"""What a layer of ours inside has found out is not lost on the layer around it.

Its last answer or error is all that it lets out; its report tells of the attempts before that,
and of what its own policy knows better.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from httpx_safe_retry import (
    Evidence,
    Outcome,
    PermanentFailureError,
    RequestFinished,
    RetriesExhaustedError,
    RetryEvent,
    RetryPolicy,
    RetryReport,
    UncertainWriteError,
    Verdict,
    get_report,
    raise_for_outcome,
)
from httpx_safe_retry.testing import Reply, ScriptItem, VirtualClock
from tests.drive import URL, Drive, Sent, everywhere
from tests.library import RetryTransport, ScriptedTransport, httpx

QUICK = RetryPolicy(backoff=lambda retry: 0.0)
TWICE = QUICK.replace(max_attempts=2)
DECLARED = TWICE.replace(idempotent=True)
"""A layer inside that may send a write again whatever became of it."""
MADE_A_KEY = TWICE.replace(idempotency_key=lambda: "made-inside")

DIED = Reply(body=[b"o", httpx.ReadError("died")], headers={"Content-Length": "2"})
"""It ran, and its answer got lost on the way."""


class Elsewhere(httpx.BaseTransport):
    """Hands a request to a thread of its own, where no layer knows that another is around it."""

    def __init__(self, transport: httpx.BaseTransport) -> None:
        self._transport = transport

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        ended: list[httpx.Response | Exception] = []

        def work() -> None:
            try:
                ended.append(self._transport.handle_request(request))
            except Exception as error:
                ended.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        (outcome,) = ended
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def send(
    *script: ScriptItem, inner: RetryPolicy, outer: RetryPolicy = TWICE, method: str = "POST"
) -> tuple[RetryReport, int]:
    """Send through a layer that retries inside another; return the report of the outer one, and how
    often the request was sent.
    """
    clock = VirtualClock()
    wire = ScriptedTransport(*script, clock=clock)
    inside = Elsewhere(RetryTransport(wire, policy=inner, clock=clock))
    transport = RetryTransport(inside, policy=outer, clock=clock)
    with httpx.Client(transport=transport) as client:
        try:
            report = get_report(client.request(method, URL))
        except (UncertainWriteError, RetriesExhaustedError) as error:
            report = error.report
    return report, len(wire.requests)


LAST = {
    "429": 429,
    "404": 404,
    "501": 501,
    "413": Reply(status=413, headers={"Retry-After": "0"}),
    "503": 503,
    "ConnectError": httpx.ConnectError,
}


@pytest.mark.parametrize("last", LAST.values(), ids=LAST)
def test_a_refusal_behind_an_attempt_that_may_have_run_proves_nothing(last: ScriptItem) -> None:
    report, sent = send(httpx.ReadTimeout, last, 201, inner=DECLARED)
    assert (report.outcome, report.executed, sent) == (Outcome.UNCERTAIN_WRITE, None, 2)


@pytest.mark.parametrize("last", LAST.values(), ids=LAST)
def test_a_refusal_behind_a_lost_success_does_not_undo_it(last: ScriptItem) -> None:
    report, sent = send(DIED, last, 201, inner=DECLARED)
    assert (report.outcome, report.executed, sent) == (Outcome.UNCERTAIN_WRITE, True, 2)


@pytest.mark.parametrize("last", [429, httpx.ConnectError, httpx.PoolTimeout])
def test_a_refusal_behind_attempts_that_provably_never_ran_is_one(last: ScriptItem) -> None:
    report, sent = send(httpx.ConnectError, last, 201, inner=TWICE)
    assert (report.outcome, report.executed, sent) == (Outcome.SUCCESS, True, 3)


def test_a_success_in_the_end_is_one_whatever_the_layer_inside_went_through() -> None:
    report, sent = send(httpx.ReadTimeout, 200, inner=DECLARED)
    assert (report.outcome, len(report.attempts), sent) == (Outcome.SUCCESS, 1, 2)


def test_what_is_a_success_outside_is_one_although_the_layer_inside_wanted_more() -> None:
    inner = TWICE.replace(statuses={202, 503})
    report, sent = send(503, 503, 202, 202, inner=inner, method="PUT")
    assert (report.outcome, len(report.attempts), sent) == (Outcome.SUCCESS, 2, 4)


def test_an_answer_that_speaks_for_a_key_made_inside_speaks_outside() -> None:
    report, sent = send(httpx.ReadTimeout, 404, inner=MADE_A_KEY)
    assert (report.outcome, report.executed, sent) == (Outcome.PERMANENT_FAILURE, False, 2)
    report, sent = send(httpx.ReadTimeout, 401, inner=MADE_A_KEY)
    assert (report.outcome, report.executed, sent) == (Outcome.UNCERTAIN_WRITE, None, 2)


def test_a_layer_inside_that_knows_of_no_key_is_not_overruled() -> None:
    """Whether all that it sent carried the key, to the same server, only that layer can say."""
    inner = DECLARED.replace(idempotency_headers=("Some-Other-Key",))
    outer = TWICE.replace(idempotency_key=lambda: "made-outside")
    report, sent = send(httpx.ReadTimeout, 404, inner=inner, outer=outer)
    assert (report.outcome, report.executed, sent) == (Outcome.UNCERTAIN_WRITE, None, 2)


def test_a_verdict_outside_lets_no_answer_speak_for_a_key_that_was_used() -> None:
    def refused(request: httpx.Request, outcome: object) -> Verdict | None:
        answered = isinstance(outcome, httpx.Response)
        return Verdict(transient=False, evidence=Evidence.REFUSED) if answered else None

    outer = TWICE.replace(idempotency_key=lambda: "made-outside", classify=refused)
    script = (httpx.ReadTimeout, httpx.ReadTimeout, DIED, 404)
    report, sent = send(*script, inner=TWICE, outer=outer)
    assert (report.outcome, report.executed, sent) == (Outcome.UNCERTAIN_WRITE, None, 4)


# A passive layer sees the same single attempt, and may know better what it means ------------------


def layered(
    drive: Drive, *script: ScriptItem, inner: RetryPolicy, outer: RetryPolicy, method: str = "POST"
) -> Sent:
    clock = VirtualClock()
    sent = Sent(ScriptedTransport(*script, clock=clock), clock)
    inside = RetryTransport(sent.script, policy=inner, clock=clock)
    drive.through(RetryTransport(inside, policy=outer, clock=clock), sent, method)
    return sent


def knows(evidence: Evidence, *, transient: bool) -> RetryPolicy:
    """A policy of somebody who knows that of one API."""
    verdict = Verdict(transient=transient, evidence=evidence)
    return QUICK.replace(classify=lambda request, outcome: verdict)


@everywhere
@pytest.mark.parametrize("refusal", [429, httpx.ConnectError])
@pytest.mark.parametrize("evidence", [Evidence.AMBIGUOUS, Evidence.EXECUTED])
def test_what_the_policy_inside_takes_for_no_refusal_is_none(
    drive: Drive, refusal: ScriptItem, evidence: Evidence
) -> None:
    inner = knows(evidence, transient=True)
    sent = layered(drive, refusal, 201, inner=inner, outer=QUICK)
    expected = True if evidence is Evidence.EXECUTED else None
    assert len(sent.requests) == 1
    assert (sent.report.outcome, sent.report.executed) == (Outcome.UNCERTAIN_WRITE, expected)


@everywhere
def test_what_the_policy_inside_takes_for_done_is_done(drive: Drive) -> None:
    inner = knows(Evidence.EXECUTED, transient=False)
    sent = layered(drive, 404, inner=inner, outer=QUICK, method="DELETE")
    assert (sent.report.outcome, sent.report.executed) == (Outcome.SUCCESS, True)


@everywhere
def test_what_the_policy_inside_takes_for_never_sent_was_not(drive: Drive) -> None:
    inner = knows(Evidence.NOT_SENT, transient=True)
    sent = layered(drive, httpx.ReadError, 201, inner=inner, outer=QUICK)
    assert (sent.response.status_code, len(sent.requests)) == (201, 2)


@everywhere
@pytest.mark.parametrize("error", [httpx.ReadTimeout, httpx.WriteError, httpx.RemoteProtocolError])
def test_what_may_have_run_inside_may_have_run(drive: Drive, error: ScriptItem) -> None:
    sent = layered(drive, error, 201, inner=QUICK, outer=QUICK)
    assert isinstance(sent.error, UncertainWriteError)
    assert (len(sent.requests), sent.report.executed) == (1, None)


@everywhere
def test_an_answer_lost_inside_is_known_to_have_been_one(drive: Drive) -> None:
    sent = layered(drive, DIED, 201, inner=QUICK, outer=QUICK)
    assert isinstance(sent.error, UncertainWriteError)
    assert (len(sent.requests), sent.report.executed) == (1, True)


@everywhere
def test_a_layer_that_knows_no_more_than_anybody_leaves_it_to_the_policy_outside(
    drive: Drive,
) -> None:
    outer = QUICK.replace(refusal_statuses={503})
    sent = layered(drive, 503, 201, inner=QUICK, outer=outer)
    assert (sent.report.outcome, len(sent.requests)) == (Outcome.SUCCESS, 2)


def test_a_layer_that_follows_no_trace_leaves_it_to_the_one_that_does() -> None:
    """Around a key of its own, the one inside does not need to know how far the request got."""
    tried: list[str] = []

    def wire(request: httpx.Request) -> httpx.Response:
        tried.append(request.headers["Idempotency-Key"])
        if len(tried) > 1:
            return httpx.Response(201)
        error = httpx.ReadError("during the handshake")
        request.extensions["trace"]("connection.start_tls.failed", {"exception": error})
        raise error

    inside = RetryTransport(httpx.MockTransport(wire), policy=MADE_A_KEY)
    transport = RetryTransport(inside, policy=QUICK, clock=VirtualClock())
    with httpx.Client(transport=transport) as client:
        assert client.post(URL).status_code == 201
    assert len(tried) == 2


# Reports that are about something else ------------------------------------------------------------


Answer = Callable[[httpx.Request], httpx.Response]


def asks_another(url: str, *script: ScriptItem) -> Answer:
    """An app that answers what it was answered itself, its own layer's report with it."""
    wire = ScriptedTransport(*script)
    client = httpx.Client(transport=Elsewhere(RetryTransport(wire, policy=DECLARED)))
    return lambda request: client.request(request.method, url)


@pytest.mark.parametrize("lost", [httpx.ReadTimeout, DIED])
def test_what_an_app_hands_on_says_nothing_of_the_request_to_it(lost: ScriptItem) -> None:
    answer = asks_another("https://downstream.test/", lost, 429)
    transport = RetryTransport(httpx.MockTransport(answer), policy=QUICK.replace(max_attempts=1))
    with httpx.Client(transport=transport) as client:
        report = get_report(client.post("https://service.test/"))
    assert (report.outcome, report.executed) == (Outcome.EXHAUSTED, False)


def test_what_ran_downstream_does_not_mean_that_the_request_to_the_app_did() -> None:
    answer = asks_another("https://downstream.test/", DIED, httpx.ConnectError)
    transport = RetryTransport(httpx.MockTransport(answer), policy=QUICK)
    with httpx.Client(transport=transport) as client, pytest.raises(UncertainWriteError) as caught:
        client.post("https://service.test/")
    assert caught.value.report.executed is None


def test_what_was_refused_downstream_does_not_mean_that_the_request_to_the_app_was() -> None:
    answer = asks_another("https://downstream.test/", 404)
    reports: list[RetryReport] = []

    def app(request: httpx.Request) -> httpx.Response:
        return raise_for_outcome(answer(request))

    def listen(event: RetryEvent) -> None:
        if isinstance(event, RequestFinished):
            reports.append(event.report)

    transport = RetryTransport(httpx.MockTransport(app), policy=QUICK, listeners=[listen])
    with httpx.Client(transport=transport) as client, pytest.raises(PermanentFailureError):
        client.post("https://service.test/")
    assert [report.executed for report in reports] == [None]


def test_what_was_cancelled_downstream_is_not_worth_another_try() -> None:
    cancelled = threading.Event()
    cancelled.set()
    ran: list[str] = []

    def app(request: httpx.Request) -> httpx.Response:
        ran.append("once")
        with httpx.Client(transport=RetryTransport(ScriptedTransport())) as client:
            override = {"retry": {"cancel": cancelled}}
            return client.get("https://downstream.test/", extensions=override)

    transport = RetryTransport(httpx.MockTransport(app), policy=QUICK)
    with httpx.Client(transport=transport) as client, pytest.raises(httpx.TransportError):
        client.get("https://service.test/")
    assert ran == ["once"]


def test_a_passive_layer_that_saw_through_an_app_is_believed() -> None:
    ran: list[str] = []

    def app(environ: object, start_response: object) -> Iterable[bytes]:
        ran.append("once")
        refuses = ScriptedTransport(httpx.ConnectError)
        with httpx.Client(transport=refuses) as client:
            client.get("https://downstream.test/")
        raise AssertionError("the service answered")

    inside = RetryTransport(httpx.WSGITransport(app=app), policy=QUICK)
    transport = RetryTransport(inside, policy=QUICK, clock=VirtualClock())
    with httpx.Client(transport=transport) as client, pytest.raises(UncertainWriteError):
        client.post("https://service.test/orders")
    assert ran == ["once"]


class ReportsItself(httpx.ConnectError):
    """An error of some other library, with a property of the name that ours has."""

    @property
    def report(self) -> str:
        """Not to be asked for."""
        raise LookupError


class Reported(httpx.ConnectError):
    """An error of some other library, with a report of its own."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.report = "as some other library may have"


@everywhere
@pytest.mark.parametrize(
    "odd",
    [ReportsItself, Reported, Reply(status=429, extensions={"retry": "as some other may have"})],
)
def test_a_report_of_another_kind_is_no_report(drive: Drive, odd: Any) -> None:
    sent = drive.send(odd, 201, method="POST", policy=QUICK)
    assert (sent.response.status_code, len(sent.requests)) == (201, 2)
