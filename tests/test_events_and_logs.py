"""What is told while it happens: events for listeners, lines for whoever is woken at three in the
morning. Neither holds a secret.
"""

from __future__ import annotations

import dataclasses
import logging
import pickle
import threading
from typing import Any

import anyio
import pytest

from httpx_safe_retry import (
    Attempt,
    AttemptFinished,
    AttemptStarted,
    Backoff,
    DelaySource,
    Outcome,
    RequestFinished,
    RetryBudget,
    RetryError,
    RetryEvent,
    RetryPolicy,
    RetryRefused,
    RetryScheduled,
    StopReason,
)
from httpx_safe_retry.testing import Reply, ScriptItem, VirtualClock
from tests.drive import KEY, POLICY, SYNC, URL, Drive, Sent, everywhere
from tests.library import NAME, RetryTransport, ScriptedTransport, httpx

SECRET_URL = "https://user:pw-secret@example.org/a/path?token=t-secret#f-secret"
SECRETS = ["pw-secret", "t-secret", "f-secret", "auth-secret", "key-secret", "made-secret"]
SECRET_HEADERS = {
    "Authorization": "Bearer auth-secret",
    "Idempotency-Key": "key-secret",
    "Cookie": "session=auth-secret",
}


def kinds(events: list[RetryEvent]) -> list[type[RetryEvent]]:
    """The events by their types."""
    return [type(event) for event in events]


# --- events


@everywhere
def test_three_failures_are_two_waits_and_one_end(drive: Drive) -> None:
    sent = drive.send(503, 503, 503, listen=True)
    attempt = [AttemptStarted, AttemptFinished]
    assert kinds(sent.events) == [
        *attempt,
        RetryScheduled,
        *attempt,
        RetryScheduled,
        *attempt,
        RetryRefused,
        RequestFinished,
    ]
    assert len(sent.waits) == 2


@everywhere
@pytest.mark.parametrize(
    ("script", "then"),
    [
        ([200], [RequestFinished]),
        ([404], [RequestFinished]),
        ([httpx.UnsupportedProtocol], [RequestFinished]),
        ([ValueError], [RequestFinished]),
        ([KeyboardInterrupt], [RequestFinished]),
    ],
)
def test_what_is_not_transient_just_ends(
    drive: Drive, script: list[ScriptItem], then: list[type[RetryEvent]]
) -> None:
    sent = drive.send(*script, listen=True)
    assert kinds(sent.events) == [AttemptStarted, AttemptFinished, *then]


@everywhere
def test_every_event_says_which_request_it_is_about(drive: Drive) -> None:
    first = drive.send(503, 200, listen=True, method="PUT")
    second = drive.send(200, listen=True)
    (number,) = {event.request_id for event in first.events}
    assert {event.request_id for event in second.events} == {number + 1}
    assert {(event.method, event.url) for event in first.events} == {("PUT", URL)}


@everywhere
def test_a_scheduled_retry_tells_what_when_and_why(drive: Drive) -> None:
    busy = Reply(status=429, headers={"Retry-After": "7"})
    sent = drive.send(busy, 200, listen=True)
    (scheduled,) = (event for event in sent.events if isinstance(event, RetryScheduled))
    assert (scheduled.delay, scheduled.source) == (7.0, DelaySource.RETRY_AFTER)
    assert scheduled.max_attempts == 3
    assert scheduled.attempt == sent.report.attempts[0]
    assert (scheduled.attempt.number, scheduled.attempt.status) == (1, 429)


@everywhere
@pytest.mark.parametrize(
    ("policy", "budget", "reason"),
    [
        (POLICY.replace(max_attempts=1), "own", StopReason.MAX_ATTEMPTS),
        (POLICY.replace(deadline=0.5), "own", StopReason.DEADLINE),
        (POLICY, RetryBudget(ratio=0, capacity=0), StopReason.BUDGET),
        (POLICY.replace(idempotent=False), "own", StopReason.NOT_REPLAY_SAFE),
    ],
)
def test_a_refused_retry_tells_which_rule_forbids_it(
    drive: Drive, policy: RetryPolicy, budget: Any, reason: StopReason
) -> None:
    sent = drive.send(503, policy=policy, budget=budget, listen=True)
    (refused,) = (event for event in sent.events if isinstance(event, RetryRefused))
    assert refused.stop_reason is reason is sent.report.stop_reason
    assert refused.reason == sent.report.attempts[-1].reason


