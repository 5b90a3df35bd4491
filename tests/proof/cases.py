"""What is done to a request: every operation, at every place, in every way.

The rule: places are counted in bytes or frames from the start of the request that is attacked, so
that a case means the same on a fresh connection and on one that has served a request before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

Family: TypeAlias = Literal["sync", "asyncio", "trio"]
Protocol: TypeAlias = Literal["http/1.1", "http/2"]
Framing: TypeAlias = Literal["none", "length", "chunked", "long"]
Commit: TypeAlias = Literal["head", "whole"]
AnswerFraming: TypeAlias = Literal["length", "chunked"]
"""In HTTP/2, which has no chunks: with a Content-Length or without."""

FAMILIES: tuple[Family, ...] = get_args(Family)
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)

CHUNKS = (b"hel", b"lo")
ANSWER = (b"o", b"k")
"""The body of every answer, in chunks."""
LONG = bytes(range(250)) * 800
"""A body that fits neither into the buffers of a socket nor into an HTTP/2 window."""

AT_ONCE = -1
"""Before anything is read: at accept, or while a connection that is used again lies idle."""


@dataclass(frozen=True)
class Operation:
    """One kind of request."""

    name: str
    method: str
    keyed: bool = False
    body: bool = False

    @property
    def is_write(self) -> bool:
        """Whether it changes something."""
        return self.method != "GET"

    @property
    def replay_safe(self) -> bool:
        """Whether it may be sent again whatever became of it."""
        return self.keyed or self.method in ("GET", "PUT", "DELETE")


OPERATIONS = (
    Operation("GET", "GET"),
    Operation("PUT", "PUT", body=True),
    Operation("DELETE", "DELETE"),
    Operation("POST", "POST", body=True),
    Operation("keyed POST", "POST", keyed=True, body=True),
    Operation("keyed PATCH", "PATCH", keyed=True, body=True),
)


@dataclass(frozen=True)
class Cut:
    """The server ends the connection after it has read, or written, so many bytes.

    late: it writes nothing at all before it has done what was asked. That makes a difference to
    HTTP/2 alone, where a server speaks first.
    """

    side: Literal["request", "response"]
    at: int
    by: Literal["fin", "rst", "silence"]
    late: bool = False


@dataclass(frozen=True)
class Break:
    """The client's own socket fails when it has taken so many bytes."""

    at: int
    by: Literal["WriteError", "WriteTimeout"]


Point: TypeAlias = Literal["open", "head", "data", "whole", "committed", "answering", "answered"]
"""Where a server stands with a request: before it, after its head, its first data, its end, after
doing what it asks, after the head of the answer and after all of it.
"""


@dataclass(frozen=True)
class Reset:
    """RST_STREAM with this error code (RFC 9113 section 7)."""

    point: Point
    code: int


@dataclass(frozen=True)
class GoAway:
    """GOAWAY that names this stream as the last, and what the server does then.

    graceful: one with the highest stream id goes before it (RFC 9113 section 6.8).
    """

    point: Point
    last: Literal["zero", "before", "own", "max"]
    then: Literal["on", "fin", "rst"]
    graceful: bool = False


Fault: TypeAlias = Cut | Break | Reset | GoAway


@dataclass(frozen=True)
class Case:
    """One run, without the fault (None) or with it."""

    family: Family
    protocol: Protocol
    operation: Operation
    framing: Framing
    reused: bool
    commit: Commit
    fault: Fault | None = None
    answer: AnswerFraming = "length"

    @property
    def body(self) -> bytes:
        """What is sent."""
        return {"none": b"", "long": LONG}.get(self.framing, b"".join(CHUNKS))

    def __str__(self) -> str:
        connection = "reused" if self.reused else "fresh"
        return (
            f"{self.family} {self.protocol} {self.operation.name} ({self.framing}, {connection}, "
            f"commits on {self.commit}, answers {self.answer}): {self.fault}"
        )


