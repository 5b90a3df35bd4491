"""The bound of the budget: retries <= ratio x requests + capacity, exactly, for every origin."""

from __future__ import annotations

import functools
import itertools
import sys
import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from httpx_safe_retry._budget import Budget, Origin, RetryBudget

A: Origin = ("https", "a.example", None)
B: Origin = ("https", "b.example", None)


def host(number: int) -> Origin:
    return ("https", f"{number}.example", None)


def spend(budget: Budget, origin: Origin, attempts: int) -> int:
    """Ask for that many retries; how many were granted."""
    return sum(budget.withdraw(origin) for _ in range(attempts))


def earn(budget: Budget, origin: Origin, requests: int) -> None:
    for _ in range(requests):
        budget.deposit(origin)


def request(budget: Budget, origin: Origin, retries_wanted: int) -> int:
    """One logical request as the transport makes it; how many retries it got."""
    budget.deposit(origin)
    return sum(1 for _ in itertools.takewhile(budget.withdraw, [origin] * retries_wanted))


class EagerModel:
    """The definition: each deposit adds `ratio` at once, clamped, in fractions."""

    def __init__(self, ratio: str, capacity: str) -> None:
        self.ratio, self.capacity = Fraction(ratio), Fraction(capacity)
        self.tokens: dict[Origin, Fraction] = {}

    def deposit(self, origin: Origin) -> None:
        tokens = self.tokens.get(origin, self.capacity)
        self.tokens[origin] = min(self.capacity, tokens + self.ratio)

    def withdraw(self, origin: Origin) -> bool:
        tokens = self.tokens.get(origin, self.capacity)
        if tokens < 1:
            return False
        self.tokens[origin] = tokens - 1
        return True


# --- one origin -----------------------------------------------------------------------------------


def test_an_unknown_origin_has_the_whole_capacity() -> None:
    budget = RetryBudget(ratio=0.1, capacity=10)
    assert budget.tokens(A) == 10
    assert spend(budget, A, 50) == 10
    assert budget.tokens(A) == 0


def test_the_very_first_request_can_be_retried() -> None:
    assert request(RetryBudget(), A, 2) == 2


@pytest.mark.parametrize(
    ("ratio", "requests", "tokens"),
    [(0.1, 10, 1), (0.2, 5, 1), (0.05, 20, 1), (0.3, 10, 3), (0.7, 10, 7), (1e-05, 100_000, 1)],
)
def test_requests_earn_a_token_exactly_when_their_ratios_add_up_to_one(
    ratio: float, requests: int, tokens: int
) -> None:
    budget = RetryBudget(ratio=ratio, capacity=10)
    spend(budget, A, 10)
    earn(budget, A, requests - 1)
    assert spend(budget, A, 10) == tokens - 1
    earn(budget, A, 1)
    assert spend(budget, A, 10) == 1
    assert budget.tokens(A) == 0


def test_deposits_never_save_up_more_than_the_capacity() -> None:
    budget = RetryBudget(ratio=0.5, capacity=3)
    earn(budget, A, 100)
    assert spend(budget, A, 1) == 1
    earn(budget, A, 100)
    assert budget.tokens(A) == 3
    assert spend(budget, A, 100) == 3


def test_a_refused_retry_takes_nothing() -> None:
    budget = RetryBudget(ratio=0.4, capacity=1)
    spend(budget, A, 1)
    earn(budget, A, 2)
    assert not budget.withdraw(A)
    assert budget.tokens(A) == 0.8


def test_after_a_drain_healthy_traffic_earns_retries_again() -> None:
    budget = RetryBudget()
    spend(budget, A, 100)
    for _ in range(100):
        request(budget, A, 0)
    assert request(budget, A, 1) == 1


def test_without_a_ratio_the_capacity_is_all_there_ever_is() -> None:
    budget = RetryBudget(ratio=0, capacity=5)
    retries = [request(budget, A, 2) for _ in range(100)]
    assert retries == [2, 2, 1] + [0] * 97


@pytest.mark.parametrize("capacity", [0, 0.5])
def test_below_one_token_of_capacity_there_is_never_a_retry(capacity: float) -> None:
    budget = RetryBudget(ratio=1, capacity=capacity)
    assert sum(request(budget, A, 2) for _ in range(100)) == 0
    assert budget.tokens(A) == capacity


