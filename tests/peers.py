"""Peers that misbehave on purpose: servers and proxies on loopback sockets, and the lack of them.

Each peer is a context manager that owns one port of 127.0.0.1, one thread that accepts and one for
each connection. Leaving it ends and joins them all, so what a peer has counted is final from then
on. They share no code with what httpx sends with: HTTP/1.1 is read by hand, HTTP/2 by the h2
package with GOAWAY frames written apart from its state.

A peer takes its script from left to right, one item for each request, and answers 200 when the
script has ended:

    with Http1Server([Answer(503), Drop("request", executed=True)]) as server:
        client.get(server.url)      # 503
        client.post(server.url)     # the server did it, and then closed without a word
    assert len(server.executed) == 1
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import datetime
import functools
import ipaddress
import multiprocessing
import os
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Generic, Literal, ParamSpec, TypeAlias, TypeVar

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hyperframe.frame import GoAwayFrame

if TYPE_CHECKING:
    from typing_extensions import Self

P = ParamSpec("P")
R = TypeVar("R")
Item = TypeVar("Item")
Socket = TypeVar("Socket", bound=socket.socket)

# No peer waits for longer, whatever a test does to it.
PATIENCE = 10.0

# ---------------------------------------------------------------------------------------------
# What a script is made of


@dataclass(frozen=True)
class Answer:
    """An ordinary response. With `then`, only the first `cut` bytes of its body before that."""

    status: int = 200
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""
    executed: bool = True
    cut: int = 0
    then: Drop | Reset | GoAway | None = None


@dataclass(frozen=True)
class Raw:
    """These bytes in place of a response, then the end of the connection. HTTP/1.1 alone."""

    data: bytes
    executed: bool = True


@dataclass(frozen=True)
class Drop:
    """The connection ends: before anything is read, or once the head, or all of a request, is.

    hard: by RST, as a crashed or overloaded host does; else by FIN, as a closed program does.
    """

    at: Literal["accept", "head", "request"] = "request"
    hard: bool = False
    executed: bool = False


@dataclass(frozen=True)
class Reset:
    """RST_STREAM with this error code (RFC 9113 section 7)."""

    code: int
    at: Literal["head", "request"] = "request"
    executed: bool = False


@dataclass(frozen=True)
class GoAway:
    """GOAWAY. last: the stream id it names, or the request's own, or the one before that (0).

    With `then`, the answer comes right behind it.
    """

    last: int | Literal["own", "before"] = "own"
    code: int = 0
    at: Literal["head", "data", "request"] = "request"
    executed: bool = False
    then: Answer | None = None


@dataclass(frozen=True)
class Tunnel:
    """A proxy does its work."""


@dataclass(frozen=True)
class SocksReply:
    """A SOCKS server declines the connection with this code (RFC 1928 section 6)."""

    code: int


Http1Item: TypeAlias = Answer | Raw | Drop
Http2Item: TypeAlias = Answer | Reset | GoAway | Drop
ProxyItem: TypeAlias = Tunnel | Answer | Raw | Drop
SocksItem: TypeAlias = Tunnel | SocksReply | Drop


@dataclass
class Received:
    """One request as a peer read it."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes = b""

    def header(self, name: str) -> str | None:
        """The first value of a header."""
        return next((v for k, v in self.headers if k.lower() == name.lower()), None)


# ---------------------------------------------------------------------------------------------
# The base of all peers


@dataclass
class _Counts:
    connections: int = 0
    failed_handshakes: int = 0
    problems: list[BaseException] = field(default_factory=list)


