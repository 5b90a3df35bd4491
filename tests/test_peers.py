"""The peers do what they promise, and httpx reports each fault as the classification expects.

Everything here is plain httpx: a test that fails tells that httpx, httpcore, anyio, trio or h2 now
report a fault in another way, and so that what reads their reports has to change.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import socket
import ssl
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar

import anyio
import h2.errors
import h2.events
import h2.exceptions
import pytest

from tests.library import httpcore, httpx
from tests.peers import (
    Answer,
    Drop,
    GoAway,
    Http1Server,
    Http2Server,
    HttpProxy,
    NamespacesRefusedError,
    Raw,
    Reset,
    SocksProxy,
    SocksReply,
    Trouble,
    client_tls,
    refusing_port,
    server_tls,
    silent_port,
    without_network,
)

Flavour: TypeAlias = Literal["sync", "asyncio", "trio"]
ErrorT = TypeVar("ErrorT", bound=BaseException)
TestT = TypeVar("TestT", bound=Callable[..., None])

PRIOR_KNOWLEDGE: dict[str, Any] = {"http1": False, "http2": True}


@pytest.fixture(params=["sync", "asyncio", "trio"])
def flavour(request: pytest.FixtureRequest) -> Flavour:
    """The three ways in which httpx meets a network."""
    way: Flavour = request.param
    return way


@dataclass
class Exchange:
    """What one request came to, and what the `trace` extension showed of it."""

    outcome: httpx.Response | Exception
    trace: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    @property
    def error(self) -> Exception:
        assert isinstance(self.outcome, Exception), self.outcome
        return self.outcome

    @property
    def status(self) -> int:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome.status_code

    @property
    def steps(self) -> list[str]:
        return [name for name, _ in self.trace]

    def heads_sent(self) -> list[bytes]:
        """The methods of the requests whose head went out whole, a proxy's CONNECT among them."""
        methods: list[bytes] = []
        method = b""
        for name, info in self.trace:
            if name.endswith("send_request_headers.started"):
                method = info["request"].method
            if name.endswith("send_request_headers.complete"):
                methods.append(method)
        return methods


def post(
    flavour: Flavour,
    url: str,
    /,
    *bodies: bytes,
    chunked: bool = False,
    timeout: float = 5.0,
    **options: Any,
) -> list[Exchange]:
    """POST each body in turn, by one client with its own transport."""
    exchanges: list[Exchange] = []

    def body_of(data: bytes) -> Iterator[bytes]:
        yield data[:2]
        yield data[2:]

    async def async_body_of(data: bytes) -> AsyncIterator[bytes]:
        yield data[:2]
        yield data[2:]

    def post_all() -> None:
        transport = httpx.HTTPTransport(**options)
        with httpx.Client(transport=transport, timeout=timeout) as client:
            for data in bodies:
                trace: list[tuple[str, dict[str, Any]]] = []

                def note(name: str, info: dict[str, Any], into: list[Any] = trace) -> None:
                    into.append((name, info))

                content = body_of(data) if chunked else data
                try:
                    outcome: httpx.Response | Exception = client.post(
                        url, content=content, extensions={"trace": note}
                    )
                except Exception as error:
                    outcome = error
                exchanges.append(Exchange(outcome, trace))

    async def apost_all() -> None:
        transport = httpx.AsyncHTTPTransport(**options)
        async with httpx.AsyncClient(transport=transport, timeout=timeout) as client:
            for data in bodies:
                trace: list[tuple[str, dict[str, Any]]] = []

                async def note(name: str, info: dict[str, Any], into: list[Any] = trace) -> None:
                    into.append((name, info))

                content = async_body_of(data) if chunked else data
                try:
                    outcome: httpx.Response | Exception = await client.post(
                        url, content=content, extensions={"trace": note}
                    )
                except Exception as error:
                    outcome = error
                exchanges.append(Exchange(outcome, trace))

    if flavour == "sync":
        post_all()
    else:
        anyio.run(apost_all, backend=flavour)
    return exchanges


