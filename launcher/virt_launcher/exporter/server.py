"""The port: TLS, and a bound on everything that somebody without the token can take.

Whoever has not shown the token yet gets little time and few places, and the oldest of them makes room for the next: so
nobody can keep those out who have it. Whoever has it gets one of some places for downloads.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WAITING, DOWNLOADS = 32, 16
#: Until the token is shown; and until some bytes more of an answer are taken.
HEAD_S, SILENCE_S = 10.0, 60.0


class Places:
    """Connections that wait, and those that download."""

    def __init__(self, waiting: int = WAITING, downloads: int = DOWNLOADS) -> None:
        self._limit = waiting
        self._lock = threading.Lock()
        self._waiting: dict[socket.socket, float] = {}
        self._downloads = threading.BoundedSemaphore(downloads)

    def enter(self, connection: socket.socket) -> None:
        """The oldest goes when there are too many."""
        with self._lock:
            self._waiting[connection] = time.monotonic()
            for old in list(self._waiting)[: max(len(self._waiting) - self._limit, 0)]:
                self._hang_up(old)

    def _hang_up(self, connection: socket.socket) -> None:
        del self._waiting[connection]
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    def late(self) -> None:
        """Those whose time is over."""
        with self._lock:
            for old in [each for each, since in self._waiting.items() if time.monotonic() - since > HEAD_S]:
                self._hang_up(old)

    def leave(self, connection: socket.socket) -> None:
        with self._lock:
            self._waiting.pop(connection, None)

    def begin(self, connection: socket.socket) -> bool:
        """It has the token; False: there is no place."""
        if not self._downloads.acquire(blocking=False):
            return False
        self.leave(connection)
        return True

    def end(self) -> None:
        self._downloads.release()


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(
        self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], tls: ssl.SSLContext, places: Places
    ) -> None:
        self._tls, self.places = tls, places
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            with suppress(OSError):
                self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def service_actions(self) -> None:
        self.places.late()

    def process_request(self, request: Any, client_address: Any) -> None:
        self.places.enter(request)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """The handshake is the client's time, not the port's."""
        try:
            request.settimeout(HEAD_S)
            secured = self._tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
        except OSError:
            self.places.leave(request)
            self.shutdown_request(request)
            return
        self.places.leave(request)
        self.places.enter(secured)
        try:
            secured.do_handshake()
            self.finish_request(secured, client_address)
        except OSError:
            pass  # It has gone, or was told to.
        finally:
            self.places.leave(secured)
            self.shutdown_request(secured)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing of what a client does is worth a stack trace."""


def tls_context(directory: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(f"{directory}/tls.crt", f"{directory}/tls.key")
    return context
