"""The test tools themselves, on plain httpx clients: only their examples meet the retry layer."""

from __future__ import annotations

import gzip
import inspect
import math
import socket
import ssl
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, suppress

import anyio
import anyio.lowlevel
import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

import httpx_safe_retry
import httpx_safe_retry.testing
import tests.library
from httpx_safe_retry.testing import (
    Fault,
    FaultKind,
    LoopbackServer,
    Reply,
    ScriptItem,
    ServerRequest,
    ServerResponse,
    VirtualClock,
)
from tests.library import ScriptedTransport, httpx

URL = "https://example.org/path?token=t"


def five_chunks() -> Iterator[bytes]:
    yield from (b"1", b"2", b"3", b"4", b"5")


async def five_async_chunks() -> AsyncGenerator[bytes, None]:
    for chunk in five_chunks():
        yield chunk


@pytest.mark.parametrize(
    "tool", [VirtualClock, httpx_safe_retry.testing.ScriptedTransport, LoopbackServer]
)
def test_the_example_of_each_tool_does_what_it_says(tool: type) -> None:
    assert tool.__doc__ is not None
    example = inspect.cleandoc(tool.__doc__).split("```")[1].removeprefix("python\n")
    assert "assert" in example
    names = {**vars(httpx_safe_retry), **vars(httpx_safe_retry.testing), **vars(tests.library)}
    exec(example, names)


# --- the virtual clock


def test_virtual_time_stands_still_until_it_is_moved() -> None:
    clock = VirtualClock(start=100.0, epoch=1000.0)
    assert (clock.monotonic(), clock.time()) == (100.0, 1000.0)
    clock.advance(2.5)
    assert (clock.monotonic(), clock.time()) == (102.5, 1002.5)
    assert clock.sleeps == []


def test_a_sync_wait_moves_the_clock_and_is_recorded() -> None:
    clock = VirtualClock()
    clock.sleep(3.0, threading.Event())
    clock.sleep(0.5, threading.Event())
    assert clock.monotonic() == 3.5
    assert clock.sleeps == [3.0, 0.5]


def test_a_sync_wait_that_is_over_before_it_begins_takes_no_time() -> None:
    clock = VirtualClock()
    wake = threading.Event()
    wake.set()
    clock.sleep(3.0, wake)
    assert clock.monotonic() == 0.0
    assert clock.sleeps == [3.0]


def test_the_hook_can_end_a_sync_wait_in_the_middle() -> None:
    wake = threading.Event()
    clock = VirtualClock(on_sleep=lambda seconds: wake.set())
    clock.sleep(3.0, wake)
    assert clock.monotonic() == 0.0


