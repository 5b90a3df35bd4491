"""A payment survives a lost response.

A server takes a payment, books it, and closes the connection without a word. Was it paid? This
shows what a client can know and do, first with httpx.Client, then with httpx.AsyncClient:

1. A payment without an idempotency key: paid once, and an error that admits what nobody knows.
2. A payment with a key: paid once, and here is the receipt.
3. A GET that meets 503, 502 and a dropped connection: which rule chose each wait.

The server is real, on a socket of this machine, and keeps a ledger. Whatever is shown is checked
against it; the exit status is 1 if any of it is not so.

    python examples/lost_response.py
"""

from __future__ import annotations

import asyncio
import json
import logging
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from httpx_safe_retry import RetryPolicy, RetryTransport, UncertainWriteError, get_report
from httpx_safe_retry.testing import Fault, LoopbackServer, ServerRequest, ServerResponse

Send = Callable[..., httpx.Response]

# The client, twice ------------------------------------------------------------------------------

POLICY = RetryPolicy(max_attempts=4, deadline=10.0)


def with_client(method: str, url: str, **more: Any) -> httpx.Response:
    with httpx.Client(transport=RetryTransport(policy=POLICY)) as client:
        return client.request(method, url, **more)


def with_async_client(method: str, url: str, **more: Any) -> httpx.Response:
    async def send() -> httpx.Response:
        async with httpx.AsyncClient(transport=RetryTransport(policy=POLICY)) as client:
            return await client.request(method, url, **more)

    return asyncio.run(send())


CLIENTS = {"httpx.Client": with_client, "httpx.AsyncClient": with_async_client}


# What the server does ---------------------------------------------------------------------------

PAYMENT = {"to": "Corner Bakery", "amount": "42.00 EUR"}

# The request is executed; then the connection is closed, and the answer is lost.
LOST = Fault()


def book(request: ServerRequest) -> ServerResponse:
    receipt = {"receipt": "R-1001", **json.loads(request.body)}
    return ServerResponse(status=201, body=json.dumps(receipt).encode())


# What the client makes of it --------------------------------------------------------------------


def pay_without_a_key(send: Send) -> None:
    title("1. A payment without an idempotency key: the answer is lost")
    with LoopbackServer(LOST, handler=book) as server:
        try:
            send("POST", f"{server.url}/payments", json=PAYMENT)
        except UncertainWriteError as error:
            say("UncertainWriteError. What error.report.explain() says:")
            quote(error.report.explain())
            check("handlers for httpx.TransportError work", isinstance(error, httpx.TransportError))
            check("it does not claim to know", error.report.executed is None)
        else:
            check("the client noticed that the answer was lost", False)
    check("it was sent once", len(server.requests) == 1)
    check("it was paid once", len(server.ledger) == 1)


def pay_with_a_key(send: Send) -> None:
    title("2. A payment with an idempotency key: the answer is lost")
    key = {"Idempotency-Key": "order-7130"}
    # dedupe: asked again with a key that it knows, the server answers with the recorded receipt.
    with LoopbackServer(LOST, handler=book, dedupe=True) as server:
        response = send("POST", f"{server.url}/payments", json=PAYMENT, headers=key)
    say(f"{response.status_code} {response.text}")
    say("What get_report(response).explain() says:")
    quote(get_report(response).explain())
    first, second = server.requests
    check("the receipt is here", response.json() == {"receipt": "R-1001", **PAYMENT})
    check("it was sent twice, with one key", first.key == second.key == "order-7130")
    check("it was the same, byte for byte", first.body == second.body)
    check("it was paid once", len(server.ledger) == 1)


def get_through_trouble(send: Send) -> None:
    title("3. A GET: 503 with Retry-After: 1, then 502, then a dropped connection")
    busy = ServerResponse(status=503, headers={"Retry-After": "1"})
    with LoopbackServer(busy, 502, LOST) as server:
        response = send("GET", f"{server.url}/payments/R-1001")
    report = get_report(response)
    for attempt in report.attempts:
        line = f"attempt {attempt.number}: {attempt.status or attempt.error_type}"
        if attempt.delay is not None:
            line = f"{line:<32} waits {attempt.delay:.3f} s ({attempt.delay_source})"
        say(line)
    print()
    first, second, third, last = report.attempts
    check("the first wait is the one that the server asked for", first.delay == 1.0)
    check("its rule is named", first.delay_source == "retry-after")
    check("the others are backoff", second.delay_source == third.delay_source == "backoff")
    check("the waits were really waited", report.elapsed >= report.slept >= 1.0)
    check("the fourth attempt got through", last.status == response.status_code == 200)


def main(clients: Mapping[str, Send] = CLIENTS) -> None:
    for name, send in clients.items():
        print(f"\n{f'  {name}  ':=^80}")
        pay_without_a_key(send)
        pay_with_a_key(send)
        get_through_trouble(send)
    print("\nAll of it is so.")


# How it is shown --------------------------------------------------------------------------------


def title(text: str) -> None:
    print(f"\n{text}\n")


def say(text: str) -> None:
    print(f"   {text}")


def quote(text: str) -> None:
    print()
    for line in text.splitlines():
        indent = "   | " + " " * (len(line) - len(line.lstrip()))
        print(textwrap.fill(line.strip(), 80, initial_indent=indent, subsequent_indent=indent))
    print()


def check(what: str, is_so: bool) -> None:
    say(f"[ok] {what}" if is_so else f"[NOT SO] {what}")
    if not is_so:
        raise SystemExit(1)


if __name__ == "__main__":
    # The log says the same, in a line for each retry and each uncertain write.
    logging.getLogger("httpx_safe_retry").setLevel(logging.ERROR)
    main()
