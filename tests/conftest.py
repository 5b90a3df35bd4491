"""What every test runs under: both async backends, repeatable examples, nothing left behind."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from hypothesis import settings

from tests.library import NAME

# What says httpx in its own words (the README, the examples), or is about both at once.
collect_ignore_glob = (
    []
    if NAME == "httpx"
    else [
        "test_example*.py",
        "test_httpx2.py",
        "test_openai.py",
        "test_packaging.py",
        "test_readme.py",
        "test_simulation.py",
    ]
)
if find_spec("openai") is None:  # of the extra `test-openai`, which CI installs
    collect_ignore_glob.append("test_openai.py")

settings.register_profile("default", deadline=None)
# The same examples in every run, so that a red run is red again. No database: nothing to remember.
settings.register_profile("ci", deadline=None, derandomize=True, database=None, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")

# httpx reads these by default (`trust_env`): where they are set, loopback tests would use a proxy.
_ENVIRONMENT_OF_HTTPX = (
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "SSLKEYLOGFILE",
    "NETRC",
)


@pytest.fixture(params=["asyncio", "trio"], scope="module")
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Every async test runs on both."""
    backend: str = request.param
    return backend


@pytest.fixture(autouse=True, scope="session")
def _no_environment_of_the_machine() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in _ENVIRONMENT_OF_HTTPX:
            patch.delenv(name, raising=False)
            patch.delenv(name.lower(), raising=False)
        yield


@pytest.fixture(autouse=True)
def _no_thread_outlives_its_test() -> Iterator[None]:
    """A non-daemon thread that is left running would keep a user's interpreter from exiting."""
    before = set(threading.enumerate())
    yield
    for thread in threading.enumerate():
        if thread not in before and not thread.daemon:
            # anyio tells its worker threads to stop without waiting for them.
            thread.join(5)
            assert not thread.is_alive(), f"{thread.name} is still running after the test"
