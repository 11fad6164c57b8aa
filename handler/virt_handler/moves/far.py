"""The encrypted end of a connection to another node.

A TLS record is 16 KiB at most. On a socket of its own OpenSSL asks the kernel twice for each record that it reads, and
once for each that it writes. Here it works on memory, and the kernel is asked for large pieces.
"""

from __future__ import annotations

import socket
import ssl
from typing import Any

#: What is taken from the network at once.
CHUNK = 256 * 1024
#: What of an earlier piece may still be waiting for the rest of its record.
_RECORD = 32 * 1024


class Far:
    """Its methods never wait, but for those that say so."""

    def __init__(self, connection: socket.socket, context: ssl.SSLContext, peer: str = "") -> None:
        """As a client it names its `peer`; without one it is the server."""
        self.socket = connection
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=not peer, server_hostname=peer or None)
        self._came, self._plain = (memoryview(bytearray(size)) for size in (CHUNK, CHUNK + _RECORD))

    def greet(self) -> None:
        """Waits, as long as the socket's timeout says. Raises OSError, which an ssl.SSLError is."""
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._flush()
                self._take()
        self._flush()

    def names(self) -> list[str]:
        certificate: dict[str, Any] = self._tls.getpeercert() or {}
        return [name for kind, name in certificate.get("subjectAltName", ()) if kind == "DNS"]

    def say(self, data: bytes) -> None:
        """Waits until the network has it."""
        self.socket.sendall(self.seal(memoryview(data)))

    def hear(self, size: int) -> bytes:
        """Waits for so many bytes. Raises ConnectionError when the other side ends before."""
        data = b""
        while len(data) < size:
            try:
                part = self._tls.read(size - len(data))
            except ssl.SSLWantReadError:
                self._take()
                continue
            if not part:
                raise ConnectionError("the other side hung up at once")
            data += part
        return data

    def seal(self, data: memoryview) -> bytes:
        """What goes into the network for it."""
        while data:
            data = data[self._tls.write(data) :]
        return self._out.read()

    def receive(self) -> memoryview | None:
        """What came out of the network, in the clear; None: the other side has ended. Raises BlockingIOError."""
        if (self._in.pending or self._tls.pending()) and (waiting := self._open()):
            return waiting  # Came along with the greeting.
        size = self.socket.recv_into(self._came)
        if not size:
            return None
        self._in.write(self._came[:size])
        return self._open()

    def _open(self) -> memoryview | None:
        at = 0
        try:
            while size := self._tls.read(len(self._plain) - at, self._plain[at:]):
                at += int(size)
        except ssl.SSLWantReadError:
            return self._plain[:at]
        return self._plain[:at] or None

    def _take(self) -> None:
        size = self.socket.recv_into(self._came)
        if not size:
            raise ConnectionError("the other side hung up while it was greeted")
        self._in.write(self._came[:size])

    def _flush(self) -> None:
        if self._out.pending:
            self.socket.sendall(self._out.read())
