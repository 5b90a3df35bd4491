"""`python -m tests`: the whole suite for httpx and for httpx2, side by side.

Arguments go on to pytest.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence

LIBRARIES = ("httpx", "httpx2")


def main(arguments: Sequence[str]) -> int:
    """Run both; return 0 if both passed."""
    runs = [
        subprocess.Popen(
            [sys.executable, "-m", "pytest", *arguments],
            env={**os.environ, "TEST_LIBRARY": name},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name in LIBRARIES
    ]
    tellers = [
        threading.Thread(target=_tell, args=(name, run))
        for name, run in zip(LIBRARIES, runs, strict=True)
    ]
    for teller in tellers:
        teller.start()
    for teller in tellers:
        teller.join()
    return 1 if any(run.wait() for run in runs) else 0


def _tell(name: str, run: subprocess.Popen[str]) -> None:
    assert run.stdout is not None
    for line in run.stdout:
        print(f"{name:<6} | {line}", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
