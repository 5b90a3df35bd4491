"""The shape of the code: no cycles, a core without I/O, whole public names, two equal drivers."""

from __future__ import annotations

import ast
import difflib
import graphlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import httpx_safe_retry
import httpx_safe_retry.httpx2
import httpx_safe_retry.opentelemetry
import httpx_safe_retry.testing
import httpx_safe_retry.testing.httpx2

assert httpx_safe_retry.__file__ is not None
PACKAGE = Path(httpx_safe_retry.__file__).parent
SOURCES = {
    path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", "."): path
    for path in sorted(PACKAGE.rglob("*.py"))
}

# What thinks, without clock, dice, sleep, log or socket. A new module belongs here or below.
CORE = {
    "_answer",
    "_backoff",
    "_budget",
    "_checks",
    "_classify",
    "_course",
    "_decide",
    "_engine",
    "_errors",
    "_explain",
    "_facts",
    "_frozen",
    "_outcome",
    "_overrides",
    "_policy",
    "_proof",
    "_record",
    "_redact",
    "_report",
    "_retry_after",
    "_trace",
}
# What acts.
SHELL = {
    "__init__",
    "__main__",
    "_at_once",
    "_base",
    "_body",
    "_cli",
    "_client",
    "_clock",
    "_deadline",
    "_events",
    "_files",
    "_foretell",
    "_for_httpx",
    "_library",
    "_private",
    "_recorded",
    "_recording",
    "_rest",
    "_streams",
    "_table",
    "_tasks",
    "_terminal",
    "_threads",
    "_transport",
    "_trials",
    "_wrapped",
    "opentelemetry",
    "httpx2",
}

# Where the core reaches into the shell when it runs, and what for.
DOORS = {
    ("_course", "_events"): "the audience's type",
    ("_engine", "_clock"): "an event made of two",
    ("_record", "_events"): "the events' types",
    ("_frozen", "_private"): "header lines as httpx holds them",
}

BANNED = {
    "anyio",
    "asyncio",
    "concurrent",
    "httpcore",
    "httpx",
    "logging",
    "os",
    "queue",
    "random",
    "select",
    "selectors",
    "sniffio",
    "socket",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "trio",
    "warnings",
}
ALLOWED = {
    ("_budget", "threading"): "locks that guard arithmetic and nothing else",
    ("_overrides", "threading"): "the type of an override's cancel event",
    ("_policy", "threading"): "the type of an override's cancel event",
}