def post_one(flavour: Flavour, url: str, body: bytes = b"12345", /, **options: Any) -> Exchange:
    """POST one small body."""
    return post(flavour, url, body, **options)[0]


def reasons(error: BaseException) -> Iterator[BaseException]:
    """An error and all that it came from, suppressed contexts and groups included."""
    yield error
    for inner in getattr(error, "exceptions", ()):
        yield from reasons(inner)
    deeper = error.__cause__ or error.__context__
    if deeper is not None:
        yield from reasons(deeper)


def reason(error: BaseException, kind: type[ErrorT]) -> ErrorT | None:
    """The nearest reason of one kind."""
    return next((one for one in reasons(error) if isinstance(one, kind)), None)


def was_reset(error: BaseException) -> bool:
    """Whether an RST is among the reasons. Older releases of anyio tell no more than the second."""
    known = (ConnectionResetError, anyio.BrokenResourceError)
    return any(isinstance(one, known) for one in reasons(error))


def core(error: BaseException) -> BaseException:
    """The httpcore error that httpx mapped."""
    cause = error.__cause__
    assert cause is not None
    assert type(cause).__module__.startswith("httpcore")
    assert type(cause).__name__ == type(error).__name__
    return cause


@pytest.fixture
def _garbage_collected() -> Iterator[None]:
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def left_open_by_httpcore(test: TestT) -> TestT:
    """Httpcore doesn't close what it has connected when the talk with a SOCKS proxy then fails."""
    ignored = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
    marked: TestT = pytest.mark.usefixtures("_garbage_collected")(ignored(test))
    return marked


# ---------------------------------------------------------------------------------------------
# The peers at work


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("secure", [False, True])
def test_an_http1_server_reads_whole_requests_on_one_connection(
    flavour: Flavour, secure: bool, chunked: bool
) -> None:
    with Http1Server([Answer(201), Answer(503)], tls=server_tls() if secure else None) as server:
        first, second, third = post(
            flavour, server.url, b"12345", b"", b"67", chunked=chunked, verify=client_tls()
        )
    assert (first.status, second.status, third.status) == (201, 503, 200)
    assert [request.body for request in server.executed] == [b"12345", b"", b"67"]
    assert server.connections == 1


@pytest.mark.parametrize("secure", [False, True])
def test_an_http2_server_reads_whole_requests_on_one_connection(
    flavour: Flavour, secure: bool
) -> None:
    big = bytes(200_000)
    options = {"http2": True, "verify": client_tls()} if secure else PRIOR_KNOWLEDGE
    with Http2Server([Answer(201, body=big)], tls=server_tls() if secure else None) as server:
        first, second = post(flavour, server.url, b"12345", big, **options)
    assert isinstance(first.outcome, httpx.Response)
    assert first.outcome.http_version == "HTTP/2"
    assert (first.status, first.outcome.content, second.status) == (201, big, 200)
    assert [request.body for request in server.executed] == [b"12345", big]
    assert server.connections == 1


def test_a_proxy_tunnels_to_https_and_passes_on_http(flavour: Flavour) -> None:
    with (
        Http1Server(tls=server_tls()) as secure,
        Http1Server([Answer(body=b"hello")]) as plain,
        HttpProxy(credentials=("user", "password")) as proxy,
    ):
        options: dict[str, Any] = {"proxy": httpx.Proxy(proxy.url, auth=("user", "password"))}
        tunnelled = post_one(flavour, secure.url, verify=client_tls(), **options)
        passed_on = post_one(flavour, plain.url, **options)
    assert (tunnelled.status, passed_on.status) == (200, 200)
    assert [request.method for request in proxy.executed] == ["CONNECT", "POST"]
    assert [server.executed[0].body for server in (secure, plain)] == [b"12345", b"12345"]
    assert tunnelled.heads_sent() == [b"CONNECT", b"POST"]


