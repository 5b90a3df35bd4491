"""A sample of the cut-point proof. All of it: `python -m tests.proof`."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product

import pytest

from .proof.__main__ import main
from .proof.campaign import all_cases, run_cases, sample
from .proof.cases import (
    AT_ONCE,
    FAMILIES,
    OPERATIONS,
    PROTOCOLS,
    Break,
    Case,
    Cut,
    Family,
    GoAway,
    Protocol,
    Reset,
    settings,
)
from .proof.drivers import Claim, Client, Truth, claim_of_body, run
from .proof.judge import Tally
from .proof.server import Server

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
    cuts = [case.fault for case in first if isinstance(case.fault, Cut)]
    head = b"GET /0000000 HTTP/1.1\r\nHost: proof.test\r\n\r\n"
    for by in ("fin", "rst"):
        places = [cut.at for cut in cuts if (cut.side, cut.by) == ("request", by)]
        assert places == [AT_ONCE, *range(len(head))]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_request_of_a_kind_has_its_bytes_at_the_same_places(protocol: Protocol) -> None:
    with Server(protocol) as server:
        for setting in settings("sync", protocol):
            sizes = set()
            for number in (0, 1, 3456789, 9999999):
                run("httpx", server, setting, number)
                sizes.add(server.sizes)
            assert len(sizes) == 1


def test_each_way_to_send_a_request_meets_each_kind_of_fault() -> None:
    found: dict[object, set[object]] = {}
    for case in cases():
        setting = replace(case, fault=None)
        fault = case.fault
        kind = (fault.side, fault.by) if isinstance(fault, Cut) else type(fault)
        found.setdefault(setting, set()).add(kind)
    assert set(found) == {
        setting
        for family in FAMILIES
        for protocol in PROTOCOLS
        for setting in settings(family, protocol)
    }
    ways = ("fin", "rst", "silence")
    for family, protocol in product(FAMILIES, PROTOCOLS):
        answered: set[object] = {("response", by) for by in ways}
        if protocol == "http/2":
            answered |= {Reset, GoAway}
        whole = answered | {("request", by) for by in ways} | {Break}
        for setting in settings(family, protocol):
            assert found[setting] == (whole if setting.answer == "length" else answered)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_answer_without_a_length_may_break_off_in_the_callers_hands(protocol: Protocol) -> None:
    (post,) = (operation for operation in OPERATIONS if operation.name == "POST")
    with Server(protocol) as server:
        case = Case("sync", protocol, post, "length", False, "whole", answer="chunked")
        run("httpx", server, case, 0)
        torn = replace(case, fault=Cut("response", server.sizes[1] - 1, "fin"))
    clients: tuple[Client, ...] = ("ours", "httpx")
    for client in clients:
        tally = run_cases(client, [torn])
        assert (tally.broke_off, tally.violations) == (1, [])
    # One with a length is read within the attempt.
    assert run_cases("ours", [replace(torn, answer="length")]).broke_off == 0


def test_a_torn_answer_that_passes_for_whole_is_a_false_claim() -> None:
    case = next(case for case in cases() if case.answer == "chunked")
    told = claim_of_body("httpx", case, Claim(success=True), b"o")
    tally = Tally()
    assert tally.judge(case, told, Truth(1, ())) == ["unexpected"]
    assert tally.false_claims == 1


def test_the_command_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--sample=20", "--seed=1", "--family=sync", "--protocol=http/1.1"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0] for line in printed] == ["| client", "| ---", "| ours"]
    assert printed[2].split(" | ")[1:6] == ["20", "0", "0", "0", "0"]
