"""Whether a request is sent again: by method, by declaration, by key, by what was answered.

The two laws: a write that is not replay-safe runs at most once, and every failure but an uncertain
write promises that the write did not happen.
"""

from __future__ import annotations

import io
import json
import tempfile
from types import SimpleNamespace
from typing import Any

import pytest

from httpx_safe_retry import (
    Evidence,
    Outcome,
    PermanentFailureError,
    RetryBudget,
    RetryError,
    RetryPolicy,
    StopReason,
    UncertainWriteError,
    Verdict,
    get_report,
    raise_for_outcome,
)
from httpx_safe_retry.testing import Reply, ScriptItem, VirtualClock
from tests.drive import KEY, POLICY, SYNC, Drive, everywhere
from tests.library import RetryTransport, ScriptedTransport, httpx

AMBIGUOUS_ERRORS: list[type[httpx.TransportError]] = [
    httpx.ReadTimeout,
    httpx.ReadError,
    httpx.WriteTimeout,
    httpx.WriteError,
    httpx.CloseError,
    httpx.RemoteProtocolError,
]
UNSENT_ERRORS: list[type[httpx.TransportError]] = [
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
]
AFTER_ONE_SECOND = {"Retry-After": "1"}


# --- a write without a key


@everywhere
@pytest.mark.parametrize("error", AMBIGUOUS_ERRORS)
@pytest.mark.parametrize("method", ["POST", "PATCH", "PROPFIND", "MADE-UP"])
def test_an_unkeyed_write_that_may_have_run_is_not_sent_again(
    drive: Drive, method: str, error: type[httpx.TransportError]
) -> None:
    sent = drive.send(error, 200, method=method, content=b"pay")
    assert isinstance(sent.error, UncertainWriteError)
    assert isinstance(sent.error, error)
    assert (len(sent.requests), sent.waits) == (1, [])
    assert sent.report.outcome is Outcome.UNCERTAIN_WRITE
    assert sent.report.stop_reason is StopReason.NOT_REPLAY_SAFE
    assert (sent.report.executed, sent.report.replay_safe) == (None, False)


@everywhere
@pytest.mark.parametrize("status", [408, 502, 503, 504])
def test_an_unkeyed_post_that_got_an_ambiguous_answer_is_not_sent_again(
    drive: Drive, status: int
) -> None:
    sent = drive.send(status, 200, method="POST", content=b"pay")
    assert (sent.response.status_code, len(sent.requests), sent.waits) == (status, 1, [])
    assert sent.report.outcome is Outcome.UNCERTAIN_WRITE
    with pytest.raises(UncertainWriteError) as caught:
        raise_for_outcome(sent.response)
    assert caught.value.response is sent.response
    assert isinstance(caught.value, httpx.HTTPStatusError)


@everywhere
@pytest.mark.parametrize("error", UNSENT_ERRORS)
@pytest.mark.parametrize("method", ["POST", "PATCH", "MADE-UP"])
def test_an_unkeyed_write_that_was_never_sent_is_sent_again(
    drive: Drive, method: str, error: type[httpx.TransportError]
) -> None:
    sent = drive.send(error, 201, method=method, content=b"pay")
    assert sent.response.status_code == 201
    assert [request.body for request in sent.requests] == [b"pay", b"pay"]
    assert (sent.report.outcome, sent.report.executed) == (Outcome.SUCCESS, True)


@everywhere
def test_an_unkeyed_post_that_was_refused_is_sent_again(drive: Drive) -> None:
    refusal = Reply(status=429, headers=AFTER_ONE_SECOND)
    sent = drive.send(refusal, 201, method="POST", content=b"pay")
    assert (sent.response.status_code, len(sent.requests), sent.waits) == (201, 2, [1.0])


@everywhere
def test_one_ambiguous_attempt_after_a_refusal_ends_an_unkeyed_post(drive: Drive) -> None:
    sent = drive.send(429, httpx.ConnectError, 503, 201, method="POST", content=b"pay")
    assert (sent.response.status_code, len(sent.requests)) == (503, 3)
    assert sent.report.outcome is Outcome.UNCERTAIN_WRITE
    evidence = [attempt.evidence for attempt in sent.report.attempts]
    assert evidence == [Evidence.REFUSED, Evidence.NOT_SENT, Evidence.AMBIGUOUS]


