"""The websocket to a guest: raw bytes both ways, over the same connection settings as every other call.

The handshake is the websocket-client package's. After it the socket is ours and never blocks, so that a slow reader on
one side holds up nothing but its own direction.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections import deque
from typing import Any

import websocket

from virt_core.apis.names import SUBPROTOCOL_PLAIN
from virt_core.kube.connect import Connection
from virt_core.kube.errors import Unreachable, error_from
from virtctl.session import sentence
from virtctl.stream.frames import Message, Opcode, Parser, ProtocolError, encode

_HANDSHAKE_S = 30.0
#: A server that vanished is noticed after a minute, also on a quiet stream.
_SOCKET_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
)
_NORMAL_CLOSURE = 1000
_SEND_S = 10.0
_READ_SIZE = 65536
#: TLS wants a refused write repeated with the same bytes, so writes are cut before they are tried.
_WRITE_SIZE = 16384


class HandshakeRefused(Exception):
    """The server answered with an HTTP status instead of a websocket."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Stream:
    """For one thread. Poll `fileno` for reading, and for writing while `unsent` is not 0."""

    def __init__(self, connection: Connection, path: str) -> None:
        self.reason = ""
        self._socket: socket.socket = _open(connection, path)
        self._socket.setblocking(False)
        self._parser = Parser()
        self._received: deque[Message] = deque()
        self._outgoing: deque[bytes] = deque()
        self.unsent = 0

    def fileno(self) -> int:
        return self._socket.fileno()

    def pending(self) -> bool:
        """Something to `receive` that the descriptor does not show: parsed, or decrypted by TLS already."""
        tls = isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0
        return bool(self._received) or tls

    def push(self, data: bytes) -> None:
        """Puts one message into the queue and sends what goes out at once."""
        self._queue(Opcode.BINARY, data)
        self.flush()

    def send(self, data: bytes) -> None:
        """As `push`, and waits until it is out. Raises ConnectionError when nobody takes it for 10 s."""
        self.push(data)
        deadline = time.monotonic() + _SEND_S
        while self.unsent:
            if time.monotonic() >= deadline:
                raise self._broken(TimeoutError(f"nothing could be sent for {_SEND_S:.0f} s"))
            select.select([], [self], [], 0.5)
            self.flush()

    def flush(self) -> None:
        try:
            while self._outgoing:
                sent = self._socket.send(self._outgoing[0])
                self.unsent -= sent
                rest = self._outgoing.popleft()[sent:]
                if rest:
                    self._outgoing.appendleft(rest)
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return
        except OSError as error:
            raise self._broken(error) from error

    def receive(self) -> bytes | None:
        """The next message, or nothing yet (b""); None when the other side closed in order. Raises ConnectionError."""
        if not self._received:
            self._read()
        while self._received:
            message = self._received.popleft()
            if message.opcode is Opcode.BINARY:
                return message.data
            if message.opcode is Opcode.PING:
                self._queue(Opcode.PONG, message.data)
                self.flush()
            elif message.opcode is Opcode.CLOSE:
                self._closed(message.data)
                return None
        return b""

    def close(self) -> None:
        """Says goodbye and does not wait for an answer."""
        try:
            self._queue(Opcode.CLOSE, _NORMAL_CLOSURE.to_bytes(2, "big"))
            self.flush()
        except ConnectionError:
            pass  # It is gone already, which is what we want.
        self._socket.close()

    def _read(self) -> None:
        try:
            data = self._socket.recv(_READ_SIZE)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError as error:
            raise self._broken(error) from error
        if not data:
            raise self._broken(ConnectionError("the server ended the connection"))
        try:
            self._received.extend(self._parser.feed(data))
        except ProtocolError as error:
            raise self._broken(error) from error

    def _queue(self, opcode: Opcode, data: bytes) -> None:
        frame = encode(opcode, data)
        self._outgoing.extend(frame[at : at + _WRITE_SIZE] for at in range(0, len(frame), _WRITE_SIZE))
        self.unsent += len(frame)

    def _broken(self, error: Exception) -> ConnectionError:
        self.reason = str(error)
        return ConnectionError(self.reason)

    def _closed(self, data: bytes) -> None:
        code = int.from_bytes(data[:2], "big") if len(data) >= 2 else _NORMAL_CLOSURE
        self.reason = data[2:].decode(errors="replace")
        if code != _NORMAL_CLOSURE:
            raise ConnectionError(self.reason or f"websocket close code {code}")


def _open(connection: Connection, path: str) -> Any:
    """The websocket-client package has no types."""
    scheme, _, rest = connection.server.partition("://")
    url = f"{'wss' if scheme == 'https' else 'ws'}://{rest}{path}"
    options: dict[str, Any] = {}
    if scheme == "https":
        options["sslopt"] = {"context": connection.ssl_context(), "server_hostname": connection.tls_server_name or None}
    try:
        opened = websocket.create_connection(
            url,
            timeout=_HANDSHAKE_S,
            header=[f"{name}: {value}" for name, value in connection.headers().items()],
            subprotocols=[SUBPROTOCOL_PLAIN],
            sockopt=_SOCKET_OPTIONS,
            suppress_origin=True,
            http_no_proxy=["*"],
            **options,
        )
    except websocket.WebSocketBadStatusException as error:
        raise _refusal(error) from error
    except (websocket.WebSocketException, OSError) as error:
        raise Unreachable(f"no answer from the API server {connection.server}: {error}") from error
    return opened.sock


def _refusal(error: Any) -> HandshakeRefused:
    body = error.resp_body or b""
    parsed = error_from(error.status_code, body if isinstance(body, bytes) else str(body).encode())
    return HandshakeRefused(error.status_code, sentence(parsed))
