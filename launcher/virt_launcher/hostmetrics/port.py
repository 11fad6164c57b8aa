"""The figures on a port of the guest: it asks `GET /metrics/XML` with an empty line behind it, and gets the XML.

Whatever the guest does, little is read of it, one request a second is answered, and nobody waits for it: while we do
not read, QEMU makes the guest wait.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path

from virt_core.runtime.logs import get_logger
from virt_launcher.errors import LauncherError
from virt_launcher.hostmetrics import document
from virt_launcher.hostmetrics.document import Metric

log = get_logger(__name__)

MAX_REQUEST = 1024
#: So much of a guest's noise is thrown away at once.
MAX_PIECE = 64 << 10
PAUSE_S = 1.0
ANSWER_S = 5.0
CONNECT_PAUSE_S = 1.0

_REQUEST = b"GET /metrics/XML"
_END = "\n"
INVALID = b"INVALID REQUEST\n\n"
NOTHING = b"<metrics><!-- host metrics not available --><!-- VM metrics not available --></metrics>\n\n"


class PortServer:
    """QEMU listens; the guest's end is a port that one program at a time may open."""

    def __init__(self, path: Path, collect: Callable[[], list[Metric]], stop: threading.Event) -> None:
        self._path, self._collect, self._stop = path, collect, stop

    def run(self) -> None:
        """Until the stop. The socket comes with QEMU, and is gone when that ends."""
        while not self._stop.wait(CONNECT_PAUSE_S):
            try:
                with socket.socket(socket.AF_UNIX) as port:
                    port.connect(str(self._path))
                    self.serve(port)
            except OSError as error:
                log.debug("the guest's port for metrics is not open", error=str(error))

    def serve(self, port: socket.socket) -> None:
        """Until QEMU hangs up, or the guest does not take an answer."""
        rest = b""
        while not self._stop.is_set():
            port.settimeout(None)
            piece = port.recv(MAX_PIECE)
            if not piece:
                return
            request, rest = take(rest + piece)
            if request is None:
                continue
            port.settimeout(ANSWER_S)
            port.sendall(self._answer(request))
            if self._stop.wait(PAUSE_S):
                return

    def _answer(self, request: bytes) -> bytes:
        if request != _REQUEST:
            return INVALID
        try:
            return (document.to_xml(self._collect()) + _END).encode()
        except (LauncherError, OSError, ValueError) as error:
            log.debug("there are no metrics for the guest", error=str(error))
            return NOTHING


def take(received: bytes) -> tuple[bytes | None, bytes]:
    """The request that has come, if it is whole, and what is kept of the rest. What is too long, or asked in advance,
    is thrown away: the next request is read when this one was answered."""
    plain = received.replace(b"\r\n", b"\n")
    line, found, after = plain.partition(b"\n")
    if len(line) > MAX_REQUEST or (found and after and not after.startswith(b"\n")):
        return b"", b""
    if found and after:
        return line, b""
    return None, received
