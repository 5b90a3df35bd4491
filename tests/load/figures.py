"""What this process holds: before and after, the same."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_STATM = Path("/proc/self/statm")

PATIENCE = 5.0
"""Seconds that threads which have been told to end are given for it."""


@dataclass(frozen=True)
class Figures:
    """One look at the process.

    memory: resident, in bytes; 0 where the system does not tell. blocks: what Python has allocated.
    """

    memory: int
    blocks: int
    objects: int
    descriptors: int
    threads: int
    temporary_files: int


def look() -> Figures:
    """Count everything, once what is unreachable has gone and threads have ended."""
    for _ in range(3):
        gc.collect()
    end = time.monotonic() + PATIENCE
    while _threads() > 1 and time.monotonic() < end:
        time.sleep(0.02)
    _give_back()
    return Figures(
        memory=int(_STATM.read_text().split()[1]) * _PAGE if _STATM.exists() else 0,
        blocks=sys.getallocatedblocks(),
        objects=len(gc.get_objects()),
        descriptors=len(os.listdir("/dev/fd")),
        threads=_threads(),
        temporary_files=len(os.listdir(tempfile.gettempdir())),
    )


def _give_back() -> None:
    """Let glibc return the pages that it keeps for later: nothing in them is held by anybody."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _threads() -> int:
    # trio keeps the threads that it has used for ten seconds, in case that it needs them again.
    return sum(not thread.name.startswith("Trio thread") for thread in threading.enumerate())


def leaks(before: Figures, after: Figures) -> list[str]:
    """What there is more of than there should be.

    The interpreter and its libraries fill caches of their own: what leaks in a hundredth of all
    operations of a minute is still far above these limits. Memory is only a coarse net beside them,
    for what is not Python's: threads leave holes in it, which the allocator can't give back.
    """
    more = {
        "bytes of memory": (after.memory - before.memory, 16 * 1024 * 1024),
        "blocks": (after.blocks - before.blocks, 2000),
        "objects": (after.objects - before.objects, 500),
        "descriptors": (after.descriptors - before.descriptors, 0),
        "threads": (after.threads - before.threads, 0),
        "temporary files": (after.temporary_files - before.temporary_files, 0),
    }
    return [
        f"{amount} more {name} than before, {limit} are allowed"
        for name, (amount, limit) in more.items()
        if amount > limit
    ]