class Peer:
    """A loopback listener with one thread for each connection."""

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._counts = _Counts()
        self._lock = threading.Lock()
        self._stopping = False
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._awake, self._alarm = socket.socketpair()
        self.port: int = self._listener.getsockname()[1]

    @property
    def connections(self) -> int:
        """How many TCP connections have been accepted."""
        return self._counts.connections

    @property
    def failed_handshakes(self) -> int:
        """How many of them never became TLS."""
        return self._counts.failed_handshakes

    def serve(self, connection: socket.socket) -> None:
        """Serve one connection, to its end."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._alarm.send(b".")
        self._threads[0].join(PATIENCE)
        with self._lock:
            self._stopping = True
            for connection in self._open:
                self._interrupt(connection)
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), f"{type(self).__name__} did not stop"
        for one in (self._listener, self._awake, self._alarm):
            one.close()
        if error is None and self._counts.problems:
            raise self._counts.problems[0]

    def _start(self, target: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        thread = threading.Thread(target=target, args=args, kwargs=kwargs, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            ready, _, _ = select.select([self._listener, self._awake], [], [])
            if self._awake in ready:
                return
            connection, _ = self._listener.accept()
            connection.settimeout(PATIENCE)
            self._counts.connections += 1
            self._start(self._run, connection)

    def _run(self, connection: socket.socket) -> None:
        with self._kept(connection):
            try:
                if self.drops_at_accept(connection):
                    return
                if self._tls is None:
                    return self.serve(connection)
                with self._kept(self._secured(self._tls, connection)) as secured:
                    self._shake_hands(secured)
                    self.serve(secured)
            except (OSError, EOFError):
                pass  # The client went away: what a client in these tests is free to do.
            except BaseException as problem:
                self._counts.problems.append(problem)

    def drops_at_accept(self, connection: socket.socket) -> bool:
        """Whether the script had this connection end at once, before any handshake."""
        return False

    @staticmethod
    def _secured(tls: ssl.SSLContext, connection: socket.socket) -> ssl.SSLSocket:
        return tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)

    def _shake_hands(self, connection: ssl.SSLSocket) -> None:
        try:
            connection.do_handshake()
        except OSError:
            self._counts.failed_handshakes += 1
            raise

    @contextlib.contextmanager
    def _kept(self, connection: Socket) -> Iterator[Socket]:
        """Known to `__exit__` while it is used, closed at the end."""
        with self._lock:
            self._open.add(connection)
            if self._stopping:
                self._interrupt(connection)
        try:
            yield connection
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()

    @staticmethod
    def _interrupt(connection: socket.socket) -> None:
        # What the other side has closed already can't be shut down again. SSLSocket's own shutdown
        # would take its state away from the thread that is using it.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(connection, socket.SHUT_RDWR)


def end(connection: socket.socket, *, hard: bool) -> None:
    """Close a connection so that the other side sees RST, or FIN and nothing else."""
    if hard:
        # Linger for no time at all: the kernel forgets the connection and says so (RST).
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
        return
    with contextlib.suppress(OSError):
        # Closing with bytes unread would send RST after all: read until the other side closes too.
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass


class _Script(Peer, Generic[Item]):
    """A peer that follows a script, and keeps a ledger of what it did."""

    def __init__(
        self, items: Iterable[Item], default: Item, *, tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(tls=tls)
        self._items = list(items)
        self._default = default
        self.received: list[Received] = []
        self.executed: list[Received] = []

    @property
    def url(self) -> str:
        """The address to send to."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}/"

    def drops_at_accept(self, connection: socket.socket) -> bool:
        with self._lock:
            item = self._items[0] if self._items else None
            if not (isinstance(item, Drop) and item.at == "accept"):
                return False
            del self._items[0]
        end(connection, hard=item.hard)
        return True

    def next_item(self) -> Item:
        """The script's next item, or an ordinary one once it has ended."""
        with self._lock:
            return self._items.pop(0) if self._items else self._default

    def execute(self, request: Received) -> None:
        """What the request asks for is done now, whatever its sender will hear of it."""
        with self._lock:
            self.executed.append(request)


# ---------------------------------------------------------------------------------------------
# HTTP/1.1


def _line(stream: BinaryIO) -> str:
    line = stream.readline()
    if not line.endswith(b"\r\n"):
        raise EOFError
    return line[:-2].decode("latin-1")


def _exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


def read_head(stream: BinaryIO) -> Received:
    """The request line and headers that come next."""
    method, target, _ = _line(stream).split(" ")
    headers: list[tuple[str, str]] = []
    while line := _line(stream):
        name, _, value = line.partition(":")
        headers.append((name, value.strip()))
    return Received(method, target, headers)


def read_body(stream: BinaryIO, request: Received) -> None:
    """The body that belongs to a head."""
    if request.header("transfer-encoding") == "chunked":
        while size := int(_line(stream), 16):
            request.body += _exactly(stream, size)
            _line(stream)
        _line(stream)
    else:
        request.body = _exactly(stream, int(request.header("content-length") or 0))