@everywhere
def test_what_provably_did_not_run_ends_without_uncertainty(drive: Drive) -> None:
    sent = drive.send(httpx.ConnectError, 429, httpx.PoolTimeout, method="POST", content=b"pay")
    assert sent.report.outcome is Outcome.EXHAUSTED
    assert (sent.report.executed, sent.report.replay_safe) == (False, True)


# --- how far the request got, as the wrapped transport's trace tells


CONNECTING = ("connection.connect_tcp.started",)
HEAD_IS_OUT = ("http11.send_request_headers.started", "http11.send_request_headers.complete")


def lost_after(
    drive: Drive, *events: str, then: type[BaseException] = httpx.ReadError
) -> ScriptItem:
    """An attempt that gets so far, and then loses its connection."""
    error = then("lost")
    story: list[tuple[str, dict[str, Any]]] = [
        (event, {"request": SimpleNamespace(method=b"POST")}) for event in events
    ]
    step, _, state = events[-1].rpartition(".")
    if state == "started":
        story.append((f"{step}.failed", {"exception": error}))

    def fail(request: httpx.Request) -> BaseException:
        for event in story:
            request.extensions["trace"](*event)
        return error

    async def afail(request: httpx.Request) -> BaseException:
        for event in story:
            await request.extensions["trace"](*event)
        return error

    return fail if drive.backend is None else afail


@everywhere
@pytest.mark.parametrize("policy", [POLICY, POLICY.replace(deadline=100)])
def test_an_unkeyed_write_is_sent_again_as_long_as_no_head_of_it_was_out(
    drive: Drive, policy: RetryPolicy
) -> None:
    unsent, sent_once = lost_after(drive, *CONNECTING), lost_after(drive, *CONNECTING, *HEAD_IS_OUT)
    again = drive.send(unsent, unsent, 201, method="POST", policy=policy)
    assert again.response.status_code == 201
    sent = drive.send(unsent, sent_once, 201, method="POST", policy=policy)
    assert isinstance(sent.error, UncertainWriteError)
    assert [attempt.evidence for attempt in sent.report.attempts] == [
        Evidence.NOT_SENT,
        Evidence.AMBIGUOUS,
    ]


@everywhere
@pytest.mark.parametrize(
    ("raised", "outcome"),
    [(LookupError, Outcome.PERMANENT_FAILURE), (KeyboardInterrupt, Outcome.CANCELLED)],
)
def test_what_breaks_off_before_a_head_was_out_leaves_nothing_uncertain(
    drive: Drive, raised: type[BaseException], outcome: Outcome
) -> None:
    connecting = lost_after(drive, *CONNECTING, then=raised)
    sent = drive.send(connecting, method="POST", listen=True)
    assert type(sent.error) is raised
    assert (sent.report.outcome, sent.report.executed) == (outcome, False)


@everywhere
@pytest.mark.parametrize(
    "asked",
    [
        {"method": "GET"},
        {"method": "PUT"},
        {"method": "POST", "headers": KEY},
        {"method": "POST", "policy": POLICY.replace(max_attempts=1)},
        {"method": "POST", "policy": POLICY.replace(max_attempts=1, deadline=9)},
        {"method": "POST", "extensions": {"retry": None}},
        {"method": "POST", "extensions": {"retry": {"idempotent": True}}},
    ],
)
def test_nothing_is_traced_where_it_can_change_nothing(drive: Drive, asked: dict[str, Any]) -> None:
    sent = drive.send(200, **asked)
    assert "trace" not in sent.requests[0].extensions


# --- what the method says, and what the caller declares over it


@everywhere
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "TRACE", "QUERY", "PUT", "DELETE"])
def test_an_idempotent_method_is_sent_again(drive: Drive, method: str) -> None:
    sent = drive.send(httpx.ReadTimeout, 503, 200, method=method)
    assert (sent.response.status_code, sent.waits) == (200, [1.0, 2.0])
    assert [request.method for request in sent.requests] == [method] * 3


@everywhere
def test_if_match_makes_nothing_idempotent_unless_the_caller_says_so(drive: Drive) -> None:
    asked: dict[str, Any] = {"method": "PATCH", "headers": {"If-Match": '"1"'}, "content": b"x"}
    sent = drive.send(503, 200, **asked)
    assert (sent.response.status_code, len(sent.requests)) == (503, 1)
    declared = drive.send(503, 200, **asked, policy=POLICY.replace(idempotent=True))
    assert (declared.response.status_code, len(declared.requests)) == (200, 2)
    assert declared.report.replay_safe


