"""How long is waited between the attempts, as a caller meets it: backoff, Retry-After, hints."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest

from httpx_safe_retry import (
    Backoff,
    DelaySource,
    Outcome,
    RetryPolicy,
    StopReason,
)
from httpx_safe_retry.testing import Reply, VirtualClock
from tests.drive import POLICY, SYNC, Drive, everywhere
from tests.library import httpx

NOW = datetime(2020, 6, 25, 21, 28, 12, tzinfo=timezone.utc).timestamp()
LONG = POLICY.replace(retry_after_max=600)


def after(value: str, **more: str) -> Reply:
    """An answer that asks for a wait."""
    return Reply(status=503, headers={"Retry-After": value, **more})


@pytest.fixture
def zone(request: pytest.FixtureRequest) -> Iterator[None]:
    """The machine's own time zone, which HTTP dates have nothing to do with."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "TZ", request.param)
        time.tzset()
        yield
    time.tzset()


# --- Retry-After


@everywhere
@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"], indirect=True)
@pytest.mark.parametrize(
    "date",
    [
        "Thu, 25 Jun 2020 21:30:12 GMT",
        "Thursday, 25-Jun-20 21:30:12 GMT",
        "Thu Jun 25 21:30:12 2020",
    ],
)
def test_a_date_means_the_same_in_every_zone_and_form(drive: Drive, date: str) -> None:
    sent = drive.send(after(date), 200, policy=LONG, clock=VirtualClock(epoch=NOW))
    assert sent.waits == [120.0]
    first = sent.report.attempts[0]
    assert (first.retry_after, first.anomaly, first.delay_source) == (
        120.0,
        None,
        DelaySource.RETRY_AFTER,
    )


@everywhere
def test_a_date_is_measured_against_the_answers_own_clock(drive: Drive) -> None:
    reply = after("Thu, 25 Jun 2020 21:30:12 GMT", Date="Thu, 25 Jun 2020 21:30:02 GMT")
    sent = drive.send(reply, 200, clock=VirtualClock(epoch=NOW + 86400))
    assert sent.waits == [10.0]


@everywhere
def test_seconds_may_stand_among_blanks(drive: Drive) -> None:
    sent = drive.send(after(" 5 "), after("0"), 200)
    assert sent.waits == [5.0, 0.0]
    assert [attempt.delay for attempt in sent.report.attempts] == [5.0, 0.0, None]


@everywhere
@pytest.mark.parametrize(
    "value",
    [
        "1 Jan 2099 00:00:00",
        "Thu, 25 Jun 2020 21:30:12 XYZ",
        "Thu, 25 Jun 2020 20:28:12 GMT",
        "nan",
        "inf",
        "-5",
        "1e3",
        "+3",
        "0.503",
        "",
    ],
)
def test_what_cannot_be_followed_is_noted_and_backed_off_from(drive: Drive, value: str) -> None:
    sent = drive.send(after(value), 200, policy=LONG, clock=VirtualClock(epoch=NOW))
    assert sent.waits == [1.0]
    first = sent.report.attempts[0]
    assert first.anomaly
    assert (first.retry_after, first.delay_source) == (None, DelaySource.BACKOFF)


@everywhere
@pytest.mark.parametrize("drawn", [0.0, 0.5, 0.999])
def test_jitter_is_added_on_top_of_the_servers_minimum(drive: Drive, drawn: float) -> None:
    policy = POLICY.replace(retry_after_jitter=2)
    sent = drive.send(after("10"), 200, policy=policy, random=lambda: drawn)
    assert sent.waits == [10 + 2 * drawn]


@everywhere
@pytest.mark.parametrize(("over", "wait"), [("clamp", 60.0), ("backoff", 1.0)])
def test_a_wait_that_is_too_long_is_shortened(drive: Drive, over: Any, wait: float) -> None:
    sent = drive.send(after("3600"), 200, policy=POLICY.replace(retry_after_over=over))
    assert sent.waits == [wait]
    assert sent.report.attempts[0].retry_after == 3600


@everywhere
def test_a_wait_that_is_too_long_ends_it(drive: Drive) -> None:
    sent = drive.send(after("3600"), policy=POLICY.replace(retry_after_over="stop"))
    assert (sent.response.status_code, sent.waits) == (503, [])
    assert (sent.report.outcome, sent.report.stop_reason) == (
        Outcome.EXHAUSTED,
        StopReason.RETRY_AFTER,
    )
    assert sent.report.attempts[0].retry_after == 3600


@everywhere
def test_the_servers_wish_can_be_ignored(drive: Drive) -> None:
    sent = drive.send(after("10"), 200, policy=POLICY.replace(respect_retry_after=False))
    assert sent.waits == [1.0]


# --- hints


