"""The report: its fields, filled in when somebody looks, and what it says in words."""

from __future__ import annotations

import copy
import dataclasses
import gc
import itertools
import pickle
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from httpx_safe_retry import DelaySource, Evidence, Outcome, RetryReport, StopReason
from httpx_safe_retry._explain import seconds
from httpx_safe_retry._report import folded_report
from tests.reports import attempt_of, report_of

# The value ---------------------------------------------------------------------------------------


def folded(report: RetryReport, looked_at: list[int] | None = None) -> RetryReport:
    def unfold() -> tuple[Any, ...]:
        if looked_at is not None:
            looked_at.append(1)
        return tuple(getattr(report, field.name) for field in dataclasses.fields(report))

    return folded_report(unfold)


FORMS: list[Callable[[RetryReport], RetryReport]] = [lambda report: report, folded]


@pytest.mark.parametrize("form", FORMS)
def test_a_report_is_a_value(form: Callable[[RetryReport], RetryReport]) -> None:
    report = report_of()
    assert form(report) == report
    assert hash(form(report)) == hash(report)
    assert repr(form(report)) == repr(report)
    assert form(report) != report_of(Outcome.SUCCESS, StopReason.DONE)


@pytest.mark.parametrize("form", FORMS)
def test_a_report_survives_pickle_and_copy(form: Callable[[RetryReport], RetryReport]) -> None:
    report = report_of(executed=None, deadline=2.0)
    clones = [pickle.loads(pickle.dumps(form(report), n)) for n in range(2, 6)]
    clones += [copy.copy(form(report)), copy.deepcopy(form(report))]
    clones += [dataclasses.replace(form(report))]
    for clone in clones:
        assert type(clone) is RetryReport
        assert clone == report
        assert clone.explain() == report.explain()


@pytest.mark.parametrize("form", FORMS)
def test_a_report_can_not_be_changed(form: Callable[[RetryReport], RetryReport]) -> None:
    report: Any = form(report_of())
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.outcome = Outcome.SUCCESS
    with pytest.raises(AttributeError, match="'RetryReport' object has no attribute 'outcom'"):
        _ = report.outcom
    assert not hasattr(report, "__dict__")


def test_a_report_is_filled_in_once_when_it_is_first_looked_at() -> None:
    looked_at: list[int] = []
    report = folded(report_of(), looked_at)
    assert looked_at == []
    assert (report.outcome, report.max_attempts) == (Outcome.EXHAUSTED, 3)
    assert report.summary() == report_of().summary()
    assert looked_at == [1]


def test_a_report_lets_go_of_what_it_was_made_from() -> None:
    class Request:
        pass

    request = Request()
    gone = weakref.ref(request)

    def unfold(of: Request = request) -> tuple[Any, ...]:
        return tuple(getattr(report_of(), field.name) for field in dataclasses.fields(RetryReport))

    report = folded_report(unfold)
    del request, unfold
    assert gone() is not None
    assert report.slept == 0.5
    gc.collect()
    assert gone() is None


def test_threads_that_look_at_once_see_the_same() -> None:
    expected = report_of()
    barrier = threading.Barrier(4)

    def look(report: RetryReport) -> bool:
        barrier.wait()
        return report == expected

    with ThreadPoolExecutor(4) as pool:
        for _ in range(50):
            assert all(pool.map(look, [folded(expected)] * 4))


def test_a_report_that_was_never_filled_in_has_no_fields() -> None:
    with pytest.raises(AttributeError):
        _ = RetryReport.__new__(RetryReport).outcome


@pytest.mark.parametrize("word", [*Outcome, *StopReason, *Evidence, *DelaySource])
def test_its_words_are_plain_strings_in_logs_and_metrics(word: Any) -> None:
    assert f"{word}" == str(word) == word.value == word
    assert f"{word:>30}" == f"{word.value:>30}"
    assert pickle.loads(pickle.dumps(word)) is word


# The words ---------------------------------------------------------------------------------------

UNCERTAIN = Outcome.UNCERTAIN_WRITE
TIMED_OUT = attempt_of(
    status=None,
    error_type="ReadTimeout",
    error_text="timed out",
    elapsed=5.0,
    reason="ReadTimeout: not safe to send again",
)