@everywhere
def test_the_last_event_carries_the_report_that_the_caller_gets(drive: Drive) -> None:
    for script in ([200], [503, 200], [404], [httpx.ReadTimeout] * 3):
        sent = drive.send(*script, listen=True)
        finished = sent.events[-1]
        assert isinstance(finished, RequestFinished)
        assert finished.report == sent.report


@everywhere
def test_events_tell_an_attempt_before_it_is_sent_and_after_it_ended(drive: Drive) -> None:
    order: list[str] = []

    def answer(request: httpx.Request) -> int:
        order.append("sent")
        return 503 if order.count("sent") == 1 else 200

    clock = VirtualClock(on_sleep=lambda seconds: order.append("waits"))
    script = ScriptedTransport(answer, repeat=True)
    transport = RetryTransport(
        script,
        policy=POLICY,
        clock=clock,
        listeners=[lambda event: order.append(type(event).__name__)],
    )
    drive.through(transport, Sent(script, clock))
    assert order == [
        "AttemptStarted",
        "sent",
        "AttemptFinished",
        "RetryScheduled",
        "waits",
        "AttemptStarted",
        "sent",
        "AttemptFinished",
        "RequestFinished",
    ]


@everywhere
def test_a_report_is_the_same_whether_somebody_listens_or_not(drive: Drive) -> None:
    recorded = Reply(headers={"Idempotent-Replayed": "true"})
    for script in ([200], [503, 200], [Reply(body=b"x", delay=1)], [304], [recorded], [299]):
        heard = drive.send(*script, listen=True, method="POST", headers=KEY)
        unheard = drive.send(*script, method="POST", headers=KEY)
        assert unheard.report == heard.report
        assert repr(unheard.report) == repr(heard.report)
    unfolded = drive.send(200).report
    assert pickle.loads(pickle.dumps(unfolded)) == unfolded


@everywhere
def test_nothing_is_told_of_what_was_not_sent_but_its_end(drive: Drive) -> None:
    policy = POLICY.replace(idempotency_key=lambda: "")
    sent = drive.send(200, method="POST", policy=policy, listen=True)
    assert kinds(sent.events) == [RequestFinished]


@everywhere
@pytest.mark.parametrize("script", [[200], [503, 200], [httpx.ReadTimeout] * 3])
def test_a_listener_that_raises_harms_nobody(
    drive: Drive, script: list[ScriptItem], caplog: pytest.LogCaptureFixture
) -> None:
    class Listener:
        """One whose repr shows what it should not."""

        def __repr__(self) -> str:
            return "key-secret"

        def __call__(self, event: RetryEvent) -> None:
            raise LookupError("a listener's own fault")

    heard: list[RetryEvent] = []
    clock = VirtualClock()
    wrapped = ScriptedTransport(*script)
    transport = RetryTransport(
        wrapped, policy=POLICY, clock=clock, listeners=[Listener(), heard.append]
    )
    sent = Sent(wrapped, clock, heard)
    drive.through(transport, sent)
    assert isinstance(heard[-1], RequestFinished)
    assert isinstance(sent.outcome, (httpx.Response, RetryError))
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == len(heard)
    assert "Listener failed on RequestFinished" in errors[-1].getMessage()
    assert "key-secret" not in caplog.text


@everywhere
@pytest.mark.parametrize("at", [AttemptStarted, AttemptFinished, RetryScheduled, RequestFinished])
def test_an_interrupt_in_a_listener_comes_out_and_leaves_no_response_open(
    drive: Drive, at: type[RetryEvent]
) -> None:
    reports: list[Any] = []

    def listener(event: RetryEvent) -> None:
        if isinstance(event, RequestFinished):
            reports.append(event.report)
        if type(event) is at:
            raise KeyboardInterrupt

    clock = VirtualClock()
    wrapped = ScriptedTransport(Reply(status=503, body=[b"why"]), Reply(body=[b"done"]))
    transport = RetryTransport(wrapped, policy=POLICY, clock=clock, listeners=[listener])
    sent = Sent(wrapped, clock)
    drive.through(transport, sent, method="PUT")
    assert type(sent.error) is KeyboardInterrupt
    assert wrapped.unclosed == []
    (report,) = reports
    if at is RequestFinished:
        assert report.outcome is Outcome.SUCCESS
    elif at is AttemptStarted:
        # Told just before it is sent: nobody knows any more whether it was.
        assert report.outcome in (Outcome.CANCELLED, Outcome.UNCERTAIN_WRITE)
    else:
        assert report.outcome is Outcome.UNCERTAIN_WRITE
        assert len(report.attempts) == 1


