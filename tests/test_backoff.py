"""The waits before a retry: bounds, formulas, distribution and what is refused."""

from __future__ import annotations

import copy
import math
import pickle
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from httpx_safe_retry._backoff import Backoff, Jitter

STRATEGIES: list[Jitter] = ["none", "full", "equal", "decorrelated"]
LARGEST_DRAW = 1 - 2**-53  # of random.random()

draws = st.floats(0, LARGEST_DRAW)
retries = st.integers(1, 10**6)
finite = st.floats(0, allow_infinity=False)


@st.composite
def backoffs(draw: st.DrawFn, jitters: list[Jitter]) -> Backoff:
    base, cap = sorted((draw(finite), draw(finite)))
    factor = draw(st.floats(1, allow_infinity=False))
    return Backoff(base, factor, cap, draw(st.sampled_from(jitters)))


def no_draw() -> float:
    raise AssertionError("no chance is needed here")


def waits(backoff: Backoff, count: int, draw: Callable[[], float]) -> list[float]:
    """One logical request's waits, each built on the one before."""
    taken: list[float] = []
    for retry in range(1, count + 1):
        taken.append(backoff.delay(retry, taken[-1] if taken else None, draw))
    return taken


# Without jitter


def test_the_wait_doubles_from_a_tenth_of_a_second_up_to_ten_seconds() -> None:
    assert waits(Backoff(jitter="none"), 9, no_draw) == [
        *(0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4),
        *(10.0, 10.0),
    ]


@given(
    base=st.floats(1e-6, 1e3),
    factor=st.floats(1, 10),
    cap=st.floats(1e3, 1e9),
    retry=st.integers(1, 300),
)
def test_the_wait_is_the_formula_of_exact_arithmetic(
    base: float, factor: float, cap: float, retry: int
) -> None:
    exact = min(Fraction(cap), Fraction(base) * Fraction(factor) ** (retry - 1))
    assert Backoff(base, factor, cap, "none").delay(retry, None, no_draw) == pytest.approx(
        float(exact), rel=1e-9
    )


@pytest.mark.parametrize("retry", [1100, 100_000, 10**18])
@pytest.mark.parametrize("factor", [2, 2.0, 1e308])
def test_no_number_of_retries_overflows(retry: int, factor: float) -> None:
    assert Backoff(0.1, factor, 60, "none").delay(retry, None, no_draw) == 60


def test_a_product_past_the_largest_float_is_cut_too() -> None:
    assert Backoff(100, 1e308, 1e300, "none").delay(2, None, no_draw) == 1e300


@pytest.mark.parametrize("retry", [1, 2, 1100, 100_000])
@pytest.mark.parametrize("jitter", STRATEGIES)
def test_a_base_of_zero_never_waits(retry: int, jitter: Jitter) -> None:
    assert Backoff(base=0, jitter=jitter).delay(retry, None, random.Random(1).random) == 0


@pytest.mark.parametrize("retry", [1, 2, 100_000])
def test_a_factor_of_one_is_a_constant_wait(retry: int) -> None:
    assert Backoff(3, 1, 10, "none").delay(retry, None, no_draw) == 3


@given(backoff=backoffs(["none"]), retry=retries, further=retries)
def test_without_jitter_a_later_retry_never_waits_less(
    backoff: Backoff, retry: int, further: int
) -> None:
    assert backoff.delay(retry, None, no_draw) <= backoff.delay(retry + further, None, no_draw)


# With jitter


@given(backoff=backoffs(STRATEGIES), retry=retries, previous=st.none() | st.floats(), draw=draws)
def test_every_wait_is_finite_and_within_the_cap(
    backoff: Backoff, retry: int, previous: float | None, draw: float
) -> None:
    assert 0 <= backoff.delay(retry, previous, lambda: draw) <= backoff.cap


