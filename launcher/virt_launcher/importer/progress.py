"""How far the import is, told to whoever asks at a port of the Pod. Nothing else is answered there."""

from __future__ import annotations

import threading
from contextlib import suppress
from socketserver import BaseRequestHandler, StreamRequestHandler, ThreadingTCPServer
from typing import Any

from virt_core.apis.base import encode
from virt_core.apis.importplan import PATH_PROGRESS, Progress

_TIMEOUT_S = 5.0
_AT_ONCE = 8
#: Of a request: how long a line may be, and how many there may be.
_LINE, _LINES = 1 << 12, 64
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


class Handler(StreamRequestHandler):
    """Answers about `meter`, which a subclass has. One question a connection, and as much of HTTP as that needs: the
    library's server takes a quarter of an importer's start."""

    meter: Meter
    timeout = _TIMEOUT_S

    def handle(self) -> None:
        with suppress(OSError):
            asked = self.rfile.readline(_LINE).split()
            for _ in range(_LINES):
                if self.rfile.readline(_LINE) in (b"\r\n", b"\n", b""):
                    break
            known = asked[:2] == [b"GET", PATH_PROGRESS.encode()]
            body = encode(self.meter.progress()) if known else b""
            head = f"HTTP/1.0 {'200 OK' if known else '404 Not Found'}\r\nContent-Length: {len(body)}\r\n"
            self.wfile.write(f"{head}Content-Type: application/json\r\nConnection: close\r\n\r\n".encode() + body)


class Server(ThreadingTCPServer):
    """Takes a few at a time. Anybody on the Pod network may call; who is too many is hung up on."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 16

    def __init__(self, address: tuple[str, int], handler: type[BaseRequestHandler]) -> None:
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
