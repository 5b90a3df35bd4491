"""What an upload pays for being repeatable: throughput and peak memory, beside the bare transport.

    python -m tests.benchmarks.upload

A server in a process of its own takes what comes and answers 200, once at the pace of a fast
network and once as fast as the loopback device copies memory. The bare transport and
`RetryTransport` around it take turns in one run, upload by upload, and each is rated by its best:
the machine's noise only ever adds. The ratios are what counts, the megabytes are this machine's.

Every chunk of a generator is a new object, as when it was read or made: none is kept at no cost.
A recording has to put each byte somewhere, which takes about as long as loopback takes to carry it.
On a network that time is hidden behind the wire, and so the targets are for the network:

- generators, within and beyond `replay_limit`: at least 0.9 of the bare throughput;
- bytes and files: at least 0.97;
- peak memory of a 256 MiB generator: at most `replay_memory` + 4 MiB above the bare upload, each
  measured in a process of its own (Linux: the high-water mark of its resident memory).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio

from httpx_safe_retry import RetryPolicy
from tests.library import RetryTransport, httpx

MIB = 1 << 20
CHUNK = 1 << 16
PACE = 200 * MIB  # bytes a second: 1.7 Gbit/s

# --- the server -----------------------------------------------------------------------------------


def serve() -> None:
    """Take uploads until standard input ends. A request for /paced is read at `PACE`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        sys.stdin.read()


def accept(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=take_uploads, args=(connection,), daemon=True).start()


def take_uploads(connection: socket.socket) -> None:
    buffer = memoryview(bytearray(4 * CHUNK))
    head = b""
    while True:
        while b"\r\n\r\n" not in head:
            data = connection.recv(CHUNK)
            if not data:
                return
            head += data
        head, _, rest = head.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        pace = PACE if head.startswith(b"PUT /paced") else None
        began, taken, end = time.perf_counter(), len(rest), rest[-5:]
        while taken < int(length[1]) if length else end != b"0\r\n\r\n":
            size = connection.recv_into(buffer)
            taken += size
            end = (end + buffer[max(0, size - 5) : size].tobytes())[-5:]
            if pace is not None:
                time.sleep(max(0.0, began + taken / pace - time.perf_counter()))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        head = b""


@contextlib.contextmanager
def server() -> Iterator[str]:
    command = [sys.executable, __file__, "--serve"]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        assert process.stdin is not None
        process.stdin.close()


# --- uploads --------------------------------------------------------------------------------------

# A generator ends at "0\r\n\r\n", which its chunks therefore don't hold.
_SOURCE = memoryview(os.urandom(CHUNK).replace(b"\r", b"-") * 2)


