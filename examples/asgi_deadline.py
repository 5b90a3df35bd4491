"""A deadline travels with the request: gateway -> ASGI service -> a slow downstream.

The gateway gives its request 0.8 seconds and says so in a header. In the service,
`DeadlineMiddleware` makes what the header says hold for all that the service asks of others. It is
plain ASGI and goes around any application; FastAPI and Starlette put it there themselves:

    app = FastAPI()
    app.add_middleware(DeadlineMiddleware)

It then holds in endpoints of both kinds (`async def`, and `def`, which run in threads), in their
dependencies, and in all that they start, background tasks included. What may outlast the request is
started in a context of its own: `contextvars.Context().run(asyncio.create_task, work())`.

1. Over a socket: the service stops asking when the gateway stops waiting.
2. Without the middleware it goes on for nobody, with all its retries.
3. In one process, called in the same task: the deadline holds, and layers of retries don't
   multiply. Three layers of three attempts send three requests instead of 27.

Whatever is shown is checked; the exit status is 1 if any of it is not so.

    python examples/asgi_deadline.py
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import httpx

from httpx_safe_retry import (
    RetryError,
    RetryPolicy,
    RetryReport,
    RetryTransport,
    get_report,
    incoming_deadline,
)
from httpx_safe_retry.testing import Fault, LoopbackServer, ServerRequest, ServerResponse

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

HEADER = "X-Deadline-Ms"

# Made once: it takes a while to read all the certificates.
TLS = httpx.create_ssl_context()

# The gateway ------------------------------------------------------------------------------------


async def ask(
    service: str, transport: httpx.AsyncBaseTransport | None = None, *, seconds: float = 0.8
) -> RetryReport:
    """Send the gateway's request; return what became of it."""
    policy = RetryPolicy(deadline=seconds, deadline_header=HEADER)
    transport = transport or httpx.AsyncHTTPTransport(verify=TLS)
    async with httpx.AsyncClient(transport=RetryTransport(transport, policy=policy)) as client:
        try:
            report = get_report(await client.get(service))
        except RetryError as error:
            report = error.report
    say("gateway", report)
    return report


# The service ------------------------------------------------------------------------------------


class DeadlineMiddleware:
    """Pass the deadline of each request on to all that the application sends meanwhile."""

    def __init__(self, app: App, *, header: str = HEADER) -> None:
        self._app = app
        self._header = header.lower().encode("ascii")

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        # A lifespan has no headers, and a websocket stays for longer than any request.
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        left = dict(scope["headers"]).get(self._header)
        with incoming_deadline(None if left is None else left.decode("latin-1")):
            await self._app(scope, receive, send)


class Service:
    """Asks another server for what it was asked for, three times if need be."""

    def __init__(
        self, downstream: str, transport: httpx.AsyncBaseTransport | None = None, *, name: str
    ) -> None:
        self.downstream = downstream
        self.transport = transport
        self.name = name
        self.reports: list[RetryReport] = []

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        status = await self.fetch()
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def fetch(self) -> int:
        policy = RetryPolicy(deadline_header=HEADER)
        transport = self.transport or httpx.AsyncHTTPTransport(verify=TLS)
        async with httpx.AsyncClient(
            transport=RetryTransport(transport, policy=policy), timeout=1.0
        ) as client:
            try:
                response = await client.get(self.downstream)
                status, report = response.status_code, get_report(response)
            except RetryError as error:
                status, report = 504, error.report
        say(self.name, report)
        self.reports.append(report)
        return status


def on_a_socket(app: App) -> LoopbackServer:
    """Serve an ASGI application on a port, each connection in a thread of its own."""

    async def call(request: ServerRequest) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
            url = f"http://service{request.path}"
            return await client.request(request.method, url, headers=request.headers)

    def handle(request: ServerRequest) -> ServerResponse:
        say("service", f"the header says {request.headers[HEADER]} ms")
        return ServerResponse(status=asyncio.run(call(request)).status_code)

    return LoopbackServer(handler=handle)


# What happens -----------------------------------------------------------------------------------

NEVER_ANSWERS = Fault(by="silence")


def over_a_socket() -> None:
    title("1. Over a socket, to a downstream that never answers")
    with LoopbackServer(NEVER_ANSWERS, repeat=True) as downstream:
        service = Service(downstream.url, name="service")
        with on_a_socket(DeadlineMiddleware(service)) as server:
            gateway = asyncio.run(ask(server.url))
        # Here the server has stopped: its last request is done.
        check("the gateway stopped waiting in time", gateway.elapsed < 2)
        check("the service stopped with it", service.reports[0].elapsed < 2)
        check("it sent one request downstream", len(downstream.requests) == 1)


def without_it() -> None:
    title("2. The same, without the middleware")
    began = time.monotonic()
    with LoopbackServer(NEVER_ANSWERS, repeat=True) as downstream:
        service = Service(downstream.url, name="service")
        with on_a_socket(service) as server:
            gateway = asyncio.run(ask(server.url))
        idle = time.monotonic() - began - gateway.elapsed
        check(f"it went on for {idle:.1f} s after the gateway had gone", idle > 1)
        check("it sent three requests downstream, for nobody", len(downstream.requests) == 3)


def in_one_task() -> None:
    title("3. In one task, to a downstream that answers 503")
    with LoopbackServer(503, repeat=True) as downstream:
        second = Service(downstream.url, name="second service")
        to_second = httpx.ASGITransport(DeadlineMiddleware(second))
        first = Service("http://second", to_second, name="first service")
        to_first = httpx.ASGITransport(DeadlineMiddleware(first))
        gateway = asyncio.run(ask("http://first", to_first, seconds=10))
        check("the gateway made three attempts", len(gateway.attempts) == 3)
        inner = [len(report.attempts) for report in (*first.reports, *second.reports)]
        check("each of them was one attempt of each service", inner == [1] * 6)
        check("3 requests came downstream, not 27", len(downstream.requests) == 3)


def main() -> None:
    over_a_socket()
    without_it()
    in_one_task()
    print("\nAll of it is so.")


# How it is shown --------------------------------------------------------------------------------


def title(text: str) -> None:
    print(f"\n{text}\n")


def say(who: str, what: str | RetryReport) -> None:
    if isinstance(what, RetryReport):
        count = len(what.attempts)
        attempts = "1 attempt" if count == 1 else f"{count} attempts"
        what = f"{what.outcome} after {what.elapsed:.2f} s, {attempts}"
    # The line and its end at once: gateway and service print from two threads.
    sys.stdout.write(f"   {who:<15} {what}\n")


def check(what: str, is_so: bool) -> None:
    print(f"   [ok] {what}" if is_so else f"   [NOT SO] {what}")
    if not is_so:
        raise SystemExit(1)


if __name__ == "__main__":
    logging.getLogger("httpx_safe_retry").setLevel(logging.ERROR)
    main()