@everywhere
def test_an_event_is_a_value_that_nobody_can_change(drive: Drive) -> None:
    sent = drive.send(503, 503, 503, listen=True)
    assert len(set(kinds(sent.events))) == 5
    for event in sent.events:
        for field in dataclasses.fields(event):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(event, field.name, None)
        assert not hasattr(event, "__dict__")
        assert pickle.loads(pickle.dumps(event)) == event
        hash(event)


@everywhere
def test_a_layer_inside_another_marks_its_events(drive: Drive) -> None:
    clock = VirtualClock()
    script = ScriptedTransport(httpx.ReadTimeout, 200, clock=clock)
    inner_events: list[RetryEvent] = []
    sent = Sent(script, clock)
    inner = RetryTransport(script, policy=POLICY, clock=clock, listeners=[inner_events.append])
    outer = RetryTransport(inner, policy=POLICY, clock=clock, listeners=[sent.events.append])
    drive.through(outer, sent)
    attempt = [AttemptStarted, AttemptFinished]
    assert kinds(inner_events) == [
        *attempt,
        RetryRefused,
        RequestFinished,
        *attempt,
        RequestFinished,
    ]
    assert {event.passive for event in inner_events} == {True}
    assert kinds(sent.events) == [*attempt, RetryScheduled, *attempt, RequestFinished]
    assert {event.passive for event in sent.events} == {False}


def test_a_scheduled_retry_that_is_called_off_is_told_as_refused() -> None:
    called_off = threading.Event()
    sent = SYNC.send(
        503,
        listen=True,
        on_wait=lambda sent: called_off.set(),
        extensions={"retry": {"cancel": called_off}},
    )
    assert kinds(sent.events) == [
        AttemptStarted,
        AttemptFinished,
        RetryScheduled,
        RetryRefused,
        RequestFinished,
    ]
    refused = sent.events[-2]
    assert isinstance(refused, RetryRefused)
    assert refused.stop_reason is StopReason.CANCELLED


