"""TCP: one websocket for each connection that the local port takes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

import click

from virt_core.kube.errors import ApiError
from virtctl.portforward.ports import Forward
from virtctl.stream.relay import relay_socket
from virtctl.stream.websocket import HandshakeRefused, Stream

#: Opens the way to the guest's port.
Dial = Callable[[], Stream]
_BACKLOG = 64


class TcpForward:
    def __init__(self, address: str, port: Forward, dial: Dial) -> None:
        self._port, self._dial = port, dial
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.create_server((address, port.local), family=family, backlog=_BACKLOG)
        self.local_port: int = self._listener.getsockname()[1]

    def run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # Closed: that is how it ends.
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def close(self) -> None:
        # shutdown wakes up a thread in accept; close alone does not.
        try:
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # It has no connection waiting.
        self._listener.close()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                relay_socket(self._dial(), connection)
            except (HandshakeRefused, ApiError, ConnectionError) as error:
                click.echo(f"Connection to port {self._port.remote} ended: {error}", err=True)
