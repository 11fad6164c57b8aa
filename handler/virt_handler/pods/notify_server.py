"""What launchers tell us, one listener for each Pod.

The listener is the identity: it lives in the volume of one Pod and speaks for the VMI of that Pod whatever a message
says. Who connects must be a process of that Pod, as the kernel says: other users of the machine may find a way to the
volume. How much a launcher may say is bounded, here and at the gate: a guest that took its launcher over must not be
able to flood the node or the API server through us.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from typing import Any

import grpc

from virt_core import __version__
from virt_core.apis import names
from virt_core.rpc.handshake import negotiate
from virt_core.rpc.server import RpcServer, serve_unix
from virt_core.rpc.status import RpcFailure, invalid_argument
from virt_core.runtime.logs import get_logger
from virt_handler.decisions.limits import MAX_NOTIFY_BYTES, clip
from virt_handler.loop.sessions import Session
from virt_handler.pods.files import PodFiles
from virt_handler.pods.gate import Gate
from virt_handler.pods.peers import PodOf, is_of_pod
from virt_handler.pods.sockets import make_listener, remove
from virt_protos.notify.v1 import notify_pb2 as pb
from virt_protos.notify.v1 import notify_pb2_grpc

log = get_logger(__name__)

_REASON = re.compile(r"[A-Z][A-Za-z0-9]{0,63}")
#: How soon the loop asks a launcher that talks too much.
_ASK_AFTER_S = 1.0
#: Less than the gate waits, which cuts where gRPC says goodbye.
_IDLE_S = 60.0
_EVENT_TYPES = (names.EVENT_NORMAL, names.EVENT_WARNING)

#: session, seconds → the loop should look at it then.
Wake = Callable[[Session, float], object]
#: session, type, reason, message.
Tell = Callable[[Session, str, str, str], object]


class NotifyServicer(notify_pb2_grpc.NotifyServicer):
    def __init__(self, session: Session, wake: Wake, tell: Tell) -> None:
        self._session, self._wake, self._tell = session, wake, tell

    def Hello(self, request: pb.HelloRequest, _context: grpc.ServicerContext) -> pb.HelloResponse:
        return pb.HelloResponse(version=negotiate(request.versions, peer="the launcher"), program_version=__version__)

    def DomainChanged(
        self, request: pb.DomainChangedRequest, _context: grpc.ServicerContext
    ) -> pb.DomainChangedResponse:
        session = self._session
        if not session.domain_rate.take():
            # What is refused must not be lost: the loop asks by itself, in its own time.
            session.stale = True
            self._wake(session, _ASK_AFTER_S)
            raise RpcFailure(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many messages; the node will ask")
        if session.domain_told(request.domain, request.sequence):
            self._wake(session, 0.0)
        return pb.DomainChangedResponse()

    def RecordEvent(self, request: pb.RecordEventRequest, _context: grpc.ServicerContext) -> pb.RecordEventResponse:
        if request.type not in _EVENT_TYPES or not _REASON.fullmatch(request.reason):
            raise invalid_argument("an event needs the type Normal or Warning and a CamelCase reason")
        if not self._session.event_rate.take():
            raise RpcFailure(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many events")
        self._tell(self._session, request.type, request.reason, clip(request.message))
        return pb.RecordEventResponse()


class NotifyListener:
    """The open listener of one session: a door in the Pod's volume, and the gRPC server behind it."""

    def __init__(self, files: PodFiles, session: Session, gate: Gate, servicer: NotifyServicer, pod_of: PodOf) -> None:
        self._gate, self._inner = gate, gate.inner_name(session.pod_uid)
        self._directory = files.open_volume(session.pod_uid, names.VOLUME_SOCKETS)
        try:
            self._server = self._serve(servicer)
            try:
                listener = make_listener(self._directory, names.SOCKET_NOTIFY)
            except BaseException:
                self._server.stop(0)
                raise
        except BaseException:
            os.close(self._directory)
            raise
        self._door = gate.open(listener, self._inner, lambda peer: is_of_pod(peer, session.pod_uid, pod_of))

    def _serve(self, servicer: Any) -> RpcServer:
        return serve_unix(
            self._inner,
            [lambda server: notify_pb2_grpc.add_NotifyServicer_to_server(servicer, server)],
            dir_fd=self._gate.directory,
            workers=2,
            name="notify",
            max_message_bytes=MAX_NOTIFY_BYTES,
            idle_s=_IDLE_S,
        )

    def close(self) -> None:
        self._gate.close(self._door)
        self._server.stop(0)
        remove(self._gate.directory, self._inner)
        with contextlib.suppress(OSError):
            # What the launcher may have put there instead is none of our business any more.
            remove(self._directory, names.SOCKET_NOTIFY)
        os.close(self._directory)