def test_requests_that_need_no_retry_change_nothing_but_their_deposits() -> None:
    budget = RetryBudget()
    spend(budget, A, 10)
    for _ in range(50):
        request(budget, A, 0)
    assert budget.tokens(A) == 5


def test_a_total_outage_is_held_to_the_bound() -> None:
    budget = RetryBudget(ratio=0.1, capacity=10)
    retries = sum(request(budget, A, 2) for _ in range(10_000))
    # The first deposit finds a full bucket.
    assert retries == 1009


def test_a_fraction_that_no_float_holds_is_kept_as_it_was_written() -> None:
    budget = RetryBudget(ratio=0.1, capacity=2.3)
    assert budget.tokens(A) == 2.3
    assert spend(budget, A, 9) == 2
    assert budget.tokens(A) == 0.3
    earn(budget, A, 7)
    assert budget.tokens(A) == 1


def test_the_smallest_and_largest_floats_do_no_harm() -> None:
    budget = RetryBudget(ratio=5e-324, capacity=sys.float_info.max)
    assert budget.withdraw(A)
    earn(budget, A, 3)
    assert 0 <= budget.tokens(A) <= sys.float_info.max


# --- several origins ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [B, ("http", "a.example", None), ("https", "a.example", 8443)],
    ids=["host", "scheme", "port"],
)
def test_an_origin_that_is_down_takes_nothing_from_another(other: Origin) -> None:
    budget = RetryBudget()
    spend(budget, A, 100)
    assert request(budget, A, 1) == 0
    assert budget.tokens(other) == 10
    assert request(budget, other, 1) == 1


operations = st.lists(
    st.tuples(st.sampled_from(["deposit", "withdraw", "tokens"]), st.integers(0, 7)), max_size=200
)
amounts = st.decimals(0, 4, places=2).map(lambda amount: str(amount.normalize()))


@given(operations, amounts, amounts)
def test_it_equals_the_definition_step_by_step(
    steps: list[tuple[str, int]], ratio: str, capacity: str
) -> None:
    budget, model = RetryBudget(float(ratio), float(capacity)), EagerModel(ratio, capacity)
    for operation, number in steps:
        origin = host(number)
        if operation == "deposit":
            budget.deposit(origin)
            model.deposit(origin)
        elif operation == "withdraw":
            assert budget.withdraw(origin) == model.withdraw(origin)
        else:
            assert budget.tokens(origin) == float(model.tokens.get(origin, model.capacity))


@given(operations, amounts, amounts, st.integers(1, 5))
def test_the_bound_holds_for_every_origin_however_many_have_to_be_forgotten(
    steps: list[tuple[str, int]], ratio: str, capacity: str, max_origins: int
) -> None:
    budget = RetryBudget(float(ratio), float(capacity), max_origins=max_origins)
    model = EagerModel(ratio, capacity)
    requests: Counter[Origin] = Counter()
    retries: Counter[Origin] = Counter()
    for operation, number in steps:
        origin = host(number)
        if operation == "deposit":
            budget.deposit(origin)
            model.deposit(origin)
            requests[origin] += 1
        elif operation == "withdraw" and budget.withdraw(origin):
            assert model.withdraw(origin), "a token that the definition does not have"
            retries[origin] += 1
        assert retries[origin] <= model.ratio * requests[origin] + model.capacity
        assert 0 <= budget.tokens(origin) <= float(model.tokens.get(origin, model.capacity))


# --- a million origins ----------------------------------------------------------------------------


