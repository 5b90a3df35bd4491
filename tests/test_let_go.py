"""Nothing is held for longer than it is needed, and an ending is quiet wherever it comes."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any

import pytest

from httpx_safe_retry import Outcome, RetryPolicy, get_report
from httpx_safe_retry.testing import VirtualClock
from tests.library import RetryTransport, ScriptedTransport, httpx


class Tag:
    """Something of the caller's that a request holds."""


@pytest.mark.parametrize(
    "wrapped",
    [lambda: ScriptedTransport(200), lambda: httpx.MockTransport(lambda _: httpx.Response(200))],
    ids=["streamed", "in memory"],
)
def test_a_report_that_nobody_looked_at_does_not_keep_the_request(
    wrapped: Callable[[], httpx.BaseTransport],
) -> None:
    def report_of_a_request(transport: RetryTransport) -> tuple[Any, weakref.ref[Tag]]:
        tag = Tag()
        request = httpx.Request("GET", "https://api.test/", extensions={"mark": tag})
        response = transport.handle_request(request)
        response.read()
        response.close()
        return get_report(response), weakref.ref(tag)

    with RetryTransport(wrapped()) as transport:
        report, tag = report_of_a_request(transport)
    if isinstance(transport, ScriptedTransport):  # which remembers what it was sent
        transport.requests.clear()
    del transport
    gc.collect()
    assert tag() is None
    assert report.outcome is Outcome.SUCCESS
    assert report.url == "https://api.test/"


class Suspended(httpx.AsyncBaseTransport):
    """Waits for something that never comes."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await _Never()
        raise AssertionError("it came")


class _Never:
    def __await__(self) -> Any:
        yield


@pytest.mark.parametrize("policy", [RetryPolicy(), RetryPolicy(classify=lambda *_: None)])
def test_a_coroutine_is_closed_quietly_where_no_event_loop_is_left(policy: RetryPolicy) -> None:
    transport = RetryTransport(Suspended(), policy=policy, clock=VirtualClock())
    for context in (copy_context(), None):
        sending: Coroutine[Any, Any, httpx.Response] = transport.handle_async_request(
            httpx.Request("POST", "https://api.test/", content=b"1")
        )
        if context is None:
            sending.send(None)
        else:  # another than that in which it is closed
            context.run(sending.send, None)
        sending.close()