@everywhere
@pytest.mark.parametrize("policy", [POLICY, POLICY.replace(deadline=9), lambda request: POLICY])
def test_a_success_that_nobody_hears_of_makes_no_event(
    drive: Drive, policy: RetryPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    for kind in (AttemptStarted, AttemptFinished, RequestFinished):
        monkeypatch.setattr(f"httpx_safe_retry._record.{kind.__name__}", made.append)
    for method in ("GET", "POST"):
        assert drive.send(200, method=method, policy=policy).response.status_code == 200
    assert made == []


def test_a_users_own_event_can_be_told_too(caplog: pytest.LogCaptureFixture) -> None:
    """`RetryEvent` is public: what derives from it needs no line of its own here."""
    from httpx_safe_retry._events import Observers

    caplog.set_level(logging.DEBUG, "httpx_safe_retry")
    heard: list[RetryEvent] = []
    event = RetryEvent(1, "GET", URL)
    Observers([heard.append]).tell(event)
    assert heard == [event]
    assert caplog.messages == [f"GET {URL}: RetryEvent"]


# --- lines


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    """The lines of one level."""
    return [record.getMessage() for record in caplog.records if record.levelno == level]


@everywhere
def test_a_retry_is_one_line_at_info(drive: Drive, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "httpx_safe_retry")
    policy = RetryPolicy(backoff=Backoff(base=0.25, jitter="none"))
    busy = Reply(status=429, headers={"Retry-After": "7"})
    drive.send(503, busy, Reply(body=b"done"), policy=policy)
    first, second = lines(caplog, logging.INFO)
    assert first == (
        f"GET {URL}: answered 503 Service Unavailable; attempt 2 of 3 in 0.25 s (backoff)"
    )
    assert second == (
        f"GET {URL}: answered 429 Too Many Requests; attempt 3 of 3 in 7 s (retry-after)"
    )
    assert {record.name for record in caplog.records} == {"httpx_safe_retry"} | {
        record.name for record in caplog.records if record.name == NAME
    }


@everywhere
def test_an_uncertain_write_is_one_line_at_warning(
    drive: Drive, caplog: pytest.LogCaptureFixture
) -> None:
    drive.send(httpx.ReadTimeout, method="POST")
    (line,) = lines(caplog, logging.WARNING)
    assert line.startswith(f"POST {URL} ")
    assert "ReadTimeout" in line


@everywhere
@pytest.mark.parametrize(
    ("script", "method"),
    [([200], "POST"), ([404], "POST"), ([503] * 3, "GET"), ([httpx.ConnectError] * 3, "POST")],
)
def test_what_is_certain_warns_nobody(
    drive: Drive, script: list[ScriptItem], method: str, caplog: pytest.LogCaptureFixture
) -> None:
    drive.send(*script, method=method)
    assert lines(caplog, logging.WARNING) == []


@everywhere
def test_success_at_once_is_not_worth_a_line_above_debug(
    drive: Drive, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "httpx_safe_retry")
    drive.send(200)
    assert [record for record in caplog.records if record.name == "httpx_safe_retry"] == []


@everywhere
def test_everything_is_there_at_debug(drive: Drive, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "httpx_safe_retry")
    drive.send(503, 503, 503)
    told = [record for record in caplog.records if record.name == "httpx_safe_retry"]
    assert [record.levelno for record in told] == [
        logging.DEBUG,
        logging.DEBUG,
        logging.INFO,
        logging.DEBUG,
        logging.DEBUG,
        logging.INFO,
        logging.DEBUG,
        logging.DEBUG,
        logging.DEBUG,
        logging.DEBUG,
    ]


# --- secrets


@everywhere
@pytest.mark.parametrize(
    "script",
    [
        [503] * 3,
        [httpx.ConnectError] * 3,
        [httpx.ReadTimeout("key-secret t-secret pw-secret")] * 3,
        [httpx.LocalProtocolError("Illegal header value b'Bearer auth-secret'")],
        [ValueError("made-secret auth-secret")],
        [Reply(status=503, headers={"Retry-After": "x" * 100}, body=b"auth-secret"), 404],
        [200],
    ],
)
@pytest.mark.parametrize("made", [False, True])
def test_nothing_secret_is_told_anywhere(
    drive: Drive,
    script: list[ScriptItem],
    made: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "httpx_safe_retry")
    headers = dict(SECRET_HEADERS)
    policy = POLICY
    if made:
        del headers["Idempotency-Key"]
        policy = POLICY.replace(idempotency_key=lambda: "made-secret")
    sent = drive.send(
        *script,
        method="POST",
        url=SECRET_URL,
        headers=headers,
        policy=policy,
        listen=True,
        # Or httpx would make the URL's user into another Authorization.
        client={"auth": lambda request: request},
    )
    ours = [record for record in caplog.records if record.name == "httpx_safe_retry"]
    told = [record.getMessage() for record in ours]
    told += [repr(event) for event in sent.events]
    told += [repr(sent.report), sent.report.explain(), sent.report.summary()]
    if isinstance(sent.outcome, RetryError):
        told += [str(sent.outcome), repr(sent.outcome)]
    shown = "\n".join(told)
    assert [secret for secret in SECRETS if secret in shown] == []
    assert "https://example.org/a/path" in shown


def test_a_made_key_is_withheld_where_an_error_quotes_it() -> None:
    policy = POLICY.replace(idempotency_key=lambda: "made-secret")
    quoting = httpx.LocalProtocolError("Illegal header value b'made-secret'")
    report = SYNC.send(quoting, method="POST", policy=policy).report
    (attempt,) = report.attempts
    assert isinstance(attempt, Attempt)
    assert attempt.error_text is not None
    assert "made-secret" not in attempt.error_text


# --- cancellation


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize(
    ("method", "outcome"), [("GET", Outcome.CANCELLED), ("PUT", Outcome.UNCERTAIN_WRITE)]
)
def test_the_report_of_a_cancelled_request_reaches_the_listeners(
    backend: str, method: str, outcome: Outcome, caplog: pytest.LogCaptureFixture
) -> None:
    async def hang(request: httpx.Request) -> int:
        await anyio.sleep_forever()
        return 200

    events: list[RetryEvent] = []
    transport = RetryTransport(ScriptedTransport(hang), policy=POLICY, listeners=[events.append])

    async def main() -> None:
        with anyio.move_on_after(0.02) as scope:
            await transport.handle_async_request(httpx.Request(method, URL))
        assert scope.cancelled_caught

    anyio.run(main, backend=backend)
    assert kinds(events) == [AttemptStarted, AttemptFinished, RequestFinished]
    finished = events[-1]
    assert isinstance(finished, RequestFinished)
    assert (finished.report.outcome, finished.report.stop_reason) == (
        outcome,
        StopReason.CANCELLED,
    )
    assert len(lines(caplog, logging.WARNING)) == (outcome is Outcome.UNCERTAIN_WRITE)