def test_an_unkeyed_payment_whose_answer_was_lost() -> None:
    report = report_of(
        UNCERTAIN,
        StopReason.NOT_REPLAY_SAFE,
        executed=None,
        attempts=[TIMED_OUT],
        elapsed=5.0,
        slept=0.0,
    )
    assert report.summary() == (
        "POST https://example.org/payments may have happened: "
        "ReadTimeout at attempt 1 of 3 after 5 s; repeating it could run it twice"
    )
    assert report.explain().splitlines() == [
        "POST https://example.org/payments may have happened (5 s in all).",
        '  1. ReadTimeout: not safe to send again (5 s; may have run; "timed out").',
        "It was not sent again because repeating it could run it twice.",
        "Nobody knows whether the operation happened: tell your user that, not that it failed.",
        "Look up on the server what became of it before you send it again.",
        "It is not idempotent and carries no idempotency key: next time send one that the server "
        "honours.",
    ]


def test_a_keyed_payment_that_stayed_uncertain() -> None:
    first = attempt_of(
        1, delay=0.1, delay_source=DelaySource.BACKOFF, reason="answered 503 Service Unavailable"
    )
    last = attempt_of(2, reason="answered 503 Service Unavailable: attempt 2 of 2")
    report = report_of(
        UNCERTAIN,
        executed=None,
        attempts=[first, last],
        max_attempts=2,
        replay_safe=True,
        idempotency_key_present=True,
    )
    assert report.summary() == (
        "POST https://example.org/payments may have happened: "
        "503 at attempt 2 of 2 after 1.5 s; no attempts were left"
    )
    assert report.explain().splitlines() == [
        "POST https://example.org/payments may have happened (1.5 s in all, 0.5 s of it waiting).",
        "  1. answered 503 Service Unavailable (0.25 s; may have run); "
        "next one due after 0.1 s (backoff).",
        "  2. answered 503 Service Unavailable: attempt 2 of 2 (0.25 s; may have run).",
        "It was not sent again because no attempts were left.",
        "Nobody knows whether the operation happened: tell your user that, not that it failed.",
        "The same request can safely be sent again later.",
        "Use the same idempotency key: a new one could run it twice.",
    ]


def test_a_write_that_was_confirmed_and_whose_answer_was_lost() -> None:
    lost = attempt_of(
        status=201,
        error_type="ReadError",
        evidence=Evidence.EXECUTED,
        reason="answered 201 Created, then ReadError in its body: not safe to send again",
    )
    report = report_of(UNCERTAIN, StopReason.NOT_REPLAY_SAFE, executed=True, attempts=[lost])
    assert report.summary() == (
        "POST https://example.org/payments happened, but no usable answer came back: "
        "201, then ReadError at attempt 1 of 3 after 1.5 s; repeating it could run it twice"
    )
    assert "The operation did happen: do not tell your user that it failed." in report.explain()
    assert "Nobody knows" not in report.explain()


def test_a_read_that_succeeded_in_the_end_says_nothing_about_running() -> None:
    first = attempt_of(
        1,
        retry_after=3600.0,
        delay=60.0,
        delay_source=DelaySource.RETRY_AFTER,
        reason="answered 503 Service Unavailable, which asked for 3600 s, more than 60 s",
    )
    last = attempt_of(2, status=200, evidence=Evidence.EXECUTED, reason="answered 200 OK")
    report = report_of(
        Outcome.SUCCESS,
        StopReason.DONE,
        executed=True,
        attempts=[first, last],
        method="GET",
        is_write=False,
        elapsed=60.5,
        slept=60.0,
    )
    expected = "GET https://example.org/payments succeeded: 200 at attempt 2 of 3 after 60.5 s"
    assert report.summary() == expected
    assert report.explain().splitlines() == [
        "GET https://example.org/payments succeeded (60.5 s in all, 60 s of it waiting).",
        "  1. answered 503 Service Unavailable, which asked for 3600 s, more than 60 s (0.25 s); "
        "next one due after 60 s (retry-after).",
        "  2. answered 200 OK (0.25 s).",
    ]


