"""node/v1: what virt-api asks of this node.

Whether the user may is settled there; whether the VMI is here, is settled here. Of the Pods that a VMI may have on this
node, the one that has the guest answers.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from typing import TypeVar

import grpc

from virt_core import __version__
from virt_core.apis import names
from virt_core.rpc.handshake import negotiate
from virt_core.rpc.server import RpcServer, serve_tcp
from virt_core.rpc.status import failed_precondition, invalid_argument, not_found, unavailable
from virt_core.rpc.tls import TlsFiles, require_peer_name
from virt_core.runtime.logs import get_logger
from virt_handler.decisions.domains import bounded, bounded_info
from virt_handler.decisions.silence import Verdict
from virt_handler.loop.roster import Sessions
from virt_handler.loop.sessions import Session
from virt_handler.moves.journal import Journal
from virt_handler.pods import isolation
from virt_handler.pods.files import PodFiles
from virt_handler.pods.launchers import Launcher
from virt_handler.pods.peers import PodOf
from virt_handler.service import answers
from virt_handler.service.forecasts import Forecasts
from virt_handler.service.networks import Networks
from virt_handler.service.turnstile import PER_NAMESPACE, Turnstile
from virt_handler.streams import dial, switchboard
from virt_handler.streams.ends import Wire
from virt_protos.launcher.v1 import launcher_pb2
from virt_protos.node.v1 import node_pb2 as pb
from virt_protos.node.v1 import node_pb2_grpc

log = get_logger(__name__)

#: Each stream holds one thread; the rest is for the short calls, of more than one tenant.
_WORKERS = switchboard.MAX_STREAMS + 3 * PER_NAMESPACE

T = TypeVar("T")


class NodeServicer(node_pb2_grpc.NodeServicer):
    """`tls` is shown to guests that ask for it, on a vsock."""

    def __init__(
        self,
        node_name: str,
        sessions: Sessions,
        files: PodFiles,
        pod_of: PodOf = isolation.pod_of,
        tls: TlsFiles | None = None,
        *,
        forecasts: Forecasts | None = None,
        networks: Networks | None = None,
    ) -> None:
        self._node_name, self._sessions, self._files, self._pod_of = node_name, sessions, files, pod_of
        self._tls = tls
        self._switchboard = switchboard.Switchboard()
        self._turnstile = Turnstile()
        self._forecasts = forecasts or Forecasts(Journal())
        self._networks = networks

    def Hello(self, request: pb.HelloRequest, _context: grpc.ServicerContext) -> pb.HelloResponse:
        version = negotiate(request.versions, peer="virt-api")
        return pb.HelloResponse(version=version, program_version=__version__, node_name=self._node_name)

    def Stream(
        self, request_iterator: Iterator[pb.StreamRequest], context: grpc.ServicerContext
    ) -> Iterator[pb.StreamResponse]:
        opening = switchboard.first_message(request_iterator)
        session = self._running(opening.vmi)
        line = self._switchboard.claim(session.pod_uid, opening.kind, preserve=opening.preserve_session)
        try:
            wire = self._dial(session, opening, line)
            self._switchboard.connected(line, wire)
            log.info("stream opened", vmi=session.key, kind=switchboard.KINDS[opening.kind])
            try:
                yield from switchboard.pump(wire, request_iterator, context)
            finally:
                wire.close()
                log.info("stream closed", vmi=session.key, kind=switchboard.KINDS[opening.kind])
        finally:
            held = self._switchboard.release(line)
        if not held:
            raise switchboard.taken_over()
        if _is_leaving(session):
            raise switchboard.moved()

    def _dial(self, session: Session, opening: pb.OpenStream, line: switchboard.Line) -> Wire:
        if opening.kind == pb.STREAM_KIND_TCP:
            return dial.tcp(session, opening.port)
        if opening.kind == pb.STREAM_KIND_UDP:
            return dial.udp(session, opening.port)
        if opening.kind == pb.STREAM_KIND_VSOCK:
            # The address is the one that this node knows of: a caller must not reach another guest by it.
            if opening.cid != session.vsock_cid:
                raise invalid_argument(f"{opening.cid} is not the vsock address of VMI {session.key}")
            return dial.vsock(session, opening.cid, opening.port, self._guest_tls() if opening.tls else None)
        name = switchboard.SOCKETS.get(opening.kind) or f"{names.SOCKET_USBREDIR_PREFIX}{line.slot}"
        return dial.device(self._files, session, name, self._pod_of)

    def _guest_tls(self) -> ssl.SSLContext:
        if self._tls is None:
            raise failed_precondition("virt-handler on this node has no certificate to show to a guest")
        return self._tls.guest_context()

    def Pause(self, request: pb.VMIRequest, _context: grpc.ServicerContext) -> pb.VMIResponse:
        return self._command(request, Launcher.pause)

    def Unpause(self, request: pb.VMIRequest, _context: grpc.ServicerContext) -> pb.VMIResponse:
        return self._command(request, Launcher.unpause)

    def GetGuestInfo(self, request: pb.VMIRequest, _context: grpc.ServicerContext) -> pb.GetGuestInfoResponse:
        return pb.GetGuestInfoResponse(info=bounded_info(self._ask(request.vmi, Launcher.get_guest_info)))

    def GetDomain(self, request: pb.VMIRequest, _context: grpc.ServicerContext) -> pb.GetDomainResponse:
        return pb.GetDomainResponse(domain=bounded(self._ask(request.vmi, Launcher.get_domain)))

    def SoftReboot(self, request: pb.VMIRequest, _context: grpc.ServicerContext) -> pb.VMIResponse:
        return self._command(request, Launcher.soft_reboot)

    def Reset(self, request: pb.VMIRequest, _context: grpc.ServicerContext) -> pb.VMIResponse:
        return self._command(request, Launcher.reset)

    def Freeze(self, request: pb.FreezeRequest, _context: grpc.ServicerContext) -> pb.VMIResponse:
        self._ask(request.vmi, lambda launcher: launcher.freeze(request.unfreeze_timeout_seconds))
        return pb.VMIResponse()

    def Unfreeze(self, request: pb.VMIRequest, _context: grpc.ServicerContext) -> pb.VMIResponse:
        return self._command(request, Launcher.unfreeze)

    def Screenshot(self, request: pb.VMIRequest, _context: grpc.ServicerContext) -> pb.ScreenshotResponse:
        return pb.ScreenshotResponse(image=answers.picture(self._ask(request.vmi, Launcher.screenshot)))

    def GetUsers(self, request: pb.VMIRequest, _context: grpc.ServicerContext) -> pb.GetUsersResponse:
        return pb.GetUsersResponse(users=answers.users(self._ask(request.vmi, Launcher.get_users)))

    def GetFilesystems(self, request: pb.VMIRequest, _context: grpc.ServicerContext) -> pb.GetFilesystemsResponse:
        found = self._ask(request.vmi, Launcher.get_filesystems)
        return pb.GetFilesystemsResponse(filesystems=answers.filesystems(found))

    def GetSevInfo(self, request: pb.VMIRequest, _context: grpc.ServicerContext) -> launcher_pb2.GetSevInfoResponse:
        """About the processor, so also before the guest runs: its owner needs it to set up the session."""
        return answers.sev_info(self._ask(request.vmi, Launcher.get_sev_info, runs=False))

    def GetLaunchMeasurement(
        self, request: pb.VMIRequest, _context: grpc.ServicerContext
    ) -> launcher_pb2.GetLaunchMeasurementResponse:
        return answers.measurement(self._ask(request.vmi, Launcher.get_launch_measurement))

    def InjectLaunchSecret(
        self, request: pb.InjectLaunchSecretRequest, _context: grpc.ServicerContext
    ) -> pb.VMIResponse:
        self._ask(request.vmi, lambda launcher: launcher.inject_launch_secret(request.header, request.secret))
        return pb.VMIResponse()

    def GetMove(self, request: pb.GetMoveRequest, _context: grpc.ServicerContext) -> pb.GetMoveResponse:
        """Also when the machine has left: its Pod may be gone by then."""
        found = self._forecasts.journal.of(request.vmi.uid, request.job_uid)
        if found is None:
            raise not_found(
                f"no move of VMI {request.vmi.namespace}/{request.vmi.name} has left node {self._node_name}"
            )
        return pb.GetMoveResponse(move=found)

    def ForecastMove(self, request: pb.ForecastMoveRequest, _context: grpc.ServicerContext) -> pb.ForecastMoveResponse:
        domain = self._running(request.vmi).view().domain or launcher_pb2.Domain()
        return self._ask(request.vmi, lambda launcher: self._forecasts.make(launcher, domain, request))

    def GetNetwork(self, request: pb.VMIRequest, _context: grpc.ServicerContext) -> pb.GetNetworkResponse:
        """Also before the guest runs: its network may be why it does not."""
        session = self._session(request.vmi)
        if self._networks is None:
            raise unavailable("virt-handler on this node has no network yet")
        with self._turnstile.through(session.record.namespace, session.vmi_uid):
            return self._networks.of(session)

    def _command(self, request: pb.VMIRequest, command: Callable[[Launcher], None]) -> pb.VMIResponse:
        self._ask(request.vmi, command)
        return pb.VMIResponse()

    def _ask(self, ref: pb.VMIRef, call: Callable[[Launcher], T], *, runs: bool = True) -> T:
        session = self._running(ref) if runs else self._session(ref)
        launcher = session.launcher
        if launcher is None:
            raise failed_precondition(f"VMI {session.key} has no launcher")
        if session.pulse.verdict() is not Verdict.FINE:
            raise unavailable(f"the launcher of VMI {session.key} does not answer")
        with self._turnstile.through(session.record.namespace, session.vmi_uid):
            return call(launcher)

    def _session(self, ref: pb.VMIRef) -> Session:
        """The UID decides: a VMI of the same name that was made anew is another one."""
        key = f"{ref.namespace}/{ref.name}"
        if not any(session.key == key for session in self._sessions.of_vmi(ref.uid)):
            raise not_found(f"VMI {key} with UID {ref.uid} is not on node {self._node_name}")
        session = self._sessions.active(ref.uid)
        if session is None:
            raise failed_precondition(f"VMI {key} has no guest on node {self._node_name}, though it has a Pod there")
        return session

    def _running(self, ref: pb.VMIRef) -> Session:
        session = self._session(ref)
        if not session.runs():
            raise failed_precondition(f"VMI {ref.namespace}/{ref.name} is not running")
        return session


def _is_leaving(session: Session) -> bool:
    """Its devices close with QEMU, before anybody has told that the guest has arrived elsewhere."""
    domain = session.view().domain
    return domain is not None and bool(domain.move.uid) and not domain.move.failed


def serve(address: str, tls: TlsFiles, servicer: NodeServicer, api_name: str = names.TLS_NAME_API) -> RpcServer:
    """Only virt-api may call: its certificate carries its role."""
    return serve_tcp(
        address,
        [lambda server: node_pb2_grpc.add_NodeServicer_to_server(servicer, server)],
        tls,
        workers=_WORKERS,
        guard=lambda context: require_peer_name(context, api_name),
        name="node-rpc",
    )
