"""Break the safety core at one place at a time, and see whether a test notices.

    python tests/mutation.py                     all of `_decide.py` and `_classify.py`
    python tests/mutation.py --only _decide.py --jobs 2

Each condition is taken for always and for never true, each part of one is left out, each comparison
is turned, each fact of the tables is changed and each member of a set is dropped. The tests run on
a copy; the checkout stays as it is. Survivors are printed: each is a gap, or makes no difference.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = "httpx_safe_retry"
MODULES = ("_decide.py", "_classify.py")
TESTS = (  # the quickest to fail stands first
    "test_decide.py",
    "test_classify.py",
    "test_safety.py",
    "test_delays.py",
    "test_laws.py",
    "test_proof_regressions.py",
    "test_model.py",
)
TIMEOUT = 300.0

_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_RENAMED = {"_N": "_A", "_A": "_N", "any": "all", "all": "any", "min": "max", "max": "min"}
_FACTS = {
    "AMBIGUOUS": "REFUSED",
    "REFUSED": "AMBIGUOUS",
    "EXECUTED": "AMBIGUOUS",
    "NOT_SENT": "AMBIGUOUS",
}


# One counterexample is enough, however long; the same ones every time.
_PROFILE = """
from hypothesis import Phase, settings

phases = [Phase.explicit, Phase.generate]
settings.register_profile(
    "mutation", deadline=None, derandomize=True, database=None, phases=phases
)
"""


@dataclass(frozen=True)
class Mutant:
    """One module with one thing changed."""

    module: str
    line: int
    change: str
    source: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.change}"


def mutants(module: str, source: str) -> Iterator[Mutant]:
    """Yield each way to break a module."""
    tree = ast.parse(source)
    apart = _what_does_nothing(tree)
    for index, node in enumerate(ast.walk(tree)):
        if id(node) in apart:
            continue
        for change, new in _changes(node):
            broken = copy.deepcopy(tree)
            _put(broken, index, new)
            text = ast.unparse(ast.fix_missing_locations(broken))
            yield Mutant(module, getattr(node, "lineno", 0), change, text)


def _what_does_nothing(tree: ast.AST) -> set[int]:
    # Annotations are never evaluated; decorators make dataclasses what they are.
    roots: list[ast.AST | None] = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            roots += node.decorator_list
        if isinstance(node, ast.FunctionDef):
            roots.append(node.returns)
        if isinstance(node, (ast.arg, ast.AnnAssign)):
            roots.append(node.annotation)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "cast":
            roots.append(node.args[0])
    return {id(node) for root in roots if root is not None for node in ast.walk(root)}


def _put(tree: ast.AST, index: int, new: ast.AST) -> None:
    for at, node in enumerate(ast.walk(tree)):
        if at == index:
            node.__class__ = new.__class__
            vars(node).clear()
            vars(node).update(vars(new))
            return


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.If(test=test) | ast.IfExp(test=test):
            for value in (True, False):
                taken = copy.copy(node)
                taken.test = ast.Constant(value)
                yield f"`{ast.unparse(test)}` is taken for {value}", taken
        case ast.BoolOp(op=operator, values=parts):
            for part in parts:
                rest = [each for each in parts if each is not part]
                left = ast.BoolOp(operator, rest) if len(rest) > 1 else rest[0]
                yield f"`{ast.unparse(part)}` is left out of `{ast.unparse(node)}`", left
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield f"`{ast.unparse(node)}` becomes `{ast.unparse(operand)}`", operand
        case ast.Compare(ops=operators):
            for at, comparison in enumerate(operators):
                turned = copy.copy(node)
                turned.ops = [*operators[:at], _TURNED[type(comparison)](), *operators[at + 1 :]]
                yield f"`{ast.unparse(node)}` becomes `{ast.unparse(turned)}`", turned
        case ast.Set(elts=members):
            yield from _without_one(node, members)
        case ast.Tuple(elts=members) if all(isinstance(each, ast.Constant) for each in members):
            yield from _without_one(node, members)
        case ast.Constant(value=bool(value)):
            yield f"{value} becomes {not value}", ast.Constant(not value)
        case ast.Name(id=name) if name in _RENAMED:
            yield f"{name} becomes {_RENAMED[name]}", ast.Name(_RENAMED[name], node.ctx)
        case ast.Attribute(value=ast.Name(id="Evidence"), attr=fact):
            yield (
                f"{fact} becomes {_FACTS[fact]}",
                ast.Attribute(node.value, _FACTS[fact], node.ctx),
            )
        case ast.Attribute(value=ast.Name(id="StopReason"), attr=reason):
            other = "DEADLINE" if reason != "DEADLINE" else "BUDGET"
            yield f"{reason} becomes {other}", ast.Attribute(node.value, other, node.ctx)


def _without_one(
    node: ast.Set | ast.Tuple, members: list[ast.expr]
) -> Iterator[tuple[str, ast.AST]]:
    for member in members:
        fewer = copy.copy(node)
        fewer.elts = [each for each in members if each is not member]
        yield f"{ast.unparse(member)} is left out of {ast.unparse(node)}", fewer


def survives(mutant: Mutant, tests: list[str]) -> bool:
    """Whether every test passes on the broken copy."""
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder, PACKAGE)
        shutil.copytree(ROOT / "src" / PACKAGE, copied, ignore=shutil.ignore_patterns("*.pyc"))
        Path(copied, mutant.module).write_text(mutant.source)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        # CI: the same examples every time, and no database of them.
        environment = {
            **os.environ,
            "PYTHONPATH": folder,
            "PYTHONDONTWRITEBYTECODE": "1",
            "CI": "1",
        }
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env=environment,
                capture_output=True,
                timeout=TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0


def main() -> int:
    """Return 1 if one survived that is not known to make no difference."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=MODULES, help="default: both")
    parser.add_argument("--jobs", type=int, default=1, help="default: 1")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="files in tests/")
    options = parser.parse_args()
    tests = [f"tests/{name}" for name in options.tests]
    todo = [
        mutant
        for module in MODULES
        if options.only in (None, module)
        for mutant in mutants(module, Path(ROOT, "src", PACKAGE, module).read_text())
    ]
    survivors = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for number, (mutant, survived) in enumerate(
            zip(todo, pool.map(lambda each: survives(each, tests), todo), strict=True), 1
        ):
            if survived:
                survivors.append(mutant)
                print(f"survived: {mutant}", flush=True)
            if sys.stderr.isatty():
                sys.stderr.write(f"\r{number}/{len(todo)}, {len(survivors)} survived ")
    print(f"{len(todo) - len(survivors)} of {len(todo)} mutants killed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