@pytest.mark.parametrize("credentials", [None, ("user", "password")])
def test_a_socks_proxy_connects(flavour: Flavour, credentials: tuple[str, str] | None) -> None:
    with Http1Server() as server, SocksProxy(credentials=credentials) as proxy:
        url = httpx.Proxy(proxy.url, auth=credentials)
        assert post_one(flavour, server.url, proxy=url).status == 200
    assert [request.target for request in proxy.executed] == [f"127.0.0.1:{server.port}"]
    assert [request.body for request in server.executed] == [b"12345"]


def test_a_peer_that_fails_itself_fails_its_test() -> None:
    class Broken(Http1Server):
        def serve(self, connection: socket.socket) -> None:
            raise ZeroDivisionError

    def meet() -> None:
        with Broken() as server:
            post_one("sync", server.url)

    with pytest.raises(ZeroDivisionError):
        meet()


def test_a_peer_ends_with_its_connections_still_open() -> None:
    with Http1Server(tls=server_tls()) as secure, Http2Server() as server:
        idle = [socket.create_connection(("127.0.0.1", one.port)) for one in (secure, server)]
    for connection in idle:
        with connection, contextlib.suppress(ConnectionResetError):
            while connection.recv(1000):
                pass


# ---------------------------------------------------------------------------------------------
# No connection


def assert_not_connected(exchange: Exchange, number: int) -> None:
    assert type(exchange.error) is httpx.ConnectError
    assert exchange.steps == ["connection.connect_tcp.started", "connection.connect_tcp.failed"]
    assert number in {one.errno for one in reasons(exchange.error) if isinstance(one, OSError)}


def test_a_refused_connection(flavour: Flavour) -> None:
    with refusing_port() as port:
        assert_not_connected(post_one(flavour, f"http://127.0.0.1:{port}/"), errno.ECONNREFUSED)


def test_httpcore_hides_the_reason_in_a_suppressed_context(flavour: Flavour) -> None:
    with refusing_port() as port:
        error = core(post_one(flavour, f"http://127.0.0.1:{port}/").error)
    assert error.__cause__ is None
    assert error.__suppress_context__
    assert error.__context__ is error.args[0]
    assert isinstance(error.__context__, OSError)


def test_trio_hides_the_reason_in_a_group() -> None:
    with refusing_port() as port:
        error = post_one("trio", f"http://127.0.0.1:{port}/").error
    assert [type(one).__name__ for one in reasons(error)] == [
        "ConnectError",
        "ConnectError",
        "OSError",
        "ExceptionGroup",
        "ConnectionRefusedError",
    ]


def test_a_connection_that_nobody_answers(flavour: Flavour) -> None:
    with silent_port() as port:
        exchange = post_one(flavour, f"http://127.0.0.1:{port}/", timeout=0.1)
    assert type(exchange.error) is httpx.ConnectTimeout
    assert exchange.steps == ["connection.connect_tcp.started", "connection.connect_tcp.failed"]
    core(exchange.error)


UNREACHABLE = {
    "http://127.0.0.1:9/": errno.ENETUNREACH,
    "http://name.invalid:9/": socket.EAI_AGAIN,
}
Report: TypeAlias = tuple[str, list[str], set[int]]


def report_all() -> dict[tuple[Flavour, str], Report]:
    """What each request comes to, in values that survive pickle."""
    reports: dict[tuple[Flavour, str], Report] = {}
    flavours: tuple[Flavour, ...] = ("sync", "asyncio", "trio")
    for flavour in flavours:
        for url in UNREACHABLE:
            exchange = post_one(flavour, url)
            errors = [one for one in reasons(exchange.error) if isinstance(one, OSError)]
            numbers = {one.errno for one in errors if one.errno is not None}
            reports[flavour, url] = (type(exchange.error).__name__, exchange.steps, numbers)
    return reports


@pytest.fixture(scope="module")
def reports_without_network() -> dict[tuple[Flavour, str], Report]:
    try:
        return without_network(report_all)
    except NamespacesRefusedError as refusal:
        pytest.skip(f"needs a network of its own, which this machine refuses: {refusal}")