@pytest.mark.parametrize(
    ("jitter", "retry", "previous", "draw", "wait"),
    [
        # d is 4 for the third retry
        ("full", 3, None, 0.0, 4),
        ("full", 3, None, 0.25, 3),
        ("full", 3, None, 0.75, 1),
        ("equal", 3, None, 0.0, 4),
        ("equal", 3, None, 0.25, 3.5),
        ("equal", 3, None, 0.75, 2.5),
        # the cap comes before the draw, so that late waits are spread as well
        ("full", 100, None, 0.75, 2.5),
        ("equal", 100, None, 0.75, 6.25),
        # between the base and three times the wait before, whatever the retry's number
        ("decorrelated", 1, None, 0.0, 3),
        ("decorrelated", 1, None, 0.75, 1.5),
        ("decorrelated", 3, 2.0, 0.0, 6),
        ("decorrelated", 9, 2.0, 0.75, 2.25),
        ("decorrelated", 3, 8.0, 0.5, 10),
        ("decorrelated", 3, 8.0, 0.75, 6.75),
        # the wait before was the server's: nothing, or longer than any of ours
        ("decorrelated", 3, 0.0, 0.75, 1),
        ("decorrelated", 3, 3600.0, 0.75, 8.25),
    ],
)
def test_each_strategy_follows_its_formula(
    jitter: Jitter, retry: int, previous: float | None, draw: float, wait: float
) -> None:
    assert Backoff(1, 2, 10, jitter).delay(retry, previous, lambda: draw) == wait


@given(
    jitter=st.sampled_from(STRATEGIES),
    base=st.floats(1e-9, 10),
    retry=retries,
    previous=st.none() | finite,
    draw=st.sampled_from([0.0, LARGEST_DRAW]) | draws,
)
def test_no_draw_makes_a_wait_of_nothing(
    jitter: Jitter, base: float, retry: int, previous: float | None, draw: float
) -> None:
    assert Backoff(base=base, jitter=jitter).delay(retry, previous, lambda: draw) > 0


def test_jitter_is_full_unless_told_otherwise() -> None:
    assert Backoff() == Backoff(0.1, 2.0, 10.0, "full")


@pytest.mark.parametrize("jitter", STRATEGIES)
def test_a_wait_takes_one_draw_at_most(jitter: Jitter) -> None:
    drawn = iter([0.5])
    Backoff(jitter=jitter).delay(3, 0.2, lambda: next(drawn))


@given(seed=st.integers())
def test_the_same_draws_make_the_same_waits(seed: int) -> None:
    for jitter in STRATEGIES:
        backoff = Backoff(jitter=jitter)
        runs = [waits(backoff, 8, random.Random(seed).random) for _ in range(2)]
        assert runs[0] == runs[1]


@pytest.mark.parametrize(
    ("jitter", "low", "high"), [("full", 0, 4), ("equal", 2, 4), ("decorrelated", 1, 6)]
)
def test_waits_are_spread_evenly_over_the_whole_range(
    jitter: Jitter, low: float, high: float
) -> None:
    draw = random.Random(20200625).random
    backoff = Backoff(1, 2, 10, jitter)
    taken = [backoff.delay(3, 2.0, draw) for _ in range(20_000)]
    assert sum(taken) / len(taken) == pytest.approx((low + high) / 2, rel=0.02)
    tenths = Counter(math.ceil((wait - low) / (high - low) * 10) for wait in taken)
    assert sorted(tenths) == list(range(1, 11))
    assert min(tenths.values()) > 1_800
    assert max(tenths.values()) < 2_200


@pytest.mark.parametrize("jitter", ["full", "equal", "decorrelated"])
def test_jitter_breaks_up_the_crowd_of_clients_that_failed_together(jitter: Jitter) -> None:
    draw = random.Random(20200625).random
    assert peak_of_1000_clients(Backoff(0.1, 2, 2, "none"), no_draw) == 1_000
    assert peak_of_1000_clients(Backoff(0.1, 2, 2, jitter), draw) < 250


def peak_of_1000_clients(backoff: Backoff, draw: Callable[[], float]) -> int:
    """The most retries that meet within the same 10 ms."""
    arrivals: Counter[int] = Counter()
    for _ in range(1_000):
        arrivals.update(int(at * 100) for at in accumulate(waits(backoff, 5, draw)))
    return max(arrivals.values())


