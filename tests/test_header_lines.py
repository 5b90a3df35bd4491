"""The header lines of a request, read where httpx keeps them, or else in public."""

from __future__ import annotations

import pytest

from httpx_safe_retry._private import header_lines
from tests.library import httpx

LINES = [("X-Mark", "a"), ("x-mark", "b"), ("Accept", "*/*")]
EXPECTED = (
    (b"X-Mark", b"x-mark", b"a"),
    (b"x-mark", b"x-mark", b"b"),
    (b"Accept", b"accept", b"*/*"),
)


def test_they_are_read_where_httpx_keeps_them() -> None:
    """Fails when httpx keeps them elsewhere: every request then takes the longer way."""
    headers = httpx.Headers(LINES)
    assert vars(headers)["_list"] == list(EXPECTED)
    assert header_lines(headers) == EXPECTED


def test_they_are_those_of_the_moment() -> None:
    headers = httpx.Headers(LINES)
    lines = header_lines(headers)
    headers["X-Mark"] = "c"
    assert lines == EXPECTED


def test_without_httpxs_own_list_its_public_one_says_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    headers = httpx.Headers(LINES)
    raw = headers.raw
    monkeypatch.setattr(httpx.Headers, "raw", raw)
    del vars(headers)["_list"]
    assert header_lines(headers) == EXPECTED
