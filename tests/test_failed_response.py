"""What becomes of a response: closed exactly once, drained so that its connection is used again, or
handed over as if nobody had looked at it.

`Drive.send` itself holds every request of this suite to "closed exactly once".
"""

from __future__ import annotations

import gzip
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing
from typing import Any, cast

import anyio
import pytest

from httpx_safe_retry import (
    Outcome,
    RetriesExhaustedError,
    RetryError,
    RetryPolicy,
    StopReason,
    UncertainWriteError,
    Verdict,
    get_report,
)
from httpx_safe_retry._rest import is_short
from httpx_safe_retry.testing import Reply, ScriptItem, SentResponse, VirtualClock
from tests.drive import ASYNCIO, POLICY, SYNC, TRIO, URL, Drive, Reading, Sent, everywhere
from tests.library import LIBRARY, RetryTransport, ScriptedTransport, httpcore, httpx

SMALL = b"why"
LOST = Reply(headers={"Content-Length": "5"}, body=[b"12", httpx.ReadError])
KIB_64 = 64 * 1024

# Bodies by how much is known of them before they are read.
UNKNOWN = Reply(status=503, body=[b"w", b"hy"])


# --- the response that is handed over


@everywhere
@pytest.mark.parametrize("stream", [None, "read", "iter_raw", "iter_bytes"])
@pytest.mark.parametrize("body", [SMALL, b"x" * (KIB_64 + 1), [b"w", b"hy"]])
def test_the_last_response_is_readable_however_it_is_read(
    drive: Drive, stream: Reading | None, body: Any
) -> None:
    sent = drive.send(503, 503, Reply(status=503, body=body), stream=stream)
    expected = body if isinstance(body, bytes) else b"".join(body)
    assert sent.report.stop_reason is StopReason.MAX_ATTEMPTS
    assert (sent.response.content if stream is None else sent.streamed) == expected


@everywhere
@pytest.mark.parametrize("stream", [None, "read", "iter_bytes"])
def test_a_compressed_body_is_decoded_once(drive: Drive, stream: Reading | None) -> None:
    packed = Reply(headers={"Content-Encoding": "gzip"}, body=gzip.compress(SMALL))
    sent = drive.send(503, packed, stream=stream)
    assert (sent.response.content if stream is None else sent.streamed) == SMALL


@everywhere
def test_a_compressed_body_is_raw_to_whoever_reads_it_raw(drive: Drive) -> None:
    packed = gzip.compress(SMALL)
    sent = drive.send(Reply(headers={"Content-Encoding": "gzip"}, body=packed), stream="iter_raw")
    assert sent.streamed == packed
    assert sent.response.num_bytes_downloaded == len(packed)


@everywhere
def test_a_body_that_cannot_be_decoded_is_the_callers_to_meet(drive: Drive) -> None:
    broken = Reply(headers={"Content-Encoding": "gzip"}, body=b"not gzip")
    policy = POLICY.replace(classify=lambda request, result: None)
    sent = drive.send(broken, 200, policy=policy)
    assert type(sent.error) is httpx.DecodingError
    assert len(sent.requests) == 1
    raw = drive.send(broken, policy=policy, stream="iter_raw")
    assert raw.streamed == b"not gzip"


@everywhere
def test_a_prefetched_response_looks_as_if_nobody_had_touched_it(drive: Drive) -> None:
    body = b"x" * 100
    sent = drive.send(Reply(body=body))
    response = sent.response
    assert (response.num_bytes_downloaded, response.is_closed) == (100, True)
    assert response.elapsed.total_seconds() >= 0
    assert response.request.url == URL


def test_a_response_is_handed_over_unread_and_its_connection_alive() -> None:
    script = ScriptedTransport(Reply(body=[b"1", b"2"]), Reply(body=b"12"))
    transport = RetryTransport(script, policy=POLICY)
    for _ in range(2):
        response = transport.handle_request(httpx.Request("GET", URL))
        assert (response.is_closed, response.is_stream_consumed) == (False, False)
        assert response.num_bytes_downloaded == 0
        assert response.read() == b"12"
    assert [reply.closes for reply in script.responses] == [1, 1]
    unread = script.responses[0]
    assert unread.read


