"""The README does what it says: each Python block runs, and CI finds both of its commands.

Markers are HTML comments on the line above a fenced block:

- `<!-- command: demo -->`, `<!-- command: tests -->`: the line that .ci/run executes as printed.
- `<!-- snippet: continues -->`: a Python block that goes on with the names of the one before.

A Python block runs with the network sealed: every host answers 200 with `ANSWER`, and only this
machine's loopback is real. It may await at top level. Test functions that it defines are run too.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import anyio
import httpx
import pytest
import respx

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
# A missing README fails each test here by its own name.
LINES = README.read_text(encoding="utf-8").splitlines() if README.exists() else []

ANSWER = {"id": "pay_1", "status": "succeeded", "items": []}


@dataclass(frozen=True)
class Block:
    """A fenced block: where its text starts (from 1), its language, its marker and its lines."""

    line: int
    language: str
    marker: str
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def blocks() -> Iterator[Block]:
    """Every fenced block, in order."""
    opened: int | None = None
    for index, line in enumerate(LINES):
        if not line.startswith("```"):
            continue
        if opened is None:
            opened = index
            continue
        before = LINES[opened - 1] if opened else ""
        marker = re.fullmatch(r"<!-- (.*) -->", before)
        language = LINES[opened].removeprefix("```").strip()
        text = tuple(LINES[opened + 1 : index])
        yield Block(opened + 2, language, marker[1] if marker else "", text)
        opened = None
    assert opened is None, f"the block of line {opened} never ends"


def programs() -> Iterator[tuple[Block, ...]]:
    """The Python blocks, those that continue joined to what they continue."""
    chain: list[Block] = []
    for block in blocks():
        if block.language != "python":
            continue
        if chain and block.marker != "snippet: continues":
            yield tuple(chain)
            chain = []
        chain.append(block)
    if chain:
        yield tuple(chain)


PROGRAMS = list(programs())


def run(block: Block, names: dict[str, object]) -> None:
    """Run a block; its errors tell the README's own line numbers."""
    source = "\n" * (block.line - 1) + block.text
    code = compile(source, str(README), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:

        async def main() -> None:
            await eval(code, names)

        anyio.run(main)
    else:
        exec(code, names)


def run_tests(names: dict[str, object]) -> None:
    """Run the test functions that a program defined, as pytest would."""
    for name, value in names.items():
        if name.startswith("test_") and callable(value):
            if inspect.iscoroutinefunction(value):
                anyio.run(value)
            else:
                value()


@pytest.mark.parametrize("program", [pytest.param(p, id=f"line {p[0].line}") for p in PROGRAMS])
def test_a_python_block_runs(program: tuple[Block, ...]) -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    with respx.mock(assert_all_called=False) as network:
        for host in ("127.0.0.1", "localhost"):
            network.route(host=host).pass_through()
        network.route().mock(return_value=httpx.Response(200, json=ANSWER))
        for block in program:
            run(block, names)
    # Outside: a test brings its own network, which this one would hide.
    run_tests(names)


def test_a_complete_example_stands_before_line_40() -> None:
    first = PROGRAMS[0][0]
    assert first.line + len(first.lines) < 40
    for part in ("import httpx\n", "from httpx_safe_retry import", "RetryTransport(", "client."):
        assert part in first.text


@pytest.mark.parametrize("name", ["demo", "tests"])
def test_a_command_stands_once_on_one_line(name: str) -> None:
    (block,) = (block for block in blocks() if block.marker == f"command: {name}")
    assert block.language == "sh"
    assert len(block.lines) == 1
    assert LINES.count(f"<!-- command: {name} -->") == 1


def test_every_marker_is_one_that_somebody_reads() -> None:
    known = {"command: demo", "command: tests", "snippet: continues"}
    written = {match[1] for line in LINES if (match := re.search("<!-- (.*?) -->", line))}
    assert written <= known


def test_nothing_tells_of_the_machine_that_it_was_written_on() -> None:
    told = re.compile(r"(?<![\w.])/(?:root|home|Users|work|tmp)/|[A-Z]:\\")
    assert [line for line in LINES if told.search(line)] == []


def test_each_relative_link_leads_somewhere() -> None:
    links = [link for line in LINES for link in re.findall(r"\]\(([^)\s]+)\)", line)]
    anchors = {
        "#" + re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower()).replace(" ", "-")
        for line in LINES
        if line.startswith("#")
    }
    inside = [link for link in links if not link.startswith(("http://", "https://"))]
    dead = [
        link
        for link in inside
        if link not in anchors and not (ROOT / link.partition("#")[0]).is_file()
    ]
    assert LINES
    assert dead == []