# A strategy of the user's own


def test_a_callable_gets_the_wait_and_the_source_of_chance() -> None:
    backoff = Backoff(1, 2, 10, lambda delay, draw: delay + draw())
    assert waits(backoff, 3, lambda: 0.25) == [1.25, 2.25, 4.25]


def test_a_callable_can_not_wait_past_the_cap() -> None:
    assert Backoff(1, 2, 10, lambda delay, draw: delay * 100).delay(1, None, no_draw) == 10


@pytest.mark.parametrize("result", [0, 0.0, 7])
def test_a_callable_may_return_an_integer_or_nothing_to_wait(result: float) -> None:
    wait = Backoff(jitter=lambda delay, draw: result).delay(1, None, no_draw)
    assert wait == result
    assert type(wait) is float


@pytest.mark.parametrize(
    ("result", "error"),
    [
        (None, TypeError),
        ("1", TypeError),
        (True, TypeError),
        (-0.1, ValueError),
        (math.nan, ValueError),
        (math.inf, ValueError),
        (10**400, ValueError),
    ],
)
def test_a_callable_that_returns_no_wait_is_named(result: Any, error: type[Exception]) -> None:
    backoff = Backoff(jitter=lambda delay, draw: result)
    with pytest.raises(error, match=r"^what backoff\.jitter returns "):
        backoff.delay(1, None, no_draw)


# What is refused, and what kind of value it is


@pytest.mark.parametrize("field", ["base", "factor", "cap"])
@pytest.mark.parametrize(
    ("value", "error"),
    [
        (True, TypeError),
        ("1", TypeError),
        (None, TypeError),
        (1j, TypeError),
        (-1, ValueError),
        (math.nan, ValueError),
        (math.inf, ValueError),
        (-math.inf, ValueError),
        (10**400, ValueError),
    ],
)
def test_a_bad_number_is_refused_by_its_name(
    field: str, value: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match=rf"^backoff\.{field} "):
        Backoff(**{field: value})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"factor": 0.99}, r"backoff\.factor must be >= 1, not 0\.99"),
        ({"cap": 0.09}, r"backoff\.cap must be >= backoff\.base \(0\.1\), not 0\.09"),
        ({"base": 11}, r"backoff\.cap must be >= backoff\.base \(11\.0\), not 10\.0"),
        ({"jitter": "fuzzy"}, r"backoff\.jitter must be one of .*'full'.* not 'fuzzy'"),
    ],
)
def test_a_value_out_of_range_is_refused_with_the_range(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Backoff(**changes)


@pytest.mark.parametrize("jitter", [None, True, 0.5, ["full"]])
def test_a_jitter_that_is_neither_a_name_nor_a_callable_is_refused(jitter: Any) -> None:
    with pytest.raises(TypeError, match=r"^backoff\.jitter "):
        Backoff(jitter=jitter)


def test_the_edges_of_what_is_allowed_are_allowed() -> None:
    assert Backoff(0, 1, 0).delay(1, None, random.Random(1).random) == 0
    assert Backoff(5, 1, 5, "none").delay(1, None, no_draw) == 5


@pytest.mark.parametrize("jitter", [*STRATEGIES, max])
def test_a_backoff_is_a_value(jitter: Any) -> None:
    backoff = Backoff(1, 3, 9, jitter)
    for twin in (
        Backoff(1.0, 3.0, 9.0, jitter),
        pickle.loads(pickle.dumps(backoff)),
        copy.copy(backoff),
        copy.deepcopy(backoff),
        replace(Backoff(jitter=jitter), base=1, factor=3, cap=9),
    ):
        assert twin == backoff
        assert hash(twin) == hash(backoff)
    field = "base"
    with pytest.raises(FrozenInstanceError):
        setattr(backoff, field, 2)


def test_a_changed_backoff_is_checked_again() -> None:
    with pytest.raises(ValueError, match=r"backoff\.cap"):
        replace(Backoff(), cap=0.01)
