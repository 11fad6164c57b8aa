"""A connection to a port of a Pod, over the API server, as a socket.

It is what `kubectl port-forward` does, without a port of this machine.

The websocket carries two channels: bytes of the connection, and one sentence if it cannot be had.
"""

from __future__ import annotations

import socket
import threading

from virt_core.kube.connect import Connection
from virt_core.kube.errors import ApiError
from virtctl.stream.relay import relay_socket
from virtctl.stream.websocket import Stream
from virtctl.targets import part

_PROTOCOL = "v4.channel.k8s.io"
_DATA, _ERROR = 0, 1
_PORT_BYTES = 2


class PodStream:
    """The bytes of the connection alone; a `ByteStream` of the relay."""

    def __init__(self, connection: Connection, namespace: str, pod: str, port: int) -> None:
        """Raises HandshakeRefused, ApiError."""
        path = f"/api/v1/namespaces/{part(namespace)}/pods/{part(pod)}/portforward?ports={port}"
        self._stream = Stream(connection, path, _PROTOCOL)
        self._named: set[int] = set()

    @property
    def unsent(self) -> int:
        return self._stream.unsent

    @unsent.setter
    def unsent(self, _value: int) -> None:
        raise AttributeError("the stream counts it")

    def fileno(self) -> int:
        return self._stream.fileno()

    def pending(self) -> bool:
        return self._stream.pending()

    def push(self, data: bytes) -> None:
        self._stream.push(bytes([_DATA]) + data)

    def flush(self) -> None:
        self._stream.flush()

    def receive(self) -> bytes | None:
        """Raises ConnectionError, also with what the other side says of the port."""
        message = self._stream.receive()
        if not message:
            return message
        channel, data = message[0], message[1:]
        if channel not in self._named:  # The first message of each channel names the port.
            self._named.add(channel)
            data = data[_PORT_BYTES:]
        if channel == _ERROR and data:
            raise ConnectionError(data.decode(errors="replace"))
        return data if channel == _DATA else b""

    def close(self) -> None:
        self._stream.close()


def dial(connection: Connection, namespace: str, pod: str, port: int) -> socket.socket:
    """One end of a pair whose other end is the Pod's port. Raises HandshakeRefused, ApiError."""
    stream = PodStream(connection, namespace, pod, port)
    ours, theirs = socket.socketpair()

    def carry() -> None:
        with theirs:
            try:
                relay_socket(stream, theirs)
            except (ConnectionError, ApiError):
                return  # Whoever reads meets the end of it, and knows how much was missing.

    threading.Thread(target=carry, name="pod-port", daemon=True).start()
    return ours
