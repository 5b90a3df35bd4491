"""The two laws against a model of all that lies between a caller and a server.

A client, a network and a server take turns in any order: requests are lost, delayed until long
after the caller has gone, delivered twice and out of order; the server does what it is asked or
fails before, behind or in the middle of it, and answers or not; deadlines end and callers cancel at
any step. The server's ledger is the truth that every claim is held against.

What the server promises in turn: what it refuses (429, 4xx, REFUSED_STREAM, ...) it does not do;
under a key it does a thing once, says 409 while it is at it, and repeats what it has answered. It
may break the second promise by forgetting its keys. Then the laws for keyed requests end, but not:
the key and the request stay the same on every attempt, and success means that it ran.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, TypeVar

import h2.events
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from httpx_safe_retry import (
    Backoff,
    Outcome,
    RequestFinished,
    RetryBudget,
    RetryError,
    RetryEvent,
    RetryPolicy,
    RetryReport,
    StopReason,
    get_report,
)
from httpx_safe_retry.testing import VirtualClock
from tests.library import RetryTransport, httpcore, httpx

T = TypeVar("T")

ORIGINS = ("https://a.test", "https://b.test")
RATIO, CAPACITY = 0.5, 3

AMBIGUOUS_STATUSES = (408, 500, 502, 503, 504)
# Said by layers in front of the key, which know nothing of it.
FRONT_STATUSES = (401, 403, 429, 431, 501, 505, 511)
JUDGING_STATUSES = (400, 404, 409, 412, 413, 422)

NOT_SENT: tuple[Callable[[], Exception], ...] = (
    lambda: httpx.ConnectError("refused"),
    lambda: httpx.ConnectTimeout("slow"),
    lambda: httpx.PoolTimeout("full"),
    lambda: httpx.ProxyError("503 Service Unavailable"),
)
AMBIGUOUS: tuple[Callable[[], Exception], ...] = (
    lambda: httpx.ReadTimeout("slow"),
    lambda: httpx.ReadError("reset"),
    lambda: httpx.WriteTimeout("slow"),
    lambda: httpx.WriteError("reset"),
    lambda: httpx.CloseError("reset"),
    lambda: httpx.RemoteProtocolError("disconnected"),
    lambda: httpx.LocalProtocolError("confused"),
)


def caused_by(cause: Exception, error: Exception) -> Exception:
    """Link an error to what it was made from."""
    error.__cause__ = cause
    return error


def reset(kind: type[Exception]) -> Exception:
    """What httpcore makes of a socket that fails."""
    return caused_by(ConnectionResetError(errno.ECONNRESET, "reset"), kind("reset"))


def refused_by_http2(*, goaway: bool) -> Exception:
    """What httpcore and httpx make of REFUSED_STREAM, or of a GOAWAY that takes no stream."""
    event: h2.events.Event
    if goaway:
        event = h2.events.ConnectionTerminated()
        event.last_stream_id = 0
        event.error_code = 0
    else:
        event = h2.events.StreamReset(stream_id=1)
        event.error_code = 7
        event.remote_reset = True
    inner = httpcore.RemoteProtocolError(event)
    return caused_by(inner, httpx.RemoteProtocolError(str(inner)))


# The world ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """What one kind of operation is."""

    method: str
    keyed: bool = False
    idempotent: bool | None = None

    @property
    def is_write(self) -> bool:
        return self.method != "GET" or self.idempotent is False

    @property
    def repeatable(self) -> bool:
        """Whether to run it twice does no harm."""
        if self.idempotent is not None:
            return self.idempotent
        return self.method in ("GET", "PUT", "DELETE")


KINDS = (
    Kind("GET"),
    Kind("PUT"),
    Kind("DELETE"),
    Kind("POST"),
    Kind("POST", keyed=True),
    Kind("PATCH", keyed=True),
    Kind("POST", idempotent=True),
    Kind("PUT", idempotent=False),
    Kind("GET", idempotent=False),
)


@dataclass(frozen=True)
class Asked:
    """What a caller wants."""

    kind: Kind
    origin: str
    limit: int
    deadline: float | None


@dataclass
class Reply:
    """An answer on its way, or all that comes of it: the body breaks off if `cut`."""

    status: int
    replayed: bool = False
    retry_after: bool = False
    cut: bool = False


@dataclass(eq=False)
class Attempt:
    """One sending of an operation, as the network sees it."""

    operation: Operation
    method: bytes
    fingerprint: tuple[object, ...]
    trace: Callable[[str, dict[str, Any]], None]
    sent: bool = False
    """Whether its head has left."""
    lost: bool = False
    """Whether the network will never deliver it (again)."""
    arrived: bool = False
    held: bool = False
    """Whether the server is still at it."""
    waiting: bool = True
    """Whether the client still waits for its answer."""
    reply: Reply | None = None
    ending: Reply | Exception | None = None
    """What the client got in the end, if it got anything."""
    fate: asyncio.Future[Reply | Exception] | None = None

    @property
    def worth_repeating(self) -> bool | None:
        """Whether the same again may succeed; None: that is not for this model to say."""
        match self.ending:
            case None | Reply(status=409):
                return None
            case Exception():
                return not isinstance(self.ending, httpx.LocalProtocolError)
            case Reply(cut=True):
                return True
            case Reply(replayed=True):
                return False
            case Reply(status=status, retry_after=asks):
                return status in POLICY.statuses or (status == 413 and asks)


@dataclass(eq=False)
class Operation:
    """One logical request, what is known of it and what is claimed."""

    number: int
    asked: Asked
    began: float
    attempts: list[Attempt] = field(default_factory=list[Attempt])
    executions: list[Attempt] = field(default_factory=list[Attempt])
    reports: list[RetryReport] = field(default_factory=list[RetryReport])
    over: bool = False
    """Whether the caller has been answered, or has gone."""
    cancelled: bool = False
    forgotten: bool = False
    """Whether the server forgot its key meanwhile."""

    @property
    def kind(self) -> Kind:
        return self.asked.kind

    @property
    def key(self) -> str | None:
        return f"key-{self.number}" if self.kind.keyed else None

    @property
    def ends(self) -> float:
        """When its deadline is."""
        return inf if self.asked.deadline is None else self.began + self.asked.deadline

    @property
    def request(self) -> httpx.Request:
        """A new one, as the caller makes it."""
        headers = {} if self.key is None else {"Idempotency-Key": self.key}
        changes: dict[str, Any] = {"max_attempts": self.asked.limit}
        if self.asked.deadline is not None:
            changes["deadline"] = self.asked.deadline
        if self.kind.idempotent is not None:
            changes["idempotent"] = self.kind.idempotent
        return httpx.Request(
            self.kind.method,
            f"{self.asked.origin}/{self.number}",
            headers=headers,
            content=None if self.kind.method == "GET" else b"12345",
            extensions={"retry": changes, "timeout": {"read": 5.0}},
        )


class Body(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The body of an answer, which may break off."""

    def __init__(self, *, cut: bool) -> None:
        self._cut = cut
        self.closes = 0

    def __iter__(self) -> Iterator[bytes]:
        yield b"o"
        if self._cut:
            raise httpx.ReadError("reset")
        yield b"k"

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self:
            yield chunk

    def close(self) -> None:
        self.closes += 1

    async def aclose(self) -> None:
        self.closes += 1


