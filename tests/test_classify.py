"""What one attempt proves: the table of answers and the table of errors, in both directions."""

from __future__ import annotations

import errno
import itertools
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import h2.connection
import h2.errors
import h2.exceptions
import pytest

from httpx_safe_retry import Evidence, RetryPolicy, Verdict
from httpx_safe_retry._classify import (
    Finding,
    causes,
    classify_answer,
    classify_error,
    known_name,
)
from tests.library import NAME, httpcore, httpx
from tests.peers import (
    Answer,
    GoAway,
    Http1Server,
    Http2Server,
    HttpProxy,
    NamespacesRefusedError,
    Raw,
    Reset,
    client_tls,
    refusing_port,
    server_tls,
    without_network,
)
from tests.test_peers import PRIOR_KNOWLEDGE, Flavour, post_one

POLICY = RetryPolicy()
REQUEST = httpx.Request("POST", "https://example.org/")

EXECUTED, REFUSED = Evidence.EXECUTED, Evidence.REFUSED
NOT_SENT, AMBIGUOUS = Evidence.NOT_SENT, Evidence.AMBIGUOUS


# Answers -----------------------------------------------------------------------------------------


def row(finding: Finding) -> tuple[Evidence, bool]:
    return finding.evidence, finding.transient


@pytest.mark.parametrize("status", [101, 200, 201, 202, 204, 206, 299, 300, 304, 307, 399])
def test_an_answer_below_400_is_a_success(status: int) -> None:
    finding = classify_answer(POLICY, status)
    assert row(finding) == (EXECUTED, False)
    assert finding.success


@pytest.mark.parametrize("status", [-200, -1, 0, 1, 99, 100, 102, 103, 199])
def test_an_interim_or_impossible_answer_confirms_nothing(status: int) -> None:
    finding = classify_answer(POLICY, status)
    assert row(finding) == (AMBIGUOUS, False)
    assert not finding.success


def test_429_is_a_refusal_that_passes() -> None:
    assert row(classify_answer(POLICY, 429)) == (REFUSED, True)


@pytest.mark.parametrize("status", [408, 502, 503, 504])
def test_an_overload_or_a_timeout_on_the_way_is_ambiguous_and_passes(status: int) -> None:
    assert row(classify_answer(POLICY, status)) == (AMBIGUOUS, True)


@pytest.mark.parametrize("status", [500, 506, 507, 508, 510, 512, 520, 522, 529, 598, 599])
def test_any_other_5xx_is_ambiguous_and_stays(status: int) -> None:
    assert row(classify_answer(POLICY, status)) == (AMBIGUOUS, False)


@pytest.mark.parametrize("status", [600, 799, 999, 1000, 10**6])
def test_an_answer_past_5xx_is_ambiguous_and_stays(status: int) -> None:
    assert row(classify_answer(POLICY, status)) == (AMBIGUOUS, False)


@pytest.mark.parametrize("status", [501, 505, 511])
def test_a_server_that_can_not_run_such_a_request_refuses_it(status: int) -> None:
    assert row(classify_answer(POLICY, status)) == (REFUSED, False)


def test_any_other_4xx_is_a_refusal_that_stays() -> None:
    for status in set(range(400, 500)) - {408, 429}:
        assert row(classify_answer(POLICY, status)) == (REFUSED, False)
        assert row(classify_answer(POLICY, status, after_ambiguous=True)) == (REFUSED, False)


def test_413_passes_only_with_a_valid_retry_after() -> None:
    assert row(classify_answer(POLICY, 413, valid_retry_after=True)) == (REFUSED, True)
    assert row(classify_answer(POLICY, 413)) == (REFUSED, False)


@pytest.mark.parametrize("status", [200, 400, 412, 414, 500, 501])
def test_retry_after_makes_no_other_answer_transient(status: int) -> None:
    with_it = classify_answer(POLICY, status, valid_retry_after=True)
    assert with_it == classify_answer(POLICY, status)
    assert not with_it.transient


@pytest.mark.parametrize("status", [-1, 100, 404, 413, 500, 501, 522, 529, 799])
def test_any_listed_status_is_transient_and_proves_what_it_proved(status: int) -> None:
    listed = classify_answer(POLICY.replace(statuses={status}), status)
    assert listed.transient
    assert listed.evidence is classify_answer(POLICY, status).evidence


