"""/healthz, /readyz and /metrics on a port of their own.

A check is a function that returns None or True when all is well, or a sentence (or raises) when it is not. /healthz
says that the process answers; /readyz runs the checks and names those that fail.
"""

from __future__ import annotations

import contextlib
import io
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from virt_core.runtime.logs import get_logger
from virt_core.runtime.metrics import REGISTRY, Registry

log = get_logger(__name__)

Check = Callable[[], object]

_CLIENT_TIMEOUT_S = 10.0
#: From the connection to the answer, however slowly somebody writes.
REQUEST_S = 10.0
#: Each has a thread. Probes and a scraper need two or three.
MAX_CONNECTIONS = 32
_MAX_REQUEST_BYTES = 16 << 10


def run_checks(checks: Mapping[str, Check]) -> dict[str, str]:
    """The failing checks, each with its reason. Also for components that serve health on their own server."""
    failed: dict[str, str] = {}
    for name, check in checks.items():
        try:
            outcome = check()
        except Exception as error:
            failed[name] = str(error) or type(error).__name__
            continue
        if outcome is not None and outcome is not True:
            failed[name] = "not ready" if outcome is False else str(outcome)
    return failed


def answer(
    path: str,
    checks: Mapping[str, Check],
    registry: Registry = REGISTRY,
    pages: Mapping[str, Callable[[], str]] | None = None,
) -> tuple[int, str]:
    """Status and text for one of the three paths or of the component's own pages; 404 for any other."""
    route = path.partition("?")[0].rstrip("/")
    if pages and route in pages:
        return HTTPStatus.OK, pages[route]() + "\n"
    if route in ("/healthz", "/livez"):
        return HTTPStatus.OK, "ok\n"
    if route == "/readyz":
        failed = run_checks(checks)
        lines = [f"[-] {name}: {failed[name]}" if name in failed else f"[+] {name}" for name in checks]
        status = HTTPStatus.SERVICE_UNAVAILABLE if failed else HTTPStatus.OK
        return status, "\n".join([*lines, "not ready" if failed else "ok"]) + "\n"
    if route == "/metrics":
        return HTTPStatus.OK, registry.render()
    return HTTPStatus.NOT_FOUND, "not found\n"


class HealthServer:
    def __init__(
        self,
        address: str,
        checks: Mapping[str, Check] | None = None,
        registry: Registry = REGISTRY,
        *,
        pages: Mapping[str, Callable[[], str]] | None = None,
    ) -> None:
        """Binds at once, so that a taken port fails the start-up. Port 0: see `.port`."""
        host, port = split_address(address)
        self._server = _make_server(host, port, dict(checks or {}), registry, dict(pages or {}))
        self.port: int = self._server.server_address[1]

    def run(self, stop: threading.Event) -> None:
        """Serves until the stop. A thread body for the supervisor."""
        serving = threading.Thread(target=self._server.serve_forever, args=(0.2,), name="health-accept", daemon=True)
        serving.start()
        stop.wait()
        self._server.shutdown()
        self._server.server_close()
        serving.join(_CLIENT_TIMEOUT_S)


def split_address(address: str) -> tuple[str, int]:
    """`host:port`, `[::1]:port` or `:port`."""
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit():
        raise ValueError(f"{address!r} is not host:port")
    return host.strip("[]"), int(port)


class _Limited(io.RawIOBase):
    """What a client says, up to the size of any honest request; then it counts as having hung up."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._left = connection, _MAX_REQUEST_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._connection.recv_into(buffer, min(len(buffer), self._left)) if self._left else 0
        self._left -= count
        return count


class _BoundedServer(ThreadingHTTPServer):
    """So many connections and no more, each for a limited time. When they are too many, whoever has the most loses the
    oldest of them: an honest request is over before it is the oldest, and one address takes nothing from another."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._lock = threading.Lock()
        #: In the order of their coming: whose they are, and since when.
        self._connections: dict[socket.socket, tuple[str, float]] = {}
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._connections[request] = (client_address[0], time.monotonic())
            if len(self._connections) > MAX_CONNECTIONS:
                self._hang_up(self._oldest_of_most())
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._connections.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Called several times a second by `serve_forever`."""
        overdue = time.monotonic() - REQUEST_S
        with self._lock:
            for connection in [each for each, (_, since) in self._connections.items() if since < overdue]:
                self._hang_up(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a health request failed", client=str(client_address[0]), open=request.fileno() >= 0, exc_info=True)

    def _oldest_of_most(self) -> socket.socket:
        [(address, _)] = Counter(whose for whose, _ in self._connections.values()).most_common(1)
        return next(each for each, (whose, _) in self._connections.items() if whose == address)

    def _hang_up(self, connection: socket.socket) -> None:
        """Its thread ends by itself."""
        self._connections.pop(connection, None)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def _make_server(
    host: str, port: int, checks: Mapping[str, Check], registry: Registry, pages: Mapping[str, Callable[[], str]]
) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        timeout = _CLIENT_TIMEOUT_S

        def setup(self) -> None:
            super().setup()
            self.rfile = io.BufferedReader(_Limited(self.connection))

        def do_GET(self) -> None:
            status, text = answer(self.path, checks, registry, pages)
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            log.debug("health request", request=format % args)

    return _BoundedServer((host, port), Handler)
