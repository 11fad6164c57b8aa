"""What a VMI owes to the VM that made it, and the changes that reach it while it runs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from msgspec.structs import replace

from virt_core.apis import names
from virt_core.apis.meta import OwnerReference
from virt_core.apis.quantity import parse_bytes
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import PersistentVolumeClaimInfo, VirtualMachineInstanceStatus, VolumeStatus
from virt_core.apis.volumes import Volume
from virt_core.kube.vmistatus import with_condition, without_condition

_Status = VirtualMachineInstanceStatus


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What else counts beside a VMI and its Pods."""

    #: The VM that controls it is gone, so nobody else will take its finalizer away.
    orphan: bool = True
    #: Claims that its volumes name and that do not exist.
    missing_claims: tuple[str, ...] = ()
    #: Those that do, by their names.
    claims: Mapping[str, PersistentVolumeClaim] = field(default_factory=dict)
    #: DataVolumes of its volumes that are not filled yet, and those that never will be.
    unready: tuple[str, ...] = ()
    #: Those whose claim is bound, and then filled, only when some Pod uses it.
    waiting: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    #: The address of its vsock, if it wants one.
    vsock_cid: int | None = None


def owner_vm(vmi: VirtualMachineInstance) -> OwnerReference | None:
    refs = (ref for ref in vmi.metadata.owner_references if ref.controller and ref.kind == "VirtualMachine")
    return next(refs, None)


def claims(vmi: VirtualMachineInstance) -> list[str]:
    """The claims that must exist before it can start. A DataVolume's claim has its name."""
    return [name for volume in vmi.spec.volumes if (name := claim_of(volume))]


def claim_of(volume: Volume) -> str:
    """The name of the claim behind a volume; empty when there is none."""
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name
    if volume.data_volume is not None:
        return volume.data_volume.name
    if volume.ephemeral is not None and volume.ephemeral.persistent_volume_claim is not None:
        return volume.ephemeral.persistent_volume_claim.claim_name
    return ""


def volume_statuses(vmi: VirtualMachineInstance, found: Mapping[str, PersistentVolumeClaim]) -> list[VolumeStatus]:
    """What the node must know of each claim: it asks nobody else. Sorted, as the node keeps it."""
    known = {status.name: status for status in vmi.status.volume_status}
    for volume in vmi.spec.volumes:
        if (claim := found.get(claim_of(volume))) is not None:
            status = known.get(volume.name) or VolumeStatus(name=volume.name)
            known[volume.name] = replace(status, persistent_volume_claim_info=_claim_info(claim))
    return [known[name] for name in sorted(known)]


def _claim_info(claim: PersistentVolumeClaim) -> PersistentVolumeClaimInfo:
    requests = claim.spec.resources.requests if claim.spec.resources is not None else {}
    return PersistentVolumeClaimInfo(
        claim_name=claim.metadata.name,
        access_modes=claim.status.access_modes or claim.spec.access_modes,
        volume_mode=claim.spec.volume_mode or names.VOLUME_MODE_FILESYSTEM,
        capacity=dict(claim.status.capacity),
        requests=dict(requests),
        preallocated=claim.metadata.annotations.get(names.ANNOTATION_PREALLOCATION) == "true",
    )


def revision_name(vmi: VirtualMachineInstance) -> str:
    """The revision of the VM that it was made from."""
    ref, generation = owner_vm(vmi), vmi.metadata.annotations.get(names.ANNOTATION_VM_GENERATION)
    if vmi.status.virtual_machine_revision_name or ref is None or not generation:
        return vmi.status.virtual_machine_revision_name
    return f"revision-start-vm-{ref.uid}-{generation}"


def is_receiver(vmi: VirtualMachineInstance) -> bool:
    """It waits for a machine from elsewhere, and nobody has said yet that it comes."""
    waits = vmi.metadata.annotations.get(names.ANNOTATION_CREATE_MIGRATION_TARGET) == "true"
    return waits and names.LABEL_MIGRATION_TARGET_NODE not in vmi.metadata.labels


def kept_finalizers(vmi: VirtualMachineInstance, orphan: bool) -> list[str]:
    ours = {names.FINALIZER_VMI, names.FINALIZER_VMI_LEGACY}
    if orphan:
        ours.add(names.FINALIZER_VM_CONTROLLER)
    return [f for f in vmi.metadata.finalizers if f not in ours]


def follow_size(vmi: VirtualMachineInstance, now: datetime) -> VirtualMachineInstance:
    """A spec that asks for more than the machine has is told by a condition until a migration has brought it."""
    if vmi.status.phase != names.PHASE_RUNNING:
        return vmi
    status = _mark(vmi.status, names.CONDITION_HOT_VCPU_CHANGE, _cpu_differs(vmi), now)
    status = _mark(status, names.CONDITION_HOT_MEMORY_CHANGE, _memory_differs(vmi), now)
    return vmi if status is vmi.status else replace(vmi, status=status)


def _mark(status: _Status, type: str, differs: bool, now: datetime) -> _Status:
    if not differs:
        return without_condition(status, type)
    return with_condition(status, type, names.TRUE, "", "the change waits for a migration", now=now)


def _cpu_differs(vmi: VirtualMachineInstance) -> bool:
    cpu, now = vmi.spec.domain.cpu, vmi.status.current_cpu_topology
    return cpu is not None and now is not None and cpu.sockets != now.sockets and cpu.max_sockets > 0


def _memory_differs(vmi: VirtualMachineInstance) -> bool:
    memory, now = vmi.spec.domain.memory, vmi.status.memory
    if memory is None or memory.guest is None or memory.max_guest is None or now is None or now.guest_current is None:
        return False
    return parse_bytes(memory.guest) != parse_bytes(now.guest_current)
