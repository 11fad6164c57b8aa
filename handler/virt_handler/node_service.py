"""node/v1: what virt-api asks of this node.

Whether the user may is settled there; whether the VMI is here, is settled here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import grpc

from virt_core import __version__
from virt_core.apis import names
from virt_core.rpc.handshake import negotiate
from virt_core.rpc.server import RpcServer, serve_tcp
from virt_core.rpc.status import RpcFailure, failed_precondition, not_found
from virt_core.rpc.tls import TlsFiles, require_peer_name
from virt_core.runtime.logs import get_logger
from virt_handler import isolation, streams
from virt_handler.launchers import Launcher, PodOf
from virt_handler.podfiles import PodFiles
from virt_handler.sessions import Session, Sessions
from virt_protos.launcher.v1 import launcher_pb2
from virt_protos.node.v1 import node_pb2 as pb
from virt_protos.node.v1 import node_pb2_grpc

log = get_logger(__name__)

#: Each stream holds one thread; the rest is for the short calls.
_WORKERS = streams.MAX_STREAMS + 16


class NodeServicer(node_pb2_grpc.NodeServicer):
    def __init__(self, node_name: str, sessions: Sessions, files: PodFiles, pod_of: PodOf = isolation.pod_of) -> None:
        self._node_name, self._sessions, self._files, self._pod_of = node_name, sessions, files, pod_of
        self._exclusive = streams.Exclusive()

    def Hello(self, request: pb.HelloRequest, _context: grpc.ServicerContext) -> pb.HelloResponse:
        version = negotiate(request.versions, peer="virt-api")
        return pb.HelloResponse(version=version, program_version=__version__, node_name=self._node_name)

    def Stream(
        self, request_iterator: Iterator[pb.StreamRequest], context: grpc.ServicerContext
    ) -> Iterator[pb.StreamResponse]:
        opening = streams.first_message(request_iterator)
        session = self._running(opening.vmi)
        key = (session.vmi_uid, int(opening.kind))
        self._exclusive.take_over(key)
        device = streams.open_device(self._files, session, opening.kind, self._pod_of)
        self._exclusive.hold(key, device)
        log.info("stream opened", vmi=session.key, kind=streams.SOCKETS[opening.kind])
        try:
            yield from streams.pump(device, request_iterator, context)
        finally:
            held = self._exclusive.release(key, device)
            device.close()
            log.info("stream closed", vmi=session.key)
        if not held:
            raise RpcFailure(grpc.StatusCode.ABORTED, "another client has taken over")

    def Pause(self, request: pb.VMIRequest, _context: grpc.ServicerContext) -> pb.VMIResponse:
        return self._command(request, Launcher.pause)

    def Unpause(self, request: pb.VMIRequest, _context: grpc.ServicerContext) -> pb.VMIResponse:
        return self._command(request, Launcher.unpause)

    def GetGuestInfo(self, request: pb.VMIRequest, _context: grpc.ServicerContext) -> pb.GetGuestInfoResponse:
        return pb.GetGuestInfoResponse(info=self._launcher(request.vmi).get_guest_info())

    def GetDomain(self, request: pb.VMIRequest, _context: grpc.ServicerContext) -> pb.GetDomainResponse:
        domain: launcher_pb2.Domain = self._launcher(request.vmi).get_domain()
        return pb.GetDomainResponse(domain=domain)

    def _command(self, request: pb.VMIRequest, command: Callable[[Launcher], None]) -> pb.VMIResponse:
        command(self._launcher(request.vmi))
        return pb.VMIResponse()

    def _launcher(self, ref: pb.VMIRef) -> Launcher:
        launcher = self._running(ref).launcher
        if launcher is None:
            raise failed_precondition(f"VMI {ref.namespace}/{ref.name} has no launcher")
        return launcher

    def _running(self, ref: pb.VMIRef) -> Session:
        """The UID decides: a VMI of the same name that was made anew is another one."""
        session = self._sessions.get(ref.uid)
        if session is None or session.key != f"{ref.namespace}/{ref.name}":
            raise not_found(f"VMI {ref.namespace}/{ref.name} with UID {ref.uid} is not on node {self._node_name}")
        if not session.runs():
            raise failed_precondition(f"VMI {ref.namespace}/{ref.name} does not run")
        return session


def serve(address: str, tls: TlsFiles, servicer: NodeServicer) -> RpcServer:
    """Only virt-api may call: its certificate carries its role."""
    return serve_tcp(
        address,
        [lambda server: node_pb2_grpc.add_NodeServicer_to_server(servicer, server)],
        tls,
        workers=_WORKERS,
        guard=lambda context: require_peer_name(context, names.TLS_NAME_API),
        name="node-rpc",
    )