def test_waits_of_threads_add_up_and_none_is_lost() -> None:
    clock = VirtualClock()

    def wait_often() -> None:
        for _ in range(100):
            clock.sleep(1.0, threading.Event())

    threads = [threading.Thread(target=wait_often) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock.monotonic() == 800.0
    assert clock.sleeps == [1.0] * 800


@pytest.mark.anyio
async def test_an_async_wait_moves_the_clock_and_is_recorded() -> None:
    clock = VirtualClock()
    await clock.asleep(3.0)
    assert clock.monotonic() == 3.0
    assert clock.sleeps == [3.0]


@pytest.mark.anyio
async def test_async_waits_side_by_side_overlap() -> None:
    clock = VirtualClock()
    async with anyio.create_task_group() as tasks:
        for seconds in (3.0, 1.0, 2.0):
            tasks.start_soon(clock.asleep, seconds)
    assert clock.monotonic() == 3.0


@pytest.mark.anyio
async def test_the_hook_can_cancel_an_async_wait_in_the_middle() -> None:
    with anyio.CancelScope() as scope:
        clock = VirtualClock(on_sleep=lambda seconds: scope.cancel())
        await clock.asleep(3.0)
    assert scope.cancelled_caught
    assert clock.monotonic() == 0.0


@pytest.mark.anyio
async def test_an_async_wait_lets_other_tasks_run() -> None:
    clock = VirtualClock()
    ran = anyio.Event()

    async def other() -> None:
        ran.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        while not ran.is_set():
            await clock.asleep(0.0)


# --- the scripted transport


def test_the_script_is_played_item_by_item() -> None:
    script = ScriptedTransport(
        503,
        httpx.Response(201, json={"a": 1}),
        Reply(
            status=202, headers={"X-A": "b"}, body=b"done", extensions={"http_version": b"HTTP/2"}
        ),
        lambda request: Reply(body=request.method.encode()),
    )
    with httpx.Client(transport=script) as client:
        empty, json, full, called = (client.get(URL) for _ in range(4))
    assert (empty.status_code, empty.content, dict(empty.headers)) == (503, b"", {})
    assert (json.status_code, json.json()) == (201, {"a": 1})
    assert (full.status_code, full.headers["X-A"], full.text) == (202, "b", "done")
    assert full.http_version == "HTTP/2"
    assert called.text == "GET"
    script.assert_done()
    assert script.closes == 1


@pytest.mark.anyio
async def test_the_script_is_played_item_by_item_in_async_code() -> None:
    async def slow(request: httpx.Request) -> int:
        await anyio.lowlevel.checkpoint()
        return 204

    script = ScriptedTransport(503, slow, lambda request: 201, Reply(body=b"done"))
    async with httpx.AsyncClient(transport=script) as client:
        responses = [await client.get(URL) for _ in range(4)]
    assert [response.status_code for response in responses] == [503, 204, 201, 200]
    assert responses[-1].text == "done"
    script.assert_done()
    assert script.closes == 1


@pytest.mark.parametrize(
    "failure",
    [httpx.ReadTimeout, httpx.ReadTimeout("mine"), ValueError, KeyboardInterrupt("mine")],
    ids=repr,
)
def test_an_exception_or_its_class_is_raised(failure: BaseException | type[BaseException]) -> None:
    script = ScriptedTransport(failure, Reply(error=failure))
    kind = failure if isinstance(failure, type) else type(failure)
    for _ in range(2):
        with pytest.raises(kind) as raised:
            script.handle_request(httpx.Request("GET", URL))
        assert isinstance(failure, type) or raised.value is failure


def test_an_httpx_error_comes_as_a_transport_raises_it_without_its_request() -> None:
    with pytest.raises(httpx.ReadTimeout, match=r"^scripted ReadTimeout$") as raised:
        ScriptedTransport(httpx.ReadTimeout).handle_request(httpx.Request("GET", URL))
    with pytest.raises(RuntimeError):
        _ = raised.value.request


def test_an_instance_that_is_raised_again_does_not_drag_its_old_traceback_along() -> None:
    script = ScriptedTransport(httpx.ReadError("mine"), repeat=True)
    lengths = set()
    for _ in range(3):
        with pytest.raises(httpx.ReadError) as raised:
            script.handle_request(httpx.Request("GET", URL))
        lengths.add(len(raised.traceback))
    assert len(lengths) == 1


def test_what_cannot_be_played_is_a_type_error() -> None:
    script = ScriptedTransport(lambda request: "200")  # type: ignore[arg-type,return-value] # that is the point
    with pytest.raises(TypeError, match="not an answer that can be scripted: '200'"):
        script.handle_request(httpx.Request("GET", URL))


def test_a_request_past_the_end_of_the_script_says_so_without_the_query() -> None:
    script = ScriptedTransport(200)
    with httpx.Client(transport=script) as client:
        client.get(URL)
        with pytest.raises(AssertionError) as raised:
            client.get(URL)
    assert str(raised.value) == "the script has 1 items, and this is request 2: GET /path"


def test_an_empty_script_cannot_be_repeated() -> None:
    with pytest.raises(AssertionError, match="0 items"):
        ScriptedTransport(repeat=True).handle_request(httpx.Request("GET", URL))


def test_a_repeated_script_plays_its_last_item_for_ever() -> None:
    script = ScriptedTransport(200, httpx.Response(503, content=b"why"), repeat=True)
    with httpx.Client(transport=script) as client:
        got = [(response.status_code, response.text) for response in map(client.get, [URL] * 4)]
    assert got == [(200, ""), (503, "why"), (503, "why"), (503, "why")]
    script.assert_done()


def test_a_script_that_was_not_played_to_its_end_is_not_done() -> None:
    script = ScriptedTransport(200, 200)
    with httpx.Client(transport=script) as client:
        client.get(URL)
    with pytest.raises(AssertionError, match="the script has 2 items, 1 were played"):
        script.assert_done()


def test_each_attempt_is_remembered_as_it_came() -> None:
    def vandal(request: httpx.Request) -> int:
        request.headers["X-A"] = "changed"
        request.extensions["timeout"]["read"] = 9.0
        request.extensions.clear()
        request.url = httpx.URL("https://example.net")
        return 503

    clock = VirtualClock()
    script = ScriptedTransport(vandal, 200, clock=clock)
    with httpx.Client(transport=script, timeout=httpx.Timeout(1.0, read=2.0)) as client:
        client.put(URL, content=b"12345", headers=[("X-A", "b"), ("X-A", "c")])
        clock.advance(4.0)
        client.get(URL)
    first, second = script.requests
    assert (first.number, first.method, first.body) == (1, "PUT", b"12345")
    assert first.url == httpx.URL(URL)
    assert first.headers.get_list("X-A") == ["b", "c"]
    assert first.timeouts == {"connect": 1.0, "read": 2.0, "write": 1.0, "pool": 1.0}
    assert "timeout" in first.extensions
    assert (first.time, second.time) == (0.0, 4.0)


def test_an_attempt_without_timeouts_and_clock_is_remembered_too() -> None:
    script = ScriptedTransport(200)
    script.handle_request(httpx.Request("GET", URL))
    assert (script.requests[0].timeouts, script.requests[0].time) == ({}, None)


def test_a_body_is_taken_chunk_by_chunk_and_its_request_stays_unread() -> None:
    script = ScriptedTransport(200)
    request = httpx.Request("PUT", URL, content=five_chunks())
    script.handle_request(request)
    assert script.requests[0].chunks == [b"1", b"2", b"3", b"4", b"5"]
    with pytest.raises(httpx.RequestNotRead):
        _ = request.content
    with pytest.raises(httpx.StreamConsumed):
        request.read()


@pytest.mark.parametrize("count", [0, 2, 5, None])
def test_an_upload_can_be_cut_after_some_chunks(count: int | None) -> None:
    script = ScriptedTransport(Reply(read_chunks=count, error=httpx.WriteError))
    with pytest.raises(httpx.WriteError):
        script.handle_request(httpx.Request("PUT", URL, content=five_chunks()))
    assert script.requests[0].body == b"12345"[:count]


@pytest.mark.anyio
@pytest.mark.parametrize("count", [0, 2, 5, None])
async def test_an_async_upload_can_be_cut_after_some_chunks(count: int | None) -> None:
    script = ScriptedTransport(Reply(read_chunks=count, error=httpx.WriteError))
    async with aclosing(five_async_chunks()) as body:
        with pytest.raises(httpx.WriteError):
            await script.handle_async_request(httpx.Request("PUT", URL, content=body))
    assert script.requests[0].body == b"12345"[:count]


def test_no_chunk_is_pulled_that_the_script_does_not_ask_for() -> None:
    pulled = []

    def chunks() -> Iterator[bytes]:
        for chunk in five_chunks():
            pulled.append(chunk)
            yield chunk

    ScriptedTransport(Reply(read_chunks=2)).handle_request(
        httpx.Request("PUT", URL, content=chunks())
    )
    assert pulled == [b"1", b"2"]


@pytest.mark.anyio
async def test_an_async_body_need_not_be_a_generator() -> None:
    class Countdown(httpx.AsyncByteStream):
        left = 3

        def __aiter__(self) -> AsyncIterator[bytes]:
            return self

        async def __anext__(self) -> bytes:
            if not self.left:
                raise StopAsyncIteration
            self.left -= 1
            return b"%d" % self.left

    script = ScriptedTransport(200)
    await script.handle_async_request(httpx.Request("PUT", URL, stream=Countdown()))
    assert script.requests[0].body == b"210"


def test_an_error_of_the_body_itself_goes_through() -> None:
    def broken() -> Iterator[bytes]:
        yield b"1"
        raise ValueError("mine")

    script = ScriptedTransport(200)
    with pytest.raises(ValueError, match="mine"):
        script.handle_request(httpx.Request("PUT", URL, content=broken()))
    assert script.requests[0].body == b"1"
    assert script.responses == []


@pytest.mark.anyio
async def test_a_body_of_the_wrong_colour_is_refused() -> None:
    script = ScriptedTransport(200, 200, Reply(body=five_async_chunks()))
    with pytest.raises(AssertionError, match="an async body in a sync client"):
        script.handle_request(httpx.Request("PUT", URL, content=five_async_chunks()))
    with pytest.raises(AssertionError, match="a sync body in an async client"):
        await script.handle_async_request(httpx.Request("PUT", URL, content=five_chunks()))
    with pytest.raises(AssertionError, match="an async response body in a sync client"):
        script.handle_request(httpx.Request("GET", URL)).read()


@pytest.mark.anyio
async def test_an_async_attempt_can_be_cancelled() -> None:
    script = ScriptedTransport(200)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await script.handle_async_request(httpx.Request("GET", URL))
    assert scope.cancelled_caught
    assert len(script.requests) == 1
    assert script.responses == []


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ({}, b"why", {"content-length": "3"}),
        ({}, b"", {}),
        ({}, [b"w", b"hy"], {}),
        ({"content-length": "9"}, b"why", {"content-length": "9"}),
        ({"Transfer-Encoding": "chunked"}, b"why", {"transfer-encoding": "chunked"}),
    ],
)
def test_a_body_of_bytes_gets_a_content_length_unless_told_otherwise(
    headers: dict[str, str], body: bytes | list[bytes], expected: dict[str, str]
) -> None:
    script = ScriptedTransport(Reply(headers=headers, body=body))
    response = script.handle_request(httpx.Request("GET", URL))
    assert dict(response.headers) == expected
    assert response.read() == b"".join([body] if isinstance(body, bytes) else body)


