"""A request that succeeds at once goes past the engine; one that doesn't is taken up by it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Generator
from typing import Any

import pytest

from httpx_safe_retry import RetryPolicy, get_report
from httpx_safe_retry.testing import Reply
from tests.drive import KEY, POLICY, Drive, everywhere
from tests.library import RetryTransport, httpx

SHORT = Reply(body=b"short")
LONG = Reply(body=b"x" * 70_000)
CHUNKED = Reply(body=[b"of unknown", b" length"])
NONE = Reply(status=204)


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("the engine was asked")

    monkeypatch.setattr("httpx_safe_retry._base.LogicalRequest", refuse)


@everywhere
@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize(
    "reply", [SHORT, LONG, CHUNKED, NONE], ids=["short", "long", "chunked", "none"]
)
@pytest.mark.parametrize("method", ["GET", "PUT", "POST"])
def test_a_plain_success_needs_no_engine(drive: Drive, reply: Reply, method: str) -> None:
    sent = drive.send(reply, policy=RetryPolicy(), method=method, content=b"1")
    assert get_report(sent.response).attempts[0].status == reply.status


@everywhere
@pytest.mark.parametrize(
    "body", [[httpx.ReadError("lost")], [b"12", httpx.ReadError("lost")]], ids=["first", "later"]
)
@pytest.mark.parametrize("headers", [{}, KEY])
def test_a_short_answer_that_is_lost_on_the_way_is_judged_by_the_engine(
    drive: Drive, body: list[Any], headers: dict[str, str]
) -> None:
    lost = Reply(headers={"Content-Length": "5"}, body=body)
    sent = drive.send(lost, SHORT, policy=POLICY, method="PUT", headers=headers)
    assert sent.response.content == b"short"
    assert [attempt.status for attempt in sent.report.attempts] == [200, 200]
    assert sent.report.attempts[0].error_type == "ReadError"


@everywhere
def test_what_interrupts_the_reading_of_an_answer_passes_through(drive: Drive) -> None:
    interrupted = Reply(headers={"Content-Length": "5"}, body=[b"12", KeyboardInterrupt()])
    sent = drive.send(interrupted, policy=POLICY)
    assert type(sent.error) is KeyboardInterrupt
    assert sent.clock.sleeps == []
    assert len(sent.requests) == 1


class Never:
    def __await__(self) -> Generator[None, None, None]:
        yield


class Stalled(httpx.AsyncByteStream, AsyncIterator[bytes]):
    """An answer whose body doesn't come."""

    closes = 0

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self  # no generator: those that are dropped half-way are another story

    async def __anext__(self) -> bytes:
        await Never()
        raise AssertionError("it came")

    async def aclose(self) -> None:
        self.closes += 1


class Stalls(httpx.AsyncBaseTransport):
    """Answers so."""

    def __init__(self) -> None:
        self.stream = Stalled()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"Content-Length": "5"}, stream=self.stream)


@pytest.mark.anyio
async def test_an_answer_is_closed_where_its_coroutine_is_closed_while_reading_it() -> None:
    inner = Stalls()
    sending: Coroutine[Any, Any, httpx.Response] = RetryTransport(inner).handle_async_request(
        httpx.Request("GET", "https://a.test/")
    )
    sending.send(None)
    sending.close()
    assert inner.stream.closes == 1
