"""The budget of examples/shared_budget.py: one bound for several real processes."""

from __future__ import annotations

import logging
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from .examples import EXAMPLES, loaded

example = loaded("shared_budget.py")

A = ("https", "a.example", None)
B = ("https", "b.example", 8443)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget.sqlite3"


@pytest.fixture
def budgets(path: Path) -> Iterator[list[Any]]:
    """Two budgets on one file, as two processes have them."""
    both = [example.SharedBudget(path, timeout=0, pause=0) for _ in range(2)]
    yield both
    for budget in both:
        budget.close()


def spend(budget: Any, origin: object, attempts: int) -> int:
    return sum(budget.withdraw(origin) for _ in range(attempts))


def earn(budget: Any, origin: object, requests: int) -> None:
    for _ in range(requests):
        budget.deposit(origin)


# In each process: wait for the starting signal, then meet an outage.
WORKER = """
import sys
sys.path.insert(0, sys.argv[1])
from shared_budget import SharedBudget
budget, origin = SharedBudget(sys.argv[2], timeout=30), ("https", "a.example", None)
budget.withdraw(("https", "warm-up.example", None))
print("ready", flush=True)
sys.stdin.readline()
granted = 0
for _ in range(250):
    budget.deposit(origin)
    granted += budget.withdraw(origin) and 1 + budget.withdraw(origin)
print(granted, flush=True)
budget.close()
"""