def test_a_compressed_response_is_handed_on_as_it_is() -> None:
    compressed = gzip.compress(b"why")
    scripted = httpx.Response(503, headers={"Content-Encoding": "gzip"}, content=compressed)
    response = ScriptedTransport(scripted).handle_request(httpx.Request("GET", URL))
    assert response.headers["Content-Length"] == str(len(compressed))
    assert response.read() == b"why"


def test_responses_are_followed_until_they_are_closed() -> None:
    script = ScriptedTransport(Reply(body=b"12345"), 503)
    first, second = (script.handle_request(httpx.Request("GET", URL)) for _ in range(2))
    assert [response.number for response in script.unclosed] == [1, 2]
    first.read()
    assert [response.status for response in script.unclosed] == [503]
    assert [response.status for response in script.unread] == [503]
    with pytest.raises(AssertionError, match="<response 2: 503, unread, closed 0 times>"):
        script.assert_done()
    second.close()
    assert script.unclosed == []
    assert [response.status for response in script.unread] == [503]
    script.assert_done()


def test_a_response_that_is_closed_twice_is_found_out() -> None:
    script = ScriptedTransport(200)
    stream = script.handle_request(httpx.Request("GET", URL)).stream
    assert isinstance(stream, httpx.SyncByteStream)
    stream.close()
    script.assert_done()
    stream.close()
    with pytest.raises(AssertionError, match="closed 2 times"):
        script.assert_done()


