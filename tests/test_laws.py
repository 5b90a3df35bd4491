"""The two laws, for any sequence of attempts: a write that is not replay-safe runs at most once,
and every failure but an uncertain write promises that the write did not happen.

A small world stands at the other end. It knows what really happened: each attempt is drawn with its
truth (did the server run it?) and with what the client gets to see of it. Nothing in it is taken
from the library; where it has a rule, such as that a server which honours a key runs it once and
then gives the recorded result again, it is a rule of the world.

Every choice goes through one function. Hypothesis makes the choices where a counterexample is to be
made small; a seeded generator makes them a thousand times faster, where it is to be found.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import h2.errors
import h2.events
import pytest
from hypothesis import given
from hypothesis import strategies as st

from httpx_safe_retry import (
    Backoff,
    DelaySource,
    Evidence,
    Outcome,
    RetryError,
    RetryPolicy,
    RetryReport,
    StopReason,
    Verdict,
    get_report,
)
from httpx_safe_retry._budget import Origin
from httpx_safe_retry._classify import Finding, classify_answer, classify_error
from httpx_safe_retry._decide import (
    Ending,
    Facts,
    Retry,
    Situation,
    Wish,
    decide,
    executed,
    fail,
    outcome_of,
    replay_safe,
)
from httpx_safe_retry.testing import VirtualClock
from tests.library import RetryTransport, httpcore, httpx

SAFE = {"GET", "HEAD", "OPTIONS", "TRACE", "QUERY"}
IDEMPOTENT = SAFE | {"PUT", "DELETE"}

SUCCESSES = [101, 200, 201, 204, 302, 304]
JUDGEMENTS = [400, 404, 405, 410, 412, 413, 415, 422, 424]
LAYERS = [401, 403, 407, 421, 426, 428, 429, 431, 451, 501, 505, 511]
UNCLEAR = [-1, 0, 100, 199, 408, 500, 502, 503, 504, 506, 522, 599, 600, 799]
EVERY_STATUS = [*SUCCESSES, *JUDGEMENTS, *LAYERS, *UNCLEAR, 409, 425]


def refused_stream() -> Exception:
    event = h2.events.StreamReset(stream_id=3, error_code=h2.errors.ErrorCodes.REFUSED_STREAM)
    return from_httpcore(httpx.RemoteProtocolError, event)


def gone_away(last: int) -> Exception:
    event = h2.events.ConnectionTerminated()
    event.last_stream_id = last
    return from_httpcore(httpx.RemoteProtocolError, event)


def from_httpcore(kind: type[httpx.TransportError], argument: object) -> Exception:
    error = kind("")
    error.__cause__ = httpcore.RemoteProtocolError(argument)
    return error


UNSENT: list[Callable[[], Exception]] = [
    lambda: httpx.ConnectError(""),
    lambda: httpx.ConnectTimeout(""),
    lambda: httpx.PoolTimeout(""),
    lambda: httpx.ProxyError("503 Service Unavailable"),
    lambda: httpx.ProxyError("407 Proxy Authentication Required"),
    lambda: httpx.UnsupportedProtocol(""),
    refused_stream,
    lambda: gone_away(0),
]
LOST: list[Callable[[], Exception]] = [
    lambda: httpx.ReadTimeout(""),
    lambda: httpx.WriteTimeout(""),
    lambda: httpx.ReadError(""),
    lambda: httpx.WriteError(""),
    lambda: httpx.CloseError(""),
    lambda: httpx.RemoteProtocolError(""),
    lambda: httpx.LocalProtocolError(""),
    lambda: httpx.DecodingError(""),
    lambda: httpx.TransportError(""),
    lambda: gone_away(2**31 - 1),
]


Choose = Callable[[Sequence[Any]], Any]


def drawn_from(data: st.DataObject) -> Choose:
    return lambda choices: data.draw(st.sampled_from(choices))


CHANCES = [0.0, 0.25, 0.5, 0.999, math.nextafter(1, 0)]


# The world ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """What is asked for, and on which terms."""

    method: str
    keyed: bool
    policy: RetryPolicy

    @property
    def idempotent(self) -> bool:
        declared = self.policy.idempotent
        return self.method in IDEMPOTENT if declared is None else declared

    @property
    def is_write(self) -> bool:
        return self.method not in SAFE or self.policy.idempotent is False


@dataclass(frozen=True)
class Seen:
    """What the client gets of one attempt: an answer, an error, or one after the other."""

    status: int | None = None
    error: Exception | None = None
    replayed: bool = False


class World:
    """A server with a ledger, and the layers and wires in front of it."""

    def __init__(self, choose: Choose) -> None:
        self.choose = choose
        self.case = case_of(choose)
        self.attempts = 0
        self.runs = 0
        """How often the operation was run."""
        self.ran_now = False
        """Whether the attempt under way ran it."""
        self.recorded: int | None = None
        """The result that is recorded under the key."""

    def attempt(self) -> Seen:
        """Let one attempt happen."""
        self.attempts += 1
        self.ran_now = False
        refusals = sorted(self.case.policy.refusal_statuses)
        fate = self.one_of("unsent", "a layer refuses", "lost on the way", "reached", "reached")
        if fate == "unsent":
            return Seen(error=self.choose(UNSENT)())
        if fate == "a layer refuses":
            return self.answered(self.choose([*LAYERS, *refusals]))
        if fate == "lost on the way":
            return self.unclear()
        if self.case.keyed and self.recorded is not None:
            if self.one_of(False, False, True):
                return self.answered(409)  # still running
            marked = self.one_of(False, True)
            return self.on_its_way_back(Seen(self.recorded, replayed=marked))
        return self.on_its_way_back(Seen(self.served()))

    def served(self) -> int:
        result: int = self.choose([*SUCCESSES, *JUDGEMENTS, *UNCLEAR, 409, 425])
        unclear = result in UNCLEAR and result != 408  # which a server gives for what it didn't get
        self.ran_now = result in SUCCESSES or (unclear and self.one_of(False, True))
        self.runs += self.ran_now
        # Where the policy says that such an answer is a refusal, the server holds to that.
        if result in self.case.policy.refusal_statuses and self.ran_now:
            result = 200
        # What has run is recorded before anything can be lost: that is what honouring a key means.
        if self.ran_now or self.one_of(False, True):
            self.recorded = result
        return result

    def on_its_way_back(self, seen: Seen) -> Seen:
        fate = self.one_of("whole", "whole", "whole", "body lost", "lost")
        if fate == "lost":
            return self.unclear()
        if fate == "body lost":
            assert seen.status is not None
            return self.answered(seen.status, self.choose(LOST)(), replayed=seen.replayed)
        assert seen.status is not None
        return self.answered(seen.status, replayed=seen.replayed)

    def unclear(self) -> Seen:
        honest = [status for status in UNCLEAR if status not in self.case.policy.refusal_statuses]
        if honest and self.one_of(False, True):
            return self.answered(self.choose(honest))
        return Seen(error=self.choose(LOST)())

    def answered(
        self, status: int, error: Exception | None = None, *, replayed: bool = False
    ) -> Seen:
        return Seen(status, error, replayed)

    def verdict(self) -> Verdict | None:
        """What a `classify` of the policy says: anything about what is useful, the truth about what
        happened.
        """
        truth = [Evidence.EXECUTED] if self.ran_now else [Evidence.REFUSED, Evidence.NOT_SENT]
        if self.one_of(False, False, True):
            evidence = self.choose([None, Evidence.AMBIGUOUS, *truth])
            return Verdict(transient=self.one_of(False, True), evidence=evidence)
        return None

    def one_of(self, *choices: Any) -> Any:
        return self.choose(choices)


def case_of(choose: Choose) -> Case:
    def some(*of: int) -> set[int]:
        return {one for one in of if choose([False, False, True])}

    seconds = [0.0, 0.5, 3.0, 60.0]
    policy = RetryPolicy(
        max_attempts=choose([3, 4, 6, 2, 1]),
        deadline=choose([None, None, 0.7, 5.0, 100.0]),
        min_attempt_time=choose([0.0, *seconds]),
        backoff=Backoff(
            base=choose([0.0, 0.1, 2.0]),
            cap=choose([2.0, 10.0]),
            jitter=choose(["none", "full", "equal", "decorrelated"]),
        ),
        statuses={503, *some(*EVERY_STATUS)},
        refusal_statuses=some(429, 503, 404, 409, 500, 799, 302),
        idempotent=choose([None, None, None, False, True]),
        respect_retry_after=choose([True, False]),
        retry_after_max=choose(seconds),
        retry_after_over=choose(["clamp", "stop", "backoff"]),
        retry_after_past_deadline=choose(["backoff", "stop"]),
        retry_after_jitter=choose(seconds),
    )
    method = choose(["POST", "POST", "PATCH", "PUT", "DELETE", "GET", "MADE-UP"])
    return Case(method, choose([False, True]), policy)


def check(
    world: World, outcome: Outcome, stop_reason: StopReason, known: bool | None, safe: bool
) -> None:
    """Hold what the client says against what happened."""
    case = world.case
    if not (case.idempotent or case.keyed):
        assert world.runs <= 1, "the first law"
    if case.is_write and outcome not in (Outcome.SUCCESS, Outcome.UNCERTAIN_WRITE):
        assert world.runs == 0, "the second law"
    if case.is_write and outcome is Outcome.SUCCESS:
        assert world.runs >= 1
    if known is not None:
        assert known == (world.runs > 0)
    if outcome is Outcome.UNCERTAIN_WRITE:
        assert case.is_write
        assert known is not False
    if case.idempotent or case.keyed:
        assert safe
    assert world.attempts <= case.policy.max_attempts
    assert (stop_reason is StopReason.DONE) == (outcome is Outcome.SUCCESS)
    assert (stop_reason is StopReason.NOT_REPLAY_SAFE) <= (not safe)


def check_delay(policy: RetryPolicy, delay: float, source: DelaySource, wish: Any) -> None:
    if source is DelaySource.BACKOFF:
        assert isinstance(policy.backoff, Backoff)
        assert 0 <= delay <= policy.backoff.cap
        return
    assert policy.respect_retry_after
    assert min(wish, policy.retry_after_max) <= delay
    assert delay <= policy.retry_after_max + policy.retry_after_jitter


# The core ----------------------------------------------------------------------------------------


def prove(world: World, seen: Seen, findings: list[Finding]) -> Finding:
    policy = world.case.policy
    answer = None
    if seen.status is not None:
        answer = classify_answer(
            policy,
            seen.status,
            keyed=world.case.keyed,
            replayed=seen.replayed,
            valid_retry_after=world.one_of(False, True),
            after_ambiguous=any(one.evidence is Evidence.AMBIGUOUS for one in findings),
        )
    if seen.error is None:
        assert answer is not None
        return answer.amended(world.verdict())
    # The trace may show that nothing was sent, where that is so.
    unsent = world.one_of(False, not world.ran_now)
    stream = world.one_of(None, 1, 2**31 - 1)
    finding = classify_error(policy, seen.error, never_sent=unsent, stream_id=stream, answer=answer)
    assert finding is not None
    return finding.amended(world.verdict())


def walk_through_the_core(choose: Choose) -> None:
    world = World(choose)
    case = world.case
    facts = Facts(is_write=case.is_write, idempotent=case.idempotent, keyed=case.keyed)
    findings: list[Finding] = []
    now = began = choose([0.0, 1e3, 1e9])
    deadline_at = None if case.policy.deadline is None else began + case.policy.deadline
    previous = None
    tokens = 0
    ending: Ending | None = None
    while ending is None:
        findings.append(prove(world, world.attempt(), findings))
        now += choose([0.0, 0.001, 1.0, 4.9])
        seconds = choose([None, 0.0, 1.0, 59.0, 61.0, 3600.0])
        wish = None if seconds is None else Wish(seconds, DelaySource.RETRY_AFTER)
        at = Situation(
            attempts=len(findings),
            limit=case.policy.max_attempts,
            limit_reason=StopReason.MAX_ATTEMPTS,
            now=now,
            deadline_at=deadline_at,
            obstacle=world.one_of(None, None, None, "it is gone"),
            wish=wish,
            previous_delay=previous,
        )
        decision = decide(case.policy, facts, findings, at, lambda: choose(CHANCES))
        if not isinstance(decision, Retry):
            ending = decision
        elif world.one_of(True, True, False):
            assert findings[-1].transient
            assert at.obstacle is None
            assert len(findings) < case.policy.max_attempts
            check_delay(case.policy, decision.delay, decision.source, seconds)
            now += decision.delay
            if deadline_at is not None:
                assert now + case.policy.min_attempt_time < deadline_at
            previous = decision.delay
            tokens += 1
        else:
            ending = fail(facts, findings, StopReason.BUDGET, "spent")
    known = executed(facts, findings)
    check(world, *outcome_of(ending), known, replay_safe(facts, findings))
    assert world.attempts == tokens + 1


@given(data=st.data())
def test_the_core_keeps_the_laws(data: st.DataObject) -> None:
    walk_through_the_core(drawn_from(data))


@pytest.mark.parametrize("seed", range(10))
def test_the_core_keeps_the_laws_a_thousand_times(seed: int) -> None:
    choose = random.Random(seed).choice
    for _ in range(1000):
        walk_through_the_core(choose)


@st.composite
def any_finding(draw: st.DrawFn) -> Finding:
    evidence = draw(st.sampled_from(Evidence))
    refused = evidence is Evidence.REFUSED
    return Finding(
        evidence,
        draw(st.booleans()),
        "",
        speaks_for_key=refused and draw(st.booleans()),
        answered=draw(st.booleans()),
    )


@given(
    findings=st.lists(any_finding(), max_size=6),
    idempotent=st.booleans(),
    keyed=st.booleans(),
)
def test_what_is_known_changes_only_by_what_is_learned(
    findings: list[Finding], idempotent: bool, keyed: bool
) -> None:
    facts = Facts(is_write=True, idempotent=idempotent, keyed=keyed)
    known = executed(facts, [])
    assert known is False
    for number, last in enumerate(findings, 1):
        before, known = known, executed(facts, findings[:number])
        ran, unclear = last.evidence is Evidence.EXECUTED, last.evidence is Evidence.AMBIGUOUS
        if before is True or ran:
            assert known is True  # for good
        elif unclear:
            assert known is None
        elif before is False and number > 1 and findings[number - 2].speaks_for_key:
            # The server's word on the key holds for as long as nothing is said after it.
            assert known in (False, None)
        elif before is False:
            assert known is False
        else:
            assert known is (False if keyed and last.speaks_for_key else None)
        # More attempts never make it safer to send again.
        assert replay_safe(facts, findings[:number]) <= replay_safe(facts, findings[: number - 1])
        assert replay_safe(facts, findings[:number]) or known is not False


# The whole transport -----------------------------------------------------------------------------


class Wire(httpx.BaseTransport):
    """What the world does to one attempt, as a wrapped transport shows it."""

    def __init__(self, world: World, clock: VirtualClock) -> None:
        self.world = world
        self.clock = clock

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Let one attempt happen."""
        self.clock.advance(self.world.one_of(0.0, 0.001, 1.0, 4.9))
        seen = self.world.attempt()
        if seen.status is None:
            assert seen.error is not None
            raise seen.error
        wish = self.world.one_of(None, "0", "1", "59", "61", "3600", "soon", "-1")
        headers = {"Content-Length": "2"}
        if wish is not None:
            headers["Retry-After"] = wish
        if seen.replayed:
            headers["Idempotent-Replayed"] = "true"
        # Where there is no body, none is lost.
        error = None if seen.status < 200 or seen.status in (204, 304) else seen.error
        return httpx.Response(seen.status, headers=headers, stream=Body(error))


