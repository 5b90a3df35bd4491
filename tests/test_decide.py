"""What happens after an attempt: every rung of the ladder, and the order that they stand in."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from httpx_safe_retry import Backoff, DelaySource, Evidence, Outcome, RetryPolicy, StopReason
from httpx_safe_retry._classify import Finding
from httpx_safe_retry._decide import (
    Decision,
    Facts,
    FailExhausted,
    FailPermanent,
    FailUncertainWrite,
    Retry,
    Situation,
    Succeed,
    Wish,
    decide,
    executed,
    fail,
    outcome_of,
    replay_safe,
)

READ = Facts(is_write=False, idempotent=True, keyed=False)
POST = Facts(is_write=True, idempotent=False, keyed=False)
PUT = Facts(is_write=True, idempotent=True, keyed=False)
KEYED = Facts(is_write=True, idempotent=False, keyed=True)
EVERY_KIND = [READ, POST, PUT, KEYED, replace(READ, idempotent=False), replace(PUT, keyed=True)]

DONE = Finding(Evidence.EXECUTED, False, "done", answered=True)
LOST = Finding(Evidence.EXECUTED, True, "answered, then lost")
NOT_READY = Finding(Evidence.EXECUTED, True, "not ready", answered=True)
REFUSED = Finding(Evidence.REFUSED, True, "refused", answered=True)
NOT_SENT = Finding(Evidence.NOT_SENT, True, "not sent")
UNKNOWN = Finding(Evidence.AMBIGUOUS, True, "unknown")
BAD = Finding(Evidence.REFUSED, False, "bad", answered=True)
WORD_ON_KEY = replace(BAD, speaks_for_key=True)
BROKEN = Finding(Evidence.AMBIGUOUS, False, "broken")

POLICY = RetryPolicy(backoff=Backoff(base=1, factor=2, cap=60, jitter="none"))
START = Situation(
    attempts=1, limit=3, limit_reason=StopReason.MAX_ATTEMPTS, now=100.0, deadline_at=None
)


class Dice:
    """Draws the same number every time, and counts."""

    def __init__(self, value: float = 0.5) -> None:
        self.value = value
        self.draws = 0

    def __call__(self) -> float:
        self.draws += 1
        return self.value


def after(
    *findings: Finding,
    facts: Facts = PUT,
    policy: RetryPolicy = POLICY,
    at: Situation = START,
    random: Callable[[], float] = lambda: 0.5,
) -> Decision:
    situation = replace(at, attempts=max(at.attempts, len(findings)))
    return decide(policy, facts, findings, situation, random)


def stop_of(decision: Decision) -> StopReason:
    assert not isinstance(decision, Retry), decision
    return outcome_of(decision)[1]


# The rungs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("facts", EVERY_KIND)
def test_a_success_is_done(facts: Facts) -> None:
    assert after(DONE, facts=facts) == Succeed("done")


def test_an_executed_request_without_an_answer_to_hand_out_is_no_success() -> None:
    lost = replace(DONE, answered=False)
    expected = FailUncertainWrite(StopReason.NOT_TRANSIENT, "done")
    assert after(lost, facts=POST) == after(lost, facts=KEYED) == expected
    assert after(lost, facts=READ) == FailPermanent("done")


@pytest.mark.parametrize("facts", EVERY_KIND)
def test_what_is_not_transient_is_not_sent_again(facts: Facts) -> None:
    assert after(BAD, facts=facts) == FailPermanent("bad")
    assert after(NOT_SENT, REFUSED, BAD, facts=facts) == FailPermanent("bad")


@pytest.mark.parametrize("earlier", [0, 1, 2])
@pytest.mark.parametrize("finding", [UNKNOWN, LOST, NOT_READY])
def test_a_write_that_may_have_run_is_not_sent_again(finding: Finding, earlier: int) -> None:
    decision = after(*[REFUSED] * earlier, finding, facts=POST)
    assert isinstance(decision, FailUncertainWrite)
    assert decision.stop_reason is StopReason.NOT_REPLAY_SAFE
    assert decision.reason.endswith("not safe to send again")


def test_a_write_that_provably_did_not_run_is_sent_again() -> None:
    assert isinstance(after(REFUSED, facts=POST), Retry)
    assert isinstance(after(NOT_SENT, facts=POST), Retry)
    assert isinstance(after(REFUSED, NOT_SENT, facts=POST), Retry)


def test_one_attempt_that_may_have_run_is_enough_however_many_did_not() -> None:
    decision = after(NOT_SENT, UNKNOWN, REFUSED, facts=POST)
    assert stop_of(decision) is StopReason.NOT_REPLAY_SAFE


@pytest.mark.parametrize("facts", [READ, PUT, KEYED])
@pytest.mark.parametrize("finding", [UNKNOWN, LOST, NOT_READY, REFUSED, NOT_SENT])
def test_what_is_replay_safe_is_sent_again(facts: Facts, finding: Finding) -> None:
    assert isinstance(after(finding, facts=facts), Retry)


def test_a_read_that_must_not_be_repeated_is_not_called_an_uncertain_write() -> None:
    decision = after(UNKNOWN, facts=replace(READ, idempotent=False))
    assert isinstance(decision, FailExhausted)
    assert decision.stop_reason is StopReason.NOT_REPLAY_SAFE


def test_a_body_that_is_gone_ends_it_and_the_reason_says_how() -> None:
    at = replace(START, obstacle="the generator is used up")
    decision = after(REFUSED, at=at)
    expected = FailExhausted(StopReason.BODY_NOT_REPLAYABLE, "refused: the generator is used up")
    assert decision == expected


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_there_are_as_many_attempts_as_agreed(limit: int) -> None:
    at = replace(START, limit=limit)
    for number in range(1, limit):
        assert isinstance(after(REFUSED, at=replace(at, attempts=number)), Retry)
    decision = after(REFUSED, at=replace(at, attempts=limit))
    reason = f"refused: attempt {limit} of {limit}"
    assert decision == FailExhausted(StopReason.MAX_ATTEMPTS, reason)


def test_the_limit_has_a_reason_of_its_own() -> None:
    at = replace(START, limit=1, limit_reason=StopReason.DISABLED)
    assert stop_of(after(REFUSED, at=at)) is StopReason.DISABLED


# The order ---------------------------------------------------------------------------------------

ONE_HOUR = Wish(3600.0, DelaySource.RETRY_AFTER)
STRICT = POLICY.replace(retry_after_over="stop")

RUNGS: list[tuple[StopReason, dict[str, Any]]] = [
    (StopReason.NOT_TRANSIENT, {"transient": False}),
    (StopReason.NOT_REPLAY_SAFE, {"facts": POST}),
    (StopReason.BODY_NOT_REPLAYABLE, {"obstacle": "it is gone"}),
    (StopReason.MAX_ATTEMPTS, {"limit": 1}),
    (StopReason.RETRY_AFTER, {"wish": ONE_HOUR}),
    (StopReason.DEADLINE, {"deadline_at": 100.5}),
]


def with_refusals(refusals: Sequence[tuple[StopReason, dict[str, Any]]]) -> Decision:
    changes = {name: value for _, change in refusals for name, value in change.items()}
    facts = changes.pop("facts", PUT)
    finding = replace(UNKNOWN, transient=changes.pop("transient", True))
    return after(finding, facts=facts, policy=STRICT, at=replace(START, **changes))


def test_if_no_rung_says_no_it_is_sent_again() -> None:
    assert isinstance(with_refusals([]), Retry)


@pytest.mark.parametrize(
    "refusals",
    [
        combination
        for size in range(1, len(RUNGS) + 1)
        for combination in itertools.combinations(RUNGS, size)
    ],
    ids=lambda refusals: "+".join(reason for reason, _ in refusals),
)
def test_the_first_rung_that_says_no_names_the_reason(
    refusals: Sequence[tuple[StopReason, dict[str, Any]]],
) -> None:
    assert stop_of(with_refusals(refusals)) is refusals[0][0]


# The delay ---------------------------------------------------------------------------------------


def wish(seconds: float, source: DelaySource = DelaySource.RETRY_AFTER) -> Situation:
    return replace(START, wish=Wish(seconds, source))


def test_without_a_wish_the_backoff_chooses() -> None:
    waits = [after(REFUSED, at=replace(START, limit=9, attempts=number)) for number in (1, 2, 3)]
    assert waits == [Retry(seconds, DelaySource.BACKOFF, "refused") for seconds in (1.0, 2.0, 4.0)]


@pytest.mark.parametrize("source", [DelaySource.RETRY_AFTER, DelaySource.DELAY_HINT])
@pytest.mark.parametrize("seconds", [0.0, 0.01, 7.0, 60.0])
def test_the_servers_wish_replaces_the_backoff(seconds: float, source: DelaySource) -> None:
    assert after(REFUSED, at=wish(seconds, source)) == Retry(seconds, source, "refused")


def test_a_wish_that_is_an_anomaly_leaves_the_backoff() -> None:
    at = replace(START, wish=Wish(None, DelaySource.RETRY_AFTER, "malformed"))
    assert after(REFUSED, at=at) == Retry(1.0, DelaySource.BACKOFF, "refused")


def test_a_policy_can_disregard_retry_after_but_its_own_hint_counts() -> None:
    policy = POLICY.replace(respect_retry_after=False, retry_after_over="stop")
    assert after(REFUSED, policy=policy, at=wish(7)) == Retry(1.0, DelaySource.BACKOFF, "refused")
    assert isinstance(after(REFUSED, policy=policy, at=wish(3600)), Retry)
    hinted = after(REFUSED, policy=policy, at=wish(7, DelaySource.DELAY_HINT))
    assert hinted == Retry(7.0, DelaySource.DELAY_HINT, "refused")


ASKED = "refused, which asked for 3600 s, more than 60 s"


@pytest.mark.parametrize(
    ("over", "expected"),
    [
        ("clamp", Retry(60.0, DelaySource.RETRY_AFTER, ASKED)),
        ("backoff", Retry(1.0, DelaySource.BACKOFF, ASKED)),
        (
            "stop",
            FailExhausted(StopReason.RETRY_AFTER, "refused: it asks for 3600 s, more than 60 s"),
        ),
    ],
)
def test_a_wish_over_the_maximum_is_clamped_dropped_or_the_end(
    over: Any, expected: Decision
) -> None:
    policy = POLICY.replace(retry_after_over=over)
    assert after(REFUSED, policy=policy, at=wish(3600)) == expected
    assert after(REFUSED, policy=policy, at=wish(60)) == Retry(
        60.0, DelaySource.RETRY_AFTER, "refused"
    )


def test_a_wish_over_a_maximum_of_zero_is_clamped_to_no_wait() -> None:
    decision = after(REFUSED, policy=POLICY.replace(retry_after_max=0), at=wish(5))
    assert decision == Retry(
        0.0, DelaySource.RETRY_AFTER, "refused, which asked for 5 s, more than 0 s"
    )


def test_a_wish_past_the_deadline_leaves_the_backoff_or_is_the_end() -> None:
    at = replace(wish(10), deadline_at=105.0)
    asked = "refused, which asked for 10 s, past the deadline"
    assert after(REFUSED, at=at) == Retry(1.0, DelaySource.BACKOFF, asked)
    stop = POLICY.replace(retry_after_past_deadline="stop")
    assert after(REFUSED, policy=stop, at=at) == FailExhausted(
        StopReason.DEADLINE, "refused: a wait of 10 s does not fit the 5 s left"
    )


def test_a_clamped_wish_past_the_deadline_is_told_as_the_server_wrote_it() -> None:
    at = replace(wish(3600), deadline_at=130.0)
    assert after(REFUSED, at=at) == Retry(1.0, DelaySource.BACKOFF, ASKED)


# Does it fit? ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deadline_at", "min_attempt_time", "fits"),
    [
        (None, 0.0, True),
        (None, 1e9, True),
        (math.inf, 1e9, True),
        (101.5, 0.0, True),
        (101.0, 0.0, False),
        (100.5, 0.0, False),
        (103.5, 2.0, True),
        (103.0, 2.0, False),
        (99.0, 0.0, False),
        (-math.inf, 0.0, False),
    ],
)
def test_the_next_attempt_has_to_start_before_the_deadline(
    deadline_at: float | None, min_attempt_time: float, fits: bool
) -> None:
    policy = POLICY.replace(min_attempt_time=min_attempt_time)
    decision = after(REFUSED, policy=policy, at=replace(START, deadline_at=deadline_at))
    if fits:
        assert isinstance(decision, Retry)
    else:
        assert stop_of(decision) is StopReason.DEADLINE


def test_no_wait_fits_into_no_time() -> None:
    at = replace(wish(0), deadline_at=100.0)
    policy = POLICY.replace(backoff=lambda retry: 0)
    assert stop_of(after(REFUSED, policy=policy, at=at)) is StopReason.DEADLINE


def test_the_reason_tells_how_much_was_left() -> None:
    policy = POLICY.replace(min_attempt_time=4.5)
    decision = after(REFUSED, policy=policy, at=replace(START, deadline_at=105.0))
    assert isinstance(decision, FailExhausted)
    assert decision.reason == (
        "refused: a wait of 1 s does not fit the 5 s left, 4.5 s of which are kept for the attempt"
    )
    late = after(REFUSED, at=replace(START, deadline_at=90.0))
    assert isinstance(late, FailExhausted)
    assert late.reason == "refused: a wait of 1 s does not fit the 0 s left"


# Chance ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jitter", ["full", "equal", "decorrelated"])
def test_one_draw_is_taken_for_one_retry(jitter: Any) -> None:
    dice = Dice()
    policy = RetryPolicy(backoff=Backoff(base=1, jitter=jitter))
    assert isinstance(after(REFUSED, policy=policy, random=dice), Retry)
    assert dice.draws == 1


def test_nothing_is_drawn_where_nothing_is_left_to_chance() -> None:
    dice = Dice()
    after(REFUSED, random=dice)
    full = RetryPolicy()
    after(REFUSED, policy=full, at=wish(5), random=dice)
    for refusals in RUNGS[:5]:
        with_refusals([refusals])
    after(UNKNOWN, facts=POST, policy=full, random=dice)
    after(BAD, policy=full, random=dice)
    after(DONE, policy=full, random=dice)
    assert dice.draws == 0


@pytest.mark.parametrize(("draw", "delay"), [(0.0, 10.0), (0.25, 10.5), (0.999, 11.998)])
def test_jitter_comes_on_top_of_what_the_server_asked_for(draw: float, delay: float) -> None:
    dice = Dice(draw)
    policy = POLICY.replace(retry_after_jitter=2)
    decision = after(REFUSED, policy=policy, at=wish(10), random=dice)
    assert decision == Retry(delay, DelaySource.RETRY_AFTER, "refused")
    assert dice.draws == 1


def test_jitter_comes_on_top_of_a_clamped_wish_too() -> None:
    policy = POLICY.replace(retry_after_jitter=2)
    decision = after(REFUSED, policy=policy, at=wish(3600), random=Dice(0.5))
    assert isinstance(decision, Retry)
    assert decision.delay == 61.0


def test_jitter_is_no_part_of_the_backoff_that_replaces_a_wish() -> None:
    policy = POLICY.replace(retry_after_jitter=2, retry_after_over="backoff")
    decision = after(REFUSED, policy=policy, at=wish(3600), random=Dice(0.5))
    assert isinstance(decision, Retry)
    assert decision.delay == 1.0


@pytest.mark.parametrize(
    ("draw", "delay"), [(0.0, 10.0), (0.5, 10.5), (math.nextafter(1, 0), 10.0)]
)
def test_jitter_breaks_neither_the_deadline_nor_the_wish(draw: float, delay: float) -> None:
    policy = POLICY.replace(retry_after_jitter=1000, min_attempt_time=1)
    at = replace(wish(10), deadline_at=112.0)
    decision = after(REFUSED, policy=policy, at=at, random=Dice(draw))
    assert decision == Retry(delay, DelaySource.RETRY_AFTER, "refused")


def test_rounding_never_takes_jitter_below_the_wish() -> None:
    # 2.1 + 2.5 + 1.6 fits into 6.2 by one bit; 6.2 - 2.1 - 2.5 - 1.6 is less than nothing.
    at = replace(wish(2.5), now=2.1, deadline_at=6.2)
    policy = POLICY.replace(retry_after_jitter=5, min_attempt_time=1.6)
    decision = after(REFUSED, policy=policy, at=at, random=Dice(math.nextafter(1, 0)))
    assert decision == Retry(2.5, DelaySource.RETRY_AFTER, "refused")


# A backoff of the policy's own -------------------------------------------------------------------


def test_a_backoff_may_be_any_callable_from_the_number_of_the_retry() -> None:
    asked: list[int] = []

    def backoff(retry: int) -> float:
        asked.append(retry)
        return retry * 10

    policy = POLICY.replace(backoff=backoff)
    for number in (1, 2):
        decision = after(REFUSED, policy=policy, at=replace(START, attempts=number))
        assert decision == Retry(number * 10.0, DelaySource.BACKOFF, "refused")
    assert asked == [1, 2]


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, 10**400])
def test_a_backoff_out_of_range_is_refused_by_name(value: Any) -> None:
    policy = POLICY.replace(backoff=lambda retry: value)
    with pytest.raises(ValueError, match="what backoff returns must be a finite number of seconds"):
        after(REFUSED, policy=policy)


@pytest.mark.parametrize("value", [None, "1", True, [1]])
def test_a_backoff_of_the_wrong_kind_is_refused_by_name(value: Any) -> None:
    policy = POLICY.replace(backoff=lambda retry: value)
    with pytest.raises(TypeError, match="what backoff returns must be a number of seconds"):
        after(REFUSED, policy=policy)


def test_decorrelated_jitter_builds_on_the_wait_before() -> None:
    policy = RetryPolicy(backoff=Backoff(base=1, cap=100, jitter="decorrelated"))
    at = replace(START, attempts=2, previous_delay=10.0)
    decision = after(REFUSED, policy=policy, at=at, random=Dice(0.0))
    assert isinstance(decision, Retry)
    assert decision.delay == 30.0


# What is known -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "findings", "expected"),
    [
        # Nothing was sent yet, or nothing of it was run.
        (POST, [], False),
        (KEYED, [], False),
        (POST, [REFUSED, NOT_SENT, BAD], False),
        (KEYED, [REFUSED, BAD], False),
        # A success, now or earlier: a later answer doesn't undo it.
        (POST, [DONE], True),
        (PUT, [UNKNOWN, DONE], True),
        (PUT, [LOST, UNKNOWN], True),
        (PUT, [LOST, BAD], True),
        (KEYED, [LOST, WORD_ON_KEY], True),
        # One attempt that may have run makes it unknown for good.
        (POST, [UNKNOWN], None),
        (PUT, [UNKNOWN, REFUSED], None),
        (PUT, [UNKNOWN, BAD], None),
        (PUT, [UNKNOWN, WORD_ON_KEY], None),
        (PUT, [NOT_SENT, UNKNOWN, NOT_SENT], None),
        (PUT, [BROKEN], None),
        # But for the server's word on the key, as long as it is the last.
        (KEYED, [UNKNOWN, WORD_ON_KEY], False),
        (KEYED, [UNKNOWN, UNKNOWN, WORD_ON_KEY], False),
        (KEYED, [UNKNOWN, BAD], None),
        (KEYED, [UNKNOWN, WORD_ON_KEY, REFUSED], None),
        (KEYED, [UNKNOWN, WORD_ON_KEY, UNKNOWN], None),
        # That the method is idempotent besides takes nothing from the key: a DELETE, then 404.
        (replace(PUT, keyed=True), [UNKNOWN, WORD_ON_KEY], False),
    ],
)
def test_what_is_known_of_a_write(
    facts: Facts, findings: list[Finding], expected: bool | None
) -> None:
    assert executed(facts, findings) is expected


@pytest.mark.parametrize(
    ("facts", "findings", "expected"),
    [
        (POST, [], True),
        (POST, [REFUSED, NOT_SENT], True),
        (POST, [UNKNOWN], False),
        (POST, [DONE], False),
        (POST, [LOST, REFUSED], False),
        (PUT, [UNKNOWN], True),
        (KEYED, [UNKNOWN], True),
        (KEYED, [DONE], True),
        (READ, [UNKNOWN], True),
    ],
)
def test_what_is_replay_safe(facts: Facts, findings: list[Finding], expected: bool) -> None:
    assert replay_safe(facts, findings) is expected


@pytest.mark.parametrize("stop_reason", StopReason)
def test_uncertainty_wins_over_every_limit(stop_reason: StopReason) -> None:
    for facts in (POST, PUT, KEYED):
        for findings in ([UNKNOWN], [LOST], [UNKNOWN, REFUSED], [BROKEN]):
            assert fail(facts, findings, stop_reason, "why") == FailUncertainWrite(
                stop_reason, "why"
            )


@pytest.mark.parametrize("findings", [[], [REFUSED], [NOT_SENT, BAD]])
def test_what_did_not_happen_fails_by_its_limit(findings: list[Finding]) -> None:
    assert fail(POST, findings, StopReason.BUDGET, "why") == FailExhausted(StopReason.BUDGET, "why")
    assert fail(POST, findings, StopReason.NOT_TRANSIENT, "why") == FailPermanent("why")


def test_a_read_is_never_uncertain() -> None:
    for findings in ([UNKNOWN], [LOST], [BROKEN]):
        assert fail(READ, findings, StopReason.MAX_ATTEMPTS, "why") == FailExhausted(
            StopReason.MAX_ATTEMPTS, "why"
        )


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        (Succeed(""), (Outcome.SUCCESS, StopReason.DONE)),
        (FailPermanent(""), (Outcome.PERMANENT_FAILURE, StopReason.NOT_TRANSIENT)),
        *(
            (FailUncertainWrite(reason, ""), (Outcome.UNCERTAIN_WRITE, reason))
            for reason in StopReason
        ),
        (
            FailExhausted(StopReason.DEADLINE, ""),
            (Outcome.DEADLINE_EXCEEDED, StopReason.DEADLINE),
        ),
        (FailExhausted(StopReason.CANCELLED, ""), (Outcome.CANCELLED, StopReason.CANCELLED)),
        *(
            (FailExhausted(reason, ""), (Outcome.EXHAUSTED, reason))
            for reason in StopReason
            if reason not in (StopReason.DEADLINE, StopReason.CANCELLED)
        ),
    ],
)
def test_an_ending_has_an_outcome(ending: Any, expected: tuple[Outcome, StopReason]) -> None:
    assert outcome_of(ending) == expected
