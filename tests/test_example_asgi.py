"""The example of a deadline that travels: it shows what it promises, and fails when it isn't so."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from httpx_safe_retry.testing import LoopbackServer

ASGI_DEADLINE = Path(__file__).parent.parent / "examples" / "asgi_deadline.py"


def test_asgi_deadline_shows_all_three_parts() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", ASGI_DEADLINE],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("[ok]") == 8
    assert "3 requests came downstream, not 27" in done.stdout
    assert done.stdout.endswith("All of it is so.\n")
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    ("part", "name", "replacement"),
    [
        pytest.param("over_a_socket", "Service", "Heedless", id="a service goes on for nobody"),
        pytest.param("ignored", "Heedless", "Service", id="a service heeds what it should not"),
        pytest.param("in_one_task", "LoopbackServer", None, id="there is nothing to retry"),
    ],
)
def test_asgi_deadline_exits_with_1_when(
    part: str, name: str, replacement: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    example = loaded(ASGI_DEADLINE)

    def well(*script: object, **options: Any) -> LoopbackServer:
        return LoopbackServer()

    setattr(example, name, well if replacement is None else getattr(example, replacement))
    with pytest.raises(SystemExit) as ended:
        getattr(example, part)()
    assert ended.value.code == 1
    assert "[NOT SO]" in capsys.readouterr().out.splitlines()[-1]


def loaded(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
