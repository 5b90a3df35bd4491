"""The callers: threads, or tasks on asyncio or trio, that share one client.

The rule: a caller looks at what everybody sees, the response or the exception. Whatever is not
documented for it ends up in the record as odd.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import trio

from httpx_safe_retry import Backoff, RetryBudget, RetryError, RetryPolicy, RetryReport, get_report
from tests.library import RetryTransport, httpx

from .operations import Claim, Operation, Record, claim_of, draw

POLICY = RetryPolicy(
    max_attempts=6,
    deadline=15.0,
    backoff=Backoff(base=0.02, cap=0.5),
    statuses=frozenset({408, 429, 500, 502, 503, 504}),
    replay_memory=1024,
    replay_limit=1024 * 1024,
)

_OPTIONS: dict[str, Any] = {
    # Never used; reading certificates takes long.
    "verify": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
    "limits": httpx.Limits(max_connections=25, max_keepalive_connections=25),
}
_POOLS = 8
_TIMEOUT = httpx.Timeout(connect=5.0, read=1.0, write=5.0, pool=10.0)

SENDINGS = 40
"""How often a keyed write is sent at most until it is answered."""

PAUSE = 0.1
"""Seconds before it is sent once more."""


class Pools(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Several of httpx's transports, in turn.

    httpcore looks at each pair of its connections for every request: in a single pool, 200 callers
    would wait for that and for nothing else.
    """

    def __init__(self, kind: type[httpx.HTTPTransport] | type[httpx.AsyncHTTPTransport]) -> None:
        self.pools: list[Any] = [kind(**_OPTIONS) for _ in range(_POOLS)]
        self._turns = itertools.count()

    def _next(self) -> Any:
        return self.pools[next(self._turns) % _POOLS]

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response: httpx.Response = self._next().handle_request(request)
        return response

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response: httpx.Response = await self._next().handle_async_request(request)
        return response

    def close(self) -> None:
        for pool in self.pools:
            pool.close()

    async def aclose(self) -> None:
        for pool in self.pools:
            await pool.aclose()

    def taken(self) -> list[str]:
        """Connections that are taken, though nobody uses them any more."""
        connections = [one for pool in self.pools for one in pool._pool.connections]
        taken = [one for one in connections if not (one.is_idle() or one.is_closed())]
        return [f"a connection is still taken: {one!r}" for one in taken]


class Load:
    """One run: who sends, until when, and what came of it."""

    def __init__(self, url: str, record: Record, *, callers: int, seed: int) -> None:
        self.url = url
        self.record = record
        self.callers = callers
        self.seed = seed
        self.numbers = itertools.count()
        self.ends = 0.0
        self.unclean: list[str] = []
        """What was left behind inside: tasks, connections that nobody uses or can use."""

    @property
    def total(self) -> int:
        """How many operations there were. Reading it takes a number."""
        return next(self.numbers)

    def operations(self, caller: int, *, cancels: bool) -> Iterator[Operation]:
        """What one caller does, one after the other, until time is up."""
        chance = random.Random(f"{self.seed}/{caller}")
        while time.monotonic() < self.ends:
            number = next(self.numbers)
            if number >= self.record.limit:
                return
            yield draw(number, chance, cancels=cancels)

    def transport(self, wrapped: Any) -> RetryTransport:
        """One attempt in five fails: the budget is for outages, and lets all of these through."""
        return RetryTransport(wrapped, policy=POLICY, budget=RetryBudget(ratio=1, capacity=1000))

    def told(self, operation: Operation, report: RetryReport) -> Claim:
        """What a report says."""
        self.record.attempts += len(report.attempts)
        return claim_of(report)

    def answered(self, operation: Operation, response: httpx.Response) -> Claim:
        """What an answer says."""
        claim = self.told(operation, get_report(response))
        if claim is Claim.SUCCESS and response.content != operation.answer:
            self.record.complain(operation, f"answered {response.content[:80]!r}")
        return claim

    def failed(self, operation: Operation, error: Exception) -> Claim:
        """What an error says."""
        if isinstance(error, RetryError):
            return self.told(operation, error.report)
        if isinstance(error, httpx.TransportError) and "long" in operation.kind.name:
            return Claim.BROKEN_BODY
        if isinstance(error, httpx.TransportError) and operation.kind.streamed:
            return Claim.BROKEN_BODY
        self.record.complain(operation, repr(error))
        return Claim.NONE

    def is_over(self, operation: Operation, claim: Claim, result: Any) -> bool:
        """Whether nothing more is to be done about it: else it has a key, and is sent again."""
        if not operation.kind.keyed or claim is Claim.SUCCESS:
            return True
        if claim is Claim.CANCELLED:
            return False
        report = result.report if isinstance(result, RetryError) else get_report(result)
        if claim is Claim.UNCERTAIN:
            if not report.replay_safe:
                self.record.complain(operation, "it has a key, and is not replay-safe")
            return False
        # Somebody has sent it before, and that is still running: only its caller can know.
        return report.attempts[-1].status != 409 if report.attempts else True