def render(answer: Answer) -> bytes:
    """An HTTP/1.1 response with its length, as far as it is to be sent."""
    named = {name.lower() for name, _ in answer.headers}
    headers = list(answer.headers)
    if "content-length" not in named:
        headers.append(("Content-Length", str(len(answer.body))))
    head = f"HTTP/1.1 {answer.status} Scripted\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers)
    body = answer.body if answer.then is None else answer.body[: answer.cut]
    return head.encode("latin-1") + b"\r\n" + body


class Http1Server(_Script[Http1Item]):
    """An HTTP/1.1 server that keeps its connections."""

    def __init__(
        self, items: Iterable[Http1Item] = (), *, tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(items, Answer(), tls=tls)

    def serve(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as stream:
            while True:
                request = read_head(stream)
                item = self.next_item()
                if isinstance(item, Drop) and item.at == "head":
                    return end(connection, hard=item.hard)
                read_body(stream, request)
                self.received.append(request)
                if item.executed:
                    self.execute(request)
                if isinstance(item, Drop):
                    return end(connection, hard=item.hard)
                if isinstance(item, Raw):
                    connection.sendall(item.data)
                    return end(connection, hard=False)
                connection.sendall(render(item))
                if isinstance(item.then, Drop):
                    return end(connection, hard=item.then.hard)


# ---------------------------------------------------------------------------------------------
# HTTP/2


class Http2Server(_Script[Http2Item]):
    """An HTTP/2 server: by ALPN over TLS, else by prior knowledge on `http://`.

    grants_window: False leaves a client waiting after the first 65,535 bytes that it sends.
    """

    def __init__(
        self,
        items: Iterable[Http2Item] = (),
        *,
        tls: ssl.SSLContext | None = None,
        grants_window: bool = True,
    ) -> None:
        super().__init__(items, Answer(), tls=tls)
        if tls is not None:
            tls.set_alpn_protocols(["h2"])
        self.grants_window = grants_window

    def serve(self, connection: socket.socket) -> None:
        _Http2Connection(self, connection).run()


class _Http2Connection:
    """One connection of an `Http2Server`, and the streams on it."""

    def __init__(self, server: Http2Server, connection: socket.socket) -> None:
        self._server = server
        self._socket = connection
        self._streams: dict[int, tuple[Received, Http2Item]] = {}
        self._h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        )

    def run(self) -> None:
        self._h2.initiate_connection()
        self._flush()
        while data := self._socket.recv(65536):
            for event in self._h2.receive_data(data):
                if self._ends_with(event):
                    return
            self._flush()

    def _flush(self) -> None:
        self._socket.sendall(self._h2.data_to_send())

    def _ends_with(self, event: h2.events.Event) -> bool:
        """Handle one event; True when the connection has ended by it."""
        if isinstance(event, h2.events.RequestReceived):
            headers = [(str(name), str(value)) for name, value in event.headers]
            fields = dict(headers)
            request = Received(fields[":method"], fields[":path"], headers)
            self._streams[event.stream_id] = (request, self._server.next_item())
            return self._reaches("head", event.stream_id)
        if isinstance(event, h2.events.DataReceived):
            if event.stream_id not in self._streams:
                return False  # A stream that we have reset: what was under way still comes in.
            self._streams[event.stream_id][0].body += event.data
            if self._reaches("data", event.stream_id):
                return True
            if self._server.grants_window:
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        if isinstance(event, h2.events.StreamEnded) and event.stream_id in self._streams:
            self._server.received.append(self._streams[event.stream_id][0])
            return self._reaches("request", event.stream_id)
        return False

    def _reaches(self, stage: str, stream: int) -> bool:
        """A stream has come so far: do what its script says for that. True: that was the end."""
        request, item = self._streams[stream]
        if stage != (item.at if not isinstance(item, Answer) else "request"):
            return False
        if item.executed:
            self._server.execute(request)
        if isinstance(item, Answer):
            return self._answers(stream, item)
        return self._fails(stream, item)

    def _answers(self, stream: int, answer: Answer) -> bool:
        self._render(stream, answer)
        self._flush()
        return answer.then is not None and self._fails(stream, answer.then)

    def _render(self, stream: int, answer: Answer) -> None:
        headers = [(":status", str(answer.status)), *((k.lower(), v) for k, v in answer.headers)]
        self._h2.send_headers(stream, headers)
        body = answer.body if answer.then is None else answer.body[: answer.cut]
        size = self._h2.max_outbound_frame_size
        for start in range(0, len(body), size):
            self._h2.send_data(stream, body[start : start + size])
        if answer.then is None:
            self._h2.end_stream(stream)

    def _fails(self, stream: int, item: Reset | GoAway | Drop) -> bool:
        if isinstance(item, Drop):
            end(self._socket, hard=item.hard)
            return True
        if isinstance(item, Reset):
            self._h2.reset_stream(stream, item.code)
            del self._streams[stream]
            return False
        last = {"own": stream, "before": max(0, stream - 2)}.get(str(item.last), item.last)
        # Past h2's own state, which would end the connection for every other stream too.
        frame = GoAwayFrame(0, last_stream_id=int(last), error_code=item.code)
        data = self._h2.data_to_send() + frame.serialize()
        if item.then is not None:
            self._render(stream, item.then)
            data += self._h2.data_to_send()
        self._socket.sendall(data)
        return False


# ---------------------------------------------------------------------------------------------
# Proxies


def relay(one: socket.socket, other: socket.socket) -> None:
    """Carry bytes both ways until both sides have ended."""
    into = {one: other, other: one}
    while into:
        ready, _, _ = select.select(list(into), [], [], PATIENCE)
        if not ready:
            return
        for source in ready:
            data = source.recv(65536)
            if data:
                into[source].sendall(data)
            else:
                with contextlib.suppress(OSError):
                    into[source].shutdown(socket.SHUT_WR)
                del into[source]


class HttpProxy(_Script[ProxyItem]):
    """A forward proxy: CONNECT for https, whole requests for http.

    credentials: who may use it; anyone else is answered 407.
    """

    def __init__(
        self, items: Iterable[ProxyItem] = (), *, credentials: tuple[str, str] | None = None
    ) -> None:
        super().__init__(items, Tunnel())
        self._credentials = credentials

    def serve(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as stream:
            while True:
                request = read_head(stream)
                read_body(stream, request)
                self.received.append(request)
                item = self.next_item() if self._admits(request) else Answer(407)
                if isinstance(item, Drop):
                    return end(connection, hard=item.hard)
                if isinstance(item, Raw):
                    connection.sendall(item.data)
                    return end(connection, hard=False)
                if isinstance(item, Tunnel):
                    return self._passes_on(connection, request)
                connection.sendall(render(item))

    def _admits(self, request: Received) -> bool:
        if self._credentials is None:
            return True
        token = base64.b64encode(":".join(self._credentials).encode()).decode()
        return request.header("proxy-authorization") == f"Basic {token}"

    def _passes_on(self, connection: socket.socket, request: Received) -> None:
        tunnel = request.method == "CONNECT"
        authority, slash, path = request.target.removeprefix("http://").partition("/")
        host, _, port = authority.partition(":")
        try:
            target = socket.create_connection((host, int(port or 80)), PATIENCE)
        except OSError:
            connection.sendall(render(Answer(502)))
            return end(connection, hard=False)
        with self._kept(target):
            self.execute(request)
            if tunnel:
                connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                head = f"{request.method} {slash or '/'}{path} HTTP/1.1\r\n"
                kept = [(k, v) for k, v in request.headers if k.lower() != "connection"]
                lines = "".join(f"{k}: {v}\r\n" for k, v in [*kept, ("Connection", "close")])
                target.sendall((head + lines + "\r\n").encode("latin-1") + request.body)
            relay(connection, target)


class SocksProxy(_Script[SocksItem]):
    """A SOCKS5 server (RFC 1928) that can CONNECT and nothing else."""

    def __init__(
        self, items: Iterable[SocksItem] = (), *, credentials: tuple[str, str] | None = None
    ) -> None:
        super().__init__(items, Tunnel())
        self._credentials = credentials

    @property
    def url(self) -> str:
        return f"socks5://127.0.0.1:{self.port}"

    def serve(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as stream:
            offered = self._counted(stream, skip=1)
            method = 2 if self._credentials else 0
            if method not in offered:
                connection.sendall(b"\x05\xff")
                return end(connection, hard=False)
            connection.sendall(bytes((5, method)))
            if self._credentials:
                name, password = self._counted(stream, skip=1), self._counted(stream)
                admitted = (name.decode(), password.decode()) == self._credentials
                connection.sendall(b"\x01\x00" if admitted else b"\x01\x01")
                if not admitted:
                    return end(connection, hard=False)
            kind = _exactly(stream, 4)[3]
            if kind == 3:
                host = self._counted(stream).decode()
            else:
                host = str(ipaddress.ip_address(_exactly(stream, 4 if kind == 1 else 16)))
            (port,) = struct.unpack("!H", _exactly(stream, 2))
            self.received.append(Received("CONNECT", f"{host}:{port}", []))
            item = self.next_item()
            if isinstance(item, Drop):
                return end(connection, hard=item.hard)
            code = item.code if isinstance(item, SocksReply) else 0
            reply = bytes((5, code, 0, 1)) + bytes(6)
            if code:
                connection.sendall(reply)
                return end(connection, hard=False)
            target = socket.create_connection((host, port), PATIENCE)
            with self._kept(target):
                self.execute(self.received[-1])
                connection.sendall(reply)
                relay(connection, target)

    @staticmethod
    def _counted(stream: BinaryIO, *, skip: int = 0) -> bytes:
        """Some bytes, after one byte that says how many."""
        return _exactly(stream, _exactly(stream, skip + 1)[skip])


# ---------------------------------------------------------------------------------------------
# Certificates


Trouble: TypeAlias = Literal["self-signed", "unknown authority", "expired", "another name"]


@functools.cache
def _authority(name: str) -> trustme.CA:
    return trustme.CA(organization_name=name)


def server_tls(trouble: Trouble | None = None) -> ssl.SSLContext:
    """A server's TLS, with a certificate for 127.0.0.1 that `client_tls` accepts, or not."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if trouble == "self-signed":
        _self_signed().configure_cert(context)
        return context
    authority = _authority("Strangers" if trouble == "unknown authority" else "Tests")
    name = "elsewhere.test" if trouble == "another name" else "127.0.0.1"
    past = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
    until = past if trouble == "expired" else None
    authority.issue_cert(name, not_after=until).configure_cert(context)
    return context


def client_tls() -> ssl.SSLContext:
    """A client's TLS that trusts the tests' own authority and no other."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _authority("Tests").configure_trust(context)
    return context


@functools.cache
def _self_signed() -> trustme.LeafCert:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    address = ipaddress.ip_address("127.0.0.1")
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(address)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return trustme.LeafCert(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
        certificate.public_bytes(serialization.Encoding.PEM),
        [],
    )


# ---------------------------------------------------------------------------------------------
# Nobody there


@contextlib.contextmanager
def refusing_port() -> Iterator[int]:
    """A port that refuses: it is bound, so that no other program gets it, and nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@contextlib.contextmanager
def silent_port() -> Iterator[int]:
    """A port that leaves connections unanswered: its queue is full, and Linux drops what comes."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


class NamespacesRefusedError(Exception):
    """The machine lets this user make no network of its own."""


_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000


def without_network(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function where even 127.0.0.1 is unreachable: in a new network, with nothing up.

    That is a new process: threads of this one, which trio for one keeps for look-ups, would still
    reach its network. So the function, its arguments and its result have to survive pickle.
    """
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    child = spawn.Process(
        target=_child, args=(theirs, functools.partial(function, *args, **kwargs)), daemon=True
    )
    child.start()
    theirs.close()
    with ours:
        result, problem = ours.recv()
    child.join()
    child.close()
    if problem is not None:
        raise problem
    returned: R = result
    return returned


def _child(pipe: Pipe, function: Callable[[], object]) -> None:
    try:
        _leave_network()
        pipe.send((function(), None))
    except BaseException as problem:
        pipe.send((None, problem))


def _leave_network() -> None:
    # os.unshare is there from Python 3.12 on.
    unshare = getattr(ctypes.CDLL(None, use_errno=True), "unshare", None)
    if unshare is None:
        raise NamespacesRefusedError("only Linux has them")
    # Root may make a network at once; anyone else may in a user namespace of their own.
    if unshare(_CLONE_NEWNET) != 0 and unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
        raise NamespacesRefusedError(os.strerror(ctypes.get_errno()))