@everywhere
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_what_is_declared_not_idempotent_is_a_write_and_runs_once(
    drive: Drive, method: str
) -> None:
    sent = drive.send(
        httpx.ReadTimeout, 200, method=method, extensions={"retry": {"idempotent": False}}
    )
    assert isinstance(sent.error, UncertainWriteError)
    assert len(sent.requests) == 1


@everywhere
def test_a_method_can_be_declared_idempotent_for_a_whole_api(drive: Drive) -> None:
    policy = POLICY.replace(idempotent_methods={"propfind"})
    sent = drive.send(httpx.ReadTimeout, 207, method="PROPFIND", policy=policy)
    assert (sent.response.status_code, len(sent.requests)) == (207, 2)
    without = drive.send(httpx.ReadTimeout, 200, method="DELETE", policy=policy)
    assert isinstance(without.error, UncertainWriteError)


# --- keys


@everywhere
@pytest.mark.parametrize("first", [*AMBIGUOUS_ERRORS, 408, 502, 503, 504])
def test_a_keyed_write_is_sent_again_with_the_same_key_and_bytes(
    drive: Drive, first: ScriptItem
) -> None:
    sent = drive.send(first, 503, 201, method="PATCH", headers=KEY, json={"a": 1})
    assert sent.response.status_code == 201
    for name in ("Idempotency-Key", "Content-Type", "Content-Length"):
        values = [request.headers.get_list(name) for request in sent.requests]
        assert values[0] == values[1] == values[2]
        assert len(values[0]) == 1
    (body,) = {request.body for request in sent.requests}
    assert json.loads(body) == {"a": 1}
    assert (sent.report.idempotency_key_present, sent.report.replay_safe) == (True, True)


@everywhere
@pytest.mark.parametrize("blank", ["", "   "])
def test_a_blank_key_is_no_key(drive: Drive, blank: str) -> None:
    headers = {"Idempotency-Key": blank}
    sent = drive.send(httpx.ReadTimeout, 200, method="POST", headers=headers, content=b"pay")
    assert isinstance(sent.error, UncertainWriteError)
    assert not sent.report.idempotency_key_present


@everywhere
def test_the_callers_own_key_stands_in_any_case_and_the_factory_is_not_asked(drive: Drive) -> None:
    def factory() -> str:
        raise AssertionError("the caller has a key")

    sent = drive.send(
        503,
        201,
        method="POST",
        headers={"idempotency-key": "k1"},
        content=b"pay",
        policy=POLICY.replace(idempotency_key=factory),
    )
    assert [request.headers.get_list("Idempotency-Key") for request in sent.requests] == [
        ["k1"]
    ] * 2


@everywhere
@pytest.mark.parametrize("method", ["POST", "PATCH"])
@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": " "}])
def test_the_factory_makes_one_key_for_all_attempts_before_the_first(
    drive: Drive, method: str, headers: dict[str, str]
) -> None:
    keys = iter(["made-1", "made-2"])
    sent_when_made: list[int] = []

    def factory() -> str:
        sent_when_made.append(len(sent_so_far))
        return next(keys)

    sent_so_far: list[httpx.Request] = []

    def fail(request: httpx.Request) -> type[httpx.TransportError]:
        sent_so_far.append(request)
        return httpx.ReadTimeout

    policy = POLICY.replace(idempotency_key=factory)
    for key in ("made-1", "made-2"):
        sent_so_far.clear()
        sent = drive.send(fail, fail, 201, method=method, headers=headers, policy=policy)
        values = [request.headers.get_list("Idempotency-Key") for request in sent.requests]
        assert values == [[key]] * 3
        assert sent.report.idempotency_key_present
    assert sent_when_made == [0, 0]


@everywhere
def test_a_request_that_succeeds_at_once_carries_the_made_key_too(drive: Drive) -> None:
    policy = POLICY.replace(idempotency_key=lambda: "made")
    sent = drive.send(201, method="POST", content=b"pay", policy=policy)
    assert sent.requests[0].headers["Idempotency-Key"] == "made"
    assert sent.report.idempotency_key_present


