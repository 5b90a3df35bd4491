"""One retry budget for all processes of a machine, in an SQLite file.

`RetryBudget` keeps its bound in each process. With many short-lived workers the sum of these bounds
can be too much, as each worker starts with a full `capacity`. This budget keeps one bound for all
that open the same file:

    retries <= requests / requests_per_retry + capacity, for every origin

- Each change is a single SQL statement, which SQLite makes atomic between processes.
- A request to an origin that owes nothing costs one indexed read, and in WAL mode readers wait for
  nobody.
- It never raises. While the file is locked for longer than `timeout`, broken or gone, it refuses
  retries (a retry is never worth a failure of its own), forgets deposits, logs a warning and leaves
  the file alone for `pause` seconds, so that not every request waits for it.

Run it to see four processes call an API that is down:

    python examples/shared_budget.py
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import sqlite3
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

import httpx

from httpx_safe_retry import Backoff, RetryBudget, RetryPolicy, RetryTransport

Origin = tuple[str, str, int | None]

logger = logging.getLogger("shared_budget")

# What is owed, not what is left: an origin without a row has a full bucket.
SCHEMA = """
CREATE TABLE IF NOT EXISTS debts (origin TEXT PRIMARY KEY, owed INTEGER NOT NULL) WITHOUT ROWID
"""
TIDY = "DELETE FROM debts WHERE owed <= 0"
OWES = "SELECT 1 FROM debts WHERE origin = :origin AND owed > 0"
DEPOSIT = "UPDATE debts SET owed = owed - 1 WHERE origin = :origin AND owed > 0"
WITHDRAW = """
INSERT INTO debts (origin, owed) VALUES (:origin, :token)
ON CONFLICT (origin) DO UPDATE SET owed = owed + :token WHERE owed + :token <= :full
"""


class SharedBudget:
    """A token bucket per origin that processes share through the file at `path`.

    - `requests_per_retry`: how many requests earn one retry. A whole number, so that nothing is
      ever rounded: debts are counted in requests.
    - `capacity`: retries that an origin starts with, and the most that it can save up.
    - `timeout`: seconds to wait for another process that is writing. That takes microseconds, as a
      rule; but the wait blocks the thread, in async code the event loop.
    - `pause`: seconds without a look at the file after it failed.

    Everyone who opens the file should use the same amounts. It must be on a local disk: WAL mode
    does not work over a network file system.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        requests_per_retry: int = 10,
        capacity: int = 10,
        timeout: float = 0.1,
        pause: float = 1.0,
    ) -> None:
        if requests_per_retry < 1 or capacity < 1:
            raise ValueError("requests_per_retry and capacity must be at least 1")
        self._path = path
        self._amounts = {"token": requests_per_retry, "full": requests_per_retry * capacity}
        self._timeout = timeout
        self._pause = pause
        self._paused_until = 0.0
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        if hasattr(os, "register_at_fork"):
            # SQLite's locks do not survive a fork, not even for a connection that the child opens
            # while one of its parent's is open: both would spend the same tokens. So none is open.
            os.register_at_fork(
                before=self._close_for_fork,
                after_in_parent=self._lock.release,
                after_in_child=self._lock.release,
            )

    def deposit(self, origin: Origin) -> None:
        """Note one request to `origin`."""
        if self._rows(OWES, origin):
            self._rows(DEPOSIT, origin)

    def withdraw(self, origin: Origin) -> bool:
        """Take one retry for `origin`, or refuse."""
        return self._rows(WITHDRAW, origin) == 1

    def close(self) -> None:
        """Close the file. The next call opens it again."""
        with self._lock:
            self._disconnect()

    def _rows(self, statement: str, origin: Origin) -> int:
        """Run one statement; how many rows it found or changed, 0 if it could not be run."""
        scheme, host, port = origin
        values = {"origin": f"{scheme}://{host}:{port or ''}", **self._amounts}
        with self._lock:
            if time.monotonic() < self._paused_until:
                return 0
            try:
                cursor = self._connect().execute(statement, values)
                return len(cursor.fetchall()) if cursor.description else cursor.rowcount
            except sqlite3.Error as error:
                logger.warning("no retries for %g s: %s: %s", self._pause, self._path, error)
                self._disconnect()
                self._paused_until = time.monotonic() + self._pause
                return 0

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            # Without an isolation level, Python opens no transactions around our statements.
            self._connection = sqlite3.connect(
                self._path, timeout=self._timeout, isolation_level=None, check_same_thread=False
            )
            self._connection.execute("PRAGMA journal_mode = WAL")
            # No fsync per change: what a power failure may take back is a few tokens.
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.execute(SCHEMA)
            self._connection.execute(TIDY)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _close_for_fork(self) -> None:
        self._lock.acquire()
        self._disconnect()


PROCESSES = 4
REQUESTS = 250


def calls(kind: str, path: str) -> int:
    """Call an API that is down, as one worker process; how often it was called in all."""
    attempts = 0

    def down(request: httpx.Request) -> httpx.Response:
        nonlocal attempts
        attempts += 1
        return httpx.Response(503)

    budget = {"none": None, "own": RetryBudget(), "shared": SharedBudget(path, timeout=1)}[kind]
    transport = RetryTransport(
        httpx.MockTransport(down),
        policy=RetryPolicy(max_attempts=3, backoff=Backoff(base=0)),
        budget=budget,
    )
    with httpx.Client(transport=transport) as client:
        for _ in range(REQUESTS):
            client.get("https://api.example.com/orders")
    return attempts


def main() -> None:
    print(f"{PROCESSES} processes x {REQUESTS} requests x up to 3 attempts; every answer is 503.\n")
    rows = {
        "none": "no budget",
        "own": "a RetryBudget in each process",
        "shared": "one SharedBudget",
    }
    # Spawned, not forked: nothing but the file is shared.
    processes = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, processes.Pool(PROCESSES) as pool:
        for kind, name in rows.items():
            path = str(Path(folder) / "budget.sqlite3")
            sent = sum(pool.map(partial(calls, kind), [path] * PROCESSES, chunksize=1))
            print(f"  {name:<30} {sent:>5,} sent")
    bound = PROCESSES * REQUESTS * 1.1 + 10
    print(f"\nThe bound of one budget: 1,000 requests x 1.1 + 10 = {bound:,.0f}.")


if __name__ == "__main__":
    main()
