"""gRPC servers on a unix socket or on TCP with mutual TLS, with a bounded number of threads and of waiting calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import grpc

from virt_core.rpc.interceptor import FailureInterceptor, Interceptor

if TYPE_CHECKING:
    # virt-launcher serves within its Pod only: importing ssl would cost it 10 ms for each VM.
    from virt_core.rpc.tls import TlsFiles

#: Adds a servicer to a server, e.g. `lambda server: add_LauncherServicer_to_server(servicer, server)`.
Registration = Callable[[grpc.Server], object]
Guard = Callable[[grpc.ServicerContext], object]

MAX_MESSAGE_BYTES = 8 << 20
#: Our peers need one each.
MAX_CONNECTIONS = 256
_NEVER_MS = 2**31 - 1

_OPTIONS: dict[str, int] = {
    "grpc.so_reuseport": 0,
    # Peers may ping a quiet connection this often without being cut off.
    "grpc.http2.min_ping_interval_without_data_ms": 5000,
    "grpc.keepalive_permit_without_calls": 1,
    "grpc.keepalive_time_ms": 30000,
    "grpc.keepalive_timeout_ms": 10000,
    # Who may call is known only after the handshake; until then everybody costs a descriptor.
    "grpc.max_allowed_incoming_connections": MAX_CONNECTIONS,
    "grpc.server_handshake_timeout_ms": 10000,
}


class RpcServer:
    """A started server. `run(stop)` is a thread body for the supervisor; `stop` is for everyone else."""

    def __init__(self, server: grpc.Server, port: int, pool: ThreadPoolExecutor) -> None:
        self._server = server
        self._pool = pool
        self.port = port

    def run(self, stop: threading.Event, grace_s: float = 5.0) -> None:
        stop.wait()
        self.stop(grace_s)

    def stop(self, grace_s: float = 5.0) -> bool:
        """Refuses new calls at once and cancels the running ones after the grace. True: all of them ended."""
        ended = bool(self._server.stop(grace_s).wait(grace_s + 1.0))
        self._pool.shutdown(wait=False, cancel_futures=True)
        return ended


def serve_unix(
    path: str,
    handlers: Sequence[Registration],
    *,
    dir_fd: int | None = None,
    workers: int = 8,
    guard: Guard | None = None,
    name: str = "rpc",
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    idle_s: float = 0.0,
) -> RpcServer:
    """Serves on a socket file. With `dir_fd` the path is relative to that open directory, which must stay open. With
    `idle_s` connections without a call are let go, and nobody is woken to see whether they are still there.

    The kernel takes 107 bytes at most for such a path, which a Pod's directory exceeds; the way over the descriptor is
    short, and nobody can swap the directory meanwhile.
    """
    address = path if dir_fd is None else f"/proc/self/fd/{dir_fd}/{path}"
    more = {"grpc.max_receive_message_length": max_message_bytes}
    if idle_s:
        more |= {"grpc.max_connection_idle_ms": int(idle_s * 1000), "grpc.keepalive_time_ms": _NEVER_MS}
    server, pool = _make(workers, guard, name, more)
    _register(server, handlers)
    return _start(server, pool, server.add_insecure_port(f"unix:{address}"), path)


def serve_tcp(
    address: str,
    handlers: Sequence[Registration],
    tls: TlsFiles,
    *,
    workers: int = 32,
    guard: Guard | None = None,
    name: str = "rpc",
) -> RpcServer:
    """Serves on `host:port` with mutual TLS. Port 0: see `.port`."""
    server, pool = _make(workers, guard, name, {"grpc.max_receive_message_length": MAX_MESSAGE_BYTES})
    _register(server, handlers)
    return _start(server, pool, server.add_secure_port(address, tls.server_credentials()), address)


def _make(
    workers: int, guard: Guard | None, name: str, more: Mapping[str, int]
) -> tuple[grpc.Server, ThreadPoolExecutor]:
    options = list((_OPTIONS | dict(more)).items())
    pool = ThreadPoolExecutor(workers, thread_name_prefix=name)
    interceptors: list[Interceptor] = [FailureInterceptor(guard)]
    return grpc.server(pool, interceptors=interceptors, options=options, maximum_concurrent_rpcs=workers * 4), pool


def _register(server: grpc.Server, handlers: Sequence[Registration]) -> None:
    for handler in handlers:
        handler(server)


def _start(server: grpc.Server, pool: ThreadPoolExecutor, port: int, where: str) -> RpcServer:
    if not port:
        raise OSError(f"cannot listen on {where}")
    server.start()
    return RpcServer(server, port, pool)
