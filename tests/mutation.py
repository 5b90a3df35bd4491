"""Break the safety core at one place at a time, and see whether a test notices.

    python tests/mutation.py                     all of `_decide.py`, `_classify.py`, `_proof.py`
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
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest

for needed in ("h2.connection", "httpx", "hypothesis.stateful", "respx", "trio", "trustme"):
    import_module(needed)

ROOT = Path(__file__).parent.parent
PACKAGE = "httpx_safe_retry"
MODULES = ("_decide.py", "_classify.py", "_proof.py")
TESTS = (  # the quickest to fail stands first
    "test_decide.py",
    "test_classify.py",
    "test_classify_corners.py",
    "test_inner_reports.py",
    "test_foreign_evidence.py",
    "test_passive_layers.py",
    "test_events_and_logs.py",
    "test_leaks.py",
    "test_safety.py",
    "test_transport_errors.py",
    "test_delays.py",
    "test_laws.py",
    "test_proof_regressions.py",
    "test_model.py",
)
TIMEOUT = 300

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
    # Annotations are never evaluated, nor what is imported for them; decorators make dataclasses
    # what they are.
    roots: list[ast.AST | None] = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            roots += node.decorator_list
        if isinstance(node, ast.FunctionDef):
            roots.append(node.returns)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            roots.append(node)
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


def begin(mutant: Mutant, tests: list[str], folder: str) -> int:
    """Run the tests on a broken copy in `folder`; return the id of the process that does."""
    copied = Path(folder, PACKAGE)
    shutil.copytree(ROOT / "src" / PACKAGE, copied, ignore=shutil.ignore_patterns("*.pyc"))
    Path(copied, mutant.module).write_text(mutant.source)
    Path(folder, "mutation_profile.py").write_text(_PROFILE)
    # A fork starts with all that this one has imported: that is most of the time a run takes.
    process = os.fork()
    if process == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        os.chdir(ROOT)
        sys.path.insert(0, folder)
        sys.dont_write_bytecode = True
        signal.alarm(TIMEOUT)
        options = ["-x", "-q", "--assert=plain", "-p", "no:cacheprovider", "-p", "mutation_profile"]
        # The tests of the module itself are the quickest to notice.
        first = f"tests/test{mutant.module}"
        files = sorted(tests, key=lambda name: name != first)
        os._exit(pytest.main([*options, "--hypothesis-profile=mutation", *files]))
    return process


def survivors(todo: Sequence[Mutant], tests: list[str], jobs: int) -> Iterator[tuple[Mutant, bool]]:
    """Yield each mutant, and whether every test passed on it, as the runs end."""
    waiting = list(todo)
    running: dict[int, tuple[Mutant, str]] = {}
    while waiting or running:
        if waiting and len(running) < jobs:
            mutant, folder = waiting.pop(0), tempfile.mkdtemp()
            running[begin(mutant, tests, folder)] = mutant, folder
            continue
        process, status = os.wait()
        mutant, folder = running.pop(process)
        shutil.rmtree(folder)
        yield mutant, status == 0


def main() -> int:
    """Return 1 if one survived, 2 if nothing can be said."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=MODULES, help="default: all")
    parser.add_argument("--lines", type=int, nargs=2, default=(0, 10**6), help="from, to")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="files in tests/")
    options = parser.parse_args()
    first, last = options.lines
    todo = [
        mutant
        for module in MODULES
        if options.only in (None, module)
        for mutant in mutants(module, Path(ROOT, "src", PACKAGE, module).read_text())
        if first <= mutant.line <= last
    ]
    tests = [f"tests/{name}" for name in options.tests]
    whole = Mutant(MODULES[0], 0, "nothing", Path(ROOT, "src", PACKAGE, MODULES[0]).read_text())
    if not all(lives for _, lives in survivors([whole], tests, 1)):
        print("the tests fail on what is not broken")
        return 2
    survived = 0
    for number, (mutant, lives) in enumerate(survivors(todo, tests, options.jobs), 1):
        if lives:
            survived += 1
            print(f"survived: {mutant}", flush=True)
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{number}/{len(todo)}, {survived} survived ")
    print(f"{len(todo) - survived} of {len(todo)} mutants killed")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
