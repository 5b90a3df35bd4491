"""What retries do to a server that is down, and what they do when it comes back.

Two questions of capacity planning, answered in virtual time by the library itself: every number
below comes out of a `RetryTransport` whose clock is an event queue, in front of a simulated server.

- *How much more traffic do retries make?* 10,000 requests in good times and in a total outage, with
  and without the retry budget.
- *How fast does everyone get served?* 1,000 clients lose the same server at the same moment. After
  1.5 s it is back and serves 60 requests per 10 ms; for each kind of jitter: the highest load, the
  mean time to a client's fifth retry, the time until 99 % of the clients are served.

    python examples/thundering_herd.py                      # a table and a chart, in the terminal
    python examples/thundering_herd.py --output herd.png    # and a figure (.png, .svg, .pdf)

The figure needs matplotlib: `pip install "httpx-safe-retry[examples]"`. The same `--seed` always
gives the same numbers.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import importlib
import importlib.util
import io
import itertools
import math
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx

from httpx_safe_retry import Backoff, RetryBudget, RetryPolicy, RetryTransport, get_report

Jitter = Literal["none", "full", "equal", "decorrelated"]

NAMES: dict[Jitter, str] = {
    "none": "no jitter",
    "full": "full jitter",
    "equal": "equal jitter",
    "decorrelated": "decorrelated jitter",
}

REQUESTS = 10_000
CLIENTS = 1_000
BASE, CAP = 0.1, 2.0
"""Seconds of the clients' backoff."""
BACK_AT = 1.5
"""Seconds until the server is back."""
SERVED_PER_BUCKET = 60
BUCKETS_PER_SECOND = 100


class VirtualTime:
    """A clock for `RetryTransport(clock=...)` whose waits are entries of an event queue."""

    def __init__(self) -> None:
        self._now = 0.0
        self._order = itertools.count()
        self._queue: list[tuple[float, int, asyncio.Future[None]]] = []
        self._running = 0

    def monotonic(self) -> float:
        return self._now

    def time(self) -> float:
        return self._now

    def sleep(self, seconds: float, wake: threading.Event) -> None:
        raise NotImplementedError("everything in here is async")

    async def asleep(self, seconds: float) -> None:
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._queue, (self._now + seconds, next(self._order), woken))
        self._running -= 1
        await woken

    @property
    def bucket(self) -> int:
        """Which 10 ms it is. Through nanoseconds, as 0.1 + 0.2 + 0.4 is not exactly 0.7."""
        return round(self._now * 1e9) * BUCKETS_PER_SECOND // 10**9

    def run(self, clients: Iterable[Coroutine[Any, Any, None]]) -> None:
        """Run all clients to their end, in the order of their waits."""
        asyncio.run(self._run(clients))

    async def _run(self, clients: Iterable[Coroutine[Any, Any, None]]) -> None:
        tasks = [asyncio.ensure_future(self._to_its_end(client)) for client in clients]
        self._running = len(tasks)
        while True:
            # Time moves once everybody waits for it.
            while self._running:
                await asyncio.sleep(0)
            if not self._queue:
                break
            self._now, _, woken = heapq.heappop(self._queue)
            self._running += 1
            woken.set_result(None)
        await asyncio.gather(*tasks)

    async def _to_its_end(self, client: Coroutine[Any, Any, None]) -> None:
        try:
            await client
        finally:
            self._running -= 1


class Server(httpx.AsyncBaseTransport):
    """Answers at once, and counts first attempts and retries per 10 ms."""

    def __init__(self, clock: VirtualTime, works: Callable[[int, int], bool]) -> None:
        self._clock = clock
        self._works = works
        self.first_attempts: Counter[int] = Counter()
        self.retries: Counter[int] = Counter()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        bucket = self._clock.bucket
        load = self.retries if "Retry-Attempt" in request.headers else self.first_attempts
        load[bucket] += 1
        nth = self.first_attempts[bucket] + self.retries[bucket]
        return httpx.Response(200 if self._works(bucket, nth) else 503)

    @property
    def sent(self) -> int:
        return self.first_attempts.total() + self.retries.total()


async def get(transport: RetryTransport) -> httpx.Response:
    return await transport.handle_async_request(httpx.Request("GET", "https://api.example.com/"))


# --- how much more traffic -----------------------------------------------------------------------


@dataclass(frozen=True)
class Traffic:
    sent: int
    failed: int


