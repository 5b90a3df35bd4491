"""What `help()` shows: names, signatures and defaults that can be read, the same in every run."""

from __future__ import annotations

import inspect
import os
import pydoc
import re
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

import httpx_safe_retry
from httpx_safe_retry import Backoff, RetryBudget, RetryPolicy, Verdict, deadline, incoming_deadline
from tests.library import RetryTransport, wrap_client

# What a user calls; the other names are what it returns, raises or is told.
CALLED = [
    Backoff,
    RetryBudget,
    RetryPolicy,
    RetryTransport,
    Verdict,
    deadline,
    incoming_deadline,
    wrap_client,
]


def text_of(member: object) -> str:
    return pydoc.plain(pydoc.render_doc(member))


def signature_of(member: Any) -> str:
    try:
        return str(inspect.signature(member))
    except ValueError:  # an exception or a dict, which says nothing about its arguments
        return ""


@pytest.mark.parametrize("name", httpx_safe_retry.__all__)
def test_help_names_what_it_is_about_as_users_import_it(name: str) -> None:
    text = text_of(getattr(httpx_safe_retry, name))
    title = text.splitlines()[0]
    assert title.endswith((" in module httpx_safe_retry", " in httpx_safe_retry"))
    signature = signature_of(getattr(httpx_safe_retry, name))
    assert "httpx_safe_retry._" not in signature
    assert " at 0x" not in signature


def test_help_is_the_same_in_every_run() -> None:
    code = (
        "import pydoc, httpx_safe_retry as package\n"
        "for name in package.__all__:\n"
        "    print(pydoc.plain(pydoc.render_doc(getattr(package, name))))\n"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1
    # Addresses differ by themselves; where they don't, they are still no words.
    assert " at 0x" not in texts.pop()


@pytest.mark.parametrize("maker", [RetryTransport, wrap_client])
def test_the_default_policy_is_shown_by_its_name(maker: Any) -> None:
    assert "RetryPolicy] = RetryPolicy()," in signature_of(maker).replace("'", "")


def test_the_defaults_of_a_policy_can_be_read_in_its_signature() -> None:
    parameters = inspect.signature(RetryPolicy).parameters
    shown = {name: repr(parameter.default) for name, parameter in parameters.items()}
    assert shown["statuses"] == "(408, 429, 502, 503, 504)"
    assert shown["refusal_statuses"] == "(429,)"
    safe = "'GET', 'HEAD', 'OPTIONS', 'TRACE', 'QUERY'"
    assert shown["idempotent_methods"] == f"({safe}, 'PUT', 'DELETE')"
    assert shown["backoff"] == "Backoff(base=0.1, factor=2.0, cap=10.0, jitter='full')"
    # What a signature shows is what a policy has.
    assert RetryPolicy(**{name: p.default for name, p in parameters.items()}) == RetryPolicy()


@pytest.mark.parametrize("member", CALLED, ids=lambda member: str(member.__name__))
def test_each_argument_is_told_of(member: Any) -> None:
    told = f"{inspect.getdoc(member)}"
    if member is wrap_client:
        assert "The other arguments are those\nof `RetryTransport`." in told
        told += f"{inspect.getdoc(RetryTransport)}"
    names = [*inspect.signature(member).parameters]
    assert [name for name in names if not re.search(rf"\b{name}\b", told)] == []


NOISE = re.compile(
    r"""
    ``                      # reStructuredText's code, Markdown's fences
    | ^\s*[:@](param|type|return|returns|rtype|raises?)\b
    | :\w+:`                # a role
    | (^|\s)\*\*\w          # bold
    | \]\(                  # a link of Markdown
    | \w`_(?!\w)            # one of reStructuredText
    | </?\w+>               # HTML
    | ^\s*(Args|Returns|Raises|Parameters|Attributes):?\s*$
    | ^\s*[-=~]{3,}\s*$     # an underlined title
    """,
    re.MULTILINE | re.VERBOSE,
)


def docstrings(module: ModuleType) -> dict[str, str]:
    """The docstrings of a module's public names, and of what they have of their own."""
    found: dict[str, str] = {module.__name__: inspect.getdoc(module) or ""}
    for name in module.__all__:
        member = getattr(module, name)
        found[name] = inspect.getdoc(member) or ""
        if isinstance(member, type):
            for part, value in vars(member).items():
                if not part.startswith("_") and (
                    inspect.isroutine(value) or "__get__" in dir(value)
                ):
                    found[f"{name}.{part}"] = inspect.getdoc(getattr(member, part)) or ""
    return found


def test_docstrings_are_read_as_they_are_written() -> None:
    texts = docstrings(httpx_safe_retry)
    assert len(texts) > len(httpx_safe_retry.__all__) + 10
    noisy = {name: NOISE.findall(text) for name, text in texts.items() if NOISE.search(text)}
    assert noisy == {}
    wide = {name for name, text in texts.items() for line in text.splitlines() if len(line) > 100}
    assert wide == set()


@pytest.mark.parametrize(
    "text",
    [
        "``code``",
        "```python",
        ":param x: y",
        ":class:`X`",
        "a **bold** word",
        "[a](link)",
        "`a`_",
        "<b>",
        "Args:",
        "Title\n=====",
    ],
)
def test_what_counts_as_noise_is_found(text: str) -> None:
    assert NOISE.search(text)
