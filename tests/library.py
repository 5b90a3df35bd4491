"""The library that this run of the tests is about: httpx, or its continuation httpx2.

The rule: a test takes `httpx`, and what of ours is made for one library, from here, and is run once
for each. `TEST_LIBRARY=httpx2 python -m pytest` runs them for httpx2; `python -m tests` runs them
for both. The types are those of httpx; the names are the same in both.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

_wanted = os.environ.get("TEST_LIBRARY", "httpx")

if TYPE_CHECKING:
    import httpcore as httpcore
    import httpx as httpx

    from httpx_safe_retry import RetryTransport as RetryTransport
    from httpx_safe_retry import wrap_client as wrap_client
    from httpx_safe_retry.testing import ScriptedTransport as ScriptedTransport
elif _wanted == "httpx":
    import httpcore
    import httpx

    from httpx_safe_retry import RetryTransport, wrap_client
    from httpx_safe_retry.testing import ScriptedTransport
elif _wanted == "httpx2":
    import httpcore2 as httpcore
    import httpx2 as httpx

    from httpx_safe_retry.httpx2 import RetryTransport, wrap_client
    from httpx_safe_retry.testing.httpx2 import ScriptedTransport
else:
    raise SystemExit(f"TEST_LIBRARY must be httpx or httpx2, not {_wanted!r}")

# "httpx2" also where it goes by the name of httpx.
NAME = httpx.__name__

# What the package itself makes of the library.
LIBRARY = RetryTransport._library

__all__ = [
    "LIBRARY",
    "NAME",
    "RetryTransport",
    "ScriptedTransport",
    "httpcore",
    "httpx",
    "wrap_client",
]
