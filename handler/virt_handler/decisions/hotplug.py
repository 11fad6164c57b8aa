"""Volumes that come and go while a machine runs: what is to be mounted into its Pod, what taken out, and what people
are told. Pure.

What is mounted is known from the node itself (the records of this node and the mounts in the Pod), never from the
VMI's status: that only says where a volume can be had.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from virt_core.apis import names
from virt_core.apis.netplan import NetReport
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import HotplugVolumeStatus, VolumeStatus
from virt_handler.decisions.wanted import digest
from virt_protos.launcher.v1 import launcher_pb2 as pb

_COMING = frozenset({names.VOLUME_PENDING, names.VOLUME_BOUND, names.VOLUME_ATTACHED})
_DUMP = frozenset({names.VOLUME_DUMPING, names.VOLUME_DUMPED, names.VOLUME_DUMP_FAILED})
_WAS_HERE = frozenset({names.VOLUME_READY, names.VOLUME_MOUNTED, names.VOLUME_ATTACHED}) | _DUMP


@dataclass(frozen=True, slots=True)
class Plugged:
    """A volume that a Pod of this node holds for the launcher."""

    name: str
    pod_uid: str
    block: bool = False


@dataclass(frozen=True, slots=True)
class Mounts:
    """What is mounted in a launcher Pod by us, and what could not be."""

    there: frozenset[str] = frozenset()
    #: Why a volume is not there, by its name.
    failures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Work:
    mount: tuple[Plugged, ...] = ()
    unmount: tuple[str, ...] = ()


def work(
    vmi: VirtualMachineInstance,
    mounts: Mounts,
    domain: pb.Domain | None,
    synced: str | None,
    report: NetReport | None = None,
) -> Work:
    """`synced` names what the machine was last brought in line with; None: there is none yet. `report`: the wiring."""
    asked = asked_for(vmi)
    mount = tuple(
        Plugged(status.name, status.hotplug_volume.attach_pod_uid, is_block(status))
        for status in vmi.status.volume_status
        if status.hotplug_volume is not None and status.hotplug_volume.attach_pod_uid
        if status.name in asked and status.name not in mounts.there
    )
    gone = sorted(mounts.there - asked)
    in_use = set(domain.disk_targets) if domain is not None else set()
    # Before the launcher has done what the VMI asks for now, its machine may still have the disk, or be getting it.
    settled = synced is None or synced == digest(vmi, report)
    return Work(mount, tuple(name for name in gone if settled and name not in in_use))


def asked_for(vmi: VirtualMachineInstance) -> set[str]:
    return {volume.name for volume in vmi.spec.volumes} | {volume.name for volume in vmi.spec.utility_volumes}


def at_target(vmi: VirtualMachineInstance) -> VirtualMachineInstance:
    """As the side sees it that the machine moves to: what it has comes from a Pod of that node, and nothing else."""
    move = vmi.status.migration_state
    uid = move.target_attachment_pod_uid if move is not None else ""
    statuses = [_brought(each, uid) if each.hotplug_volume is not None else each for each in vmi.status.volume_status]
    return replace(vmi, status=replace(vmi.status, volume_status=statuses))


def _brought(status: VolumeStatus, pod_uid: str) -> VolumeStatus:
    has_it = status.phase in names.VOLUME_IN_LAUNCHER
    return replace(status, hotplug_volume=HotplugVolumeStatus(attach_pod_uid=pod_uid if has_it else ""))


def awaited(vmi: VirtualMachineInstance, mounts: Mounts | None) -> bool:
    """Whether a machine that is to move here has volumes that are not in its new Pod yet."""
    return bool(_taken_along(vmi) - (mounts.there if mounts is not None else frozenset()))


def refused(vmi: VirtualMachineInstance, mounts: Mounts | None) -> str:
    """Why one of them cannot be there; empty while nothing speaks against it."""
    failures = mounts.failures if mounts is not None else {}
    return next((f'volume "{name}": {failures[name]}' for name in sorted(_taken_along(vmi)) if name in failures), "")


def _taken_along(vmi: VirtualMachineInstance) -> set[str]:
    asked = asked_for(vmi)
    return {
        each.name
        for each in vmi.status.volume_status
        if each.hotplug_volume is not None and each.phase in names.VOLUME_IN_LAUNCHER and each.name in asked
    }


def is_block(status: VolumeStatus) -> bool:
    claim = status.persistent_volume_claim_info
    return claim is not None and claim.volume_mode == names.VOLUME_MODE_BLOCK


def missing(vmi: VirtualMachineInstance) -> str:
    """Why the machine cannot be started yet: a sentence about the first volume that is not in its Pod."""
    asked = asked_for(vmi)
    for status in vmi.status.volume_status:
        if status.hotplug_volume is None or status.name not in asked or _is_there(status):
            continue
        why = f": {status.message}" if status.message else ""
        return f'volume "{status.name}" is not in the Pod yet ({status.phase or names.VOLUME_PENDING}{why})'
    return ""


def _is_there(status: VolumeStatus) -> bool:
    return status.phase in names.VOLUME_IN_LAUNCHER or status.memory_dump_volume is not None


def told(vmi: VirtualMachineInstance, statuses: list[VolumeStatus], mounts: Mounts | None) -> list[VolumeStatus]:
    """The phases that this node decides. `statuses` have their targets already; None: the mounts are not known yet."""
    if mounts is None:
        return statuses
    asked = asked_for(vmi)
    return [_phase(each, each.name in asked, mounts) if each.hotplug_volume else each for each in statuses]


def _phase(status: VolumeStatus, asked: bool, mounts: Mounts) -> VolumeStatus:
    there = status.name in mounts.there
    if status.phase in _COMING and (why := mounts.failures.get(status.name)):
        return _said(status, status.phase, names.EVENT_HOTPLUG_FAILED, why)
    if status.target:
        if there and status.phase in _COMING | {names.VOLUME_MOUNTED}:
            words = f"Successfully attach hotplugged volume {status.name} to VM"
            return _said(status, names.VOLUME_READY, names.REASON_VOLUME_READY, words)
        return status
    if there and asked and status.phase in _COMING:
        words = f"Volume {status.name} has been mounted in virt-launcher pod"
        return _said(status, names.VOLUME_MOUNTED, names.REASON_VOLUME_MOUNTED, words)
    if there or asked or status.phase not in _WAS_HERE:
        return status
    words = f"Volume {status.name} has been unmounted from virt-launcher pod"
    return _said(status, names.VOLUME_UNMOUNTED, names.REASON_VOLUME_UNMOUNTED, words)


def _said(status: VolumeStatus, phase: str, reason: str, message: str) -> VolumeStatus:
    return replace(status, phase=phase, reason=reason, message=message)


def notes(before: Collection[VolumeStatus], after: Collection[VolumeStatus]) -> list[tuple[str, str, str]]:
    """An Event for each phase that changed."""
    known = {status.name: status.phase for status in before}
    return [
        (names.EVENT_NORMAL, status.reason, status.message)
        for status in after
        if status.hotplug_volume is not None and status.phase != known.get(status.name) and status.reason
    ]
