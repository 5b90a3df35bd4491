"""What the events of one attempt prove: tables of them, as httpcore sends them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import pytest

from httpx_safe_retry._trace import SendProgress
from tests.library import httpcore, httpx

Event = tuple[str, dict[str, Any]]


def started(protocol: str, stream_id: int | None = None, method: bytes = b"POST") -> Event:
    info: dict[str, Any] = {"request": SimpleNamespace(method=method)}
    if stream_id is not None:
        info["stream_id"] = stream_id
    return f"{protocol}.send_request_headers.started", info


def complete(protocol: str, step: str = "send_request_headers") -> Event:
    return f"{protocol}.{step}.complete", {"return_value": None}


def failed(protocol: str, error: BaseException, step: str = "send_request_headers") -> Event:
    return f"{protocol}.{step}.failed", {"exception": error}


def made_from(error: BaseException, *causes: BaseException) -> BaseException:
    """An error with its causes, the nearest first."""
    for effect, cause in zip((error, *causes), causes, strict=False):
        effect.__cause__ = cause
    return error


def after(*events: Event) -> SendProgress:
    progress = SendProgress(None, asynchronous=False)
    for name, info in events:
        progress.callback(name, info)
    return progress


def last_error(*events: Event) -> BaseException:
    """What the attempt ends in: the error of its last event as httpx maps it, or its own."""
    errors = [info["exception"] for name, info in events if name.endswith(".failed") and info]
    if not errors or not isinstance(errors[-1], Exception):
        return errors[-1] if errors else httpx.ReadError("lost")
    kind = getattr(httpx, type(errors[-1]).__name__, None)
    return errors[-1] if kind is None else made_from(kind("lost"), errors[-1])


def never_sent(*events: Event) -> bool:
    return after(*events).never_sent(last_error(*events))


LOST = httpx.ReadError("lost")
NO_TUNNEL = httpx.ProxyError("503 Service Unavailable")
SENT = [started("http11"), complete("http11")]
SENT_ON_STREAM_5 = [started("http2", 5), complete("http2")]
CONNECTED: list[Event] = [
    ("connection.connect_tcp.started", {"host": "h"}),
    ("connection.connect_tcp.complete", {"return_value": None}),
]
TUNNEL_ASKED_FOR = [started("http11", method=b"CONNECT"), complete("http11")]
NOT_PROCESSED = failed("http2", httpcore.ConnectionNotAvailable(), "receive_response_headers")
RESET = ConnectionResetError(104, "Connection reset by peer")


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(
            [CONNECTED[0], failed("connection", httpcore.ConnectError(), "connect_tcp")],
            id="the connection failed",
        ),
        pytest.param(
            [*CONNECTED, failed("connection", KeyboardInterrupt(), "start_tls")],
            id="it was interrupted during the TLS handshake",
        ),
        pytest.param(
            [
                ("socks.setup_socks5_connection.started", {}),
                failed("socks", httpcore.ReadTimeout(), "setup_socks5_connection"),
            ],
            id="a SOCKS proxy is silent",
        ),
        pytest.param(
            [*CONNECTED, failed("http2", httpcore.WriteTimeout(), "send_connection_init")],
            id="the HTTP/2 preface failed",
        ),
        pytest.param(
            [
                *TUNNEL_ASKED_FOR,
                failed("http11", httpcore.ReadTimeout(), "receive_response_headers"),
            ],
            id="a proxy did not answer the CONNECT",
        ),
        pytest.param(
            [
                started("http11", method=b"CONNECT"),
                failed("http11", KeyboardInterrupt()),
            ],
            id="the CONNECT itself may have left",
        ),
        pytest.param(
            [started("http11"), failed("http11", httpcore.LocalProtocolError())],
            id="h11 refused to make the head",
        ),
        pytest.param(
            [started("http11"), failed("http11", made_from(httpcore.WriteError(), RESET))],
            id="the operating system did not take the head",
        ),
        pytest.param(
            [
                started("http11"),
                failed(
                    "http11", made_from(httpcore.WriteError(), RuntimeError("broken stream"), RESET)
                ),
            ],
            id="the event loop's stream was reset before the head",
        ),
        pytest.param(
            [*SENT_ON_STREAM_5, NOT_PROCESSED],
            id="a GOAWAY left the stream out and no second sending was begun",
        ),
        pytest.param(
            [*SENT_ON_STREAM_5, NOT_PROCESSED, started("http2", 1)],
            id="a GOAWAY left the stream out and the second sending was only begun",
        ),
    ],
)
def test_a_request_was_never_sent_when(events: list[Event]) -> None:
    assert never_sent(*events)


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([], id="there were no events"),
        pytest.param(
            [
                started("http11"),
                failed("http11", made_from(httpcore.WriteError(), RuntimeError("closed stream"))),
            ],
            id="the event loop's stream was closed while the head was being sent",
        ),
        pytest.param(
            [("curl.perform.started", {}), ("curl.perform.failed", {})],
            id="the events are not httpcore's",
        ),
        pytest.param(SENT, id="its head is out"),
        pytest.param([*TUNNEL_ASKED_FOR, *SENT], id="its head is out through a tunnel"),
        pytest.param(
            [*SENT, failed("http11", httpcore.WriteError(), "send_request_body")],
            id="its head is out and its body failed",
        ),
        pytest.param(
            [*SENT, failed("http11", httpcore.ReadError(), "receive_response_headers")],
            id="the answer was lost",
        ),
        pytest.param(
            [started("http11"), failed("http11", httpcore.WriteTimeout())],
            id="an event loop may hold the rest of its head",
        ),
        pytest.param(
            [
                started("http11"),
                failed("http11", made_from(httpcore.WriteTimeout(), Exception("too slow"))),
            ],
            id="trio may have written the rest of its head",
        ),
        pytest.param(
            [started("http11"), failed("http11", asyncio.CancelledError())],
            id="it was cancelled while its head was written",
        ),
        pytest.param(
            [started("http11"), failed("http11", KeyboardInterrupt())],
            id="it was interrupted behind the last byte of its head",
        ),
        pytest.param(
            [
                started("http11"),
                failed("http11", made_from(httpcore.WriteError(), OSError("the alarm went off"))),
            ],
            id="a signal handler raised an OSError behind the last byte of its head",
        ),
        pytest.param(
            [started("http11"), failed("http11", httpcore.WriteError())],
            id="a write error says nothing of where it is from",
        ),
        pytest.param(
            [started("http2", 1), failed("http2", made_from(httpcore.WriteError(), RESET))],
            id="another stream's writer may have sent its head before the error",
        ),
        pytest.param(
            [started("http2", 1), failed("http2", asyncio.CancelledError())],
            id="its head is queued and the next writer sends it",
        ),
        pytest.param(
            [started("http2", 1), failed("http2", h2.exceptions.ProtocolError("who raised it?"))],
            id="an HTTP/2 protocol error came from who knows where",
        ),
        pytest.param(
            [*SENT_ON_STREAM_5, NOT_PROCESSED, started("http2", 1), complete("http2")],
            id="httpcore sent it again after a GOAWAY",
        ),
        pytest.param(
            [*SENT, *CONNECTED, started("http11"), failed("http11", httpcore.LocalProtocolError())],
            id="a layer in between sent it again and failed only then",
        ),
        pytest.param(
            [*SENT_ON_STREAM_5, *SENT_ON_STREAM_5, NOT_PROCESSED],
            id="one of two sendings was not processed",
        ),
    ],
)
def test_a_request_may_have_been_sent_when(events: list[Event]) -> None:
    assert not never_sent(*events)


@pytest.mark.parametrize(
    ("events", "stream_id"),
    [
        ([], None),
        (SENT, None),
        (SENT_ON_STREAM_5, 5),
        ([*SENT_ON_STREAM_5, NOT_PROCESSED, started("http2", 1)], 1),
        ([*SENT_ON_STREAM_5, NOT_PROCESSED, started("http11")], None),
    ],
)
def test_the_stream_is_the_one_of_the_last_sending(
    events: list[Event], stream_id: int | None
) -> None:
    assert after(*events).stream_id == stream_id


# What h2 does, of which httpcore shows nothing but the error --------------------------------------

HEAD = [(":method", "POST"), (":authority", "h"), (":scheme", "https"), (":path", "/")]


@pytest.fixture
def connection() -> h2.connection.H2Connection:
    client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    client.initiate_connection()
    client.data_to_send()
    return client


def error_of(call: Callable[[], object]) -> BaseException:
    with pytest.raises(h2.exceptions.ProtocolError) as caught:
        call()
    return caught.value


@pytest.mark.parametrize("trouble", ["connection closed", "header refused"])
def test_a_head_that_h2_refuses_was_never_sent(
    connection: h2.connection.H2Connection, trouble: str
) -> None:
    head = HEAD
    if trouble == "connection closed":
        connection.close_connection()
        connection.data_to_send()
    else:
        head = [*HEAD, ("te", "gzip")]
    error = error_of(lambda: connection.send_headers(1, head))
    assert connection.data_to_send() == b""
    assert never_sent(started("http2", 1), failed("http2", error))


def test_a_head_whose_window_can_not_be_widened_may_have_been_sent(
    connection: h2.connection.H2Connection,
) -> None:
    """Another thread closes the connection between the two calls that httpcore makes for a head."""
    connection.send_headers(1, HEAD)
    assert connection.data_to_send() != b""
    connection.close_connection()
    error = error_of(lambda: connection.increment_flow_control_window(2**24, 1))
    assert not never_sent(started("http2", 1), failed("http2", error))


# The caller's own trace ---------------------------------------------------------------------------


def test_the_callers_own_trace_sees_every_event() -> None:
    seen: list[Event] = []
    progress = SendProgress(lambda *event: seen.append(event), asynchronous=False)
    events = [*CONNECTED, *SENT, ("curl.perform.started", {"more": 1})]
    for name, info in events:
        assert progress.callback(name, info) is None
    assert seen == events
    assert not progress.never_sent(LOST)


def test_an_async_trace_of_the_caller_is_awaited_for_every_event() -> None:
    seen: list[Event] = []

    async def trace(name: str, info: dict[str, Any]) -> None:
        await asyncio.sleep(0)
        seen.append((name, info))

    async def play(progress: SendProgress) -> None:
        for name, info in [*CONNECTED, started("http11")]:
            told = progress.callback(name, info)
            assert inspect.iscoroutine(told)  # what httpcore asks of it
            await told

    progress = SendProgress(trace, asynchronous=True)
    asyncio.run(play(progress))
    assert seen == [*CONNECTED, started("http11")]
    assert progress.never_sent(NO_TUNNEL)
    asyncio.run(play(SendProgress(None, asynchronous=True)))


@pytest.mark.parametrize("event", [started("http11"), complete("http11")])
def test_what_an_event_says_counts_even_if_the_callers_trace_raises(event: Event) -> None:
    def trace(name: str, info: dict[str, Any]) -> None:
        if name == event[0]:
            raise ValueError(name)

    progress = SendProgress(trace, asynchronous=False)
    for name, info in SENT:
        try:
            progress.callback(name, info)
        except ValueError:
            break
    assert progress.never_sent(NO_TUNNEL) == event[0].endswith("started")


def test_the_next_attempt_starts_knowing_nothing() -> None:
    seen: list[str] = []
    progress = SendProgress(lambda name, info: seen.append(name), asynchronous=False)
    progress.callback(*started("http2", 5))
    following = progress.anew()
    assert following.stream_id is None
    assert not following.never_sent(NO_TUNNEL)
    following.callback(*CONNECTED[0])
    assert following.never_sent(NO_TUNNEL)
    assert seen[-1] == CONNECTED[0][0]


def test_another_error_than_the_one_that_the_trace_ended_in_proves_nothing() -> None:
    # A transport that gives up on httpcore and tries another way, which emits no events.
    refused = httpcore.ConnectError("refused")
    progress = after(*CONNECTED[:1], failed("connection", refused, "connect_tcp"))
    assert progress.never_sent(made_from(httpx.ConnectError("refused"), refused))
    assert not progress.never_sent(LOST)
    assert not progress.never_sent(made_from(LOST, TimeoutError()))


def test_a_cancelled_task_ends_in_its_cancellation_or_in_our_words_for_it() -> None:
    cancelled = asyncio.CancelledError()
    progress = after(*CONNECTED[:1], failed("connection", cancelled, "connect_tcp"))
    assert progress.never_sent(cancelled)
    ours = httpx.ReadTimeout("the deadline ended the attempt")
    assert progress.never_sent(made_from(ours, cancelled))
    # What is wrapped may have lived on, and gone another way.
    assert not progress.never_sent(httpx.ReadTimeout("the deadline ended the attempt"))
    assert not progress.never_sent(asyncio.CancelledError())
    assert not progress.never_sent(made_from(httpx.ReadError("lost"), httpcore.ReadError()))


def test_an_error_by_another_name_tells_of_another_way() -> None:
    refused = httpcore.ConnectError("refused")
    progress = after(*CONNECTED[:1], failed("connection", refused, "connect_tcp"))
    assert progress.never_sent(made_from(httpx.ConnectError("refused"), refused))
    assert progress.never_sent(refused)
    assert not progress.never_sent(made_from(httpx.ReadError("both failed"), refused))


def test_a_tunnel_that_was_refused_proves_nothing_of_another_way() -> None:
    progress = after(*CONNECTED, *TUNNEL_ASKED_FOR)
    assert progress.never_sent(NO_TUNNEL)
    assert not progress.never_sent(LOST)