@pytest.mark.parametrize("url", list(UNREACHABLE))
def test_no_network(
    flavour: Flavour, url: str, reports_without_network: dict[tuple[Flavour, str], Report]
) -> None:
    name, steps, numbers = reports_without_network[flavour, url]
    assert name == "ConnectError"
    assert steps == ["connection.connect_tcp.started", "connection.connect_tcp.failed"]
    assert numbers == {UNREACHABLE[url]}


# ---------------------------------------------------------------------------------------------
# TLS

VERIFY_CODES: dict[Trouble, int] = {
    "self-signed": 18,
    "unknown authority": 20,
    "expired": 10,
    "another name": 64,
}


@pytest.mark.parametrize("through_proxy", [False, True])
@pytest.mark.parametrize("trouble", list(VERIFY_CODES))
def test_a_certificate_that_is_not_trusted(
    flavour: Flavour, trouble: Trouble, through_proxy: bool
) -> None:
    with Http1Server(tls=server_tls(trouble)) as server, HttpProxy() as proxy:
        exchange = post_one(
            flavour,
            server.url,
            verify=client_tls(),
            proxy=proxy.url if through_proxy else None,
        )
    assert type(exchange.error) is httpx.ConnectError
    untrusted = reason(exchange.error, ssl.SSLCertVerificationError)
    assert untrusted is not None
    assert untrusted.verify_code == VERIFY_CODES[trouble]
    step = "proxy.start_tls.failed" if through_proxy else "connection.start_tls.failed"
    assert exchange.steps[-1] == step
    assert b"POST" not in exchange.heads_sent()
    assert server.connections == 1
    assert not server.received


@pytest.mark.parametrize("hard", [False, True])
def test_a_connection_that_ends_in_the_tls_handshake(flavour: Flavour, hard: bool) -> None:
    with Http1Server([Drop("accept", hard=hard)], tls=server_tls()) as server:
        exchange = post_one(flavour, server.url, verify=client_tls())
    assert type(exchange.error) is httpx.ConnectError
    assert reason(exchange.error, ssl.SSLCertVerificationError) is None
    assert exchange.steps[-1].endswith(".failed")
    assert not exchange.heads_sent()


def test_a_server_without_tls_is_no_matter_of_trust(flavour: Flavour) -> None:
    with Http1Server() as server:
        url = server.url.replace("http:", "https:")
        exchange = post_one(flavour, url, verify=client_tls())
    assert type(exchange.error) is httpx.ConnectError
    assert isinstance(reason(exchange.error, ssl.SSLError), ssl.SSLError)
    assert reason(exchange.error, ssl.SSLCertVerificationError) is None


# ---------------------------------------------------------------------------------------------
# HTTP/1.1


@pytest.mark.parametrize(
    "item",
    [
        Drop("accept"),
        Drop("head"),
        Drop("request"),
        Drop("request", executed=True),
        Raw(b"HTTP/1.1 200 OK\r\nContent-", executed=False),
    ],
)
def test_a_connection_that_closes_before_the_response(flavour: Flavour, item: Drop | Raw) -> None:
    with Http1Server([item]) as server:
        exchange = post_one(flavour, server.url)
    assert type(exchange.error) is httpx.RemoteProtocolError
    assert str(exchange.error) == "Server disconnected without sending a response."
    assert list(reasons(exchange.error)) == [exchange.error, core(exchange.error)]
    assert exchange.heads_sent() == [b"POST"]
    assert "http11.receive_response_headers.failed" in exchange.steps
    assert len(server.executed) == item.executed


def test_a_connection_that_is_reset_before_the_response(flavour: Flavour) -> None:
    with Http1Server([Drop("request", hard=True, executed=True)]) as server:
        exchange = post_one(flavour, server.url)
    assert type(exchange.error) is httpx.ReadError
    assert was_reset(exchange.error)
    assert len(server.executed) == 1


