"""`ScriptedTransport` for httpx2.

    from httpx_safe_retry.httpx2 import RetryTransport
    from httpx_safe_retry.testing import VirtualClock
    from httpx_safe_retry.testing.httpx2 import ScriptedTransport

    clock = VirtualClock()
    script = ScriptedTransport(503, httpx2.ReadTimeout, 200, clock=clock)
    client = httpx2.Client(transport=RetryTransport(script, clock=clock))

Everything else is shared and found in `httpx_safe_retry.testing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx2

from ._script import Script, streams_of

__all__ = ["ScriptedTransport"]

if TYPE_CHECKING:
    from ._clock import VirtualClock
    from ._script import SentRequest, SentResponse

    class _Base(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
        """The script, whose types are those of httpx, as it is here."""

        requests: list[SentRequest]
        responses: list[SentResponse]
        closes: int
        unclosed: list[SentResponse]
        unread: list[SentResponse]

        def __init__(
            self, *script: Any, clock: VirtualClock | None = None, repeat: bool = False
        ) -> None: ...

        def assert_done(self) -> None: ...
else:

    class _Base(Script, httpx2.BaseTransport, httpx2.AsyncBaseTransport):
        pass


class ScriptedTransport(_Base):
    """An httpx2 transport, sync and async, that answers each request with the next item of its
    script.

    It is `httpx_safe_retry.testing.ScriptedTransport` for httpx2: that tells what an item may be.
    """

    _library = httpx2
    _stream = streams_of(httpx2)
