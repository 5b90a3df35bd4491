"""A client of an SDK that people use, given an httpx2 client of ours.

`openai` is no dependency of the other tests: `pip install '.[test-openai]'` runs this one.
"""

from __future__ import annotations

import json
from typing import Any

import httpx2
import openai
import pytest

from httpx_safe_retry import RetryBudget, RetryPolicy, RetryReport, UncertainWriteError
from httpx_safe_retry.httpx2 import wrap_client
from httpx_safe_retry.testing import Fault, LoopbackServer, ServerRequest, ServerResponse

QUICK = RetryPolicy(backoff=lambda retry: 0.0)
COMPLETION = {
    "id": "1",
    "object": "chat.completion",
    "created": 0,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": "hello"},
        }
    ],
}
MESSAGES: Any = [{"role": "user", "content": "hi"}]


def complete(request: ServerRequest) -> ServerResponse:
    return ServerResponse(
        headers={"Content-Type": "application/json"}, body=json.dumps(COMPLETION).encode()
    )


def ask(server: LoopbackServer, *, key: str | None = None) -> Any:
    """Ask through the SDK's client, which is told to leave the retries to us."""
    http = wrap_client(httpx2.Client(), policy=QUICK, budget=RetryBudget())
    with openai.OpenAI(api_key="k", base_url=server.url, http_client=http, max_retries=0) as client:
        return client.chat.completions.create(
            model="m",
            messages=MESSAGES,
            extra_headers={} if key is None else {"Idempotency-Key": key},
        )


def test_a_request_that_was_refused_is_sent_again() -> None:
    with LoopbackServer(429, handler=complete) as server:
        assert ask(server).choices[0].message.content == "hello"
        assert (len(server.requests), len(server.ledger)) == (2, 1)


def test_with_a_key_a_lost_answer_is_asked_for_again() -> None:
    with LoopbackServer(Fault(by="rst"), handler=complete, dedupe=True) as server:
        assert ask(server, key="k1").choices[0].message.content == "hello"
        assert (len(server.requests), len(server.ledger)) == (2, 1)


def test_without_a_key_a_lost_answer_is_uncertain_and_the_sdk_says_from_what() -> None:
    with LoopbackServer(Fault(by="rst"), handler=complete) as server:
        with pytest.raises(openai.APIConnectionError) as caught:
            ask(server)
        assert len(server.ledger) == 1
    cause = caught.value.__cause__
    assert isinstance(cause, UncertainWriteError)
    assert isinstance(cause, httpx2.TransportError)


def test_an_answer_that_the_sdk_takes_for_an_error_carries_the_report() -> None:
    with LoopbackServer(503, handler=complete) as server:
        with pytest.raises(openai.InternalServerError) as caught:
            ask(server)
        assert len(server.requests) == 1
    report = caught.value.response.extensions["retry"]
    assert isinstance(report, RetryReport)
    assert report.executed is None


@pytest.mark.anyio
async def test_its_async_client_does_the_same() -> None:
    with LoopbackServer(429, Fault(by="rst"), handler=complete, dedupe=True) as server:
        http = wrap_client(httpx2.AsyncClient(), policy=QUICK)
        async with openai.AsyncOpenAI(
            api_key="k", base_url=server.url, http_client=http, max_retries=0
        ) as client:
            answer = await client.chat.completions.create(
                model="m", messages=MESSAGES, extra_headers={"Idempotency-Key": "k1"}
            )
        assert answer.choices[0].message.content == "hello"
        assert (len(server.requests), len(server.ledger)) == (3, 1)