class Body(httpx.SyncByteStream):
    """A body of two bytes, of which an error may take the second."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error

    def __iter__(self) -> Iterator[bytes]:
        yield b"o"
        if self.error is not None:
            raise self.error
        yield b"k"


class Tokens:
    """A budget that refuses when the world will have it so."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.deposits = self.taken = self.refused = 0

    def deposit(self, origin: Origin) -> None:
        """Note a first attempt."""
        self.deposits += 1

    def withdraw(self, origin: Origin) -> bool:
        """Give a token, or not."""
        assert self.refused == 0
        granted: bool = self.world.one_of(True, True, False)
        self.taken += granted
        self.refused += not granted
        return granted


def walk_through_the_transport(choose: Choose) -> None:
    world, clock = World(choose), VirtualClock()
    case = world.case
    tokens = Tokens(world)
    policy = case.policy.replace(classify=lambda request, result: world.verdict())
    headers = {"Idempotency-Key": "k"} if case.keyed else {}
    request = httpx.Request(case.method, "https://example.org/", headers=headers, content=b"pay")
    transport = RetryTransport(
        Wire(world, clock),
        policy=policy,
        budget=tokens,
        clock=clock,
        random=lambda: choose(CHANCES),
    )
    report = report_of(transport, request)
    check(world, report.outcome, report.stop_reason, report.executed, report.replay_safe)
    assert (tokens.deposits, tokens.taken) == (1, world.attempts - 1)
    assert len(report.attempts) == world.attempts
    assert (report.stop_reason is StopReason.BUDGET) == (tokens.refused == 1)
    waits = [one for one in report.attempts if one.delay is not None]
    assert [one.delay for one in waits] == clock.sleeps
    assert report.slept == pytest.approx(sum(clock.sleeps))
    for one in waits:
        assert one.delay is not None
        assert one.delay_source is not None
        check_delay(case.policy, one.delay, one.delay_source, one.retry_after)
    assert report.explain()
    if case.policy.deadline is not None and waits:
        # No wait was begun that the deadline would have ended.
        assert sum(clock.sleeps) < case.policy.deadline


def report_of(transport: RetryTransport, request: httpx.Request) -> RetryReport:
    try:
        response = transport.handle_request(request)
    except RetryError as error:
        return error.report
    assert response.read() == b"ok"
    return get_report(response)


@given(data=st.data())
def test_the_transport_keeps_the_laws(data: st.DataObject) -> None:
    walk_through_the_transport(drawn_from(data))


@pytest.mark.parametrize("seed", range(10))
def test_the_transport_keeps_the_laws_a_thousand_times(seed: int) -> None:
    choose = random.Random(seed).choice
    for _ in range(1000):
        walk_through_the_transport(choose)