def worker(code: str, path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, str(EXAMPLES), str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def told_by(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_processes_that_meet_an_outage_at_once_keep_one_bound_together(path: Path) -> None:
    with ExitStack() as stack:
        workers = [stack.enter_context(worker(WORKER, path)) for _ in range(4)]
        assert [told_by(process) for process in workers] == ["ready"] * 4
        for process in workers:
            go(process)
        granted = [int(told_by(process)) for process in workers]
    # 1,000 requests earn 100 retries, less those of the requests that came before the first retry.
    assert 109 <= sum(granted) <= 110
    budget = example.SharedBudget(path)
    assert spend(budget, A, 1) == 0
    budget.close()


def test_what_one_spends_another_has_not(budgets: list[Any]) -> None:
    assert spend(budgets[0], A, 7) == 7
    assert spend(budgets[1], A, 7) == 3
    assert spend(budgets[0], A, 7) == 0


def test_what_one_earns_another_can_spend(budgets: list[Any]) -> None:
    spend(budgets[0], A, 10)
    earn(budgets[0], A, 9)
    assert spend(budgets[1], A, 1) == 0
    earn(budgets[0], A, 1)
    assert spend(budgets[1], A, 2) == 1


def test_deposits_never_save_up_more_than_the_capacity(budgets: list[Any]) -> None:
    spend(budgets[0], A, 3)
    earn(budgets[1], A, 1_000)
    assert spend(budgets[0], A, 50) == 10


def test_two_processes_that_see_the_last_of_a_debt_do_not_repay_it_twice(
    budgets: list[Any],
) -> None:
    spend(budgets[0], A, 1)
    for _ in range(2 * 10):
        assert budgets[0]._rows(example.DEPOSIT, A) in (0, 1)
    assert spend(budgets[0], A, 50) == 10


def test_each_origin_has_its_own_bucket(budgets: list[Any]) -> None:
    assert spend(budgets[0], A, 50) == 10
    assert spend(budgets[0], B, 50) == 10
    assert spend(budgets[0], ("https", "b.example", None), 50) == 10


def rows(path: Path) -> int:
    connection = sqlite3.connect(path)
    (count,) = connection.execute("SELECT count(*) FROM debts").fetchone()
    connection.close()
    return int(count)


def test_an_origin_that_owes_nothing_takes_no_place_in_the_file(
    budgets: list[Any], path: Path
) -> None:
    earn(budgets[0], A, 10)
    assert rows(path) == 0
    spend(budgets[0], A, 1)
    earn(budgets[0], A, 10)
    # Tidied up by the next process.
    spend(budgets[1], B, 1)
    assert rows(path) == 1


def test_it_outlives_its_process(path: Path) -> None:
    for expected in (10, 0):
        budget = example.SharedBudget(path)
        assert spend(budget, A, 20) == expected
        budget.close()


@pytest.mark.parametrize("settings", [{"requests_per_retry": 0}, {"capacity": 0}])
def test_amounts_below_one_are_refused(settings: dict[str, int], path: Path) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        example.SharedBudget(path, **settings)


# --- when the file fails --------------------------------------------------------------------------


def test_a_locked_file_refuses_the_retry_and_works_again_once_it_is_free(
    budgets: list[Any], path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert budgets[0].withdraw(A)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    budgets[0].deposit(B)
    assert caplog.text == "", "an origin that owes nothing waits for nobody"
    budgets[0].deposit(A)
    assert not budgets[0].withdraw(A)
    assert "locked" in caplog.text
    other.execute("ROLLBACK")
    other.close()
    assert budgets[0].withdraw(A)


def write_garbage(path: Path) -> None:
    path.write_bytes(b"long enough to be taken for a database " * 100)


def make_another_table(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE debts (x)")
    connection.close()


@pytest.mark.parametrize("spoil", [write_garbage, make_another_table, Path.mkdir])
def test_a_broken_file_refuses_the_retry_and_says_so(
    spoil: Callable[[Path], None], budgets: list[Any], path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spoil(path)
    budgets[0].deposit(A)
    assert not budgets[0].withdraw(A)
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    assert str(path) in caplog.text


def test_a_broken_file_that_is_taken_away_is_begun_anew(budgets: list[Any], path: Path) -> None:
    write_garbage(path)
    assert not budgets[0].withdraw(A)
    path.unlink()
    assert budgets[0].withdraw(A)


def test_a_folder_that_does_not_exist_refuses_the_retry(tmp_path: Path) -> None:
    budget = example.SharedBudget(tmp_path / "nowhere" / "budget.sqlite3", pause=0)
    budget.deposit(A)
    assert not budget.withdraw(A)


def test_a_file_that_failed_is_left_alone_for_a_while(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 100.0
    monkeypatch.setattr(example.time, "monotonic", lambda: now)
    budget = example.SharedBudget(path, pause=5)
    path.mkdir()
    assert not budget.withdraw(A)
    path.rmdir()
    now = 104.9
    assert not budget.withdraw(A)
    assert len(caplog.records) == 1
    now = 105.0
    assert budget.withdraw(A)
    budget.close()


KILLED = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[2], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE debts SET owed = 0")
print("ready", flush=True)
sys.stdin.readline()
"""


def test_a_process_that_is_killed_while_it_writes_takes_no_lock_with_it(
    budgets: list[Any], path: Path
) -> None:
    assert spend(budgets[0], A, 9) == 9
    with worker(KILLED, path) as process:
        assert told_by(process) == "ready"
        assert not budgets[0].withdraw(A)
        process.kill()
    assert spend(budgets[0], A, 9) == 1


FORKED = """
import os, sys
sys.path.insert(0, sys.argv[1])
from shared_budget import SharedBudget
budget, origin = SharedBudget(sys.argv[2], timeout=30), ("https", "a.example", None)
assert budget.withdraw(origin)
child = os.fork()
nothing_open = budget._connection is None
granted = sum(budget.withdraw(origin) for _ in range(4))
budget.close()
if child == 0:
    os._exit(granted if nothing_open else 99)
_, status = os.waitpid(child, 0)
print(granted, os.waitstatus_to_exitcode(status), sum(budget.withdraw(origin) for _ in range(4)))
budget.close()
"""


# Windows starts every process afresh, so that a child inherits no open file there.
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system makes no process by forking")
def test_a_forked_child_opens_the_file_for_itself(path: Path) -> None:
    with worker(FORKED, path) as process:
        assert told_by(process) == "4 4 1"
    assert process.returncode == 0


# --- the example itself ---------------------------------------------------------------------------


def test_the_example_shows_that_only_the_shared_budget_bounds_the_sum() -> None:
    script = [sys.executable, str(EXAMPLES / "shared_budget.py")]
    output = subprocess.run(script, check=True, capture_output=True, text=True).stdout
    sent = [int(row.replace(",", "")) for row in re.findall(r"([\d,]+) sent", output)]
    without, own, shared = sent
    assert without == 3_000
    # Each process retries up to its own bound: 250 requests x 1.1 + 10.
    assert own == 4 * (250 + 34)
    # A busy machine may find the file locked, and a locked file refuses: never more, at times less.
    assert 1_000 < shared <= 1_110
