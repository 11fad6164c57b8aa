"""The node's end of a stream: a socket that two threads read from and write to, until somebody hangs up.

A wire holds nothing but what one call carries, so a slow reader slows the writer down.
"""

from __future__ import annotations

import socket
import ssl
import threading
from typing import Protocol

CHUNK = 32 * 1024
#: The biggest datagram there is.
_DATAGRAM = 65535
HANDSHAKE_TIMEOUT_S = 5.0


class Wire(Protocol):
    def receive(self) -> bytes:
        """Blocks. Empty at the end, however it came."""
        ...

    def send(self, data: bytes) -> None:
        """Blocks. Raises OSError."""
        ...

    def hang_up(self) -> None:
        """Wakes whoever reads or writes. From any thread, more than once."""
        ...

    def close(self) -> None: ...


class StreamWire:
    """A connected stream socket, of whatever family."""

    def __init__(self, connected: socket.socket) -> None:
        connected.settimeout(None)
        self._socket = connected

    def receive(self) -> bytes:
        try:
            return self._socket.recv(CHUNK)
        except OSError:
            return b""

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def hang_up(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # Not connected any more, which is what we want.

    def close(self) -> None:
        self._socket.close()


class DatagramWire:
    """A connected UDP socket: one call, one datagram. That nobody listens is no end, as it is none for UDP."""

    def __init__(self, connected: socket.socket) -> None:
        connected.settimeout(None)
        self._socket = connected
        self._ended = threading.Event()

    def receive(self) -> bytes:
        while not self._ended.is_set():
            try:
                if data := self._socket.recv(_DATAGRAM):
                    return data
            except ConnectionRefusedError:
                continue
            except OSError:
                break
        return b""

    def send(self, data: bytes) -> None:
        try:
            self._socket.send(data)
        except ConnectionRefusedError:
            pass  # The answer to an earlier datagram.

    def hang_up(self) -> None:
        self._ended.set()
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self) -> None:
        self._socket.close()


class TlsWire:
    """TLS as a client over a stream socket.

    One thread reads while another writes, which OpenSSL's own sockets do not allow: its state is touched under a lock,
    the socket outside of it.
    """

    def __init__(self, connected: socket.socket, context: ssl.SSLContext) -> None:
        self._raw = connected
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing)
        self._state, self._writing = threading.Lock(), threading.Lock()
        connected.settimeout(HANDSHAKE_TIMEOUT_S)
        self._shake_hands()
        self._wire = StreamWire(connected)

    def _shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
                self._raw.sendall(self._outgoing.read())
                return
            except ssl.SSLWantReadError:
                self._raw.sendall(self._outgoing.read())
                data = self._raw.recv(CHUNK)
                if not data:
                    raise ConnectionResetError("the guest hung up during the TLS handshake") from None
                self._incoming.write(data)

    def receive(self) -> bytes:
        while True:
            with self._state:
                try:
                    return self._tls.read(CHUNK)
                except ssl.SSLWantReadError:
                    answer = self._outgoing.read()
                except ssl.SSLError:
                    return b""
            if answer:
                with self._writing:
                    self._wire.send(answer)
            data = self._wire.receive()
            if not data:
                return b""
            with self._state:
                self._incoming.write(data)

    def send(self, data: bytes) -> None:
        with self._writing:
            with self._state:
                self._tls.write(data)
                packed = self._outgoing.read()
            self._wire.send(packed)

    def hang_up(self) -> None:
        self._wire.hang_up()

    def close(self) -> None:
        self._wire.close()
