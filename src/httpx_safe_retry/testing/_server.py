"""An HTTP/1.1 server on a loopback socket whose connections break on purpose.

The rule: faults are real ones. A FIN, a RST or silence reaches the client through its own kernel,
after an exact number of bytes: what it makes of it here is what it makes of it in production.
"""

from __future__ import annotations

import socket
import ssl
import struct
import sys
import threading
from contextlib import suppress

import h11
import httpx

from ._service import (
    CommitPoint,
    Fault,
    Handler,
    Operation,
    ServerRequest,
    ServerResponse,
    ServerStep,
    Service,
)

_NO_FAULT = Fault(response_bytes=sys.maxsize)


def _ok(request: ServerRequest) -> ServerResponse:
    return ServerResponse(body=b"ok")


class LoopbackServer:
    """A server on 127.0.0.1, in threads of its own, for as long as its context lasts.

    ```python
    with LoopbackServer(Fault(by="rst"), dedupe=True) as server, httpx.Client() as client:
        wrap_client(client).post(server.url, headers={"Idempotency-Key": "k1"})
    assert len(server.requests) == 2 and len(server.ledger) == 1
    ```

    script: what becomes of each request, in the order of their first bytes: a `Fault`; a
    `ServerResponse` or a status code, answered in place of the handler; None for nothing special,
    as for every request past its end.
    handler: answers a request, in the connection's own thread: it may block. Left out: 200, "ok".
    commit: when an operation is executed: "on_request", once the whole request was read, or
    "on_headers", before its body is (the handler then sees an empty one).
    dedupe: answer a known Idempotency-Key with the recorded response, marked
    `Idempotent-Replayed: true`, or with 409 while the first is running, and execute nothing.
    repeat: play the last step of the script for all later requests.
    ssl_context: speak TLS. Bytes are then counted inside of it.

    `url` is where it listens: http://127.0.0.1:PORT.
    """

    def __init__(
        self,
        *script: ServerStep,
        handler: Handler | None = None,
        commit: CommitPoint = "on_request",
        dedupe: bool = False,
        repeat: bool = False,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._service = Service(script, handler or _ok, commit, dedupe=dedupe, repeat=repeat)
        self._ssl_context = ssl_context
        self._stopped = threading.Event()
        self._connections: list[_Connection] = []

    def __enter__(self) -> LoopbackServer:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        if self._ssl_context is not None:
            self.url = self.url.replace("http", "https")
            # The handshake is left to a connection's first read, which holds up nobody else.
            self._listener = self._ssl_context.wrap_socket(
                self._listener, server_side=True, do_handshake_on_connect=False
            )
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stopped.set()
        # Closing a listener does not wake a thread that waits in accept(). A connection does, and
        # fails if none waits any more.
        with suppress(OSError):
            socket.create_connection(self._listener.getsockname()).close()
        self._acceptor.join()
        for connection in self._connections:
            connection.stop()

    @property
    def ledger(self) -> list[Operation]:
        """Every operation that was executed, in order."""
        return self._service.ledger

    @property
    def requests(self) -> list[ServerRequest]:
        """Every request whose head arrived, in order."""
        return self._service.requests

    @property
    def connections(self) -> int:
        """How many connections were accepted."""
        return len(self._connections)

    def _accept(self) -> None:
        with self._listener:
            while not self._stopped.is_set():
                # Over TLS, this fails when the client has gone again.
                with suppress(OSError):
                    sock, _ = self._listener.accept()
                    if self._stopped.is_set():
                        sock.close()
                    else:
                        self._connect(sock)

    def _connect(self, sock: socket.socket) -> None:
        number = len(self._connections) + 1
        connection = _Connection(sock, number, self._service, self._stopped)
        self._connections.append(connection)
        connection.start()


class _FaultError(Exception):
    """The moment of the fault has come."""


class _Connection:
    """One client's connection, served by a thread of its own."""

    def __init__(
        self,
        sock: socket.socket,
        number: int,
        service: Service,
        stopped: threading.Event,
    ) -> None:
        self._sock = sock
        self._number = number
        self._service = service
        self._stopped = stopped
        self._protocol = h11.Connection(h11.SERVER)
        self._fault = _NO_FAULT
        self._allowed = 0
        """How many more bytes of the request may be read before the fault."""
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        # The plain socket's method: SSLSocket's takes its TLS away under the thread that reads.
        with suppress(OSError):
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)
        self._thread.join()

    def _serve(self) -> None:
        # A client may go away at any time, distrust the certificate, or speak no HTTP.
        with suppress(OSError, h11.RemoteProtocolError), self._sock:
            try:
                while self._exchange():
                    pass
            except _FaultError:
                self._break()

    def _exchange(self) -> bool:
        """Serve one request; False when it was the connection's last."""
        first = self._sock.recv(1)
        if not first:
            return False
        step = self._service.next_step()
        scripted = step if isinstance(step, ServerResponse) else None
        self._fault = step if isinstance(step, Fault) else _NO_FAULT
        self._allowed = self._fault.request_bytes
        self._feed(first)

        head = self._next_event()
        assert isinstance(head, h11.Request)
        request = ServerRequest(
            connection=self._number,
            method=head.method.decode(),
            path=head.target.decode(),
            headers=httpx.Headers(head.headers.raw_items()),
        )
        self._service.requests.append(request)
        response = None
        if self._service.commit == "on_headers":
            response = self._service.answer(request, scripted)
        while isinstance(event := self._next_event(), h11.Data):
            request.body += event.data
        if response is None:
            response = self._service.answer(request, scripted)
        self._sock.sendall(self._render(request, response)[: self._fault.response_bytes])
        if self._fault is not _NO_FAULT:
            raise _FaultError
        if self._protocol.our_state is not h11.DONE:
            return False
        self._protocol.start_next_cycle()
        return True

    def _next_event(self) -> object:
        while (event := self._protocol.next_event()) is h11.NEED_DATA:
            if self._allowed <= 0:
                raise _FaultError
            self._feed(self._sock.recv(min(self._allowed, 65536)))
        return event

    def _feed(self, data: bytes) -> None:
        self._allowed -= len(data)
        self._protocol.receive_data(data)

    def _render(self, request: ServerRequest, response: ServerResponse) -> bytes:
        if response.raw is not None:
            return response.raw
        headers = httpx.Headers(response.headers)
        body = response.body
        if isinstance(body, bytes):
            if response.status != 204:
                headers.setdefault("Content-Length", str(len(body)))
            body = [body]
        events: list[h11.Event] = [
            h11.Response(
                status_code=response.status,
                headers=headers.raw,
                reason=httpx.codes.get_reason_phrase(response.status).encode(),
            ),
            *(h11.Data(data=chunk) for chunk in body if request.method != "HEAD"),
            h11.EndOfMessage(),
        ]
        return b"".join(self._protocol.send(event) or b"" for event in events)

    def _break(self) -> None:
        by = self._fault.by
        if by == "fin":
            # Unread bytes would turn the FIN into a RST.
            self._sock.shutdown(socket.SHUT_WR)
            while self._sock.recv(65536):
                pass
        elif by == "rst":
            linger = struct.pack("ii", 1, 0)
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        else:
            self._stopped.wait()