def runtime_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those under `if TYPE_CHECKING:`."""
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            for alternative in child.orelse:
                yield from runtime_nodes(alternative)
        else:
            yield from runtime_nodes(child)


def imports(module: str) -> tuple[set[str], set[str]]:
    """What a module imports when it runs: modules of the package, and top-level names of others."""
    inside: set[str] = set()
    outside: set[str] = set()
    folder = module.split(".")[:-1]
    for node in runtime_nodes(ast.parse(SOURCES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            outside.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            outside.add(str(node.module).split(".")[0])
        elif isinstance(node, ast.ImportFrom):
            at = folder[: len(folder) - node.level + 1]
            if node.module is not None:
                inside.add(".".join([*at, node.module]))
            else:
                inside.update(".".join([*at, alias.name]) for alias in node.names)
    return inside, outside


def test_the_import_graph_has_no_cycle() -> None:
    graph = {module: imports(module)[0] for module in SOURCES}
    assert set().union(*graph.values()) <= set(SOURCES)
    list(graphlib.TopologicalSorter(graph).static_order())


def test_the_package_is_imported_by_relative_names_alone() -> None:
    assert [name for name in SOURCES if "httpx_safe_retry" in imports(name)[1]] == []


def test_each_module_thinks_or_acts() -> None:
    assert {name for name in SOURCES if "." not in name} == CORE | SHELL
    assert not CORE & SHELL


def test_the_core_imports_nothing_that_acts() -> None:
    found = {(name, other) for name in CORE for other in imports(name)[1] & BANNED}
    assert found == set(ALLOWED)


def test_the_core_reaches_into_the_shell_through_known_doors_alone() -> None:
    found = {(name, other) for name in CORE for other in imports(name)[0] & SHELL}
    assert found == set(DOORS)


# ---------------------------------------------------------------------------------------------
# Public names

PUBLIC = [
    httpx_safe_retry,
    httpx_safe_retry.httpx2,
    httpx_safe_retry.opentelemetry,
    httpx_safe_retry.testing,
    httpx_safe_retry.testing.httpx2,
]
MEMBERS = [
    pytest.param(module, name, id=f"{module.__name__}.{name}")
    for module in PUBLIC
    for name in module.__all__
]


@pytest.mark.parametrize("module", PUBLIC)
def test_all_names_are_listed_sorted_and_once(module: ModuleType) -> None:
    assert list(module.__all__) == sorted(set(module.__all__))


@pytest.mark.parametrize("module", [httpx_safe_retry, httpx_safe_retry.testing])
def test_a_package_holds_its_names_and_nothing_else(module: ModuleType) -> None:
    public = {
        name
        for name, value in inspect.getmembers(module)
        if not name.startswith("_")
        and not inspect.ismodule(value)
        and name not in ("annotations", "TYPE_CHECKING")
    }
    assert public == set(module.__all__)


def test_the_promised_names_are_there() -> None:
    promised = """
        RetryTransport RetryPolicy Backoff RetryBudget Outcome StopReason RetryReport Attempt
        RetryError UncertainWriteError RetriesExhaustedError DeadlineExceededError
        PermanentFailureError get_report raise_for_outcome wrap_client deadline
    """
    assert set(promised.split()) <= set(httpx_safe_retry.__all__)


@pytest.mark.parametrize(("module", "name"), MEMBERS)
def test_a_public_name_says_where_users_find_it(module: ModuleType, name: str) -> None:
    member = getattr(module, name)
    if isinstance(member, type) or inspect.isroutine(member):
        assert (member.__module__, member.__qualname__) == (module.__name__, name)


@pytest.mark.parametrize(("module", "name"), MEMBERS)
def test_a_public_name_is_documented(module: ModuleType, name: str) -> None:
    member = getattr(module, name)
    if not (isinstance(member, type) or inspect.isroutine(member)):
        return  # A type alias: its text is in the module's source.
    # A dataclass that has no docstring writes one itself.
    assert not (member.__doc__ or name + "(").startswith(name + "(")
    if isinstance(member, type):
        bare = [
            part
            for part, value in vars(member).items()
            if not part.startswith("_")
            and (inspect.isroutine(value) or isinstance(value, property))
            # What overrides means what its base says.
            if not any(hasattr(base, part) for base in member.__mro__[1:])
            if not inspect.getdoc(getattr(member, part))
        ]
        assert bare == []


# ---------------------------------------------------------------------------------------------
# Two drivers

# Each pair of methods of `RetryTransport`: the one for threads, the one for tasks.
TWINS = {
    "handle_request": "handle_async_request",
    "_drive": "_adrive",
    "_exchange": "_aexchange",
    "_answered": "_aanswered",
    "_failed": "_afailed",
    "_pause": "_apause",
    "__enter__": "__aenter__",
    "__exit__": "__aexit__",
    "close": "aclose",
}

# What has another name in a task. Each has to be needed.
NAMES = {
    "asynchronous": "sync",
    "for_tasks": "for_threads",
    "AsyncBaseTransport": "BaseTransport",
    "of_task": "of_thread",
    "asleep": "sleep",
    **{theirs: ours for ours, theirs in TWINS.items()},
}

# What only one of the two has to say, and why.
DIFFERENCES = {
    # Only a task can be ended as a whole.
    "self._exchange if call.allowed is None else self._abounded_exchange": "self._exchange",
    "asynchronous=True": "asynchronous=False",
    # Cancellation goes on when the body is closed.
    "with anyio.CancelScope(shield=True):\n    call.body.close()": "call.body.close()",
    # A thread can't give up a read: it shortens the timeout. A task is ended.
    "call.read = aread_rest(library, response)": (
        "call.read = read_rest(library, response, call.timeouts, call.ends, self._clock.monotonic)"
    ),
    "aread_rest(library, response)": "read_rest(library, response, None, None, now)",
    "adiscard(self._library, call.method, response, ends, now)": (
        "discard(self._library, call.method, response, call.sent_timeouts, "
        "call.timeouts is not None, ends, now)"
    ),
    # A thread is woken by an event, a task is cancelled.
    "sleep(wait.delay)": "sleep(wait.delay, call.wake)",
}


class _Synchronous(ast.NodeTransformer):
    """Async code as its sync twin would be written: the words, then the names."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names
        self.used: set[str] = set()

    def _named(self, name: str) -> str:
        if name in self._names:
            self.used.add(name)
        return self._names.get(name, name)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        self.generic_visit(node)
        fields = {name: getattr(node, name) for name in node._fields}
        return ast.FunctionDef(**{**fields, "name": self._named(node.name)})

    def visit_Await(self, node: ast.Await) -> ast.AST:
        self.generic_visit(node)
        return node.value

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self._named(node.id), node.ctx)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        return ast.Attribute(node.value, self._named(node.attr), node.ctx)


def methods_of(module: str, owner: str) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    """A class's methods without their docstrings, which may tell each reader what is theirs."""
    tree = ast.parse(SOURCES[module].read_text(encoding="utf-8"))
    (found,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == owner)
    methods = {
        node.name: node
        for node in found.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    for method in methods.values():
        if ast.get_docstring(method) is not None:
            del method.body[0]
    return methods


def indented(one: str, text: str, other: str) -> tuple[str, int]:
    """Replace code that may stand deeper than it is written; also tell how often it stood there."""
    lines = re.escape(one).split("\\\n")
    pattern = r"(?m)^( *)(.*)" + r"\n\1".join(lines)
    return re.subn(pattern, lambda match: match[1] + match[2] + other, text)


def test_the_two_drivers_are_equal_after_a_handful_of_renames() -> None:
    threads, tasks = methods_of("_threads", "InThreads"), methods_of("_tasks", "InTasks")
    renamer = _Synchronous(NAMES)
    ours: list[str] = []
    theirs: list[str] = []
    unused = set(DIFFERENCES)
    for sync, asynchronous in TWINS.items():
        ours += ast.unparse(threads[sync]).splitlines()
        text = ast.unparse(ast.fix_missing_locations(renamer.visit(tasks[asynchronous])))
        for one, other in DIFFERENCES.items():
            text, count = indented(one, text, other)
            if count:
                unused.discard(one)
        theirs += text.splitlines()
    assert "\n".join(difflib.unified_diff(theirs, ours, "tasks", "threads", lineterm="")) == ""
    assert set(NAMES) - renamer.used == set()
    assert unused == set()


def test_what_only_one_driver_has_is_known() -> None:
    assert set(methods_of("_threads", "InThreads")) == set(TWINS)
    assert set(methods_of("_tasks", "InTasks")) - set(TWINS.values()) == {"_abounded_exchange"}
