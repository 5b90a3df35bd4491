"""Many runs: all cases there are, a sample of them, in batches that can go to several processes.

The rule: a batch is of one family and one protocol, so that it needs one server and one event loop.
"""

from __future__ import annotations

import logging
import random
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import replace
from functools import partial
from itertools import groupby, islice
from multiprocessing import get_context
from time import monotonic

import anyio

from .cases import PROTOCOLS, Case, Family, Protocol, Size, attacks, settings
from .drivers import Client, arun, run
from .judge import Tally
from .server import Server

_BATCH = 250


def quiet() -> None:
    """Let this process say nothing of what is expected of all these failures."""
    logging.getLogger("httpx_safe_retry").setLevel(logging.CRITICAL)
    # httpx leaves generators of its own unfinished when a request fails, and trio says so.
    warnings.filterwarnings("ignore", "Async generator 'httpx", ResourceWarning)


def all_cases(families: Sequence[Family], protocols: Sequence[Protocol] = PROTOCOLS) -> list[Case]:
    """Return every case, after measuring how long the requests and answers are."""
    cases: list[Case] = []
    for protocol in protocols:
        with Server(protocol) as server:
            for setting in settings("sync", protocol):
                run("httpx", server, setting, 0)
                size = Size(*server.sizes)
                for family in families:
                    cases += attacks(replace(setting, family=family), size)
    return cases


def sample(cases: Sequence[Case], size: int, seed: int) -> list[Case]:
    """Return some of the cases, the same ones for the same seed."""
    return random.Random(seed).sample(cases, min(size, len(cases)))


def run_cases(client: Client, cases: Sequence[Case]) -> Tally:
    """Run cases of one family and one protocol."""
    tally = Tally()
    with Server(cases[0].protocol) as server:
        if cases[0].family == "sync":
            for number, case in enumerate(cases):
                tally.judge(case, *run(client, server, case, number))
        else:
            work = partial(_run_in_loop, client, server, cases, tally)
            anyio.run(work, backend=cases[0].family)
    return tally


async def _run_in_loop(client: Client, server: Server, cases: Sequence[Case], tally: Tally) -> None:
    for number, case in enumerate(cases):
        tally.judge(case, *await arun(client, server, case, number))


def batches(cases: Sequence[Case]) -> Iterator[list[Case]]:
    """Yield the cases in batches that can be run on their own."""

    def kind(case: Case) -> tuple[str, str]:
        return case.protocol, case.family

    for _, group in groupby(sorted(cases, key=kind), key=kind):
        while batch := list(islice(group, _BATCH)):
            yield batch


def campaign(
    client: Client, cases: Sequence[Case], *, jobs: int, seconds: float
) -> Iterator[Tally]:
    """Yield what became of each batch, as they end. No batch begins after so many seconds."""
    end = monotonic() + seconds
    # Mixed, so that what time does not allow is missing everywhere alike.
    todo = list(batches(cases))
    random.Random(0).shuffle(todo)
    if jobs == 1:
        for batch in todo:
            if monotonic() > end:
                return
            yield run_cases(client, batch)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn"), initializer=quiet) as pool:
        running: set[Future[Tally]] = set()
        while todo or running:
            while todo and len(running) < jobs and monotonic() <= end:
                running.add(pool.submit(run_cases, client, todo.pop()))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