class World:
    """The server, its ledger, and what is under way to it."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.operations: list[Operation] = []
        self.attempts: list[Attempt] = []
        self.bodies: list[Body] = []
        self._answers: dict[str, int | None] = {}
        """What was answered under each key; None while the server is at it."""

    # The client's side

    def begin(self, asked: Asked) -> Operation:
        operation = Operation(len(self.operations), asked, self.now())
        self.operations.append(operation)
        return operation

    def told(self, event: RetryEvent) -> None:
        """Listen to the client."""
        if isinstance(event, RequestFinished):
            path = httpx.URL(event.report.url).path
            self.operations[int(path.strip("/"))].reports.append(event.report)

    def attempt(self, request: httpx.Request, trace: Callable[..., None]) -> Attempt:
        """Take in what the client begins to send."""
        operation = self.operations[int(request.url.path.strip("/"))]
        assert not operation.over, "it was sent again behind the caller's back"
        assert self.now() < operation.ends, "it was sent too late"
        for earlier in operation.attempts:
            assert earlier.worth_repeating is not False, "it was sent again without use"
        names = ("idempotency-key", "content-length")
        headers = tuple(request.headers.get(name) for name in names)
        fingerprint = (request.method, str(request.url), *headers)
        attempt = Attempt(operation, request.method.encode(), fingerprint, trace)
        operation.attempts.append(attempt)
        self.attempts.append(attempt)
        trace("connection.connect_tcp.started", {"host": request.url.host})
        return attempt

    def leaves(self, attempt: Attempt) -> None:
        """The head of the request is out, whatever comes."""
        attempt.trace("http11.send_request_headers.started", {"request": attempt})
        attempt.trace("http11.send_request_headers.complete", {"return_value": None})
        attempt.sent = True

    def breaks_under_the_head(self, attempt: Attempt) -> Exception:
        """The socket fails before it has taken the head; httpcore then looks for an answer."""
        trace = attempt.trace
        trace("http11.send_request_headers.started", {"request": attempt})
        trace("http11.send_request_headers.failed", {"exception": reset(httpcore.WriteError)})
        inner = reset(httpcore.ReadError)
        trace("http11.receive_response_headers.failed", {"exception": inner})
        return caused_by(inner, httpx.ReadError("reset"))

    def response(self, reply: Reply) -> httpx.Response:
        """Make an answer what the client gets."""
        headers = {"Content-Length": "2"}
        if reply.replayed:
            headers["Idempotent-Replayed"] = "true"
        if reply.retry_after:
            headers["Retry-After"] = "1"
        body = Body(cut=reply.cut)
        self.bodies.append(body)
        return httpx.Response(reply.status, headers=headers, stream=body)

    # The server's side

    def deliver(self, attempt: Attempt, act: str, status: int, *, mark: bool) -> None:
        """Let the server have a request, again if it has had it before, and do this with it.

        act: "run" it, "fail" before or "run and fail" behind it with an ambiguous status, "refuse"
        it, "hold" it for later, or "crash" and "run and crash", without a word. What was refused is
        refused for good, and only the first delivery is answered: else a refusal proves nothing.
        """
        key = attempt.operation.key
        first, attempt.arrived = not attempt.arrived, True
        reply = self._known(key, mark=mark) if act not in ("crash", "fail") else None
        if act == "refuse" and status in FRONT_STATUSES:
            reply = Reply(status)
        if reply is None:
            reply = self._acts(attempt, act, status)
        attempt.lost |= act == "refuse"
        if first:
            attempt.reply = reply

    def _known(self, key: str | None, *, mark: bool) -> Reply | None:
        if key is None or key not in self._answers:
            return None
        status = self._answers[key]
        return Reply(409) if status is None else Reply(status, replayed=mark)

    def _acts(self, attempt: Attempt, act: str, status: int) -> Reply | None:
        operation = attempt.operation
        retry_after = status in (413, 429, 503)
        if act == "refuse":
            self._record(operation, status)
            return Reply(status, retry_after=retry_after)
        if act == "fail":
            return Reply(status, retry_after=retry_after)
        if act == "hold":
            attempt.held = True
            self._record(operation, None)
            return None
        if act in ("run", "run and fail", "run and crash"):
            operation.executions.append(attempt)
            answer = status if act == "run and fail" else 200
            self._record(operation, answer)
            return None if act == "run and crash" else Reply(answer)
        return None

    def finish(self, attempt: Attempt) -> None:
        """The server does what it was still at."""
        attempt.held = False
        operation = attempt.operation
        operation.executions.append(attempt)
        self._record(operation, 200)
        attempt.reply = attempt.reply or Reply(200)

    def _record(self, operation: Operation, status: int | None) -> None:
        if operation.key is not None:
            self._answers[operation.key] = status

    def forget_keys(self) -> None:
        """Break the promise."""
        self._answers.clear()
        for operation in self.operations:
            operation.forgotten |= bool(operation.attempts)

    # The laws

    def check(self) -> None:
        for operation in self.operations:
            self._check_sendings(operation)
            for report in operation.reports:
                self._check_claims(operation, report)
                self._check_reason(operation, report)
        for origin in ORIGINS:
            mine = [each for each in self.operations if each.asked.origin == origin]
            retries = sum(max(0, len(each.attempts) - 1) for each in mine)
            assert retries <= RATIO * len(mine) + CAPACITY, "the budget was overdrawn"

    def _check_sendings(self, operation: Operation) -> None:
        kind = operation.kind
        assert len(operation.attempts) <= operation.asked.limit
        assert len({attempt.fingerprint for attempt in operation.attempts}) <= 1
        if not kind.repeatable and not kind.keyed:
            # By the network's doing it may be delivered twice, by ours never sent twice.
            assert len(set(operation.executions)) <= 1, "a duplicate write"
        if kind.keyed and not operation.forgotten:
            assert len(operation.executions) <= 1, "a duplicate write under one key"

    def _check_claims(self, operation: Operation, report: RetryReport) -> None:
        assert report.is_write == operation.kind.is_write
        ran = bool(operation.executions)
        if report.outcome is Outcome.SUCCESS:
            assert ran, "a success that never ran"
        if report.executed is True:
            assert ran, "executed, it says, and it never ran"
        if operation.kind.keyed and operation.forgotten:
            return
        if report.executed is False:
            assert not ran, "not executed, it says, and it ran"
        failed = report.outcome not in (Outcome.SUCCESS, Outcome.UNCERTAIN_WRITE)
        if failed and report.is_write:
            assert not ran, "a failure that ran"

    def _check_reason(self, operation: Operation, report: RetryReport) -> None:
        last = operation.attempts[-1] if operation.attempts else None
        unsafe = not operation.kind.repeatable and not operation.kind.keyed
        true = {
            StopReason.DONE: report.outcome is Outcome.SUCCESS,
            StopReason.MAX_ATTEMPTS: len(operation.attempts) == operation.asked.limit,
            StopReason.NOT_REPLAY_SAFE: unsafe and _may_have_been_sent(last, operation),
            StopReason.NOT_TRANSIENT: last is not None and last.worth_repeating is not True,
            StopReason.DEADLINE: operation.asked.deadline is not None,
            StopReason.BUDGET: len(operation.attempts) < operation.asked.limit,
            StopReason.CANCELLED: operation.cancelled,
        }
        assert true[report.stop_reason], report.stop_reason
        if last is not None and isinstance(last.ending, Reply):
            served = last.ending.status == 200 and not last.ending.cut
            # The deadline may still end the reading of its body.
            late = report.elapsed >= operation.ends - operation.began
            assert late or served == (report.outcome is Outcome.SUCCESS), report.outcome

    def check_at_the_end(self) -> None:
        self.check()
        for operation in self.operations:
            (report,) = operation.reports
            assert len(report.attempts) == len(operation.attempts)
        assert Counter(body.closes for body in self.bodies).keys() <= {1}


def _may_have_been_sent(attempt: Attempt | None, operation: Operation) -> bool:
    # How far an only attempt got is not looked at.
    return attempt is not None and (attempt.sent or operation.asked.limit == 1)


ACTS = ("run", "run", "fail", "run and fail", "refuse", "hold", "crash", "run and crash")


ASKED = st.builds(
    Asked,
    kind=st.sampled_from(KINDS),
    origin=st.sampled_from(ORIGINS),
    limit=st.integers(min_value=1, max_value=4),
    deadline=st.none() | st.integers(min_value=1, max_value=8).map(float),
)
POLICY = RetryPolicy(backoff=Backoff(base=1, jitter="none"), statuses={408, 429, 500, 503})


def statuses(act: str) -> st.SearchStrategy[int]:
    if act == "refuse":
        return st.sampled_from(FRONT_STATUSES + JUDGING_STATUSES)
    return st.sampled_from(AMBIGUOUS_STATUSES)


# Tasks: everything in any order -------------------------------------------------------------------


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on which time passes only when it is told to."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def turn(self) -> None:
        """Let everything happen that can happen at this instant."""
        for _ in range(40):
            self.call_soon(self.stop)
            self.run_forever()


class LoopClock(VirtualClock):
    """The clock of a loop: an async wait is one of the loop's own."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def monotonic(self) -> float:
        return self._loop.now

    async def asleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Network(httpx.AsyncBaseTransport):
    """Holds every attempt until its fate is decided."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        callback = request.extensions.get("trace")

        def trace(name: str, info: dict[str, Any]) -> None:
            if callback is not None:
                callback(name, info).close()

        attempt = self._world.attempt(request, trace)
        attempt.fate = asyncio.get_running_loop().create_future()
        try:
            fate = await attempt.fate
        except BaseException as error:
            if not attempt.sent:
                trace("connection.connect_tcp.failed", {"exception": error})
            raise
        finally:
            attempt.waiting = False
        if isinstance(fate, Exception):
            raise fate
        return self._world.response(fate)


pick = st.integers(min_value=0, max_value=50)


class Turns(RuleBasedStateMachine):
    """Client, network and server, one step at a time."""

    @initialize(faithful=st.booleans())
    def start(self, faithful: bool) -> None:
        self.faithful = faithful
        self.loop = VirtualLoop()
        self.world = World(lambda: self.loop.now)
        self.tasks: dict[Operation, asyncio.Task[None]] = {}
        self.problems: list[BaseException] = []
        transport = RetryTransport(
            Network(self.world),
            policy=POLICY,
            budget=RetryBudget(ratio=RATIO, capacity=CAPACITY),
            listeners=[self.world.told],
            clock=LoopClock(self.loop),
        )
        self.client = httpx.AsyncClient(transport=transport)

    async def _send(self, operation: Operation) -> None:
        try:
            report = get_report(await self.client.send(operation.request))
        except RetryError as error:
            report = error.report
        except httpx.ReadError:
            report = report_of_a_body_that_breaks_off(operation)
        except asyncio.CancelledError:
            assert operation.over
            raise
        operation.over = True
        assert [report] == operation.reports

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (problem := task.exception()) is not None:
            self.problems.append(problem)

    # What there is to pick from

    def _attempts(self, wanted: Callable[[Attempt], bool]) -> list[Attempt]:
        return [attempt for attempt in self.world.attempts if wanted(attempt)]

    def _connecting(self) -> list[Attempt]:
        return self._attempts(lambda each: each.waiting and not each.sent and not each.lost)

    def _sent(self) -> list[Attempt]:
        return self._attempts(lambda each: each.waiting and each.sent)

    def _deliverable(self) -> list[Attempt]:
        return self._attempts(lambda each: each.sent and not each.lost and not each.held)

    def _answered(self) -> list[Attempt]:
        return self._attempts(lambda each: each.waiting and each.reply is not None)

    def _held(self) -> list[Attempt]:
        return self._attempts(lambda each: each.held)

    def _open(self) -> list[Operation]:
        return [each for each in self.world.operations if not each.over]

    def _resolve(self, attempt: Attempt, fate: Reply | Exception) -> None:
        attempt.waiting, attempt.ending = False, fate
        assert attempt.fate is not None
        attempt.fate.set_result(fate)
        self.loop.turn()

    # The steps

    @rule(asked=ASKED)
    def begin(self, asked: Asked) -> None:
        operation = self.world.begin(asked)
        self.tasks[operation] = self.loop.create_task(self._send(operation))
        self.tasks[operation].add_done_callback(self._ended)
        self.loop.turn()

    @precondition(lambda self: self._connecting())
    @rule(which=pick, how=st.sampled_from([*NOT_SENT, None]))
    def is_never_sent(self, which: int, how: Callable[[], Exception] | None) -> None:
        attempt = one_of(self._connecting(), which)
        attempt.lost = True
        if how is None:
            self._resolve(attempt, self.world.breaks_under_the_head(attempt))
        else:
            self._resolve(attempt, how())

    @precondition(lambda self: self._connecting())
    @rule(which=pick)
    def leaves(self, which: int) -> None:
        self.world.leaves(one_of(self._connecting(), which))

    @precondition(lambda self: self._deliverable())
    @rule(which=pick, act=st.sampled_from(ACTS), data=st.data(), mark=st.booleans())
    def is_delivered(self, which: int, act: str, data: st.DataObject, mark: bool) -> None:
        status = data.draw(statuses(act))
        self.world.deliver(one_of(self._deliverable(), which), act, status, mark=mark)

    @precondition(lambda self: self._held())
    @rule(which=pick)
    def is_finished(self, which: int) -> None:
        self.world.finish(one_of(self._held(), which))

    @precondition(lambda self: self._answered())
    @rule(which=pick, cut=st.booleans())
    def is_answered(self, which: int, cut: bool) -> None:
        attempt = one_of(self._answered(), which)
        assert attempt.reply is not None
        self._resolve(attempt, replace(attempt.reply, cut=cut))

    @precondition(lambda self: self._sent())
    @rule(which=pick, error=st.sampled_from(AMBIGUOUS), lost=st.booleans())
    def breaks(self, which: int, error: Callable[[], Exception], lost: bool) -> None:
        attempt = one_of(self._sent(), which)
        attempt.lost |= lost
        self._resolve(attempt, error())

    @precondition(lambda self: self._refusable())
    @rule(which=pick, goaway=st.booleans())
    def is_refused_by_http2(self, which: int, goaway: bool) -> None:
        attempt = one_of(self._refusable(), which)
        attempt.lost = True
        self._resolve(attempt, refused_by_http2(goaway=goaway))

    def _refusable(self) -> list[Attempt]:
        return [attempt for attempt in self._sent() if not attempt.arrived]

    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0]))
    def time_passes(self, seconds: float) -> None:
        self.loop.now += seconds
        self.loop.turn()

    @precondition(lambda self: self._open())
    @rule(which=pick)
    def is_cancelled(self, which: int) -> None:
        operation = one_of(self._open(), which)
        operation.over = operation.cancelled = True
        self.tasks[operation].cancel()
        self.loop.turn()
        assert self.tasks[operation].done(), "a cancelled request went on"

    @precondition(lambda self: not self.faithful and self.world.operations)
    @rule()
    def keys_are_forgotten(self) -> None:
        self.world.forget_keys()

    # The laws

    @invariant()
    def the_laws_hold(self) -> None:
        if self.problems:
            raise self.problems[0]
        self.world.check()
        for operation in self._open():
            assert self.loop.now < operation.ends, "the deadline is over, and the request is not"

    def teardown(self) -> None:
        if not hasattr(self, "loop"):
            return
        try:
            self._settle()
            self.the_laws_hold()
            self.world.check_at_the_end()
        finally:
            for task in self.tasks.values():
                task.cancel()
            self.loop.turn()
            self.loop.close()

    def _settle(self) -> None:
        # Whatever is still under way arrives, and is done.
        for _ in range(100):
            for attempt in self._connecting():
                self.world.leaves(attempt)
            for attempt in self._held():
                self.world.finish(attempt)
            for attempt in self._deliverable():
                if not attempt.arrived or attempt.waiting:
                    self.world.deliver(attempt, "run", 200, mark=True)
            for attempt in self._sent():
                self._resolve(attempt, attempt.reply or httpx.ReadTimeout("slow"))
            if not self._open():
                return
            self.loop.now += 10
            self.loop.turn()
        raise AssertionError("a request never ended")


def report_of_a_body_that_breaks_off(operation: Operation) -> RetryReport:
    """An answer that is to be thrown away is not read first. Where the deadline or the budget then
    has it handed out after all, its body is the caller's to read.
    """
    (report,) = operation.reports
    assert report.stop_reason in (StopReason.DEADLINE, StopReason.BUDGET)
    assert report.attempts[-1].status in POLICY.statuses
    return report


def one_of(things: list[T], which: int) -> T:
    return things[which % len(things)]


# Threads: one attempt after the other -------------------------------------------------------------


class SuddenEnd(BaseException):
    """What ends a thread's work from outside: KeyboardInterrupt, a task queue's time limit."""


class Blocking(httpx.BaseTransport):
    """Decides the fate of an attempt as soon as it is sent."""

    def __init__(self, world: World, clock: VirtualClock, data: st.DataObject) -> None:
        self._world = world
        self._clock = clock
        self._data = data

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        attempt = self._world.attempt(request, request.extensions.get("trace", _untraced))
        try:
            self._is_sent(attempt)
            self._takes_time(request.extensions["timeout"]["read"])
            attempt.ending = self._ends(attempt)
        except Exception as error:
            attempt.ending = error
            raise
        finally:
            attempt.waiting = False
        return self._world.response(attempt.ending)

    def _draw(self, strategy: st.SearchStrategy[T]) -> T:
        return self._data.draw(strategy)

    def _is_sent(self, attempt: Attempt) -> None:
        fate = self._draw(st.sampled_from(["leaves"] * 8 + ["fails", "breaks", "ends"]))
        attempt.lost = fate != "leaves"
        if fate == "fails":
            raise self._draw(st.sampled_from(NOT_SENT))()
        if fate == "breaks":
            raise self._world.breaks_under_the_head(attempt)
        if fate == "ends":
            raise SuddenEnd
        self._world.leaves(attempt)
        for _ in range(self._draw(st.integers(min_value=0, max_value=2))):
            self.delivers(attempt)

    def delivers(self, attempt: Attempt) -> None:
        if not attempt.lost and not attempt.held:
            act = self._draw(st.sampled_from(ACTS))
            status, mark = self._draw(statuses(act)), self._draw(st.booleans())
            self._world.deliver(attempt, act, status, mark=mark)

    def _takes_time(self, timeout: float | None) -> None:
        seconds = self._draw(st.sampled_from([0.0, 0.0, 0.5, 3.0]))
        if timeout is not None and seconds > timeout:
            self._clock.advance(timeout)
            raise httpx.ReadTimeout("slow")
        self._clock.advance(seconds)

    def _ends(self, attempt: Attempt) -> Reply:
        if attempt.held and self._draw(st.booleans()):
            self._world.finish(attempt)
        fate = self._draw(st.sampled_from(["answer"] * 4 + ["cut", "breaks", "refused", "ends"]))
        if fate == "refused" and not attempt.arrived:
            attempt.lost = True
            raise refused_by_http2(goaway=self._draw(st.booleans()))
        if fate == "ends":
            raise SuddenEnd
        if fate in ("answer", "cut") and attempt.reply is not None:
            return replace(attempt.reply, cut=fate == "cut")
        raise self._draw(st.sampled_from(AMBIGUOUS))()


def _untraced(name: str, info: dict[str, Any]) -> None:
    pass


@settings(max_examples=300)
@given(data=st.data())
def test_the_laws_hold_in_threads(data: st.DataObject) -> None:
    clock = VirtualClock()
    world = World(clock.monotonic)
    network = Blocking(world, clock, data)
    transport = RetryTransport(
        network,
        policy=POLICY,
        budget=RetryBudget(ratio=RATIO, capacity=CAPACITY),
        listeners=[world.told],
        clock=clock,
    )
    with httpx.Client(transport=transport) as client:
        for _ in range(data.draw(st.integers(min_value=1, max_value=5))):
            operation = world.begin(data.draw(ASKED))
            request = operation.request
            cancel = request.extensions["retry"]["cancel"] = threading.Event()

            def waits(
                seconds: float,
                operation: Operation = operation,
                cancel: threading.Event = cancel,
            ) -> None:
                if data.draw(st.sampled_from([False, False, True])):
                    cancel.set()
                    operation.cancelled = True
                for attempt in world.attempts:  # late, or again
                    if data.draw(st.booleans()):
                        network.delivers(attempt)

            clock.on_sleep = waits
            try:
                report = get_report(client.send(request))
            except RetryError as error:
                report = error.report
            except httpx.ReadError:
                report = report_of_a_body_that_breaks_off(operation)
            except SuddenEnd:
                operation.cancelled = True
                (report,) = operation.reports
            operation.over = True
            assert operation.reports == [report]
            if cancel.is_set():
                assert report.outcome in (Outcome.CANCELLED, Outcome.UNCERTAIN_WRITE)
            assert clock.monotonic() <= operation.ends
            world.check()
    for attempt in world.attempts:
        network.delivers(attempt)
    world.check_at_the_end()


TestTurns = Turns.TestCase
TestTurns.settings = settings(max_examples=150, stateful_step_count=40)
