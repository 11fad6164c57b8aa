"""The node's end of consoles and displays: bytes between a gRPC stream and a socket of QEMU's.

The socket is found in the Pod's volume by the safe way only, and whoever listens on it must be of that Pod. Nothing is
buffered here beyond one chunk each way: who reads slowly slows the other side down.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import grpc

from virt_core.apis import names
from virt_core.rpc.peer import peer_credentials
from virt_core.rpc.status import RpcFailure, failed_precondition, invalid_argument, unavailable
from virt_core.runtime.logs import get_logger
from virt_handler import isolation
from virt_handler.launchers import PodOf
from virt_handler.podfiles import PodFiles, UnsafeFileError, checked_name, connect
from virt_handler.sessions import Session
from virt_protos.node.v1 import node_pb2 as pb

log = get_logger(__name__)

CHUNK = 32 * 1024
CONNECT_TIMEOUT_S = 5.0
MAX_STREAMS = 64

SOCKETS: dict[int, str] = {pb.STREAM_KIND_SERIAL_CONSOLE: names.SOCKET_SERIAL, pb.STREAM_KIND_VNC: names.SOCKET_VNC}


def open_device(files: PodFiles, session: Session, kind: int, pod_of: PodOf = isolation.pod_of) -> socket.socket:
    """Connects to a character device of the machine. Raises RpcFailure."""
    name = SOCKETS[kind]
    try:
        fd = files.open_socket(session.pod_uid, names.VOLUME_PRIVATE, checked_name(session.vmi_uid), name)
    except FileNotFoundError as error:
        raise failed_precondition(f"the machine has no {name}") from error
    except UnsafeFileError as error:
        log.error("refused to connect", vmi=session.key, error=str(error))
        raise failed_precondition(f"{name} is not a socket of the machine") from error
    try:
        device = connect(fd, CONNECT_TIMEOUT_S)
    except OSError as error:
        raise unavailable(f"{name} can not be connected: {error}") from error
    finally:
        os.close(fd)
    listener = peer_credentials(device).pid
    if not _is_of_pod(listener, session.pod_uid, pod_of):
        device.close()
        log.error("refused to connect: the listener is not of the Pod", vmi=session.key, pid=listener)
        raise failed_precondition(f"{name} is not a socket of the machine")
    device.settimeout(None)
    return device


def _is_of_pod(pid: int, pod_uid: str, pod_of: PodOf) -> bool:
    """A listener that has ended (libvirt opens QEMU's sockets and may be restarted) is no reason to refuse."""
    owner = pod_of(pid)
    return owner == pod_uid or (owner is None and pid > 0 and not os.path.exists(f"/proc/{pid}"))


class Exclusive:
    """One client for each device: a new one closes the one before, who may be a forgotten terminal."""

    def __init__(self, limit: int = MAX_STREAMS) -> None:
        self._lock = threading.Lock()
        self._active: dict[tuple[str, int], socket.socket] = {}
        self._limit = limit

    def take_over(self, key: tuple[str, int]) -> None:
        """Ends the present client, before the new one connects: QEMU talks to one at a time."""
        with self._lock:
            former = self._active.pop(key, None)
            if former is None and len(self._active) >= self._limit:
                raise RpcFailure(grpc.StatusCode.RESOURCE_EXHAUSTED, f"more than {self._limit} open streams")
        if former is not None:
            _hang_up(former)

    def hold(self, key: tuple[str, int], device: socket.socket) -> None:
        with self._lock:
            former = self._active.get(key)
            self._active[key] = device
        if former is not None:
            _hang_up(former)

    def release(self, key: tuple[str, int], device: socket.socket) -> bool:
        """False: somebody else has taken the device over."""
        with self._lock:
            held = self._active.get(key) is device
            if held:
                del self._active[key]
            return held


def _hang_up(device: socket.socket) -> None:
    """Wakes whoever reads or writes; they close."""
    try:
        device.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # Not connected any more, which is what we want.


def first_message(requests: Iterator[pb.StreamRequest]) -> pb.OpenStream:
    request = next(requests, None)
    if request is None or request.WhichOneof("message") != "open":
        raise invalid_argument("a stream begins with an open message")
    if request.open.kind not in SOCKETS:
        raise invalid_argument(f"unknown kind of stream {request.open.kind}")
    return request.open


def pump(
    device: socket.socket, requests: Iterator[pb.StreamRequest], context: grpc.ServicerContext
) -> Iterator[pb.StreamResponse]:
    """Both ways until either side ends. The caller's thread carries the device's bytes, one more the client's."""
    context.add_callback(lambda: _hang_up(device))
    writer = threading.Thread(target=_write, args=(device, requests), name="stream-writer", daemon=True)
    writer.start()
    yield pb.StreamResponse(opened=pb.StreamOpened())
    while data := _receive(device):
        yield pb.StreamResponse(data=data)


def _receive(device: socket.socket) -> bytes:
    try:
        return device.recv(CHUNK)
    except OSError:
        return b""


def _write(device: socket.socket, requests: Iterator[Any]) -> None:
    try:
        for request in requests:
            if request.data:
                device.sendall(request.data)
    except (OSError, grpc.RpcError):
        log.debug("a stream's client or device went away")
    except Exception as error:
        # How the request iterator of a cancelled call ends is gRPC's own affair.
        log.debug("a stream's client went away", error=type(error).__name__)
    _hang_up(device)
