"""What a VMI owes to the VM that made it, and the changes that reach it while it runs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from virt_controller.hotplug.statuses import claim_info
from virt_controller.vmi.pods import Trouble
from virt_controller.vmi.resize import Resizing
from virt_core.apis import names
from virt_core.apis.meta import OwnerReference
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import HotplugVolumeStatus, VolumeStatus
from virt_core.apis.volumemoves import moving, source_claims
from virt_core.apis.volumes import claim_of, is_hotplug


@dataclass(frozen=True, slots=True)
class KeptState:
    """How the claim is that keeps what a machine's firmware and TPM store."""

    #: The machine keeps something, and has no claim for it yet.
    missing: bool = False
    claim: PersistentVolumeClaim | None = None
    #: Why the claim cannot be used yet, and for how long that is nothing to speak of.
    trouble: Trouble | None = None
    quiet_s: float = 0.0
    #: Of a machine that no longer keeps anything.
    unused: tuple[PersistentVolumeClaim, ...] = ()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What else counts beside a VMI and its Pods."""

    #: The VM that controls it is gone, so nobody else will take its finalizer away.
    orphan: bool = True
    #: Claims that its volumes name and that do not exist.
    missing_claims: tuple[str, ...] = ()
    #: Those that do, by their names.
    claims: Mapping[str, PersistentVolumeClaim] = field(default_factory=dict)
    #: NetworkAttachmentDefinitions that its networks name and that do not exist, as namespace/name.
    missing_networks: tuple[str, ...] = ()
    #: The resources of a node that those need which exist, by the VMI's name of the network.
    network_resources: Mapping[str, str] = field(default_factory=dict)
    #: DataVolumes of its volumes that are not filled yet, and those that never will be.
    unready: tuple[str, ...] = ()
    #: Those whose claim is bound, and then filled, only when some Pod uses it.
    waiting: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    #: The address of its vsock, if it wants one.
    vsock_cid: int | None = None
    #: Its Pod, when it is to have another size.
    resizing: Resizing | None = None
    state: KeptState = KeptState()
    #: Nodes for which its volumes that come and go were made.
    near: tuple[str, ...] = ()
    #: The PersistentVolumes behind them, as far as they are bound.
    later_volumes: tuple[str, ...] = ()
    #: The image of new launchers.
    launcher_image: str = ""


def owner_vm(vmi: VirtualMachineInstance) -> OwnerReference | None:
    refs = (ref for ref in vmi.metadata.owner_references if ref.controller and ref.kind == "VirtualMachine")
    return next(refs, None)


def claims(vmi: VirtualMachineInstance) -> list[str]:
    """All claims that it uses or is to use. A DataVolume's claim has its name."""
    listed = [name for volume in vmi.spec.volumes if (name := claim_of(volume))]
    return listed + [volume.claim_name for volume in vmi.spec.utility_volumes] + source_claims(vmi)


def needed_claims(vmi: VirtualMachineInstance) -> list[str]:
    """Those without which there can be no launcher Pod. What may come and go comes when it can."""
    return [name for volume in vmi.spec.volumes if (name := claim_of(volume)) and not is_hotplug(volume)]


def volume_statuses(vmi: VirtualMachineInstance, around: Surroundings) -> list[VolumeStatus]:
    """What the node must know of each claim: it asks nobody else. Sorted, as the node keeps it.

    Volumes that may come and go are known to be on their way before the node may start the guest.
    """
    known = {status.name: status for status in vmi.status.volume_status}
    for volume in vmi.spec.volumes:
        status = known.get(volume.name) or VolumeStatus(name=volume.name)
        if is_hotplug(volume):
            known[volume.name] = replace(
                status,
                phase=status.phase or names.VOLUME_PENDING,
                hotplug_volume=status.hotplug_volume or HotplugVolumeStatus(),
            )
        elif (claim := around.claims.get(claim_of(volume))) is not None:
            known[volume.name] = replace(status, persistent_volume_claim_info=claim_info(claim))
    if around.state.claim is not None:
        name = names.STATUS_KEPT_STATE
        status = known.get(name) or VolumeStatus(name=name)
        known[name] = replace(status, persistent_volume_claim_info=claim_info(around.state.claim))
    return [known[name] for name in sorted(known)]


def with_grown_claims(
    vmi: VirtualMachineInstance, found: Mapping[str, PersistentVolumeClaim]
) -> VirtualMachineInstance:
    """A claim that has changed since the hand-over, mostly by growing: the node makes the guest's disk follow. A disk
    that is on its way to another claim stays as it is until it is there."""
    moved = moving(vmi.status)
    claims = {
        volume.name: found.get(claim_of(volume))
        for volume in vmi.spec.volumes
        if not is_hotplug(volume) and volume.name not in moved
    }
    statuses = [
        replace(status, persistent_volume_claim_info=claim_info(claim))
        if status.persistent_volume_claim_info is not None and (claim := claims.get(status.name)) is not None
        else status
        for status in vmi.status.volume_status
    ]
    if statuses == vmi.status.volume_status:
        return vmi
    return replace(vmi, status=replace(vmi.status, volume_status=statuses))


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
