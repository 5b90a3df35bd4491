"""What a request tells the server about itself: the number of its attempt, and the time that is
left.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

import anyio
import pytest

from httpx_safe_retry import Backoff, RetryPolicy, deadline
from httpx_safe_retry.testing import VirtualClock
from tests.library import httpx, wrap_client
from tests.peers import Answer, Drop, Http1Server, Http2Server

from .driving import HTTP2, KEY, QUICK, everywhere
from .wrapping import wrapped

ATTEMPT, LEFT = "X-Attempt", "X-Milliseconds-Left"

EVEN = RetryPolicy(backoff=Backoff(base=1, factor=2, cap=60, jitter="none"))
"""Waits of 1 and 2 seconds."""


def seen(server: Http1Server | Http2Server, name: str) -> list[list[str]]:
    """What each request that arrived carries under a name, line by line."""
    return [
        [value for key, value in one.headers if key.lower() == name.lower()]
        for one in server.received
    ]


def options(policy: RetryPolicy, clock: VirtualClock | None = None) -> dict[str, Any]:
    return {"options": {"policy": policy, "clock": clock}}


# The number of the attempt ------------------------------------------------------------------------


@everywhere
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_retries_say_their_number_and_the_first_attempt_says_nothing(
    backend: str | None, method: str
) -> None:
    policy = QUICK.replace(attempt_header=ATTEMPT)
    with (
        Http1Server([Answer(503), Drop("request"), Answer(200)]) as server,
        wrapped(backend, **options(policy)) as client,
    ):
        got = client.send(method, server.url, headers=KEY)
    assert (got.status, seen(server, ATTEMPT)) == (200, [[], ["2"], ["3"]])


@everywhere
def test_over_http2_they_say_it_too(backend: str | None) -> None:
    policy = QUICK.replace(attempt_header=ATTEMPT, deadline_header=LEFT, deadline=30.0)
    with (
        Http2Server([Answer(503), Answer(503), Answer(200)]) as server,
        wrapped(backend, **HTTP2, **options(policy, VirtualClock())) as client,
    ):
        got = client.send("GET", server.url)
    assert (got.status, seen(server, ATTEMPT)) == (200, [[], ["2"], ["3"]])
    assert [int(value) <= 30_000 for (value,) in seen(server, LEFT)] == [True] * 3


@everywhere
def test_a_number_of_the_callers_own_is_replaced_on_retries(backend: str | None) -> None:
    """A proxy hands on what it was sent: its own retries are what its server counts."""
    policy = QUICK.replace(attempt_header=ATTEMPT)
    with (
        Http1Server([Answer(503), Answer(503), Answer(200)]) as server,
        wrapped(backend, **options(policy)) as client,
    ):
        client.send("GET", server.url, headers={ATTEMPT.upper(): "7"})
    assert seen(server, ATTEMPT) == [["7"], ["2"], ["3"]]


@everywhere
def test_each_hop_of_a_redirect_counts_anew(backend: str | None) -> None:
    """Each is a request of its own: the server behind it has seen no attempt yet."""
    policy = QUICK.replace(attempt_header=ATTEMPT)
    moved = Answer(307, [("Location", "/b")])
    with (
        Http1Server([Answer(503), moved, Answer(503), Answer(200)]) as server,
        wrapped(backend, follow_redirects=True, **options(policy)) as client,
    ):
        got = client.send("GET", f"{server.url}a")
    assert (got.status, [one.target for one in server.received]) == (200, ["/a", "/a", "/b", "/b"])
    assert seen(server, ATTEMPT) == [[], ["2"], [], ["2"]]


@everywhere
def test_without_the_names_nothing_is_told(backend: str | None) -> None:
    with (
        Http1Server([Answer(503), Answer(200)]) as server,
        wrapped(backend, **options(QUICK.replace(deadline=30.0))) as client,
    ):
        client.send("GET", server.url)
    first, second = ([name for name, _ in one.headers] for one in server.received)
    assert first == second


# The time that is left ----------------------------------------------------------------------------


@everywhere
def test_each_attempt_says_the_milliseconds_that_are_left(backend: str | None) -> None:
    policy = EVEN.replace(deadline_header=LEFT, deadline=10.0)
    with (
        Http1Server([Answer(503), Drop("request"), Answer(200)]) as server,
        wrapped(backend, **options(policy, VirtualClock())) as client,
    ):
        got = client.send("GET", server.url)
    assert (got.status, seen(server, LEFT)) == (200, [["10000"], ["9000"], ["7000"]])


@everywhere
def test_by_the_systems_clock_as_well(backend: str | None) -> None:
    policy = RetryPolicy(deadline=30.0, deadline_header=LEFT, backoff=lambda retry: 0.05)
    with (
        Http1Server([Answer(503), Answer(200)]) as server,
        wrapped(backend, **options(policy)) as client,
    ):
        got = client.send("GET", server.url)
    first, second = (int(value) for (value,) in seen(server, LEFT))
    assert 20_000 < second <= first - 50 < first <= 30_000
    # Never more than there is: the server's clock starts later than ours.
    assert second <= 30_000 - got.report.slept * 1000


@everywhere
def test_a_time_of_the_callers_own_is_replaced_on_every_attempt(backend: str | None) -> None:
    policy = EVEN.replace(deadline_header=LEFT, deadline=10.0)
    with (
        Http1Server([Answer(503), Answer(200)]) as server,
        wrapped(backend, **options(policy, VirtualClock())) as client,
    ):
        client.send("GET", server.url, headers=[(LEFT, "1"), (LEFT.lower(), "2")])
    assert seen(server, LEFT) == [["10000"], ["9000"]]


@everywhere
def test_without_a_deadline_the_callers_own_goes_through_and_none_is_made_up(
    backend: str | None,
) -> None:
    policy = EVEN.replace(deadline_header=LEFT)
    with (
        Http1Server([Answer(503)]) as server,
        wrapped(backend, **options(policy, VirtualClock())) as client,
    ):
        client.send("GET", server.url, headers={LEFT: "1500"})
        client.send("GET", server.url)
    assert seen(server, LEFT) == [["1500"], ["1500"], []]


@everywhere
def test_the_soonest_of_all_deadlines_is_what_is_told(backend: str | None) -> None:
    policy = EVEN.replace(deadline_header=LEFT, deadline=10.0)
    clock = VirtualClock()
    with (
        Http1Server([Answer(503)]) as server,
        wrapped(backend, **options(policy, clock)) as client,
        deadline(60, clock=clock),
        deadline(8, clock=clock),
        deadline(20, clock=clock),
    ):
        client.send("GET", server.url)
    assert seen(server, LEFT) == [["8000"], ["7000"]]


@everywhere
def test_a_request_of_its_own_deadline_tells_that_one(backend: str | None) -> None:
    policy = EVEN.replace(deadline_header=LEFT, deadline=10.0)
    with (
        Http1Server([Answer(200)]) as server,
        wrapped(backend, **options(policy, VirtualClock())) as client,
    ):
        client.send("GET", server.url, extensions={"retry": {"deadline": 1.5}})
        client.send("GET", server.url, extensions={"retry": None})
    assert seen(server, LEFT) == [["1500"], []]


@pytest.mark.anyio
async def test_the_end_of_an_enclosing_scope_is_told_too(anyio_backend: str) -> None:
    policy = QUICK.replace(deadline_header=LEFT)
    with Http1Server([Answer(503)]) as server:
        async with wrap_client(httpx.AsyncClient(verify=False), policy=policy) as client:
            with anyio.fail_after(90), anyio.move_on_after(30):
                await client.get(server.url)
                await client.get(server.url, extensions={"retry": {"deadline": 10.0}})
            await client.get(server.url)
    first, second, third, last = seen(server, LEFT)
    assert 20_000 < int(second[0]) <= int(first[0]) <= 30_000
    assert 5_000 < int(third[0]) <= 10_000
    assert last == []


# What stays as it is ------------------------------------------------------------------------------


@everywhere
@pytest.mark.parametrize("content", ["none", "bytes", "one-shot"])
def test_the_callers_request_and_all_that_is_not_named_stay_as_they_were(
    backend: str | None, content: str
) -> None:
    bodies: dict[str, Any] = {
        "none": None,
        "bytes": b"pay",
        "one-shot": iter([b"pa", b"y"]) if backend is None else _chunks(),
    }
    policy = EVEN.replace(attempt_header=ATTEMPT, deadline_header=LEFT, deadline=10.0)
    headers = [("X-Two", "1"), ("x-two", "2"), (ATTEMPT, "7")]
    extensions = {"timeout": {"read": 60.0}, "sni_hostname": "a.test"}
    with (
        Http1Server([Answer(503), Answer(200)]) as server,
        wrapped(backend, **options(policy, VirtualClock())) as client,
    ):
        got = client.send(
            "PUT", server.url, content=bodies[content], headers=headers, extensions=extensions
        )
    assert got.response is not None
    own = got.response.request
    first, second = server.received
    assert seen(server, ATTEMPT) == [["7"], ["2"]]
    assert seen(server, LEFT) == [["10000"], ["9000"]]
    assert (
        unmarked(first.headers) == unmarked(second.headers) == unmarked(own.headers.multi_items())
    )
    assert own.headers.get_list(ATTEMPT) == ["7"]
    assert LEFT not in own.headers
    assert own.extensions == {"timeout": {"read": 60.0}, "sni_hostname": "a.test"}
    assert {first.body, second.body} == {b"" if content == "none" else b"pay"}


def unmarked(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    told = {ATTEMPT.lower(), LEFT.lower()}
    return [(name.lower(), value) for name, value in headers if name.lower() not in told]


async def _chunks() -> AsyncIterator[bytes]:
    yield b"pa"
    yield b"y"
