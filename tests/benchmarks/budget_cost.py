"""What the retry budget adds to a request that succeeds at once: the origin's look-up, a deposit.

    python -m tests.benchmarks.budget_cost

The target is at most 0.5 us. The wrapped transport does nothing. All contenders take turns in one
run. Each request is sent right after it was built, as a client does it: that leaves the caches
colder than a loop over finished requests, and costs about twice as much. Each contender is rated by
the median of its times. The ratios are what counts, the microseconds are this machine's.

A budget knows its origins by their debts: one that owes nothing has no bucket, and a deposit finds
that out and is done. So there are three cases: no origin in debt, the very origin of the request in
debt, and a thousand others.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import anyio

from httpx_safe_retry import RetryBudget
from httpx_safe_retry._private import origin_of
from tests.library import RetryTransport, httpx

TARGET = 0.5e-6
BLOCK = 50

HOST = "api.example.com"
URL = f"https://{HOST}/payments"
ORIGIN = ("https", HOST, None)


class Nothing(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Answers 200 without looking at anything."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(200)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(200)


def in_debt(*hosts: str) -> RetryBudget:
    """A budget whose deposits never pay off what these hosts have taken."""
    budget = RetryBudget(ratio=0)
    for host in hosts:
        budget.withdraw(("https", host, None))
    return budget


def budgets() -> dict[str, RetryBudget | None]:
    return {
        "no budget": None,
        "nobody in debt": RetryBudget(),
        "this origin in debt": in_debt(HOST),
        "1,000 others in debt": in_debt(*(f"{number}.example.com" for number in range(1000))),
    }


def cases() -> list[tuple[str, Callable[[], httpx.Request]]]:
    client = httpx.Client(verify=False)
    key = {"Idempotency-Key": "0b4f3c1e"}
    return [
        ("GET", lambda: client.build_request("GET", URL)),
        ("POST with a key", lambda: client.build_request("POST", URL, content=b"x", headers=key)),
        ("POST without", lambda: client.build_request("POST", URL, content=b"x")),
    ]


async def timed(
    transports: list[Any], build: Callable[[], httpx.Request], number: int, kind: str
) -> list[float]:
    """The median seconds that each transport takes for one request."""
    clock = time.perf_counter
    times: list[list[float]] = [[] for _ in transports]
    turns = list(zip(transports, times, strict=True))
    for _ in range(number // BLOCK):
        # Whoever comes after a cheaper one would always find the caches colder.
        random.shuffle(turns)
        for transport, into in turns:
            for _ in range(BLOCK):
                request = build()
                if kind == "sync":
                    start = clock()
                    transport.handle_request(request)
                    into.append(clock() - start)
                else:
                    start = clock()
                    await transport.handle_async_request(request)
                    into.append(clock() - start)
    return [statistics.median(one) for one in times]


async def through_the_layer(number: int) -> list[str]:
    """Print what whole requests cost with and without a budget; return what misses the target."""
    missed: list[str] = []
    print(f"{'request':<24} {'budget':<22} {'layer adds':>11} {'budget adds':>12} {'share':>6}")
    for title, build in cases():
        for kind in ("sync", "async"):
            held = budgets()
            transports = [RetryTransport(Nothing(), budget=budget) for budget in held.values()]
            bare, *medians = await timed([Nothing(), *transports], build, number, kind)
            without = medians[0]
            for name, took in zip(held, medians, strict=True):
                adds = took - without
                print(
                    f"{f'{title}, {kind}':<24} {name:<22} {(took - bare) * 1e6:8.2f} us "
                    f"{adds * 1e6:9.2f} us {adds / (took - bare):6.1%}"
                )
                if adds > TARGET:
                    missed.append(f"{title}, {kind}, {name}: {adds * 1e6:.2f} us")
    return missed


def of_its_own(number: int, rounds: int = 50) -> None:
    """Print what the deposit and the origin take by themselves, without the layer's noise."""
    url = httpx.URL(URL)

    def loop(call: Callable[[], object]) -> float:
        turns = range(number)
        start = time.perf_counter()
        for _ in turns:
            call()
        return time.perf_counter() - start

    calls: dict[str, Callable[[], object]] = {"an empty call": lambda: None}
    calls["the origin, as httpx tells it in public"] = lambda: (url.scheme, url.host, url.port)
    calls["the origin, as it is looked up"] = lambda: origin_of(url)
    for name, budget in budgets().items():
        if budget is not None:

            def deposit(budget: RetryBudget = budget) -> None:
                budget.deposit(ORIGIN)

            calls[f"deposit, {name}"] = deposit
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            best[name] = min(best[name], loop(call) / number)
    empty = best.pop("an empty call")
    print()
    for name, took in best.items():
        print(f"{name:<47} {(took - empty) * 1e6:8.2f} us")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=10_000, help="requests of each contender")
    arguments = parser.parse_args()
    missed = anyio.run(through_the_layer, arguments.number)
    of_its_own(arguments.number // 5)
    if missed:
        print(f"\nover {TARGET * 1e6} us:", *missed, sep="\n  ")
        sys.exit(1)
