"""The VM that is saved: whether it can be held still now, and what of it is kept. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from virt_controller.snapshot.classes import Choice, claim_name, volumes_of
from virt_core.apis import names
from virt_core.apis import snapshot as words
from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.facts import is_final, is_terminating
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.snapshot import (
    SnapshotVolumesLists,
    SourceIndication,
    SourceSpec,
    VirtualMachineSnapshot,
    VirtualMachineSnapshotContent,
    VirtualMachineSnapshotContentSpec,
    VolumeBackup,
)
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine, VirtualMachineSpec
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.conditions import is_true

Vmi = VirtualMachineInstance | None

_SENTENCES = {
    words.ONLINE: "The machine ran while its volumes were saved.",
    words.PAUSED: "The machine stood still, and its guest did not know: what it had not written yet is not in it.",
    words.GUEST_AGENT: "The guest's file systems were frozen through its agent.",
    words.NO_GUEST_AGENT: "The guest has no agent, so its file systems were not frozen: they look as if the power had"
    " failed.",
    words.MEMORY: "The guest stood still while its memory and its volumes were saved, all of one instant.",
    words.QUIESCE_TIMEOUT: "The guest's file systems went on before all volumes were saved.",
    words.PARTIAL: "Not every volume that lasts is in the snapshot: see snapshotVolumes.excludedVolumes.",
}


@dataclass(frozen=True, slots=True)
class Disk:
    """A volume of a VM that lasts, and what is known of its claim."""

    volume: str
    claim_name: str
    claim: PersistentVolumeClaim | None
    #: Its DataVolume fills it still.
    filling: bool = False
    choice: Choice = field(default_factory=Choice)


def is_online(vmi: Vmi) -> bool:
    return vmi is not None and not is_final(vmi)


def holds(vm: VirtualMachine | None, snapshot: VirtualMachineSnapshot) -> bool:
    """Whether the VM is held still for this snapshot."""
    return vm is not None and vm.status.snapshot_in_progress == snapshot.metadata.name


def is_locked(vm: VirtualMachine | None, snapshot: VirtualMachineSnapshot) -> bool:
    return vm is not None and holds(vm, snapshot) and words.FINALIZER_SOURCE in vm.metadata.finalizers


def named(vm: VirtualMachine) -> list[tuple[str, str]]:
    """The volumes that last, with the names of their claims."""
    return [(volume.name, name) for volume in volumes_of(vm) if (name := claim_name(volume))]


def blocked(vm: VirtualMachine, vmi: Vmi, disks: Sequence[Disk], users: Sequence[str]) -> str:
    """Why the VM cannot be held still now; empty: it can. `users` are the Pods that use its claims."""
    if is_terminating(vm):
        return f"VM {vm.metadata.name} is being deleted"
    for say, found in (
        ("not found", [d for d in disks if d.claim is None]),
        ("being deleted", [d for d in disks if d.claim is not None and is_terminating(d.claim)]),
        ("not bound", [d for d in disks if d.claim is not None and d.claim.status.phase != "Bound"]),
        ("still being filled", [d for d in disks if d.filling]),
    ):
        if found:
            return f"claims of its volumes are {say}: {', '.join(disk.claim_name for disk in found)}"
    if names_ := [each.volume_name for each in (vmi.status.migrated_volumes if vmi is not None else [])]:
        return f"its volumes are on their way to other claims: {', '.join(names_)}"
    if is_true(vm.status.conditions, names.CONDITION_MANUAL_RECOVERY_REQUIRED):
        return "nobody knows on which claims its volumes are whole: see its condition ManualRecoveryRequired"
    if not is_online(vmi) and users:
        return f"the VM is off, and Pods use its claims: {', '.join(users)}"
    if vm.status.snapshot_in_progress:
        return f"snapshot {vm.status.snapshot_in_progress} is in progress"
    if vm.status.restore_in_progress:
        return f"restore {vm.status.restore_in_progress} is in progress"
    return ""


def kept_spec(vm: VirtualMachine, vmi: Vmi, started: VirtualMachineSpec | None) -> VirtualMachineSpec:
    """What a machine that runs was started from, with the volumes that it has now: edits that wait for a restart are
    not in its snapshot."""
    spec = from_plain(to_plain(vm.spec), VirtualMachineSpec)
    if not is_online(vmi) or started is None or started.template is None or spec.template is None:
        return spec
    old, now = started.template.spec, spec.template.spec
    devices = replace(old.domain.devices, disks=now.domain.devices.disks)
    machine = replace(old, volumes=now.volumes, domain=replace(old.domain, devices=devices))
    template = replace(started.template, spec=machine)
    return replace(started, template=template, data_volume_templates=spec.data_volume_templates)


def content_of(
    snapshot: VirtualMachineSnapshot,
    vm: VirtualMachine,
    spec: VirtualMachineSpec,
    disks: Sequence[Disk],
    machine_state: str = "",
) -> VirtualMachineSnapshotContent:
    machine: dict[str, Any] = {
        "metadata": to_plain(replace(vm.metadata, managed_fields=[])),
        "spec": to_plain(spec),
        "status": {},
    }
    return VirtualMachineSnapshotContent(
        metadata=ObjectMeta(
            name=words.content_name(snapshot),
            namespace=snapshot.metadata.namespace,
            annotations={words.ANNOTATION_MACHINE_STATE: machine_state} if machine_state else {},
            finalizers=[words.FINALIZER_CONTENT],
        ),
        spec=VirtualMachineSnapshotContentSpec(
            source=SourceSpec(virtual_machine=machine),
            virtual_machine_snapshot_name=snapshot.metadata.name,
            volume_backups=[_backup(snapshot, disk) for disk in disks if disk.choice.name],
        ),
    )


def _backup(snapshot: VirtualMachineSnapshot, disk: Disk) -> VolumeBackup:
    assert disk.claim is not None
    claim = {"metadata": to_plain(replace(disk.claim.metadata, managed_fields=[])), "spec": to_plain(disk.claim.spec)}
    return VolumeBackup(
        volume_name=disk.volume,
        persistent_volume_claim=claim,
        volume_snapshot_name=words.volume_snapshot_name(snapshot, disk.volume),
    )


def kept_vm(content: VirtualMachineSnapshotContent) -> VirtualMachine:
    """Raises msgspec.ValidationError for what is none."""
    return from_plain(content.spec.source.virtual_machine or {}, VirtualMachine)


def lists_of(content: VirtualMachineSnapshotContent) -> SnapshotVolumesLists:
    held = [backup.volume_name for backup in content.spec.volume_backups]
    others = [volume.name for volume in volumes_of(kept_vm(content)) if volume.name not in held]
    return SnapshotVolumesLists(included_volumes=held, excluded_volumes=others)


def is_partial(content: VirtualMachineSnapshotContent) -> bool:
    """Whether a volume that lasts was left out."""
    held = {backup.volume_name for backup in content.spec.volume_backups}
    return any(volume not in held for volume, _ in named(kept_vm(content)))


def indications(vmi: Vmi, *, partial: bool, late: bool, memory: bool = False) -> list[SourceIndication]:
    """`late`: the guest was frozen, and not long enough. `memory`: it stood still for the sake of its memory."""
    found = {words.PARTIAL} if partial else set()
    if memory:
        found |= {words.ONLINE, words.MEMORY}
    elif vmi is not None and is_online(vmi):
        found.add(words.ONLINE)
        if is_true(vmi.status.conditions, names.CONDITION_PAUSED):
            found.add(words.PAUSED)
        elif is_true(vmi.status.conditions, names.CONDITION_AGENT_CONNECTED):
            found.add(words.GUEST_AGENT)
        else:
            found.add(words.NO_GUEST_AGENT)
    if late:
        found.add(words.QUIESCE_TIMEOUT)
    return [SourceIndication(indication=each, message=_SENTENCES[each]) for each in sorted(found)]


def with_late(known: Sequence[SourceIndication]) -> list[SourceIndication]:
    late = SourceIndication(indication=words.QUIESCE_TIMEOUT, message=_SENTENCES[words.QUIESCE_TIMEOUT])
    others = [each for each in known if each.indication != words.QUIESCE_TIMEOUT]
    return sorted([*others, late], key=lambda each: each.indication)
