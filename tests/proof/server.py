"""The server that is attacked: one thread, raw sockets, a ledger of what it has executed.

The rule: it does exactly what its fault says, at exactly that byte or frame, to the first
connection that it concerns, and is healthy from then on. It honours idempotency keys. It shares no
code with what the clients send with: HTTP/1.1 is read by hand, and HTTP/2 by the h2 package, with
the frames that break something written past it.
"""

from __future__ import annotations

import selectors
import socket
import struct
import threading
from collections import Counter
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

import h2.config
import h2.connection
import h2.events
from hyperframe.frame import GoAwayFrame, RstStreamFrame

from . import cases
from .cases import ANSWER, AT_ONCE, AnswerFraming, Commit, Cut, Fault, GoAway, Point, Reset

if TYPE_CHECKING:
    from typing_extensions import Self

PATIENCE = 10.0
"""Seconds after which a run that hangs is a failure."""

_HIGHEST_STREAM = 2**31 - 1


class Server:
    """A loopback server for one run at a time."""

    def __init__(self, protocol: cases.Protocol) -> None:
        self.executed: Counter[str] = Counter()
        """How often each path was executed."""
        self.bodies: dict[str, list[bytes]] = {}
        """The body of every request that came in whole, by path."""
        self.sizes = (0, 0)
        """How many bytes the last connection to end read and wrote since it was armed."""
        self.commit: Commit = "whole"
        self.answer: AnswerFraming = "length"
        self._protocol = protocol
        self._fault: Fault | None = None
        self._keys: set[str] = set()
        self._connections: set[Connection] = set()
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._listener.setblocking(False)
        self._awake, self._alarm = socket.socketpair()
        self._awake.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._awake, selectors.EVENT_READ, self._wake)
        self._stopping = False
        self._settling = False
        self._settled = threading.Event()
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.url: str = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopping = True
        self._alarm.send(b".")
        self._thread.join(PATIENCE)
        for connection in list(self._connections):
            connection.close()
        self._selector.close()
        for one in (self._listener, self._awake, self._alarm):
            one.close()

    # What a driver calls --------------------------------------------------------------------------

    def arm(
        self,
        commit: Commit,
        fault: Fault | None,
        *,
        reused: bool,
        answer: AnswerFraming = "length",
    ) -> None:
        """Set what happens to the next request: on the open connection, or on the next one."""
        with self._lock:
            self.commit = commit
            self.answer = answer
            self._fault = None
            self._keys.clear()
            if reused:
                (connection,) = self._connections
                connection.readable()  # what is left of the request before is not to be counted
                connection.attack(fault)
            else:
                self._fault = fault

    def settle(self) -> threading.Event:
        """Return an event that is set once all connections have ended: the ledger is then final.

        The client has to close its own first.
        """
        self._settled.clear()
        self._settling = True
        self._alarm.send(b".")
        return self._settled

    def assert_well(self) -> None:
        """Raise what went wrong in the server itself."""
        if self._problem is not None:
            raise self._problem

    # What its thread does -------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping:
                ready = self._selector.select()
                with self._lock:
                    for key, _ in ready:
                        key.data()
                    self._look_settled()
        except BaseException as problem:
            self._problem = problem
            self._settled.set()
            raise

    def _wake(self) -> None:
        self._awake.recv(4096)

    def _look_settled(self) -> None:
        if self._settling:
            self._accept()  # what came in meanwhile
            if not self._connections:
                self._settling = False
                self._settled.set()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(self, sock)
            self._connections.add(connection)
            self._selector.register(sock, selectors.EVENT_READ, connection.readable)
            fault, self._fault = self._fault, None
            connection.attack(fault)

    # What its connections call --------------------------------------------------------------------

    def speaker(self, connection: Connection) -> Speaker:
        """Return what reads and answers on a connection."""
        return Http1(self, connection) if self._protocol == "http/1.1" else Http2(self, connection)

    def execute(self, path: str, key: str | None) -> None:
        """Do what a request asks for, unless its key is known."""
        if key is not None:
            if key in self._keys:
                return
            self._keys.add(key)
        self.executed[path] += 1

    def has_read(self, path: str, body: bytes) -> None:
        """Note a request that came in whole."""
        self.bodies.setdefault(path, []).append(body)

    def forget(self, connection: Connection, sock: socket.socket, sizes: tuple[int, int]) -> None:
        """Look at a connection no more."""
        self.sizes = sizes
        self._selector.unregister(sock)
        self._connections.discard(connection)


class Speaker(Protocol):
    """One side of a protocol, on one connection."""

    def open(self) -> None:
        """Say what a server says before it is asked."""

    def feed(self, data: bytes) -> None:
        """Take what has come in, and answer."""

    def attack(self, fault: Reset | GoAway) -> None:
        """Do this to the next request."""


