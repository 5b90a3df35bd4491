"""What is asked of the server, what the caller is told of it, and whether that is so.

The rule: a claim is held against the ledger when all is over. A write that may be sent again (it
has a key, and the report says so) is sent again until it is answered, as the README advises.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from io import BytesIO
from typing import Any

from httpx_safe_retry import Outcome, RetryReport

from .server import pattern


class Claim(IntEnum):
    """What the caller of an operation knows in the end."""

    NONE = 0
    SUCCESS = 1
    DID_NOT_HAPPEN = 2
    UNCERTAIN = 3
    CANCELLED = 4
    BROKEN_BODY = 5
    """A long answer had begun: what breaks then is the caller's to see, as in httpx."""


def claim_of(report: RetryReport) -> Claim:
    """What a report says of a write, or of a read that failed."""
    if report.outcome is Outcome.SUCCESS:
        return Claim.SUCCESS
    return Claim.UNCERTAIN if report.outcome is Outcome.UNCERTAIN_WRITE else Claim.DID_NOT_HAPPEN


@dataclass(frozen=True)
class Kind:
    """One sort of operation. body: how it is handed to httpx. sizes: of the body, either way."""

    name: str
    method: str
    body: str = "none"
    keyed: bool = False
    sizes: tuple[int, int] = (1, 500)
    streamed: bool = False
    """Whether the caller opens the answer, looks at its beginning and leaves."""


# What is longer is not read within the attempt.
PREFETCH = 64 * 1024

KINDS: Sequence[Kind] = (
    Kind("get", "GET", sizes=(0, 2000)),
    Kind("get-again", "GET", sizes=(0, 2000)),
    Kind("get-long", "GET", sizes=(PREFETCH + 1, 2 * PREFETCH)),
    Kind("get-left", "GET", sizes=(PREFETCH + 1, 2 * PREFETCH), streamed=True),
    Kind("put", "PUT", "bytes"),
    Kind("put-iterator", "PUT", "iterator", sizes=(0, 20_000)),
    Kind("delete", "DELETE"),
    Kind("post", "POST", "bytes"),
    Kind("post-iterator", "POST", "iterator", sizes=(0, 20_000)),
    Kind("post-form", "POST", "form"),
    Kind("keyed", "POST", "bytes", keyed=True),
    Kind("keyed-again", "POST", "bytes", keyed=True),
    # Longer than what is kept in memory: it spools to a temporary file.
    Kind("keyed-iterator", "POST", "iterator", keyed=True, sizes=(0, 20_000)),
    Kind("keyed-form", "POST", "form", keyed=True),
)


@dataclass(frozen=True)
class Operation:
    """One operation, with a number of its own."""

    number: int
    kind: Kind
    size: int
    hurry: float | None
    """Seconds that its first sending may take, if it is one of the hurried ones."""
    cancel: float | None
    """Seconds after which its task is cancelled, if it is one of those."""

    @property
    def path(self) -> str:
        """What it is to the server."""
        return f"/{self.kind.name}/{self.number}/{self.size}"

    @property
    def answer(self) -> bytes:
        """The body of its answer."""
        if self.kind.method == "GET":
            return pattern(self.number, self.size)
        return b"%d done" % self.number

    def request(self, *, asynchronous: bool, again: bool) -> dict[str, Any]:
        """The arguments of httpx's `request`; bodies are made anew. again: not the first time."""
        arguments: dict[str, Any] = {"headers": {}}
        if self.kind.keyed:
            arguments["headers"]["Idempotency-Key"] = f"key-{self.number}"
        if self.hurry is not None and not again:
            arguments["extensions"] = {"retry": {"deadline": self.hurry}}
        content = pattern(self.number, self.size)
        if self.kind.body == "bytes":
            arguments["content"] = content
        elif self.kind.body == "iterator":
            arguments["content"] = achunks(content) if asynchronous else chunks(content)
        elif self.kind.body == "form":
            arguments["files"] = {"file": ("name", BytesIO(content))}
        return arguments


def chunks(content: bytes) -> Iterator[bytes]:
    """Yield the content in pieces, once."""
    for start in range(0, len(content), 4000):
        yield content[start : start + 4000]


async def achunks(content: bytes) -> AsyncIterator[bytes]:
    """Yield the content in pieces, once."""
    for chunk in chunks(content):
        yield chunk


def draw(number: int, chance: random.Random, *, cancels: bool) -> Operation:
    """Make up an operation: one in twenty is hurried, and one in twenty cancelled if it can be."""
    kind = chance.choice(KINDS)
    size = chance.randint(*kind.sizes)
    fate = chance.random()
    hurry = chance.uniform(0.001, 0.1) if fate < 0.05 else None
    cancel = chance.uniform(0, 0.1) if cancels and fate > 0.95 else None
    return Operation(number, kind, size, hurry, cancel)


class Record:
    """What every operation was, and what its caller was told: two bytes each, made in advance.

    So that it takes as much memory after as before.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.kinds = array("B", bytes(limit))
        self.claims = array("B", bytes(limit))
        self.attempts = 0
        self.resent = 0
        self.odd: list[str] = []
        """What no caller should have been told."""

    def note(self, operation: Operation, claim: Claim) -> None:
        """Keep what became of an operation."""
        self.kinds[operation.number] = KINDS.index(operation.kind)
        self.claims[operation.number] = claim

    def complain(self, operation: Operation, what: object) -> None:
        """Note something that should not be."""
        if len(self.odd) < 20:
            self.odd.append(f"{operation.kind.name} {operation.number}: {what}")


@dataclass
class Verdict:
    """The claims beside the ledger."""

    counts: dict[str, dict[Claim, int]]
    """By kind."""
    keyed_done: int
    unkeyed_done: int
    uncertain_done: int
    """How many of the uncertain writes were done."""
    violations: list[str]


def judge(record: Record, total: int, done: bytes) -> Verdict:
    """Hold the claims against how often each of `total` operations was done."""
    verdict = Verdict({kind.name: {} for kind in KINDS}, 0, 0, 0, list(record.odd))
    for number in range(total):
        kind, claim = KINDS[record.kinds[number]], Claim(record.claims[number])
        times = done[number] if number < len(done) else 0
        counts = verdict.counts[kind.name]
        counts[claim] = counts.get(claim, 0) + 1
        if kind.method != "GET":
            wrong = _wrong(kind, claim, times)
            if wrong is not None:
                verdict.violations.append(f"{kind.name} {number}: {claim.name}, {wrong}")
            if kind.method == "POST":
                verdict.keyed_done += kind.keyed and times == 1
                verdict.unkeyed_done += not kind.keyed and times == 1
            verdict.uncertain_done += claim is Claim.UNCERTAIN and times > 0
        elif claim is Claim.NONE:
            verdict.violations.append(f"{kind.name} {number}: nobody was told anything")
    return verdict


def _wrong(kind: Kind, claim: Claim, times: int) -> str | None:
    if kind.method == "POST" and times > 1:
        return f"and done {times} times"
    if claim is Claim.SUCCESS and times == 0:
        return "and never done"
    if claim is Claim.DID_NOT_HAPPEN and times > 0:
        return "and done"
    if claim in (Claim.NONE, Claim.BROKEN_BODY):
        return "which nobody should be told"
    if kind.keyed and claim is not Claim.SUCCESS and claim is not Claim.DID_NOT_HAPPEN:
        return "and nobody knows, though it could be sent again"
    return None
