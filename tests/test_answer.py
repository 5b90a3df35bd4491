"""Reading an answer: the wait that it asks for, and the view that the policy's callables get."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Any

import pytest

from httpx_safe_retry import DelaySource, RetryPolicy, Verdict
from httpx_safe_retry._answer import asks_for_a_wait, checked_verdict, is_replayed, view, wish_of
from httpx_safe_retry._decide import Wish
from tests.library import httpx

REQUEST = httpx.Request("POST", "https://example.org/")
NOW = 1_593_120_492.0  # Thu, 25 Jun 2020 21:28:12 GMT
POLICY = RetryPolicy()


def answer(*headers: tuple[str, str], body: bytes = b"", status: int = 503) -> httpx.Response:
    return httpx.Response(status, headers=list(headers), stream=httpx.ByteStream(body))


# The wait that it asks for -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ([("Retry-After", "7")], 7.0),
        ([("retry-after", " 7 ")], 7.0),
        ([("Retry-After", "0")], 0.0),
        ([("Retry-After", "Thu, 25 Jun 2020 21:30:12 GMT")], 120.0),
        # The server's own clock, where it tells the time.
        (
            [
                ("Retry-After", "Thu, 25 Jun 2020 21:30:12 GMT"),
                ("Date", "Thu, 25 Jun 2020 21:30:02 GMT"),
            ],
            10.0,
        ),
    ],
)
def test_a_valid_retry_after_is_a_wish(headers: list[tuple[str, str]], seconds: float) -> None:
    response = answer(*headers)
    assert wish_of(POLICY, response, NOW) == Wish(seconds, DelaySource.RETRY_AFTER)
    assert asks_for_a_wait(response, NOW)


@pytest.mark.parametrize(
    ("headers", "anomaly"),
    [
        ([("Retry-After", "soon")], "malformed: 'soon'"),
        ([("Retry-After", "")], "empty"),
        ([("Retry-After", "1"), ("Retry-After", "2")], "several values"),
        ([("Retry-After", "1, 2")], "malformed: '1, 2'"),
        (
            [("Retry-After", "Thu, 25 Jun 2020 20:30:12 GMT")],
            "in the past: 'Thu, 25 Jun 2020 20:30:12 GMT'",
        ),
    ],
)
def test_another_retry_after_is_an_anomaly(headers: list[tuple[str, str]], anomaly: str) -> None:
    response = answer(*headers)
    assert wish_of(POLICY, response, NOW) == Wish(None, DelaySource.RETRY_AFTER, anomaly)
    assert not asks_for_a_wait(response, NOW)


def test_no_retry_after_is_no_wish() -> None:
    assert wish_of(POLICY, answer(), NOW) is None
    assert not asks_for_a_wait(answer(), NOW)


def hinting(hint: Callable[[httpx.Response], Any]) -> RetryPolicy:
    return POLICY.replace(delay_hint=hint)


def test_the_policys_own_hint_is_asked_first() -> None:
    policy = hinting(lambda response: int(response.headers["Retry-After-Ms"]) / 1000)
    response = answer(("Retry-After", "7"), ("Retry-After-Ms", "250"))
    assert wish_of(policy, response, NOW) == Wish(0.25, DelaySource.DELAY_HINT)


def test_a_hint_of_none_leaves_it_to_retry_after() -> None:
    policy = hinting(lambda response: None)
    assert wish_of(policy, answer(("Retry-After", "7")), NOW) == Wish(7.0, DelaySource.RETRY_AFTER)
    assert wish_of(policy, answer(), NOW) is None


@pytest.mark.parametrize("value", [-1, -0.1, float("nan"), float("inf"), 10**400, "7", True, b"7"])
def test_a_hint_that_is_no_number_of_seconds_is_an_anomaly(value: Any) -> None:
    wish = wish_of(hinting(lambda response: value), answer(("Retry-After", "7")), NOW)
    assert wish == Wish(None, DelaySource.DELAY_HINT, "delay_hint returned no number of seconds")


def test_a_whole_number_of_seconds_is_a_hint_too() -> None:
    wish = wish_of(hinting(lambda response: 0), answer(), NOW)
    assert wish == Wish(0.0, DelaySource.DELAY_HINT)
    assert isinstance(wish.seconds, float)


# The mark of a recorded result -------------------------------------------------------------------


@pytest.mark.parametrize("value", ["true", "True", "TRUE", " true "])
def test_a_recorded_result_is_marked(value: str) -> None:
    assert is_replayed(answer(("Idempotent-Replayed", value)).headers)
    assert is_replayed(answer(("idempotent-replayed", value)).headers)


@pytest.mark.parametrize("value", ["false", "", "1", "yes", "true, true", "?1"])
def test_any_other_mark_is_none(value: str) -> None:
    assert not is_replayed(answer(("Idempotent-Replayed", value)).headers)
    assert not is_replayed(answer().headers)


# The view ----------------------------------------------------------------------------------------


def test_a_view_has_the_request_and_the_body_that_was_read() -> None:
    response = answer(("Content-Type", "application/json"), body=b'{"wait": 3}')
    response.extensions["http_version"] = b"HTTP/2"
    seen = view(response, REQUEST, b'{"wait": 3}')
    assert (seen.status_code, seen.json(), seen.request) == (503, {"wait": 3}, REQUEST)
    with pytest.raises(httpx.HTTPStatusError):
        seen.raise_for_status()
    assert seen.extensions == {"http_version": b"HTTP/2"}


def test_what_is_done_to_a_view_leaves_the_answer_unread() -> None:
    response = answer(body=b"why")
    seen = view(response, REQUEST, b"why")
    assert seen.read() == b"why"
    seen.headers["X"] = "y"
    seen.close()
    assert "X" not in response.headers
    assert not response.is_stream_consumed
    assert not response.is_closed
    assert response.read() == b"why"


def test_a_body_that_was_not_read_is_not_in_the_view() -> None:
    response = answer(body=b"long")
    seen = view(response, REQUEST, None)
    assert seen is response
    assert seen.request is REQUEST
    with pytest.raises(httpx.ResponseNotRead):
        _ = seen.content


def test_a_view_decodes_the_body() -> None:
    packed = gzip.compress(b"why")
    response = answer(("Content-Encoding", "gzip"), body=packed)
    assert view(response, REQUEST, packed).text == "why"
    assert b"".join(response.iter_raw()) == packed


def test_a_body_that_does_not_decode_is_for_the_caller_to_meet() -> None:
    response = answer(("Content-Encoding", "gzip"), body=b"not gzip")
    seen = view(response, REQUEST, b"not gzip")
    assert (seen.status_code, seen.request) == (503, REQUEST)
    assert b"".join(response.iter_raw()) == b"not gzip"


def test_a_response_of_a_class_of_its_own_is_seen_as_that() -> None:
    class Response(httpx.Response):
        pass

    response = Response(503, stream=httpx.ByteStream(b"why"))
    assert type(view(response, REQUEST, b"why")) is Response


def test_where_the_class_can_not_be_made_again_the_answer_itself_is_seen() -> None:
    class Response(httpx.Response):
        def __init__(self, status: int) -> None:
            super().__init__(status, stream=httpx.ByteStream(b"why"))

    response = Response(503)
    seen = view(response, REQUEST, b"why")
    assert (seen, seen.request, seen.read()) == (response, REQUEST, b"why")


# Verdicts ----------------------------------------------------------------------------------------


def test_a_verdict_or_none_is_what_classify_may_return() -> None:
    verdict = Verdict(transient=True)
    assert checked_verdict(verdict) is verdict
    assert checked_verdict(None) is None


@pytest.mark.parametrize("value", [True, False, "retry", 1, (True, None)])
def test_anything_else_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="classify must return a Verdict or None, not"):
        checked_verdict(value)
