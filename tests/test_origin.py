"""What a retry budget is kept for: scheme, host and port, found out on every request."""

from __future__ import annotations

from typing import Any

import pytest

from httpx_safe_retry import RetryBudget, RetryPolicy, _private
from httpx_safe_retry._private import origin_of
from tests.library import RetryTransport, ScriptedTransport, httpx

URLS = [
    "http://a.test/",
    "https://A.TEST:443/path?query#fragment",
    "https://user:secret@a.test:8443",
    "http://127.0.0.1:80/",
    "http://[::1]:8080/",
    "http://xn--fiqs8s.icom.museum/",
]


@pytest.mark.parametrize("url", URLS)
def test_an_origin_is_what_httpx_says_in_public(url: str) -> None:
    public = httpx.URL(url)
    assert origin_of(public) == (public.scheme, public.raw_host.decode(), public.port)


def test_it_is_read_where_httpx_keeps_it() -> None:
    """Fails when httpx keeps it elsewhere: every request then takes the longer way."""
    assert _private._quickest_origin(httpx.URL) is _private._kept_origin


class Elsewhere(httpx.URL):
    """A URL that keeps its parts elsewhere."""

    def __getattribute__(self, name: str) -> Any:
        if name == "_uri_reference":
            raise AttributeError(name)
        return super().__getattribute__(name)

    scheme = "https"
    raw_host = b"a.test"
    port = None


class Otherwise(httpx.URL):
    """A URL that writes its host another way than it keeps it."""

    raw_host = b"a.test"


@pytest.mark.parametrize("other", [Elsewhere, Otherwise])
def test_where_httpx_keeps_it_no_more_its_public_word_counts(
    other: type[httpx.URL],
) -> None:
    for _ in range(2):
        assert origin_of(other("https://a.test/")) == ("https", "a.test", None)


class Counting(RetryBudget):
    """A budget that somebody derived from ours, to count deposits."""

    deposits = 0

    def deposit(self, origin: tuple[str, str, int | None]) -> None:
        self.deposits += 1
        super().deposit(origin)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_derived_budget_hears_of_every_request(method: str) -> None:
    budget = Counting()
    transport = RetryTransport(ScriptedTransport(200, 200, 404), budget=budget)
    with httpx.Client(transport=transport) as client:
        for _ in range(3):
            client.request(method, "http://a.test/")
    assert budget.deposits == 3


def test_requests_that_succeed_earn_back_what_a_retry_took() -> None:
    budget = RetryBudget(ratio=0.5, capacity=2)
    policy = RetryPolicy(backoff=lambda retry: 0.0)
    script = ScriptedTransport(503, 200, 200, 200, 200)
    origin = ("http", "a.test", None)
    tokens: list[float] = []
    with httpx.Client(transport=RetryTransport(script, policy=policy, budget=budget)) as client:
        for _ in range(4):
            client.get("http://a.test/")
            tokens.append(budget.tokens(origin))
    assert tokens == [1.0, 1.5, 2.0, 2.0]
