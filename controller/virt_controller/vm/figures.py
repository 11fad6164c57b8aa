"""Disks of VMs as a metric: how much storage each has asked for, whether its machine runs or not."""

from __future__ import annotations

from typing import Protocol

from virt_core.apis.podvolumes import VolumeResourceRequirements
from virt_core.apis.quantity import parse_bytes
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.volumes import claim_of
from virt_core.runtime.metrics import Family

NAME = "kubevirt_vm_disk_allocated_size_bytes"
_LABELS = ("name", "namespace", "persistentvolumeclaim", "volume_mode", "device")


class Vms(Protocol):
    def list(self) -> list[VirtualMachine]: ...


class Claims(Protocol):
    def get(self, key: str) -> PersistentVolumeClaim | None: ...


class DiskFigures:
    """For the registry of metrics; only the leader has anything to tell."""

    def __init__(self, vms: Vms, claims: Claims) -> None:
        self._vms, self._claims = vms, claims

    def collect(self) -> list[Family]:
        rows = [row for vm in self._vms.list() for row in self._disks(vm)]
        return [Family(NAME, "What the claim behind a volume of a VM asks for.", "gauge", _LABELS, rows)]

    def _disks(self, vm: VirtualMachine) -> list[tuple[tuple[str, ...], float]]:
        """A claim that is not there yet has no size yet."""
        rows: list[tuple[tuple[str, ...], float]] = []
        meta = vm.metadata
        for volume in vm.spec.template.spec.volumes if vm.spec.template is not None else []:
            name = claim_of(volume)
            claim = self._claims.get(f"{meta.namespace}/{name}") if name else None
            if claim is not None:
                mode = claim.spec.volume_mode or "Filesystem"
                rows.append(((meta.name, meta.namespace, name, mode, volume.name), _size(claim)))
        return rows


def _size(claim: PersistentVolumeClaim) -> float:
    wanted = (claim.spec.resources or VolumeResourceRequirements()).requests
    return float(parse_bytes(wanted.get("storage", 0)))
