"""What a request is before it is sent: by method, by declaration, by key."""

from __future__ import annotations

from typing import Any

import pytest

from httpx_safe_retry import RetryPolicy
from httpx_safe_retry._decide import Facts
from httpx_safe_retry._facts import facts_of, needs_evidence, usable_key
from httpx_safe_retry._frozen import FrozenRequest
from httpx_safe_retry._policy import Terms
from tests.library import httpx

POLICY = RetryPolicy()


def frozen(method: str, **headers: str) -> FrozenRequest:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return FrozenRequest(httpx.Request(method, "https://example.org/", headers=named))


def facts(method: str, policy: RetryPolicy = POLICY, /, **headers: str) -> Facts:
    return facts_of(frozen(method, **headers), policy, None)


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "TRACE", "QUERY", "get"])
def test_a_safe_method_is_no_write_and_idempotent(method: str) -> None:
    assert facts(method) == Facts(is_write=False, idempotent=True, keyed=False)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "delete"])
def test_an_idempotent_method_is_a_write(method: str) -> None:
    assert facts(method) == Facts(is_write=True, idempotent=True, keyed=False)


@pytest.mark.parametrize("method", ["POST", "PATCH", "CONNECT", "PROPFIND", "MADE-UP", "GETS", ""])
def test_every_other_method_is_a_write_that_counts(method: str) -> None:
    assert facts(method) == Facts(is_write=True, idempotent=False, keyed=False)


@pytest.mark.parametrize("method", ["GET", "PUT", "POST", "MADE-UP"])
@pytest.mark.parametrize("declared", [False, True])
def test_what_is_declared_stands_above_the_method(method: str, declared: bool) -> None:
    found = facts(method, POLICY.replace(idempotent=declared))
    assert found.idempotent is declared
    # A read that must not be repeated changes something.
    assert found.is_write == (method != "GET" or not declared)


def test_methods_can_be_declared_idempotent_and_none_at_all() -> None:
    assert facts("propfind", POLICY.replace(idempotent_methods=["PropFind"])).idempotent
    assert not facts("GET", POLICY.replace(idempotent_methods=())).idempotent
    assert not facts("GET", POLICY.replace(idempotent_methods=())).is_write


@pytest.mark.parametrize(
    ("headers", "keyed"),
    [
        ({}, False),
        ({"Idempotency_Key": "k"}, True),
        ({"idempotency_key": "k"}, True),
        ({"IDEMPOTENCY_KEY": "k"}, True),
        ({"Idempotency_Key": ""}, False),
        ({"Idempotency_Key": " \t "}, False),
        ({"X_Idempotency_Key": "k"}, False),
    ],
)
@pytest.mark.parametrize("method", ["POST", "DELETE", "GET"])
def test_a_key_that_is_not_blank_makes_it_keyed(
    method: str, headers: dict[str, str], keyed: bool
) -> None:
    assert facts(method, POLICY, **headers).keyed is keyed


def test_the_names_of_the_key_are_the_policys() -> None:
    policy = POLICY.replace(idempotency_headers=["X-Request-Id", "PayPal-Request-Id"])
    assert facts("POST", policy, x_request_id="k").keyed
    assert facts("POST", policy, PAYPAL_REQUEST_ID="k").keyed
    assert not facts("POST", policy, Idempotency_Key="k").keyed
    assert not facts("POST", POLICY.replace(idempotency_headers=()), Idempotency_Key="k").keyed


def test_a_key_that_the_policy_made_is_a_key() -> None:
    assert facts_of(frozen("POST"), POLICY, "made").keyed


@pytest.mark.parametrize(
    ("method", "changes", "headers", "needed"),
    [
        ("POST", {}, {}, True),
        ("MADE-UP", {}, {}, True),
        ("GET", {"idempotent": False}, {}, True),
        ("GET", {}, {}, False),
        ("PUT", {}, {}, False),
        ("POST", {"idempotent": True}, {}, False),
        ("POST", {}, {"Idempotency_Key": "k"}, False),
        ("POST", {}, {"Idempotency_Key": " "}, True),
        ("POST", {"max_attempts": 1}, {}, False),
        ("CONNECT", {}, {}, False),
    ],
)
def test_the_trace_is_followed_only_where_it_can_change_a_decision(
    method: str, changes: dict[str, Any], headers: dict[str, str], needed: bool
) -> None:
    terms = Terms(POLICY.replace(**changes))
    assert needs_evidence(frozen(method, **headers), terms) is needed


def test_where_nothing_is_sent_again_no_trace_is_followed() -> None:
    assert not needs_evidence(frozen("POST"), Terms(POLICY, enabled=False))
    assert not needs_evidence(frozen("POST"), Terms(POLICY, passive=True))


@pytest.mark.parametrize(
    "key", ["k", "0" * 500, "two words", "8e03978e-40d5-43dd-bc93-6894a57f9324"]
)
def test_a_key_of_printable_ascii_is_usable(key: str) -> None:
    assert usable_key(key) == key


@pytest.mark.parametrize(
    "key", ["", " ", " k", "k ", "k\n", "a\nb", "a\tb", "a\x00", "clé", "a\x7f"]
)
def test_a_key_that_can_not_be_sent_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="idempotency_key must return printable ASCII without"):
        usable_key(key)


@pytest.mark.parametrize("key", [None, b"k", 7])
def test_a_key_of_another_type_is_refused(key: object) -> None:
    with pytest.raises(TypeError, match="idempotency_key must return a str, not"):
        usable_key(key)
