"""For tests of programs that retry: virtual time and a scripted transport.

This library's own tests use nothing else. In short::

    clock = VirtualClock()
    script = ScriptedTransport(503, httpx.ReadTimeout, 200, clock=clock)
    client = httpx.Client(transport=RetryTransport(script, clock=clock, random=lambda: 0.5))

Use `ScriptedTransport` to say what the wrapped transport does, attempt by attempt, and
`LoopbackServer` where the connection itself has to break.
"""

from __future__ import annotations

from ._clock import VirtualClock
from ._transport import Reply, ScriptedTransport, SentRequest, SentResponse

__all__ = ["Reply", "ScriptedTransport", "SentRequest", "SentResponse", "VirtualClock"]
