"""Looks up what else counts for a VMI beside its Pods: its VM, its claims and DataVolumes, its networks, a free vsock
address."""

from __future__ import annotations

from collections.abc import Iterable

from virt_controller.vm.volumes import is_filling, phase_of
from virt_controller.vmi import networks, owned
from virt_controller.vmi.keptstate import StateKeeper
from virt_controller.vmi.owned import Surroundings
from virt_controller.vmi.vsock import CidBook
from virt_core.apis import names
from virt_core.apis.datavolume import FAILED, FIRST_CONSUMER, DataVolume
from virt_core.apis.podnetworks import NetworkAttachmentDefinition
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.volumemoves import source_claims
from virt_core.kube.informer import Informer

#: VMIs by the claims and DataVolumes that they use.
VOLUME_INDEX = "volume"
#: VMIs by the NetworkAttachmentDefinitions that they use.
NETWORK_INDEX = "network"


def vmi_volumes(vmi: VirtualMachineInstance) -> list[str]:
    return [f"{vmi.metadata.namespace}/{name}" for name in set(owned.claims(vmi))]


def _is_unready(phase: str, claim: PersistentVolumeClaim | None) -> bool:
    return phase != FAILED and (is_filling(phase) or claim is None)


def _near(claims: Iterable[PersistentVolumeClaim]) -> tuple[str, ...]:
    nodes = (claim.metadata.annotations.get(names.ANNOTATION_SELECTED_NODE, "") for claim in claims)
    return tuple(dict.fromkeys(node for node in nodes if node))


class Looker:
    def __init__(
        self,
        vms: Informer[VirtualMachine] | None,
        claims: Informer[PersistentVolumeClaim] | None,
        data_volumes: Informer[DataVolume] | None,
        vmis: Informer[VirtualMachineInstance],
        states: StateKeeper,
        *,
        definitions: Informer[NetworkAttachmentDefinition] | None = None,
    ) -> None:
        self._definitions = definitions
        self._vms, self._claims, self._data_volumes = vms, claims, data_volumes
        self._cids, self._states = CidBook(vmis.list), states

    def look(self, vmi: VirtualMachineInstance) -> Surroundings:
        orphan = self._is_orphan(vmi)
        if vmi.status.phase in names.FINAL_PHASES or self._claims is None:
            return Surroundings(orphan)
        space = vmi.metadata.namespace
        found = {name: self._claims.get(f"{space}/{name}") for name in owned.needed_claims(vmi)}
        phases, later = self._phases(vmi), self._later(vmi)
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
            state=self._states.look(vmi),
            missing_networks=self._missing_networks(vmi),
            network_resources=self._network_resources(vmi),
            near=_near(later),
            later_volumes=tuple(claim.spec.volume_name for claim in later if claim.spec.volume_name),
        )

    def _later(self, vmi: VirtualMachineInstance) -> list[PersistentVolumeClaim]:
        """The claims that are brought to it when it has a node."""
        if self._claims is None:
            return []
        later = set(owned.claims(vmi)) - set(owned.needed_claims(vmi)) - set(source_claims(vmi))
        found = (self._claims.get(f"{vmi.metadata.namespace}/{name}") for name in sorted(later))
        return [claim for claim in found if claim is not None]

    def _missing_networks(self, vmi: VirtualMachineInstance) -> tuple[str, ...]:
        if self._definitions is None:
            return ()
        return tuple(key for key in networks.definitions(vmi) if self._definitions.get(key) is None)

    def _network_resources(self, vmi: VirtualMachineInstance) -> dict[str, str]:
        if self._definitions is None:
            return {}
        found = {network: self._definitions.get(key) for network, key in networks.named(vmi).items()}
        return {network: networks.resource_of(each) for network, each in found.items() if networks.resource_of(each)}

    def _phases(self, vmi: VirtualMachineInstance) -> dict[str, str]:
        """Of the DataVolumes that it uses, by whatever volume: a claim of that name is the same bytes."""
        if self._data_volumes is None:
            return {}
        found = {n: self._data_volumes.get(f"{vmi.metadata.namespace}/{n}") for n in owned.needed_claims(vmi)}
        return {name: phase_of(volume) for name, volume in found.items() if volume is not None}

    def _is_orphan(self, vmi: VirtualMachineInstance) -> bool:
        ref = owned.owner_vm(vmi)
        if ref is None or self._vms is None:
            return True
        vm = self._vms.get(f"{vmi.metadata.namespace}/{ref.name}")
        return vm is None or vm.metadata.uid != ref.uid
