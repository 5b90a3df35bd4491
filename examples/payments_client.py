"""A client for a payments API that pays once, even if its process dies in the middle.

The idea: an idempotency key belongs to the payment, not to the call that makes it. So it is stored
with the payment, and with the exact bytes of the request, *before* anything is sent. Whoever goes
on after a crash sends the same bytes with the same key, and the server pays once.

There are three results, because there are three things to do:

    Paid       tell the customer, and ship
    Declined   tell the customer; their next try is a new payment, with a new key
    Pending    say "in progress", never "failed", and call `resume` later

Anything else raises (a rejected token, an answer that makes no sense): somebody has to look, and
the payment stays pending until then.

A refusal proves little once the payment was sent before, perhaps by a process that died: 402 may
come from a layer that never looked at the key (a quota, say), while the first sending was paid. So
each sending is counted before it happens. After the first, only an answer that speaks for the key
declines: the recorded one (`Idempotent-Replayed: true`), or 422.

Run it to see a process that is killed after the server has paid, and another that goes on:

    python examples/payments_client.py
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import httpx

from httpx_safe_retry import (
    Evidence,
    PermanentFailureError,
    RetryError,
    RetryPolicy,
    RetryTransport,
    Verdict,
    raise_for_outcome,
)
from httpx_safe_retry.testing import Fault, LoopbackServer, ServerRequest, ServerResponse


def still_running(request: httpx.Request, result: httpx.Response | Exception) -> Verdict | None:
    """Know what 409 means in this API: a request with our key, of ours or of a process that died,
    is being worked on. By itself 409 would say that nothing happened.
    """
    if isinstance(result, httpx.Response) and result.status_code == 409:
        return Verdict(transient=True, evidence=Evidence.AMBIGUOUS, reason="it is still running")
    return None


def speaks_for_the_key(response: httpx.Response) -> bool:
    """Whether a refusal is about all that was ever sent with the key, and not this request alone.

    422 judges the request itself, which is the same each time.
    """
    replayed: str = response.headers.get("Idempotent-Replayed", "")
    return response.status_code == 422 or replayed.lower() == "true"


# Attempts and waits go on for 10 s at most. What is still open then is left to `resume`.
POLICY = RetryPolicy(max_attempts=4, deadline=10.0, classify=still_running)

# Servers forget keys, many after a day. Past that, the same key would make a new payment.
KEYS_LAST = 20 * 3600.0


@dataclass(frozen=True, slots=True)
class Payment:
    reference: str  # your own number for this payment; a customer's next try gets another
    amount: int  # in the currency's smallest unit
    currency: str


@dataclass(frozen=True, slots=True)
class Paid:
    receipt: str


@dataclass(frozen=True, slots=True)
class Declined:
    reason: str


@dataclass(frozen=True, slots=True)
class Pending:
    reason: str


Result = Paid | Declined | Pending


class Stored(NamedTuple):
    reference: str
    key: str
    body: bytes
    begun: float
    sendings: int
    state: str
    detail: str

    @property
    def result(self) -> Result:
        if self.state == "paid":
            return Paid(self.detail)
        if self.state == "declined":
            return Declined(self.detail)
        return Pending("it was refused, but what was sent before may have been paid")


class Store:
    """The payments of this service. Each statement is on the disk when it returns.

    It belongs to the thread that makes it, and so does its client: any number of them, in threads
    and processes, can share the file.
    """

    def __init__(self, path: str | Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS payments (reference TEXT PRIMARY KEY, key TEXT, body BLOB,"
            " begun REAL, sendings INTEGER DEFAULT 0, state TEXT DEFAULT 'pending',"
            " detail TEXT DEFAULT '')"
        )

    def begin(self, payment: Payment) -> None:
        """Store a payment with a new key. One that is stored already keeps its own."""
        body = json.dumps(asdict(payment)).encode()
        self._db.execute(
            "INSERT INTO payments (reference, key, body, begun) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (reference) DO NOTHING",
            (payment.reference, str(uuid.uuid4()), body, time.time()),
        )

    def get(self, reference: str) -> Stored:
        select = "SELECT * FROM payments WHERE reference = ?"
        row = self._db.execute(select, (reference,)).fetchone()
        if row is None:
            raise LookupError(f"no payment {reference} was begun")
        return Stored(*row)

    def sending(self, reference: str) -> Stored:
        """Count a sending that is about to happen, unless the payment is settled."""
        update = "UPDATE payments SET sendings = sendings + 1"
        self._db.execute(f"{update} WHERE reference = ? AND state = 'pending'", (reference,))
        return self.get(reference)

    def paid(self, reference: str, receipt: str) -> None:
        update = "UPDATE payments SET state = 'paid', detail = ? WHERE reference = ?"
        self._db.execute(update, (receipt, reference))

    def declined(self, reference: str, reason: str, *, for_the_key: bool) -> None:
        """Decline, unless another sending was paid, or may have been: then change nothing."""
        self._db.execute(
            "UPDATE payments SET state = 'declined', detail = ? WHERE reference = ?"
            " AND state = 'pending' AND (sendings = 1 OR ?)",
            (reason, reference, for_the_key),
        )

    def pending(self) -> list[str]:
        rows = self._db.execute("SELECT reference FROM payments WHERE state = 'pending'")
        return [reference for (reference,) in rows]

    def close(self) -> None:
        self._db.close()


class PaymentsClient:
    def __init__(self, base_url: str, token: str, store: Store) -> None:
        self._store = store
        self._http = httpx.Client(
            base_url=base_url,
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
            transport=RetryTransport(policy=POLICY),
        )

    def pay(self, payment: Payment) -> Result:
        """Pay, or go on with a payment that was begun: it may be called any number of times.

        Raises `ValueError` if another payment was begun under its reference, and like `resume`.
        """
        self._store.begin(payment)
        if json.loads(self._store.get(payment.reference).body) != asdict(payment):
            raise ValueError(f"another payment was begun as {payment.reference}")
        return self.resume(payment.reference)

    def resume(self, reference: str) -> Result:
        """Go on with a payment that is stored: the same bytes, the same key.

        Raises `LookupError` for one that is too old to be sent again (ask the server what became of
        its reference), and `PermanentFailureError` for a refusal that is no verdict on it.
        """
        stored = self._store.sending(reference)
        if stored.state != "pending":
            return stored.result
        if time.time() - stored.begun > KEYS_LAST:
            raise LookupError(f"the key of {reference} may have been forgotten")
        try:
            response = self._http.post(
                "/payments", content=stored.body, headers={"Idempotency-Key": stored.key}
            )
            raise_for_outcome(response)
            self._store.paid(reference, response.json()["receipt"])
        except PermanentFailureError as error:
            if error.response is None or error.response.status_code not in (402, 422):
                raise
            reason = error.response.json()["reason"]
            self._store.declined(reference, reason, for_the_key=speaks_for_the_key(error.response))
        except RetryError as error:
            # Perhaps it happened, perhaps not. With its key it can be sent again, at any time.
            return Pending(error.report.summary())
        # Other processes may have sent it meanwhile: all of them say the same.
        return self._store.get(reference).result

    def close(self) -> None:
        self._http.close()


# What happens -----------------------------------------------------------------------------------


def book(request: ServerRequest) -> ServerResponse:
    return ServerResponse(status=201, body=b'{"receipt": "R-1001"}')


def pay_in_another_process(url: str, path: str) -> None:
    PaymentsClient(url, "token", Store(path)).pay(Payment("order-7130", 4200, "EUR"))


def main() -> None:
    # The first request is executed, and its answer held back.
    silence = Fault(by="silence")
    with (
        tempfile.TemporaryDirectory() as folder,
        LoopbackServer(silence, handler=book, dedupe=True) as server,
    ):
        path = str(Path(folder) / "payments.sqlite3")
        process = subprocess.Popen([sys.executable, __file__, server.url, path])
        while not server.ledger and process.poll() is None:
            time.sleep(0.01)
        process.kill()
        process.wait()
        print(f"Payments that the server made: {len(server.ledger)}. Then the client was killed.")

        store = Store(path)
        client = PaymentsClient(server.url, "token", store)
        for reference in store.pending():
            print(f"The next process finds {reference} pending: {client.resume(reference)}")
        client.close()
        store.close()
        keys = {request.key for request in server.requests}
        bodies = {request.body for request in server.requests}
        print(f"Requests: {len(server.requests)}; keys: {len(keys)}; bodies: {len(bodies)}.")
        print(f"Payments that the server made: {len(server.ledger)}.")


if __name__ == "__main__":
    if sys.argv[1:]:
        pay_in_another_process(*sys.argv[1:])
    else:
        main()
