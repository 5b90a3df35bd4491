"""What comes out of httpcore without a class of httpx is a lost connection all the same."""

from __future__ import annotations

import anyio
import h2.exceptions
import pytest

from httpx_safe_retry import Evidence, Outcome, RetryError
from httpx_safe_retry.testing import Reply
from tests.drive import KEY, Drive, everywhere
from tests.library import httpcore

LEAKED = [
    # A TLS connection ended while an event loop wrote to it (anyio's TLSStream.send).
    anyio.EndOfStream(),
    # h2 objects to what comes in the body of an answer.
    h2.exceptions.ProtocolError("no such stream"),
]


@everywhere
@pytest.mark.parametrize("error", LEAKED, ids=repr)
def test_it_is_retried_where_that_is_safe(drive: Drive, error: Exception) -> None:
    for more in ({"method": "GET"}, {"method": "POST", "headers": KEY}):
        sent = drive.send(error, 200, **more)
        assert (sent.response.status_code, len(sent.requests)) == (200, 2)


@everywhere
@pytest.mark.parametrize("error", LEAKED, ids=repr)
def test_it_makes_an_unkeyed_write_uncertain(drive: Drive, error: Exception) -> None:
    sent = drive.send(error, 200, method="POST")
    assert isinstance(sent.error, RetryError)
    assert isinstance(sent.error, type(error))
    assert sent.report.outcome is Outcome.UNCERTAIN_WRITE
    assert sent.report.attempts[0].evidence is Evidence.AMBIGUOUS


@everywhere
@pytest.mark.parametrize("error", [*LEAKED, httpcore.ConnectionNotAvailable()], ids=repr)
def test_it_does_not_stop_a_retry_when_it_meets_the_rest_of_a_failed_answer(
    drive: Drive, error: Exception
) -> None:
    sent = drive.send(Reply(status=503, body=[b"123", error]), 200)
    assert (sent.response.status_code, len(sent.requests)) == (200, 2)


@everywhere
def test_what_no_transport_raises_is_not_swallowed_there(drive: Drive) -> None:
    sent = drive.send(Reply(status=503, body=[b"123", ZeroDivisionError()]), 200)
    assert isinstance(sent.error, ZeroDivisionError)
    assert len(sent.requests) == 1
