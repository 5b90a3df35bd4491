"""Policies by host and route: each request gets the one that is meant for it."""

from __future__ import annotations

import httpx
import pytest

from httpx_safe_retry import get_report
from httpx_safe_retry.testing import LoopbackServer, ServerResponse, VirtualClock

from .examples import loaded, shown_by

example = loaded("per_host_policies.py")

RULES = [
    example.Rule(example.ONCE, host="sms.example.com"),
    example.Rule(example.ONCE, host="*.billed.example"),
    example.Rule(example.PATIENT, host="api.example.com:8443", path="/reports/*"),
]


def test_each_server_is_waited_for_in_its_own_way() -> None:
    sms, orders, reports, sms_again = shown_by("per_host_policies.py").splitlines()
    assert "503 after 1 attempt, 0.00 s" in sms
    assert "503 after 2 attempts, 0.0" in orders
    assert "200 after 3 attempts, 240.00 s" in reports
    assert "200 after 2 attempts, 120.00 s" in sms_again


@pytest.mark.parametrize(
    ("url", "policy"),
    [
        ("https://sms.example.com/messages/7", example.ONCE),
        ("https://SMS.example.com:443/messages/7", example.ONCE),
        ("https://eu.billed.example/", example.ONCE),
        ("https://billed.example/", example.QUICK),
        ("https://sms.example.com.evil.example/", example.QUICK),
        ("https://api.example.com:8443/reports/2031", example.PATIENT),
        ("https://api.example.com:8443/reports/2031/parts/2", example.PATIENT),
        ("https://api.example.com:8443/orders/7", example.QUICK),
        ("https://api.example.com/reports/2031", example.QUICK),
    ],
)
def test_the_first_rule_that_holds_decides(url: str, policy: object) -> None:
    chosen = example.by_rules(RULES, default=example.QUICK)(httpx.Request("GET", url))
    assert chosen is policy


def test_after_a_redirect_the_policy_is_that_of_the_new_url() -> None:
    clock = VirtualClock()
    rules = [example.Rule(example.ONCE, path="/once"), example.Rule(example.PATIENT, path="/new")]
    moved = ServerResponse(status=307, headers={"Location": "/new"})
    with LoopbackServer(moved, 503) as server, example.new_client(rules, clock) as client:
        response = client.get(f"{server.url}/once", follow_redirects=True)
        assert response.status_code == 200
        assert get_report(response).max_attempts == example.PATIENT.max_attempts
        assert [len(get_report(one).attempts) for one in (*response.history, response)] == [1, 2]
