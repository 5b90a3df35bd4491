"""What a request that succeeds at once pays for `RetryTransport`, beside what a peer takes for it.

    pip install httpx-retries==0.6.0
    python -m tests.benchmarks.overhead

The wrapped transport answers with a short body that is read to its end, as off a socket, so that
what is left is the layer itself. All contenders take
turns in one run, round by round, and each gives its best round: the machine's noise only ever adds.
The ratios are what counts; the microseconds are this machine's.

The peer sends a POST again only when told so. Both of its settings are shown: as it comes, a POST
is passed through without a look at it, which is the least that any layer can do.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

import anyio
from httpx_retries import Retry
from httpx_retries import RetryTransport as PeerTransport

from tests.library import RetryTransport, httpx

Case = tuple[str, Callable[[], httpx.Request]]


class Body(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that nobody has read yet."""

    def __iter__(self) -> Iterator[bytes]:
        yield b"{}"

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"{}"


HEADERS = [(b"Content-Type", b"application/json"), (b"Content-Length", b"2")]


class Nothing(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Answers 200 without looking at anything."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers=HEADERS, stream=Body())

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers=HEADERS, stream=Body())


@dataclass
class Contender:
    name: str
    transport: Nothing | RetryTransport | PeerTransport
    best: float = float("inf")


def contenders() -> list[Contender]:
    every_method = Retry(total=2, allowed_methods=["GET", "POST"])
    return [
        Contender("bare", Nothing()),
        Contender("httpx-retries, as it comes", PeerTransport(transport=Nothing())),
        Contender("httpx-retries, POST allowed", PeerTransport(Nothing(), retry=every_method)),
        Contender("RetryTransport, no budget", RetryTransport(Nothing(), budget=None)),
        Contender("RetryTransport", RetryTransport(Nothing())),
    ]


def cases() -> list[Case]:
    client = httpx.Client()
    body = b"x" * 1024
    key = {"Idempotency-Key": "0b4f3c1e"}
    url = "https://api.example.com/payments"
    return [
        ("GET", lambda: client.build_request("GET", url)),
        ("POST with a key", lambda: client.build_request("POST", url, content=body, headers=key)),
        ("POST without", lambda: client.build_request("POST", url, content=body)),
    ]


def sync_round(contender: Contender, requests: list[httpx.Request]) -> float:
    send = contender.transport.handle_request
    start = time.perf_counter()
    for request in requests:
        send(request).read()
    return time.perf_counter() - start


async def async_round(contender: Contender, requests: list[httpx.Request]) -> float:
    send = contender.transport.handle_async_request
    start = time.perf_counter()
    for request in requests:
        await (await send(request)).aread()
    return time.perf_counter() - start


def report(title: str, entries: list[Contender]) -> None:
    bare = entries[0].best
    peer = entries[1].best - bare
    print(f"\n{title}: the bare transport takes {bare * 1e6:.2f} us")
    for entry in entries[1:]:
        adds = entry.best - bare
        print(f"  {entry.name:<30} adds {adds * 1e6:5.2f} us, {adds / peer:5.2f} x the peer's")


async def main(rounds: int, number: int) -> None:
    for title, build in cases():
        for kind in ("sync", "async"):
            entries = contenders()
            for _ in range(rounds):
                for entry in entries:
                    # Fresh ones, as a client makes them: the peer leaves its mark on each.
                    requests = [build() for _ in range(number)]
                    if kind == "sync":
                        took = sync_round(entry, requests)
                    else:
                        took = await async_round(entry, requests)
                    entry.best = min(entry.best, took / number)
            report(f"{title}, {kind}", entries)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--number", type=int, default=500, help="requests in each round")
    arguments = parser.parse_args()
    anyio.run(main, arguments.rounds, arguments.number)
