"""`python -m tests.proof`: run the cases, draw the progress, print the table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from time import monotonic

from .campaign import all_cases, campaign, quiet, sample
from .cases import FAMILIES, PROTOCOLS
from .drivers import CLIENTS
from .judge import Tally

_HEADINGS = (
    "client",
    "runs",
    "duplicate writes",
    "bodies mangled",
    "false claims",
    "replay-safe requests lost",
    "told uncertain",
    "of these never ran",
    "answers broken off",
    "proved and sent again",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, or 1 if ours broke a law, or 2 if time was up before the last case."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if "httpx-retries" in (options.client or ()) and find_spec("httpx_retries") is None:
        parser.error("httpx-retries is not installed")
    cases = all_cases(options.family or FAMILIES, options.protocol or PROTOCOLS)
    if options.sample is not None:
        cases = sample(cases, options.sample, options.seed)
    status = 0
    rows = []
    for client in options.client or ["ours"]:
        tally = Tally()
        began = monotonic()
        work = campaign(client, cases, jobs=options.jobs, seconds=options.minutes * 60)
        for part in work:
            tally.add(part)
            _progress(client, tally.runs, len(cases), monotonic() - began)
        rows.append(_row(client, tally))
        if client == "ours":
            for violation in tally.violations[: options.show]:
                print(violation)
            if tally.violations:
                print(f"{len(tally.violations)} violations")
                status = 1
        if tally.runs < len(cases):
            print(f"{client}: time was up after {tally.runs} of {len(cases)} runs")
            status = status or 2
    print(_table([_HEADINGS, ["---"] * len(_HEADINGS), *rows]))
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.proof", description=__doc__)
    parser.add_argument("--sample", type=int, metavar="N", help="run N cases (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="which ones (default: 0)")
    parser.add_argument("--family", choices=FAMILIES, action="append", help="default: all three")
    parser.add_argument("--protocol", choices=PROTOCOLS, action="append", help="default: both")
    parser.add_argument("--client", choices=CLIENTS, action="append", help="default: ours")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--minutes", type=float, default=60, help="for each client (default: 60)")
    parser.add_argument("--show", type=int, default=20, help="violations to print (default: 20)")
    return parser


def _progress(client: str, done: int, of: int, seconds: float) -> None:
    if not sys.stderr.isatty():
        return
    bar = ("#" * (30 * done // of)).ljust(30)
    left = seconds / done * (of - done)
    end = "\n" if done == of else ""
    sys.stderr.write(f"\r{client} [{bar}] {done}/{of}, {left:.0f} s left   {end}")
    sys.stderr.flush()


def _row(client: str, tally: Tally) -> list[str]:
    share = f" ({tally.uncertain_unexecuted / tally.uncertain:.1%})" if tally.uncertain else ""
    return [
        client,
        f"{tally.runs:,}",
        f"{tally.duplicates:,}",
        f"{tally.mangled:,}",
        f"{tally.false_claims:,}",
        f"{tally.lost:,}",
        f"{tally.uncertain:,}",
        f"{tally.uncertain_unexecuted:,}{share}",
        f"{tally.broke_off:,}",
        f"{tally.retried:,}",
    ]


def _table(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    quiet()
    sys.exit(main())