def test_a_wait_that_could_not_be_followed_is_told() -> None:
    first = attempt_of(
        anomaly="malformed: 'soon'", delay=0.1, delay_source=DelaySource.BACKOFF, reason="503"
    )
    report = report_of(attempts=[first, attempt_of(2)])
    assert report.explain().splitlines()[1] == (
        "  1. 503 (0.25 s; may have run); the wait that it asked for was not followed: "
        "malformed: 'soon'; next one due after 0.1 s (backoff)."
    )


def test_a_read_that_never_went_out_says_so() -> None:
    failed = attempt_of(
        status=None, error_type="ConnectError", evidence=Evidence.NOT_SENT, reason="ConnectError"
    )
    report = report_of(attempts=[failed], is_write=False, method="GET")
    assert report.explain().splitlines()[1] == "  1. ConnectError (0.25 s; was not sent)."


@pytest.mark.parametrize(
    ("outcome", "stop_reason", "ended", "advice"),
    [
        (
            Outcome.DEADLINE_EXCEEDED,
            StopReason.DEADLINE,
            "ran out of time",
            "It can be sent again later.",
        ),
        (Outcome.CANCELLED, StopReason.CANCELLED, "was cancelled", "It can be sent again."),
    ],
)
def test_what_ended_before_it_was_sent_says_so(
    outcome: Outcome, stop_reason: StopReason, ended: str, advice: str
) -> None:
    report = report_of(outcome, stop_reason, attempts=[], elapsed=0.0, slept=0.0, replay_safe=True)
    assert report.summary() == f"POST https://example.org/payments {ended} before it was sent"
    assert report.explain().splitlines() == [
        f"POST https://example.org/payments {ended} (0 s in all).",
        "It was not sent at all.",
        "The operation did not happen.",
        advice,
    ]


def test_the_deadline_is_named_where_there_is_one_of_ours() -> None:
    report = report_of(Outcome.DEADLINE_EXCEEDED, StopReason.DEADLINE, deadline=5.0)
    assert report.summary().endswith("; no time was left for another attempt within its 5 s")
    task = report_of(Outcome.DEADLINE_EXCEEDED, StopReason.DEADLINE)
    assert task.summary().endswith("; no time was left for another attempt")
    assert "within" not in report_of(deadline=5.0).summary()


@pytest.mark.parametrize(("statuses", "keyed"), [((409,), True), ((409,), False), ((404,), True)])
def test_a_409_for_a_key_is_not_said_to_speak_of_what_was_sent_with_it_before(
    statuses: tuple[int, ...], keyed: bool
) -> None:
    report = report_of(
        Outcome.PERMANENT_FAILURE,
        StopReason.NOT_TRANSIENT,
        statuses=statuses,
        idempotency_key_present=keyed,
    )
    careful = "If you have sent its key before" in report.explain()
    assert careful is (keyed and statuses == (409,))
    assert ("The operation did not happen." in report.explain()) is not careful


@pytest.mark.parametrize(
    ("stop_reason", "advice"),
    [
        (StopReason.MAX_ATTEMPTS, "It can be sent again later."),
        (StopReason.DISABLED, "It can be sent again."),
        (StopReason.DEADLINE, "It can be sent again later."),
        (StopReason.CANCELLED, "It can be sent again."),
        (StopReason.BODY_NOT_REPLAYABLE, "It can be sent again, with its body made anew."),
        (StopReason.BUDGET, "It can be sent again, but not at once: much is failing there."),
        (StopReason.RETRY_AFTER, "It can be sent again, in 3600 s and not sooner."),
    ],
)
@pytest.mark.parametrize("is_write", [False, True])
def test_what_did_not_happen_can_be_sent_again(
    stop_reason: StopReason, advice: str, is_write: bool
) -> None:
    attempts = [attempt_of(retry_after=3600.0)]
    report = report_of(
        Outcome.EXHAUSTED, stop_reason, attempts=attempts, replay_safe=True, is_write=is_write
    )
    lines = report.explain().splitlines()
    assert lines[-1] == advice
    assert ("The operation did not happen." in lines) == is_write