@pytest.mark.parametrize("status", [101, 200, 202, 302])
def test_a_listed_success_is_asked_for_again_but_was_run(status: int) -> None:
    finding = classify_answer(POLICY.replace(statuses={status}), status)
    assert row(finding) == (EXECUTED, True)
    assert not finding.success


def test_what_is_not_listed_any_more_stays() -> None:
    assert row(classify_answer(POLICY.replace(statuses=()), 503)) == (AMBIGUOUS, False)
    none = POLICY.replace(statuses=(), refusal_statuses=())
    assert row(classify_answer(none, 429)) == (REFUSED, False)


@pytest.mark.parametrize("status", [0, 101, 200, 302, 404, 408, 429, 500, 501, 503, 799])
def test_a_refusal_status_proves_that_nothing_was_run_and_passes(status: int) -> None:
    policy = POLICY.replace(refusal_statuses={status}, statuses=())
    assert row(classify_answer(policy, status)) == (REFUSED, True)


# What speaks for the key


def test_an_answer_speaks_for_the_key_if_it_judges_the_request() -> None:
    answers = {status: classify_answer(POLICY, status, keyed=True) for status in range(1000)}
    speak = {status for status, finding in answers.items() if finding.speaks_for_key}
    assert speak == {400, 404, 405, 406, *range(410, 418), 422, 423, 424}


def test_an_answer_that_the_policy_calls_a_refusal_speaks_for_its_own_attempt_alone() -> None:
    policy = POLICY.replace(refusal_statuses={404})
    assert not classify_answer(policy, 404, keyed=True).speaks_for_key


@pytest.mark.parametrize(
    ("keyed", "after_ambiguous", "expected"),
    [
        (True, True, (AMBIGUOUS, True)),
        (True, False, (REFUSED, False)),
        (False, True, (REFUSED, False)),
        (False, False, (REFUSED, False)),
    ],
)
def test_409_means_still_running_only_for_a_key_that_may_be_at_work(
    keyed: bool, after_ambiguous: bool, expected: tuple[Evidence, bool]
) -> None:
    finding = classify_answer(POLICY, 409, keyed=keyed, after_ambiguous=after_ambiguous)
    assert row(finding) == expected
    assert not finding.speaks_for_key


@pytest.mark.parametrize("policy", [POLICY, POLICY.replace(statuses=range(1000))])
def test_a_recorded_result_proves_what_its_status_proves_and_never_passes(
    policy: RetryPolicy,
) -> None:
    for status in range(1000):
        finding = classify_answer(policy, status, keyed=True, replayed=True, valid_retry_after=True)
        assert row(finding) == (classify_answer(POLICY, status).evidence, False)
        assert finding.speaks_for_key == (400 <= status < 500 and status != 408)
        assert finding.success == (finding.evidence is EXECUTED)


def test_a_recorded_409_is_the_result_and_not_still_running() -> None:
    finding = classify_answer(POLICY, 409, keyed=True, replayed=True, after_ambiguous=True)
    assert (row(finding), finding.speaks_for_key) == ((REFUSED, False), True)


@pytest.mark.parametrize("status", [200, 404, 409, 429, 503])
def test_a_replay_mark_without_a_key_means_nothing(status: int) -> None:
    assert classify_answer(POLICY, status, replayed=True) == classify_answer(POLICY, status)


def test_the_reason_names_the_status_and_its_meaning() -> None:
    assert classify_answer(POLICY, 503).reason == "answered 503 Service Unavailable"
    assert classify_answer(POLICY, 599).reason == "answered 599"
    still_running = classify_answer(POLICY, 409, keyed=True, after_ambiguous=True)
    assert still_running.reason == "answered 409 Conflict: an earlier attempt is still running"
    recorded = classify_answer(POLICY, 402, keyed=True, replayed=True)
    assert recorded.reason == "answered 402 Payment Required, the recorded result of this key"


# The policy's own classify


def test_no_verdict_changes_nothing() -> None:
    finding = classify_answer(POLICY, 503)
    assert finding.amended(None) is finding


