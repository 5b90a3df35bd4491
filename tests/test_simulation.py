"""The figures of examples/thundering_herd.py: what retries cost, what jitter and budget save."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from .examples import EXAMPLES, loaded

SCRIPT = EXAMPLES / "thundering_herd.py"
JITTERED = ["full", "equal", "decorrelated"]

simulation: Any = loaded("thundering_herd.py")


def run_example(*arguments: str) -> subprocess.CompletedProcess[str]:
    # Not measured: a tracer would triple the time of a hundred thousand attempts.
    environment = {name: value for name, value in os.environ.items() if "COVERAGE" not in name}
    environment["PYTHONIOENCODING"] = "utf-8"
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        capture_output=True,
        encoding="utf-8",
        env=environment,
    )


@pytest.fixture(scope="module")
def printed() -> str:
    result = run_example()
    assert result.stderr == ""
    assert result.returncode == 0
    return result.stdout


def traffic_row(printed: str, name: str) -> tuple[int, int]:
    match = re.search(rf"{name} +([\d,]+) +([\d,]+)\n", printed)
    assert match is not None
    sent, failed = (int(number.replace(",", "")) for number in match.groups())
    return sent, failed


def race_row(printed: str, name: str) -> tuple[int, float, float]:
    match = re.search(rf"  {name} +([\d,]+) +([\d.]+) s +([\d.]+) s\n", printed)
    assert match is not None
    peak, fifth, served = match.groups()
    return int(peak.replace(",", "")), float(fifth), float(served)


# --- the figures that are printed ----------------------------------------------------------------


def test_healthy_traffic_is_fully_retried_and_hardly_grows(printed: str) -> None:
    sent, failed = traffic_row(printed, "1 % of the attempts fail, default budget")
    assert 10_000 < sent < 10_200
    assert failed == 0


def test_a_total_outage_without_a_budget_triples_the_traffic(printed: str) -> None:
    assert traffic_row(printed, "total outage, no budget") == (30_000, 10_000)


def test_a_total_outage_with_the_default_budget_adds_a_tenth(printed: str) -> None:
    sent, failed = traffic_row(printed, "total outage, default budget")
    assert 10_000 < sent < 11_200
    assert failed == 10_000


def test_without_jitter_all_clients_come_back_in_the_same_10_ms(printed: str) -> None:
    peak, fifth, served = race_row(printed, "no jitter")
    assert peak == 1_000
    assert fifth == 3.1
    # 60 of them at 1.5 s, 60 more at 3.1 s and then every 2 s: the seventeenth wave is the last.
    assert served == 33.1


def test_full_jitter_spreads_them_over_time(printed: str) -> None:
    peak, fifth, served = race_row(printed, "full jitter")
    assert peak < 250
    assert fifth == pytest.approx(3.1 / 2, rel=0.05)
    assert served < 4


def test_equal_jitter_waits_longer_and_comes_in_larger_waves(printed: str) -> None:
    peak, fifth, served = race_row(printed, "equal jitter")
    assert race_row(printed, "full jitter")[0] < peak < 250
    assert fifth == pytest.approx(3.1 * 3 / 4, rel=0.05)
    assert served < 4


def test_decorrelated_jitter_has_the_lowest_peak(printed: str) -> None:
    peak, fifth, served = race_row(printed, "decorrelated jitter")
    assert peak < race_row(printed, "full jitter")[0]
    assert 2 < fifth < 3.5
    assert served < 4


def test_the_terminal_chart_fits_80_columns_and_names_its_axes(printed: str) -> None:
    lines = printed.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if line != line.rstrip()] == []
    assert "Retries per 10 ms" in printed
    assert lines[-1].endswith("time, s")
    assert sum(line.startswith(" 1,000 ┤") for line in lines) == 4


def test_a_column_of_the_chart_reaches_as_high_as_its_busiest_10_ms() -> None:
    load = {0: 1, 5: 10, 9: 2, 10: 100, 15: 1_000}
    rows = simulation.panel(simulation.Counter(load), back=6)
    assert [row[:15] for row in rows] == [
        " 1,000 ┤   █  ┊",
        "       │   █  ┊",
        "   100 ┤╌╌██╌╌╌",
        "       │  ██  ┊",
        "    10 ┤ ███  ┊",
        "       │▁███  ┊",
    ]


# --- the simulation itself -----------------------------------------------------------------------


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "CLIENTS", 200)
    monkeypatch.setattr(simulation, "REQUESTS", 500)
    monkeypatch.setattr(simulation, "SERVED_PER_BUCKET", 12)


@pytest.mark.parametrize("seed", [2, 3])
def test_the_peaks_do_not_hang_on_the_seed(seed: int) -> None:
    assert simulation.outage("full", seed).peak < 250


@pytest.mark.usefixtures("_small")
def test_without_jitter_the_peaks_stand_where_the_formula_puts_them() -> None:
    # 0.1 s, 0.2 s, 0.4 s, 0.8 s and 1.6 s after one another.
    assert simulation.outage("none", 1).retries == {10: 200, 30: 200, 70: 200, 150: 200, 310: 200}


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("jitter", ["none", *JITTERED])
def test_the_server_serves_everyone_once_it_is_back_and_nobody_beyond_its_rate(jitter: str) -> None:
    served = simulation.recovery(jitter, 1).served
    assert len(served) == 200
    assert served == sorted(served)
    assert served[0] >= 1.5
    per_bucket = [round(moment * 1e9) // 10**7 for moment in served]
    assert max(map(per_bucket.count, per_bucket)) <= 12


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("jitter", JITTERED)
def test_the_same_seed_gives_the_same_race_and_another_seed_another(jitter: str) -> None:
    assert simulation.recovery(jitter, 1) == simulation.recovery(jitter, 1)
    assert simulation.recovery(jitter, 1) != simulation.recovery(jitter, 2)


@pytest.mark.usefixtures("_small")
def test_the_same_seed_gives_the_same_traffic_and_another_seed_another() -> None:
    def sent(seed: int) -> int:
        result: int = simulation.traffic(0.3, None, seed).sent
        return result

    assert sent(1) == sent(1)
    assert len({sent(seed) for seed in range(3)}) > 1


def test_waits_end_in_the_order_of_their_times_and_the_clock_stands_at_each() -> None:
    clock = simulation.VirtualTime()
    log: list[tuple[str, float]] = []

    async def client(name: str, *waits: float) -> None:
        for wait in waits:
            await clock.asleep(wait)
            log.append((name, clock.monotonic()))

    clock.run([client("a", 3, 1), client("b", 1, 1), client("c", 1)])
    assert log == [("b", 1), ("c", 1), ("b", 2), ("a", 3), ("a", 4)]


@pytest.mark.parametrize(("moment", "bucket"), [(0.0, 0), (0.0099, 0), (0.01, 1), (0.29, 29)])
def test_a_moment_falls_into_the_10_ms_that_it_begins(moment: float, bucket: int) -> None:
    clock = simulation.VirtualTime()
    clock.run([clock.asleep(moment)])
    assert clock.bucket == bucket


def test_an_error_in_a_client_ends_the_run_with_it() -> None:
    clock = simulation.VirtualTime()

    async def client() -> None:
        await clock.asleep(1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        clock.run([client()])


# --- the figure ----------------------------------------------------------------------------------


def recoveries() -> dict[str, Any]:
    return {jitter: simulation.recovery(jitter, 1) for jitter in simulation.NAMES}


@pytest.mark.usefixtures("_small")
def test_the_figure_shows_each_load_and_what_the_server_can_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    races = recoveries()
    library = MagicMock()
    monkeypatch.setitem(sys.modules, "matplotlib", library)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", library)
    simulation.draw(races, tmp_path / "herd.svg")
    figure = library.Figure.return_value
    axes = figure.add_subplot.return_value
    drawn = [sum(call.args[0]) for call in axes.stairs.call_args_list]
    shown = range(round(simulation.window() * 100))
    assert drawn == [sum(race.retries[bucket] for bucket in shown) for race in races.values()]
    assert [call.args for call in axes.axhline.call_args_list] == [(12,)] * 4
    assert figure.savefig.call_args.args == (tmp_path / "herd.svg",)


@pytest.mark.usefixtures("_small")
def test_matplotlib_draws_it_in_the_format_of_the_suffix(tmp_path: Path) -> None:
    for suffix, magic in {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}.items():
        path = tmp_path / f"herd{suffix}"
        simulation.draw(recoveries(), path)
        assert path.read_bytes().startswith(magic)


def test_without_matplotlib_a_figure_is_refused_before_anything_is_computed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(simulation.importlib.util, "find_spec", lambda name: None)
    path = tmp_path / "herd.png"
    with pytest.raises(SystemExit) as exit_info:
        simulation.main(["--output", str(path)])
    assert exit_info.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert 'pip install "httpx-safe-retry[examples]"' in captured.err
    assert not path.exists()
