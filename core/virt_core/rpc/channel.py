"""gRPC channels with sane reconnect times and a deadline on every call that has none of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

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


if TYPE_CHECKING:
    # Generic only in the stubs.
    _Method = grpc.UnaryUnaryMultiCallable[Any, Any]
else:
    _Method = grpc.UnaryUnaryMultiCallable


class _Bounded(_Method):
    """One RPC of a stub, with a deadline for calls that bring none."""

    def __init__(self, method: Any, timeout_s: float) -> None:
        self._method, self._timeout_s = method, timeout_s

    def __call__(self, request: Any, timeout: float | None = None, *given: Any, **named: Any) -> Any:
        return self._method(request, self._timeout_s if timeout is None else timeout, *given, **named)

    def with_call(self, request: Any, timeout: float | None = None, *given: Any, **named: Any) -> Any:
        return self._method.with_call(request, self._timeout_s if timeout is None else timeout, *given, **named)

    def future(self, request: Any, timeout: float | None = None, *given: Any, **named: Any) -> Any:
        return self._method.future(request, self._timeout_s if timeout is None else timeout, *given, **named)


class _Channel(grpc.Channel):
    """Not by an interceptor of grpc's: that makes the RPC anew for each call, and grpc crashes if somebody closes the
    channel just then. What a stub made once can be called whenever; on a closed channel it raises ValueError.

    Streams stay without a deadline: a console may be open for days."""

    def __init__(self, channel: grpc.Channel, timeout_s: float) -> None:
        self._channel, self._timeout_s = channel, timeout_s

    def unary_unary(self, *given: Any, **named: Any) -> Any:
        return _Bounded(self._channel.unary_unary(*given, **named), self._timeout_s)

    def unary_stream(self, *given: Any, **named: Any) -> Any:
        return self._channel.unary_stream(*given, **named)

    def stream_unary(self, *given: Any, **named: Any) -> Any:
        return self._channel.stream_unary(*given, **named)

    def stream_stream(self, *given: Any, **named: Any) -> Any:
        return self._channel.stream_stream(*given, **named)

    def subscribe(self, callback: Callable[..., None], try_to_connect: bool = False) -> None:
        self._channel.subscribe(callback, try_to_connect)

    def unsubscribe(self, callback: Callable[..., None]) -> None:
        self._channel.unsubscribe(callback)

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> _Channel:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def _with_deadline(channel: grpc.Channel, timeout_s: float) -> grpc.Channel:
    return _Channel(channel, timeout_s)


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
