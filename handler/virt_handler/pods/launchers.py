"""A launcher that this node has met: who it is, and how it is spoken to.

It is found by its socket in the Pod's volume. The process that listens there must belong to that very Pod; from then on
we hold a descriptor of that process (its end is an event) and of the socket (a path could be swapped later).
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any

import grpc

from virt_core import __version__
from virt_core.apis import names
from virt_core.rpc.channel import unix_channel
from virt_core.rpc.handshake import PROTOCOL_VERSIONS
from virt_core.rpc.peer import listener_credentials
from virt_core.rpc.status import RpcFailure, failure_of, unavailable
from virt_core.runtime.files import socket_path
from virt_handler.pods import isolation
from virt_handler.pods.files import PodFiles, UnsafeFileError
from virt_handler.pods.peers import PodOf
from virt_protos.launcher.v1 import launcher_pb2 as pb
from virt_protos.launcher.v1.launcher_pb2_grpc import LauncherStub

CALL_TIMEOUT_S = 5.0
#: libvirt may be busy with the machine that it starts or stops.
COMMAND_TIMEOUT_S = 20.0

#: How long a guest whose state was saved may stand still until its disks are saved, too. It goes on then by itself.
_HOLD_S = 300
_DUMP_KINDS = {names.STATE_HIBERNATE: pb.DUMP_KIND_HIBERNATE, names.STATE_SNAPSHOT: pb.DUMP_KIND_SNAPSHOT}

#: What a launcher that does not serve leaves behind. Any other code is an answer.
SILENCE = frozenset({grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE})


class LauncherGoneError(Exception):
    """There was a launcher, and it has ended."""


class WrongLauncherError(Exception):
    """Something answers that is not this VMI's launcher. Trying again will not make it right."""