def test_a_delete_that_may_have_been_ours_can_be_repeated_but_that_tells_nothing() -> None:
    gone = attempt_of(
        status=404, evidence=Evidence.REFUSED, reason="answered 404 Not Found", elapsed=1.0
    )
    report = report_of(
        UNCERTAIN, StopReason.NOT_TRANSIENT, executed=None, attempts=[gone], replay_safe=True
    )
    assert report.explain().splitlines()[1:] == [
        "  1. answered 404 Not Found (1 s; did not run).",
        "It was not sent again because the same again is not expected to help.",
        "Nobody knows whether the operation happened: tell your user that, not that it failed.",
        "Look up on the server what became of it.",
        "The same request can safely be sent again.",
    ]


def test_a_permanent_failure_asks_for_a_change() -> None:
    report = report_of(Outcome.PERMANENT_FAILURE, StopReason.NOT_TRANSIENT, replay_safe=True)
    assert report.explain().splitlines()[-3:] == [
        "It was not sent again because the same again is not expected to help.",
        "The operation did not happen.",
        "Change the request, or what it depends on, before you send it again.",
    ]


def test_a_read_that_must_not_be_repeated_is_not_called_safe_to_repeat() -> None:
    report = report_of(Outcome.EXHAUSTED, StopReason.NOT_REPLAY_SAFE, is_write=False)
    assert report.explain().splitlines()[-1] == (
        "Send it again only if running it twice does no harm."
    )


ENDINGS = [
    (Outcome.SUCCESS, StopReason.DONE),
    (Outcome.PERMANENT_FAILURE, StopReason.NOT_TRANSIENT),
    (Outcome.DEADLINE_EXCEEDED, StopReason.DEADLINE),
    (Outcome.CANCELLED, StopReason.CANCELLED),
    *itertools.product([Outcome.EXHAUSTED], set(StopReason) - {StopReason.DONE}),
    *itertools.product([UNCERTAIN], set(StopReason) - {StopReason.DONE}),
]


@pytest.mark.parametrize(("outcome", "stop_reason"), ENDINGS)
def test_no_combination_contradicts_itself(outcome: Outcome, stop_reason: StopReason) -> None:
    for executed, safe, keyed, is_write, asked, several in itertools.product(
        (None, True), (False, True), (False, True), (False, True), (None, 3600.0), (False, True)
    ):
        attempts = [attempt_of(n, retry_after=asked) for n in range(1, 3 if several else 2)]
        report = report_of(
            outcome,
            stop_reason,
            executed=executed if outcome is UNCERTAIN else False,
            replay_safe=safe or keyed,
            idempotency_key_present=keyed,
            is_write=is_write or outcome is UNCERTAIN,
            attempts=attempts,
        )
        line, words = report.summary(), report.explain()
        assert "\n" not in line
        assert len(line) < 200
        assert words.count("\n") < 8
        certain = outcome is not UNCERTAIN
        assert ("did not happen" in words) == (
            certain and is_write and outcome is not Outcome.SUCCESS
        )
        assert ("Nobody knows" in words) == (not certain and executed is None)
        assert ("did happen" in words) == (not certain and executed is True)
        assert ("can safely be sent again" in words) == (not certain and report.replay_safe)
        assert ("no idempotency key" in words) == (not certain and not report.replay_safe)
        for text in (line, words):
            assert "None" not in text
            assert "  ." not in text


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.0, "0 s"),
        (0.00001, "0 s"),
        (0.0005001, "0.001 s"),
        (0.25, "0.25 s"),
        (1.23456, "1.23 s"),
        (12.0, "12 s"),
        (99.96, "100 s"),
        (100.4, "100 s"),
        (3600.0, "3600 s"),
        (2.0**53, "9007199254740992 s"),
    ],
)
def test_durations_are_written_as_a_person_reads_them(value: float, words: str) -> None:
    assert seconds(value) == words


def test_an_attempt_is_a_value_too() -> None:
    attempt = attempt_of(2, delay=1.0)
    assert pickle.loads(pickle.dumps(attempt)) == copy.copy(attempt) == attempt
    assert not hasattr(attempt, "__dict__")
