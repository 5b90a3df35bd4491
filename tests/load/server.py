"""The server: it fails one request in five, and its ledger says what it did all the same.

    python -m tests.load.server [share of failures] [seed]

It prints its port; for each line that it reads it prints its books, as JSON, once all connections
have ended; it stops when standard input ends. It reads HTTP/1.1 by itself, with no code that httpx
sends with.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

SLOW = 1.5
"""Seconds that a slow answer takes: longer than the clients wait."""

PATIENCE = 10.0
"""Seconds after which connections that don't end are a finding."""


def pattern(number: int, size: int) -> bytes:
    """The body that belongs to an operation, in either direction."""
    unit = b"%d," % number
    return (unit * (size // len(unit) + 1))[:size]


@dataclass(frozen=True)
class Failure:
    """One way to fail.

    at: whether it comes with the request's first byte, with its head, or once it is whole.
    does: what the server does before: nothing, what it was asked for, or that, but late.
    then: what becomes of the answer. An int is a status in its place.
    """

    at: Literal["byte", "head", "whole"]
    does: Literal["nothing", "it", "it late"]
    then: Literal["fin", "rst", "cut head", "cut body", "garbage", "late", "linger"] | int


FAILURES = {
    "dropped before it was read": Failure("byte", "nothing", "fin"),
    "reset before it was read": Failure("byte", "nothing", "rst"),
    "dropped after its head": Failure("head", "nothing", "fin"),
    "dropped, not done": Failure("whole", "nothing", "fin"),
    "dropped, done": Failure("whole", "it", "fin"),
    "reset, done": Failure("whole", "it", "rst"),
    "429": Failure("whole", "nothing", 429),
    "500, not done": Failure("whole", "nothing", 500),
    "500, done": Failure("whole", "it", 500),
    "502, done": Failure("whole", "it", 502),
    "503, not done": Failure("whole", "nothing", 503),
    "503, done": Failure("whole", "it", 503),
    "504, done late": Failure("whole", "it late", 504),
    "head cut": Failure("whole", "it", "cut head"),
    "body cut": Failure("whole", "it", "cut body"),
    "malformed": Failure("whole", "it", "garbage"),
    "slow": Failure("whole", "it", "late"),
    "done late": Failure("whole", "it late", "late"),
    "answered, then dropped": Failure("whole", "it", "linger"),
}


@dataclass
class Request:
    """A request that has arrived."""

    method: str
    kind: str
    number: int
    size: int
    key: str | None
    body: bytes = b""

    def is_whole(self) -> bool:
        """Whether the body is the operation's own, byte for byte."""
        if self.method in ("GET", "DELETE"):
            return self.body == b""
        expected = pattern(self.number, self.size)
        if self.kind.endswith("form"):
            closed = self.body.endswith(b"--\r\n") and self.body.count(b"\r\n\r\n") == 1
            return closed and b"\r\n\r\n" + expected + b"\r\n--" in self.body
        return self.body == expected


class Ledger:
    """What was done, and how often; everything that a judge wants to know."""

    def __init__(self, share: float, seed: int) -> None:
        self.share = share
        self.random = random.Random(seed)
        self.done = bytearray()
        self.damaged: list[str] = []
        self.faults: Counter[str] = Counter()
        self.requests = 0
        self.connections = 0
        self.open = 0
        self.pending = 0
        self.keys: dict[str, bool] = {}
        """Whether the request of a key is done, or still running."""

    def draw(self) -> Failure | None:
        """How the next request fails, if it does."""
        self.requests += 1
        if self.random.random() >= self.share:
            return None
        name = self.random.choice(list(FAILURES))
        self.faults[name] += 1
        return FAILURES[name]

    def do(self, request: Request) -> None:
        """Do what a request asks for; a key, only once."""
        if request.key is not None:
            if self.keys.get(request.key):
                return
            self.keys[request.key] = True
        if request.number >= len(self.done):
            self.done.extend(bytes(request.number + 1 - len(self.done)))
        self.done[request.number] = min(255, self.done[request.number] + 1)

    def books(self) -> dict[str, object]:
        """All of it, for JSON."""
        return {
            "done": self.done.hex(),
            "damaged": self.damaged[:20],
            "faults": dict(self.faults),
            "requests": self.requests,
            "connections": self.connections,
            "open": self.open,
            "pending": self.pending,
        }


def render(status: int, body: bytes, *headers: str) -> bytes:
    """An HTTP/1.1 response."""
    lines = [f"HTTP/1.1 {status} Loaded", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


class Connection(asyncio.Protocol):
    """One client's connection."""

    transport: asyncio.Transport

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.read = b""
        self.busy = False
        self.begun = False
        self.failure: Failure | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.ledger.connections += 1
        self.ledger.open += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self.ledger.open -= 1

    def data_received(self, data: bytes) -> None:
        self.read += data
        self.serve()

    def serve(self) -> None:
        """Serve what has been read, as far as it goes."""
        while self.read and not self.busy and not self.transport.is_closing():
            if not self.begun:
                self.begun = True
                self.failure = self.ledger.draw()
            if self.fails_at("byte"):
                return self.end()
            head, found, rest = self.read.partition(b"\r\n\r\n")
            if not found:
                return None
            if self.fails_at("head"):
                return self.end()
            request, chunked, length = parse(head)
            body = read_chunks(rest) if chunked else read_length(rest, length)
            if body is None:
                return None
            request.body, self.read = body
            self.begun = False
            if not request.is_whole() and len(self.ledger.damaged) < 20:
                self.ledger.damaged.append(
                    f"{request.kind} {request.number}: {request.body[:80]!r}"
                )
            self.act(request)
        return None

    def fails_at(self, at: str) -> bool:
        return self.failure is not None and self.failure.at == at

    def act(self, request: Request) -> None:
        """Do what is asked for, and answer, or fail at either."""
        ledger, failure = self.ledger, self.failure
        if failure is not None and failure.does == "nothing":
            return self.decline(failure)
        known = request.key is not None and request.key in ledger.keys
        if request.key is not None and ledger.keys.get(request.key) is False:
            # draft-ietf-httpapi-idempotency-key-header-07 section 2.7
            return self.write(render(409, b"still running"))
        if failure is not None and failure.does == "it late" and not known:
            if request.key is not None:
                ledger.keys[request.key] = False
            return self.later(lambda: self.finish(request, known))
        ledger.do(request)
        if failure is not None and failure.then == "late":
            return self.later(lambda: self.finish(request, known))
        return self.finish(request, known)

    def decline(self, failure: Failure) -> None:
        """Do nothing, and say so or not."""
        if isinstance(failure.then, int):
            again = ("Retry-After: 0",) if failure.then == 429 else ()
            return self.write(render(failure.then, b"not now", *again))
        return self.end()

    def later(self, call: Callable[[], None]) -> None:
        self.busy = True
        self.ledger.pending += 1

        def now() -> None:
            self.busy = False
            self.ledger.pending -= 1
            call()
            self.serve()

        asyncio.get_running_loop().call_later(SLOW, now)

    def finish(self, request: Request, known: bool) -> None:
        """Answer for what is done, or fail at that."""
        failure = self.failure
        if failure is not None and failure.does == "it late" and not known:
            self.ledger.do(request)
        body = b"%d done" % request.number
        if request.method == "GET":
            body = pattern(request.number, request.size)
        answer = render(200, body, *(["Idempotent-Replayed: true"] if known else []))
        if failure is None or failure.then == "late":
            return self.write(answer)
        if isinstance(failure.then, int):
            return self.write(render(failure.then, b"lost"))
        if failure.then == "cut head":
            self.write(answer[: self.ledger.random.randrange(1, 30)])
        elif failure.then == "cut body":
            self.write(answer[: len(answer) - 1 - len(body) // 2])
        elif failure.then == "garbage":
            self.write(b"HTTP/1.1 two hundred\r\nthis is : not\x00 HTTP\r\n\r\n")
        elif failure.then == "linger":
            self.write(answer)
        return self.end()

    def write(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)

    def end(self) -> None:
        """End the connection, as this failure does."""
        if self.failure is not None and self.failure.then == "rst":
            sock = self.transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()
        else:
            self.transport.close()


def parse(head: bytes) -> tuple[Request, bool, int]:
    """Read a head; return the request, whether its body is chunked, and its length."""
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    _, kind, number, size = target.split("/")
    request = Request(method, kind, int(number), int(size), headers.get("idempotency-key"))
    chunked = headers.get("transfer-encoding") == "chunked"
    return request, chunked, int(headers.get("content-length", "0"))


def read_length(data: bytes, length: int) -> tuple[bytes, bytes] | None:
    """Split off a body of this length; None: there is more to come."""
    return None if len(data) < length else (data[:length], data[length:])


def read_chunks(data: bytes) -> tuple[bytes, bytes] | None:
    """Split off a chunked body; None: there is more to come."""
    body = b""
    while True:
        line, found, data = data.partition(b"\r\n")
        if not found:
            return None
        size = int(line, 16)
        if len(data) < size + 2:
            return None
        body, data = body + data[:size], data[size + 2 :]
        if size == 0:
            return body, data


async def settle(ledger: Ledger) -> None:
    """Wait until nothing is open or under way any more."""
    for _ in range(int(PATIENCE / 0.02)):
        if not ledger.open and not ledger.pending:
            return
        await asyncio.sleep(0.02)


async def main(share: float, seed: int) -> None:
    """Serve until standard input ends."""
    ledger = Ledger(share, seed)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(ledger), "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    while await loop.run_in_executor(None, sys.stdin.readline):
        await settle(ledger)
        print(json.dumps(ledger.books()), flush=True)
    server.close()


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]), int(sys.argv[2])))