class Launcher:
    """Not thread safe in `close`; calls may come from any thread."""

    def __init__(self, pid: int, pidfd: int, socket_fd: int) -> None:
        self.pid, self.pidfd = pid, pidfd
        self._socket_fd = socket_fd
        self._channel = unix_channel(socket_fd, timeout_s=COMMAND_TIMEOUT_S)
        self._stub: Any = LauncherStub(self._channel)

    def hello(self, vmi_uid: str) -> None:
        request = pb.HelloRequest(versions=PROTOCOL_VERSIONS, program_version=__version__)
        answer: pb.HelloResponse = self._call(self._stub.Hello, request, CALL_TIMEOUT_S)
        if answer.version not in PROTOCOL_VERSIONS:
            raise WrongLauncherError(
                f"the launcher speaks version {answer.version}, virt-handler speaks {PROTOCOL_VERSIONS}"
            )
        if answer.vmi_uid != vmi_uid:
            raise WrongLauncherError(f"the launcher was started for VMI {answer.vmi_uid!r}, not for {vmi_uid!r}")

    def get_domain(self) -> pb.Domain:
        return self.get_machine()[0]

    def get_machine(self) -> tuple[pb.Domain, pb.Synced | None]:
        """With what it was last brought in line with; None: a launcher of an older release does not say."""
        answer: pb.GetDomainResponse = self._call(self._stub.GetDomain, pb.GetDomainRequest(), CALL_TIMEOUT_S)
        domain = answer.domain if answer.HasField("domain") else pb.Domain(state=pb.DOMAIN_STATE_ABSENT)
        return domain, answer.synced if answer.HasField("synced") else None

    def get_guest_info(self) -> pb.GetGuestInfoResponse:
        answer: pb.GetGuestInfoResponse = self._call(
            self._stub.GetGuestInfo, pb.GetGuestInfoRequest(), COMMAND_TIMEOUT_S
        )
        return answer

    def ping(self, timeout_s: float) -> Any:
        """A future. Raises ValueError when the channel is closed."""
        return self._stub.Ping.future(pb.PingRequest(), timeout=timeout_s)

    def end(self) -> None:
        """Ends the launcher's process, and with it (it is the first of its PID namespace) the guest."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def sync(self, request: pb.SyncVMIRequest, timeout_s: float) -> Any:
        """Starts SyncVMI and returns its future: a machine takes longer to start than a loop may wait."""
        return self._stub.SyncVMI.future(request, timeout=timeout_s)

    def pause(self) -> None:
        self._call(self._stub.Pause, pb.PauseRequest())

    def unpause(self) -> None:
        self._call(self._stub.Unpause, pb.UnpauseRequest())

    def soft_reboot(self) -> None:
        self._call(self._stub.SoftReboot, pb.SoftRebootRequest())

    def reset(self) -> None:
        self._call(self._stub.Reset, pb.ResetRequest())

    def freeze(self, unfreeze_timeout_s: int) -> None:
        self._call(self._stub.Freeze, pb.FreezeRequest(unfreeze_timeout_seconds=unfreeze_timeout_s))

    def unfreeze(self) -> None:
        self._call(self._stub.Unfreeze, pb.UnfreezeRequest())

    def screenshot(self) -> bytes:
        answer: pb.ScreenshotResponse = self._call(self._stub.Screenshot, pb.ScreenshotRequest())
        return answer.image

    def get_users(self) -> list[pb.GuestUser]:
        answer: pb.GetUsersResponse = self._call(self._stub.GetUsers, pb.GetUsersRequest())
        return list(answer.users)

    def get_filesystems(self) -> list[pb.GuestFilesystem]:
        answer: pb.GetFilesystemsResponse = self._call(self._stub.GetFilesystems, pb.GetFilesystemsRequest())
        return list(answer.filesystems)

    def get_stats(self) -> bytes:
        """As docs/domain-stats.md says; empty when there is no machine."""
        answer: pb.GetDomainStatsResponse = self._call(
            self._stub.GetDomainStats, pb.GetDomainStatsRequest(), CALL_TIMEOUT_S
        )
        return answer.stats_json

    def get_dirty_rate(self) -> int:
        """Bytes a second. Takes more than a second, since it is measured now."""
        answer: pb.GetDirtyRateResponse = self._call(self._stub.GetDirtyRate, pb.GetDirtyRateRequest(), CALL_TIMEOUT_S)
        return answer.bytes_per_second

    def dump_memory(self, volume: str, file: str, kind: str = "") -> None:
        """Returns when it has begun."""
        request = pb.DumpMemoryRequest(
            volume=volume, file_name=file, kind=_DUMP_KINDS.get(kind, pb.DUMP_KIND_UNSPECIFIED), hold_seconds=_HOLD_S
        )
        self._call(self._stub.DumpMemory, request)

    def release_state(self) -> None:
        self._call(self._stub.ReleaseState, pb.ReleaseStateRequest())

    def begin_backup(self, request: pb.BeginBackupRequest) -> None:
        """Returns when it has begun."""
        self._call(self._stub.BeginBackup, request)

    def abort_backup(self, name: str) -> None:
        self._call(self._stub.AbortBackup, pb.AbortBackupRequest(name=name))

    def get_sev_info(self) -> pb.GetSevInfoResponse:
        answer: pb.GetSevInfoResponse = self._call(self._stub.GetSevInfo, pb.GetSevInfoRequest())
        return answer

    def get_launch_measurement(self) -> pb.GetLaunchMeasurementResponse:
        request = pb.GetLaunchMeasurementRequest()
        answer: pb.GetLaunchMeasurementResponse = self._call(self._stub.GetLaunchMeasurement, request)
        return answer

    def inject_launch_secret(self, header: str, secret: str) -> None:
        self._call(self._stub.InjectLaunchSecret, pb.InjectLaunchSecretRequest(header=header, secret=secret))

    def prepare_target(self, request: pb.PrepareTargetRequest, timeout_s: float) -> pb.PrepareTargetResponse:
        answer: pb.PrepareTargetResponse = self._call(self._stub.PrepareTarget, request, timeout_s)
        return answer

    def get_disk_facts(self, vmi_json: bytes, timeout_s: float) -> dict[str, pb.DiskFacts]:
        """Reads whole images."""
        request = pb.GetDiskFactsRequest(vmi_json=vmi_json)
        answer: pb.GetDiskFactsResponse = self._call(self._stub.GetDiskFacts, request, timeout_s)
        return dict(answer.disks)

    def migrate(self, request: pb.MigrateRequest) -> None:
        self._call(self._stub.Migrate, request)

    def cancel_migration(self, job: str) -> None:
        self._call(self._stub.CancelMigration, pb.CancelMigrationRequest(uid=job))

    def settle_migration(self, job: str, *, gone: bool) -> None:
        outcomes = pb.SettleMigrationRequest
        outcome = outcomes.OUTCOME_GONE if gone else outcomes.OUTCOME_STAYS
        self._call(self._stub.SettleMigration, pb.SettleMigrationRequest(uid=job, outcome=outcome))

    def shutdown(self) -> None:
        self._call(self._stub.Shutdown, pb.ShutdownRequest())

    def kill(self) -> None:
        self._call(self._stub.Kill, pb.KillRequest())

    def delete(self) -> None:
        self._call(self._stub.Delete, pb.DeleteRequest())

    def close(self) -> None:
        self._channel.close()
        os.close(self._socket_fd)
        os.close(self.pidfd)

    def _call(self, method: Any, request: Any, timeout_s: float = COMMAND_TIMEOUT_S) -> Any:
        """Raises RpcFailure."""
        try:
            return method(request, timeout=timeout_s)
        except grpc.RpcError as error:
            raise failure_of(error) from error
        except ValueError as error:
            # How gRPC says that the channel was closed meanwhile.
            raise unavailable("the launcher is gone") from error


def open_socket(files: PodFiles, pod_uid: str) -> int:
    """A descriptor of the launcher's socket. FileNotFoundError: not there yet. Raises WrongLauncherError."""
    try:
        return files.open_socket(pod_uid, names.VOLUME_SOCKETS, names.SOCKET_LAUNCHER)
    except UnsafeFileError as error:
        raise WrongLauncherError(str(error)) from error