def test_httpcore_swallows_a_failed_write_of_the_body(flavour: Flavour) -> None:
    with Http1Server([Drop("head", hard=True)]) as server:
        # In pieces: asyncio takes the piece that meets the RST as sent, and fails at the next one.
        exchange = post_one(flavour, server.url, bytes(5_000_000), chunked=True)
    assert isinstance(exchange.error, (httpx.RemoteProtocolError, httpx.ReadError))
    assert "http11.send_request_body.failed" in exchange.steps
    assert exchange.heads_sent() == [b"POST"]
    assert not server.received


def test_a_connection_that_is_reset_when_accepted(flavour: Flavour) -> None:
    with Http1Server([Drop("accept", hard=True)]) as server:
        exchange = post_one(flavour, server.url)
    # Whether connecting, writing or reading meets the RST is a matter of microseconds.
    assert isinstance(
        exchange.error, (httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError)
    )
    assert not server.received


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (
            Answer(body=b"12345", cut=2, then=Drop()),
            "peer closed connection without sending complete message body "
            "(received 2 bytes, expected 5)",
        ),
        (
            Raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12"),
            "peer closed connection without sending complete message body "
            "(incomplete chunked read)",
        ),
    ],
)
def test_a_response_body_that_is_cut_short(flavour: Flavour, item: Answer | Raw, text: str) -> None:
    with Http1Server([item]) as server:
        exchange = post_one(flavour, server.url)
    assert type(exchange.error) is httpx.RemoteProtocolError
    assert str(exchange.error) == text
    assert type(core(exchange.error).args[0]).__module__.startswith("h11.")
    assert "http11.receive_response_headers.complete" in exchange.steps
    assert "http11.receive_response_body.failed" in exchange.steps


