"""Tells virt-handler about the machine, over the socket that virt-handler opens in our Pod.

Only the newest state counts: a slow or absent virt-handler delays nobody and loses nothing but states that are already
history. When the socket appears anew (virt-handler was restarted), the whole state is sent again.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from pathlib import Path

import grpc

import virt_core
from virt_core.rpc.channel import unix_channel
from virt_core.rpc.handshake import PROTOCOL_VERSIONS
from virt_core.rpc.status import failure_of
from virt_core.runtime.inotify import IN_CREATE, IN_MOVED_TO, Inotify
from virt_core.runtime.logs import get_logger
from virt_launcher.machine.state import MachineView
from virt_launcher.service.messages import domain_message
from virt_protos.notify.v1 import notify_pb2 as pb
from virt_protos.notify.v1.notify_pb2_grpc import NotifyStub

log = get_logger(__name__)

_SEND_TIMEOUT_S = 5.0
_BACKOFF_S = (0.05, 2.0)
_MAX_REMARKS = 16


class NotifyClient:
    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._changed = threading.Condition()
        self._view: MachineView | None = None
        self._version = 0
        self._delivered = 0
        self._sequence = 0
        self._remarks: deque[pb.RecordEventRequest] = deque(maxlen=_MAX_REMARKS)
        self._channel: grpc.Channel | None = None
        self._complained = False

    # -- from other threads ----------------------------------------------------------------------------------------

    def publish(self, view: MachineView) -> None:
        """Never blocks."""
        with self._changed:
            self._view = view
            self._version += 1
        self.wake()

    def record(self, kind: str, reason: str, message: str) -> None:
        with self._changed:
            self._remarks.append(pb.RecordEventRequest(type=kind, reason=reason, message=message))
        self.wake()

    def wake(self) -> None:
        os.eventfd_write(self._wake, 1)

    def flush(self, timeout_s: float) -> bool:
        """Waits until virt-handler has the newest state."""
        with self._changed:
            return self._changed.wait_for(lambda: self._delivered >= self._version, timeout_s)

    # -- the sending thread ----------------------------------------------------------------------------------------

    def run(self, stop: threading.Event) -> None:
        pause = 0.0
        with Inotify() as inotify:
            inotify.watch(self._socket.parent, IN_CREATE | IN_MOVED_TO)
            while not stop.is_set():
                pause = 0.0 if self.deliver() else min(max(pause * 2, _BACKOFF_S[0]), _BACKOFF_S[1])
                self._wait(inotify, pause)
        self._disconnect()

    def _wait(self, inotify: Inotify, pause: float) -> None:
        """Until there is something to send, a new socket, or after a failure the time for another try."""
        events = inotify.wait(pause or None, self._wake)
        self._drain_wake()
        if any(event.overflow or event.name == self._socket.name for event in events):
            # A new virt-handler: it knows nothing of what the old one has acknowledged.
            self._disconnect()
            with self._changed:
                self._delivered = 0

    def deliver(self) -> bool:
        """Sends what is pending. False: try again later. Without a socket there is nothing to try until it comes."""
        if not self._socket.exists():
            return True
        with self._changed:
            view, version = self._view, self._version
            pending = view is not None and self._delivered < version
            remarks = list(self._remarks)
        if not pending and not remarks:
            return True
        try:
            self._send(view if pending else None, remarks)
        except grpc.RpcError as error:
            self._complain(str(failure_of(error)))
            self._disconnect()
            return False
        with self._changed:
            self._delivered = max(self._delivered, version if pending else 0)
            for remark in remarks:
                if remark in self._remarks:
                    self._remarks.remove(remark)
            self._changed.notify_all()
        self._complained = False
        return True

    def _send(self, view: MachineView | None, remarks: list[pb.RecordEventRequest]) -> None:
        stub = self._stub()
        if view is not None:
            self._sequence += 1
            request = pb.DomainChangedRequest(domain=domain_message(view), sequence=self._sequence)
            stub.DomainChanged(request, timeout=_SEND_TIMEOUT_S)
        for remark in remarks:
            stub.RecordEvent(remark, timeout=_SEND_TIMEOUT_S)

    def _stub(self) -> NotifyStub:
        if self._channel is not None:
            return NotifyStub(self._channel)
        channel = unix_channel(str(self._socket), timeout_s=_SEND_TIMEOUT_S)
        stub = NotifyStub(channel)
        try:
            stub.Hello(pb.HelloRequest(versions=PROTOCOL_VERSIONS, program_version=virt_core.__version__))
        except grpc.RpcError:
            channel.close()
            raise
        self._channel = channel
        return stub

    def _disconnect(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _complain(self, error: str) -> None:
        if not self._complained:
            self._complained = True
            log.warning("virt-handler cannot be told about the machine now; trying on", error=error)

    def _drain_wake(self) -> None:
        try:
            os.eventfd_read(self._wake)
        except BlockingIOError:
            pass  # Nobody woke us; the time was over or the socket changed.
