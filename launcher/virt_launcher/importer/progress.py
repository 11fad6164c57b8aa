"""How far the import is, told to whoever asks at a port of the Pod. Nothing else is answered there."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from virt_core.apis.base import encode
from virt_core.apis.importplan import PATH_PROGRESS, PROGRAM, Progress

_TIMEOUT_S = 5.0
_AT_ONCE = 8
#: How long its end waits at most.
_LOOK_S = 0.02


class Meter:
    """Counted by the one who takes, read by those who ask."""

    def __init__(self) -> None:
        self.taken = 0
        self.length = -1

    def progress(self) -> Progress:
        if self.length <= 0:
            return Progress(taken=self.taken)
        return Progress(percent=min(100.0 * self.taken / self.length, 100.0), taken=self.taken)


class Handler(BaseHTTPRequestHandler):
    """Answers about `meter`, which a subclass has."""

    meter: Meter
    timeout = _TIMEOUT_S
    server_version, sys_version = PROGRAM, ""

    def do_GET(self) -> None:
        if self.path != PATH_PROGRESS:
            self.send_error(404)
            return
        body = encode(self.meter.progress())
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """The port is asked every few seconds."""


class Server(ThreadingHTTPServer):
    """Takes a few at a time. Anybody on the Pod network may call; who is too many is hung up on."""

    daemon_threads = True
    request_queue_size = 16

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._places = threading.BoundedSemaphore(_AT_ONCE)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()


def serve(meter: Meter, address: tuple[str, int], handler: type[Handler] = Handler) -> Server:
    """In a thread that ends with the process."""
    bound = type("Bound", (handler,), {"meter": meter})
    server = Server(address, bound)
    threading.Thread(target=server.serve_forever, args=(_LOOK_S,), name="progress", daemon=True).start()
    return server