def traffic(failing: float, budget: RetryBudget | None, seed: int) -> Traffic:
    """10,000 requests, one per millisecond, of whose attempts a share of `failing` fails."""
    dice = random.Random(seed)
    clock = VirtualTime()
    server = Server(clock, lambda bucket, nth: dice.random() >= failing)
    transport = RetryTransport(
        server,
        policy=RetryPolicy(max_attempts=3, attempt_header="Retry-Attempt"),
        budget=budget,
        clock=clock,
        random=dice.random,
    )
    failed = 0

    async def client(start: float) -> None:
        nonlocal failed
        await clock.asleep(start)
        response = await get(transport)
        failed += response.is_error

    clock.run(client(number / 1000) for number in range(REQUESTS))
    return Traffic(server.sent, failed)


# --- how fast is everyone served -----------------------------------------------------------------


@dataclass(frozen=True)
class Herd:
    retries: Counter[int]
    """Retries in each 10 ms."""
    waited: list[float]
    """Seconds that each client waited in all."""
    served: list[float]
    """When each client that was served was, in order."""

    @property
    def peak(self) -> int:
        return max(self.retries.values())

    def served_after(self, share: float) -> float:
        return self.served[math.ceil(share * CLIENTS) - 1]


def herd(jitter: Jitter, seed: int, max_attempts: int, back_at: float = math.inf) -> Herd:
    """1,000 clients that all send their first request at 0 s, to a server that is down."""

    def works(bucket: int, nth: int) -> bool:
        return bucket >= back_at * BUCKETS_PER_SECOND and nth <= SERVED_PER_BUCKET

    clock = VirtualTime()
    server = Server(clock, works)
    transport = RetryTransport(
        server,
        policy=RetryPolicy(
            max_attempts=max_attempts,
            backoff=Backoff(base=BASE, cap=CAP, jitter=jitter),
            attempt_header="Retry-Attempt",
        ),
        budget=None,
        clock=clock,
        random=random.Random(seed).random,
    )
    waited: list[float] = []
    served: list[float] = []

    async def client() -> None:
        response = await get(transport)
        report = get_report(response)
        assert report is not None
        waited.append(report.slept)
        if response.is_success:
            served.append(clock.monotonic())

    clock.run(client() for _ in range(CLIENTS))
    return Herd(server.retries, waited, served)


def outage(jitter: Jitter, seed: int) -> Herd:
    """The server stays down, and each client gives up after 5 retries."""
    return herd(jitter, seed, max_attempts=6)


def recovery(jitter: Jitter, seed: int) -> Herd:
    """The server comes back, and no client gives up."""
    return herd(jitter, seed, max_attempts=sys.maxsize, back_at=BACK_AT)


# --- the table -----------------------------------------------------------------------------------


def print_traffic(seed: int) -> None:
    print(f"{REQUESTS:,} requests, up to 3 attempts each\n")
    print(f"  {'':<42}{'sent':>8}{'failed':>10}")
    for name, failing, budget in (
        ("1 % of the attempts fail, default budget", 0.01, RetryBudget()),
        ("total outage, no budget", 1.0, None),
        ("total outage, default budget", 1.0, RetryBudget()),
    ):
        result = traffic(failing, budget, seed)
        print(f"  {name:<42}{result.sent:>8,}{result.failed:>10,}")


def print_race(outages: dict[Jitter, Herd], recoveries: dict[Jitter, Herd]) -> None:
    print(f"\n{CLIENTS:,} clients lose the server at 0 s; backoff of 100 ms, doubled up to 2 s\n")
    print(f"  {'':<22}{'it stays down, 5 retries':<32}it is back after 1.5 s")
    print(f"  {'':<22}{'most per':<12}{'mean time to':<20}99 % served")
    print(f"  {'':<22}{'10 ms':<12}{'the 5th retry':<20}after")
    for jitter, name in NAMES.items():
        mean = sum(outages[jitter].waited) / CLIENTS
        after = recoveries[jitter].served_after(0.99)
        print(f"  {name:<22}{outages[jitter].peak:<12,}{f'{mean:.2f} s':<20}{after:.2f} s")


# --- the chart in the terminal -------------------------------------------------------------------

COLUMNS = 70
BUCKETS_PER_COLUMN = 5
ROWS_PER_DECADE = 2
DECADES = 3
BLOCKS = " ▁▂▃▄▅▆▇█"