@pytest.mark.parametrize(
    "data",
    [
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_a_malformed_response_has_the_types_of_a_lost_one(flavour: Flavour, data: bytes) -> None:
    with Http1Server([Raw(data)]) as server:
        exchange = post_one(flavour, server.url)
    assert type(exchange.error) is httpx.RemoteProtocolError
    assert type(core(exchange.error).args[0]).__module__.startswith("h11.")
    # Its text is all that tells it from a body cut short.
    assert not str(exchange.error).startswith("peer closed connection")


def test_a_body_that_does_not_decode(flavour: Flavour) -> None:
    headers = [("Content-Encoding", "gzip")]
    with Http1Server([Answer(headers=headers, body=b"not gzip")]) as server:
        exchange = post_one(flavour, server.url)
    assert type(exchange.error) is httpx.DecodingError
    assert len(server.executed) == 1


# ---------------------------------------------------------------------------------------------
# HTTP/2


@pytest.mark.parametrize("at", ["head", "request"])
@pytest.mark.parametrize(
    "code",
    [
        h2.errors.ErrorCodes.REFUSED_STREAM,
        h2.errors.ErrorCodes.CANCEL,
        h2.errors.ErrorCodes.INTERNAL_ERROR,
        0xABCD,
    ],
)
def test_a_reset_stream(flavour: Flavour, code: int, at: Literal["head", "request"]) -> None:
    with Http2Server([Reset(code, at=at)]) as server:
        first, second = post(flavour, server.url, b"12345", b"67", **PRIOR_KNOWLEDGE)
    assert type(first.error) is httpx.RemoteProtocolError
    event = core(first.error).args[0]
    assert isinstance(event, h2.events.StreamReset)
    assert (event.stream_id, event.error_code, event.remote_reset) == (1, code, True)
    assert second.status == 200
    assert server.connections == 1


@pytest.mark.parametrize(
    ("last", "named"), [("own", 1), ("before", 0), (0, 0), (2**31 - 1, 2**31 - 1)]
)
def test_a_connection_that_goes_away_under_its_first_stream(
    flavour: Flavour, last: Literal["own", "before"] | int, named: int
) -> None:
    with Http2Server([GoAway(last)]) as server:
        exchange = post_one(flavour, server.url, **PRIOR_KNOWLEDGE)
    assert type(exchange.error) is httpx.RemoteProtocolError
    event = core(exchange.error).args[0]
    assert isinstance(event, h2.events.ConnectionTerminated)
    assert (event.last_stream_id, event.error_code) == (named, 0)
    assert server.connections == 1


def test_httpcore_sends_again_by_itself_what_a_later_goaway_refused(flavour: Flavour) -> None:
    with Http2Server([Answer(), GoAway("before")]) as server:
        first, second = post(flavour, server.url, b"12345", b"67", **PRIOR_KNOWLEDGE)
    assert (first.status, second.status) == (200, 200)
    assert [request.body for request in server.received] == [b"12345", b"67", b"67"]
    assert [request.body for request in server.executed] == [b"12345", b"67"]
    assert server.connections == 2
    refusals = [info["exception"] for name, info in second.trace if name.endswith("headers.failed")]
    assert [type(refusal) for refusal in refusals] == [httpcore.ConnectionNotAvailable]
    assert second.heads_sent() == [b"POST", b"POST"]


def test_httpcore_iterates_the_body_again_for_that(flavour: Flavour) -> None:
    with Http2Server([Answer(), GoAway("before")]) as server:
        _, second = post(flavour, server.url, b"12345", b"67", chunked=True, **PRIOR_KNOWLEDGE)
    # A body that can be read once alone is what httpx can't send twice.
    assert type(second.error) is httpx.StreamConsumed
    assert [request.body for request in server.executed] == [b"12345"]


@pytest.mark.parametrize("last", ["own", "before"])
def test_a_goaway_that_meets_an_upload_names_only_its_last_stream(
    flavour: Flavour, last: Literal["own", "before"]
) -> None:
    with Http2Server([Answer(), GoAway(last, at="data")], grants_window=False) as server:
        first, second = post(flavour, server.url, b"12345", bytes(200_000), **PRIOR_KNOWLEDGE)
    assert first.status == 200
    assert type(second.error) is httpx.RemoteProtocolError
    event = core(second.error).args[0]
    assert isinstance(event, h2.events.ConnectionTerminated)
    assert event.last_stream_id == (3 if last == "own" else 1)
    (stream,) = (
        info["stream_id"]
        for name, info in second.trace
        if name == "http2.send_request_headers.started"
    )
    assert stream == 3
    assert "http2.send_request_body.failed" in second.steps
    assert len(server.executed) == 1


@pytest.mark.parametrize(
    ("then", "event"),
    [
        (Reset(h2.errors.ErrorCodes.INTERNAL_ERROR), h2.events.StreamReset),
        (GoAway("own"), h2.events.ConnectionTerminated),
        (Drop(), str),
    ],
)
def test_an_http2_response_that_is_cut_short(
    flavour: Flavour, then: Reset | GoAway | Drop, event: type[object]
) -> None:
    with Http2Server([Answer(body=b"12345", cut=2, then=then)]) as server:
        exchange = post_one(flavour, server.url, **PRIOR_KNOWLEDGE)
    assert type(exchange.error) is httpx.RemoteProtocolError
    assert isinstance(core(exchange.error).args[0], event)
    assert "http2.receive_response_body.failed" in exchange.steps
    assert len(server.executed) == 1


def test_an_answer_right_behind_a_goaway_is_lost_as_if_by_a_fault_of_our_own(
    flavour: Flavour,
) -> None:
    with Http2Server([GoAway("own", executed=True, then=Answer(201))]) as server:
        exchange = post_one(flavour, server.url, **PRIOR_KNOWLEDGE)
    # The server ends gracefully, as RFC 9113 section 6.8 says; h2 takes no frame after GOAWAY.
    assert type(exchange.error) is httpx.LocalProtocolError
    assert isinstance(core(exchange.error).args[0], h2.exceptions.ProtocolError)
    assert len(server.executed) == 1


@pytest.mark.parametrize("at", ["accept", "head", "request"])
def test_an_http2_connection_that_closes(
    flavour: Flavour, at: Literal["accept", "head", "request"]
) -> None:
    with Http2Server([Drop(at)]) as server:
        exchange = post_one(flavour, server.url, **PRIOR_KNOWLEDGE)
    assert type(exchange.error) is httpx.RemoteProtocolError
    assert str(exchange.error) == "Server disconnected"
    assert list(reasons(exchange.error)) == [exchange.error, core(exchange.error)]


def test_an_http2_connection_that_is_reset(flavour: Flavour) -> None:
    with Http2Server([Drop("request", hard=True)]) as server:
        exchange = post_one(flavour, server.url, **PRIOR_KNOWLEDGE)
    # Unlike HTTP/1.1: the write that acknowledges the server's settings may meet it first.
    assert isinstance(exchange.error, (httpx.ReadError, httpx.WriteError))
    assert was_reset(exchange.error)


# ---------------------------------------------------------------------------------------------
# Proxies


@pytest.mark.parametrize("status", [403, 407, 502, 503])
def test_a_proxy_that_refuses_the_tunnel(flavour: Flavour, status: int) -> None:
    with Http1Server(tls=server_tls()) as server, HttpProxy([Answer(status)]) as proxy:
        exchange = post_one(flavour, server.url, proxy=proxy.url, verify=client_tls())
    assert type(exchange.error) is httpx.ProxyError
    assert str(exchange.error) == f"{status} Scripted"
    assert core(exchange.error).args == (f"{status} Scripted",)
    assert exchange.heads_sent() == [b"CONNECT"]
    (answer,) = (
        info["return_value"]
        for name, info in exchange.trace
        if name == "http11.receive_response_headers.complete"
    )
    assert answer[1] == status
    assert not server.connections


def test_a_proxy_that_wants_other_credentials(flavour: Flavour) -> None:
    with (
        Http1Server(tls=server_tls()) as secure,
        Http1Server() as plain,
        HttpProxy(credentials=("user", "password")) as proxy,
    ):
        options: dict[str, Any] = {"proxy": httpx.Proxy(proxy.url, auth=("user", "wrong"))}
        tunnelled = post_one(flavour, secure.url, verify=client_tls(), **options)
        passed_on = post_one(flavour, plain.url, **options)
    assert str(tunnelled.error) == "407 Scripted"
    assert passed_on.status == 407
    assert secure.connections + plain.connections == 0


@pytest.mark.parametrize("secure", [False, True])
def test_a_proxy_whose_target_refuses(flavour: Flavour, secure: bool) -> None:
    with refusing_port() as port, HttpProxy() as proxy:
        url = f"{'https' if secure else 'http'}://127.0.0.1:{port}/"
        exchange = post_one(flavour, url, proxy=proxy.url)
    if secure:
        assert str(exchange.error) == "502 Scripted"
    else:
        assert exchange.status == 502
    assert not proxy.executed


def test_a_proxy_that_is_not_there(flavour: Flavour) -> None:
    with refusing_port() as port:
        proxy = f"http://127.0.0.1:{port}"
        exchange = post_one(flavour, "https://127.0.0.1:9/", proxy=proxy)
    assert_not_connected(exchange, errno.ECONNREFUSED)


@pytest.mark.parametrize(
    ("item", "kind"),
    [
        (Drop("accept"), httpx.RemoteProtocolError),
        (Drop("request"), httpx.RemoteProtocolError),
        (Drop("request", hard=True), httpx.ReadError),
        (Raw(b"HTTP/1.1 2"), httpx.RemoteProtocolError),
        (Raw(b"nonsense\r\n\r\n"), httpx.RemoteProtocolError),
    ],
)
def test_a_proxy_that_is_lost_in_connect_shows_only_in_the_trace(
    flavour: Flavour, item: Drop | Raw, kind: type[httpx.TransportError]
) -> None:
    with Http1Server(tls=server_tls()) as server, HttpProxy([item]) as proxy:
        exchange = post_one(flavour, server.url, proxy=proxy.url, verify=client_tls())
    assert type(exchange.error) is kind
    assert exchange.heads_sent() == [b"CONNECT"]
    assert "http11.receive_response_headers.failed" in exchange.steps
    assert not server.connections


def test_a_tunnel_whose_end_drops_the_request(flavour: Flavour) -> None:
    with (
        Http1Server([Drop("request", executed=True)], tls=server_tls()) as server,
        HttpProxy() as proxy,
    ):
        exchange = post_one(flavour, server.url, proxy=proxy.url, verify=client_tls())
    assert type(exchange.error) is httpx.RemoteProtocolError
    assert exchange.heads_sent() == [b"CONNECT", b"POST"]
    assert len(server.executed) == 1


@left_open_by_httpcore
@pytest.mark.parametrize(
    ("code", "text"),
    [
        (1, "General SOCKS server failure"),
        (2, "Connection not allowed by ruleset"),
        (3, "Network unreachable"),
        (4, "Host unreachable"),
        (5, "Connection refused"),
        (6, "TTL expired"),
        (7, "Command not supported"),
        (8, "Address type not supported"),
    ],
)
def test_a_socks_proxy_that_refuses(flavour: Flavour, code: int, text: str) -> None:
    with Http1Server() as server, SocksProxy([SocksReply(code)]) as proxy:
        exchange = post_one(flavour, server.url, proxy=proxy.url)
    assert type(exchange.error) is httpx.ProxyError
    assert str(exchange.error) == f"Proxy Server could not connect: {text}."
    assert exchange.steps[-1] == "socks.setup_socks5_connection.failed"
    assert not server.connections


@left_open_by_httpcore
@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            None,
            "Requested NO AUTHENTICATION REQUIRED from proxy server, "
            "but got NO ACCEPTABLE METHODS.",
        ),
        (("user", "wrong"), "Invalid username/password"),
    ],
)
def test_a_socks_proxy_that_wants_other_credentials(
    flavour: Flavour, given: tuple[str, str] | None, text: str
) -> None:
    with SocksProxy(credentials=("user", "password")) as proxy:
        exchange = post_one(
            flavour, "http://127.0.0.1:9/", proxy=httpx.Proxy(proxy.url, auth=given)
        )
    assert type(exchange.error) is httpx.ProxyError
    assert str(exchange.error) == text


