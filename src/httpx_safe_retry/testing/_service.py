"""What a loopback server does with its requests, as far as no socket is needed for it.

The rule: what was done is in the ledger, whatever the client is told. A client that takes a lost
answer for a failure is found out by comparing the two.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, cycle
from time import monotonic
from typing import Literal, TypeAlias, get_args

import httpx

FaultKind: TypeAlias = Literal["fin", "rst", "silence"]
"""How a connection breaks, as `Fault` tells."""
CommitPoint: TypeAlias = Literal["on_headers", "on_request"]
Handler: TypeAlias = "Callable[[ServerRequest], ServerResponse]"
ServerStep: TypeAlias = "Fault | ServerResponse | int | None"
"""What a `LoopbackServer` can be told to do with one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """How one request's connection breaks. As it stands: the request is executed, its answer lost.

    request_bytes: how many bytes of the request are read before it does, head included. A request
    that ends before is executed, and the break comes in its response.
    response_bytes: how many bytes of the response are written before it does, head included, all of
    them at most.
    by: "fin" closes in an orderly way, "rst" resets the connection, "silence" neither reads nor
    writes any more and keeps the connection open.
    """

    request_bytes: int = sys.maxsize
    response_bytes: int = 0
    by: FaultKind = "fin"

    def __post_init__(self) -> None:
        if self.by not in get_args(FaultKind):
            raise ValueError(f"by must be one of {get_args(FaultKind)}, not {self.by!r}")


@dataclass(slots=True)
class ServerRequest:
    """A request whose head has arrived; its body grows while it is read.

    connection: the number of the connection that it came over, 1 for the first.
    path: the request target: path and query.
    """

    connection: int
    method: str
    path: str
    headers: httpx.Headers
    body: bytes = b""

    @property
    def key(self) -> str | None:
        """The Idempotency-Key; a blank one is None."""
        return self.headers.get("Idempotency-Key") or None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerResponse:
    """What the server answers.

    status: the status code.
    headers: the header fields; the framing of the body is added.
    body: bytes go with a Content-Length, several chunks of bytes with `Transfer-Encoding: chunked`.
    executed: whether the operation ran and belongs in the ledger. None: if the status is a 2xx.
    raw: written in place of a response, before the connection is closed: no HTTP, if you like.
    """

    status: int = 200
    headers: Mapping[str, str] | Sequence[tuple[str, str]] = ()
    body: bytes | Sequence[bytes] = b""
    executed: bool | None = None
    raw: bytes | None = None

    @property
    def ran(self) -> bool:
        """Whether the operation ran."""
        return 200 <= self.status < 300 if self.executed is None else self.executed


@dataclass(frozen=True, slots=True)
class Operation:
    """Something that the server did.

    key: the Idempotency-Key, or None.
    time: when it was done, in seconds of `time.monotonic()`.
    """

    method: str
    path: str
    key: str | None
    body: bytes
    time: float


# The answer to a request whose key belongs to one that is still running
# (draft-ietf-httpapi-idempotency-key-header-07 section 2.7).
_RUNNING = ServerResponse(status=409)
_REPLAYED = ("Idempotent-Replayed", "true")


class Service:
    """The script, the operations and their ledger."""

    def __init__(
        self,
        script: Sequence[ServerStep],
        handler: Handler,
        commit: CommitPoint,
        *,
        dedupe: bool,
        repeat: bool,
    ) -> None:
        if commit not in get_args(CommitPoint):
            raise ValueError(f"commit must be one of {get_args(CommitPoint)}, not {commit!r}")
        steps = [ServerResponse(status=step) if isinstance(step, int) else step for step in script]
        self.commit = commit
        self.ledger: list[Operation] = []
        self.requests: list[ServerRequest] = []
        self._steps = chain(steps, cycle(steps[-1:]) if repeat else ())
        self._handler = handler
        self._dedupe = dedupe
        self._recorded: dict[str, ServerResponse] = {}
        self._lock = threading.Lock()

    def next_step(self) -> Fault | ServerResponse | None:
        """Take the next step of the script."""
        with self._lock:
            return next(self._steps, None)

    def answer(self, request: ServerRequest, scripted: ServerResponse | None) -> ServerResponse:
        """Run the operation, unless a scripted refusal or a recorded response comes before it."""
        if scripted is not None and not scripted.ran:
            return scripted
        key = request.key if self._dedupe else None
        if key is None:
            return self._run(request, scripted)
        with self._lock:
            recorded = self._recorded.get(key)
            if recorded is not None:
                return recorded
            self._recorded[key] = _RUNNING
        response = self._run(request, scripted)
        if response.ran:
            headers = [*httpx.Headers(response.headers).multi_items(), _REPLAYED]
            self._recorded[key] = replace(response, headers=headers)
        else:
            del self._recorded[key]
        return response

    def _run(self, request: ServerRequest, scripted: ServerResponse | None) -> ServerResponse:
        response = self._handler(request) if scripted is None else scripted
        if response.ran:
            self.ledger.append(
                Operation(request.method, request.path, request.key, request.body, monotonic())
            )
        return response
