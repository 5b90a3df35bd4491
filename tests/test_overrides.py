"""`RetryOverrides` and the typed names around it: what checkers see is what the policy takes."""

from __future__ import annotations

import inspect
import re
import threading
from pathlib import Path
from typing import get_type_hints

import pytest

import httpx_safe_retry
from httpx_safe_retry import RetryOverrides, RetryPolicy, _policy
from httpx_safe_retry._policy import FIELDS, terms_for
from tests.library import httpx

USAGE = Path(__file__).parent / "typed" / "usage.py"


def test_overrides_have_the_fields_of_the_policy_and_cancel() -> None:
    assert [*RetryOverrides.__annotations__] == [*FIELDS, "cancel"]
    assert RetryOverrides.__optional_keys__ == {*FIELDS, "cancel"}


def test_overrides_have_the_types_of_the_policy() -> None:
    # The core imports its library for type checkers alone.
    names = {"httpx": httpx}
    fields = get_type_hints(RetryPolicy, globalns=vars(_policy), localns=names)
    overrides = get_type_hints(RetryOverrides, localns=names)
    assert overrides.pop("cancel") == threading.Event | None
    assert overrides == {name: fields[name] for name in FIELDS}


def test_overrides_are_a_plain_mapping_when_they_run() -> None:
    stop = threading.Event()
    retry: RetryOverrides = {"max_attempts": 2, "cancel": stop}
    terms = terms_for(RetryPolicy(), retry)
    assert (terms.policy, terms.cancel) == (RetryPolicy(max_attempts=2), stop)


def test_a_change_is_named_and_not_counted() -> None:
    signature = inspect.signature(RetryPolicy.replace)
    assert [str(parameter) for parameter in signature.parameters.values()] == [
        "self",
        "**changes: 'Unpack[PolicyChanges]'",
    ]


@pytest.mark.parametrize("name", httpx_safe_retry.__all__)
def test_the_file_for_the_type_checkers_uses_each_public_name(name: str) -> None:
    assert len(re.findall(rf"\b{name}\b", USAGE.read_text(encoding="utf-8"))) > 1


def test_a_policy_shows_what_it_changes() -> None:
    assert repr(RetryPolicy()) == "RetryPolicy()"
    changed = RetryPolicy(statuses={504, 503, 408}, deadline=2, idempotent_methods=())
    shown = "RetryPolicy(deadline=2, statuses={408, 503, 504}, idempotent_methods=frozenset())"
    assert repr(changed) == shown
    assert eval(shown) == changed