@dataclass(frozen=True)
class Size:
    """How many bytes a request and its answer take on the wire."""

    request: int
    response: int


def settings(family: Family, protocol: Protocol) -> Iterator[Case]:
    """Yield what there is to attack."""
    for operation in OPERATIONS:
        framings: tuple[Framing, ...] = (
            ("length", "chunked", "long") if operation.body else ("none",)
        )
        for framing in framings:
            # Without a body, the head is the whole request.
            commits: tuple[Commit, ...] = get_args(Commit) if operation.body else ("whole",)
            for reused in (False, True):
                for commit in commits:
                    setting = Case(family, protocol, operation, framing, reused, commit)
                    for answer in get_args(AnswerFraming):
                        yield replace(setting, answer=answer)


def attacks(setting: Case, size: Size) -> Iterator[Case]:
    """Yield every way to attack it."""
    faults = [*_cuts_in_response(size, setting)]
    if setting.answer == "length":
        # How the answer is framed makes no difference to a connection that is lost before it.
        faults += [*_cuts_in_request(size, setting), *_breaks(size, setting)]
    if setting.protocol == "http/2":
        faults += [*_resets(setting), *_goaways(setting)]
    for fault in faults:
        yield replace(setting, fault=fault)


def _places(end: int, setting: Case) -> range:
    # Of a long body, some places have to do.
    return range(0, end, max(1, end // 12) if setting.framing == "long" else 1)


def _cuts_in_request(size: Size, setting: Case) -> Iterator[Fault]:
    for by in ("fin", "rst"):
        yield Cut("request", AT_ONCE, by)
        for at in _places(size.request, setting):
            yield Cut("request", at, by)
    # Each of these lasts until the client's patience ends, so the telling places alone.
    for at in (AT_ONCE, 0, size.request // 2, size.request - 1):
        yield Cut("request", at, "silence")


def _cuts_in_response(size: Size, setting: Case) -> Iterator[Fault]:
    for by in ("fin", "rst"):
        for at in _places(size.response + 1, setting):
            yield Cut("response", at, by)
            if _may_be_late(setting):
                yield Cut("response", at, by, late=True)
    for at in (0, size.response // 2, size.response - 1):
        yield Cut("response", at, "silence")


def _may_be_late(setting: Case) -> bool:
    # A server that gives no window gets no more than one.
    return setting.protocol == "http/2" and not setting.reused and setting.framing != "long"


def _breaks(size: Size, setting: Case) -> Iterator[Fault]:
    for at in _places(size.request, setting):
        yield Break(at, "WriteError")
        yield Break(at, "WriteTimeout")


REFUSED_STREAM = 7
_CODES = (
    0x0,  # NO_ERROR
    0x2,  # INTERNAL_ERROR
    REFUSED_STREAM,
    0x8,  # CANCEL
    0xB,  # ENHANCE_YOUR_CALM
    0xD,  # HTTP_1_1_REQUIRED
)


def _resets(setting: Case) -> Iterator[Fault]:
    for point in _points(setting):
        if point == "open":
            continue  # there is no stream yet
        for code in _CODES:
            if code != REFUSED_STREAM or _may_refuse(point, setting.commit):
                yield Reset(point, code)


def _goaways(setting: Case) -> Iterator[Fault]:
    for point in _points(setting):
        for last in ("zero", "before", "own", "max"):
            if last == "before" and not setting.reused:
                continue  # that is 0
            if last in ("zero", "before") and not _may_refuse(point, setting.commit):
                continue
            for then in ("on", "fin", "rst"):
                yield GoAway(point, last, then)
                yield GoAway(point, last, then, graceful=True)


def _points(setting: Case) -> Iterator[Point]:
    for point in get_args(Point):
        if point != "data" or setting.framing != "none":
            yield point


def _may_refuse(point: Point, commit: Commit) -> bool:
    # A server that has done it may not say that it hasn't: that would be its lie, not ours.
    return point in (("open", "head") if commit == "head" else ("open", "head", "data", "whole"))