@everywhere
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PROPFIND"])
def test_no_key_is_made_where_none_is_defined(drive: Drive, method: str) -> None:
    policy = POLICY.replace(idempotency_key=lambda: "made")
    sent = drive.send(200, method=method, policy=policy)
    assert "Idempotency-Key" not in sent.requests[0].headers


@everywhere
def test_key_headers_have_names_of_the_callers_choice(drive: Drive) -> None:
    names = ("X-Request-Token", "Idempotency-Key")
    policy = POLICY.replace(idempotency_headers=names, idempotency_key=lambda: "made")
    made = drive.send(503, 201, method="POST", policy=policy)
    assert [request.headers["X-Request-Token"] for request in made.requests] == ["made"] * 2
    second = drive.send(503, 201, method="POST", headers=KEY, policy=policy)
    assert ["X-Request-Token" in request.headers for request in second.requests] == [False] * 2
    assert second.response.status_code == 201


@everywhere
@pytest.mark.parametrize(
    ("made", "error"), [(7, TypeError), ("", ValueError), ("  ", ValueError), ("k\n", ValueError)]
)
def test_a_factory_that_makes_no_key_is_refused_before_anything_is_sent(
    drive: Drive, made: Any, error: type[Exception]
) -> None:
    policy = POLICY.replace(idempotency_key=lambda: made)
    sent = drive.send(201, method="POST", policy=policy, listen=True)
    assert type(sent.error) is error
    assert (sent.requests, sent.report.executed) == ([], False)


@everywhere
def test_an_error_of_the_factory_reaches_the_caller_and_nothing_is_sent(drive: Drive) -> None:
    error = LookupError("no key")

    def factory() -> str:
        raise error

    sent = drive.send(201, method="POST", policy=POLICY.replace(idempotency_key=factory))
    assert sent.error is error
    assert sent.requests == []


@everywhere
def test_the_servers_word_on_the_key_settles_what_was_uncertain(drive: Drive) -> None:
    policy = POLICY.replace(statuses={500, 503})
    sent = drive.send(500, 422, method="POST", headers=KEY, policy=policy)
    assert sent.response.status_code == 422
    assert (sent.report.outcome, sent.report.executed) == (Outcome.PERMANENT_FAILURE, False)
    assert [attempt.status for attempt in sent.report.attempts] == [500, 422]


@everywhere
def test_a_layer_in_front_of_the_key_settles_nothing(drive: Drive) -> None:
    sent = drive.send(httpx.ReadTimeout, 401, method="POST", headers=KEY)
    assert sent.response.status_code == 401
    assert (sent.report.outcome, sent.report.executed) == (Outcome.UNCERTAIN_WRITE, None)


@everywhere
def test_409_means_still_running_only_after_an_uncertain_attempt_with_the_same_key(
    drive: Drive,
) -> None:
    after = drive.send(httpx.ReadTimeout, 409, 201, method="POST", headers=KEY)
    assert (after.response.status_code, len(after.requests)) == (201, 3)
    at_once = drive.send(409, 201, method="POST", headers=KEY)
    assert (at_once.response.status_code, len(at_once.requests)) == (409, 1)
    unkeyed = drive.send(httpx.ReadTimeout, 409, 201, method="PUT")
    assert (unkeyed.response.status_code, len(unkeyed.requests)) == (409, 2)
    assert unkeyed.report.outcome is Outcome.UNCERTAIN_WRITE


@everywhere
def test_a_replayed_result_is_final(drive: Drive) -> None:
    recorded = Reply(status=503, headers={"Idempotent-Replayed": "true"})
    sent = drive.send(recorded, 201, method="POST", headers=KEY)
    assert (sent.response.status_code, len(sent.requests)) == (503, 1)


# --- what an answer proves


@everywhere
def test_a_delete_that_timed_out_and_is_then_gone_may_have_been_ours(drive: Drive) -> None:
    sent = drive.send(httpx.ReadTimeout, 404, method="DELETE")
    assert sent.response.status_code == 404
    assert (sent.report.outcome, sent.report.executed) == (Outcome.UNCERTAIN_WRITE, None)
    at_once = drive.send(404, method="DELETE")
    assert (at_once.report.outcome, at_once.report.executed) == (Outcome.PERMANENT_FAILURE, False)