def test_a_response_body_can_be_read_once() -> None:
    script = ScriptedTransport(Reply(body=b"12345"), 200)
    stream = script.handle_request(httpx.Request("GET", URL)).stream
    assert isinstance(stream, httpx.SyncByteStream)
    assert list(stream) == [b"12345"]
    assert script.unread == []
    assert script.unclosed == [stream]
    with pytest.raises(httpx.StreamConsumed):
        list(stream)
    closed = script.handle_request(httpx.Request("GET", URL))
    closed.close()
    with pytest.raises(httpx.StreamClosed):
        list(script.responses[1])


def test_a_response_can_die_in_the_middle_of_its_body() -> None:
    script = ScriptedTransport(Reply(body=[b"12", httpx.ReadError("mine")]))
    with httpx.Client(transport=script) as client, client.stream("GET", URL) as response:
        chunks = response.iter_raw()
        assert next(chunks) == b"12"
        with pytest.raises(httpx.ReadError, match="mine"):
            next(chunks)
    assert [(sent.read, sent.closes) for sent in script.responses] == [(False, 1)]


@pytest.mark.anyio
async def test_an_async_response_can_die_in_the_middle_of_its_body() -> None:
    async def dying() -> AsyncIterator[bytes]:
        yield b"12"
        raise httpx.ReadError("mine")

    script = ScriptedTransport(Reply(body=[b"12", httpx.ReadError("mine")]), Reply(body=dying()))
    async with httpx.AsyncClient(transport=script) as client:
        for _ in range(2):
            async with client.stream("GET", URL) as response:
                chunks = response.aiter_raw()
                assert await anext(chunks) == b"12"
                with pytest.raises(httpx.ReadError, match="mine"):
                    await anext(chunks)
    assert [(sent.read, sent.closes) for sent in script.responses] == [(False, 1)] * 2


@pytest.mark.anyio
async def test_reading_an_async_response_can_be_cancelled() -> None:
    script = ScriptedTransport(Reply(body=b"12345"))
    response = await script.handle_async_request(httpx.Request("GET", URL))
    with anyio.CancelScope() as scope:
        scope.cancel()
        await response.aread()
    assert scope.cancelled_caught
    assert [sent.read for sent in script.responses] == [False]


class OwnStream(httpx.SyncByteStream, httpx.AsyncByteStream):
    closes = 0

    def __iter__(self) -> Iterator[bytes]:
        yield from five_chunks()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in five_async_chunks():
            yield chunk

    def close(self) -> None:
        self.closes += 1

    async def aclose(self) -> None:
        self.closes += 1


def test_the_stream_of_a_scripted_response_is_read_and_closed() -> None:
    stream = OwnStream()
    script = ScriptedTransport(httpx.Response(200, stream=stream))
    with httpx.Client(transport=script) as client:
        assert client.get(URL).content == b"12345"
    assert stream.closes == 1
    script.assert_done()


@pytest.mark.anyio
async def test_the_stream_of_a_scripted_async_response_is_read_and_closed() -> None:
    stream = OwnStream()
    script = ScriptedTransport(httpx.Response(200, stream=stream))
    async with httpx.AsyncClient(transport=script) as client:
        assert (await client.get(URL)).content == b"12345"
    assert stream.closes == 1
    script.assert_done()


def test_an_async_stream_is_not_closed_by_a_sync_client() -> None:
    async_body = five_async_chunks()
    script = ScriptedTransport(Reply(body=async_body))
    script.handle_request(httpx.Request("GET", URL)).close()
    script.assert_done()