def generate(size: int) -> Iterator[bytes]:
    for number in range(size // CHUNK):
        start = number % CHUNK
        yield _SOURCE[start : start + CHUNK].tobytes()


async def agenerate(size: int) -> AsyncIterator[bytes]:
    for chunk in generate(size):
        yield chunk


def wrapped(name: str, transport: Any) -> Any:
    return transport if name == "bare" else RetryTransport(transport)


# Made once: what httpx makes for each transport reads all of the machine's certificates.
_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def sync_times(url: str, content: Callable[[], Any], rounds: int) -> dict[str, list[float]]:
    clients = {
        name: httpx.Client(transport=wrapped(name, httpx.HTTPTransport(verify=_NO_TLS)))
        for name in ("bare", "retry")
    }
    times: dict[str, list[float]] = {name: [] for name in clients}
    for _ in range(rounds):
        for name, client in clients.items():
            body = content()
            began = time.perf_counter()
            client.put(url, content=body, timeout=60)
            times[name].append(time.perf_counter() - began)
    for client in clients.values():
        client.close()
    return times


async def async_times(url: str, content: Callable[[], Any], rounds: int) -> dict[str, list[float]]:
    clients = {
        name: httpx.AsyncClient(transport=wrapped(name, httpx.AsyncHTTPTransport(verify=_NO_TLS)))
        for name in ("bare", "retry")
    }
    times: dict[str, list[float]] = {name: [] for name in clients}
    for _ in range(rounds):
        for name, client in clients.items():
            body = content()
            began = time.perf_counter()
            await client.put(url, content=body, timeout=60)
            times[name].append(time.perf_counter() - began)
    for client in clients.values():
        await client.aclose()
    return times


def compare(base: str, rounds: int) -> list[str]:
    """Print the table; return the rows that miss their target."""
    missed: list[str] = []
    print(f"{'upload':<42} {'link':<9} {'bare':>11} {'ratio':>6}  target")
    with tempfile.TemporaryFile() as file:
        file.write(bytes(32 * MIB))
        file.flush()

        def rewound() -> Any:
            file.seek(0)
            return file

        data = bytes(32 * MIB)
        bodies: list[tuple[str, int, float, Callable[[], Any], Callable[[], Any] | None]] = [
            ("bytes", 32, 0.97, lambda: data, lambda: data),
            ("file", 32, 0.97, rewound, None),
            ("generator in memory", 1, 0.9, lambda: generate(MIB), lambda: agenerate(MIB)),
            (
                "generator within the limit",
                32,
                0.9,
                lambda: generate(32 * MIB),
                lambda: agenerate(32 * MIB),
            ),
            (
                "generator beyond the limit",
                128,
                0.9,
                lambda: generate(128 * MIB),
                lambda: agenerate(128 * MIB),
            ),
        ]
        for name, size, target, content, acontent in bodies:
            for link in ("paced", "loopback"):
                turns = rounds * max(1, 32 // size) * (1 if link == "paced" else 2)
                for kind in ("sync", "async"):
                    url = f"{base}/{link}"
                    if kind == "sync":
                        times = sync_times(url, content, turns)
                    elif acontent is not None:
                        times = anyio.run(async_times, url, acontent, turns)
                    else:
                        continue
                    bare, retry = min(times["bare"]), min(times["retry"])
                    ratio = bare / retry
                    row = f"{kind} {name}, {size} MiB"
                    goal = f">= {target}" if link == "paced" else "-"
                    print(f"{row:<42} {link:<9} {size / bare:5.0f} MiB/s {ratio:6.3f}  {goal}")
                    if link == "paced" and ratio < target:
                        missed.append(row)
    return missed


# --- memory ---------------------------------------------------------------------------------------


def high_water(way: str, kind: str, url: str) -> None:
    """Send 256 MiB in this process and print its peak of resident memory, in MiB."""
    size = 256 * MIB
    if kind == "sync":
        with httpx.Client(transport=wrapped(way, httpx.HTTPTransport(verify=_NO_TLS))) as client:
            client.put(url, content=generate(size), timeout=60)
    else:

        async def send() -> None:
            transport = wrapped(way, httpx.AsyncHTTPTransport(verify=_NO_TLS))
            async with httpx.AsyncClient(transport=transport) as client:
                await client.put(url, content=agenerate(size), timeout=60)

        anyio.run(send)
    # Not ru_maxrss: a new process starts with the peak of the one that it was started from.
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert peak is not None
    print(int(peak[1]) / 1024)


def compare_memory(base: str) -> list[str]:
    missed: list[str] = []
    allowed = RetryPolicy().replay_memory / MIB + 4
    for kind in ("sync", "async"):
        peaks = {
            way: min(
                float(
                    subprocess.check_output(
                        [sys.executable, __file__, "--memory", way, kind, f"{base}/loopback"]
                    )
                )
                for _ in range(3)
            )
            for way in ("bare", "retry")
        }
        more = peaks["retry"] - peaks["bare"]
        row = f"{kind} generator, 256 MiB"
        print(f"{row:<42} peak {peaks['bare']:.1f} MiB bare, {more:+.1f} MiB  <= +{allowed:.0f}")
        if more > allowed:
            missed.append(f"{row}: memory")
    return missed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--memory", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve()
    elif arguments.memory:
        high_water(*arguments.memory)
    else:
        with server() as base:
            missed = compare(base, arguments.rounds) + compare_memory(base)
        if missed:
            sys.exit("missed: " + "; ".join(missed))
