"""`python -m tests.load`: run the load, print what came of it, and say by the exit status whether
all of it is as promised.
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import anyio

from .clients import Load, in_tasks, in_threads
from .figures import Figures, leaks, look
from .operations import Claim, Record, Verdict, judge

MODES = ("asyncio", "trio", "threads")
LIMIT = 1_000_000
"""How many operations a run may have."""

ROOT = Path(__file__).parent.parent.parent


class Server:
    """The server's process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.url = f"http://127.0.0.1:{self._line()}"

    def books(self) -> dict[str, Any]:
        """Its books, once all connections have ended."""
        self._pipe(self._process.stdin).write("\n")
        self._pipe(self._process.stdin).flush()
        books: dict[str, Any] = json.loads(self._line())
        return books

    def _line(self) -> str:
        return self._pipe(self._process.stdout).readline().strip()

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe


@contextmanager
def server(share: float, seed: int) -> Iterator[Server]:
    """Run the server for as long as the context lasts."""
    command = [sys.executable, "-m", "tests.load.server", str(share), str(seed)]
    with subprocess.Popen(command, cwd=ROOT, stdin=-1, stdout=-1, text=True) as process:
        try:
            yield Server(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(10)


def run(
    mode: str, seconds: float, options: argparse.Namespace, record: Record
) -> tuple[Load, dict[str, Any]]:
    """Run one load against a server of its own; return it, and the server's books."""
    with server(options.share, options.seed) as there:
        callers = options.threads if mode == "threads" else options.tasks
        load = Load(there.url, record, callers=callers, seed=options.seed)
        if mode == "threads":
            in_threads(load, seconds)
        else:
            anyio.run(in_tasks, load, seconds, backend=mode)
        return load, there.books()


def measure(mode: str, options: argparse.Namespace) -> list[str]:
    """Run one mode, print what came of it; return what is not as promised."""
    with noted() as notes:
        # The first run fills what is filled once: caches, pools of threads, the allocator's arenas.
        run(mode, max(1.0, options.seconds / 6), options, Record(LIMIT))
        record = Record(LIMIT)
        before = look()
        began = time.monotonic()
        load, books = run(mode, options.seconds, options, record)
        took = time.monotonic() - began
        after = look()
    total = min(load.total, LIMIT)
    verdict = judge(record, total, bytes.fromhex(books["done"]))
    show(mode, load, total, books, verdict, took)
    show_figures(before, after)
    problems = [*verdict.violations, *load.unclean, *notes, *leaks(before, after)]
    problems += [f"the server got another body: {one}" for one in books["damaged"]]
    if books["open"] or books["pending"]:
        problems.append(f"{books['open']} connections are open, {books['pending']} answers due")
    if total == 0:
        problems.append("nothing was sent")
    return problems


def show(
    mode: str, load: Load, total: int, books: dict[str, Any], verdict: Verdict, took: float
) -> None:
    """Print the operations, beside the server's books."""
    record = load.record
    callers = "threads" if mode == "threads" else f"tasks on {mode}"
    faults = sum(books["faults"].values())
    print(f"\n{load.callers} {callers}, {took:.1f} s: {total:,} operations, {total / took:,.0f}/s")
    print(
        f"  the server got {books['requests']:,} requests over {books['connections']:,} connections"
    )
    print(f"  and failed {faults:,} of them ({faults / max(1, books['requests']):.1%}):")
    for name, count in sorted(books["faults"].items()):
        print(f"    {name:<28} {count:>7,}")
    names = [claim.name.lower().replace("_", " ") for claim in Claim][1:]
    print(f"  {'what the callers were told':<26}" + "".join(f"{name:>15}" for name in names))
    for kind, counts in verdict.counts.items():
        cells = "".join(f"{counts.get(claim, 0):>15,}" for claim in list(Claim)[1:])
        print(f"    {kind:<24}{cells}")
    print(
        f"  keyed POSTs done exactly once: {verdict.keyed_done:,}; sent again by their callers: "
        f"{record.resent:,} times"
    )
    print(f"  unkeyed POSTs done once: {verdict.unkeyed_done:,}; none twice")
    print(f"  uncertain writes that were done: {verdict.uncertain_done:,}")


def show_figures(before: Figures, after: Figures) -> None:
    """Print what the process holds."""
    print(f"  {'what the process holds':<26}{'before':>15}{'after':>15}{'more':>15}")
    for name, was in asdict(before).items():
        now = asdict(after)[name]
        if name == "memory":
            cells = (
                f"{was / 2**20:>11.1f} MiB{now / 2**20:>11.1f} MiB{(now - was) / 2**20:>+11.1f} MiB"
            )
        else:
            cells = f"{was:>15,}{now:>15,}{now - was:>+15,}"
        print(f"    {name.replace('_', ' '):<24}{cells}")


@contextmanager
def noted() -> Iterator[list[str]]:
    """Collect what Python would only print: warnings of things left open, errors of no caller."""
    notes: list[str] = []

    def note(what: str) -> None:
        if len(notes) < 20:
            notes.append(what)

    def shown(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        note(f"{category.__name__}: {message}")

    kept: tuple[Any, Callable[..., Any], Callable[..., Any]] = (
        warnings.showwarning,
        sys.unraisablehook,
        threading.excepthook,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        # httpx leaves generators unfinished when a request fails or an answer is left, its own and
        # the caller's body alike, and trio says so. Ours still count.
        theirs = r"Async generator '(httpx2?\._|httpcore2?\._|tests\.load\.)"
        warnings.filterwarnings("ignore", theirs, ResourceWarning)
        vars(warnings)["showwarning"] = shown
        sys.unraisablehook = lambda hook: note(f"unraisable: {hook.exc_value!r} in {hook.object!r}")
        threading.excepthook = lambda hook: note(f"a thread ended in {hook.exc_value!r}")
        try:
            yield notes
        finally:
            warnings.showwarning, sys.unraisablehook, threading.excepthook = kept


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, or 1 if anything is not as promised."""
    parser = argparse.ArgumentParser(prog="python -m tests.load", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each mode (default: 60)")
    parser.add_argument("--mode", choices=MODES, action="append", help="default: all three")
    parser.add_argument("--tasks", type=int, default=200, help="(default: 200)")
    parser.add_argument("--threads", type=int, default=32, help="(default: 32)")
    parser.add_argument("--share", type=float, default=0.2, help="of failures (default: 0.2)")
    parser.add_argument("--seed", type=int, default=0, help="(default: 0)")
    options = parser.parse_args(arguments)
    # An uncertain write is a line of the log each, and there are thousands.
    logging.getLogger("httpx_safe_retry").setLevel(logging.CRITICAL)
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        # A folder of our own, so that nobody else's files are counted.
        tempfile.tempdir = folder
        for mode in options.mode or MODES:
            problems += [f"{mode}: {problem}" for problem in measure(mode, options)]
            sys.stdout.flush()
        tempfile.tempdir = None
    if problems:
        print(f"\n{len(problems)} problems", *problems[:60], sep="\n  ")
        return 1
    print("\nAll of it is as promised.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
