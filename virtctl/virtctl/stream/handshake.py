"""Opens a websocket as every other call connects: TCP, TLS, and the upgrade, which wsproto speaks."""

from __future__ import annotations

import socket
import time
from urllib.parse import SplitResult, urlsplit

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, RejectConnection, RejectData, Request
from wsproto.utilities import ProtocolError

from virt_core.apis.names import SUBPROTOCOL_PLAIN
from virt_core.kube.connect import Connection
from virt_core.kube.errors import Unreachable, error_from
from virtctl.session import sentence

#: For all of it: a server that says one byte a minute is no answer.
_HANDSHAKE_S = 30.0
#: A server that vanished is noticed after a minute, also on a quiet stream.
_SOCKET_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
)
_READ_SIZE = 65536
#: A Status object is far smaller; the rest of a longer answer would not be shown anyway.
_REFUSAL_SIZE = 65536
_PORTS = {"http": 80, "https": 443}


class HandshakeRefused(Exception):
    """The server answered with an HTTP status instead of a websocket."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def open_websocket(
    connection: Connection, path: str, subprotocol: str = SUBPROTOCOL_PLAIN
) -> tuple[socket.socket, WSConnection]:
    """The socket, and its protocol, which may have read beyond the handshake. Raises HandshakeRefused, Unreachable."""
    deadline = time.monotonic() + _HANDSHAKE_S
    address = urlsplit(connection.server)
    protocol = WSConnection(ConnectionType.CLIENT)
    try:
        opened = _dial(connection, address)
        try:
            opened.sendall(protocol.send(_request(connection, address, path, subprotocol)))
            _await_upgrade(opened, protocol, deadline)
        except BaseException:
            opened.close()
            raise
    except (OSError, ProtocolError) as error:
        raise Unreachable(f"no answer from the API server {connection.server}: {error}") from error
    return opened, protocol


def _dial(connection: Connection, address: SplitResult) -> socket.socket:
    host = address.hostname or ""
    plain = socket.create_connection((host, address.port or _PORTS[address.scheme]), _HANDSHAKE_S)
    try:
        for option in _SOCKET_OPTIONS:
            plain.setsockopt(*option)
        if address.scheme != "https":
            return plain
        return connection.ssl_context().wrap_socket(plain, server_hostname=connection.tls_server_name or host)
    except BaseException:
        plain.close()
        raise


def _request(connection: Connection, address: SplitResult, path: str, subprotocol: str) -> Request:
    identity = [(name.encode(), value.encode()) for name, value in connection.headers().items()]
    return Request(address.netloc, address.path + path, extra_headers=identity, subprotocols=[subprotocol])


def _await_upgrade(opened: socket.socket, protocol: WSConnection, deadline: float) -> None:
    refusal: RejectConnection | None = None
    body = b""
    while True:
        data = _read(opened, deadline)
        if not data:
            break
        protocol.receive_data(data)
        for event in protocol.events():
            if isinstance(event, AcceptConnection):
                return
            if isinstance(event, RejectConnection):
                refusal = event
            elif isinstance(event, RejectData):
                body += event.data
                if event.body_finished or len(body) > _REFUSAL_SIZE:
                    raise _refused(refusal, body)
    raise _refused(refusal, body)


def _read(opened: socket.socket, deadline: float) -> bytes:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError(f"the handshake took longer than {_HANDSHAKE_S:.0f} s")
    opened.settimeout(left)
    return opened.recv(_READ_SIZE)


def _refused(refusal: RejectConnection | None, body: bytes) -> Exception:
    if refusal is None:
        return ConnectionError("the server ended the connection")
    return HandshakeRefused(refusal.status_code, sentence(error_from(refusal.status_code, body)))
