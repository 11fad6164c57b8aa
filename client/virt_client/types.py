"""What the client gives back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from virt_protos.automation.v1 import automation_pb2 as pb

KindName = Literal["vm", "vmi"]

_KINDS: dict[str, pb.Kind.ValueType] = {
    "vm": pb.KIND_VIRTUAL_MACHINE,
    "vmi": pb.KIND_VIRTUAL_MACHINE_INSTANCE,
    "VirtualMachine": pb.KIND_VIRTUAL_MACHINE,
    "VirtualMachineInstance": pb.KIND_VIRTUAL_MACHINE_INSTANCE,
}
_CHANGES = {
    pb.WatchEvent.TYPE_ADDED: "added",
    pb.WatchEvent.TYPE_MODIFIED: "modified",
    pb.WatchEvent.TYPE_DELETED: "deleted",
    pb.WatchEvent.TYPE_BOOKMARK: "bookmark",
}


def kind_of(name: str) -> pb.Kind.ValueType:
    """By our short name, or by the kind that a manifest names."""
    try:
        return _KINDS[name]
    except KeyError:
        raise ValueError(f"kind {name!r}: use 'vm' or 'vmi'") from None


@dataclass(frozen=True, slots=True)
class Machine:
    """A VirtualMachine or VirtualMachineInstance."""

    kind: KindName
    namespace: str
    name: str
    uid: str
    resource_version: str
    #: Of an instance its phase, of a VirtualMachine its printable status.
    phase: str
    ready: bool
    paused: bool
    deleting: bool
    node_name: str
    ip_addresses: tuple[str, ...]
    labels: Mapping[str, str]
    #: RFC 3339.
    creation_time: str
    json: bytes = field(repr=False)

    @property
    def manifest(self) -> dict[str, Any]:
        """The whole object; a new copy each time."""
        parsed: dict[str, Any] = json.loads(self.json)
        return parsed


def machine_of(obj: pb.Object) -> Machine:
    return Machine(
        kind="vm" if obj.kind == pb.KIND_VIRTUAL_MACHINE else "vmi",
        namespace=obj.namespace,
        name=obj.name,
        uid=obj.uid,
        resource_version=obj.resource_version,
        phase=obj.phase,
        ready=obj.ready,
        paused=obj.paused,
        deleting=obj.deleting,
        node_name=obj.node_name,
        ip_addresses=tuple(obj.ip_addresses),
        labels=dict(obj.labels),
        creation_time=obj.creation_time,
        json=obj.json,
    )


@dataclass(frozen=True, slots=True)
class Page:
    """A list, or a part of it where a limit was given."""

    items: tuple[Machine, ...]
    #: For `watch`, to see what happens from here on.
    resource_version: str
    #: Not empty: there is more, from here.
    continue_token: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """A step of a watch. A bookmark has no machine: it only says how far the watch is."""

    type: str
    machine: Machine | None
    resource_version: str


def change_of(event: pb.WatchEvent) -> Change:
    machine = machine_of(event.object) if event.HasField("object") else None
    return Change(_CHANGES.get(event.type, "unknown"), machine, event.resource_version)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a wait is: one sentence for people, and the machine if there is one."""

    message: str
    elapsed_s: float
    machine: Machine | None


@dataclass(frozen=True, slots=True)
class Move:
    """How a migration goes; with `done` what came of it, and after a dry run what it would take."""

    done: bool
    succeeded: bool
    #: One sentence for people: how far it is, or why it failed.
    message: str
    elapsed_s: float
    phase: str
    job_name: str
    source_node: str
    target_node: str
    #: PreCopy, PostCopy or Paused; empty before the move itself has begun.
    mode: str
    total_bytes: int
    processed_bytes: int
    remaining_bytes: int
    bytes_per_second: int
    dirty_bytes_per_second: int
    #: How long the guest stood still, in milliseconds; 0 until it is known.
    downtime_ms: int
    forecast: MoveForecast | None = None


@dataclass(frozen=True, slots=True)
class MoveForecast:
    """What a migration would take."""

    #: Converges, ConvergesWithHelp, WillNotConverge or Unknown.
    verdict: str
    message: str
    memory_bytes: int
    disk_bytes: int
    dirty_bytes_per_second: int
    #: 0: not known.
    bandwidth_bytes_per_second: int
    #: 0: not known.
    expected_s: float
    expected_downtime_ms: int


def move_of(step: pb.MigrateProgress) -> Move:
    figures = step.figures
    return Move(
        done=step.done,
        succeeded=step.succeeded,
        message=step.message,
        elapsed_s=step.elapsed_ms / 1000,
        phase=step.phase,
        job_name=step.job_name,
        source_node=step.source_node,
        target_node=step.target_node,
        mode=figures.mode,
        total_bytes=figures.total_bytes,
        processed_bytes=figures.processed_bytes,
        remaining_bytes=figures.remaining_bytes,
        bytes_per_second=figures.bytes_per_second,
        dirty_bytes_per_second=figures.dirty_bytes_per_second,
        downtime_ms=figures.downtime_ms,
        forecast=_forecast_of(step.forecast) if step.HasField("forecast") else None,
    )


def _forecast_of(found: pb.MoveForecast) -> MoveForecast:
    return MoveForecast(
        verdict=found.verdict,
        message=found.message,
        memory_bytes=found.memory_bytes,
        disk_bytes=found.disk_bytes,
        dirty_bytes_per_second=found.dirty_bytes_per_second,
        bandwidth_bytes_per_second=found.bandwidth_bytes_per_second,
        expected_s=found.expected_ms / 1000,
        expected_downtime_ms=found.expected_downtime_ms,
    )


@dataclass(frozen=True, slots=True)
class GuestInfo:
    """What the agent in the guest tells."""

    hostname: str
    timezone: str
    agent_version: str
    os_id: str
    os_name: str
    os_version: str
    kernel_release: str
    users: tuple[str, ...]
    #: Mount point to used and total bytes.
    filesystems: Mapping[str, tuple[int, int]]
    json: bytes = field(repr=False)


def guest_info_of(info: pb.GetGuestInfoResponse) -> GuestInfo:
    return GuestInfo(
        hostname=info.hostname,
        timezone=info.timezone,
        agent_version=info.agent_version,
        os_id=info.os.id,
        os_name=info.os.pretty_name or info.os.name,
        os_version=info.os.version_id or info.os.version,
        kernel_release=info.os.kernel_release,
        users=tuple(user.name for user in info.users),
        filesystems={each.mount_point: (each.used_bytes, each.total_bytes) for each in info.filesystems},
        json=info.json,
    )
