"""`RetryTransport` refuses what it can't work with when it is made, and names it."""

from __future__ import annotations

from typing import Any

import pytest

from httpx_safe_retry import RetryBudget, RetryPolicy
from httpx_safe_retry.testing import VirtualClock
from tests.library import RetryTransport


class Half:
    """A budget that can't be asked for a token."""

    def deposit(self, origin: object) -> None:
        raise AssertionError("nothing is sent")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("transport", object()),
        ("policy", "often"),
        ("policy", 3),
        ("budget", 1),
        ("budget", "mine"),
        ("budget", Half()),
        ("budget", RetryBudget),
        ("listeners", 1),
        ("listeners", ["log"]),
        ("clock", 5.0),
        ("clock", VirtualClock),
        ("random", 0.5),
    ],
)
def test_an_argument_of_the_wrong_kind_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"^{name} must "):
        RetryTransport(**{name: value})


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"policy": lambda request: RetryPolicy()},
        {"budget": None},
        {"budget": RetryBudget()},
        {"listeners": iter([print])},
        {"clock": VirtualClock(), "random": lambda: 0.5},
    ],
    ids=str,
)
def test_what_fits_is_taken(arguments: dict[str, Any]) -> None:
    RetryTransport(**arguments)
