"""What a user installs: two dependencies, types, and nothing else beside the code."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import httpx_safe_retry
from tests.test_architecture import SOURCES, imports

# Python 3.10 has none; coverage[toml] brings what took its place there.
toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
ROOT = Path(__file__).parent.parent
PROJECT: dict[str, Any] = toml.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
METADATA: dict[str, Any] = PROJECT["project"]


def test_httpx_and_anyio_are_all_that_it_depends_on() -> None:
    names = [requirement.partition(">=")[0] for requirement in METADATA["dependencies"]]
    assert names == ["httpx", "anyio"]


def test_the_code_imports_what_it_depends_on_and_the_standard_library() -> None:
    # h11 comes with httpcore; the loopback server for users' tests speaks with it.
    known = {"__future__", "anyio", "h11", "httpx"} | sys.stdlib_module_names
    # What an extra brings, and only who asked for it imports.
    extras = {
        "httpx2": {"httpx2"},
        "opentelemetry": {"opentelemetry"},
        "testing.httpx2": {"httpx2"},
    }
    found = {name: imports(name)[1] - known for name in SOURCES}
    assert {name: others for name, others in found.items() if others} == extras


def test_importing_it_brings_in_nothing_beyond_them() -> None:
    code = (
        "import sys, httpx; before = set(sys.modules); import httpx_safe_retry;"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    )
    command = [sys.executable, "-c", code]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    # What anyio itself stands on, version by version.
    known = {"httpx_safe_retry", "anyio", "exceptiongroup", "idna", "sniffio", "typing_extensions"}
    assert {name for name in names if not name.startswith("_")} - sys.stdlib_module_names <= known


def test_type_checkers_find_its_types() -> None:
    assert httpx_safe_retry.__file__ is not None
    assert Path(httpx_safe_retry.__file__).with_name("py.typed").read_bytes() == b""
    assert "Typing :: Typed" in METADATA["classifiers"]


def test_it_names_each_python_that_it_runs_on() -> None:
    assert METADATA["requires-python"] == ">=3.10"
    prefix = "Programming Language :: Python :: 3."
    minors = [int(c.removeprefix(prefix)) for c in METADATA["classifiers"] if c.startswith(prefix)]
    assert minors == [10, 11, 12, 13, 14]
    assert sys.version_info.minor in minors


def test_the_changelog_tells_of_this_version_or_of_the_next() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{METADATA['version']}]" in changelog or "## [Unreleased]" in changelog


@pytest.mark.parametrize("tool", ["pytest", "respx", "hypothesis", "trio", "coverage[toml]"])
def test_one_extra_installs_what_the_tests_need(tool: str) -> None:
    extra = METADATA["optional-dependencies"]["test"]
    assert tool in {requirement.partition(">=")[0] for requirement in extra}


def test_the_top_level_holds_nothing_else() -> None:
    known = {"CHANGELOG.md", "LICENSE", "README.md", "examples", "pyproject.toml", "src", "tests"}
    known |= {"build", "dist", "htmlcov"}  # what tools leave, and git ignores
    assert {path.name for path in ROOT.iterdir() if not path.name.startswith(".")} <= known


def test_ci_can_be_run() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", str(script)], check=True)
