"""gRPC channels with sane reconnect times and a deadline on every call that has none of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc

if TYPE_CHECKING:
    # virt-launcher speaks within its Pod only: importing ssl would cost it 10 ms for each VM.
    from virt_core.rpc.tls import TlsFiles, TlsMaterial

DEFAULT_TIMEOUT_S = 20.0

_OPTIONS: list[tuple[str, Any]] = [
    # gRPC shares connections by target text. /proc/self/fd/7 is one launcher today and another tomorrow.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 3000),
    ("grpc.keepalive_time_ms", 20000),
    ("grpc.keepalive_timeout_ms", 5000),
    ("grpc.max_receive_message_length", 8 << 20),
]


def unix_channel(path_or_fd: str | int, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> grpc.Channel:
    """By path, or by the descriptor of `files.connectable_socket`, which must stay open as long as the channel."""
    path = f"/proc/self/fd/{path_or_fd}" if isinstance(path_or_fd, int) else path_or_fd
    return _with_deadline(grpc.insecure_channel(f"unix:{path}", options=_OPTIONS), timeout_s)


def tls_channel(address: str, tls: TlsFiles, *, server_name: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> grpc.Channel:
    """To `host:port`; the server's certificate must carry `server_name`, its role, whatever its address is."""
    options = [*_OPTIONS, ("grpc.ssl_target_name_override", server_name)]
    return _with_deadline(grpc.secure_channel(address, tls.channel_credentials(), options=options), timeout_s)


class _Details(NamedTuple):
    """grpc's own class for this is private."""

    method: str
    timeout: float | None
    metadata: Any
    credentials: Any
    wait_for_ready: Any
    compression: Any


if TYPE_CHECKING:
    # Generic only in the stubs.
    _Interceptor = grpc.UnaryUnaryClientInterceptor[Any, Any]
else:
    _Interceptor = grpc.UnaryUnaryClientInterceptor


class _Deadline(_Interceptor):
    """Streams stay without one: a console may be open for days."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    def intercept_unary_unary(self, continuation: Callable[..., Any], client_call_details: Any, request: Any) -> Any:
        if client_call_details.timeout is not None:
            return continuation(client_call_details, request)
        given = client_call_details
        details = _Details(
            given.method, self._timeout_s, given.metadata, given.credentials, given.wait_for_ready, given.compression
        )
        return continuation(details, request)


def _with_deadline(channel: grpc.Channel, timeout_s: float) -> grpc.Channel:
    return grpc.intercept_channel(channel, _Deadline(timeout_s))


class ChannelCache:
    """One TLS channel for each address, made anew when our certificates change. Thread safe."""

    def __init__(self, tls: TlsFiles, server_name: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._tls, self._server_name, self._timeout_s = tls, server_name, timeout_s
        self._lock = threading.Lock()
        self._channels: dict[str, tuple[TlsMaterial, grpc.Channel]] = {}

    def get(self, address: str) -> grpc.Channel:
        material = self._tls.current()
        with self._lock:
            known = self._channels.get(address)
            if known is not None and known[0] == material:
                return known[1]
            # The old channel is left to the calls that still run on it; it goes with the last of them.
            channel = tls_channel(address, self._tls, server_name=self._server_name, timeout_s=self._timeout_s)
            self._channels[address] = (material, channel)
            return channel

    def forget(self, address: str) -> None:
        """The node is gone."""
        with self._lock:
            known = self._channels.pop(address, None)
        if known is not None:
            known[1].close()

    def close(self) -> None:
        with self._lock:
            channels, self._channels = list(self._channels.values()), {}
        for _, channel in channels:
            channel.close()