def behind(socket_fd: int, pod_uid: str, pod_of: PodOf = isolation.pod_of) -> Launcher:
    """The launcher of a Pod, which gets the descriptor. Raises LauncherGoneError, WrongLauncherError, RpcFailure."""
    try:
        pid, pidfd = _identify(socket_fd, pod_uid, pod_of)
    except BaseException:
        os.close(socket_fd)
        raise
    return Launcher(pid, pidfd, socket_fd)


def _identify(socket_fd: int, pod_uid: str, pod_of: PodOf) -> tuple[int, int]:
    try:
        pid = listener_credentials(socket_path(socket_fd), CALL_TIMEOUT_S).pid
        if pid <= 0:
            raise WrongLauncherError(
                "the launcher's process is not visible: virt-handler needs the host's PID namespace"
            )
        pidfd = os.pidfd_open(pid)
    except (ConnectionRefusedError, ProcessLookupError) as error:
        raise LauncherGoneError(f"nobody listens on the launcher's socket of Pod {pod_uid}") from error
    except (BlockingIOError, TimeoutError) as error:
        raise unavailable("the launcher takes no connections") from error
    # After the open: now the number cannot go to another process without our noticing.
    if pod_of(pid) != pod_uid:
        os.close(pidfd)
        raise WrongLauncherError(f"process {pid} listens on the launcher's socket but does not belong to Pod {pod_uid}")
    return pid, pidfd


def is_fatal(failure: RpcFailure) -> bool:
    """The launcher will say the same next time: the VMI itself is wrong."""
    return failure.code is grpc.StatusCode.INVALID_ARGUMENT