@everywhere
@pytest.mark.parametrize(
    ("method", "status"), [("PUT", 201), ("GET", 200), ("GET", 303), ("PUT", 413), ("GET", 501)]
)
def test_retry_after_alone_makes_no_answer_transient(
    drive: Drive, method: str, status: int
) -> None:
    headers = {} if status == 413 else {"Retry-After": "5"}
    sent = drive.send(Reply(status=status, headers=headers), 200, method=method)
    assert (sent.response.status_code, len(sent.requests), sent.waits) == (status, 1, [])


@everywhere
def test_413_with_a_valid_retry_after_is_temporary(drive: Drive) -> None:
    sent = drive.send(Reply(status=413, headers=AFTER_ONE_SECOND), 200, method="PUT", content=b"x")
    assert (sent.response.status_code, sent.waits) == (200, [1.0])


@everywhere
@pytest.mark.parametrize("seconds", [None, 100])
@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, Outcome.SUCCESS),
        (399, Outcome.SUCCESS),
        (400, Outcome.PERMANENT_FAILURE),
        (499, Outcome.PERMANENT_FAILURE),
    ],
)
def test_success_is_what_httpx_calls_no_error(
    drive: Drive, status: int, outcome: Outcome, seconds: float | None
) -> None:
    sent = drive.send(status, method="POST", policy=POLICY.replace(deadline=seconds))
    assert sent.report.outcome is outcome
    assert sent.report.executed is (outcome is Outcome.SUCCESS)


@everywhere
def test_any_number_may_be_listed_as_transient(drive: Drive) -> None:
    policy = POLICY.replace(statuses={429, 522, 529, 799})
    sent = drive.send(529, 799, 200, policy=policy)
    assert (sent.response.status_code, sent.waits) == (200, [1.0, 2.0])


@everywhere
def test_statuses_can_be_none_at_all(drive: Drive) -> None:
    policy = POLICY.replace(statuses=(), refusal_statuses=())
    sent = drive.send(503, 200, policy=policy)
    assert (sent.response.status_code, len(sent.requests)) == (503, 1)


@everywhere
def test_a_success_that_is_listed_as_transient_is_asked_for_again(drive: Drive) -> None:
    policy = POLICY.replace(statuses={202})
    sent = drive.send(202, 200, policy=policy)
    assert (sent.response.status_code, len(sent.requests)) == (200, 2)
    write = drive.send(202, 200, method="POST", policy=policy)
    assert (write.response.status_code, len(write.requests)) == (202, 1)
    assert (write.report.outcome, write.report.executed) == (Outcome.UNCERTAIN_WRITE, True)


# --- classify


@everywhere
def test_classify_narrows_and_widens_what_is_transient(drive: Drive) -> None:
    def classify(request: httpx.Request, result: httpx.Response | Exception) -> Verdict | None:
        if isinstance(result, httpx.Response) and result.status_code in (200, 503):
            later = result.json().get("later", False)
            return Verdict(transient=later, reason="the body says so")
        return None

    policy = POLICY.replace(classify=classify)
    later, never = Reply(body=b'{"later": true}'), Reply(status=503, body=b"{}")
    sent = drive.send(later, 429, Reply(body=b"{}"), policy=policy)
    assert (sent.response.status_code, len(sent.requests)) == (200, 3)
    assert sent.report.attempts[0].reason == "the body says so"
    sent = drive.send(never, 200, policy=policy)
    assert (sent.response.status_code, len(sent.requests)) == (503, 1)


@everywhere
def test_classify_says_what_is_useful_and_never_what_is_safe(drive: Drive) -> None:
    policy = POLICY.replace(classify=lambda request, result: Verdict(transient=True))
    sent = drive.send(500, 200, method="POST", policy=policy)
    assert (len(sent.requests), sent.report.outcome) == (1, Outcome.UNCERTAIN_WRITE)


@everywhere
def test_classify_may_know_that_nothing_was_run(drive: Drive) -> None:
    def classify(request: httpx.Request, result: object) -> Verdict | None:
        if isinstance(result, httpx.Response) and result.status_code == 500:
            return Verdict(transient=True, evidence=Evidence.REFUSED)
        return None

    policy = POLICY.replace(classify=classify)
    sent = drive.send(500, 201, method="POST", policy=policy)
    assert (sent.response.status_code, len(sent.requests)) == (201, 2)


