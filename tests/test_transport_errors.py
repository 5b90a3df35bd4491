"""Errors of the wrapped transport: which are sent again, and how the others reach the caller.

Every handler that works on plain httpx still works, and what is not a transport error passes
through untouched.
"""

from __future__ import annotations

import copy
import gc
import pickle
import traceback
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest

from httpx_safe_retry import (
    Evidence,
    Outcome,
    PermanentFailureError,
    RetriesExhaustedError,
    RetryError,
    RetryPolicy,
    StopReason,
    UncertainWriteError,
    Verdict,
)
from httpx_safe_retry.testing import Reply, VirtualClock
from tests.drive import KEY, POLICY, SYNC, URL, Drive, everywhere
from tests.library import RetryTransport, ScriptedTransport, httpx

TRANSIENT: list[type[httpx.TransportError]] = [
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ReadTimeout,
    httpx.WriteTimeout,
    httpx.ReadError,
    httpx.WriteError,
    httpx.CloseError,
    httpx.RemoteProtocolError,
]
NEVER: list[type[httpx.RequestError]] = [
    httpx.UnsupportedProtocol,
    httpx.LocalProtocolError,
    httpx.DecodingError,
    httpx.TooManyRedirects,
]


LOST = Reply(headers={"Content-Length": "5"}, body=[b"1", httpx.ReadError])


class TimeLimitError(Exception):
    """Like Celery's SoftTimeLimitExceeded: an exception that is nobody's error."""


# --- transport errors


@everywhere
@pytest.mark.parametrize("error", TRANSIENT)
def test_an_exhausted_request_is_caught_as_plain_httpx_and_as_what_it_is(
    drive: Drive, error: type[httpx.TransportError]
) -> None:
    sent = drive.send(error, error, error)
    assert isinstance(sent.error, error)
    assert isinstance(sent.error, RetriesExhaustedError)
    assert type(sent.error.__cause__) is error
    assert str(sent.error.request.url) == URL
    assert sent.error.response is None
    assert [attempt.error_type for attempt in sent.report.attempts] == [error.__name__] * 3
    assert sent.waits == [1.0, 2.0]


@everywhere
@pytest.mark.parametrize("error", NEVER)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_what_can_never_succeed_is_tried_once(
    drive: Drive, error: type[httpx.RequestError], method: str
) -> None:
    sent = drive.send(error, method=method)
    assert isinstance(sent.error, error)
    assert isinstance(sent.error, RetryError)
    assert (len(sent.requests), sent.waits) == (1, [])
    assert sent.report.stop_reason is StopReason.NOT_TRANSIENT


@everywhere
def test_different_failures_stand_in_the_report_in_their_order(drive: Drive) -> None:
    sent = drive.send(httpx.ConnectError, Reply(status=503, body=b"why"), httpx.ReadTimeout)
    shown = [(a.number, a.status, a.error_type) for a in sent.report.attempts]
    assert shown == [(1, None, "ConnectError"), (2, 503, None), (3, None, "ReadTimeout")]
    assert isinstance(sent.error, httpx.ReadTimeout)
    assert pickle.loads(pickle.dumps(sent.report)) == sent.report


@everywhere
def test_the_traceback_leads_to_the_last_attempt(drive: Drive) -> None:
    script = [httpx.ReadTimeout(f"attempt {number}") for number in (1, 2, 3)]
    sent = drive.send(*script)
    assert sent.error.__cause__ is script[-1]
    shown = "".join(traceback.format_exception(sent.error))
    assert "attempt 3" in shown
    assert "attempt 1" not in shown
    assert "in _answer" in shown  # the scripted transport's own frame


@everywhere
def test_an_error_after_an_answer_is_an_error(drive: Drive) -> None:
    sent = drive.send(503, 503, httpx.ReadTimeout)
    assert isinstance(sent.error, RetriesExhaustedError)
    assert sent.error.response is None


@everywhere
def test_an_answer_after_an_error_is_an_answer(drive: Drive) -> None:
    sent = drive.send(httpx.ReadTimeout, httpx.ReadTimeout, 503)
    assert sent.response.status_code == 503


@pytest.mark.parametrize("error", [*TRANSIENT, *NEVER])
def test_a_raised_error_survives_pickle_and_copy(error: type[httpx.RequestError]) -> None:
    raised = SYNC.send(error, error, error).error
    assert isinstance(raised, RetryError)
    for again in (pickle.loads(pickle.dumps(raised)), copy.copy(raised)):
        assert isinstance(again, error)
        assert isinstance(again, RetryError)
        assert again.report == raised.report
        assert str(again) == str(raised)


# --- what is not a transport error


