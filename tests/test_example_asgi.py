"""The example of a deadline that travels: it shows what it promises, and fails when it isn't so."""

from __future__ import annotations

import asyncio
import contextvars
import re
from collections.abc import Callable
from typing import Any

import anyio
import httpx
import pytest

from httpx_safe_retry import RetryPolicy, RetryTransport
from httpx_safe_retry.testing import LoopbackServer

from .examples import loaded, shown_by


def test_asgi_deadline_shows_all_three_parts() -> None:
    shown = shown_by("asgi_deadline.py")
    assert shown.count("[ok]") == 8
    assert "3 requests came downstream, not 27" in shown
    assert shown.endswith("All of it is so.\n")


def without_middleware(example: Any) -> None:
    example.DeadlineMiddleware = lambda app: app


def with_middleware(example: Any) -> None:
    on_a_socket = example.on_a_socket
    example.on_a_socket = lambda app: on_a_socket(example.DeadlineMiddleware(app))


def all_is_well(example: Any) -> None:
    example.LoopbackServer = lambda *script, **options: LoopbackServer()


@pytest.mark.parametrize(
    ("part", "change"),
    [
        pytest.param("over_a_socket", without_middleware, id="a service goes on for nobody"),
        pytest.param("without_it", with_middleware, id="a service heeds what it should not"),
        pytest.param("in_one_task", all_is_well, id="there is nothing to retry"),
    ],
)
def test_asgi_deadline_exits_with_1_when(
    part: str, change: Callable[[Any], None], capsys: pytest.CaptureFixture[str]
) -> None:
    example = loaded("asgi_deadline.py")
    change(example)
    with pytest.raises(SystemExit) as ended:
        getattr(example, part)()
    assert ended.value.code == 1
    assert "[NOT SO]" in capsys.readouterr().out.splitlines()[-1]


example = loaded("asgi_deadline.py")


class Application:
    """Sends a request for each call, and keeps what it says of the time that is left."""

    def __init__(self) -> None:
        self.told: list[str | None] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        policy = RetryPolicy(deadline_header="X-Left")
        transport = RetryTransport(httpx.MockTransport(self.answer), policy=policy)
        async with httpx.AsyncClient(transport=transport) as client:
            await client.get("http://downstream")

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.told.append(request.headers.get("X-Left"))
        return httpx.Response(200)


def told(scope: dict[str, Any], **options: Any) -> int | None:
    """Call an application behind the middleware; the milliseconds that it tells others."""
    application = Application()
    middleware = example.DeadlineMiddleware(application, **options)
    anyio.run(middleware, scope, None, None)
    (left,) = application.told
    return None if left is None else int(left)


def test_the_middleware_passes_the_deadline_on() -> None:
    left = told({"type": "http", "headers": [(b"accept", b"*/*"), (b"x-deadline-ms", b"60000")]})
    assert left is not None
    assert 0 < left <= 60_000


def test_the_middleware_looks_for_the_header_it_is_told() -> None:
    headers = [(b"x-time-left", b"60000")]
    left = told({"type": "http", "headers": headers}, header="X-Time-Left")
    assert left is not None
    assert 0 < left <= 60_000


@pytest.mark.parametrize(
    "scope",
    [
        pytest.param({"type": "lifespan"}, id="a lifespan"),
        pytest.param({"type": "http", "headers": []}, id="a request without the header"),
        pytest.param(
            {"type": "http", "headers": [(b"x-deadline-ms", b"\xff")]}, id="a malformed one"
        ),
        pytest.param(
            {"type": "websocket", "headers": [(b"x-deadline-ms", b"60000")]}, id="a websocket"
        ),
    ],
)
def test_the_middleware_sets_no_deadline_for(scope: dict[str, Any]) -> None:
    assert told(scope) is None


class StartsWork(Application):
    """Leaves the sending to a task, which it starts as the example says."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        (started,) = re.findall(r"`(.*asyncio\.create_task.*)`", str(example.__doc__))

        async def work() -> None:
            await super(StartsWork, self).__call__(scope, receive, send)

        await eval(started, {"asyncio": asyncio, "contextvars": contextvars, "work": work})


def test_what_is_started_in_a_context_of_its_own_may_outlast_the_request() -> None:
    application = StartsWork()
    middleware = example.DeadlineMiddleware(application)
    scope = {"type": "http", "headers": [(b"x-deadline-ms", b"60000")]}
    anyio.run(middleware, scope, None, None)
    assert application.told == [None]
