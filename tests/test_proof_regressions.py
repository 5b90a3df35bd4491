"""What the cut-point proof and the model have found, each as its smallest case."""

from __future__ import annotations

import h2.connection
import h2.exceptions
import pytest
from h2.connection import ConnectionState
from hyperframe.frame import DataFrame, GoAwayFrame, SettingsFrame

from httpx_safe_retry import Evidence, RetryPolicy, RetryRefused
from httpx_safe_retry._classify import Finding, classify_answer, classify_error
from httpx_safe_retry._decide import Facts, executed
from httpx_safe_retry.testing import Reply
from tests.library import httpcore, httpx

from .drive import KEY, Drive, everywhere
from .proof.campaign import run_cases
from .proof.cases import (
    FAMILIES,
    OPERATIONS,
    REFUSED_STREAM,
    Case,
    Family,
    Fault,
    GoAway,
    Reset,
)
from .proof.judge import Tally

BY_NAME = {operation.name: operation for operation in OPERATIONS}


def attack(name: str, family: Family, fault: Fault) -> Tally:
    return run_cases(
        "ours", [Case(family, "http/2", BY_NAME[name], "length", True, "whole", fault)]
    )


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", ["PUT", "POST", "keyed POST"])
def test_an_answer_behind_a_goaway_is_a_lost_answer(name: str, family: Family) -> None:
    tally = attack(name, family, GoAway("committed", "own", "on"))
    assert tally.violations == []
    assert tally.uncertain == (name == "POST")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", ["PUT", "POST", "keyed POST"])
def test_a_goaway_within_an_answer_loses_no_more_than_the_answer(name: str, family: Family) -> None:
    tally = attack(name, family, GoAway("answering", "own", "on"))
    assert tally.violations == []


@pytest.mark.parametrize("family", FAMILIES)
def test_a_write_that_http2_refused_is_sent_again(family: Family) -> None:
    tally = attack("POST", family, Reset("whole", REFUSED_STREAM))
    assert (tally.violations, tally.uncertain, tally.retried) == ([], 0, 1)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_write_whose_body_a_goaway_cuts_off_is_sent_again(family: Family) -> None:
    """Where its body is under way, httpcore does not see to that itself."""
    fault = GoAway("head", "before", "on")
    case = Case(family, "http/2", BY_NAME["POST"], "long", True, "whole", fault)
    tally = run_cases("ours", [case])
    assert (tally.violations, tally.uncertain, tally.retried) == ([], 0, 1)


def what_h2_makes_of_data_behind_a_goaway() -> h2.exceptions.ProtocolError:
    connection = h2.connection.H2Connection()
    connection.initiate_connection()
    frames = [SettingsFrame(0), GoAwayFrame(0, last_stream_id=1), DataFrame(1, b"ok")]
    with pytest.raises(h2.exceptions.ProtocolError) as caught:
        connection.receive_data(b"".join(frame.serialize() for frame in frames))
    return caught.value


def test_httpcore_takes_what_follows_a_goaway_for_our_own_fault() -> None:
    inner = httpcore.LocalProtocolError(what_h2_makes_of_data_behind_a_goaway())
    error = httpx.LocalProtocolError(str(inner))
    error.__cause__ = inner
    finding = classify_error(RetryPolicy(), error)
    assert finding is not None
    assert (finding.evidence, finding.transient) == (Evidence.AMBIGUOUS, True)


@pytest.mark.parametrize(
    "reason", [None, KeyError(), KeyError("key"), KeyError((ConnectionState.IDLE, "input"))]
)
def test_a_request_that_h2_refuses_to_make_is_our_own_fault(reason: KeyError | None) -> None:
    refusal = h2.exceptions.ProtocolError("Invalid header name")
    refusal.__cause__ = reason
    inner = httpcore.LocalProtocolError(refusal)
    error = httpx.LocalProtocolError(str(inner))
    error.__cause__ = inner
    finding = classify_error(RetryPolicy(), error, never_sent=True)
    assert finding is not None
    assert (finding.evidence, finding.transient) == (Evidence.NOT_SENT, False)


def test_an_error_of_h2_itself_in_a_body_is_a_lost_answer() -> None:
    answer = Finding(Evidence.EXECUTED, False, "answered 200 OK")
    error = what_h2_makes_of_data_behind_a_goaway()
    finding = classify_error(RetryPolicy(), error, answer=answer)
    assert finding is not None
    assert (finding.evidence, finding.transient) == (Evidence.EXECUTED, True)


@everywhere
def test_a_recorded_answer_is_read_within_the_attempt_whatever_its_status(drive: Drive) -> None:
    """It is not thrown away, although its status is one that is usually tried again."""
    marked = {"Idempotent-Replayed": "true", "Content-Length": "3"}
    died = Reply(status=503, headers=marked, body=[b"w", httpx.ReadError("died")])
    whole = Reply(status=503, headers=marked, body=b"why")
    sent = drive.send(died, whole, method="POST", headers=KEY)
    assert (sent.response.content, len(sent.requests)) == (b"why", 2)


@everywhere
@pytest.mark.parametrize("kind", [KeyboardInterrupt, ValueError])
def test_what_was_answered_is_known_whatever_ends_the_reading_of_its_body(
    drive: Drive, kind: type[BaseException]
) -> None:
    ends = Reply(headers={"Content-Length": "2"}, body=[b"o", kind()])
    sent = drive.send(ends, method="POST", listen=True)
    assert type(sent.error) is kind
    assert sent.report.executed is True
    assert not any(isinstance(event, RetryRefused) for event in sent.events)


def test_a_recorded_timeout_leaves_open_whether_the_key_was_used() -> None:
    findings = [
        Finding(Evidence.AMBIGUOUS, True, "ReadTimeout"),
        classify_answer(RetryPolicy(), 408, keyed=True, replayed=True),
    ]
    assert executed(Facts(is_write=True, idempotent=False, keyed=True), findings) is None