# Threads ----------------------------------------------------------------------------------------


def in_threads(load: Load, seconds: float) -> None:
    """Run the load in threads."""
    wrapped = Pools(httpx.HTTPTransport)
    load.ends = time.monotonic() + seconds
    with httpx.Client(transport=load.transport(wrapped), timeout=_TIMEOUT) as client:
        threads = [
            threading.Thread(target=_call, args=(load, client, caller), name=f"caller {caller}")
            for caller in range(load.callers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        load.unclean += wrapped.taken()


def _call(load: Load, client: httpx.Client, caller: int) -> None:
    for operation in load.operations(caller, cancels=False):
        load.record.note(operation, _perform(load, client, operation))


def _perform(load: Load, client: httpx.Client, operation: Operation) -> Claim:
    claim = Claim.NONE
    for sending in range(SENDINGS):
        result: Any
        try:
            result = _send(load, client, operation, again=sending > 0)
            claim = load.answered(operation, result)
        except Exception as error:
            result, claim = error, load.failed(operation, error)
        if load.is_over(operation, claim, result):
            break
        load.record.resent += 1
        time.sleep(PAUSE)
    return claim


def _send(load: Load, client: httpx.Client, operation: Operation, *, again: bool) -> httpx.Response:
    arguments = operation.request(asynchronous=False, again=again)
    url = load.url + operation.path
    if not operation.kind.streamed:
        return client.request(operation.kind.method, url, **arguments)
    with client.stream(operation.kind.method, url, **arguments) as response:
        beginning = next(response.iter_raw(), b"")
        return _left(operation, response, beginning)


# Tasks ------------------------------------------------------------------------------------------


async def in_tasks(load: Load, seconds: float) -> None:
    """Run the load in tasks."""
    wrapped = Pools(httpx.AsyncHTTPTransport)
    load.ends = time.monotonic() + seconds
    with _watched(load) as tasks:
        before = tasks()
        async with httpx.AsyncClient(transport=load.transport(wrapped), timeout=_TIMEOUT) as client:
            async with anyio.create_task_group() as group:
                for caller in range(load.callers):
                    group.start_soon(_acall, load, client, caller)
            load.unclean += wrapped.taken()
        if tasks() > before:
            load.unclean.append(f"{tasks() - before} tasks are still there")


async def _acall(load: Load, client: httpx.AsyncClient, caller: int) -> None:
    for operation in load.operations(caller, cancels=True):
        load.record.note(operation, await _aperform(load, client, operation))


async def _aperform(load: Load, client: httpx.AsyncClient, operation: Operation) -> Claim:
    claim = Claim.NONE
    for sending in range(SENDINGS):
        result: Any = None
        patience = operation.cancel if sending == 0 and operation.cancel is not None else None
        with anyio.move_on_after(patience) as scope:
            try:
                result = await _asend(load, client, operation, again=sending > 0)
                claim = load.answered(operation, result)
            except Exception as error:
                result, claim = error, load.failed(operation, error)
        if scope.cancelled_caught:
            claim = Claim.CANCELLED
        if load.is_over(operation, claim, result):
            break
        load.record.resent += 1
        await anyio.sleep(PAUSE)
    return claim


async def _asend(
    load: Load, client: httpx.AsyncClient, operation: Operation, *, again: bool
) -> httpx.Response:
    arguments = operation.request(asynchronous=True, again=again)
    url = load.url + operation.path
    if not operation.kind.streamed:
        return await client.request(operation.kind.method, url, **arguments)
    async with client.stream(operation.kind.method, url, **arguments) as response:
        beginning = await anext(response.aiter_raw(), b"")
        return _left(operation, response, beginning)


def _left(operation: Operation, response: httpx.Response, beginning: bytes) -> httpx.Response:
    """The answer of which only the beginning was read, as if that was all that was asked for."""
    whole = operation.answer if operation.answer.startswith(beginning) else beginning
    return httpx.Response(response.status_code, content=whole, extensions=response.extensions)


# What may be left behind ------------------------------------------------------------------------


@contextmanager
def _watched(load: Load) -> Iterator[Callable[[], int]]:
    """Yield a function that counts the tasks; what the event loop finds unhandled is noted."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        yield lambda: trio.lowlevel.current_statistics().tasks_living
        return

    def note(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        load.unclean.append(f"the event loop says: {context['message']}")

    loop.set_exception_handler(note)
    yield lambda: len(asyncio.all_tasks())
