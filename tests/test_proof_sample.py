"""A sample of the cut-point proof. All of it: `python -m tests.proof`."""

from __future__ import annotations

from functools import cache

import pytest

from .proof.__main__ import main
from .proof.campaign import all_cases, run_cases, sample
from .proof.cases import FAMILIES, PROTOCOLS, Case, Family, Protocol

SEED = 20


@cache
def cases() -> list[Case]:
    return all_cases(FAMILIES)


def some(size: int, family: Family, protocol: Protocol) -> list[Case]:
    mine = [case for case in cases() if (case.family, case.protocol) == (family, protocol)]
    return sample(mine, size, SEED)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_cut_breaks_a_law(family: Family, protocol: Protocol) -> None:
    tally = run_cases("ours", some(150, family, protocol))
    assert tally.violations == []
    # The runs were of all kinds.
    assert 0 < tally.uncertain_unexecuted < tally.uncertain < tally.runs == 150
    assert tally.retried > 0


def test_the_ledger_convicts_a_client_that_sends_once_and_reports_no_doubt() -> None:
    tally = run_cases("httpx", some(100, "sync", "http/1.1"))
    assert tally.lost > 0
    assert tally.false_claims > 0


def test_every_byte_of_a_request_is_a_place() -> None:
    first = [case for case in cases() if str(case).startswith("sync http/1.1 GET (none, fresh")]
    cuts = {case.fault for case in first if "request" in str(case.fault)}
    # GET /0000000 HTTP/1.1, Host: 127.0.0.1:54321, and the one before the first byte.
    assert len(cuts) >= 2 * (24 + 23 + 2 + 1)


def test_the_command_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--sample=20", "--seed=1", "--family=sync", "--protocol=http/1.1"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0] for line in printed] == ["| client", "| ---", "| ours"]
    assert printed[2].split(" | ")[1:6] == ["20", "0", "0", "0", "0"]
