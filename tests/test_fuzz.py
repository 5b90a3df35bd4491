"""Arbitrary bytes in every header that is read, and arbitrary values in every field that is set."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from httpx_safe_retry import Backoff, RetryBudget, RetryPolicy, get_report, incoming_deadline
from httpx_safe_retry._policy import FIELDS
from httpx_safe_retry.testing import VirtualClock
from tests.library import RetryTransport, httpx

URL = "https://a.test/"
STATUSES = [200, 303, 404, 408, 409, 413, 429, 500, 503]

# What a peer may send as a field value, and what looks like one that means something.
values = st.one_of(
    st.binary(max_size=200),
    st.from_regex(rb"[0-9 ,;:+.eE-]{0,40}", fullmatch=True),
    st.sampled_from([b"true", b"chunked", b"9" * 5000, b"Thu, 25 Jun 2020 21:30:12 GMT"]),
)
ANSWERED = ["Retry-After", "Date", "Content-Length", "Transfer-Encoding", "Idempotent-Replayed"]
headers = st.lists(st.tuples(st.sampled_from(ANSWERED), values), max_size=6)


class Body(httpx.SyncByteStream):
    """A body that is still to be read, of two bytes."""

    def __iter__(self) -> Iterator[bytes]:
        yield b"{}"


class Answers(httpx.BaseTransport):
    """Gives these headers, and a body that they say nothing true about."""

    def __init__(self, status: int, lines: list[tuple[bytes, bytes]]) -> None:
        self._status = status
        self._lines = lines
        self.keys: list[list[bytes]] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        raw = request.headers.raw
        self.keys.append([value for name, value in raw if name.lower() == b"idempotency-key"])
        return httpx.Response(self._status, headers=self._lines, stream=Body())


@given(
    status=st.sampled_from(STATUSES),
    lines=headers,
    key=st.none() | values,
    method=st.sampled_from(["GET", "PUT", "POST"]),
)
def test_no_header_does_more_than_be_read(
    status: int, lines: list[tuple[str, bytes]], key: bytes | None, method: str
) -> None:
    clock = VirtualClock()
    inner = Answers(status, [(name.encode(), value) for name, value in lines])
    keyed = [] if key is None else [(b"Idempotency-Key", key)]
    request = httpx.Request(method, URL, headers=keyed)
    began = time.monotonic()
    response = RetryTransport(inner, clock=clock).handle_request(request)
    assert time.monotonic() - began < 5
    assert all(0 <= wait <= 60 for wait in clock.sleeps)
    report = get_report(response)
    assert response.status_code == status
    assert 1 <= len(report.attempts) <= 3
    assert report.explain().isprintable() or "\n" in report.explain()
    assert inner.keys == [[value for _, value in keyed]] * len(report.attempts)


@given(value=st.none() | st.text(max_size=200) | values.map(lambda value: value.decode("latin-1")))
def test_no_incoming_deadline_breaks_a_server(value: str | None) -> None:
    with incoming_deadline(value, clock=VirtualClock()):
        pass


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=20)
    | st.sampled_from([object(), len, Backoff(), "full", "stop", "clamp", 10**400, RetryPolicy]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=5), inner, max_size=2)
    ),
    max_leaves=4,
)


# So that each of the two dozen fields meets values of each kind.
@settings(max_examples=1500)
@given(field=st.sampled_from(FIELDS), value=anything)
def test_a_policy_refuses_by_name_or_takes_what_it_is_given(field: str, value: Any) -> None:
    try:
        RetryPolicy(**{field: value})
    except (TypeError, ValueError) as error:
        refusal = str(error)
    else:
        refusal = field
        assert RetryPolicy().replace(**{field: value}).replace() is not None
    assert field in refusal


@given(
    override=anything
    | st.dictionaries(st.sampled_from([*FIELDS, "cancel"]) | st.text(max_size=9), anything)
)
def test_an_override_is_refused_before_anything_is_sent_or_followed(override: Any) -> None:
    inner = Answers(404, [])
    request = httpx.Request("GET", URL, extensions={"retry": override})
    try:
        response = RetryTransport(inner, clock=VirtualClock()).handle_request(request)
    except (TypeError, ValueError):
        if not (isinstance(override, dict) and {"classify", "delay_hint"} & override.keys()):
            assert inner.keys == []
    else:
        assert get_report(response).attempts[0].status == 404


@pytest.mark.parametrize("kind", [Backoff, RetryBudget])
@given(value=anything, data=st.data())
def test_what_a_policy_is_made_of_refuses_by_name_as_well(
    kind: Any, value: Any, data: st.DataObject
) -> None:
    names = ["base", "factor", "cap", "jitter"] if kind is Backoff else ["ratio", "capacity"]
    field = data.draw(st.sampled_from(names))
    try:
        kind(**{field: value})
    except (TypeError, ValueError) as error:
        refusal = str(error)
    else:
        refusal = field
    assert field in refusal