@everywhere
@pytest.mark.parametrize(
    "error", [ValueError, KeyboardInterrupt, MemoryError, TimeLimitError, SystemExit, OSError]
)
def test_anything_but_a_transport_error_is_out_at_once_and_untouched(
    drive: Drive, error: type[BaseException]
) -> None:
    raised = error()
    sent = drive.send(503, raised, listen=True)
    assert sent.error is raised
    assert (raised.__cause__, raised.__context__) == (None, None)
    assert len(sent.requests) == 2
    cancelled = not issubclass(error, Exception)
    assert sent.report.outcome is (Outcome.CANCELLED if cancelled else Outcome.PERMANENT_FAILURE)


@everywhere
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_it_leaves_a_write_uncertain(drive: Drive, error: type[BaseException]) -> None:
    sent = drive.send(error, method="PUT", listen=True)
    assert (sent.report.outcome, sent.report.executed) == (Outcome.UNCERTAIN_WRITE, None)
    assert [(a.error_type, a.evidence) for a in sent.report.attempts] == [
        (error.__name__, Evidence.AMBIGUOUS)
    ]


@everywhere
def test_classify_cannot_keep_an_interrupt(drive: Drive) -> None:
    policy = POLICY.replace(classify=lambda request, result: Verdict(transient=True))
    sent = drive.send(KeyboardInterrupt, policy=policy)
    assert type(sent.error) is KeyboardInterrupt


@everywhere
def test_an_error_of_a_custom_transport_is_sent_again_if_classify_says_so(drive: Drive) -> None:
    class LineBusyError(Exception):
        pass

    def classify(request: httpx.Request, result: object) -> Verdict | None:
        return Verdict(transient=True) if isinstance(result, LineBusyError) else None

    policy = POLICY.replace(classify=classify)
    assert drive.send(LineBusyError, 200, policy=policy).response.status_code == 200
    exhausted = drive.send(*[LineBusyError] * 3, policy=policy)
    assert isinstance(exhausted.error, RetriesExhaustedError)
    assert isinstance(exhausted.error, LineBusyError)
    unkeyed = drive.send(LineBusyError, method="POST", policy=policy)
    assert isinstance(unkeyed.error, UncertainWriteError)
    assert type(drive.send(LineBusyError).error) is LineBusyError
    assert type(drive.send(ValueError, policy=policy).error) is ValueError


@everywhere
def test_classify_calls_a_transport_error_permanent(drive: Drive) -> None:
    def classify(request: httpx.Request, result: object) -> Verdict | None:
        if isinstance(result, httpx.ReadTimeout):
            return Verdict(transient=False, evidence=Evidence.NOT_SENT)
        return None

    sent = drive.send(httpx.ReadTimeout, method="PUT", policy=POLICY.replace(classify=classify))
    assert isinstance(sent.error, PermanentFailureError)
    assert isinstance(sent.error, httpx.ReadTimeout)
    assert sent.report.executed is False


# --- the caller's own body


@everywhere
@pytest.mark.parametrize("error", [ValueError, httpx.ReadError, httpx.ConnectError])
@pytest.mark.parametrize("classified", [False, True])
def test_an_error_of_the_callers_body_reaches_the_caller_and_nothing_is_sent_again(
    drive: Drive, error: type[Exception], classified: bool
) -> None:
    raised = error("in the body")
    policy = POLICY
    if classified:
        policy = POLICY.replace(classify=lambda request, result: Verdict(transient=True))
    body = drive.body(b"1", b"2", raised)
    sent = drive.send(200, method="PUT", content=body, policy=policy, listen=True)
    assert sent.error is raised
    assert len(sent.requests) == 1
    assert (sent.report.outcome, sent.report.executed) == (Outcome.UNCERTAIN_WRITE, None)


