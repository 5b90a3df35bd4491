"""Corners of the table that `tests/mutation.py` could break without any other test noticing."""

from __future__ import annotations

from types import SimpleNamespace

import h2.connection
import h2.exceptions
import h11
import pytest

from httpx_safe_retry import Evidence, RetryPolicy, Verdict
from httpx_safe_retry._classify import Finding, classify_answer, classify_error
from tests.library import httpx

POLICY = RetryPolicy()


def made_from(cause: BaseException, error: Exception) -> Exception:
    error.__cause__ = cause
    return error


def classified(error: Exception, *, stream_id: int | None = None) -> Finding:
    finding = classify_error(POLICY, error, stream_id=stream_id)
    assert finding is not None
    return finding


def test_the_kin_of_httpx_names_its_errors_as_httpx_does() -> None:
    kin = type("ReadTimeout", (Exception,), {"__module__": "httpx2"})
    finding = classified(kin("slow"))
    assert (finding.evidence, finding.transient) == (Evidence.AMBIGUOUS, True)


def test_a_413_without_a_wait_is_final() -> None:
    assert not classify_answer(POLICY, 413).transient


def test_a_recorded_500_never_speaks_for_the_key() -> None:
    policy = POLICY.replace(refusal_statuses={500})
    assert not classify_answer(policy, 500, keyed=True, replayed=True).speaks_for_key


def test_a_409_of_which_nothing_else_is_known_is_a_refusal() -> None:
    assert classify_answer(POLICY, 409, keyed=True).evidence is Evidence.REFUSED


def test_a_policy_may_take_still_running_for_done() -> None:
    running = classify_answer(POLICY, 409, keyed=True, after_ambiguous=True)
    assert running.amended(Verdict(transient=False, evidence=Evidence.EXECUTED)).success


@pytest.mark.parametrize("kind", [httpx.ReadError, httpx.RemoteProtocolError])
def test_what_h11_would_not_send_proves_nothing_when_the_error_is_another(
    kind: type[httpx.TransportError],
) -> None:
    finding = classified(made_from(h11.LocalProtocolError("no"), kind("reset")))
    assert finding.evidence is Evidence.AMBIGUOUS


def test_what_h11_would_not_send_is_no_malformed_answer() -> None:
    finding = classified(made_from(h11.LocalProtocolError("no"), httpx.LocalProtocolError("no")))
    assert finding.reason == "LocalProtocolError"


def test_an_answer_that_h11_could_not_read_proves_nothing_of_what_was_sent() -> None:
    cause = h11.RemoteProtocolError("?")
    finding = classified(made_from(cause, httpx.LocalProtocolError("no")))
    assert finding.evidence is Evidence.AMBIGUOUS


@pytest.mark.parametrize(
    "cause", [KeyError(5), RuntimeError((h2.connection.ConnectionState.CLOSED, "input"))]
)
def test_only_what_h2_makes_of_its_state_tells_that_a_connection_was_closed(
    cause: Exception,
) -> None:
    assert not classified(made_from(cause, httpx.LocalProtocolError("no"))).transient


def test_a_closed_http2_connection_does_not_mend_an_unknown_error() -> None:
    missed = KeyError((h2.connection.ConnectionState.CLOSED, "input"))
    refusal = made_from(missed, h2.exceptions.ProtocolError("closed"))
    assert not classified(made_from(refusal, httpx.TransportError("what?"))).transient


def test_only_numbers_name_streams() -> None:
    event = SimpleNamespace(last_stream_id="1", error_code="7", remote_reset=True)
    error = made_from(Exception(event), httpx.RemoteProtocolError("?"))
    assert classified(error, stream_id=5).evidence is Evidence.AMBIGUOUS


def test_only_tls_errors_tell_of_certificates() -> None:
    cause = OSError("?")
    vars(cause)["reason"] = "TLSV1_ALERT_UNKNOWN_CA"
    assert classified(made_from(cause, httpx.ReadError("reset"))).transient


def test_a_proxy_may_answer_with_anything() -> None:
    assert not classified(httpx.ProxyError("5xx Whatever")).transient
