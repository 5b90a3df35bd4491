"""Whether 64 threads on one `RetryTransport` get as far as 64 threads on the bare transport.

    python -m tests.benchmarks.threads

Three wrapped transports: one that does nothing, which leaves the layer itself and the interpreter's
own lock; one that waits for 10 ms, which shows any lock that is held while something waits; and
httpx's own, with a server in a process of its own at the other end. Bare and wrapped take turns,
round by round, and each is rated by its best: the machine's noise only ever adds.

The target, for 64 threads: whatever share of the bare throughput one thread gets, 64 get 0.9 of
that share at least. How large the share is, is `overhead.py`'s to say. On a machine that others use
as well, the last of the three needs more `--rounds`: httpcore's pool keeps 64 threads busy with
looking for each other's connections.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

from tests.library import RetryTransport, httpx

COUNTS = (1, 8, 64)
TARGET = 0.9

# The server -------------------------------------------------------------------------------------


class Answers(asyncio.Protocol):
    """Answers 200 to whatever ends in an empty line."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.read = b""

    def data_received(self, data: bytes) -> None:
        self.read += data
        while b"\r\n\r\n" in self.read:
            self.read = self.read.partition(b"\r\n\r\n")[2]
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


async def serve() -> None:
    """Serve until standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Answers, "127.0.0.1", 0, backlog=128)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


@contextlib.contextmanager
def server() -> Iterator[str]:
    command = [sys.executable, __file__, "--serve"]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/"
        assert process.stdin is not None
        process.stdin.close()


# The transports ---------------------------------------------------------------------------------


class Nothing(httpx.BaseTransport):
    """Answers 200 without looking at anything."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(200)


class Waits(httpx.BaseTransport):
    """Answers 200 after 10 ms, in which other threads may run."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        time.sleep(0.01)
        return httpx.Response(200)


# Made once: what httpx makes for each transport reads all of the machine's certificates.
_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def on_sockets() -> httpx.HTTPTransport:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    return httpx.HTTPTransport(verify=_NO_TLS, limits=limits)


# The race ---------------------------------------------------------------------------------------


def seconds(transport: httpx.BaseTransport, url: str, threads: int, number: int) -> float:
    """How long `threads` take to send `number` requests in all."""
    barrier = threading.Barrier(threads)
    clock = time.perf_counter
    spans: list[tuple[float, float]] = []
    timeouts = dict.fromkeys(("connect", "read", "write", "pool"), 30.0)

    def work() -> None:
        own = range(number // threads)
        requests = [httpx.Request("GET", url, extensions={"timeout": timeouts}) for _ in own]
        barrier.wait()
        start = clock()
        for request in requests:
            transport.handle_request(request).read()
        spans.append((start, clock()))

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(spans) == threads, "a thread has failed"
    return max(end for _, end in spans) - min(start for start, _ in spans)


def race(
    title: str,
    bare: httpx.BaseTransport,
    wrapped: httpx.BaseTransport,
    url: str,
    plan: dict[int, int],
    rounds: int,
) -> bool:
    """Print a line for each number of threads; return whether the target is met."""
    print(f"\n{title}")
    print(f"{'threads':>9} {'bare':>12} {'wrapped':>12} {'share':>7} {'of one':>8}")
    shares: list[float] = []
    with bare, wrapped:
        for threads, number in plan.items():
            best = {"bare": float("inf"), "wrapped": float("inf")}
            for _ in range(rounds):
                for name, transport in (("bare", bare), ("wrapped", wrapped)):
                    best[name] = min(best[name], seconds(transport, url, threads, number))
            share = best["bare"] / best["wrapped"]
            shares.append(share)
            rates = [f"{number / took:>10.0f}/s" for took in best.values()]
            print(f"{threads:>9} {' '.join(rates)} {share:>7.3f} {share / shares[0]:>8.3f}")
    return shares[-1] / shares[0] >= TARGET


def main(rounds: int) -> int:
    print("share: of the bare throughput; of one: that share beside one thread's")
    anywhere = "http://api.example.com/"
    with server() as url:
        met = [
            race(
                "does nothing",
                Nothing(),
                RetryTransport(Nothing()),
                anywhere,
                dict.fromkeys(COUNTS, 3200),
                6 * rounds,
            ),
            race(
                "waits for 10 ms",
                Waits(),
                RetryTransport(Waits()),
                anywhere,
                {1: 30, 8: 240, 64: 1920},
                rounds,
            ),
            race(
                "httpx.HTTPTransport",
                on_sockets(),
                RetryTransport(on_sockets()),
                url,
                dict.fromkeys(COUNTS, 640),
                4 * rounds,
            ),
        ]
    return 0 if all(met) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(serve())
    else:
        sys.exit(main(arguments.rounds))