@everywhere
def test_a_hint_is_asked_first_and_treated_like_retry_after(drive: Drive) -> None:
    def hint(response: httpx.Response) -> float | None:
        milliseconds = response.headers.get("retry-after-ms")
        return None if milliseconds is None else int(milliseconds) / 1000

    policy = POLICY.replace(delay_hint=hint, max_attempts=4)
    both = after("10", **{"retry-after-ms": "250"})
    huge = Reply(status=503, headers={"retry-after-ms": "90000"})
    sent = drive.send(both, huge, after("7"), 200, policy=policy)
    assert sent.waits == [0.25, 60.0, 7.0]
    assert [attempt.delay_source for attempt in sent.report.attempts] == [
        DelaySource.DELAY_HINT,
        DelaySource.DELAY_HINT,
        DelaySource.RETRY_AFTER,
        None,
    ]


@everywhere
@pytest.mark.parametrize("hinted", [-1, float("nan"), float("inf"), "5", True, 10**400])
def test_a_hint_that_is_no_number_of_seconds_is_noted_and_backed_off_from(
    drive: Drive, hinted: Any
) -> None:
    sent = drive.send(503, 200, policy=POLICY.replace(delay_hint=lambda response: hinted))
    assert sent.waits == [1.0]
    assert sent.report.attempts[0].anomaly == "delay_hint returned no number of seconds"


@everywhere
def test_a_hint_is_not_asked_about_what_is_not_sent_again(drive: Drive) -> None:
    def hint(response: httpx.Response) -> float | None:
        raise AssertionError(response.status_code)

    policy = POLICY.replace(delay_hint=hint)
    assert drive.send(200, policy=policy).response.status_code == 200
    assert drive.send(404, policy=policy).response.status_code == 404


# --- backoff


@everywhere
def test_every_wait_is_the_one_that_is_reported(drive: Drive) -> None:
    generator = random.Random(1)
    policy = RetryPolicy(max_attempts=6)
    sent = drive.send(*[503] * 5, 200, policy=policy, random=generator.random, budget=None)
    assert sent.waits == [attempt.delay for attempt in sent.report.attempts[:-1]]
    assert sent.report.slept == pytest.approx(sum(sent.waits))
    assert sent.report.elapsed == pytest.approx(sum(sent.waits))
    assert sent.clock.monotonic() == pytest.approx(sum(sent.waits))


def test_the_default_waits_are_spread_and_none_of_them_is_nothing() -> None:
    seen: set[float] = set()
    for seed in range(200):
        sent = SYNC.send(503, 503, 200, policy=RetryPolicy(), random=random.Random(seed).random)
        first, second = sent.waits
        assert 0 < first < 0.1
        assert 0 < second < 0.2
        seen.update(sent.waits)
    assert len(seen) == 400


@everywhere
def test_decorrelated_jitter_builds_on_the_wait_before_whoever_chose_it(drive: Drive) -> None:
    policy = POLICY.replace(backoff=Backoff(base=1, cap=100, jitter="decorrelated"), max_attempts=4)
    sent = drive.send(503, after("10"), 503, 200, policy=policy, random=lambda: 0.5)
    assert sent.waits == [2.0, 10.0, 15.5]


@everywhere
def test_backoff_may_be_any_callable_of_the_number_of_the_retry(drive: Drive) -> None:
    policy = POLICY.replace(backoff=lambda number: number * 10)
    sent = drive.send(503, 503, 200, policy=policy)
    assert sent.waits == [10.0, 20.0]


@everywhere
@pytest.mark.parametrize(
    ("wait", "error"), [(-1, ValueError), (float("nan"), ValueError), ("1", TypeError)]
)
def test_a_callable_that_returns_no_wait_is_refused(
    drive: Drive, wait: Any, error: type[Exception]
) -> None:
    sent = drive.send(503, policy=POLICY.replace(backoff=lambda number: wait))
    assert type(sent.error) is error
    assert "what backoff returns" in str(sent.error)


@everywhere
def test_many_retries_overflow_nothing(drive: Drive) -> None:
    policy = POLICY.replace(max_attempts=1200, backoff=Backoff(base=1, cap=60, jitter="none"))
    sent = drive.send(*[503] * 1199, 200, policy=policy, budget=None)
    assert sent.response.status_code == 200
    assert sent.waits[-1] == 60.0


@everywhere
def test_attempts_take_their_time_and_the_report_tells_it_from_the_waits(drive: Drive) -> None:
    sent = drive.send(Reply(status=503, delay=0.25), Reply(delay=2, status=503), Reply(delay=0.5))
    assert [attempt.elapsed for attempt in sent.report.attempts] == [0.25, 2.0, 0.5]
    assert (sent.report.slept, sent.report.elapsed) == (3.0, 5.75)
    assert [request.time for request in sent.requests] == [0.0, 1.25, 5.25]


@everywhere
def test_a_request_that_succeeds_at_once_reports_its_time_too(drive: Drive) -> None:
    sent = drive.send(Reply(delay=0.25))
    assert (sent.report.slept, sent.report.elapsed) == (0.0, 0.25)
    assert sent.report.attempts[0].elapsed == 0.25
