"""httpx and httpx2 in one process: one core, two class families, neither mistaken for the other.

That everything else holds for both is shown by running the whole suite for each.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from types import ModuleType
from typing import Any

import httpx
import httpx2
import pytest

import httpx_safe_retry
import httpx_safe_retry.httpx2
import httpx_safe_retry.testing
import httpx_safe_retry.testing.httpx2
from httpx_safe_retry import (
    RetryBudget,
    RetryError,
    RetryEvent,
    RetryPolicy,
    UncertainWriteError,
    get_report,
)
from httpx_safe_retry.testing import LoopbackServer, VirtualClock

ONE: Any = httpx_safe_retry.RetryTransport
OTHER: Any = httpx_safe_retry.httpx2.RetryTransport
SCRIPT: Any = httpx_safe_retry.testing.ScriptedTransport
OTHER_SCRIPT: Any = httpx_safe_retry.testing.httpx2.ScriptedTransport
LIBRARY: Any = httpx
OTHER_LIBRARY: Any = httpx2
BOTH = [
    pytest.param(LIBRARY, ONE, SCRIPT, id="httpx"),
    pytest.param(OTHER_LIBRARY, OTHER, OTHER_SCRIPT, id="httpx2"),
]
CROSSED = [
    pytest.param(LIBRARY, OTHER, "httpx_safe_retry.RetryTransport", id="httpx in httpx2's"),
    pytest.param(
        OTHER_LIBRARY, ONE, "httpx_safe_retry.httpx2.RetryTransport", id="httpx2 in httpx's"
    ),
]
URL = "https://a.test/"


def run(*code: str, **environment: str) -> str:
    """Run lines of Python in an interpreter of their own; return what they print."""
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(code)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


LOADED = "import sys; print(*sorted({name.partition('.')[0] for name in sys.modules} & KIN))"
KIN = "KIN = {'httpx', 'httpcore', 'httpx2', 'httpcore2'}"
SEND = "client.get('http://127.0.0.1:9/', extensions={'retry': None})"


def test_who_uses_httpx2_imports_nothing_of_httpx() -> None:
    loaded = run(
        "import httpx2",
        "from httpx_safe_retry import RetryError, RetryPolicy",
        "from httpx_safe_retry.httpx2 import RetryTransport, wrap_client",
        "client = wrap_client(httpx2.Client(), policy=RetryPolicy(deadline=5.0))",
        f"try: {SEND}",
        "except RetryError as error: assert isinstance(error, httpx2.ConnectError)",
        KIN,
        LOADED,
    )
    assert loaded == "httpcore2 httpx2"


def test_who_uses_httpx_imports_nothing_of_httpx2() -> None:
    loaded = run(
        "import httpx",
        "from httpx_safe_retry import RetryError, RetryTransport",
        "client = httpx.Client(transport=RetryTransport())",
        f"try: {SEND}",
        "except RetryError as error: assert isinstance(error, httpx.ConnectError)",
        KIN,
        LOADED,
    )
    assert loaded == "httpcore httpx"


def test_without_httpx2_its_door_says_what_to_install() -> None:
    said = run(
        "import sys",
        "sys.modules['httpx2'] = None",
        "try: import httpx_safe_retry.httpx2",
        "except ImportError as error: print(error)",
    )
    assert said == "httpx_safe_retry.httpx2 needs httpx2: pip install 'httpx-safe-retry[httpx2]'"


@pytest.mark.parametrize(("library", "kind", "script"), BOTH)
def test_an_error_is_of_the_class_of_its_own_library(library: Any, kind: Any, script: Any) -> None:
    transport = kind(script(library.ReadTimeout), clock=VirtualClock())
    with library.Client(transport=transport) as client, pytest.raises(RetryError) as caught:
        client.post(URL)
    assert isinstance(caught.value, UncertainWriteError)
    kinds = {cls.__module__ for cls in type(caught.value).__mro__} & {"httpx", "httpx2"}
    assert kinds == {library.__name__}
    assert isinstance(caught.value, library.ReadTimeout)
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value)


def test_both_share_a_budget_a_policy_and_a_server() -> None:
    budget = RetryBudget(ratio=0, capacity=3)
    policy = RetryPolicy(backoff=lambda retry: 0.0)
    with LoopbackServer() as server:
        for library, kind in ((LIBRARY, ONE), (OTHER_LIBRARY, OTHER)):
            transport = kind(policy=policy, budget=budget)
            with library.Client(transport=transport) as client:
                response = client.put(f"{server.url}/x", content=iter([b"1", b"2"]))
                assert get_report(response).executed is True
                assert type(response).__module__ == library.__name__
        assert [done.body for done in server.ledger] == [b"12", b"12"]
    origin = ("http", "a.test", None)
    for library, kind, script in ((LIBRARY, ONE, SCRIPT), (OTHER_LIBRARY, OTHER, OTHER_SCRIPT)):
        transport = kind(script(503, repeat=True), policy=policy, budget=budget)
        with library.Client(transport=transport) as client:
            client.get("http://a.test/")
    assert budget.tokens(origin) == 0


@pytest.mark.parametrize(("library", "kind", "way"), CROSSED)
@pytest.mark.parametrize("name", ["HTTPTransport", "AsyncHTTPTransport", "MockTransport"])
def test_a_transport_of_the_other_library_is_refused(
    library: Any, kind: Any, way: str, name: str
) -> None:
    wrong = library.MockTransport(len) if name == "MockTransport" else getattr(library, name)()
    words = f"{name} is one of {library.__name__}: {way} wraps it"
    with pytest.raises(TypeError, match=words):
        kind(wrong)


@pytest.mark.parametrize(("library", "kind", "way"), CROSSED)
def test_a_retry_transport_of_the_other_library_is_refused(
    library: Any, kind: Any, way: str
) -> None:
    other = ONE if kind is OTHER else OTHER
    with pytest.raises(TypeError, match=f"RetryTransport is one of {library.__name__}: {way}"):
        kind(other())


@pytest.mark.parametrize(("library", "kind", "way"), CROSSED)
@pytest.mark.parametrize("policy", [RetryPolicy(), RetryPolicy(deadline=5.0)])
@pytest.mark.parametrize("content", [None, b"1", iter([b"1"])], ids=["none", "bytes", "iterator"])
def test_a_client_of_the_other_library_is_refused_before_anything_is_sent(
    library: Any, kind: Any, way: str, policy: RetryPolicy, content: Any
) -> None:
    script: Any = SCRIPT if kind is ONE else OTHER_SCRIPT
    inner = script(200)
    client = library.Client(transport=kind(inner, policy=policy))
    with pytest.raises(TypeError, match=f"its client for {library.__name__}: give it {way}"):
        client.put(URL, content=content)
    assert inner.requests == []


@pytest.mark.parametrize("name", ["Client", "AsyncClient"])
def test_a_client_of_the_other_library_is_not_wrapped(name: str) -> None:
    one: Any = httpx_safe_retry.wrap_client
    other: Any = httpx_safe_retry.httpx2.wrap_client
    with pytest.raises(TypeError, match=r": httpx_safe_retry\.httpx2\.wrap_client wraps it"):
        one(getattr(httpx2, name)())
    with pytest.raises(TypeError, match=r": httpx_safe_retry\.wrap_client wraps it"):
        other(getattr(httpx, name)())


@pytest.mark.parametrize(("path", "passive"), [("/", True), ("/elsewhere", False)])
def test_a_request_that_is_handed_on_to_the_other_library_is_still_the_same(
    path: str, passive: bool
) -> None:
    events: list[RetryEvent] = []
    script = OTHER_SCRIPT(503, 200, clock=(clock := VirtualClock()))
    inside = OTHER(script, listeners=[events.append], clock=clock)

    class Bridge(httpx.BaseTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            url = str(request.url.join(path))
            with httpx2.Client(transport=inside) as client:
                return httpx.Response(client.request(request.method, url).status_code)

    with httpx.Client(transport=ONE(Bridge(), clock=clock)) as client:
        assert client.get(URL).status_code == 200
    assert {event.passive for event in events} == {passive}


def test_a_transport_for_both_libraries_is_a_transport_for_each() -> None:
    class Both(httpx.BaseTransport, httpx2.BaseTransport):
        def handle_request(self, request: Any) -> Any:
            library: Any = sys.modules[type(request).__module__]
            return library.Response(200)

    for library, kind in ((LIBRARY, ONE), (OTHER_LIBRARY, OTHER)):
        with library.Client(transport=kind(Both())) as client:
            assert client.get(URL).status_code == 200


@pytest.mark.parametrize(("library", "kind", "script"), BOTH)
def test_a_library_that_another_thread_is_still_importing_disturbs_nobody(
    library: Any, kind: Any, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = "httpx2" if library is httpx else "httpx"
    monkeypatch.setitem(sys.modules, other, ModuleType(other))
    transports = [script(200), Duck(library)]
    for transport in transports:
        assert library.Client(transport=kind(transport)).get(URL).status_code == 200


class Bridge(httpx2.BaseTransport):
    """A transport for httpx2 that sends with httpx."""

    def __init__(self, script: Any) -> None:
        self._client = httpx.Client(transport=script)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        response = self._client.request(request.method, str(request.url))
        return httpx2.Response(response.status_code)


def test_what_one_library_proves_counts_where_the_other_asked_for_it() -> None:
    script = SCRIPT(httpx.ConnectError, 201)
    transport = OTHER(Bridge(script), clock=VirtualClock())
    with httpx2.Client(transport=transport) as client:
        assert client.post(URL).status_code == 201
    assert len(script.requests) == 2


class Duck:
    """A transport of nobody's family."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def handle_request(self, request: Any) -> Any:
        return self._library.Response(200)


CORE = """
    test_answer test_architecture test_body test_decide test_errors test_failed_response
    test_fitting_in test_layers test_policy test_safety test_transport_errors
"""


def test_the_core_of_the_suite_passes_where_httpx_is_an_alias_of_httpx2() -> None:
    folder = os.path.dirname(__file__)
    files = [os.path.join(folder, f"{name}.py") for name in CORE.split()]
    # httpx2 has loaded anyio, which has a plugin for pytest, before pytest could rewrite it.
    ignored = "ignore::pytest.PytestAssertRewriteWarning"
    options = ["-q", "-p", "no:cacheprovider", "-W", ignored]
    said = run(
        "import httpx2, sys",
        "httpx2.alias_httpx()",
        "import httpx, pytest",
        "assert httpx is httpx2",
        f"sys.exit(pytest.main([*{options}, *{files}]))",
        TEST_LIBRARY="httpx",
    )
    assert " passed" in said
