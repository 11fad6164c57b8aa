"""What a clone makes: the snapshot and the restore in between, and the patches by which the new VM differs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from virt_controller.restore import target
from virt_core.apis import names
from virt_core.apis import snapshot as words
from virt_core.apis.base import UNREADABLE, encode, to_plain
from virt_core.apis.clone import VirtualMachineClone, VirtualMachineCloneSpec
from virt_core.apis.clonefilters import dropped
from virt_core.apis.jsonpatch import PatchError, PatchShapeError, apply_patch
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.podparts import TypedLocalObjectReference
from virt_core.apis.registry import owner_reference
from virt_core.apis.snapshot import (
    VirtualMachineRestore,
    VirtualMachineRestoreSpec,
    VirtualMachineSnapshot,
    VirtualMachineSnapshotSpec,
)
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstanceSpec
from virt_core.kube.patch import op, pointer

VM, SNAPSHOT = "VirtualMachine", "VirtualMachineSnapshot"

_DOMAIN = ("spec", "template", "spec", "domain")

Operation = Mapping[str, Any]


def snapshot_name(clone: VirtualMachineClone) -> str:
    """Of the snapshot that it is made from: the source itself, or one that is made for it."""
    return clone.spec.source.name if clone.spec.source.kind == SNAPSHOT else f"tmp-snapshot-{clone.metadata.uid}"


def restore_name(clone: VirtualMachineClone) -> str:
    return f"tmp-restore-{clone.metadata.uid}"


def target_name(clone: VirtualMachineClone) -> str:
    """Our door gives it a name; a clone that came by another one is named after its source."""
    target = clone.spec.target
    return target.name if target is not None and target.name else f"clone-{clone.metadata.uid}"


def snapshot_of(clone: VirtualMachineClone) -> VirtualMachineSnapshot:
    return VirtualMachineSnapshot(
        metadata=_metadata(clone, snapshot_name(clone)),
        spec=VirtualMachineSnapshotSpec(source=_vm(clone.spec.source.name)),
    )


def restore_of(clone: VirtualMachineClone, saved: VirtualMachine) -> VirtualMachineRestore:
    """`saved` is the VM as the snapshot has it."""
    return VirtualMachineRestore(
        metadata=_metadata(clone, restore_name(clone)),
        spec=VirtualMachineRestoreSpec(
            virtual_machine_snapshot_name=snapshot_name(clone),
            target=_vm(target_name(clone)),
            volume_restore_policy=clone.spec.volume_name_policy,
            patches=patches_of(clone.spec, saved),
        ),
    )


def _metadata(clone: VirtualMachineClone, name: str) -> ObjectMeta:
    return ObjectMeta(name=name, namespace=clone.metadata.namespace, owner_references=[owner_reference(clone)])


def _vm(name: str) -> TypedLocalObjectReference:
    return TypedLocalObjectReference(api_group=names.GROUP, kind=VM, name=name)


def machine_of(vm: VirtualMachine) -> VirtualMachineInstanceSpec:
    return vm.spec.template.spec if vm.spec.template is not None else VirtualMachineInstanceSpec()


def unknown_interfaces(spec: VirtualMachineCloneSpec, vm: VirtualMachine) -> list[str]:
    """Those that shall have a new address and are not there."""
    known = {each.name for each in machine_of(vm).domain.devices.interfaces}
    return sorted(set(spec.new_mac_addresses) - known)


def patches_of(spec: VirtualMachineCloneSpec, saved: VirtualMachine) -> list[str]:
    """In this order: what the user asks for comes last, and so it holds."""
    return [*(encode(each).decode() for each in _changes(spec, saved)), *spec.patches]


def _changes(spec: VirtualMachineCloneSpec, saved: VirtualMachine) -> list[Operation]:
    return [*_addresses(spec, saved), *_serial(spec, saved), *_filtered(spec, saved), *_uuid(saved)]


def patch_fault(clone: VirtualMachineClone, saved: VirtualMachine) -> str:
    """Why the user's patches do not fit; empty when they do. Said before a disk is copied in vain."""
    if not clone.spec.patches:
        return ""
    plain = VirtualMachineRestore(metadata=_metadata(clone, restore_name(clone)))
    made = target.new_vm(plain, saved, saved.spec)
    meta = {"labels": made.metadata.labels, "annotations": made.metadata.annotations}
    found: Any = apply_patch({"metadata": meta, "spec": to_plain(made.spec)}, _changes(clone.spec, saved))
    for i, text in enumerate(clone.spec.patches):
        try:
            found = apply_patch(found, [msgspec.json.decode(text)])
        except (PatchError, PatchShapeError, *UNREADABLE) as error:
            return f"spec.patches[{i}] cannot be applied: {error}"
    try:
        target.from_patched(found)
    except target.PatchFailedError as error:
        return str(error)
    return ""


def _addresses(spec: VirtualMachineCloneSpec, saved: VirtualMachine) -> Iterator[Operation]:
    """Two machines with one address cannot both be reached: what gets no new one gets none, and the node chooses."""
    for i, nic in enumerate(machine_of(saved).domain.devices.interfaces):
        where = pointer(*_DOMAIN, "devices", "interfaces", str(i), "macAddress")
        if new := spec.new_mac_addresses.get(nic.name):
            yield op.add(where, new)
        elif nic.mac_address:
            yield op.remove(where)


def _serial(spec: VirtualMachineCloneSpec, saved: VirtualMachine) -> Iterator[Operation]:
    firmware, new = machine_of(saved).domain.firmware, spec.new_sm_bios_serial
    if firmware is None and new:
        yield op.add(pointer(*_DOMAIN, "firmware"), {"serial": new})
    elif new:
        yield op.add(pointer(*_DOMAIN, "firmware", "serial"), new)
    elif firmware is not None and firmware.serial:
        yield op.remove(pointer(*_DOMAIN, "firmware", "serial"))


def _uuid(saved: VirtualMachine) -> Iterator[Operation]:
    firmware = machine_of(saved).domain.firmware
    if firmware is not None and firmware.uuid:
        yield op.remove(pointer(*_DOMAIN, "firmware", "uuid"))


def _filtered(spec: VirtualMachineCloneSpec, saved: VirtualMachine) -> Iterator[Operation]:
    template = saved.spec.template.metadata if saved.spec.template is not None else None
    inner = template or ObjectMeta()
    parts = (
        (("metadata", "labels"), saved.metadata.labels, spec.label_filters),
        (("metadata", "annotations"), saved.metadata.annotations, spec.annotation_filters),
        (("spec", "template", "metadata", "labels"), inner.labels, spec.template.label_filters),
        (("spec", "template", "metadata", "annotations"), inner.annotations, spec.template.annotation_filters),
    )
    for path, found, filters in parts:
        for key in dropped(found, filters):
            if key != words.ANNOTATION_LAST_RESTORE:
                yield op.remove(pointer(*path, key))