@everywhere
@pytest.mark.parametrize("first", [200, 503, httpx.ReadTimeout, httpx.ConnectError])
def test_an_error_of_classify_reaches_the_caller_and_hides_no_write(
    drive: Drive, first: ScriptItem
) -> None:
    error = LookupError("classify")

    def classify(request: httpx.Request, result: object) -> Verdict | None:
        raise error

    policy = POLICY.replace(classify=classify)
    sent = drive.send(first, method="POST", policy=policy, listen=True)
    assert sent.error is error
    unsent = first is httpx.ConnectError
    assert sent.report.outcome is (Outcome.PERMANENT_FAILURE if unsent else Outcome.UNCERTAIN_WRITE)
    assert sent.report.executed is {200: True, httpx.ConnectError: False}.get(first)
    (attempt,) = sent.report.attempts
    asked_about = first.__name__ if isinstance(first, type) else "LookupError"
    assert attempt.error_type == asked_about


@everywhere
def test_a_verdict_of_another_kind_is_a_type_error(drive: Drive) -> None:
    verdict: Any = True
    policy = POLICY.replace(classify=lambda request, result: verdict)
    sent = drive.send(503, policy=policy)
    assert isinstance(sent.error, TypeError)
    assert "classify must return a Verdict" in str(sent.error)


# --- limits


@everywhere
@pytest.mark.parametrize("limit", [1, 2, 5])
def test_there_are_exactly_as_many_attempts_as_agreed(drive: Drive, limit: int) -> None:
    sent = drive.send(*[503] * limit, policy=POLICY.replace(max_attempts=limit))
    assert len(sent.requests) == limit
    assert sent.waits == [2.0**n for n in range(limit - 1)]
    assert (sent.report.outcome, sent.report.stop_reason) == (
        Outcome.EXHAUSTED,
        StopReason.MAX_ATTEMPTS,
    )
    assert sent.report.max_attempts == limit


@everywhere
def test_a_spent_budget_ends_it_without_a_wait(drive: Drive) -> None:
    sent = drive.send(503, 503, budget=RetryBudget(ratio=0, capacity=1))
    assert (sent.response.status_code, sent.waits) == (503, [1.0])
    assert (sent.report.outcome, sent.report.stop_reason) == (Outcome.EXHAUSTED, StopReason.BUDGET)
    assert "budget" in sent.report.attempts[-1].reason


@everywhere
def test_no_budget_is_no_limit(drive: Drive) -> None:
    sent = drive.send(*[503] * 30, 200, budget=None, policy=POLICY.replace(max_attempts=40))
    assert len(sent.requests) == 31


@everywhere
def test_a_body_that_cannot_be_sent_again_ends_it(drive: Drive) -> None:
    policy = POLICY.replace(replay_limit=3)
    sent = drive.send(503, method="PUT", content=drive.body(b"12", b"34"), policy=policy)
    assert (sent.response.status_code, sent.requests[0].body) == (503, b"1234")
    assert sent.report.stop_reason is StopReason.BODY_NOT_REPLAYABLE


@everywhere
def test_a_one_shot_body_arrives_whole_at_every_attempt(drive: Drive) -> None:
    body = drive.body(b"12", b"", b"34")
    sent = drive.send(
        Reply(error=httpx.WriteError, read_chunks=1), 503, 200, method="PUT", content=body
    )
    assert [request.body for request in sent.requests] == [b"12", b"1234", b"1234"]
    for request in sent.requests:
        assert request.headers["Transfer-Encoding"] == "chunked"
        assert "Content-Length" not in request.headers


@everywhere
@pytest.mark.parametrize(
    "last", [200, 404, httpx.UnsupportedProtocol, ValueError, KeyboardInterrupt]
)
def test_the_file_that_a_body_was_kept_in_is_gone_when_the_request_is_over(
    drive: Drive, last: ScriptItem, monkeypatch: pytest.MonkeyPatch
) -> None:
    files: list[Any] = []
    new_file = tempfile.TemporaryFile

    def opened() -> Any:
        files.append(new_file())
        return files[-1]

    monkeypatch.setattr(tempfile, "TemporaryFile", opened)
    policy = POLICY.replace(replay_memory=0)
    sent = drive.send(503, last, method="PUT", content=drive.body(b"12", b"34"), policy=policy)
    assert [request.body for request in sent.requests] == [b"1234"] * 2
    assert [file.closed for file in files] == [True]