def chart(recoveries: dict[Jitter, Herd]) -> str:
    """The load over time, 80 columns wide: the busiest 10 ms of every 50 ms, on a log scale."""
    back = round(BACK_AT * BUCKETS_PER_SECOND) // BUCKETS_PER_COLUMN
    margin = " " * 8
    down, up = " server down ".center(back, "─"), " server back ".center(COLUMNS - back - 1, "─")
    lines = [
        f"Retries per 10 ms, log scale; ╌╌ is what the server can serve, {SERVED_PER_BUCKET}",
        "",
        f"{margin}{down}┊{up}",
    ]
    for jitter, name in NAMES.items():
        race = recoveries[jitter]
        title = f"{name}: peak {race.peak:,}, 99 % served after {race.served_after(0.99):.1f} s"
        last = max(race.retries) / BUCKETS_PER_SECOND
        more = f"goes on to {last:.1f} s →" if last > window() else ""
        lines.append(f"{margin}{title}{more:>{COLUMNS - len(title)}}".rstrip())
        lines.extend(panel(race.retries, back))
    ticks = "".join("┬" if column % 10 == 0 else "─" for column in range(COLUMNS))
    seconds = BUCKETS_PER_COLUMN / BUCKETS_PER_SECOND
    labels = "".join(f"{column * seconds:<10g}" for column in range(0, COLUMNS, 10)).rstrip()
    lines += [f"{'1':>6} └{ticks}", f"{margin}{labels}{'time, s':>{COLUMNS - len(labels)}}"]
    return "\n".join(lines)


def window() -> float:
    """Seconds that the charts show."""
    return COLUMNS * BUCKETS_PER_COLUMN / BUCKETS_PER_SECOND


def panel(retries: Counter[int], back: int) -> list[str]:
    rows = DECADES * ROWS_PER_DECADE
    heights = []
    for column in range(COLUMNS):
        start = column * BUCKETS_PER_COLUMN
        most = max(retries[bucket] for bucket in range(start, start + BUCKETS_PER_COLUMN))
        # In eighths of a row; a single retry is one eighth, so that it is seen.
        height = max(1, round(math.log10(most) * ROWS_PER_DECADE * 8)) if most else 0
        heights.append(height)
    line = int(math.log10(SERVED_PER_BUCKET) * ROWS_PER_DECADE)
    text = []
    for row in reversed(range(rows)):
        cells = [BLOCKS[min(8, max(0, height - 8 * row))] for height in heights]
        empty = ["╌" if row == line else "┊" if x == back else " " for x in range(COLUMNS)]
        bars = "".join(cell if cell != " " else empty[x] for x, cell in enumerate(cells))
        decade, rest = divmod(row + 1, ROWS_PER_DECADE)
        text.append(f"{'' if rest else f'{10**decade:,}':>6} {'│' if rest else '┤'}{bars}".rstrip())
    return text


# --- the figure ----------------------------------------------------------------------------------

# Okabe and Ito's palette, which people with any kind of colour vision can tell apart.
COLOURS: dict[Jitter, str] = {
    "none": "#D55E00",
    "full": "#0072B2",
    "equal": "#009E73",
    "decorrelated": "#CC79A7",
}
FORMULAS: dict[Jitter, str] = {
    "none": f"wait d = min({CAP:g} s, {BASE:g} s * 2ⁿ)",
    "full": "wait U(0, d)",
    "equal": "wait d/2 + U(0, d/2)",
    "decorrelated": "wait U(base, 3 * the wait before)",
}


def draw(recoveries: dict[Jitter, Herd], path: Path) -> None:
    """Draw the load over time and who is served when; the path's suffix names the format."""
    matplotlib: Any = importlib.import_module("matplotlib")
    figure_module: Any = importlib.import_module("matplotlib.figure")
    style = {
        "font.size": 14,
        "axes.spines.top": False,
        "axes.spines.right": False,
        # The same numbers give the same file.
        "svg.hashsalt": "thundering herd",
    }
    with matplotlib.rc_context(style):
        figure = figure_module.Figure(figsize=(16, 9), layout="constrained")
        figure.get_layout_engine().set(h_pad=0.15, w_pad=0.15)
        figure.suptitle(
            f"{CLIENTS:,} clients lose one server for {BACK_AT:g} s, and all of them retry",
            fontsize=24,
            fontweight="bold",
        )
        grid = figure.add_gridspec(4, 2, width_ratios=[8, 5])
        _draw_load(figure, grid, recoveries)
        _draw_served(figure.add_subplot(grid[:, 1]), recoveries)
        metadata = {"Date": None} if path.suffix == ".svg" else {}
        figure.savefig(path, dpi=120, metadata=metadata)


