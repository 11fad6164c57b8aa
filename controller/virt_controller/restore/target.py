"""The VM as a restore leaves it: the one that is there, or a new one. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from virt_core.apis import names
from virt_core.apis import snapshot as words
from virt_core.apis.base import UNREADABLE, from_plain, to_plain
from virt_core.apis.jsonpatch import PatchError, PatchShapeError, apply_patch
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.snapshot import VirtualMachineRestore, VolumeRestore
from virt_core.apis.vm import DataVolumeTemplateSpec, VirtualMachine, VirtualMachineSpec
from virt_core.apis.volumes import VMIPersistentVolumeClaim, Volume

Operations = list[dict[str, Any]]


class PatchFailedError(Exception):
    """A patch of the restore does not fit the VM, and never will."""


def is_restored(restore: VirtualMachineRestore, vm: VirtualMachine | None) -> bool:
    return vm is not None and vm.metadata.annotations.get(words.ANNOTATION_LAST_RESTORE) == words.mark_of(restore)


def spec_with(spec: VirtualMachineSpec, restores: Sequence[VolumeRestore]) -> VirtualMachineSpec:
    """The spec that was kept, on its new claims. Dumps of memory are left out."""
    spec = from_plain(to_plain(spec), VirtualMachineSpec)
    if spec.template is None:
        return spec
    by_volume = {each.volume_name: each for each in restores}
    machine = spec.template.spec
    dumps = {volume.name for volume in machine.volumes if volume.memory_dump is not None}
    volumes = [_volume(v, by_volume.get(v.name)) for v in machine.volumes if v.name not in dumps]
    disks = [disk for disk in machine.domain.devices.disks if disk.name not in dumps]
    devices = replace(machine.domain.devices, disks=disks)
    machine = replace(machine, volumes=volumes, domain=replace(machine.domain, devices=devices))
    return replace(
        spec,
        template=replace(spec.template, spec=machine),
        data_volume_templates=[_template(each, machine_names(spec, by_volume)) for each in spec.data_volume_templates],
    )


def machine_names(spec: VirtualMachineSpec, by_volume: dict[str, VolumeRestore]) -> dict[str, str]:
    """The old name of each DataVolume of a template → its new one."""
    volumes = spec.template.spec.volumes if spec.template is not None else []
    found = {
        v.data_volume.name: by_volume[v.name] for v in volumes if v.data_volume is not None and v.name in by_volume
    }
    return {old: each.data_volume_name for old, each in found.items() if each.data_volume_name}


def _template(template: DataVolumeTemplateSpec, renamed: dict[str, str]) -> DataVolumeTemplateSpec:
    meta = template.metadata
    if meta is None or meta.name not in renamed:
        return template
    return replace(template, metadata=replace(meta, name=renamed[meta.name]))


def _volume(volume: Volume, restored: VolumeRestore | None) -> Volume:
    if restored is None:
        return volume
    if volume.data_volume is not None and restored.data_volume_name:
        return replace(volume, data_volume=replace(volume.data_volume, name=restored.data_volume_name))
    if volume.data_volume is not None:
        hot = volume.data_volume.hotpluggable
        claim = VMIPersistentVolumeClaim(claim_name=restored.persistent_volume_claim, hotpluggable=hot)
        return replace(volume, data_volume=None, persistent_volume_claim=claim)
    if volume.persistent_volume_claim is not None:
        claim = replace(volume.persistent_volume_claim, claim_name=restored.persistent_volume_claim)
        return replace(volume, persistent_volume_claim=claim)
    return volume


def replaced_data_volumes(vm: VirtualMachine, spec: VirtualMachineSpec) -> list[str]:
    """Those of templates that the VM had and has no more."""
    new = {t.metadata.name for t in spec.data_volume_templates if t.metadata is not None}
    old = [t.metadata.name for t in vm.spec.data_volume_templates if t.metadata is not None]
    return [name for name in old if name not in new]


def in_place(restore: VirtualMachineRestore, vm: VirtualMachine, spec: VirtualMachineSpec) -> Operations:
    """The VM keeps its metadata and its run strategy; but it does not start because of a restore."""
    running = False if vm.spec.running is not None else None
    spec = replace(spec, running=running, run_strategy=vm.spec.run_strategy)
    notes = vm.metadata.annotations | {words.ANNOTATION_LAST_RESTORE: words.mark_of(restore)}
    return [
        {"op": "add", "path": "/metadata/annotations", "value": notes},
        {"op": "replace", "path": "/spec", "value": to_plain(spec)},
    ]


def new_vm(restore: VirtualMachineRestore, source: VirtualMachine, spec: VirtualMachineSpec) -> VirtualMachine:
    """A VM that is off, changed as the restore says. Raises PatchFailedError."""
    running = False if spec.running is not None and not spec.run_strategy else None
    strategy = None if running is not None else names.STRATEGY_HALTED
    document = {
        "metadata": {"labels": dict(source.metadata.labels), "annotations": dict(source.metadata.annotations)},
        "spec": to_plain(replace(spec, running=running, run_strategy=strategy)),
    }
    made = from_patched(_patched(document, restore.spec.patches))
    meta = ObjectMeta(
        name=restore.spec.target.name,
        namespace=restore.metadata.namespace,
        labels=made.metadata.labels,
        annotations=made.metadata.annotations | {words.ANNOTATION_LAST_RESTORE: words.mark_of(restore)},
    )
    return VirtualMachine(metadata=meta, spec=_without_our_labels(made.spec))


def from_patched(document: Any) -> VirtualMachine:
    try:
        return from_plain({"metadata": document["metadata"], "spec": document["spec"]}, VirtualMachine)
    except (msgspec.ValidationError, KeyError, TypeError) as error:
        raise PatchFailedError(f"spec.patches do not leave a VM: {error}") from error


def _patched(document: dict[str, Any], patches: Sequence[str]) -> Any:
    found: Any = document
    for number, text in enumerate(patches):
        try:
            found = apply_patch(found, [msgspec.json.decode(text)])
        except (PatchError, PatchShapeError, *UNREADABLE) as error:
            raise PatchFailedError(f"spec.patches[{number}] cannot be applied: {error}") from error
    return found


def _without_our_labels(spec: VirtualMachineSpec) -> VirtualMachineSpec:
    """We are trusted with them at the door, whoever wrote the restore is not."""
    template = spec.template
    if template is None or template.metadata is None:
        return spec
    labels = {key: value for key, value in template.metadata.labels.items() if key not in names.RESTRICTED_LABELS}
    return replace(spec, template=replace(template, metadata=replace(template.metadata, labels=labels)))