@everywhere
@pytest.mark.parametrize("retry", [None, {"max_attempts": 1}])
def test_no_body_is_kept_that_will_not_be_sent_again(
    drive: Drive, retry: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> Any:
        raise AssertionError("nothing is kept")

    monkeypatch.setattr(tempfile, "TemporaryFile", refused)
    policy = POLICY.replace(replay_memory=0)
    mebibyte, override = b"x" * (1 << 20), {"retry": retry}
    body = drive.body(mebibyte, mebibyte)
    sent = drive.send(503, method="PUT", content=body, policy=policy, extensions=override)
    assert sent.response.status_code == 503
    assert sent.requests[0].chunks == [mebibyte] * 2


def test_a_file_is_sent_from_where_it_stands_and_announced_as_such() -> None:
    file = io.BytesIO(b"0123456789")
    file.seek(4)
    sent = SYNC.send(503, 200, method="PUT", content=file)
    assert [request.body for request in sent.requests] == [b"456789"] * 2
    assert [request.headers.get_list("Content-Length") for request in sent.requests] == [["6"]] * 2


# --- headers for the server


@everywhere
@pytest.mark.parametrize("seconds", [None, 100])
def test_retries_carry_their_number_in_place_of_what_was_there(
    drive: Drive, seconds: float | None
) -> None:
    policy = POLICY.replace(attempt_header="X-Attempt", deadline=seconds)
    headers = [("x-attempt", "mine"), ("x-attempt", "too"), ("X-Other", "1")]
    sent = drive.send(503, 503, 200, headers=headers, policy=policy)
    values = [request.headers.get_list("X-Attempt") for request in sent.requests]
    assert values == [["mine", "too"], ["2"], ["3"]]
    assert [request.headers["X-Other"] for request in sent.requests] == ["1"] * 3


@everywhere
def test_what_the_wrapped_transport_does_to_its_request_does_not_reach_the_next_attempt(
    drive: Drive,
) -> None:
    def spoil(request: httpx.Request) -> int:
        request.headers["X-Added"] = "1"
        del request.headers["X-Mine"]
        request.extensions.clear()
        request.url = httpx.URL("https://elsewhere.example/")
        request.method = "PUT"
        return 503

    sent = drive.send(503, spoil, 200, headers={"X-Mine": "1"})
    first, second, third = sent.requests
    assert (third.method, third.url, third.headers) == (first.method, first.url, first.headers)
    assert third.timeouts == second.timeouts == first.timeouts


def test_the_wrapped_transport_may_spoil_even_the_first_request() -> None:
    def spoil(request: httpx.Request) -> int:
        request.headers["X-Added"] = "1"
        request.extensions.clear()
        request.method = "DELETE"
        return 503

    script = ScriptedTransport(spoil, 200)
    client = httpx.Client(transport=RetryTransport(script, policy=POLICY, clock=VirtualClock()))
    response = client.get("https://example.org/")
    assert response.status_code == 200
    assert (script.requests[1].method, "X-Added" in script.requests[1].headers) == ("GET", False)
    assert script.requests[1].extensions["timeout"] == script.requests[0].extensions["timeout"]


def test_a_response_that_did_not_come_through_us_has_no_report() -> None:
    with pytest.raises(LookupError, match="did not come through a RetryTransport"):
        get_report(httpx.Response(200))


def test_a_permanent_failure_is_raised_as_such_on_demand() -> None:
    sent = SYNC.send(404)
    with pytest.raises(PermanentFailureError):
        raise_for_outcome(sent.response)
    assert raise_for_outcome(SYNC.send(204).response).status_code == 204
    assert issubclass(PermanentFailureError, RetryError)


LATER = Reply(status=413, headers={"Retry-After": "1"})


@everywhere
@pytest.mark.parametrize(
    ("answer", "policy"),
    [
        (LATER, POLICY),
        (423, POLICY.replace(statuses={423})),
        (404, POLICY.replace(classify=lambda _, result: Verdict(transient=True))),
    ],
)
def test_what_asks_to_come_later_does_not_speak_for_a_key(
    drive: Drive, answer: ScriptItem, policy: RetryPolicy
) -> None:
    sent = drive.send(httpx.ReadTimeout, answer, answer, method="POST", headers=KEY, policy=policy)
    assert (sent.report.outcome, sent.report.executed) == (Outcome.UNCERTAIN_WRITE, None)
