"""Which VolumeSnapshotClass saves a claim, and which volumes of a VM can be saved. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from virt_core.apis.datavolume import DataVolume, StorageProfile
from virt_core.apis.storage import PersistentVolumeClaim, StorageClass
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vm import VolumeSnapshotStatus as Status
from virt_core.apis.volumes import Volume
from virt_core.apis.volumesnapshots import ANNOTATION_DEFAULT_CLASS, VolumeSnapshotClass

#: The class of a claim, or why it has none; by the name of its StorageClass.
Choose = Callable[[str | None], "Choice"]


@dataclass(frozen=True, slots=True)
class Choice:
    name: str = ""
    #: Why there is none.
    why: str = ""


@dataclass(frozen=True, slots=True)
class Disks:
    """What a cluster has of the volumes of a VM."""

    claims: Callable[[str], PersistentVolumeClaim | None]
    data_volumes: Callable[[str], DataVolume | None]
    choose: Choose = field(default=lambda _name: Choice(why="nobody has looked"))


def choice(
    storage_class: StorageClass | None, profile: StorageProfile | None, known: Iterable[VolumeSnapshotClass]
) -> Choice:
    """What the class's profile says, else the only one of its driver, else the default of those."""
    if storage_class is None:
        return Choice(why="it has no StorageClass that exists")
    name, classes = storage_class.metadata.name, sorted(known, key=lambda each: each.metadata.name)
    told = profile.status.snapshot_class if profile is not None else None
    if told:
        found = any(each.metadata.name == told for each in classes)
        return Choice(told) if found else Choice(why=f"StorageProfile {name} names {told}, which does not exist")
    fitting = [each for each in classes if each.driver == storage_class.provisioner]
    if not fitting:
        words = f"there is no VolumeSnapshotClass for the StorageClass {name} ({storage_class.provisioner})"
        return Choice(why=words)
    marked = [each for each in fitting if each.metadata.annotations.get(ANNOTATION_DEFAULT_CLASS) == "true"]
    if len(fitting) > 1 and not marked:
        words = f"{len(fitting)} VolumeSnapshotClasses fit the StorageClass {name}, and none is marked as default"
        return Choice(why=words)
    return Choice((marked or fitting)[0].metadata.name)


def claim_name(volume: Volume) -> str:
    """Of what a snapshot can hold; empty for all else."""
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name
    if volume.data_volume is not None:
        return volume.data_volume.name
    return volume.memory_dump.claim_name if volume.memory_dump is not None else ""


def volumes_of(vm: VirtualMachine) -> list[Volume]:
    return vm.spec.template.spec.volumes if vm.spec.template is not None else []


def statuses(vm: VirtualMachine, disks: Disks) -> list[Status]:
    """For each volume whether a snapshot of the VM will hold it."""
    return [_status(vm, volume, disks) for volume in volumes_of(vm)]


def _status(vm: VirtualMachine, volume: Volume, disks: Disks) -> Status:
    name = claim_name(volume)
    if not name:
        return Status(name=volume.name, enabled=False, reason="a volume of this kind cannot be in a snapshot")
    claim = disks.claims(f"{vm.metadata.namespace}/{name}")
    if claim is None and volume.data_volume is None:
        return Status(name=volume.name, enabled=False, reason=f"PVC {name} not found")
    found = disks.choose(
        (claim.spec.storage_class_name or "") if claim is not None else _class_to_come(vm, name, disks)
    )
    return Status(name=volume.name, enabled=bool(found.name), reason=found.why)


def _class_to_come(vm: VirtualMachine, name: str, disks: Disks) -> str | None:
    """Of a DataVolume that has no claim yet."""
    for spec in _specs(vm, name, disks):
        for part in ("pvc", "storage"):
            given = spec.get(part)
            if isinstance(given, dict) and isinstance(given.get("storageClassName"), str):
                return str(given["storageClassName"])
    return None


def _specs(vm: VirtualMachine, name: str, disks: Disks) -> Iterator[dict[str, Any]]:
    volume = disks.data_volumes(f"{vm.metadata.namespace}/{name}")
    if volume is not None:
        yield volume.spec
    for template in vm.spec.data_volume_templates:
        if template.metadata is not None and template.metadata.name == name:
            yield template.spec
