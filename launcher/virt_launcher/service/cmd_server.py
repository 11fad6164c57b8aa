"""The command socket: protobuf in, manager calls, protobuf out; each launcher error becomes its gRPC status code."""

# ruff: noqa: ARG002 - gRPC fixes the signature of every method
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import grpc

import virt_core
from virt_core.apis.base import UNREADABLE, decode
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.rpc.handshake import negotiate
from virt_core.rpc.server import RpcServer, serve_unix
from virt_core.rpc.status import RpcFailure
from virt_launcher.convert.context import Attachment, Smbios
from virt_launcher.errors import InvalidVMIError, LauncherError, NoMachineError, UnavailableError, WrongStateError
from virt_launcher.hypervisor.ports import State
from virt_launcher.machine.manager import DomainManager, SyncOptions
from virt_launcher.service.messages import (
    domain_message,
    dump_kind,
    filesystem_message,
    guest_info_message,
    measurement_message,
    synced_message,
    user_message,
)
from virt_launcher.settings import Settings
from virt_protos.launcher.v1 import launcher_pb2 as pb
from virt_protos.launcher.v1.launcher_pb2_grpc import LauncherServicer, add_LauncherServicer_to_server

_CODES: tuple[tuple[type[LauncherError], grpc.StatusCode], ...] = (
    (InvalidVMIError, grpc.StatusCode.INVALID_ARGUMENT),
    (WrongStateError, grpc.StatusCode.FAILED_PRECONDITION),
    (NoMachineError, grpc.StatusCode.NOT_FOUND),
    (UnavailableError, grpc.StatusCode.UNAVAILABLE),
    (LauncherError, grpc.StatusCode.INTERNAL),
)
_WORKERS = 4


@contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except LauncherError as error:
        code = next(code for kind, code in _CODES if isinstance(error, kind))
        raise RpcFailure(code, str(error)) from error


def options_from(message: pb.SyncOptions) -> SyncOptions:
    smbios = message.smbios
    given = {
        name: text
        for name in ("manufacturer", "product", "version", "sku", "family")
        if (text := getattr(smbios, name))
    }
    return SyncOptions(
        allow_emulation=message.allow_emulation,
        capability_cache={file.name: file.content for file in message.capability_cache},
        attachments={i.name: _attachment(i) for i in message.interfaces},
        smbios=Smbios(**given),
        memballoon_stats_period_s=message.memballoon_stats_period_seconds,
    )


def _attachment(told: pb.InterfaceAttachment) -> Attachment:
    return Attachment(told.tap, told.mac, told.mtu, told.queues, told.refresh_link)


def decode_vmi(data: bytes) -> VirtualMachineInstance:
    try:
        return decode(data, VirtualMachineInstance)
    except UNREADABLE as error:
        raise InvalidVMIError("", f"the VMI cannot be read: {error}") from error


