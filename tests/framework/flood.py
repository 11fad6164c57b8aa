"""Callers of a TLS port that mean no good: they connect, say a part of something, and stay."""

from __future__ import annotations

import socket
import ssl
from http.client import HTTPSConnection
from pathlib import Path
from typing import Self

_CONNECT_S = 30.0


class Flood:
    """Connections that stay open until the block ends or the server has had enough of them."""

    def __init__(self, port: int, tls: ssl.SSLContext, source: str = "127.0.0.1") -> None:
        self._port, self._tls, self._source = port, tls, source
        self._sockets: list[ssl.SSLSocket] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._sockets:
            connection.close()

    def say(self, data: bytes) -> ssl.SSLSocket:
        """One more connection, on which this much is said; a server that hangs up is not an error."""
        plain = socket.create_connection(("127.0.0.1", self._port), _CONNECT_S, (self._source, 0))
        try:
            connection = self._tls.wrap_socket(plain, server_hostname="127.0.0.1")
        except OSError:
            plain.close()
            raise
        self._sockets.append(connection)
        try:
            connection.sendall(data)
        except OSError:
            pass
        return connection

    def half_sent_headers(self, count: int) -> None:
        for _ in range(count):
            self.say(b"GET /healthz HTTP/1.1\r\nHost: virt-api\r\nX-Half: ")

    def unfinished_bodies(self, count: int, path: str, size: int, user: str = "nobody") -> None:
        """`size` bytes of a body that was announced to be a little longer."""
        head = f"POST {path} HTTP/1.1\r\nHost: virt-api\r\nX-Remote-User: {user}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {size + 1}"
        for _ in range(count):
            self.say(head.encode() + b"\r\n\r\n" + b" " * size)

    def open_count(self) -> int:
        return sum(is_open(connection) for connection in self._sockets)


def is_open(connection: ssl.SSLSocket) -> bool:
    """Whether the server still holds its end. What it said is read and thrown away."""
    connection.setblocking(False)
    try:
        while connection.recv(1 << 16):
            pass
    except ssl.SSLWantReadError:
        return True
    except OSError:
        pass
    return False


class Caller:
    """Somebody who behaves: one request after the other, on a new connection when the old one is gone."""

    def __init__(
        self, port: int, tls: ssl.SSLContext, timeout_s: float, source: str = "127.0.0.1", user: str = "nobody"
    ) -> None:
        self._user = user
        self._connection = HTTPSConnection(
            "127.0.0.1", port, timeout=timeout_s, context=tls, source_address=(source, 0)
        )

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Raises OSError when there is no answer within the time."""
        headers = {"X-Remote-User": self._user, "Content-Type": "application/json"}
        self._connection.request(method, path, body, headers)
        response = self._connection.getresponse()
        return response.status, response.read()

    def close(self) -> None:
        self._connection.close()


def memory_kib(pid: int, what: str = "VmHWM") -> int:
    """VmHWM: the most memory that the process ever had resident; VmRSS: what it has now."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == what:
            return int(value.split()[0])
    raise LookupError(what)