def test_a_verdict_replaces_what_it_names() -> None:
    finding = classify_answer(POLICY, 500)
    assert finding.amended(Verdict(transient=True)) == replace(finding, transient=True)
    assert finding.amended(Verdict(transient=False, evidence=REFUSED, reason="busy")) == replace(
        finding, evidence=REFUSED, reason="busy"
    )


@pytest.mark.parametrize("evidence", [AMBIGUOUS, EXECUTED, NOT_SENT])
def test_where_a_verdict_knows_better_the_status_does_not_speak_for_the_key(
    evidence: Evidence,
) -> None:
    finding = classify_answer(POLICY, 404, keyed=True)
    assert finding.speaks_for_key
    assert not finding.amended(Verdict(transient=False, evidence=evidence)).speaks_for_key
    assert finding.amended(Verdict(transient=False, evidence=REFUSED)).speaks_for_key
    assert finding.amended(Verdict(transient=False)).speaks_for_key


def test_a_verdict_can_call_an_answer_a_success_but_not_an_error() -> None:
    done = Verdict(transient=False, evidence=EXECUTED)
    assert classify_answer(POLICY, 404).amended(done).success
    assert not of_error(httpx.ReadTimeout("")).amended(done).success


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"transient": 1}, "transient must be True or False"),
        ({"transient": None}, "transient must be True or False"),
        # Equal to the member, but not the member: it would be taken for no evidence at all.
        ({"transient": True, "evidence": "executed"}, "evidence must be of type Evidence"),
        ({"transient": True, "reason": None}, "reason must be of type str"),
    ],
)
def test_a_verdict_with_a_field_of_the_wrong_kind_is_refused(
    fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(TypeError, match=words):
        Verdict(**fields)


# Errors ------------------------------------------------------------------------------------------

ERRORS: dict[type[httpx.RequestError], tuple[Evidence, bool]] = {
    httpx.PoolTimeout: (NOT_SENT, True),
    httpx.ConnectTimeout: (NOT_SENT, True),
    httpx.ConnectError: (NOT_SENT, True),
    httpx.ReadTimeout: (AMBIGUOUS, True),
    httpx.WriteTimeout: (AMBIGUOUS, True),
    httpx.TimeoutException: (AMBIGUOUS, True),
    httpx.ReadError: (AMBIGUOUS, True),
    httpx.WriteError: (AMBIGUOUS, True),
    httpx.CloseError: (AMBIGUOUS, True),
    httpx.NetworkError: (AMBIGUOUS, True),
    httpx.RemoteProtocolError: (AMBIGUOUS, True),
    httpx.ProxyError: (NOT_SENT, False),
    httpx.UnsupportedProtocol: (NOT_SENT, False),
    httpx.LocalProtocolError: (AMBIGUOUS, False),
    httpx.ProtocolError: (AMBIGUOUS, False),
    httpx.TransportError: (AMBIGUOUS, False),
    httpx.DecodingError: (AMBIGUOUS, False),
    httpx.TooManyRedirects: (AMBIGUOUS, False),
    httpx.RequestError: (AMBIGUOUS, False),
}


def of_error(error: BaseException, policy: RetryPolicy = POLICY, **known: Any) -> Finding:
    finding = classify_error(policy, error, **known)
    assert finding is not None
    return finding


def made_of(kind: type[httpx.TransportError], *chain: BaseException) -> httpx.TransportError:
    """An error as httpx raises it: mapped from httpcore's, which was made with the next one."""
    outer = kind("")
    inner = httpcore.NetworkError(*chain[:1])
    outer.__cause__ = inner
    for one, cause in itertools.pairwise(chain):
        one.__cause__ = cause
    return outer


def all_kinds(base: type[httpx.RequestError]) -> Iterator[type[httpx.RequestError]]:
    yield base
    for kind in base.__subclasses__():
        if kind.__module__ == NAME:
            yield from all_kinds(kind)


def test_every_request_error_of_httpx_has_its_row() -> None:
    # What httpx2 raises where a stream of events is read, that has been handed out long before.
    elsewhere = {getattr(httpx, "SSEError", None)}
    assert set(all_kinds(httpx.RequestError)) - elsewhere == set(ERRORS)


@pytest.mark.parametrize(("kind", "expected"), ERRORS.items())
def test_an_error_proves_what_its_class_proves(
    kind: type[httpx.RequestError], expected: tuple[Evidence, bool]
) -> None:
    finding = of_error(kind("some text"))
    assert row(finding) == expected
    assert finding.reason.startswith(kind.__name__)
    assert "some text" not in finding.reason


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_is_no_success_and_does_not_speak_for_the_key(
    kind: type[httpx.RequestError],
) -> None:
    finding = of_error(kind(""))
    assert not finding.answered
    assert not finding.success
    assert not finding.speaks_for_key


def test_an_error_of_a_class_of_its_own_proves_what_the_nearest_known_one_does() -> None:
    class Odd(httpx.ReadTimeout):
        def __init__(self, code: int, *, detail: str) -> None:
            super().__init__(detail)
            self.code = code

    class ReadTimeout(httpx.ConnectError):
        """A name proves nothing; whose it is does."""

    assert row(of_error(Odd(7, detail="x"))) == (AMBIGUOUS, True)
    assert row(of_error(ReadTimeout(""))) == (NOT_SENT, True)


@pytest.mark.parametrize(
    "error",
    [
        ValueError(),
        OSError(errno.ECONNREFUSED, "refused"),
        httpcore.ConnectError(),
        httpx.StreamConsumed(),
        httpx.InvalidURL(""),
        httpx.HTTPStatusError("", request=REQUEST, response=httpx.Response(503)),
        KeyboardInterrupt(),
        MemoryError(),
    ],
)
def test_anything_but_a_transport_error_is_the_callers_to_see(error: BaseException) -> None:
    assert classify_error(POLICY, error) is None
    assert known_name(type(error)) is None


@pytest.mark.parametrize(("kind", "expected"), ERRORS.items())
def test_what_was_never_sent_proves_that_nothing_was_run(
    kind: type[httpx.RequestError], expected: tuple[Evidence, bool]
) -> None:
    finding = of_error(kind(""), never_sent=True)
    # A fault of our own comes again; whatever else kept the head from going out may pass.
    assert row(finding) == (NOT_SENT, expected[1] or kind is httpx.TransportError)


# Trust


def untrusted() -> ssl.SSLCertVerificationError:
    return ssl.SSLCertVerificationError(1, "certificate verify failed")


@pytest.mark.parametrize(
    "kind", [httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError, httpx.ProxyError]
)
@pytest.mark.parametrize("depth", [0, 1, 3])
def test_any_error_made_of_an_untrusted_certificate_was_not_sent_and_stays(
    kind: type[httpx.TransportError], depth: int
) -> None:
    error = made_of(kind, *(OSError() for _ in range(depth)), untrusted())
    finding = of_error(error, POLICY.replace(offline=True))
    assert row(finding) == (NOT_SENT, False)
    assert "certificate is not trusted" in finding.reason


def test_a_tls_error_of_another_kind_is_no_matter_of_trust() -> None:
    assert row(of_error(made_of(httpx.ConnectError, ssl.SSLEOFError(8, "EOF")))) == (NOT_SENT, True)
    assert row(of_error(made_of(httpx.ReadError, ssl.SSLError(1, "x")))) == (AMBIGUOUS, True)


def alert(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, "whatever the text says")
    error.reason = reason
    return error


@pytest.mark.parametrize(
    "reason",
    [
        "TLSV13_ALERT_CERTIFICATE_REQUIRED",
        "SSLV3_ALERT_BAD_CERTIFICATE",
        "SSLV3_ALERT_CERTIFICATE_EXPIRED",
        "SSLV3_ALERT_CERTIFICATE_REVOKED",
        "TLSV1_ALERT_UNKNOWN_CA",
        "TLSV1_ALERT_ACCESS_DENIED",
        "SSLV3_ALERT_HANDSHAKE_FAILURE",
    ],
)
def test_a_server_that_does_not_trust_us_will_not_trust_us_later(reason: str) -> None:
    connecting = of_error(made_of(httpx.ConnectError, alert(reason)))
    assert row(connecting) == (NOT_SENT, False)
    # In TLS 1.3 the alert comes when we have sent already, and at any time after.
    assert row(of_error(made_of(httpx.ReadError, alert(reason)))) == (AMBIGUOUS, False)
    never_sent = of_error(made_of(httpx.ReadError, alert(reason)), never_sent=True)
    assert row(never_sent) == (NOT_SENT, False)


@pytest.mark.parametrize("reason", ["TLSV1_ALERT_INTERNAL_ERROR", "CERTIFICATE_VERIFY", "", None])
def test_another_alert_may_pass(reason: Any) -> None:
    assert row(of_error(made_of(httpx.ReadError, alert(reason)))) == (AMBIGUOUS, True)


def test_openssl_names_the_alert_of_a_server_that_wants_a_certificate() -> None:
    server = server_tls()
    server.verify_mode = ssl.CERT_REQUIRED
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client_tls().wrap_bio(to_client, to_server, server_hostname="127.0.0.1"),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    refusal = None
    while refusal is None:
        for end in ends:
            try:
                end.do_handshake()
                end.read()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                if end is ends[0]:
                    refusal = error
    finding = of_error(made_of(httpx.ReadError, refusal))
    assert finding.reason == "ReadError: the server does not trust our certificate"


# The network


def unreachable(number: int = errno.ENETUNREACH) -> OSError:
    return OSError(number, "Network is unreachable")


class GroupError(Exception):
    """What `ExceptionGroup` looks like; Python 3.10 has none."""

    def __init__(self, exceptions: Any) -> None:
        super().__init__("several")
        self.exceptions = exceptions


@pytest.mark.parametrize("offline", [False, True])
@pytest.mark.parametrize(
    "chain",
    [
        (unreachable(),),
        (unreachable(errno.ENETDOWN),),
        (OSError("All connection attempts failed"), unreachable()),
        (OSError("all attempts"), GroupError((unreachable(), unreachable()))),
    ],
)
def test_without_a_network_the_policy_says_whether_it_may_pass(
    chain: tuple[BaseException, ...], offline: bool
) -> None:
    finding = of_error(made_of(httpx.ConnectError, *chain), POLICY.replace(offline=offline))
    assert row(finding) == (NOT_SENT, offline)


@pytest.mark.parametrize(
    "chain",
    [
        (OSError("who knows"),),
        (OSError(errno.ECONNREFUSED, "refused"),),
        (OSError(errno.EHOSTUNREACH, "no route"),),
        # Another address did answer.
        (OSError("all"), GroupError((unreachable(), OSError(errno.ECONNREFUSED, "refused")))),
        # An OSError may carry anything.
        (OSError(["no", "number"], "odd"),),
    ],
)
def test_where_some_address_answered_there_is_a_network(chain: tuple[BaseException, ...]) -> None:
    assert row(of_error(made_of(httpx.ConnectError, *chain))) == (NOT_SENT, True)


def test_a_network_that_goes_away_under_a_connection_is_a_lost_connection() -> None:
    assert row(of_error(made_of(httpx.ReadError, unreachable()))) == (AMBIGUOUS, True)


# HTTP/2


@dataclass
class StreamReset:
    error_code: object
    remote_reset: bool = True
    stream_id: int = 3


@dataclass
class ConnectionTerminated:
    last_stream_id: object
    error_code: int = 0


def http2(event: object) -> httpx.RemoteProtocolError:
    error = httpx.RemoteProtocolError("text")
    error.__cause__ = httpcore.RemoteProtocolError(event)
    return error


def test_a_refused_stream_was_not_run() -> None:
    refused = of_error(http2(StreamReset(h2.errors.ErrorCodes.REFUSED_STREAM)))
    assert row(refused) == (REFUSED, True)
    assert "REFUSED_STREAM" in refused.reason


@pytest.mark.parametrize(
    "event",
    [
        StreamReset(h2.errors.ErrorCodes.CANCEL),
        StreamReset(h2.errors.ErrorCodes.INTERNAL_ERROR),
        StreamReset(0xABCD),
        StreamReset("7"),
        # We reset it ourselves.
        StreamReset(h2.errors.ErrorCodes.REFUSED_STREAM, remote_reset=False),
        "REFUSED_STREAM",
        7,
        None,
    ],
)
def test_any_other_reset_is_a_lost_connection(event: object) -> None:
    assert row(of_error(http2(event))) == (AMBIGUOUS, True)


@pytest.mark.parametrize(
    ("last", "ours", "expected"),
    [
        (0, None, REFUSED),
        (0, 1, REFUSED),
        (1, 3, REFUSED),
        (3, 3, AMBIGUOUS),
        (5, 3, AMBIGUOUS),
        (1, None, AMBIGUOUS),
        (2**31 - 1, 3, AMBIGUOUS),
        (None, 3, AMBIGUOUS),
    ],
)
def test_a_goaway_proves_something_of_the_streams_above_its_last(
    last: int | None, ours: int | None, expected: Evidence
) -> None:
    event = ConnectionTerminated(last)
    finding = of_error(http2(event), stream_id=ours)
    assert row(finding) == (expected, True)


def test_a_goaway_with_the_code_of_a_refused_stream_refuses_no_stream() -> None:
    finding = of_error(http2(ConnectionTerminated(5, error_code=7)), stream_id=5)
    assert row(finding) == (AMBIGUOUS, True)


# Proxies


@pytest.mark.parametrize(
    ("text", "may_pass"),
    [
        ("500 Internal Server Error", True),
        ("502 Bad Gateway", True),
        ("503 ", True),
        ("503", True),
        ("599 Whatever", True),
        ("403 Forbidden", False),
        ("407 Proxy Authentication Required", False),
        ("302 Found", False),
        ("501 Not Implemented", False),
        ("505 HTTP Version Not Supported", False),
        ("511 Network Authentication Required", False),
        ("5030 is no status", False),
        ("50 is no status", False),
        ("Proxy Server could not connect: General SOCKS server failure.", True),
        ("Proxy Server could not connect: Network unreachable.", True),
        ("Proxy Server could not connect: Host unreachable.", True),
        ("Proxy Server could not connect: Connection refused.", True),
        ("Proxy Server could not connect: TTL expired.", True),
        ("Proxy Server could not connect: Connection not allowed by ruleset.", False),
        ("Proxy Server could not connect: Command not supported.", False),
        ("Proxy Server could not connect: Address type not supported.", False),
        ("Proxy Server could not connect: UNKOWN.", False),
        ("Invalid username/password", False),
        ("", False),
    ],
)
def test_a_proxy_that_opens_no_tunnel_has_sent_nothing_on(text: str, may_pass: bool) -> None:
    assert row(of_error(httpx.ProxyError(text))) == (NOT_SENT, may_pass)


# Protocol errors


def h11_error(name: Literal["LocalProtocolError", "RemoteProtocolError"]) -> Exception:
    kind: type[Exception] = type(name, (Exception,), {"__module__": "h11._util"})
    return kind("text")


def test_a_malformed_answer_stays_malformed_but_one_that_is_missing_may_come() -> None:
    malformed = made_of(httpx.RemoteProtocolError, h11_error("RemoteProtocolError"))
    assert row(of_error(malformed)) == (AMBIGUOUS, False)
    assert row(of_error(httpx.RemoteProtocolError("Server disconnected"))) == (AMBIGUOUS, True)
    # A proxy's answer to CONNECT: another proxy, or this one later, may do better.
    assert row(of_error(malformed, never_sent=True)) == (NOT_SENT, True)


def test_a_head_that_h11_refuses_was_not_sent() -> None:
    refused = made_of(httpx.LocalProtocolError, h11_error("LocalProtocolError"))
    assert row(of_error(refused)) == (NOT_SENT, False)
    assert row(of_error(httpx.LocalProtocolError(""))) == (AMBIGUOUS, False)
    lookalike = made_of(httpx.LocalProtocolError, httpcore.LocalProtocolError())
    assert row(of_error(lookalike)) == (AMBIGUOUS, False)


def h2_error(*state: object) -> h2.exceptions.ProtocolError:
    """What h2 makes of a frame that its state machine has no way out for."""
    error = h2.exceptions.ProtocolError("Invalid input")
    error.__cause__ = KeyError(state) if state else KeyError()
    return error


def test_a_frame_behind_a_goaway_is_a_lost_connection_and_no_fault_of_ours() -> None:
    connection = h2.connection.H2Connection()
    connection.initiate_connection()
    connection.close_connection()
    with pytest.raises(h2.exceptions.ProtocolError) as caught:
        connection.send_headers(1, [(":method", "GET")])
    error = made_of(httpx.LocalProtocolError, caught.value)
    assert row(of_error(error)) == (AMBIGUOUS, True)
    assert row(of_error(error, never_sent=True)) == (NOT_SENT, True)
    assert of_error(error).reason == "LocalProtocolError: the server closed the connection"


@pytest.mark.parametrize(
    "cause",
    [
        h2_error(h2.connection.ConnectionState.CLIENT_OPEN, "input"),
        h2_error("CLOSED", "input"),
        h2_error(),
        KeyError(),
        KeyError("CLOSED"),
        KeyError(()),
    ],
)
def test_any_other_fault_of_ours_stays_ours(cause: Exception) -> None:
    assert row(of_error(made_of(httpx.LocalProtocolError, cause))) == (AMBIGUOUS, False)


def test_what_h2_objects_to_is_told_as_a_fault_of_the_servers() -> None:
    # In the body of an answer it comes out of httpcore as it is.
    error = h2.exceptions.FlowControlError()
    assert known_name(type(error)) == "RemoteProtocolError"
    answer = classify_answer(POLICY, 200)
    assert row(of_error(error, answer=answer)) == (EXECUTED, True)
    assert row(of_error(error)) == (AMBIGUOUS, True)
    assert classify_error(POLICY, h2.exceptions.H2Error()) is None


# In the body of an answer


@pytest.mark.parametrize(("kind", "expected"), ERRORS.items())
@pytest.mark.parametrize("status", [200, 404, 429, 503])
def test_an_answer_whose_body_is_lost_has_still_been_given(
    kind: type[httpx.RequestError], expected: tuple[Evidence, bool], status: int
) -> None:
    answer = classify_answer(POLICY, status, keyed=True)
    finding = of_error(kind(""), answer=answer, never_sent=True)
    assert row(finding) == (answer.evidence, expected[1])
    assert finding.speaks_for_key == answer.speaks_for_key
    assert finding.reason == f"{answer.reason}, then {kind.__name__} in its body"
    assert not finding.success


def test_what_is_no_transport_error_is_the_callers_in_a_body_too() -> None:
    assert classify_error(POLICY, ValueError(), answer=classify_answer(POLICY, 200)) is None


# Chains ------------------------------------------------------------------------------------------


def test_a_cyclic_chain_ends() -> None:
    one, two = httpx.ReadTimeout("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    two.args = (one, two)
    assert list(causes(one)) == [one, two]
    assert row(of_error(one)) == (AMBIGUOUS, True)


def test_an_endless_chain_is_walked_for_a_hundred_steps() -> None:
    first = httpx.ReadTimeout("")
    last: BaseException = first
    for _ in range(100_000):
        last.__cause__ = deeper = OSError()
        last = deeper
    assert len(list(causes(first))) == 100


def test_a_huge_group_is_walked_for_a_hundred_steps() -> None:
    group = GroupError(tuple(OSError() for _ in range(100_000)))
    assert len(list(causes(made_of(httpx.ConnectError, group)))) == 100


@pytest.mark.parametrize("members", [None, "text", [OSError()], 7])
def test_members_of_some_other_kind_are_no_members(members: Any) -> None:
    group = GroupError(members)
    assert list(causes(group)) == [group]


def test_members_that_are_no_errors_are_passed_over() -> None:
    inner = OSError()
    group = GroupError(("text", inner))
    assert list(causes(group)) == [group, inner]


@pytest.mark.parametrize(
    "handled",
    [
        made_of(httpx.ConnectError, untrusted()),
        http2(StreamReset(7)),
        http2(ConnectionTerminated(0)),
        made_of(httpx.LocalProtocolError, h11_error("LocalProtocolError")),
        unreachable(),
    ],
)
@pytest.mark.parametrize("kind", [httpx.ReadTimeout, httpx.LocalProtocolError])
def test_an_error_that_the_caller_was_handling_proves_nothing_about_this_one(
    handled: Exception, kind: type[httpx.TransportError]
) -> None:
    def fall_back() -> None:
        try:
            raise handled
        except Exception:
            # Another request, sent while the failure of the first is still being handled.
            raise kind("")  # noqa: B904  # as deep inside a transport, which knows of no first one

    with pytest.raises(kind) as caught:
        fall_back()
    assert caught.value.__context__ is handled
    assert row(of_error(caught.value)) == ERRORS[kind]


# Real peers --------------------------------------------------------------------------------------


@pytest.fixture(params=["sync", "asyncio", "trio"])
def flavour(request: pytest.FixtureRequest) -> Flavour:
    way: Flavour = request.param
    return way


@pytest.mark.parametrize("trouble", ["self-signed", "another name"])
def test_a_real_certificate_that_is_not_trusted(
    flavour: Flavour, trouble: Literal["self-signed", "another name"]
) -> None:
    with Http1Server(tls=server_tls(trouble)) as server:
        error = post_one(flavour, server.url, verify=client_tls()).error
    assert row(of_error(error)) == (NOT_SENT, False)


def test_a_real_port_that_refuses(flavour: Flavour) -> None:
    with refusing_port() as port:
        error = post_one(flavour, f"http://127.0.0.1:{port}/").error
    assert row(of_error(error)) == (NOT_SENT, True)


def finding_without_network(flavour: Flavour, url: str) -> Finding:
    return of_error(post_one(flavour, url).error)


def test_a_real_machine_that_is_offline(flavour: Flavour) -> None:
    try:
        finding = without_network(finding_without_network, flavour, "http://127.0.0.1:9/")
    except NamespacesRefusedError as refusal:
        pytest.skip(f"needs a network of its own, which this machine refuses: {refusal}")
    assert (row(finding), finding.reason) == (
        (NOT_SENT, False),
        "ConnectError: the network is unreachable",
    )


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (h2.errors.ErrorCodes.REFUSED_STREAM, REFUSED),
        (h2.errors.ErrorCodes.INTERNAL_ERROR, AMBIGUOUS),
    ],
)
def test_a_real_stream_that_is_reset(
    flavour: Flavour, code: h2.errors.ErrorCodes, expected: Evidence
) -> None:
    with Http2Server([Reset(code)]) as server:
        error = post_one(flavour, server.url, **PRIOR_KNOWLEDGE).error
    assert row(of_error(error)) == (expected, True)


