"""`RetryPolicy`: a frozen value that refuses bad input by name, and what one request overrides."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import math
import pickle
import re
import threading
from typing import Any

import pytest

from httpx_safe_retry import Backoff, RetryPolicy, StopReason, Verdict
from httpx_safe_retry._checks import check_methods
from httpx_safe_retry._policy import DEFAULT_POLICY, FIELDS, Terms, terms_for
from tests.library import httpx


def made_key() -> str:
    return "k"


def wait(retry: int) -> float:
    return 1.0


def classify(request: httpx.Request, result: httpx.Response | Exception) -> Verdict | None:
    return None


def hint(response: httpx.Response) -> float | None:
    return None


OTHER: dict[str, Any] = {
    "max_attempts": 5,
    "deadline": 2.5,
    "min_attempt_time": 0.5,
    "backoff": Backoff(base=1),
    "statuses": frozenset({503, 799}),
    "refusal_statuses": frozenset({429, 529}),
    "idempotent_methods": frozenset({"GET", "PROPFIND"}),
    "idempotent": True,
    "idempotency_headers": ("X-Key", "Y-Key"),
    "idempotency_key": made_key,
    "classify": classify,
    "respect_retry_after": False,
    "delay_hint": hint,
    "retry_after_max": 10.0,
    "retry_after_over": "stop",
    "retry_after_past_deadline": "stop",
    "retry_after_jitter": 1.5,
    "offline": True,
    **dict.fromkeys(["replay_memory", "replay_limit", "prefetch"], 1),
    "attempt_header": "X-Attempt",
    "deadline_header": "X-Deadline",
    "raise_on_failure": True,
}
"""A value for each field that is not the default one."""


# The value ---------------------------------------------------------------------------------------


def test_the_defaults_are_as_documented() -> None:
    policy = RetryPolicy()
    assert {name: getattr(policy, name) for name in FIELDS} == {
        "max_attempts": 3,
        "deadline": None,
        "min_attempt_time": 0.0,
        "backoff": Backoff(base=0.1, factor=2.0, cap=10.0, jitter="full"),
        "statuses": {408, 429, 502, 503, 504},
        "refusal_statuses": {429},
        "idempotent_methods": {"GET", "HEAD", "OPTIONS", "TRACE", "QUERY", "PUT", "DELETE"},
        "idempotent": None,
        "idempotency_headers": ("Idempotency-Key",),
        "idempotency_key": None,
        "classify": None,
        "respect_retry_after": True,
        "delay_hint": None,
        "retry_after_max": 60.0,
        "retry_after_over": "clamp",
        "retry_after_past_deadline": "backoff",
        "retry_after_jitter": 0.0,
        "offline": False,
        "replay_memory": 1024 * 1024,
        "replay_limit": 64 * 1024 * 1024,
        "prefetch": 64 * 1024,
        "attempt_header": None,
        "deadline_header": None,
        "raise_on_failure": False,
    }
    assert policy == DEFAULT_POLICY


def test_every_field_can_be_set_and_is_documented() -> None:
    assert set(OTHER) == set(FIELDS)
    policy = RetryPolicy(**OTHER)
    assert {name: getattr(policy, name) for name in FIELDS} == OTHER
    documentation = inspect.getdoc(RetryPolicy)
    assert documentation is not None
    for name in FIELDS:
        assert re.search(rf"^(\w+, )?{name}(, \w+)?: ", documentation, re.MULTILINE), name


@pytest.mark.parametrize("policy", [RetryPolicy(), RetryPolicy(**OTHER)])
def test_a_policy_is_a_value(policy: RetryPolicy) -> None:
    clones = [pickle.loads(pickle.dumps(policy, n)) for n in range(2, pickle.HIGHEST_PROTOCOL + 1)]
    for clone in (*clones, copy.copy(policy), copy.deepcopy(policy), policy.replace()):
        assert clone == policy
        assert hash(clone) == hash(policy)
        assert clone.key_names == policy.key_names


def test_a_policy_can_not_be_changed() -> None:
    policy: Any = RetryPolicy()
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.max_attempts = 5
    assert not hasattr(policy, "__dict__")


@pytest.mark.parametrize(("name", "value"), OTHER.items())
def test_a_policy_derived_from_another_differs_in_what_was_named(name: str, value: Any) -> None:
    changes = {name: value}
    policy = RetryPolicy().replace(**changes)
    assert policy == RetryPolicy(**changes) != RetryPolicy()
    changed = [one for one in FIELDS if getattr(policy, one) != getattr(DEFAULT_POLICY, one)]
    assert changed == [name]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("backoff", [wait, Backoff(base=0)]),
        ("retry_after_over", ["clamp", "stop", "backoff"]),
        ("retry_after_past_deadline", ["backoff", "stop"]),
    ],
)
def test_each_choice_can_be_made(name: str, values: list[Any]) -> None:
    for value in values:
        assert getattr(RetryPolicy().replace(**{name: value}), name) == value


def test_what_a_policy_keeps_for_itself_is_no_part_of_the_value() -> None:
    policy, other = RetryPolicy(), RetryPolicy()
    object.__setattr__(other, "key_names", frozenset())
    assert policy == other
    assert hash(policy) == hash(other)
    assert "key_names" not in repr(policy)


def test_collections_of_any_kind_are_kept_as_frozen_ones() -> None:
    statuses = [503, 503, 429]
    policy = RetryPolicy(
        statuses=statuses,
        refusal_statuses=range(429, 431),
        idempotent_methods={"get": 1},
        idempotency_headers=["A", "b"],
    )
    statuses.append(500)
    assert policy.statuses == frozenset({503, 429})
    assert policy.refusal_statuses == frozenset({429, 430})
    assert policy.idempotent_methods == frozenset({"GET"})
    assert policy.idempotency_headers == ("A", "b")
    assert policy.key_names == frozenset({b"a", b"b"})


def test_what_is_empty_stays_empty() -> None:
    policy = RetryPolicy(
        statuses=(), refusal_statuses=(), idempotent_methods=(), idempotency_headers=()
    )
    kept = [policy.statuses, policy.refusal_statuses, policy.idempotent_methods]
    assert kept == [frozenset()] * 3
    assert (policy.idempotency_headers, policy.key_names) == ((), frozenset())


@pytest.mark.parametrize("statuses", [{200}, {-1}, {0}, {99}, {522, 529, 799}, {10**9}])
def test_any_number_may_be_a_status(statuses: set[int]) -> None:
    assert RetryPolicy(statuses=statuses, refusal_statuses=statuses).statuses == statuses


# Bad values --------------------------------------------------------------------------------------

NO_NUMBERS: list[Any] = ["1", True, [1], b"1", 1j]
BYTES = ["replay_memory", "replay_limit", "prefetch"]
SECONDS = ["min_attempt_time", "retry_after_max", "retry_after_jitter", "deadline"]

WRONG_KIND: list[tuple[str, Any]] = [
    *(("max_attempts", value) for value in (*NO_NUMBERS, None, 1.0, False)),
    *((name, value) for name in SECONDS for value in NO_NUMBERS),
    *((name, None) for name in SECONDS[:3]),
    *((name, value) for name in ("statuses", "refusal_statuses") for value in (429, None)),
    *((name, value) for name in ("statuses", "refusal_statuses") for value in ("429", b"429")),
    *((name, value) for name in ("statuses", "refusal_statuses") for value in (["429"], [True])),
    ("statuses", [429, None]),
    ("statuses", [503.0]),
    *(("idempotent_methods", value) for value in ("GET", None, [b"GET"], [1], 7)),
    *(("idempotency_headers", value) for value in ("Idempotency-Key", None, [b"K"], [None])),
    *(("idempotent", value) for value in (1, 0, "yes")),
    *((name, 1) for name in ("respect_retry_after", "offline", "raise_on_failure")),
    *((name, None) for name in ("respect_retry_after", "offline", "raise_on_failure")),
    *((name, "f") for name in ("idempotency_key", "classify", "delay_hint", "backoff")),
    *((name, 0) for name in ("idempotency_key", "classify", "delay_hint", "backoff")),
    ("backoff", None),
    *((name, value) for name in BYTES for value in (*NO_NUMBERS, None)),
    *((name, value) for name in ("attempt_header", "deadline_header") for value in (b"X", 1, True)),
]

OUT_OF_RANGE: list[tuple[str, Any]] = [
    *(("max_attempts", value) for value in (0, -1)),
    *((name, value) for name in SECONDS for value in (-1, -0.1, math.nan, math.inf, 10**400)),
    ("deadline", 0),
    ("deadline", 0.0),
    *((name, -1) for name in BYTES),
    *(("retry_after_over", value) for value in ("clip", "", None, True)),
    *(("retry_after_past_deadline", value) for value in ("clamp", "", None)),
    *(("idempotency_headers", [value]) for value in ("", "a b", "a:", "a\n", "schlüssel", "a\x7f")),
    *((name, "") for name in ("attempt_header", "deadline_header")),
    *((name, "X Attempt") for name in ("attempt_header", "deadline_header")),
]


@pytest.mark.parametrize(("name", "value"), WRONG_KIND)
def test_a_value_of_the_wrong_kind_is_a_type_error_that_names_the_field(
    name: str, value: Any
) -> None:
    for make in (RetryPolicy, RetryPolicy().replace):
        with pytest.raises(TypeError, match=f"^{name} must "):
            make(**{name: value})


@pytest.mark.parametrize(("name", "value"), OUT_OF_RANGE)
def test_a_value_out_of_range_is_a_value_error_that_names_the_field(name: str, value: Any) -> None:
    for make in (RetryPolicy, RetryPolicy().replace):
        with pytest.raises(ValueError, match=f"^{name} must "):
            make(**{name: value})


def test_a_duration_out_of_range_is_told_what_the_range_is() -> None:
    with pytest.raises(ValueError, match="a finite number of seconds, above 0, not 0"):
        RetryPolicy(deadline=0)
    with pytest.raises(ValueError, match="a finite number of seconds, 0 or more, not -1"):
        RetryPolicy(min_attempt_time=-1)


def test_a_bad_backoff_names_its_own_field() -> None:
    with pytest.raises(ValueError, match=r"^backoff\.base must"):
        RetryPolicy(backoff=Backoff(base=-1))


def test_a_made_key_needs_a_header_to_go_into() -> None:
    with pytest.raises(ValueError, match="idempotency_key needs a name in idempotency_headers"):
        RetryPolicy(idempotency_key=made_key, idempotency_headers=())


def test_zero_is_a_duration_but_for_the_deadline() -> None:
    policy = RetryPolicy(min_attempt_time=0, retry_after_max=0, retry_after_jitter=0, prefetch=0)
    assert (policy.retry_after_max, policy.replay_limit) == (0, 64 * 1024 * 1024)


def test_an_unknown_field_is_a_type_error_that_lists_the_fields() -> None:
    for name in ("max_attempt", "key_names", "cancel"):
        with pytest.raises(
            TypeError, match=f"RetryPolicy has no field '{name}'; the fields are"
        ) as caught:
            RetryPolicy().replace(**dict[str, Any]({name: 1}))
        assert all(field in str(caught.value) for field in FIELDS)
    unknown: dict[str, Any] = {"max_attempt": 1}
    with pytest.raises(TypeError, match="max_attempt"):
        RetryPolicy(**unknown)


# Overrides ---------------------------------------------------------------------------------------

POLICY = RetryPolicy(max_attempts=7)


def test_none_switches_retries_off() -> None:
    terms = terms_for(POLICY, None)
    assert terms == Terms(POLICY, enabled=False)
    assert (terms.active, terms.limit, terms.limit_reason) == (False, 1, StopReason.DISABLED)


def test_a_policy_stands_in_for_the_transports_own() -> None:
    other = RetryPolicy(max_attempts=2)
    terms = terms_for(POLICY, other)
    assert terms == Terms(other)
    assert (terms.active, terms.limit, terms.limit_reason) == (True, 2, StopReason.MAX_ATTEMPTS)


def test_a_mapping_changes_the_transports_own() -> None:
    given = {"max_attempts": 2, "deadline": 1.5}
    assert terms_for(POLICY, given) == Terms(POLICY.replace(max_attempts=2, deadline=1.5))
    assert given == {"max_attempts": 2, "deadline": 1.5}
    assert terms_for(POLICY, {}).policy is POLICY


def test_a_mapping_may_bring_an_event_that_cancels_the_waits() -> None:
    event = threading.Event()
    terms = terms_for(POLICY, {"cancel": event, "max_attempts": 2})
    assert terms.cancel is event
    assert terms.limit == 2
    alone = terms_for(POLICY, {"cancel": event})
    assert (alone.cancel, alone.policy) == (event, POLICY)
    assert terms_for(POLICY, {"cancel": None}) == Terms(POLICY)


def test_under_another_layer_there_is_one_attempt() -> None:
    terms = Terms(POLICY, passive=True)
    assert (terms.active, terms.limit, terms.limit_reason) == (False, 1, StopReason.DISABLED)


@pytest.mark.parametrize("override", [False, True, 0, 3, "none", [("max_attempts", 2)], object()])
def test_an_override_of_another_kind_is_a_type_error(override: object) -> None:
    with pytest.raises(TypeError, match=r'^extensions\["retry"\] must be a RetryPolicy, a mapping'):
        terms_for(POLICY, override)


@pytest.mark.parametrize("name", ["max_attempt", "key_names", "enabled", "", 7, None])
def test_a_typo_in_an_override_lists_the_fields(name: Any) -> None:
    with pytest.raises(TypeError, match=r'^extensions\["retry"\] has no field ') as caught:
        terms_for(POLICY, {name: 1})
    assert repr(name) in str(caught.value)
    assert all(field in str(caught.value) for field in (*FIELDS, "cancel"))


def test_a_bad_value_in_an_override_names_its_field() -> None:
    with pytest.raises(ValueError, match="max_attempts must be at least 1, not 0"):
        terms_for(POLICY, {"max_attempts": 0})
    for event in (True, "event", object()):
        with pytest.raises(TypeError, match=r"^cancel must be a threading\.Event or None"):
            terms_for(POLICY, {"cancel": event})


# Arguments that are objects ----------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, object(), threading.Event, dict])
def test_an_object_without_its_methods_is_refused_by_their_names(value: object) -> None:
    check_methods("clock", threading.Event(), "wait", "set")
    with pytest.raises(TypeError, match="clock must be an object with wait, set, not"):
        check_methods("clock", value, "wait", "set")