def allocated(work: Callable[[], object]) -> int:
    """Bytes that are still held when the work is done."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_origins_without_a_failure_take_no_memory() -> None:
    budget = RetryBudget()

    def crawl() -> None:
        for number in range(20_000):
            budget.deposit(host(number))

    assert allocated(crawl) < 10_000


def test_failing_origins_take_no_more_memory_than_the_bound() -> None:
    budget = RetryBudget(max_origins=100)

    def crawl() -> None:
        for number in range(5_000):
            request(budget, host(number), 2)

    assert allocated(crawl) < 100_000


def test_who_drains_one_origin_after_the_other_finds_no_fresh_tokens_on_return() -> None:
    budget = RetryBudget(ratio=0, capacity=10, max_origins=8)
    retries: Counter[int] = Counter()
    for _ in range(5):
        for number in range(100):
            retries[number] += spend(budget, host(number), 20)
    assert max(retries.values()) == 10


def test_an_origin_that_earned_its_tokens_back_is_forgotten_without_a_trace() -> None:
    budget = RetryBudget(ratio=1, capacity=10, max_origins=4)
    for number in range(100):
        assert spend(budget, host(number), 10) == 10
        earn(budget, host(number), 10)
    assert all(budget.tokens(host(number)) == 10 for number in range(100))


def test_the_origins_that_owe_least_are_forgotten_first() -> None:
    budget = RetryBudget(ratio=0.01, capacity=10, max_origins=4)
    for number, spent in enumerate([10, 1, 10, 10]):
        spend(budget, host(number), spent)
    spend(budget, B, 10)
    # Forgotten, and remembered to within a 255th of the capacity, never above.
    assert 8.95 < budget.tokens(host(1)) <= 9
    # Still followed: what they earn counts.
    for number in (0, 2, 3):
        earn(budget, host(number), 100)
        assert budget.tokens(host(number)) == 1


def test_an_origin_in_the_place_of_a_forgotten_one_does_not_clear_its_debt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("httpx_safe_retry._budget._PLACES", 1)
    budget = RetryBudget(ratio=0.1, capacity=10, max_origins=1)
    spend(budget, A, 10)
    assert spend(budget, B, 10) == 0
    earn(budget, B, 100)
    assert budget.tokens(B) == 10
    assert spend(budget, host(1), 10) == 0
    assert budget.tokens(A) == 0


def test_a_forgotten_origin_earns_retries_again() -> None:
    budget = RetryBudget(ratio=0.1, capacity=10, max_origins=1)
    spend(budget, A, 10)
    spend(budget, B, 10)
    assert request(budget, A, 1) == 0
    earn(budget, A, 9)
    assert request(budget, A, 1) == 1


# --- threads --------------------------------------------------------------------------------------


@pytest.fixture
def _hasty_switches() -> Iterator[None]:
    """Threads take turns as often as the interpreter can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def in_threads(*works: Callable[[], object]) -> None:
    start = threading.Barrier(len(works))

    def run(work: Callable[[], object]) -> None:
        start.wait()
        work()

    threads = [threading.Thread(target=run, args=[work]) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.usefixtures("_hasty_switches")
def test_no_deposit_of_any_thread_is_lost() -> None:
    budget = RetryBudget(ratio=0.001, capacity=100)
    spend(budget, A, 100)
    in_threads(*[lambda: earn(budget, A, 5_000)] * 8, *[lambda: budget.tokens(A)] * 8)
    assert budget.tokens(A) == 40


@pytest.mark.usefixtures("_hasty_switches")
def test_no_token_is_granted_to_two_threads() -> None:
    budget = RetryBudget(ratio=0, capacity=5_000)
    granted: list[int] = []
    in_threads(*[lambda: granted.append(spend(budget, A, 1_000))] * 8)
    assert sum(granted) == 5_000


@pytest.mark.usefixtures("_hasty_switches")
def test_the_bound_holds_while_threads_send_to_more_origins_than_are_followed() -> None:
    budget = RetryBudget(ratio=0.1, capacity=10, max_origins=3)
    retries: list[Counter[int]] = []

    def client() -> None:
        mine: Counter[int] = Counter()
        for number in [0, 1, 2, 3, 4, 5] * 200:
            mine[number] += request(budget, host(number), 2)
            assert 0 <= budget.tokens(host(number)) <= 10
        retries.append(mine)

    in_threads(*[client] * 8)
    assert len(retries) == 8
    total = sum(retries, Counter())
    assert all(0 < total[number] <= 0.1 * 8 * 200 + 10 for number in range(6))


def finishes_while_another_thread_is_in_the_arithmetic(
    budget: RetryBudget, work: Callable[[], object], patience: float
) -> bool:
    finished = threading.Event()

    def run() -> None:
        work()
        finished.set()

    thread = threading.Thread(target=run)
    with budget._lock:
        thread.start()
        result = finished.wait(patience)
    thread.join()
    return result


def test_a_deposit_waits_for_no_lock() -> None:
    budget = RetryBudget()
    budget.withdraw(A)
    for origin in (A, B):
        deposit = functools.partial(budget.deposit, origin)
        assert finishes_while_another_thread_is_in_the_arithmetic(budget, deposit, patience=5)


def test_withdrawals_and_readings_take_turns() -> None:
    budget = RetryBudget()
    for method in (budget.withdraw, budget.tokens):
        work = functools.partial(method, A)
        assert not finishes_while_another_thread_is_in_the_arithmetic(budget, work, patience=0.05)


class _Interrupted:
    """A bucket's counter during whose reading a signal comes in."""

    def __init__(self, counter: Iterator[int], handler: Callable[[], object]) -> None:
        self._counter, self._handlers = counter, [handler]

    def __next__(self) -> int:
        seen = next(self._counter)
        while self._handlers:
            self._handlers.pop()()
        return seen


def interrupt_next_reading(
    budget: RetryBudget, origin: Origin, handler: Callable[[], object]
) -> None:
    bucket: Any = budget._buckets[origin]
    bucket.deposits = _Interrupted(bucket.deposits, handler)


def test_a_signal_handler_that_retries_in_the_middle_of_a_withdrawal_is_counted_once() -> None:
    budget = RetryBudget(ratio=0.1, capacity=10)
    spend(budget, A, 9)
    earn(budget, A, 5)
    granted: list[bool] = []
    interrupt_next_reading(budget, A, lambda: granted.append(budget.withdraw(A)))
    granted.append(budget.withdraw(A))
    assert granted == [True, False]
    assert budget.tokens(A) == 0.5


def test_a_signal_handler_that_takes_the_last_token_during_a_reading_leaves_none() -> None:
    budget = RetryBudget(ratio=0.1, capacity=10)
    spend(budget, A, 9)
    interrupt_next_reading(budget, A, lambda: budget.withdraw(A))
    assert budget.tokens(A) == 0


# --- how it is made -------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["ratio", "capacity"])
@pytest.mark.parametrize("value", [True, "1", None, 1j, Fraction(1, 2)])
def test_an_amount_of_the_wrong_type_is_refused_by_name(field: str, value: object) -> None:
    arguments: dict[str, object] = {field: value}
    with pytest.raises(TypeError, match=rf"budget\.{field} must be a number .* not "):
        RetryBudget(**arguments)  # type: ignore[arg-type]  # the wrong type is the point


@pytest.mark.parametrize("field", ["ratio", "capacity"])
@pytest.mark.parametrize("value", [-1, -0.1, float("nan"), float("inf"), -float("inf")])
def test_an_amount_out_of_range_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"budget\.{field} must be finite and >= 0, not "):
        RetryBudget(**{field: value})  # type: ignore[arg-type]  # mypy also tries max_origins


