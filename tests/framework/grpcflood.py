"""Floods of a gRPC server by somebody without a token, to be held while a test looks how honest callers fare.

    with health_watches(address, ca, 512) as flood: ...     streams of Health.Watch
    with half_sent(address, ca, METHOD, 512) as flood: ...  calls whose message never comes
    with idle_connections(host, port, 2000): ...            connections that never say a word

`flood.held()` is how many of them the server still carries.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import grpc
from framework.waiting import eventually
from grpc_health.v1 import health_pb2, health_pb2_grpc

#: As many as a server lets a connection have, or more.
PER_CONNECTION = 64
_SETTLED_S = 20.0


class Flood:
    def __init__(self, calls: Sequence[Any]) -> None:
        self._calls = calls

    def held(self) -> int:
        return sum(call.is_active() for call in self._calls)


def _channels(address: str, ca: bytes, count: int, stack: ExitStack) -> Iterator[grpc.Channel]:
    """A connection of its own for each."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    for _ in range(count):
        credentials = grpc.ssl_channel_credentials(ca)
        yield stack.enter_context(grpc.secure_channel(address, credentials, options=options))


@contextmanager
def _flood(address: str, ca: bytes, count: int, call: Callable[[grpc.Channel], Any]) -> Iterator[Flood]:
    """Held when the server has seen each call: it has answered, or refused."""
    with ExitStack() as stack:
        channels = _channels(address, ca, -(-count // PER_CONNECTION), stack)
        calls = [call(channel) for channel in channels for _ in range(PER_CONNECTION)][:count]
        for each in calls:
            stack.callback(each.cancel)
        yield Flood(calls)


@contextmanager
def health_watches(address: str, ca: bytes, count: int = 512) -> Iterator[Flood]:
    def watch(channel: grpc.Channel) -> Any:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        stream = stub.Watch(health_pb2.HealthCheckRequest())
        answered = threading.Thread(target=_first, args=(stream,), daemon=True)
        answered.start()
        seen.append(answered)
        return stream

    seen: list[threading.Thread] = []
    with _flood(address, ca, count, watch) as flood:
        eventually(lambda: not any(each.is_alive() for each in seen), _SETTLED_S)
        yield flood


def _first(stream: Any) -> None:
    """Waits for the first answer; a refusal is one."""
    try:
        next(stream)
    except (grpc.RpcError, StopIteration):
        return


@contextmanager
def half_sent(
    address: str, ca: bytes, method: str, count: int = 512, metadata: Sequence[tuple[str, str]] = ()
) -> Iterator[Flood]:
    """Headers only. For the server a stream without messages begins as any call does."""
    done = threading.Event()

    def never() -> Iterator[bytes]:
        done.wait()
        yield from ()

    def begin(channel: grpc.Channel) -> Any:
        call: Any = channel.stream_unary(method)
        return call.future(never(), metadata=list(metadata), wait_for_ready=True)

    try:
        with _flood(address, ca, count, begin) as flood:
            yield flood
    finally:
        done.set()


@contextmanager
def idle_connections(host: str, port: int, count: int, source: str = "") -> Iterator[list[socket.socket]]:
    """As many as the server takes; it may close them."""
    with ExitStack() as stack:
        opened = []
        for _ in range(count):
            try:
                client = socket.create_connection((host, port), timeout=1.0, source_address=(source, 0))
            except OSError:
                break
            opened.append(stack.enter_context(client))
            client.setblocking(False)
        yield opened


def is_open(client: socket.socket) -> bool:
    """Whether the server has not hung up."""
    try:
        return bool(client.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return True
    except OSError:
        return False