class LauncherService(LauncherServicer):
    """`on_change` is called after each command: virt-handler's view is then fresh even if libvirt stays silent."""

    def __init__(self, settings: Settings, manager: DomainManager, on_change: Callable[[], None]) -> None:
        self._settings = settings
        self._manager = manager
        self._controls = manager.controls
        self._on_change = on_change

    def Hello(self, request: pb.HelloRequest, context: grpc.ServicerContext) -> pb.HelloResponse:
        version = negotiate(request.versions, peer="virt-handler")
        return pb.HelloResponse(version=version, program_version=virt_core.__version__, vmi_uid=self._settings.uid)

    def SyncVMI(self, request: pb.SyncVMIRequest, context: grpc.ServicerContext) -> pb.SyncVMIResponse:
        with translated():
            vmi, options = decode_vmi(request.vmi_json), options_from(request.options)
            view = self._manager.sync(vmi, options, request.digest)
        self._on_change()
        handoffs = [pb.Handoff(name=name, time_us=time_us) for name, time_us in self._manager.handoffs.items()]
        synced = synced_message(self._manager.synced)
        return pb.SyncVMIResponse(domain=domain_message(view), handoffs=handoffs, synced=synced)

    def Pause(self, request: pb.PauseRequest, context: grpc.ServicerContext) -> pb.PauseResponse:
        self._command(self._manager.pause)
        return pb.PauseResponse()

    def Unpause(self, request: pb.UnpauseRequest, context: grpc.ServicerContext) -> pb.UnpauseResponse:
        self._command(self._manager.unpause)
        return pb.UnpauseResponse()

    def Shutdown(self, request: pb.ShutdownRequest, context: grpc.ServicerContext) -> pb.ShutdownResponse:
        self._command(self._manager.shut_down)
        return pb.ShutdownResponse()

    def Kill(self, request: pb.KillRequest, context: grpc.ServicerContext) -> pb.KillResponse:
        self._command(self._manager.kill)
        return pb.KillResponse()

    def Delete(self, request: pb.DeleteRequest, context: grpc.ServicerContext) -> pb.DeleteResponse:
        self._command(self._manager.delete)
        return pb.DeleteResponse()

    def GetDomain(self, request: pb.GetDomainRequest, context: grpc.ServicerContext) -> pb.GetDomainResponse:
        with translated():
            view = self._manager.view()
        if view.state is State.ABSENT:
            return pb.GetDomainResponse()
        return pb.GetDomainResponse(domain=domain_message(view), synced=synced_message(self._manager.synced))

    def GetDomainStats(
        self, request: pb.GetDomainStatsRequest, context: grpc.ServicerContext
    ) -> pb.GetDomainStatsResponse:
        with translated():
            return pb.GetDomainStatsResponse(stats_json=self._manager.stats())

    def GetGuestInfo(self, request: pb.GetGuestInfoRequest, context: grpc.ServicerContext) -> pb.GetGuestInfoResponse:
        with translated():
            view = self._manager.view()
            if not view.alive:
                raise NoMachineError("there is no running machine")
            if not view.agent.connected:
                raise WrongStateError("no guest agent is connected")
        return guest_info_message(view)

    def Ping(self, request: pb.PingRequest, context: grpc.ServicerContext) -> pb.PingResponse:
        return pb.PingResponse()

    def SoftReboot(self, request: pb.SoftRebootRequest, context: grpc.ServicerContext) -> pb.SoftRebootResponse:
        self._command(self._controls.soft_reboot)
        return pb.SoftRebootResponse()

    def Reset(self, request: pb.ResetRequest, context: grpc.ServicerContext) -> pb.ResetResponse:
        self._command(self._controls.reset)
        return pb.ResetResponse()

    def Freeze(self, request: pb.FreezeRequest, context: grpc.ServicerContext) -> pb.FreezeResponse:
        self._command(lambda: self._controls.freeze(request.unfreeze_timeout_seconds))
        return pb.FreezeResponse()

    def Unfreeze(self, request: pb.UnfreezeRequest, context: grpc.ServicerContext) -> pb.UnfreezeResponse:
        self._command(self._controls.unfreeze)
        return pb.UnfreezeResponse()

    def Screenshot(self, request: pb.ScreenshotRequest, context: grpc.ServicerContext) -> pb.ScreenshotResponse:
        with translated():
            return pb.ScreenshotResponse(image=self._controls.screenshot())

    def GetUsers(self, request: pb.GetUsersRequest, context: grpc.ServicerContext) -> pb.GetUsersResponse:
        with translated():
            return pb.GetUsersResponse(users=[user_message(user) for user in self._controls.users()])

    def GetFilesystems(
        self, request: pb.GetFilesystemsRequest, context: grpc.ServicerContext
    ) -> pb.GetFilesystemsResponse:
        with translated():
            found = self._controls.filesystems()
        return pb.GetFilesystemsResponse(filesystems=[filesystem_message(filesystem) for filesystem in found])

    def GetSevInfo(self, request: pb.GetSevInfoRequest, context: grpc.ServicerContext) -> pb.GetSevInfoResponse:
        with translated():
            found = self._manager.attestation.info()
        return pb.GetSevInfoResponse(pdh=found.pdh, cert_chain=found.cert_chain)

    def GetLaunchMeasurement(
        self, request: pb.GetLaunchMeasurementRequest, context: grpc.ServicerContext
    ) -> pb.GetLaunchMeasurementResponse:
        with translated():
            return measurement_message(*self._manager.attestation.measurement())

    def InjectLaunchSecret(
        self, request: pb.InjectLaunchSecretRequest, context: grpc.ServicerContext
    ) -> pb.InjectLaunchSecretResponse:
        self._command(lambda: self._manager.attestation.inject(request.header, request.secret))
        return pb.InjectLaunchSecretResponse()

    def GetDirtyRate(self, request: pb.GetDirtyRateRequest, context: grpc.ServicerContext) -> pb.GetDirtyRateResponse:
        with translated():
            return pb.GetDirtyRateResponse(bytes_per_second=self._manager.dirty_rate.measure())

    def PrepareTarget(
        self, request: pb.PrepareTargetRequest, context: grpc.ServicerContext
    ) -> pb.PrepareTargetResponse:
        with translated():
            cpus = self._manager.prepare_target(decode_vmi(request.vmi_json), options_from(request.options))
        return pb.PrepareTargetResponse(cpus=[pb.HostCpu(cell=c.cell, core=c.core, number=c.number) for c in cpus])

    def GetDiskFacts(self, request: pb.GetDiskFactsRequest, context: grpc.ServicerContext) -> pb.GetDiskFactsResponse:
        with translated():
            found = self._manager.disk_facts(decode_vmi(request.vmi_json))
        facts = {name: pb.DiskFacts(checksum=checksum, size=size) for name, (checksum, size) in found.items()}
        return pb.GetDiskFactsResponse(disks=facts)

    def Migrate(self, request: pb.MigrateRequest, context: grpc.ServicerContext) -> pb.MigrateResponse:
        from virt_launcher.service.moves import wishes_from

        self._command(lambda: self._manager.leave(decode_vmi(request.vmi_json), wishes_from(request)))
        return pb.MigrateResponse()

    def CancelMigration(
        self, request: pb.CancelMigrationRequest, context: grpc.ServicerContext
    ) -> pb.CancelMigrationResponse:
        self._command(lambda: self._manager.traffic.cancel(request.uid))
        return pb.CancelMigrationResponse()

    def SettleMigration(
        self, request: pb.SettleMigrationRequest, context: grpc.ServicerContext
    ) -> pb.SettleMigrationResponse:
        from virt_launcher.service.moves import is_gone

        with translated():
            gone = is_gone(request)
        self._command(lambda: self._manager.traffic.settle(request.uid, gone=gone))
        return pb.SettleMigrationResponse()

    def DumpMemory(self, request: pb.DumpMemoryRequest, context: grpc.ServicerContext) -> pb.DumpMemoryResponse:
        with translated():
            kind = dump_kind(request.kind)
        hold_s = float(request.hold_seconds)
        self._command(lambda: self._manager.dump_memory(request.volume, request.file_name, kind, hold_s))
        return pb.DumpMemoryResponse()

    def ReleaseState(self, request: pb.ReleaseStateRequest, context: grpc.ServicerContext) -> pb.ReleaseStateResponse:
        self._command(self._manager.release_state)
        return pb.ReleaseStateResponse()

    def BeginBackup(self, request: pb.BeginBackupRequest, context: grpc.ServicerContext) -> pb.BeginBackupResponse:
        from virt_launcher.machine.backup import Order

        order = Order(
            name=request.name,
            started=request.started,
            volume=request.volume,
            directory=request.directory,
            checkpoint=request.checkpoint,
            since=request.since,
            skip_quiesce=request.skip_quiesce,
            keep=tuple(request.keep),
        )
        self._command(lambda: self._manager.back_up(order))
        return pb.BeginBackupResponse()

    def AbortBackup(self, request: pb.AbortBackupRequest, context: grpc.ServicerContext) -> pb.AbortBackupResponse:
        self._command(lambda: self._manager.backups.abort(request.name))
        return pb.AbortBackupResponse()

    def _command(self, command: Callable[[], None]) -> None:
        with translated():
            command()
        self._on_change()


def serve(settings: Settings, service: LauncherService) -> RpcServer:
    """On the init socket; the rename that makes it known is the caller's, when all else is ready."""
    settings.paths.sockets.mkdir(parents=True, exist_ok=True)
    settings.paths.init_socket.unlink(missing_ok=True)
    registration = [lambda server: add_LauncherServicer_to_server(service, server)]
    return serve_unix(str(settings.paths.init_socket), registration, workers=_WORKERS, name="command")
