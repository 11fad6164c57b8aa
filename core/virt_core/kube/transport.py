"""HTTP to the API server: one keep-alive pool, bounded retries, and errors that name the server.

Only what the server asks us to send again (429, or 503 with Retry-After) is repeated for every method. After a broken
connection nobody knows whether a write was done, so then only GETs are repeated.
"""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass, field
from urllib.parse import urlencode, urlsplit

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, ReadTimeoutError, SSLError

from virt_core.kube.connect import Connection
from virt_core.kube.errors import Unreachable, error_from
from virt_core.runtime.clock import Clock, SystemClock
from virt_core.runtime.logs import get_logger
from virt_core.runtime.metrics import Counter

log = get_logger(__name__)

REQUESTS = Counter("virt_kube_requests_total", "Requests to the API server by method and answer.", ("method", "code"))

_ATTEMPTS = 5
_FIRST_BACKOFF_S = 0.1
_CONNECT_TIMEOUT_S = 5.0
#: A server that vanished without a word is noticed by the kernel after a minute, also on a quiet watch.
_SOCKET_OPTIONS = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
]


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = "application/json"
    accept: str = "application/json"

    def target(self, prefix: str) -> str:
        return f"{prefix}{self.path}?{urlencode(self.query)}" if self.query else prefix + self.path


class Transport:
    def __init__(
        self, connection: Connection, user_agent: str, timeout_s: float, clock: Clock | None = None, pool_size: int = 16
    ) -> None:
        self.connection = connection
        self._user_agent = user_agent
        self._timeout_s = timeout_s
        self._clock = clock or SystemClock()
        self._closed = threading.Event()
        url = urlsplit(connection.server)
        self._prefix = url.path.rstrip("/")
        self._pool = _make_pool(connection, url.scheme, url.hostname or "", url.port, pool_size)

    def close(self) -> None:
        """Ends the waits between retries and closes idle connections."""
        self._closed.set()
        self._pool.close()

    def send(self, request: Request, timeout_s: float | None = None) -> bytes:
        """The answer's body. Raises ApiError."""
        limit = timeout_s or self._timeout_s
        deadline = self._clock.monotonic() + limit
        for attempt in range(1, _ATTEMPTS + 1):
            last = attempt == _ATTEMPTS
            try:
                response = self._open(request, limit, stream=False)
            except Unreachable:
                wait_s = _FIRST_BACKOFF_S * 2 ** (attempt - 1)
                if last or request.method != "GET" or not self._pause(wait_s, deadline):
                    raise
                continue
            if response.status < 400:
                return response.data
            retry_s = _retry_after(response)
            if last or retry_s is None or not self._pause(retry_s, deadline):
                raise error_from(response.status, response.data)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def open_stream(self, request: Request, read_timeout_s: float) -> urllib3.BaseHTTPResponse:
        """The open answer of a watch. Raises ApiError; never retries, since a watch has its own way to resume."""
        response = self._open(request, read_timeout_s, stream=True)
        if response.status >= 400:
            try:
                body = response.read(1 << 20)
            finally:
                response.close()
            raise error_from(response.status, body)
        return response

    def _pause(self, seconds: float, deadline: float) -> bool:
        """Waits before a retry; False when there is no time left for one."""
        if self._clock.monotonic() + seconds >= deadline:
            return False
        return not self._clock.wait(self._closed, seconds)

    def _open(self, request: Request, read_timeout_s: float, *, stream: bool) -> urllib3.BaseHTTPResponse:
        headers = {"Accept": request.accept, "User-Agent": self._user_agent, **self.connection.headers()}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        try:
            response = self._pool.urlopen(
                request.method,
                request.target(self._prefix),
                body=request.body,
                headers=headers,
                retries=False,
                redirect=False,
                preload_content=not stream,
                timeout=urllib3.Timeout(connect=min(_CONNECT_TIMEOUT_S, read_timeout_s), read=read_timeout_s),
            )
        except (HTTPError, OSError) as error:
            REQUESTS.inc(request.method, "none")
            raise Unreachable(f"no answer from the API server {self.connection.server}: {_explain(error)}") from error
        REQUESTS.inc(request.method, str(response.status))
        log.debug("request", method=request.method, path=request.path, query=request.query, status=response.status)
        return response


def _make_pool(
    connection: Connection, scheme: str, host: str, port: int | None, size: int
) -> urllib3.HTTPConnectionPool:
    if scheme == "http":
        return urllib3.HTTPConnectionPool(host, port or 80, maxsize=size, socket_options=_SOCKET_OPTIONS)
    name = connection.tls_server_name or None
    return urllib3.HTTPSConnectionPool(
        host,
        port or 443,
        maxsize=size,
        ssl_context=connection.ssl_context(),
        server_hostname=name,
        assert_hostname=False if connection.insecure else name,
        cert_reqs="CERT_NONE" if connection.insecure else "CERT_REQUIRED",
        socket_options=_SOCKET_OPTIONS,
    )


def _retry_after(response: urllib3.BaseHTTPResponse) -> float | None:
    """Seconds after which the server wants the request again; None when it did not say so."""
    if response.status not in (429, 503):
        return None
    value = response.headers.get("Retry-After", "")
    if value.isdigit():
        return float(value)
    return 1.0 if response.status == 429 else None


def _explain(error: Exception) -> str:
    if isinstance(error, NewConnectionError):
        cause = error.__cause__
        return cause.strerror.lower() if isinstance(cause, OSError) and cause.strerror else str(error)
    if isinstance(error, (ConnectTimeoutError, ReadTimeoutError, TimeoutError)):
        return "timed out"
    return f"TLS: {error}" if isinstance(error, SSLError) else str(error)
