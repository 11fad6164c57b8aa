"""The memory of a machine in its snapshot: the guest stands still, its state goes into a claim, and it goes on once
that claim and its disks are saved, all of one instant. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from virt_controller.snapshot import source
from virt_controller.vm import hibernation
from virt_core.apis import hibernation as states
from virt_core.apis import names
from virt_core.apis import snapshot as words
from virt_core.apis.base import UNREADABLE, decode, encode
from virt_core.apis.hibernation import VirtualMachineHibernation
from virt_core.apis.registry import owner_reference
from virt_core.apis.snapshot import VirtualMachineSnapshot, VirtualMachineSnapshotContent
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import VolumeStatus
from virt_core.kube.conditions import is_true
from virt_core.runtime.times import parse_rfc3339

#: A little less than the launcher lets the guest stand still.
HOLD_S = 290.0
WENT_ON = "the guest went on before all of its disks were saved, so its memory would not fit them"


def is_wanted(snapshot: VirtualMachineSnapshot) -> bool:
    return snapshot.metadata.annotations.get(words.ANNOTATION_MEMORY) == "true"


def claim_name(snapshot: VirtualMachineSnapshot) -> str:
    return f"memory-of-{snapshot.metadata.name[:40]}-{snapshot.metadata.uid[:8]}"


def claim(snapshot: VirtualMachineSnapshot, vm: VirtualMachine, vmi: VirtualMachineInstance) -> PersistentVolumeClaim:
    """It goes with the snapshot."""
    made = hibernation.make_claim(vm, vmi, claim_name(snapshot))
    owners = [replace(owner_reference(snapshot), block_owner_deletion=False)]
    return replace(made, metadata=replace(made.metadata, owner_references=owners))


def hopeless(vmi: source.Vmi, disks: list[source.Disk]) -> str:
    """Why the memory will never be in the snapshot; empty: it may."""
    if vmi is None or vmi.status.phase != names.PHASE_RUNNING:
        return f"the VM does not run, and {words.ANNOTATION_MEMORY} asks for its memory"
    if why := states.obstacle_now(vmi):
        return f"the memory cannot be saved: {why}"
    kind = vmi.metadata.annotations.get(names.ANNOTATION_SAVE_STATE, names.STATE_SNAPSHOT)
    if kind != names.STATE_SNAPSHOT:
        return "the VM is being hibernated"
    for disk in disks:
        if not disk.choice.name:
            return f"volume {disk.volume} cannot be saved, so the memory would not fit it: {disk.choice.why}"
    status = _status(vmi)
    if status is not None and status.phase == names.VOLUME_DUMP_FAILED:
        return f"the memory could not be saved: {status.message}"
    return ""


def is_saved(vmi: source.Vmi) -> bool:
    """The state is whole, and the guest stands still."""
    status = _status(vmi) if vmi is not None else None
    paused = vmi is not None and is_true(vmi.status.conditions, names.CONDITION_PAUSED)
    return paused and status is not None and status.phase == names.VOLUME_DUMPED


def went_on(vmi: source.Vmi, now: datetime) -> bool:
    """Whether the guest may have run since its state was saved."""
    status = _status(vmi) if vmi is not None else None
    info = status.memory_dump_volume if status is not None else None
    if not is_saved(vmi) or info is None or not info.end_timestamp:
        return True
    return now > parse_rfc3339(info.end_timestamp) + timedelta(seconds=HOLD_S)


def state_of(snapshot: VirtualMachineSnapshot, vmi: VirtualMachineInstance) -> str:
    """What the content keeps of it, beside the claim."""
    status = _status(vmi)
    info = status.memory_dump_volume if status is not None else None
    kept = VirtualMachineHibernation(
        phase=states.SAVED,
        claim_name=claim_name(snapshot),
        file_name=info.target_file_name if info is not None else "",
        vmi_uid=vmi.metadata.uid,
        end_timestamp=info.end_timestamp if info is not None else None,
        copied=True,
        machine_type=vmi.status.machine.type if vmi.status.machine is not None else "",
        mac_addresses={each.name: each.mac for each in vmi.status.interfaces if each.name and each.mac},
    )
    return encode(kept).decode()


def kept_in(content: VirtualMachineSnapshotContent) -> VirtualMachineHibernation | None:
    """None as well for what somebody else made of it."""
    text = content.metadata.annotations.get(words.ANNOTATION_MACHINE_STATE)
    try:
        found = decode(text, VirtualMachineHibernation) if text else None
    except UNREADABLE:
        return None
    return found if found is not None and states.is_state_file(found.file_name) else None


def _status(vmi: VirtualMachineInstance) -> VolumeStatus | None:
    return next((each for each in vmi.status.volume_status if each.name == names.VOLUME_MACHINE_STATE), None)
