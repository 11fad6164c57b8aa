"""One connection to a port of a Pod, over the API server: what `kubectl port-forward` does, for one request.

The websocket carries two channels: bytes of the connection, and one sentence if it cannot be had.
"""

from __future__ import annotations

import re
import select
import time

from virt_core.kube.connect import Connection
from virtctl.stream.websocket import Stream
from virtctl.targets import part

_PROTOCOL = "v4.channel.k8s.io"
_DATA, _ERROR = 0, 1
_PORT_BYTES = 2
#: A device is zeroed before anything is written to it.
_SILENCE_S = 600.0
CHUNK = 1 << 16


class TunnelError(Exception):
    """The Pod's port cannot be had, or the way to it broke."""


class Tunnel:
    def __init__(self, connection: Connection, namespace: str, pod: str, port: int) -> None:
        """Raises HandshakeRefused, ApiError."""
        path = f"/api/v1/namespaces/{part(namespace)}/pods/{part(pod)}/portforward?ports={port}"
        self._stream = Stream(connection, path, _PROTOCOL)
        self._named: set[int] = set()
        self._received = bytearray()
        self.ended = False

    def send(self, data: bytes) -> None:
        """Waits until the other side takes it, or says something before it has everything. Raises TunnelError."""
        deadline = time.monotonic() + _SILENCE_S
        try:
            self._stream.push(bytes([_DATA]) + data)
            while self._stream.unsent and not self.answered() and not self.ended:
                if time.monotonic() > deadline:
                    raise TunnelError(f"nothing was taken for {_SILENCE_S:.0f} s")
                select.select([self._stream], [self._stream], [], 0.5)
                self._stream.flush()
                self._take()
        except ConnectionError as error:
            raise TunnelError(str(error)) from error
        self._take()

    def answered(self) -> bool:
        return bool(self._received)

    def answer(self, within_s: float) -> bytes:
        """An HTTP answer with its whole body. Raises TunnelError."""
        deadline = time.monotonic() + within_s
        while not _is_whole(self._received) and not self.ended:
            if time.monotonic() > deadline:
                raise TunnelError(f"no answer within {within_s:.0f} s")
            if not self._stream.pending():
                select.select([self._stream], [], [], 0.5)
            self._take()
        return bytes(self._received)

    def _take(self) -> None:
        try:
            while message := self._stream.receive():
                self._one(message[0], message[1:])
            self.ended = self.ended or message is None
        except ConnectionError as error:
            if not self._received:
                raise TunnelError(str(error)) from error
            self.ended = True

    def _one(self, channel: int, data: bytes) -> None:
        """The first message of each channel names the port."""
        if channel not in self._named:
            self._named.add(channel)
            data = data[_PORT_BYTES:]
        if channel == _ERROR and data:
            raise TunnelError(data.decode(errors="replace"))
        if channel == _DATA:
            self._received += data

    def close(self) -> None:
        self._stream.close()


def _is_whole(answer: bytes | bytearray) -> bool:
    head, found, body = bytes(answer).partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    return bool(found) and (length is None or len(body) >= int(length[1]))
