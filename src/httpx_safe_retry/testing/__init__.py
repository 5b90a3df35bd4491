"""For tests of programs that retry: virtual time, a scripted transport, a server that breaks.

They are what this library's own tests stand on. In short::

    clock = VirtualClock()
    script = ScriptedTransport(503, httpx.ReadTimeout, 200, clock=clock)
    client = httpx.Client(transport=RetryTransport(script, clock=clock, random=lambda: 0.5))

Use `ScriptedTransport` to say what the wrapped transport does, attempt by attempt, and
`LoopbackServer` where the connection itself has to break.
"""

from __future__ import annotations

from ._clock import VirtualClock
from ._script import Reply, ScriptItem, SentRequest, SentResponse
from ._server import LoopbackServer
from ._service import Fault, FaultKind, Operation, ServerRequest, ServerResponse, ServerStep
from ._transport import ScriptedTransport

__all__ = [
    "Fault",
    "FaultKind",
    "LoopbackServer",
    "Operation",
    "Reply",
    "ScriptItem",
    "ScriptedTransport",
    "SentRequest",
    "SentResponse",
    "ServerRequest",
    "ServerResponse",
    "ServerStep",
    "VirtualClock",
]

for _name in __all__:
    if isinstance(globals()[_name], type):  # the others are type aliases
        globals()[_name].__module__ = __name__
