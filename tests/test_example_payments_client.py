"""The payments client to copy: one payment, whatever breaks, and a result to act on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from httpx_safe_retry import Backoff, PermanentFailureError
from httpx_safe_retry.testing import Fault, LoopbackServer, ServerResponse

from .examples import loaded, shown_by

example = loaded("payments_client.py")
PAYMENT = example.Payment("order-1", 4200, "EUR")

Connect = Callable[[LoopbackServer], Any]


@pytest.fixture
def connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connect]:
    """Make a client with a store of its own on the one file, as each process has it."""
    at_once = example.POLICY.replace(backoff=Backoff(base=0))
    monkeypatch.setattr(example, "POLICY", at_once)
    opened: list[Any] = []

    def new(server: LoopbackServer) -> Any:
        store = example.Store(tmp_path / "payments.sqlite3")
        client = example.PaymentsClient(server.url, "token", store)
        opened.extend((client, store))
        return client

    yield new
    for one in opened:
        one.close()


def overtake(client: Any, act: Callable[[], object]) -> None:
    """Let another process act between the answer to this one and what this one makes of it."""
    client._http.event_hooks = {"response": [lambda response: act()]}


def server(*script: Any, **options: Any) -> LoopbackServer:
    return LoopbackServer(*script, handler=example.book, dedupe=True, **options)


def test_a_client_that_is_killed_pays_once_after_its_restart() -> None:
    assert shown_by("payments_client.py").splitlines() == [
        "Payments that the server made: 1. Then the client was killed.",
        "The next process finds order-7130 pending: Paid(receipt='R-1001')",
        "Requests: 2; keys: 1; bodies: 1.",
        "Payments that the server made: 1.",
    ]


def test_a_lost_answer_is_asked_for_again(connect: Connect) -> None:
    with server(Fault()) as api:
        assert connect(api).pay(PAYMENT) == example.Paid("R-1001")
        assert (len(api.requests), len(api.ledger)) == (2, 1)


def test_what_stays_open_is_pending_and_goes_on_with_its_key(connect: Connect) -> None:
    with server(Fault(), 503, 503, 503) as api:
        first = connect(api).pay(PAYMENT)
        assert type(first) is example.Pending
        assert "may have happened" in first.reason
        assert connect(api).pay(PAYMENT) == example.Paid("R-1001")
        assert len({(one.key, one.body) for one in api.requests}) == 1
        assert len(api.ledger) == 1


def test_two_payments_have_two_keys(connect: Connect) -> None:
    with server() as api:
        client = connect(api)
        client.pay(PAYMENT)
        client.pay(example.Payment("order-2", 4200, "EUR"))
        assert len({one.key for one in api.requests}) == len(api.ledger) == 2


def test_what_is_paid_is_not_sent_again(connect: Connect) -> None:
    with server() as api:
        connect(api).pay(PAYMENT)
        assert connect(api).pay(PAYMENT) == example.Paid("R-1001")
        assert len(api.requests) == 1


@pytest.mark.parametrize("status", [402, 422])
def test_a_verdict_on_the_payment_is_final(connect: Connect, status: int) -> None:
    refusal = ServerResponse(status=status, body=b'{"reason": "no funds"}')
    with server(refusal) as api:
        assert connect(api).pay(PAYMENT) == example.Declined("no funds")
        assert connect(api).pay(PAYMENT) == example.Declined("no funds")
        assert len(api.requests) == 1


QUOTA = ServerResponse(status=402, body=b'{"reason": "plan quota used up"}')
RECORDED = ServerResponse(
    status=402, headers={"Idempotent-Replayed": "true"}, body=b'{"reason": "no funds"}'
)
WRONG = ServerResponse(status=422, body=b'{"reason": "no funds"}')


def test_a_refusal_in_front_of_the_key_declines_nothing_that_may_have_been_paid(
    connect: Connect,
) -> None:
    with server(Fault(), 503, 503, 503, QUOTA) as api:
        assert type(connect(api).pay(PAYMENT)) is example.Pending
        refused = connect(api).resume("order-1")
        assert type(refused) is example.Pending
        assert "may have been paid" in refused.reason
        assert connect(api).resume("order-1") == example.Paid("R-1001")
        assert len(api.ledger) == 1


@pytest.mark.parametrize("answer", [RECORDED, WRONG], ids=["recorded", "422"])
def test_a_refusal_that_speaks_for_the_key_declines_what_was_sent_before(
    connect: Connect, answer: ServerResponse
) -> None:
    with server(503, 503, 503, 503, answer) as api:
        assert type(connect(api).pay(PAYMENT)) is example.Pending
        assert connect(api).resume("order-1") == example.Declined("no funds")


def test_what_a_process_sent_before_it_died_may_have_been_paid(connect: Connect) -> None:
    def die() -> None:
        raise KeyboardInterrupt

    with server(None, QUOTA) as api:
        client = connect(api)
        overtake(client, die)
        with pytest.raises(KeyboardInterrupt):
            client.pay(PAYMENT)
        assert type(connect(api).pay(PAYMENT)) is example.Pending
        assert connect(api).pay(PAYMENT) == example.Paid("R-1001")


@pytest.mark.parametrize("answer", [QUOTA, RECORDED, WRONG], ids=["402", "recorded", "422"])
def test_a_slower_process_that_is_refused_finds_what_another_has_paid(
    connect: Connect, answer: ServerResponse
) -> None:
    with server(answer) as api:
        slower = connect(api)
        overtake(slower, lambda: connect(api).pay(PAYMENT))
        assert slower.pay(PAYMENT) == example.Paid("R-1001")
        assert connect(api).pay(PAYMENT) == example.Paid("R-1001")


def test_a_slower_process_that_paid_is_believed_before_one_that_was_refused(
    connect: Connect,
) -> None:
    with server(None, RECORDED) as api:
        slower = connect(api)
        overtake(slower, lambda: connect(api).pay(PAYMENT))
        assert slower.pay(PAYMENT) == example.Paid("R-1001")


def test_a_refusal_declines_nothing_while_another_process_sends(connect: Connect) -> None:
    with server(QUOTA) as api:
        client, another = connect(api), connect(api)
        overtake(client, lambda: another._store.sending("order-1"))
        assert type(client.pay(PAYMENT)) is example.Pending


def test_what_another_process_has_settled_is_not_sent(connect: Connect) -> None:
    with server(QUOTA) as api:
        assert type(connect(api).pay(PAYMENT)) is example.Declined
        assert connect(api)._store.sending("order-1").sendings == 1
        assert connect(api).resume("order-1") == example.Declined("plan quota used up")
        assert len(api.requests) == 1


def test_a_rejected_token_is_raised_and_leaves_the_payment_pending(connect: Connect) -> None:
    with server(401) as api:
        with pytest.raises(PermanentFailureError):
            connect(api).pay(PAYMENT)
        assert connect(api).pay(PAYMENT) == example.Paid("R-1001")


def test_a_request_that_is_still_running_is_waited_for(connect: Connect) -> None:
    with server(409, 409) as api:
        assert connect(api).pay(PAYMENT) == example.Paid("R-1001")


def test_a_request_that_runs_on_leaves_the_payment_pending(connect: Connect) -> None:
    with server(409, repeat=True) as api:
        result = connect(api).pay(PAYMENT)
        assert type(result) is example.Pending
        assert "may have happened" in result.reason


def test_another_payment_under_the_same_reference_is_refused(connect: Connect) -> None:
    with server(503, repeat=True) as api:
        connect(api).pay(PAYMENT)
        sent = len(api.requests)
        with pytest.raises(ValueError, match="order-1"):
            connect(api).pay(example.Payment("order-1", 9900, "EUR"))
        assert len(api.requests) == sent


def test_a_key_that_may_be_forgotten_is_not_sent_again(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server(503, repeat=True) as api:
        connect(api).pay(PAYMENT)
        sent = len(api.requests)
        monkeypatch.setattr(example, "KEYS_LAST", -1.0)
        with pytest.raises(LookupError):
            connect(api).pay(PAYMENT)
        assert len(api.requests) == sent


def test_a_payment_that_was_never_begun_is_not_resumed(connect: Connect) -> None:
    with server() as api, pytest.raises(LookupError):
        connect(api).resume("order-1")
