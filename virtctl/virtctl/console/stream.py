"""The websocket to a console: raw bytes both ways, over the same connection settings as every other call."""

from __future__ import annotations

import socket
import ssl
from typing import Any

import websocket

from virt_core.apis.names import SUBPROTOCOL_PLAIN
from virt_core.kube.connect import Connection
from virt_core.kube.errors import Unreachable, error_from

_HANDSHAKE_S = 30.0
#: A server that vanished is noticed after a minute, also on a quiet console.
_SOCKET_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
)
_NORMAL_CLOSURE = 1000
_SEND_S = 10.0
#: Readable means that bytes are there, so this is only for those that make no whole frame.
_RECEIVE_S = 0.02


class HandshakeRefused(Exception):
    """The server answered with an HTTP status instead of a websocket."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Stream:
    """For one thread: TLS does not take reads and writes at the same time. Wait for `fileno`, then `receive`."""

    def __init__(self, connection: Connection, path: str) -> None:
        self.reason = ""
        self._socket = _open(connection, path)

    def fileno(self) -> int:
        return int(self._socket.sock.fileno())

    def pending(self) -> bool:
        """Bytes that TLS has decrypted already: the descriptor does not show them."""
        sock = self._socket.sock
        return isinstance(sock, ssl.SSLSocket) and sock.pending() > 0

    def send(self, data: bytes) -> None:
        self._socket.settimeout(_SEND_S)
        try:
            self._socket.send_binary(data)
        except (websocket.WebSocketException, OSError) as error:
            raise self._broken(error) from error

    def receive(self) -> bytes | None:
        """What has come, maybe nothing; None when the other side closed in order. Raises ConnectionError."""
        self._socket.settimeout(_RECEIVE_S)
        try:
            opcode, data = self._socket.recv_data()
        except websocket.WebSocketTimeoutException:
            # A TLS record without content, or half a frame. The package keeps what it has and goes on next time.
            return b""
        except (websocket.WebSocketException, OSError) as error:
            raise self._broken(error) from error
        if opcode == websocket.ABNF.OPCODE_CLOSE:
            self._closed(data)
            return None
        return bytes(data) if opcode == websocket.ABNF.OPCODE_BINARY else b""

    def close(self) -> None:
        """Says goodbye and does not wait for an answer."""
        try:
            self._socket.send_close()
        except (websocket.WebSocketException, OSError) as error:
            self.reason = self.reason or str(error)
        self._socket.shutdown()

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
        return websocket.create_connection(
            url,
            timeout=_HANDSHAKE_S,
            header=[f"{name}: {value}" for name, value in connection.headers().items()],
            subprotocols=[SUBPROTOCOL_PLAIN],
            sockopt=_SOCKET_OPTIONS,
            enable_multithread=True,
            suppress_origin=True,
            http_no_proxy=["*"],
            **options,
        )
    except websocket.WebSocketBadStatusException as error:
        raise _refusal(error) from error
    except (websocket.WebSocketException, OSError) as error:
        raise Unreachable(f"no answer from the API server {connection.server}: {error}") from error


def _refusal(error: Any) -> HandshakeRefused:
    body = error.resp_body or b""
    parsed = error_from(error.status_code, body if isinstance(body, bytes) else str(body).encode())
    return HandshakeRefused(error.status_code, str(parsed))
