"""A second of the load in each mode: see `tests/load` for what is held against what."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

ANYIO = tuple(map(int, importlib.metadata.version("anyio").split(".")[:2]))

# Cancelled while it connects, it drops the socket for the garbage collector to find.
leaves_sockets = pytest.mark.skipif(
    ANYIO < (4, 16), reason="on asyncio, anyio before 4.16 leaves a socket open itself"
)


@pytest.mark.parametrize("mode", [pytest.param("asyncio", marks=leaves_sockets), "trio", "threads"])
def test_a_second_of_trouble_leaves_every_operation_accounted_for_and_nothing_behind(
    mode: str,
) -> None:
    command = [sys.executable, "-W", "error", "-m", "tests.load", "--mode", mode, "--seconds", "1"]
    done = subprocess.run(
        [*command, "--tasks", "50", "--threads", "16"],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout.endswith("All of it is as promised.\n")
