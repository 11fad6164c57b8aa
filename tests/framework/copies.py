"""Snapshots, what they hold, restores and claims for unit tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from framework.vms import plain_vm

from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.registry import plain_object
from virt_core.apis.snapshot import (
    FINALIZER_SOURCE,
    VirtualMachineRestore,
    VirtualMachineSnapshot,
    VirtualMachineSnapshotContent,
)
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.volumesnapshots import VolumeSnapshot

SNAPSHOT_UID, RESTORE_UID, CONTENT_UID = "5", "7", "c0"
CREATED = "2026-01-01T00:00:00Z"
START = datetime(2026, 1, 1, tzinfo=UTC)
SAVED = f"vmsnapshot-{SNAPSHOT_UID}-volume-data"
CONTENT = f"vmsnapshot-content-{SNAPSHOT_UID}"
SOURCE = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "vm"}


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def _meta(name: str, uid: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": "default",
        "uid": uid,
        "resourceVersion": "1",
        "creationTimestamp": CREATED,
        **more,
    }


def snapshot(
    status: dict[str, Any] | None = None, metadata: dict[str, Any] | None = None, **spec: Any
) -> VirtualMachineSnapshot:
    plain = {
        "metadata": _meta("snap", SNAPSHOT_UID, **(metadata or {})),
        "spec": {"source": SOURCE, **spec},
        "status": status or {},
    }
    return from_plain(plain, VirtualMachineSnapshot)


def claim(name: str = "disk", phase: str = "Bound", **changes: Any) -> PersistentVolumeClaim:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "fast",
        "resources": {"requests": {"storage": "1Gi"}},
    } | changes.pop("spec", {})
    plain = {"metadata": _meta(name, f"uid-{name}", **changes), "spec": spec, "status": {"phase": phase}}
    return from_plain(plain, PersistentVolumeClaim)


def vm_with(source: dict[str, Any] | None = None, **changes: Any) -> VirtualMachine:
    """A VM with a container disk and the volume `data`, a claim unless something else is said."""
    plain = plain_vm("vm", "Halted", **changes)
    volume = {"name": "data", **(source or {"persistentVolumeClaim": {"claimName": "disk"}})}
    plain["spec"]["template"]["spec"]["volumes"].append(volume)
    plain["spec"]["template"]["spec"]["domain"]["devices"]["disks"].append({"name": "data"})
    return from_plain(plain, VirtualMachine)


def locked(vm: VirtualMachine) -> VirtualMachine:
    plain = plain_object(vm)
    plain["status"] = {**plain.get("status", {}), "snapshotInProgress": "snap"}
    plain["metadata"]["finalizers"] = [*plain["metadata"].get("finalizers", []), FINALIZER_SOURCE]
    return from_plain(plain, VirtualMachine)


def content(
    status: dict[str, Any] | None = None,
    vm: VirtualMachine | None = None,
    held: PersistentVolumeClaim | None = None,
    **metadata: Any,
) -> VirtualMachineSnapshotContent:
    kept = held or claim()
    backup = {"volumeName": "data", "persistentVolumeClaim": to_plain(kept), "volumeSnapshotName": SAVED}
    machine = to_plain(vm or vm_with())
    plain = {
        "metadata": _meta(CONTENT, CONTENT_UID, **metadata),
        "spec": {
            "virtualMachineSnapshotName": "snap",
            "source": {"virtualMachine": machine},
            "volumeBackups": [backup],
        },
        "status": status or {},
    }
    return from_plain(plain, VirtualMachineSnapshotContent)


def saved(name: str = SAVED, **status: Any) -> VolumeSnapshot:
    owner = {"apiVersion": "x", "kind": "VirtualMachineSnapshotContent", "name": CONTENT, "uid": CONTENT_UID}
    plain = {"metadata": _meta(name, "s0", ownerReferences=[owner]), "status": status}
    return from_plain(plain, VolumeSnapshot)


def restore(
    status: dict[str, Any] | None = None, metadata: dict[str, Any] | None = None, **spec: Any
) -> VirtualMachineRestore:
    plain = {
        "metadata": _meta("back", RESTORE_UID, **(metadata or {})),
        "spec": {"target": SOURCE, "virtualMachineSnapshotName": "snap", **spec},
        "status": status or {},
    }
    return from_plain(plain, VirtualMachineRestore)
