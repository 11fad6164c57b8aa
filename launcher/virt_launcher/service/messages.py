"""MachineView → protobuf. The only place that knows both."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from virt_core.apis import names
from virt_launcher.errors import InvalidVMIError
from virt_launcher.hypervisor.ports import AgentFilesystem, AgentReport, AgentUser, Measurement, State
from virt_launcher.machine.state import CredentialsView, InterfaceView, MachineView, MoveView, Synced
from virt_protos.launcher.v1 import launcher_pb2 as pb

if TYPE_CHECKING:
    from virt_launcher.machine.backup import Backup
    from virt_launcher.machine.life_signs import Silence
    from virt_launcher.machine.memory_dump import Dump

_STATES = {
    State.ABSENT: pb.DOMAIN_STATE_ABSENT,
    State.RUNNING: pb.DOMAIN_STATE_RUNNING,
    State.BLOCKED: pb.DOMAIN_STATE_BLOCKED,
    State.PAUSED: pb.DOMAIN_STATE_PAUSED,
    State.SHUTTING_DOWN: pb.DOMAIN_STATE_SHUTTING_DOWN,
    State.SHUTOFF: pb.DOMAIN_STATE_SHUTOFF,
    State.CRASHED: pb.DOMAIN_STATE_CRASHED,
    State.PM_SUSPENDED: pb.DOMAIN_STATE_PM_SUSPENDED,
}


def domain_message(view: MachineView) -> pb.Domain:
    return pb.Domain(
        name=view.name,
        uuid=view.uuid,
        state=_STATES[view.state],
        reason=view.reason,
        message=view.message,
        interfaces=[interface_message(i) for i in view.interfaces],
        agent_connected=view.agent.connected,
        os_info=os_message(view.agent.report) if view.agent.report.os else None,
        machine_type=view.machine_type,
        memory_bytes=view.memory_bytes,
        processors=view.processors,
        disk_targets=dict(view.disk_targets),
        graceful_shutdown_requested=view.graceful_shutdown_requested,
        emulated=view.emulated,
        agent_version=view.agent.about.version,
        agent_commands=view.agent.about.commands,
        filesystems_frozen=view.filesystems_frozen,
        access_credentials=credentials_message(view.credentials),
        move=move_message(view.move),
        silence=silence_message(view.silence),
        memory_dump=dump_message(view.memory_dump, held=view.held),
        backup=backup_message(view.backup),
        tracked_volumes=view.tracked,
    )


def backup_message(backup: Backup | None) -> pb.Backup | None:
    return None if backup is None else pb.Backup(**asdict(backup))


_DUMP_KINDS = {
    "": pb.DUMP_KIND_UNSPECIFIED,
    names.STATE_HIBERNATE: pb.DUMP_KIND_HIBERNATE,
    names.STATE_SNAPSHOT: pb.DUMP_KIND_SNAPSHOT,
}


def dump_kind(told: int) -> str:
    """Raises InvalidVMIError for one that a newer virt-handler knows."""
    for kind, known in _DUMP_KINDS.items():
        if known == told:
            return kind
    raise InvalidVMIError("", f"this launcher knows no kind {told} of memory dump")


def dump_message(dump: Dump | None, *, held: bool) -> pb.MemoryDump | None:
    if dump is None:
        return None
    return pb.MemoryDump(
        volume=dump.volume,
        file_name=dump.file,
        started_us=dump.started_us,
        ended_us=dump.ended_us,
        failure=dump.failure,
        kind=_DUMP_KINDS[dump.kind],
        held=held,
    )


def move_message(view: MoveView | None) -> pb.Move | None:
    return None if view is None else pb.Move(**asdict(view))


def silence_message(silence: Silence | None) -> pb.Silence | None:
    if silence is None or not silence.reason:
        return None
    return pb.Silence(reason=silence.reason, message=silence.message)


def credentials_message(view: CredentialsView | None) -> pb.AccessCredentials | None:
    return None if view is None else pb.AccessCredentials(synced=view.synced, message=view.message)


def synced_message(synced: Synced) -> pb.Synced:
    needs = [pb.RestartNeed(field=need.field, reason=need.reason) for need in synced.needs_restart]
    return pb.Synced(digest=synced.digest, needs_restart=needs)


def interface_message(view: InterfaceView) -> pb.GuestInterface:
    return pb.GuestInterface(
        name=view.name,
        mac=view.mac,
        guest_name=view.guest_name,
        ip_addresses=view.addresses,
        from_domain=view.from_domain,
        from_agent=view.from_agent,
        link_state=view.link_state,
    )


def os_message(report: AgentReport) -> pb.OSInfo:
    return pb.OSInfo(
        name=report.os.get("name", ""),
        kernel_release=report.os.get("kernel-release", ""),
        version=report.os.get("version", ""),
        pretty_name=report.os.get("pretty-name", ""),
        version_id=report.os.get("version-id", ""),
        kernel_version=report.os.get("kernel-version", ""),
        machine=report.os.get("machine", ""),
        id=report.os.get("id", ""),
    )


def guest_info_message(view: MachineView) -> pb.GetGuestInfoResponse:
    report = view.agent.report
    return pb.GetGuestInfoResponse(
        os_info=os_message(report),
        agent_version=view.agent.about.version,
        hostname=report.hostname,
        interfaces=[interface_message(i) for i in view.interfaces],
        timezone=report.timezone,
    )


def user_message(user: AgentUser) -> pb.GuestUser:
    return pb.GuestUser(name=user.name, domain=user.domain, login_time=user.login_time)


def filesystem_message(filesystem: AgentFilesystem) -> pb.GuestFilesystem:
    return pb.GuestFilesystem(
        disk_name=filesystem.disk_name,
        mount_point=filesystem.mount_point,
        type=filesystem.type,
        used_bytes=filesystem.used_bytes,
        total_bytes=filesystem.total_bytes,
        disks=[pb.GuestFilesystemDisk(serial=serial, bus_type=bus) for serial, bus in filesystem.disks],
    )


def measurement_message(found: Measurement, loader_sha: str) -> pb.GetLaunchMeasurementResponse:
    return pb.GetLaunchMeasurementResponse(
        measurement=found.measurement,
        api_major=found.api_major,
        api_minor=found.api_minor,
        build_id=found.build_id,
        policy=found.policy,
        loader_sha=loader_sha,
    )