class _Rewording(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Makes something of its own out of whatever the wrapped transport raises."""

    def __init__(self, wrapped: ScriptedTransport, error: type[BaseException]) -> None:
        self.wrapped = wrapped
        self.error = error

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        with self._reworded():
            return self.wrapped.handle_request(request)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        with self._reworded():
            return await self.wrapped.handle_async_request(request)

    @contextmanager
    def _reworded(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise self.error("reworded") from error


@everywhere
def test_an_error_of_the_callers_body_comes_out_as_it_was_even_if_the_transport_rewords_it(
    drive: Drive,
) -> None:
    raised = ValueError("in the body")
    script = ScriptedTransport(200)
    sent = SentThrough(drive, RetryTransport(_Rewording(script, httpx.WriteError), policy=POLICY))
    assert sent.put(drive.body(b"1", raised)) is raised
    interrupted = RetryTransport(_Rewording(ScriptedTransport(200), KeyboardInterrupt))
    error = SentThrough(drive, interrupted).put(drive.body(b"1", raised))
    assert type(error) is KeyboardInterrupt


class SentThrough:
    def __init__(self, drive: Drive, transport: RetryTransport) -> None:
        self.drive = drive
        self.transport = transport

    def put(self, content: Any) -> BaseException:
        """Send it, and return what is raised."""
        request = httpx.Request("PUT", URL, content=content)

        async def asend() -> None:
            await self.transport.handle_async_request(request)

        try:
            if self.drive.backend is None:
                self.transport.handle_request(request)
            else:
                anyio.run(asend, backend=self.drive.backend)
        except BaseException as error:
            return error
        raise AssertionError("nothing was raised")


# --- nothing is kept alive


@contextmanager
def _by_reference_count_alone() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _kept(drive: Drive, transport: RetryTransport) -> list[object]:
    """What is still there of one request when its caller has dropped it."""
    references: list[weakref.ref[Any]] = []

    def note(outcome: httpx.Response | BaseException, request: httpx.Request) -> None:
        cause = getattr(outcome, "__cause__", None)
        references.extend(
            weakref.ref(thing) for thing in (outcome, request, cause) if thing is not None
        )

    def send() -> None:
        request = httpx.Request("GET", URL)
        try:
            note(transport.handle_request(request), request)
        except BaseException as error:
            note(error, request)

    async def asend() -> None:
        request = httpx.Request("GET", URL)
        try:
            note(await transport.handle_async_request(request), request)
        except BaseException as error:
            note(error, request)

    async def main() -> list[object]:
        with _by_reference_count_alone():
            await asend()
            return [reference() for reference in references]

    if drive.backend is not None:
        kept: list[object] = anyio.run(main, backend=drive.backend)
    else:
        with _by_reference_count_alone():
            send()
            kept = [reference() for reference in references]
    assert len(kept) >= 2
    return [thing for thing in kept if thing is not None]


class ScriptedError(Exception):
    """An error of no kind that we know, to which there can be weak references."""


class ScriptedInterrupt(KeyboardInterrupt):
    """The same."""


def _explode() -> Any:
    raise ScriptedError


@everywhere
@pytest.mark.parametrize(
    ("script", "policy"),
    [
        ([200], POLICY),
        ([Reply(body=b"short")], POLICY),
        ([503, httpx.ReadTimeout, Reply(body=b"short")], POLICY),
        ([Reply(status=503, body=[b"1"]), 404], POLICY),
        ([httpx.ReadTimeout, 503, httpx.ReadTimeout], POLICY),
        ([LOST, LOST, LOST], POLICY),
        ([ScriptedError], POLICY),
        ([503, ScriptedInterrupt], POLICY),
        ([Reply(status=500, body=[b"1"])], POLICY.replace(raise_on_failure=True)),
        ([503], POLICY.replace(classify=lambda request, result: _explode())),
        ([httpx.ReadTimeout], POLICY.replace(classify=lambda request, result: _explode())),
        ([503], POLICY.replace(backoff=lambda number: _explode())),
    ],
)
def test_what_the_caller_drops_leaves_nothing_for_the_garbage_collector(
    drive: Drive, script: list[Any], policy: RetryPolicy
) -> None:
    wrapped = ScriptedTransport(*script)
    assert _kept(drive, RetryTransport(wrapped, policy=policy, clock=VirtualClock())) == []
    wrapped.requests.clear()


@everywhere
def test_a_request_that_is_cancelled_in_a_wait_leaves_nothing_for_the_garbage_collector(
    drive: Drive,
) -> None:
    clock = VirtualClock()
    transport = RetryTransport(ScriptedTransport(httpx.ReadTimeout), policy=POLICY, clock=clock)
    clock.on_sleep = lambda seconds: transport.close()
    assert _kept(drive, transport) == []


def test_no_live_response_is_kept_by_an_error_or_a_report() -> None:
    sent = SYNC.send(Reply(status=503, body=b"why"), httpx.ReadTimeout, httpx.ReadTimeout)
    assert isinstance(sent.error, RetryError)
    assert sent.error.response is None
    assert sent.script.unclosed == []
    kept = pickle.dumps(sent.error)
    assert b"why" not in kept


@everywhere
def test_a_keyed_write_that_is_exhausted_says_that_it_may_be_sent_again(drive: Drive) -> None:
    sent = drive.send(*[httpx.ReadTimeout] * 3, method="POST", headers=KEY)
    assert isinstance(sent.error, UncertainWriteError)
    assert isinstance(sent.error, httpx.ReadTimeout)
    assert (sent.report.replay_safe, sent.report.stop_reason) == (True, StopReason.MAX_ATTEMPTS)