class Connection:
    """One connection, cut where its fault says."""

    def __init__(self, server: Server, sock: socket.socket) -> None:
        self._server = server
        self._sock = sock
        self._fault: Cut | None = None
        self._held: list[bytes] | None = None
        self._read = 0
        self._written = 0
        self._deaf = False
        self.closed = False
        self._speaker = server.speaker(self)
        self._opened = False

    def attack(self, fault: Fault | None) -> None:
        """Break the next request; count from here."""
        self._fault = None
        self._read = self._written = 0
        if isinstance(fault, Cut):
            self._fault = fault
            if fault.late:
                self._held = []
        if not self._opened:
            self._opened = True
            if not self._cut_if(fault, at=AT_ONCE):
                self._speaker.open()
        else:
            self._cut_if(fault, at=AT_ONCE)
        if isinstance(fault, (Reset, GoAway)) and not self.closed:
            self._speaker.attack(fault)

    def readable(self) -> None:
        """Take what has come in, up to the cut."""
        if self.closed:
            return
        if self._deaf:
            self._receive(65536)
            return
        fault = self._fault
        if fault is not None and fault.side == "request":
            if fault.at == 0:
                self.cut(fault.by)
                return
            data = self._receive(fault.at - self._read)
        else:
            data = self._receive(65536)
        if data:
            self._read += len(data)
            self._speaker.feed(data)
            self._cut_if(self._fault, at=self._read)

    def send(self, data: bytes) -> None:
        """Write, up to the cut."""
        if self.closed or self._deaf:
            return
        if self._held is not None:
            self._held.append(data)
            return
        fault = self._fault
        if fault is None or fault.side == "request":
            self._write(data)
            return
        self._write(data[: fault.at - self._written])
        if self._written == fault.at:
            self.cut(fault.by)

    def release(self) -> None:
        """Write what was held back."""
        if self._held is not None:
            held, self._held = self._held, None
            self.send(b"".join(held))

    def cut(self, by: str) -> None:
        """End the connection, for the other side to see or not."""
        if self.closed:
            return
        if by == "rst":
            self.close()
            return
        if by == "fin":
            try:
                self._sock.shutdown(socket.SHUT_WR)
            except OSError:
                self.close()
        # To close with bytes unread would send RST after all: read on until the other side closes.
        self._deaf = True

    def close(self) -> None:
        """Close at once, by RST: the other side keeps no port in TIME_WAIT, of which thousands of
        runs would use up all that there are.
        """
        if not self.closed:
            self.closed = True
            self._server.forget(self, self._sock, (self._read, self._written))
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._sock.close()

    def _cut_if(self, fault: Fault | None, *, at: int) -> bool:
        if isinstance(fault, Cut) and fault.side == "request" and fault.at == at:
            self.cut(fault.by)
            return True
        return False

    def _receive(self, size: int) -> bytes:
        try:
            data = self._sock.recv(size)
        except BlockingIOError:
            return b""
        except OSError:
            data = b""
        if not data:
            self.close()
        return data

    def _write(self, data: bytes) -> None:
        self._written += len(data)
        try:
            while data:
                data = data[self._sock.send(data) :]
        except BlockingIOError:
            raise
        except OSError:
            self.close()  # the client has gone


# HTTP/1.1 -----------------------------------------------------------------------------------------


class Http1:
    """Reads requests by hand."""

    def __init__(self, server: Server, connection: Connection) -> None:
        self._server = server
        self._connection = connection
        self._buffer = b""
        self._head: tuple[str, dict[str, str]] | None = None

    def open(self) -> None:
        pass

    def attack(self, fault: Reset | GoAway) -> None:
        raise AssertionError("HTTP/1.1 has no frames")

    def feed(self, data: bytes) -> None:
        self._buffer += data
        if self._head is None:
            self._read_head()
        body = self._whole_body()
        if self._head is not None and body is not None:
            path, headers = self._head
            self._head = None
            self._server.has_read(path, body)
            if self._server.commit == "whole":
                self._server.execute(path, headers.get("idempotency-key"))
            self._connection.release()
            self._connection.send(self._answer())

    def _answer(self) -> bytes:
        if self._server.answer == "length":
            body = b"".join(ANSWER)
            return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in (*ANSWER, b""))
        return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%b" % chunks

    def _read_head(self) -> None:
        head, end, rest = self._buffer.partition(b"\r\n\r\n")
        if not end:
            return
        self._buffer = rest
        start, *lines = head.decode("latin-1").split("\r\n")
        _, path, _ = start.split(" ")
        fields = (line.split(": ", 1) for line in lines)
        headers = {name.lower(): value for name, value in fields}
        self._head = path, headers
        if self._server.commit == "head":
            self._server.execute(path, headers.get("idempotency-key"))

    def _whole_body(self) -> bytes | None:
        if self._head is None:
            return None
        _, headers = self._head
        if headers.get("transfer-encoding") == "chunked":
            return self._whole_chunks()
        length = int(headers.get("content-length", "0"))
        if len(self._buffer) < length:
            return None
        body, self._buffer = self._buffer[:length], self._buffer[length:]
        return body

    def _whole_chunks(self) -> bytes | None:
        body, rest = b"", self._buffer
        while True:
            size, line_end, rest = rest.partition(b"\r\n")
            if not line_end:
                return None
            length = int(size, 16)
            if len(rest) < length + 2:
                return None
            body, rest = body + rest[:length], rest[length + 2 :]
            if length == 0:
                self._buffer = rest
                return body


