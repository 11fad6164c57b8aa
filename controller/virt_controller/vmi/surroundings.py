"""Looks up what else counts for a VMI beside its Pods: its VM, its claims and DataVolumes, a free vsock address."""

from __future__ import annotations

from virt_controller.vm.volumes import FAILED, FIRST_CONSUMER, is_filling, phase_of
from virt_controller.vmi import owned
from virt_controller.vmi.owned import Surroundings
from virt_controller.vmi.vsock import CidBook
from virt_core.apis import names
from virt_core.apis.datavolume import DataVolume
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.informer import Informer

#: VMIs by the claims and DataVolumes that they use.
VOLUME_INDEX = "volume"


def vmi_volumes(vmi: VirtualMachineInstance) -> list[str]:
    return [f"{vmi.metadata.namespace}/{name}" for name in set(owned.claims(vmi))]


def _is_unready(phase: str, claim: PersistentVolumeClaim | None) -> bool:
    return phase != FAILED and (is_filling(phase) or claim is None)


class Looker:
    def __init__(
        self,
        vms: Informer[VirtualMachine] | None,
        claims: Informer[PersistentVolumeClaim] | None,
        data_volumes: Informer[DataVolume] | None,
        vmis: Informer[VirtualMachineInstance],
    ) -> None:
        self._vms, self._claims, self._data_volumes = vms, claims, data_volumes
        self._cids = CidBook(vmis.list)

    def look(self, vmi: VirtualMachineInstance) -> Surroundings:
        orphan = self._is_orphan(vmi)
        if vmi.status.phase in names.FINAL_PHASES or self._claims is None:
            return Surroundings(orphan)
        space = vmi.metadata.namespace
        found = {name: self._claims.get(f"{space}/{name}") for name in owned.claims(vmi)}
        phases = self._phases(vmi)
        return Surroundings(
            orphan,
            # A DataVolume that waits for its turn has no claim yet.
            missing_claims=tuple(name for name, claim in found.items() if claim is None and name not in phases),
            claims={name: claim for name, claim in found.items() if claim is not None},
            unready=tuple(name for name, phase in phases.items() if _is_unready(phase, found[name])),
            waiting=tuple(
                name for name, phase in phases.items() if phase == FIRST_CONSUMER and found[name] is not None
            ),
            broken=tuple(name for name, phase in phases.items() if phase == FAILED),
            vsock_cid=self._cids.of(vmi),
        )

    def _phases(self, vmi: VirtualMachineInstance) -> dict[str, str]:
        """Of the DataVolumes that it uses, by whatever volume: a claim of that name is the same bytes."""
        if self._data_volumes is None:
            return {}
        found = {n: self._data_volumes.get(f"{vmi.metadata.namespace}/{n}") for n in owned.claims(vmi)}
        return {name: phase_of(volume) for name, volume in found.items() if volume is not None}

    def _is_orphan(self, vmi: VirtualMachineInstance) -> bool:
        ref = owned.owner_vm(vmi)
        if ref is None or self._vms is None:
            return True
        vm = self._vms.get(f"{vmi.metadata.namespace}/{ref.name}")
        return vm is None or vm.metadata.uid != ref.uid