@everywhere
@pytest.mark.parametrize(
    ("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304), ("CONNECT", 200)]
)
@pytest.mark.parametrize("length", [5, KIB_64 + 5])
def test_content_length_promises_no_body_where_there_is_none(
    drive: Drive, method: str, status: int, length: int
) -> None:
    reply = Reply(status=status, headers={"Content-Length": str(length)})
    sent = drive.send(reply, method=method)
    assert (sent.response.status_code, sent.response.content) == (status, b"")
    assert sent.response.headers["Content-Length"] == str(length)


def _handed_over(*replies: Reply, method: str = "GET") -> list[tuple[bool, int]]:
    """How far each answer was read and how often it was closed, by a thread and by a task, when
    the caller gets it.
    """
    seen: list[tuple[bool, int]] = []
    for reply in replies:
        script = ScriptedTransport(reply, repeat=True)
        transport = RetryTransport(script, policy=POLICY)
        request = httpx.Request(method, URL)
        transport.handle_request(request)

        async def send(
            transport: RetryTransport = transport, request: httpx.Request = request
        ) -> None:
            await transport.handle_async_request(request)

        anyio.run(send)
        seen += [(response.read, response.closes) for response in script.responses]
    return seen


FIVE = {"Content-Length": "5"}


@pytest.mark.parametrize(
    ("method", "status"),
    [("GET", 101), ("CONNECT", 200), ("HEAD", 200), ("GET", 204), ("GET", 304)],
)
def test_what_follows_an_answer_without_a_body_is_neither_read_nor_closed(
    method: str, status: int
) -> None:
    reply = Reply(status=status, headers=FIVE, body=[b"12345"])
    assert _handed_over(reply, method=method) == [(False, 0)] * 2


def test_only_what_is_known_to_be_short_is_read_ahead() -> None:
    chunked = Reply(headers={**FIVE, "Transfer-Encoding": "chunked"}, body=[b"12345"])
    twice = Reply(headers=[("Content-Length", "5"), ("Content-Length", "5")], body=[b"12345"])
    odd = Reply(headers={"Content-Length": "+5"}, body=[b"12345"])
    # More digits than Python makes an int of.
    endless = Reply(headers={"Content-Length": "5" * 5000}, body=[b"12345"])
    assert _handed_over(chunked, twice, odd, endless) == [(False, 0)] * 8
    assert _handed_over(Reply(headers=FIVE, body=[b"12345"])) == [(True, 1)] * 2
    refused = Reply(status=403, headers=FIVE, body=[b"12345"])
    assert _handed_over(refused, method="CONNECT") == [(True, 1)] * 2


def test_a_length_in_digits_of_another_alphabet_is_none() -> None:
    for digit in ("\u0665".encode(), b"\xb2"):  # an Arabic five, and a superscript two
        headers = [(b"Content-Length", digit)]
        response = httpx.Response(200, headers=headers, stream=SentResponse(1, 200, [b"12345"]))
        assert not is_short(LIBRARY, "GET", response, 100)


# --- a body that is lost on the way


@everywhere
def test_a_short_body_that_is_lost_is_fetched_again(drive: Drive) -> None:
    sent = drive.send(LOST, Reply(body=b"12345"))
    assert sent.response.content == b"12345"
    first = sent.report.attempts[0]
    assert (first.status, first.error_type) == (200, "ReadError")
    assert sent.waits == [1.0]


@everywhere
@pytest.mark.parametrize(("method", "status"), [("GET", 503), ("PUT", 502), ("POST", 429)])
def test_a_failed_answer_that_is_thrown_away_is_not_waited_for(
    drive: Drive, method: str, status: int
) -> None:
    lost = Reply(status=status, headers={"Content-Length": "5"}, body=[b"12", httpx.ReadError])
    policy = POLICY.replace(statuses={502, 503}, refusal_statuses={429})
    sent = drive.send(lost, 200, method=method, policy=policy)
    assert sent.response.status_code == 200
    assert [attempt.error_type for attempt in sent.report.attempts] == [None, None]


@everywhere
@pytest.mark.parametrize(
    ("method", "earlier", "changes"),
    [
        ("GET", [503, 503], {}),
        ("POST", [], {}),
        ("POST", [429], {}),
        ("GET", [503, 503], {"delay_hint": lambda response: None}),
        ("GET", [503, 503], {"classify": lambda request, result: None}),
    ],
)
def test_a_failed_answer_that_is_handed_over_is_read_first(
    drive: Drive, method: str, earlier: list[ScriptItem], changes: dict[str, Any]
) -> None:
    lost = Reply(status=503, headers={"Content-Length": "5"}, body=[b"12", httpx.ReadError])
    sent = drive.send(*earlier, lost, method=method, policy=POLICY.replace(**changes))
    assert isinstance(sent.error, httpx.ReadError)
    last = sent.report.attempts[-1]
    assert (last.status, last.error_type) == (503, "ReadError")


@everywhere
@pytest.mark.parametrize("field", ["delay_hint", "classify"])
def test_a_failed_answer_that_a_callable_may_look_at_is_read_first(
    drive: Drive, field: str
) -> None:
    lost = Reply(status=503, headers={"Content-Length": "5"}, body=[b"12", httpx.ReadError])
    hook: dict[str, Any] = {field: lambda *arguments: None}
    policy = POLICY.replace(**hook)
    sent = drive.send(lost, 200, policy=policy)
    assert [attempt.error_type for attempt in sent.report.attempts] == ["ReadError", None]


@everywhere
def test_a_write_whose_answer_is_lost_has_happened(drive: Drive) -> None:
    sent = drive.send(LOST, 200, method="POST")
    assert isinstance(sent.error, UncertainWriteError)
    assert isinstance(sent.error, httpx.ReadError)
    assert (sent.report.executed, sent.error.response) == (True, None)
    assert len(sent.requests) == 1


@everywhere
def test_a_body_of_just_the_length_that_is_read_ahead_is_fetched_again(drive: Drive) -> None:
    sent = drive.send(LOST, Reply(body=b"12345"), policy=POLICY.replace(prefetch=5))
    assert sent.response.content == b"12345"


@everywhere
@pytest.mark.parametrize("prefetch", [0, 4])
def test_a_body_beyond_prefetch_is_left_to_the_caller_with_all_its_risks(
    drive: Drive, prefetch: int
) -> None:
    policy = POLICY.replace(prefetch=prefetch)
    sent = drive.send(LOST, 200, policy=policy, stream="iter_raw")
    assert type(sent.error) is httpx.ReadError
    assert len(sent.requests) == 1


@everywhere
@pytest.mark.parametrize("retry", [None, {"max_attempts": 1}])
def test_nothing_is_prefetched_where_retries_are_off(drive: Drive, retry: Any) -> None:
    sent = drive.send(LOST, extensions={"retry": retry})
    assert isinstance(sent.error, httpx.ReadError)
    assert isinstance(sent.error, RetryError) is (retry is not None)


@everywhere
def test_an_error_in_a_body_that_is_not_the_transports_passes_through(drive: Drive) -> None:
    error = LookupError("not the network's")
    sent = drive.send(
        Reply(headers={"Content-Length": "5"}, body=[b"12", error]), method="PUT", listen=True
    )
    assert sent.error is error
    assert (sent.report.outcome, sent.report.executed) == (Outcome.UNCERTAIN_WRITE, True)
    assert [(a.status, a.error_type) for a in sent.report.attempts] == [(200, "LookupError")]


# --- what does not close as it should


class _Stubborn(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that raises when it is closed, and counts how often that was."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.closes = 0

    def __iter__(self) -> Iterator[bytes]:
        yield b"12345"

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"12345"

    def close(self) -> None:
        self.closes += 1
        raise self.error

    async def aclose(self) -> None:
        self.close()


class _Unclosable(httpx.BaseTransport, httpx.AsyncBaseTransport):
    def __init__(self, *statuses: int, length: bool = True, error: BaseException) -> None:
        self.streams = [_Stubborn(error) for _ in statuses]
        headers = {"Content-Length": "5"} if length else {}
        self.responses = iter(
            [
                httpx.Response(status, headers=headers, stream=stream)
                for status, stream in zip(statuses, self.streams, strict=True)
            ]
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return next(self.responses)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return next(self.responses)


@everywhere
@pytest.mark.parametrize("length", [True, False])
def test_an_error_in_closing_changes_nothing_about_the_answer(
    drive: Drive, length: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "httpx_safe_retry")
    wrapped = _Unclosable(503, 503, length=length, error=httpx.CloseError("broken"))
    clock = VirtualClock()
    transport = RetryTransport(wrapped, policy=POLICY.replace(max_attempts=2), clock=clock)

    async def asend() -> httpx.Response:
        return await transport.handle_async_request(httpx.Request("GET", URL))

    if drive.backend is None:
        response = transport.handle_request(httpx.Request("GET", URL))
    else:
        response = anyio.run(asend, backend=drive.backend)
    assert get_report(response).stop_reason is StopReason.MAX_ATTEMPTS
    assert [stream.closes for stream in wrapped.streams] == [1, 1 if length else 0]
    if length:
        assert response.read() == b"12345"
    assert "CloseError" in caplog.text


# --- the response that is thrown away


@everywhere
@pytest.mark.parametrize(
    "reply",
    [
        Reply(status=503, body=SMALL),
        Reply(status=503, body=b"x" * KIB_64),
        Reply(status=503, body=[b"w", b"hy"]),
        Reply(status=503, headers={"Transfer-Encoding": "chunked"}, body=[b"w", b"hy"]),
        Reply(status=503),
        Reply(status=429, body=SMALL),
        Reply(status=408, body=[SMALL]),
    ],
)
def test_a_response_is_read_and_closed_before_the_wait(drive: Drive, reply: Reply) -> None:
    seen: list[tuple[bool, int]] = []

    def look(sent: Sent) -> None:
        seen.extend((response.read, response.closes) for response in sent.script.responses)

    sent = drive.send(reply, 200, on_wait=look)
    assert sent.response.status_code == 200
    assert seen == [(True, 1)]


@everywhere
@pytest.mark.parametrize("prefetch", [KIB_64, 0])
@pytest.mark.parametrize(
    "reply",
    [
        Reply(status=503, body=[b"x" * KIB_64, b"x", SMALL]),
        Reply(status=503, headers={"Content-Length": str(KIB_64 + 1)}, body=[SMALL]),
    ],
)
def test_a_long_rest_is_not_waited_for(drive: Drive, reply: Reply, prefetch: int) -> None:
    sent = drive.send(reply, 200, policy=POLICY.replace(prefetch=prefetch))
    assert sent.response.status_code == 200
    assert not sent.script.responses[0].read


@everywhere
def test_what_fails_while_it_is_thrown_away_is_thrown_away(
    drive: Drive, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "httpx_safe_retry")
    sent = drive.send(Reply(status=503, body=[b"w", httpx.ReadError]), 200)
    assert sent.response.status_code == 200
    assert "closing a discarded response: ReadError" in caplog.text


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_rest_may_come_from_any_async_iterator(backend: str) -> None:
    class Plain(httpx.AsyncByteStream):
        """No generator: there is nothing to finish."""

        def __init__(self) -> None:
            self.left = [b"w", b"hy"]
            self.closes = 0

        def __aiter__(self) -> AsyncIterator[bytes]:
            return self

        async def __anext__(self) -> bytes:
            if not self.left:
                raise StopAsyncIteration
            return self.left.pop(0)

        async def aclose(self) -> None:
            self.closes += 1

    stream = Plain()
    answers = iter([httpx.Response(503, stream=stream), httpx.Response(200)])

    class Transport(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            return next(answers)

    async def main() -> httpx.Response:
        transport = RetryTransport(Transport(), policy=POLICY, clock=VirtualClock())
        return await transport.handle_async_request(httpx.Request("GET", URL))

    assert anyio.run(main, backend=backend).status_code == 200
    assert (stream.left, stream.closes) == ([], 1)


@everywhere
def test_an_error_of_httpcores_own_is_the_transports_too(drive: Drive) -> None:
    sent = drive.send(Reply(status=503, body=[b"w", httpcore.ReadError]), 200)
    assert sent.response.status_code == 200


@everywhere
def test_an_error_from_outside_is_not_thrown_away_with_the_response(drive: Drive) -> None:
    class TimeLimitError(Exception):
        """What a signal handler raises, in the middle of whatever runs."""

    limit = TimeLimitError()
    sent = drive.send(Reply(status=503, body=[b"w", limit]), 200, listen=True)
    assert sent.error is limit
    assert sent.report.outcome is Outcome.PERMANENT_FAILURE


@everywhere
def test_a_head_is_read_to_its_end_whatever_length_it_announces(drive: Drive) -> None:
    reply = Reply(status=503, headers={"Content-Length": str(10 * KIB_64)})
    sent = drive.send(reply, 200, method="HEAD")
    assert sent.script.responses[0].read


def test_a_rest_that_comes_drop_by_drop_is_given_up() -> None:
    clock = VirtualClock()

    def drops() -> Iterator[bytes]:
        for _ in range(10):
            clock.advance(0.2)
            yield b"x"

    sent = SYNC.send(Reply(status=503, body=drops()), 200, clock=clock)
    assert sent.response.status_code == 200
    assert not sent.script.responses[0].read
    assert clock.monotonic() < 2


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_task_gives_up_a_rest_that_does_not_come(backend: str) -> None:
    async def stalls() -> AsyncIterator[bytes]:
        yield b"x"
        await anyio.sleep_forever()

    sent = Drive(backend).send(Reply(status=503, body=stalls()), 200)
    assert sent.response.status_code == 200


@pytest.mark.parametrize("read", [None, 30.0, 0.2])
def test_the_read_timeout_of_a_thread_is_cut_for_the_rest_only_where_it_is_ours(
    read: float | None,
) -> None:
    seen: list[float | None] = []

    def answer(request: httpx.Request) -> Reply:
        def rest() -> Iterator[bytes]:
            seen.append(request.extensions["timeout"]["read"])
            yield b"x"

        return Reply(status=503, body=rest())

    timeout = httpx.Timeout(30.0, read=read)
    SYNC.send(answer, answer, 200, timeout=timeout)
    cut = min(0.5, read or 0.5)
    # The first attempt's timeouts are the caller's own. Without one, nothing is waited for.
    assert seen == ([cut] if read is None else [read, cut])


@pytest.mark.parametrize(("deadline", "read"), [(60.0, 0.5), (2.0, 0.25), (1.7505, 0.001)])
def test_the_rest_of_an_answer_is_given_no_time_that_the_deadline_needs(
    deadline: float, read: float
) -> None:
    seen: list[float] = []

    def answer(request: httpx.Request) -> Reply:
        def rest() -> Iterator[bytes]:
            seen.append(request.extensions["timeout"]["read"])
            yield b"x"

        return Reply(status=503, body=rest())

    policy = POLICY.replace(deadline=deadline, min_attempt_time=0.75)
    # A second's wait, and three quarters for the attempt that follows.
    sent = SYNC.send(answer, 200, policy=policy, timeout=None)
    assert sent.response.status_code == 200
    assert seen == [read]


# --- answers that have been read already


class _Reads(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Reads each answer, or a part of it, before it hands it on: to log it, say."""

    def __init__(self, script: ScriptedTransport, whole: bool) -> None:
        self.script = script
        self.whole = whole

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = self.script.handle_request(request)
        if self.whole:
            response.read()
        else:
            next(response.iter_raw(1))
        return response

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self.script.handle_async_request(request)
        if self.whole:
            await response.aread()
        else:
            raw = cast("AsyncGenerator[bytes, None]", response.aiter_raw(1))
            async with aclosing(raw) as chunks:
                await anext(chunks)
        return response


# httpx leaves the generator of a body open that it reads in part; trio would complain of it.
@pytest.mark.parametrize(
    ("drive", "whole"),
    [(SYNC, True), (ASYNCIO, True), (TRIO, True), (SYNC, False), (ASYNCIO, False)],
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
@pytest.mark.parametrize("policy", [POLICY, POLICY.replace(deadline=60.0)])
@pytest.mark.parametrize("body", [b"12345", [b"123", b"45"]], ids=["length", "chunked"])
def test_what_was_read_already_is_not_read_again(
    drive: Drive, whole: bool, method: str, policy: RetryPolicy, body: Any
) -> None:
    replies = [Reply(status=status, body=body) for status in (429, 429, 200)]
    script = ScriptedTransport(*replies)
    sent = Sent(script, VirtualClock())
    transport = RetryTransport(_Reads(script, whole), policy=policy, clock=sent.clock)
    drive.through(transport, sent, method, stream="read" if whole else "iter_raw")
    if whole:
        assert sent.response.content == b"12345"
        assert sent.response.status_code == 200
    else:  # as with plain httpx: what is left can't be told from the whole
        assert isinstance(sent.error, httpx.StreamConsumed)
    assert [reply.closes for reply in script.responses] == [1, 1, 1]
    assert len(script.requests) == 3


# --- callables of the policy


@everywhere
@pytest.mark.parametrize("reply", [Reply(status=503, body=b'{"wait": 3}'), UNKNOWN])
def test_classify_sees_a_response_with_its_request(drive: Drive, reply: Reply) -> None:
    raised: list[str] = []

    def classify(request: httpx.Request, result: httpx.Response | Exception) -> Verdict | None:
        assert isinstance(result, httpx.Response)
        try:
            result.raise_for_status()
        except httpx.HTTPStatusError as error:
            raised.append(str(error))
        return None

    sent = drive.send(reply, 200, policy=POLICY.replace(classify=classify))
    assert sent.response.status_code == 200
    assert len(raised) == 1
    assert "503" in raised[0]


@everywhere
def test_a_delay_hint_reads_the_body_before_it_is_thrown_away(drive: Drive) -> None:
    def hint(response: httpx.Response) -> float:
        return float(response.json()["wait"])

    policy = POLICY.replace(delay_hint=hint)
    sent = drive.send(Reply(status=503, body=b'{"wait": 3}'), 200, policy=policy)
    assert sent.waits == [3.0]


@everywhere
def test_what_callables_do_to_a_response_leaves_it_unread_for_the_caller(drive: Drive) -> None:
    def classify(request: httpx.Request, result: httpx.Response | Exception) -> None:
        assert isinstance(result, httpx.Response)
        result.read()
        result.close()

    packed = Reply(headers={"Content-Encoding": "gzip"}, body=gzip.compress(SMALL))
    sent = drive.send(packed, policy=POLICY.replace(classify=classify), stream="iter_bytes")
    assert sent.streamed == SMALL


def test_a_callable_that_reads_a_long_response_has_read_it_for_the_caller_too() -> None:
    def classify(request: httpx.Request, result: httpx.Response | Exception) -> Verdict:
        assert isinstance(result, httpx.Response)
        return Verdict(transient=result.read() == b"later")

    policy = POLICY.replace(classify=classify)
    sent = SYNC.send(Reply(body=[b"lat", b"er"]), Reply(body=[b"d", b"one"]), policy=policy)
    assert sent.response.content == b"done"


def _explode(*_: object) -> Any:
    raise LookupError("a callable of the policy")


@everywhere
@pytest.mark.parametrize("field", ["classify", "delay_hint", "backoff"])
@pytest.mark.parametrize(
    "script",
    [[Reply(status=503, body=SMALL)], [UNKNOWN], [503, UNKNOWN]],
)
def test_a_callable_that_raises_leaves_no_response_open(
    drive: Drive, field: str, script: list[ScriptItem]
) -> None:
    calls = iter(range(len(script)))

    def explode(*arguments: object) -> Any:
        return _explode() if next(calls) == len(script) - 1 else {"backoff": 1.0}.get(field)

    policy = POLICY.replace(**dict[str, Any]({field: explode}))
    sent = drive.send(*script, method="PUT", policy=policy, listen=True)
    assert type(sent.error) is LookupError
    assert len(sent.requests) == len(sent.report.attempts) == len(script)
    assert (sent.report.outcome, sent.report.executed) == (Outcome.UNCERTAIN_WRITE, None)
    assert sent.report.attempts[-1].error_type == "LookupError"


# --- raise_on_failure


@everywhere
@pytest.mark.parametrize("body", [SMALL, [b"w", b"hy"]])
def test_raise_on_failure_raises_the_typed_error_with_its_response(drive: Drive, body: Any) -> None:
    policy = POLICY.replace(raise_on_failure=True)
    sent = drive.send(503, 503, Reply(status=503, body=body), policy=policy)
    assert isinstance(sent.error, RetriesExhaustedError)
    assert isinstance(sent.error, httpx.HTTPStatusError)
    response = sent.error.response
    assert response is not None
    assert get_report(response) is sent.report
    assert (response.status_code, response.is_closed, response.content) == (503, True, SMALL)
    assert response.request.url == URL


@everywhere
def test_raise_on_failure_does_not_wait_for_a_long_body(drive: Drive) -> None:
    policy = POLICY.replace(raise_on_failure=True)
    sent = drive.send(Reply(status=500, body=[b"x" * KIB_64, b"x", SMALL]), policy=policy)
    assert isinstance(sent.error, httpx.HTTPStatusError)
    assert not sent.script.responses[0].read
    with pytest.raises(httpx.ResponseNotRead):
        _ = sent.error.response.content


@everywhere
def test_raise_on_failure_lets_a_success_pass(drive: Drive) -> None:
    policy = POLICY.replace(raise_on_failure=True)
    sent = drive.send(503, Reply(body=SMALL), policy=policy)
    assert sent.response.content == SMALL


# --- cancellation and interruption


def _interrupted() -> ScriptItem:
    return Reply(headers={"Content-Length": "5"}, body=[b"12", KeyboardInterrupt])


@everywhere
@pytest.mark.parametrize(
    "script",
    [
        [_interrupted()],
        [503, _interrupted()],
        [Reply(status=503, body=[b"w", KeyboardInterrupt])],
    ],
)
def test_an_interrupt_in_a_body_leaves_no_response_open(
    drive: Drive, script: list[ScriptItem]
) -> None:
    sent = drive.send(*script, listen=True)
    assert type(sent.error) is KeyboardInterrupt
    assert sent.report.outcome is Outcome.CANCELLED


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("length", [True, False])
def test_cancelling_a_task_within_a_body_closes_the_response_and_sends_nothing(
    backend: str, length: bool
) -> None:
    script: ScriptedTransport

    async def main() -> None:
        nonlocal script
        scope = anyio.CancelScope()

        async def body() -> AsyncIterator[bytes]:
            yield b"12"
            scope.cancel()
            await anyio.sleep_forever()

        headers = {"Content-Length": "5"} if length else {}
        script = ScriptedTransport(Reply(status=503, headers=headers, body=body()), 200)
        transport = RetryTransport(script, policy=POLICY, clock=VirtualClock())
        with scope:
            await transport.handle_async_request(httpx.Request("GET", URL))
            raise AssertionError("it was cancelled")
        assert scope.cancelled_caught

    anyio.run(main, backend=backend)
    assert [reply.closes for reply in script.responses] == [1]
    assert len(script.requests) == 1


def test_closing_is_not_cut_short_by_a_cancelled_task() -> None:
    closed = False

    class Slow(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield b"1"
            await anyio.sleep_forever()

        async def aclose(self) -> None:
            nonlocal closed
            await anyio.sleep(0)
            closed = True

    async def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"Content-Length": "5"}, stream=Slow())

    class Transport(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            return await answer(request)

    async def main() -> None:
        with anyio.move_on_after(0.01):
            await RetryTransport(Transport()).handle_async_request(httpx.Request("GET", URL))

    for backend in ("asyncio", "trio"):
        closed = False
        anyio.run(main, backend=backend)
        assert closed


# --- extensions


@everywhere
def test_the_report_goes_to_one_response_even_where_a_transport_shares_its_extensions(
    drive: Drive,
) -> None:
    shared = {"http_version": b"HTTP/1.1"}

    def answer(request: httpx.Request) -> httpx.Response:
        response = httpx.Response(200)
        response.extensions = shared
        return response

    wrapped: Callable[..., Any] = answer
    sent = drive.send(lambda request: Reply(extensions=shared))
    assert sent.response.extensions["http_version"] == b"HTTP/1.1"
    transport = RetryTransport(_Sharing(wrapped), policy=POLICY)

    async def asend() -> httpx.Response:
        return await transport.handle_async_request(httpx.Request("GET", URL))

    if drive.backend is None:
        response = transport.handle_request(httpx.Request("GET", URL))
    else:
        response = anyio.run(asend, backend=drive.backend)
    assert get_report(response).outcome is Outcome.SUCCESS
    assert shared == {"http_version": b"HTTP/1.1"}


class _Sharing(httpx.BaseTransport, httpx.AsyncBaseTransport):
    def __init__(self, answer: Callable[[httpx.Request], httpx.Response]) -> None:
        self.answer = answer

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self.answer(request)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return self.answer(request)
