"""Streams between virt-api and a guest: who may have which, and the bytes both ways.

A console or display has one client: a new one ends the one before, who may be a forgotten terminal. A machine has four
places for redirected USB devices. Forwarded ports are only counted. Nothing is buffered here beyond one chunk each way:
who reads slowly slows the other side down.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import grpc

from virt_core.apis import names
from virt_core.rpc.status import RpcFailure, invalid_argument
from virt_core.runtime.logs import get_logger
from virt_handler.streams.ends import Wire
from virt_protos.node.v1 import node_pb2 as pb

log = get_logger(__name__)

MAX_STREAMS = 128
#: So that one user's port-forwards do not shut everybody else out.
MAX_STREAMS_PER_POD = 32
USB_SLOTS = 4

#: Socket of the one device of a kind.
SOCKETS: dict[int, str] = {pb.STREAM_KIND_SERIAL_CONSOLE: names.SOCKET_SERIAL, pb.STREAM_KIND_VNC: names.SOCKET_VNC}
KINDS: dict[int, str] = {
    pb.STREAM_KIND_SERIAL_CONSOLE: "console",
    pb.STREAM_KIND_VNC: "vnc",
    pb.STREAM_KIND_USBREDIR: "usbredir",
    pb.STREAM_KIND_VSOCK: "vsock",
    pb.STREAM_KIND_TCP: "tcp",
    pb.STREAM_KIND_UDP: "udp",
}


class Line:
    """One client's place: of a launcher Pod's machine, a kind, and a slot where there are several."""

    def __init__(self, pod_uid: str, kind: int, slot: int) -> None:
        self.key = (pod_uid, kind, slot)
        self.slot = slot
        self.wire: Wire | None = None


class Switchboard:
    """Who has which line. Thread safe."""

    def __init__(self, limit: int = MAX_STREAMS, per_pod: int = MAX_STREAMS_PER_POD) -> None:
        self._lock = threading.Lock()
        self._lines: dict[tuple[str, int, int], Line] = {}
        self._limit, self._per_pod = limit, per_pod
        self._numbers = itertools.count()

    def claim(self, pod_uid: str, kind: int, *, preserve: bool = False) -> Line:
        """Reserves a line before its device is connected: QEMU talks to one at a time. Raises RpcFailure."""
        with self._lock:
            slot = self._slot(pod_uid, kind)
            line = Line(pod_uid, kind, slot)
            former = self._lines.get(line.key)
            if former is not None and preserve:
                raise exhausted(f"another client uses the {KINDS[kind]} of this machine")
            if former is None:
                self._check_limits(pod_uid)
            self._lines[line.key] = line
        if former is not None and former.wire is not None:
            former.wire.hang_up()
        return line

    def connected(self, line: Line, wire: Wire) -> None:
        """Raises RpcFailure when somebody else was faster."""
        with self._lock:
            if self._lines.get(line.key) is line:
                line.wire = wire
                return
        wire.close()
        raise taken_over()

    def release(self, line: Line) -> bool:
        """False: somebody else has taken it over."""
        with self._lock:
            held = self._lines.get(line.key) is line
            if held:
                del self._lines[line.key]
            return held

    def _slot(self, pod_uid: str, kind: int) -> int:
        if kind in SOCKETS:
            return 0
        if kind != pb.STREAM_KIND_USBREDIR:
            return next(self._numbers)
        for slot in range(USB_SLOTS):
            if (pod_uid, kind, slot) not in self._lines:
                return slot
        raise exhausted(f"all {USB_SLOTS} USB slots of this machine are taken")

    def _check_limits(self, pod_uid: str) -> None:
        if len(self._lines) >= self._limit:
            raise exhausted(f"this node already has {self._limit} open streams")
        if Counter(key[0] for key in self._lines)[pod_uid] >= self._per_pod:
            raise exhausted(f"this machine already has {self._per_pod} open streams")


def exhausted(message: str) -> RpcFailure:
    return RpcFailure(grpc.StatusCode.RESOURCE_EXHAUSTED, message)


def taken_over() -> RpcFailure:
    return RpcFailure(grpc.StatusCode.ABORTED, "another client has taken over")


def moved() -> RpcFailure:
    return RpcFailure(grpc.StatusCode.UNAVAILABLE, names.STREAM_MOVED)


def first_message(requests: Iterator[pb.StreamRequest]) -> pb.OpenStream:
    request = next(requests, None)
    if request is None or request.WhichOneof("message") != "open":
        raise invalid_argument("a stream begins with an open message")
    if request.open.kind not in KINDS:
        raise invalid_argument(f"unknown kind of stream {request.open.kind}")
    return request.open


def pump(
    wire: Wire, requests: Iterator[pb.StreamRequest], context: grpc.ServicerContext
) -> Iterator[pb.StreamResponse]:
    """Both ways until either side ends. The caller's thread carries the guest's bytes, one more the client's."""
    context.add_callback(wire.hang_up)
    writer = threading.Thread(target=_write, args=(wire, requests), name="stream-writer", daemon=True)
    writer.start()
    yield pb.StreamResponse(opened=pb.StreamOpened())
    while data := wire.receive():
        yield pb.StreamResponse(data=data)


def _write(wire: Wire, requests: Iterator[Any]) -> None:
    try:
        for request in requests:
            if request.data:
                wire.send(request.data)
    except (OSError, grpc.RpcError):
        log.debug("a stream's client or device went away")
    except Exception as error:
        # How the request iterator of a cancelled call ends is gRPC's own affair.
        log.debug("a stream's client went away", error=type(error).__name__)
    wire.hang_up()