@pytest.mark.parametrize(("last", "expected"), [(0, REFUSED), ("own", AMBIGUOUS)])
def test_a_real_connection_that_goes_away(
    flavour: Flavour, last: Literal["own", 0], expected: Evidence
) -> None:
    with Http2Server([GoAway(last)]) as server:
        error = post_one(flavour, server.url, **PRIOR_KNOWLEDGE).error
    assert row(of_error(error)) == (expected, True)


def test_a_real_answer_behind_a_goaway_is_lost(flavour: Flavour) -> None:
    with Http2Server([GoAway("own", executed=True, then=Answer(201))]) as server:
        error = post_one(flavour, server.url, **PRIOR_KNOWLEDGE).error
    assert row(of_error(error)) == (AMBIGUOUS, True)
    assert len(server.executed) == 1


def test_a_real_answer_that_is_malformed(flavour: Flavour) -> None:
    with Http1Server([Raw(b"garbage\r\n\r\n")]) as server:
        error = post_one(flavour, server.url).error
    assert row(of_error(error)) == (AMBIGUOUS, False)


def test_a_real_head_that_h11_refuses() -> None:
    with Http1Server() as server, httpx.HTTPTransport() as transport:
        request = httpx.Request("POST", server.url, headers={"X": "a\nb"})
        with pytest.raises(httpx.LocalProtocolError) as caught:
            transport.handle_request(request)
    assert row(of_error(caught.value)) == (NOT_SENT, False)
    assert not server.received


@pytest.mark.parametrize(("status", "may_pass"), [(503, True), (403, False), (407, False)])
def test_a_real_proxy_that_refuses_the_tunnel(
    flavour: Flavour, status: int, may_pass: bool
) -> None:
    with HttpProxy([Answer(status)]) as proxy:
        error = post_one(flavour, "https://127.0.0.1:9/", proxy=proxy.url).error
    assert row(of_error(error)) == (NOT_SENT, may_pass)