@pytest.mark.parametrize("field", ["ratio", "capacity"])
def test_an_integer_beyond_all_floats_is_refused_by_name(field: str) -> None:
    with pytest.raises(ValueError, match=rf"budget\.{field} is too large"):
        RetryBudget(**{field: 10**5000})


@pytest.mark.parametrize("value", [True, 10.0, "10", None])
def test_a_number_of_origins_of_the_wrong_type_is_refused_by_name(value: object) -> None:
    with pytest.raises(TypeError, match=r"budget\.max_origins must be an int, not "):
        RetryBudget(max_origins=value)  # type: ignore[arg-type]  # the wrong type is the point


@pytest.mark.parametrize("value", [0, -1])
def test_fewer_origins_than_one_are_refused_by_name(value: int) -> None:
    with pytest.raises(ValueError, match=r"budget\.max_origins must be >= 1, not "):
        RetryBudget(max_origins=value)


def test_a_float_whose_class_prints_itself_in_its_own_way_is_a_float() -> None:
    class Celsius(float):
        def __repr__(self) -> str:
            return f"{float(self)} degrees"

    budget = RetryBudget(ratio=Celsius(0.5), capacity=Celsius(1.5))
    assert budget.tokens(A) == 1.5


def test_it_shows_its_settings() -> None:
    budget = RetryBudget(ratio=0.25, capacity=7, max_origins=99)
    assert (budget.ratio, budget.capacity, budget.max_origins) == (0.25, 7, 99)
    assert repr(budget) == "RetryBudget(ratio=0.25, capacity=7, max_origins=99)"


def test_the_defaults_are_those_that_are_documented() -> None:
    assert repr(RetryBudget()) == "RetryBudget(ratio=0.1, capacity=10, max_origins=1024)"