def test_a_delayed_answer_takes_virtual_time() -> None:
    clock = VirtualClock()
    script = ScriptedTransport(Reply(delay=3.0), Reply(delay=2.0, error=ValueError), clock=clock)
    with httpx.Client(transport=script, timeout=3.0) as client:
        assert client.get(URL).status_code == 200
        assert clock.monotonic() == 3.0
        with pytest.raises(ValueError, match=r"^$"):
            client.get(URL)
    assert clock.monotonic() == 5.0
    assert clock.sleeps == []


@pytest.mark.parametrize("delay", [3.5, math.inf])
def test_an_answer_that_takes_longer_than_the_read_timeout_is_a_read_timeout(delay: float) -> None:
    clock = VirtualClock()
    script = ScriptedTransport(Reply(delay=delay), clock=clock)
    with (
        httpx.Client(transport=script, timeout=3.0) as client,
        pytest.raises(httpx.ReadTimeout),
    ):
        client.get(URL)
    assert clock.monotonic() == 3.0
    assert script.responses == []


def test_an_answer_may_take_any_time_when_there_is_no_read_timeout() -> None:
    clock = VirtualClock()
    script = ScriptedTransport(Reply(delay=1e6), Reply(delay=math.inf), clock=clock)
    with httpx.Client(transport=script, timeout=None) as client:
        assert client.get(URL).status_code == 200
        assert clock.monotonic() == 1e6
        with pytest.raises(AssertionError, match="the client waits for ever"):
            client.get(URL)


def test_a_delay_without_a_clock_is_pointed_out() -> None:
    script = ScriptedTransport(Reply(delay=1.0))
    with pytest.raises(AssertionError, match=r"needs ScriptedTransport\(clock=\.\.\.\)"):
        script.handle_request(httpx.Request("GET", URL))


def test_threads_share_a_script_without_losing_an_item() -> None:
    items: list[ScriptItem] = [200 + number for number in range(80)]
    script = ScriptedTransport(*items)
    statuses: list[int] = []

    def send() -> None:
        request = httpx.Request("GET", URL)
        statuses.extend(script.handle_request(request).status_code for _ in range(10))

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == items


# --- the loopback server


def raw_exchange(server: LoopbackServer, data: bytes) -> bytes:
    """Send bytes, and read until the server closes."""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as sock:
        sock.sendall(data)
        return b"".join(iter(lambda: sock.recv(65536), b""))


def test_the_server_answers_and_writes_down_what_it_did() -> None:
    before = time.monotonic()
    with LoopbackServer() as server, httpx.Client() as client:
        response = client.post(
            f"{server.url}/pay?a=b", content=b"12345", headers={"Idempotency-Key": "k1"}
        )
        assert (response.status_code, response.text) == (200, "ok")
        assert response.headers["Content-Length"] == "2"
    (operation,) = server.ledger
    assert (operation.method, operation.path) == ("POST", "/pay?a=b")
    assert (operation.key, operation.body) == ("k1", b"12345")
    assert before <= operation.time <= time.monotonic()
    (request,) = server.requests
    assert (request.method, request.path, request.body) == ("POST", "/pay?a=b", b"12345")
    assert request.headers["Host"] == server.url.removeprefix("http://")


@pytest.mark.anyio
async def test_the_server_serves_async_clients() -> None:
    with LoopbackServer(503) as server:
        async with httpx.AsyncClient() as client:
            first = await client.put(server.url, content=five_async_chunks())
            second = await client.put(server.url, content=five_async_chunks())
    assert (first.status_code, first.reason_phrase) == (503, "Service Unavailable")
    assert second.status_code == 200
    assert [request.body for request in server.requests] == [b"12345"] * 2
    assert [operation.body for operation in server.ledger] == [b"12345"]


def test_a_connection_is_kept_for_the_next_request() -> None:
    with LoopbackServer() as server, httpx.Client() as client:
        for body in (b"", b"12345", five_chunks()):
            client.post(server.url, content=body)
        assert server.connections == 1
        with httpx.Client() as other:
            other.get(server.url)
        assert server.connections == 2
    assert server.connections == 2
    assert [request.connection for request in server.requests] == [1, 1, 1, 2]


@pytest.mark.parametrize("side", ["client", "server"])
def test_either_side_can_ask_for_the_connection_to_be_closed(side: str) -> None:
    close = {"Connection": "close"}
    answer = ServerResponse(headers=close if side == "server" else {})
    with LoopbackServer(answer, repeat=True) as server, httpx.Client() as client:
        for _ in range(2):
            client.get(server.url, headers=close if side == "client" else {})
        assert server.connections == 2