def _draw_load(figure: Any, grid: Any, recoveries: dict[Jitter, Herd]) -> None:
    buckets = range(round(window() * BUCKETS_PER_SECOND))
    edges = [bucket / BUCKETS_PER_SECOND for bucket in [*buckets, len(buckets)]]
    axes = None
    for row, (jitter, race) in enumerate(recoveries.items()):
        axes = figure.add_subplot(grid[row, 0], sharex=axes, sharey=axes)
        loads = [race.retries[bucket] for bucket in buckets]
        axes.axvspan(0, BACK_AT, color="0.92", linewidth=0)
        axes.stairs(loads, edges, fill=True, color=COLOURS[jitter])
        axes.axhline(SERVED_PER_BUCKET, color="black", linestyle="--", linewidth=1.5)
        axes.set_yscale("log")
        axes.set_ylim(0.8, 2000)
        axes.set_yticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
        axes.set_xlim(0, window())
        axes.tick_params(axis="x", labelbottom=row == len(recoveries) - 1)
        axes.set_title(
            f"{NAMES[jitter]}: {FORMULAS[jitter]}",
            loc="left",
            color=COLOURS[jitter],
            fontweight="bold",
        )
        axes.set_title(f"peak {race.peak:,}", loc="right", color=COLOURS[jitter])
        if row == 0:
            axes.text(1.1, 1.3, "server down", ha="center", color="0.35")
            note = f"server back: it serves {SERVED_PER_BUCKET} per 10 ms"
            axes.text(BACK_AT + 0.05, SERVED_PER_BUCKET * 1.3, note)
            note = f"and so on, every {CAP:g} s, until {max(race.served):.1f} s →"
            axes.text(BACK_AT + 0.05, 1.3, note, color=COLOURS[jitter])
    figure.supylabel("retries per 10 ms, log scale", fontsize=16)
    if axes is not None:
        axes.set_xlabel("time since the outage began, s", fontsize=16)


def _draw_served(axes: Any, recoveries: dict[Jitter, Herd]) -> None:
    for jitter, race in recoveries.items():
        share = [100 * (number + 1) / CLIENTS for number in range(len(race.served))]
        after = race.served_after(0.99)
        label = f"{jitter} {after:.1f} s"
        axes.step(race.served, share, where="post", color=COLOURS[jitter], lw=3, label=label)
        axes.plot([after], [99], "o", color=COLOURS[jitter], markersize=10)
    axes.set_title("Who is served when", loc="left", fontweight="bold")
    axes.set_xscale("log")
    axes.set_xlim(BACK_AT - 0.05, 40)
    axes.set_xticks([1.5, 2, 3, 5, 10, 20, 40], ["1.5", "2", "3", "5", "10", "20", "40"])
    axes.minorticks_off()
    axes.set_ylim(0, 103)
    axes.grid(color="0.9")
    axes.set_xlabel("time since the outage began, s, log scale", fontsize=16)
    axes.set_ylabel("clients served, %", fontsize=16)
    axes.legend(title="99 % served after", loc="upper left", bbox_to_anchor=(0.31, 1))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="What retries do to a server, simulated.")
    parser.add_argument("--output", type=Path, help="also draw a figure: .png, .svg or .pdf")
    parser.add_argument("--seed", type=int, default=1, help="for other numbers (default: 1)")
    options = parser.parse_args(arguments)
    if options.output is not None and importlib.util.find_spec("matplotlib") is None:
        parser.error('--output needs matplotlib: pip install "httpx-safe-retry[examples]"')
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Some consoles' own encodings have no blocks to draw with.
        sys.stdout.reconfigure(encoding="utf-8")
    print_traffic(options.seed)
    outages = {jitter: outage(jitter, options.seed) for jitter in NAMES}
    recoveries = {jitter: recovery(jitter, options.seed) for jitter in NAMES}
    print_race(outages, recoveries)
    print(f"\n{chart(recoveries)}")
    if options.output is not None:
        draw(recoveries, options.output)
        print(f"\nDrawn: {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
