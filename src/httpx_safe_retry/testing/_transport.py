"""`ScriptedTransport` for httpx. `httpx2.py` is its twin for httpx2."""

from __future__ import annotations

from typing import Any, ClassVar

import httpx

from ._script import Script, streams_of


class ScriptedTransport(Script, httpx.BaseTransport, httpx.AsyncBaseTransport):
    """A transport, sync and async, that answers each request with the next item of its script.

    ```python
    script = ScriptedTransport(503, httpx.ReadTimeout, Reply(status=201, body=b"done"))
    client = httpx.Client(transport=RetryTransport(script, clock=VirtualClock()))
    assert client.put("https://example.org", content=b"12345").text == "done"
    assert [sent.body for sent in script.requests] == [b"12345"] * 3
    script.assert_done()
    ```

    An item is a status code, an `httpx.Response`, an exception or its class, a `Reply`, or a
    callable that is given the request, before its body is read, and returns one of these; in async
    code it may be a coroutine function. A request past the end of the script is an
    `AssertionError`.

    clock: moved by `Reply.delay`, and read for `SentRequest.time`.
    repeat: play the last item again and again instead of coming to an end.

    Afterwards, `requests` holds a `SentRequest` for every attempt, from the moment it began,
    `responses` a `SentResponse` for every response that was handed out, and `closes` how often the
    transport itself was closed.
    """

    _library: ClassVar[Any] = httpx
    _stream = streams_of(httpx)