def test_the_script_comes_before_the_handler() -> None:
    def handler(request: ServerRequest) -> ServerResponse:
        return ServerResponse(status=201, headers=[("X-A", "b")], body=request.body[::-1])

    script = (503, None, ServerResponse(status=429, headers={"Retry-After": "1"}))
    with LoopbackServer(*script, handler=handler) as server, httpx.Client() as client:
        answers = [client.post(server.url, content=b"12") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [503, 201, 429, 201]
    assert answers[1].content == b"21"
    assert answers[1].headers["X-A"] == "b"
    assert answers[2].headers["Retry-After"] == "1"
    assert len(server.ledger) == 2


def test_the_last_step_of_the_script_can_be_repeated() -> None:
    with LoopbackServer(200, 503, repeat=True) as server, httpx.Client() as client:
        statuses = [client.get(server.url).status_code for _ in range(4)]
    assert statuses == [200, 503, 503, 503]


def test_an_empty_script_can_be_repeated() -> None:
    with LoopbackServer(repeat=True) as server, httpx.Client() as client:
        assert client.get(server.url).status_code == 200


@pytest.mark.parametrize(
    ("response", "executed"),
    [
        (ServerResponse(status=200), True),
        (ServerResponse(status=299), True),
        (ServerResponse(status=302), False),
        (ServerResponse(status=503), False),
        (ServerResponse(status=503, executed=True), True),
        (ServerResponse(status=200, executed=False), False),
    ],
)
def test_an_operation_is_executed_if_its_status_or_the_script_says_so(
    response: ServerResponse, executed: bool
) -> None:
    with LoopbackServer(response) as server, httpx.Client() as client:
        assert client.post(server.url).status_code == response.status
    assert len(server.ledger) == executed


def test_a_response_of_several_chunks_is_chunked() -> None:
    response = ServerResponse(body=[b"12", b"", b"345"])
    with LoopbackServer(response) as server, httpx.Client() as client:
        answer = client.get(server.url)
        assert answer.headers["Transfer-Encoding"] == "chunked"
        assert "Content-Length" not in answer.headers
        assert answer.content == b"12345"
        assert client.get(server.url).text == "ok"
        assert server.connections == 1


@pytest.mark.parametrize(
    ("method", "response", "length"),
    [
        ("HEAD", ServerResponse(body=b"12345"), "5"),
        ("GET", ServerResponse(status=204), None),
        ("GET", ServerResponse(status=304), "0"),
        ("GET", ServerResponse(status=503), "0"),
    ],
)
def test_a_response_without_a_body_is_framed_as_http_wants_it(
    method: str, response: ServerResponse, length: str | None
) -> None:
    with LoopbackServer(response) as server, httpx.Client() as client:
        answer = client.request(method, server.url)
        assert answer.content == b""
        assert answer.headers.get("Content-Length") == length
        assert client.get(server.url).text == "ok"
        assert server.connections == 1


def test_raw_bytes_are_written_as_they_are_before_the_connection_is_closed() -> None:
    with LoopbackServer(ServerResponse(raw=b"no HTTP\r\n\r\n")) as server, httpx.Client() as client:
        with pytest.raises(httpx.RemoteProtocolError):
            client.get(server.url)
        assert client.get(server.url).text == "ok"
        assert server.connections == 2


# The request of the fault tests, as the client sends it.
REQUEST = b"POST /pay HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n12345"
HEAD = REQUEST.index(b"12345")
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@given(cut=st.integers(0, len(REQUEST)), pieces=st.integers(1, len(REQUEST)))
def test_a_request_is_executed_if_its_last_byte_was_read(cut: int, pieces: int) -> None:
    with LoopbackServer(Fault(request_bytes=cut)) as server:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for start in range(0, len(REQUEST), pieces):
                sock.sendall(REQUEST[start : start + pieces])
            assert sock.recv(1) == b""
    assert [request.body for request in server.requests] == [REQUEST[HEAD:cut]] * (cut >= HEAD)
    assert len(server.ledger) == (cut == len(REQUEST))


@pytest.mark.parametrize("cut", [0, HEAD - 1, HEAD, HEAD + 2, len(REQUEST)])
def test_a_request_can_be_executed_before_its_body_was_read(cut: int) -> None:
    with LoopbackServer(Fault(request_bytes=cut), commit="on_headers") as server:
        assert raw_exchange(server, REQUEST) == b""
    assert len(server.ledger) == (cut >= HEAD)


def test_an_operation_that_is_executed_on_headers_is_answered_like_any_other() -> None:
    with LoopbackServer(commit="on_headers") as server, httpx.Client() as client:
        assert client.post(server.url, content=b"12345").text == "ok"
    assert [operation.body for operation in server.ledger] == [b""]
    assert [request.body for request in server.requests] == [b"12345"]


@pytest.mark.parametrize("cut", [0, 1, len(RESPONSE) - 1, len(RESPONSE), len(RESPONSE) + 1])
def test_a_response_can_be_cut_anywhere_and_the_request_was_executed(cut: int) -> None:
    with LoopbackServer(Fault(response_bytes=cut)) as server:
        assert raw_exchange(server, REQUEST) == RESPONSE[:cut]
    assert len(server.ledger) == 1


def test_a_plain_fault_executes_the_request_and_loses_the_answer() -> None:
    with LoopbackServer(Fault()) as server, httpx.Client() as client:
        with pytest.raises(httpx.RemoteProtocolError):
            client.post(server.url)
        assert client.get(server.url).text == "ok"
    assert [operation.method for operation in server.ledger] == ["POST", "GET"]


FAULTS = [
    ("fin", httpx.RemoteProtocolError),
    ("rst", httpx.ReadError),
    ("silence", httpx.ReadTimeout),
]


@pytest.mark.parametrize(
    "cut", [{"request_bytes": 9}, {"response_bytes": 0}, {"response_bytes": 9}]
)
@pytest.mark.parametrize(("by", "error"), FAULTS)
def test_each_fault_is_to_the_client_what_it_is_in_the_world(
    by: FaultKind, error: type[httpx.TransportError], cut: dict[str, int]
) -> None:
    with (
        LoopbackServer(Fault(by=by, **cut)) as server,
        httpx.Client(timeout=httpx.Timeout(10, read=0.1)) as client,
    ):
        # In one write: a second one would meet the RST first, and httpcore drops that error.
        with pytest.raises(error) as raised:
            client.post(server.url)
        assert type(raised.value) is error
        assert client.post(server.url).text == "ok"
        assert server.connections == 2
    assert len(server.ledger) == (1 if "request_bytes" in cut else 2)


def test_an_upload_into_silence_is_a_write_timeout() -> None:
    big = bytes(32 * 1024 * 1024)
    fault = Fault(request_bytes=1000, by="silence")
    with (
        LoopbackServer(fault) as server,
        httpx.Client(timeout=httpx.Timeout(10, write=0.1)) as client,
        pytest.raises(httpx.WriteTimeout),
    ):
        client.put(server.url, content=big)
    assert server.ledger == []


def test_a_silent_connection_stays_open_and_the_others_are_served() -> None:
    with (
        LoopbackServer(Fault(by="silence")) as server,
        httpx.Client(timeout=httpx.Timeout(10, read=0.1)) as client,
    ):
        with pytest.raises(httpx.ReadTimeout):
            client.get(server.url)
        assert client.get(server.url).text == "ok"


def test_a_fin_reaches_a_client_that_is_still_sending() -> None:
    with LoopbackServer(Fault(request_bytes=1)) as server:
        assert raw_exchange(server, REQUEST + bytes(4 * 1024 * 1024)) == b""
    assert server.requests == []


@pytest.mark.parametrize("by", ["reset", "", None])
def test_an_unknown_kind_of_fault_is_refused(by: FaultKind) -> None:
    with pytest.raises(ValueError, match="by must be one of"):
        Fault(by=by)


def test_an_unknown_commit_point_is_refused() -> None:
    with pytest.raises(ValueError, match="commit must be one of"):
        LoopbackServer(commit="on_body")  # type: ignore[arg-type]  # that is the point


def test_a_known_key_is_answered_from_the_record_and_nothing_runs_again() -> None:
    def handler(request: ServerRequest) -> ServerResponse:
        return ServerResponse(status=201, headers={"X-A": "b"}, body=request.body)

    with (
        LoopbackServer(handler=handler, dedupe=True) as server,
        httpx.Client(headers={"Idempotency-Key": "k1"}) as client,
    ):
        first = client.post(server.url, content=b"1")
        second = client.post(server.url, content=b"2")
        other = client.post(server.url, content=b"3", headers={"Idempotency-Key": "k2"})
        blank = client.post(server.url, content=b"4", headers={"Idempotency-Key": ""})
    assert "Idempotent-Replayed" not in first.headers
    assert (second.status_code, second.content, second.headers["X-A"]) == (201, b"1", "b")
    assert second.headers["Idempotent-Replayed"] == "true"
    assert (other.content, blank.content) == (b"3", b"4")
    assert [(operation.key, operation.body) for operation in server.ledger] == [
        ("k1", b"1"),
        ("k2", b"3"),
        (None, b"4"),
    ]


def test_the_record_outlives_a_lost_answer() -> None:
    with (
        LoopbackServer(Fault(by="rst"), dedupe=True) as server,
        httpx.Client(headers={"Idempotency-Key": "k1"}) as client,
    ):
        with pytest.raises(httpx.ReadError):
            client.post(server.url)
        assert client.post(server.url).headers["Idempotent-Replayed"] == "true"
    assert len(server.ledger) == 1


def test_without_dedupe_a_key_protects_from_nothing() -> None:
    with (
        LoopbackServer() as server,
        httpx.Client(headers={"Idempotency-Key": "k1"}) as client,
    ):
        for _ in range(2):
            assert "Idempotent-Replayed" not in client.post(server.url).headers
    assert len(server.ledger) == 2


def test_a_refusal_is_not_recorded_and_a_scripted_one_stands_in_front_of_the_record() -> None:
    answers = iter([503, 201])

    def handler(request: ServerRequest) -> ServerResponse:
        return ServerResponse(status=next(answers))

    with (
        LoopbackServer(None, None, 429, 200, handler=handler, dedupe=True) as server,
        httpx.Client(headers={"Idempotency-Key": "k1"}) as client,
    ):
        statuses = [client.post(server.url).status_code for _ in range(4)]
    assert statuses == [503, 201, 429, 201]
    assert len(server.ledger) == 1


def test_a_key_that_is_still_running_is_a_conflict() -> None:
    running, go_on = threading.Event(), threading.Event()

    def handler(request: ServerRequest) -> ServerResponse:
        running.set()
        assert go_on.wait(10)
        return ServerResponse(status=201)

    statuses: list[int] = []
    with (
        LoopbackServer(handler=handler, dedupe=True) as server,
        httpx.Client(headers={"Idempotency-Key": "k1"}) as client,
    ):
        first = threading.Thread(
            target=lambda: statuses.append(client.post(server.url).status_code)
        )
        first.start()
        assert running.wait(10)
        statuses.append(client.post(server.url).status_code)
        go_on.set()
        first.join()
        statuses.append(client.post(server.url).status_code)
    assert statuses == [409, 201, 201]
    assert len(server.ledger) == 1


@pytest.mark.parametrize("data", [b"", b"POST", b"no HTTP at all\r\n\r\n", REQUEST[:-1]])
def test_a_client_that_makes_no_request_does_no_harm(data: bytes) -> None:
    with LoopbackServer() as server, httpx.Client() as client:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as sock:
            sock.sendall(data)
        assert client.get(server.url).text == "ok"


def test_the_server_ends_with_its_context_whatever_its_clients_do() -> None:
    with httpx.Client() as client:
        with LoopbackServer() as server:
            client.get(server.url)
            host, port = server.url.removeprefix("http://").split(":")
            half_sent = socket.create_connection((host, int(port)), timeout=10)
            half_sent.sendall(REQUEST)
            assert half_sent.recv(65536) == RESPONSE
            half_sent.sendall(REQUEST[:-1])
        # What the server had not read yet turns its FIN into a RST.
        with half_sent, suppress(ConnectionResetError):
            assert half_sent.recv(1) == b""
        with pytest.raises(httpx.ConnectError):
            client.get(server.url)


def test_no_thread_is_left_behind() -> None:
    before = threading.active_count()
    with LoopbackServer(Fault(by="silence")) as server:
        with httpx.Client(timeout=0.1) as client, pytest.raises(httpx.ReadTimeout):
            client.get(server.url)
        assert threading.active_count() > before
    assert threading.active_count() == before


# --- the loopback server over TLS


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def server_context(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.fixture(scope="module")
def client_context(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@pytest.mark.parametrize(("by", "error"), FAULTS)
def test_faults_strike_below_tls(
    by: FaultKind,
    error: type[httpx.TransportError],
    server_context: ssl.SSLContext,
    client_context: ssl.SSLContext,
) -> None:
    with (
        LoopbackServer(None, Fault(by=by), ssl_context=server_context) as server,
        httpx.Client(verify=client_context, timeout=httpx.Timeout(10, read=0.3)) as client,
    ):
        assert server.url.startswith("https://")
        assert client.get(server.url).text == "ok"
        # Python's ssl module makes an end of file of a RST, or not, by its version.
        with pytest.raises((error, httpx.RemoteProtocolError) if by == "rst" else error):
            client.post(server.url)
        assert client.get(server.url).text == "ok"
    assert [operation.method for operation in server.ledger] == ["GET", "POST", "GET"]


def test_a_client_that_distrusts_the_certificate_makes_no_request(
    server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    with LoopbackServer(ssl_context=server_context) as server:
        with httpx.Client() as client, pytest.raises(httpx.ConnectError):
            client.get(server.url)
        with httpx.Client(verify=client_context) as client:
            assert client.get(server.url).text == "ok"
    assert len(server.requests) == 1


def test_a_client_that_never_ends_its_handshake_holds_up_nobody(
    server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    with LoopbackServer(ssl_context=server_context) as server:
        host, port = server.url.removeprefix("https://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as sock:
            sock.sendall(b"\x16\x03\x01")
            with httpx.Client(verify=client_context) as client:
                assert client.get(server.url).text == "ok"
            assert server.connections == 2
