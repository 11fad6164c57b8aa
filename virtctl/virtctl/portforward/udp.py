"""UDP: one websocket for each local sender, one datagram in each message."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import click

from virt_core.kube.errors import ApiError
from virtctl.portforward.ports import Forward
from virtctl.stream.websocket import HandshakeRefused, Stream

_DATAGRAM = 65535
#: A sender that was quiet for so long gets a new websocket when it comes back.
_IDLE_S = 300.0
_SENDERS = 256
#: What waits for a slow stream. More is dropped, as a network drops it.
_UNSENT = 256 * 1024


class UdpForward:
    def __init__(self, address: str, port: Forward, dial: Callable[[], Stream]) -> None:
        self._port, self._dial = port, dial
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        self._socket.bind((address, port.local))
        self.local_port: int = self._socket.getsockname()[1]
        self._senders: dict[Any, socket.socket] = {}
        self._lock = threading.Lock()

    def run(self) -> None:
        while True:
            try:
                data, sender = self._socket.recvfrom(_DATAGRAM)
            except OSError:
                return  # Closed: that is how it ends.
            if inlet := self._inlet(sender):
                try:
                    inlet.send(data, socket.MSG_DONTWAIT)
                except OSError:
                    continue  # Full or just closed: a datagram may get lost.

    def close(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # UDP is not connected; it wakes up the reader all the same.
        self._socket.close()

    def _inlet(self, sender: Any) -> socket.socket | None:
        """Our end of a pair of sockets; the other one is read by the sender's own thread."""
        with self._lock:
            if sender in self._senders:
                return self._senders[sender]
            if len(self._senders) >= _SENDERS:
                return None
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._senders[sender] = ours
        threading.Thread(target=self._serve, args=(sender, ours, theirs), daemon=True).start()
        return ours

    def _serve(self, sender: Any, ours: socket.socket, theirs: socket.socket) -> None:
        try:
            stream = self._dial()
            try:
                self._exchange(stream, theirs, sender)
            finally:
                stream.close()
        except (HandshakeRefused, ApiError, OSError) as error:
            click.echo(f"Connection to port {self._port.remote} ended: {error}", err=True)
        finally:
            with self._lock:
                del self._senders[sender]
            ours.close()
            theirs.close()

    def _exchange(self, stream: Stream, inlet: socket.socket, sender: Any) -> None:
        heard = time.monotonic()
        while time.monotonic() - heard < _IDLE_S:
            writing = [stream] if stream.unsent else []
            watched: list[socket.socket | Stream] = [inlet, stream]
            ready, _, _ = select.select(watched, writing, [], 0 if stream.pending() else 5.0)
            stream.flush()
            if inlet in ready:
                heard = time.monotonic()
                data = inlet.recv(_DATAGRAM)
                if stream.unsent < _UNSENT:
                    stream.push(data)
            if stream in ready or stream.pending():
                answer = stream.receive()
                if answer is None:
                    return
                if answer:
                    heard = time.monotonic()
                    self._socket.sendto(answer, sender)
