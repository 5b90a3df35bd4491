"""How the examples are run by their tests: as a user does, and loaded, to be looked at closely."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

EXAMPLES = Path(__file__).parent.parent / "examples"


def shown_by(name: str) -> str:
    """Run an example, and return what it prints. Warnings are errors, and it fits 80 columns."""
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / name],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= 80
    return done.stdout


def loaded(name: str) -> ModuleType:
    """Import an example."""
    path = EXAMPLES / name
    spec = importlib.util.spec_from_file_location(f"examples.{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up by its name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
