"""A disk that somebody sends: one POST with all of it, at a port of the Pod's own loopback.

Nobody on the Pod network reaches that port. Who may forward a port of the Pod, which the API server decides, does.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from typing import ClassVar

from virt_core.apis import importplan
from virt_core.apis.importplan import ImportReport
from virt_launcher.importer.errors import Refused, Trouble
from virt_launcher.importer.fill import Filler
from virt_launcher.importer.progress import Meter, Server
from virt_launcher.importer.target import CHUNK

#: A sender that is silent for so long has gone.
_SILENCE_S = 60.0
#: Nobody has sent anything: the Pod ends, and virt-controller makes another one.
_IDLE_S = 24 * 3600.0
#: For who still sends when the answer is there already.
_LINGER_S = 5.0
_SIZE_LINE, _MAX_CHUNK = 32, 1 << 24


class Receiver:
    """Takes one disk, at the first attempt that is good for one."""

    def __init__(self, filler: Filler, meter: Meter) -> None:
        self._filler, self._meter = filler, meter
        self._one = threading.Lock()
        self._done = threading.Event()
        self._report: ImportReport | None = None

    def take(self, body: Iterator[bytes], length: int) -> ImportReport:
        """Raises Refused, Trouble, OSError."""
        if not self._one.acquire(blocking=False):
            raise Trouble("somebody else is sending a disk")
        try:
            if self._report is not None:
                raise Refused(importplan.INVALID, "the claim is filled already")
            self._meter.length = length
            self._report = self._filler.fill(body)
            return self._report
        finally:
            self._one.release()

    def answered(self) -> None:
        """The sender knows; the Pod may end."""
        if self._report is not None:
            self._done.set()

    def wait(self, idle_s: float = _IDLE_S) -> ImportReport:
        if not self._done.wait(idle_s) or self._report is None:
            raise Trouble("nobody has sent a disk")
        return self._report


class _Handler(BaseHTTPRequestHandler):
    receiver: ClassVar[Receiver]
    timeout = _SILENCE_S
    protocol_version = "HTTP/1.1"
    server_version, sys_version = importplan.PROGRAM, ""

    def do_POST(self) -> None:
        length, chunked = self.headers.get("Content-Length", ""), self.headers.get("Transfer-Encoding") == "chunked"
        if self.path != importplan.PATH_UPLOAD or length.isdigit() == chunked:
            self._answer(404 if length.isdigit() else 411, "POST a disk with its length to " + importplan.PATH_UPLOAD)
            return
        try:
            if chunked:
                report = self.receiver.take(self._chunks(), -1)
            else:
                report = self.receiver.take(self._body(int(length)), int(length))
            self._answer(200, f"{report.format}, {report.virtual_size} bytes")
        except Refused as error:
            self._answer(400, str(error))
        except (Trouble, OSError) as error:
            self._answer(503, str(error))
        self.receiver.answered()

    def _body(self, left: int) -> Iterator[bytes]:
        while left:
            data = self.rfile.read(min(CHUNK, left))
            if not data:
                raise Trouble(f"the sender broke off {left} bytes before the end")
            left -= len(data)
            yield data

    def _chunks(self) -> Iterator[bytes]:
        """The end is said, so that a part does not pass for the whole."""
        while True:
            size = self.rfile.readline(_SIZE_LINE).strip()
            if not re.fullmatch(rb"[0-9a-fA-F]{1,8}", size) or int(size, 16) > _MAX_CHUNK:
                raise Trouble("the sender broke off, or does not send chunks")
            if not int(size, 16):
                return
            yield from self._body(int(size, 16))
            if self.rfile.read(2) != b"\r\n":
                raise Trouble("the sender broke off, or does not send chunks")

    def _answer(self, code: int, text: str) -> None:
        """A sender that has gone does not read it; what came stands all the same."""
        self.close_connection = True
        with suppress(OSError):
            self._write(code, text.encode())
            if code != 200:
                self._linger()

    def _write(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def _linger(self) -> None:
        """What is still on its way is taken: a connection that is closed with bytes unread takes the answer with it."""
        self.connection.shutdown(socket.SHUT_WR)
        self.connection.settimeout(_LINGER_S)
        until = time.monotonic() + _LINGER_S
        while time.monotonic() < until and self.rfile.read1(CHUNK):
            pass

    def log_message(self, *_: object) -> None:
        """The report says what counts."""


def receive(filler: Filler, meter: Meter, port: int = importplan.UPLOAD_PORT) -> ImportReport:
    """Blocks until somebody has sent a disk. Raises Trouble."""
    receiver = Receiver(filler, meter)
    server = Server(("127.0.0.1", port), type("Bound", (_Handler,), {"receiver": receiver}))
    threading.Thread(target=server.serve_forever, name="upload", daemon=True).start()
    try:
        return receiver.wait()
    finally:
        server.shutdown()
        server.server_close()