@left_open_by_httpcore
@pytest.mark.parametrize("at", ["accept", "request"])
def test_a_socks_proxy_that_closes_raises_what_httpx_does_not_map(
    flavour: Flavour, at: Literal["accept", "request"]
) -> None:
    with SocksProxy([Drop(at)]) as proxy:
        exchange = post_one(flavour, "http://127.0.0.1:9/", proxy=proxy.url)
    assert not isinstance(exchange.error, (httpx.HTTPError, httpcore.NetworkError))
    assert type(exchange.error).__module__ == "socksio.exceptions"
    assert exchange.steps[-1] == "socks.setup_socks5_connection.failed"


@left_open_by_httpcore
def test_a_socks_proxy_that_resets(flavour: Flavour) -> None:
    with SocksProxy([Drop("request", hard=True)]) as proxy:
        exchange = post_one(flavour, "http://127.0.0.1:9/", proxy=proxy.url)
    assert type(exchange.error) is httpx.ReadError
    assert exchange.steps[-1] == "socks.setup_socks5_connection.failed"


def test_a_socks_proxy_that_is_not_there(flavour: Flavour) -> None:
    with refusing_port() as port:
        exchange = post_one(flavour, "http://127.0.0.1:9/", proxy=f"socks5://127.0.0.1:{port}")
    assert type(exchange.error) is httpx.ConnectError
    assert exchange.steps == ["socks.connect_tcp.started", "socks.connect_tcp.failed"]
