"""`python -m tests`: the whole suite for httpx and for httpx2, side by side.

Arguments go on to pytest. Needs Python with both installed: `pip install '.[test]'`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

LIBRARIES = ("httpx", "httpx2")


def main(arguments: Sequence[str]) -> int:
    """Run both; return 0 if both passed."""
    runs = {
        name: subprocess.Popen(
            [sys.executable, "-m", "pytest", *arguments],
            env={**os.environ, "TEST_LIBRARY": name},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name in LIBRARIES
    }
    failed = []
    for name, run in runs.items():
        output, _ = run.communicate()
        print(f"\n===== {name} =====\n{output}", flush=True)
        if run.returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
