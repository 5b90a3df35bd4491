"""The example that people see first: it shows what it promises, and fails when that isn't so."""

from __future__ import annotations

import itertools
from typing import Any

import httpx
import pytest

from httpx_safe_retry import RetryPolicy, RetryTransport

from .examples import loaded, shown_by


def test_lost_response_shows_for_both_clients_what_it_promises() -> None:
    printed = shown_by("lost_response.py")
    for client in ("httpx.Client", "httpx.AsyncClient"):
        shown = printed.partition(f"  {client}  ")[2]
        assert "UncertainWriteError" in shown
        assert "Nobody knows whether the operation happened" in shown
        assert '201 {"receipt": "R-1001"' in shown
        assert "waits 1.000 s (retry-after)" in shown
    assert printed.endswith("All of it is so.\n")


class SendsAgainUnseen(httpx.HTTPTransport):
    """Repeats a request whose answer was lost, and reports the first error all the same."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        try:
            return super().handle_request(request)
        except httpx.TransportError:
            super().handle_request(request)
            raise


class MakesKeysInTheLoop(httpx.HTTPTransport):
    numbers = itertools.count()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.headers["Idempotency-Key"] = f"key-{next(self.numbers)}"
        return super().handle_request(request)


POLICY = RetryPolicy(max_attempts=4)


@pytest.mark.parametrize(
    ("scenario", "transport"),
    [
        pytest.param(
            "pay_without_a_key",
            RetryTransport(policy=POLICY.replace(idempotent=True)),
            id="a payment is repeated blindly",
        ),
        pytest.param(
            "pay_without_a_key",
            RetryTransport(SendsAgainUnseen(), policy=POLICY),
            id="a payment is repeated and then called uncertain",
        ),
        pytest.param(
            "pay_with_a_key",
            RetryTransport(MakesKeysInTheLoop(), policy=POLICY),
            id="each attempt has a key of its own",
        ),
        pytest.param(
            "get_through_trouble",
            RetryTransport(policy=POLICY.replace(respect_retry_after=False)),
            id="the wait that the server asked for is ignored",
        ),
    ],
)
def test_lost_response_exits_with_1_when(
    scenario: str, transport: RetryTransport, capsys: pytest.CaptureFixture[str]
) -> None:
    def send(method: str, url: str, **more: Any) -> httpx.Response:
        with httpx.Client(transport=transport) as client:
            return client.request(method, url, **more)

    with pytest.raises(SystemExit) as ended:
        getattr(loaded("lost_response.py"), scenario)(send)
    assert ended.value.code == 1
    assert "[NOT SO]" in capsys.readouterr().out.splitlines()[-1]