# HTTP/2 -------------------------------------------------------------------------------------------


class Http2:
    """Reads requests with h2; writes RST_STREAM and GOAWAY past it, which would stop h2 itself."""

    def __init__(self, server: Server, connection: Connection) -> None:
        self._server = server
        self._connection = connection
        self._h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        )
        self._heads: dict[int, dict[str, str]] = {}
        self._bodies: dict[int, bytes] = {}
        self._fault: Reset | GoAway | None = None
        self._last_seen = 0

    def open(self) -> None:
        self._h2.initiate_connection()
        self._flush()

    def attack(self, fault: Reset | GoAway) -> None:
        self._fault = fault
        self._reaches("open", self._next_stream)

    @property
    def _next_stream(self) -> int:
        return self._last_seen + 2 if self._last_seen else 1

    def feed(self, data: bytes) -> None:
        for event in self._h2.receive_data(data):
            if self._connection.closed:
                return
            if isinstance(event, h2.events.RequestReceived):
                self._begins(event)
            elif isinstance(event, h2.events.DataReceived):
                if event.stream_id in self._heads:
                    self._bodies[event.stream_id] += event.data
                    self._reaches("data", event.stream_id)
                if event.stream_id in self._heads:
                    size = event.flow_controlled_length
                    self._h2.acknowledge_received_data(size, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded) and event.stream_id in self._heads:
                self._ends(event.stream_id)
        self._flush()

    def _begins(self, event: h2.events.RequestReceived) -> None:
        stream = event.stream_id
        if stream <= self._last_seen:
            return
        refused = self._last_seen == _HIGHEST_STREAM
        if refused:
            return
        self._last_seen = stream
        self._heads[stream] = {str(name): str(value) for name, value in event.headers}
        self._bodies[stream] = b""
        self._reaches("head", stream)
        if self._server.commit == "head":
            self._commits(stream)

    def _ends(self, stream: int) -> None:
        self._server.has_read(self._heads[stream][":path"], self._bodies.pop(stream))
        self._reaches("whole", stream)
        if self._server.commit == "whole":
            self._commits(stream)
        if stream not in self._heads:
            return
        self._connection.release()
        head = [(":status", "200")]
        if self._server.answer == "length":
            head.append(("content-length", str(len(b"".join(ANSWER)))))
        self._h2.send_headers(stream, head)
        self._flush()
        self._reaches("answering", stream)
        if stream in self._heads:
            for chunk in ANSWER:
                self._h2.send_data(stream, chunk)
                self._flush()
            self._h2.end_stream(stream)
            self._flush()
            self._reaches("answered", stream)
            self._heads.pop(stream, None)

    def _commits(self, stream: int) -> None:
        if stream in self._heads:
            head = self._heads[stream]
            self._server.execute(head[":path"], head.get("idempotency-key"))
            self._reaches("committed", stream)

    def _reaches(self, point: Point, stream: int) -> None:
        fault = self._fault
        if fault is None or fault.point != point:
            return
        self._fault = None
        self._flush()
        if isinstance(fault, Reset):
            self._heads.pop(stream, None)
            self._connection.send(RstStreamFrame(stream, error_code=fault.code).serialize())
            return
        lasts = {"zero": 0, "before": max(stream - 2, 0), "own": stream, "max": _HIGHEST_STREAM}
        last = lasts[fault.last]
        names = [_HIGHEST_STREAM, last] if fault.graceful else [last]
        frames = [GoAwayFrame(0, last_stream_id=name, error_code=0).serialize() for name in names]
        self._connection.send(b"".join(frames))
        if last < stream:
            self._heads.pop(stream, None)
            self._last_seen = _HIGHEST_STREAM  # nothing that begins after this is taken
        if fault.then != "on":
            self._heads.pop(stream, None)
            self._connection.cut(fault.then)

    def _flush(self) -> None:
        data = self._h2.data_to_send()
        if data:
            self._connection.send(data)
