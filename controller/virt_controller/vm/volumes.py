"""Claims and DataVolumes of a VM: those of its templates are made, and all must be there before it starts.

A cluster may have no DataVolumes: neither CDI nor our own importer. The watch on them is then empty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from virt_controller.vm.clonesource import CloneGuard
from virt_controller.vm.printable import Volumes
from virt_core.apis import names
from virt_core.apis.datavolume import DONE, FAILED, KEY_ADOPTION, WAITING, DataVolume
from virt_core.apis.facts import is_terminating
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.registry import owner_reference
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import DataVolumeTemplateSpec, VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstanceSpec
from virt_core.kube.client import KubeClient
from virt_core.kube.errors import AlreadyExists, NotFound
from virt_core.kube.informer import Informer

Claims = Callable[[str], PersistentVolumeClaim | None]


class NoDataVolumesError(Exception):
    """The cluster has no DataVolumes."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a spec takes its bytes from."""

    claims: tuple[str, ...]
    data_volumes: tuple[str, ...]


def needs(spec: VirtualMachineInstanceSpec) -> Needs:
    claims = [v.persistent_volume_claim.claim_name for v in spec.volumes if v.persistent_volume_claim is not None]
    claims += [
        v.ephemeral.persistent_volume_claim.claim_name
        for v in spec.volumes
        if v.ephemeral is not None and v.ephemeral.persistent_volume_claim is not None
    ]
    return Needs(tuple(claims), tuple(v.data_volume.name for v in spec.volumes if v.data_volume is not None))


def state(need: Needs, namespace: str, claims: Claims, phases: dict[str, str]) -> Volumes:
    """`phases` are those of the DataVolumes that exist. A DataVolume's claim has its name."""
    found = {name: claims(f"{namespace}/{name}") for name in (*need.claims, *need.data_volumes)}
    open_ = [name for name in need.data_volumes if is_filling(phases.get(name, DONE))]
    missing = [name for name, claim in found.items() if claim is None and name not in phases]
    return Volumes(
        failed=any(phases.get(name) == FAILED for name in need.data_volumes),
        provisioning=bool(open_),
        unbound=any(c is not None and c.status.phase != "Bound" for c in found.values()),
        missing=tuple(missing),
    )


def wants_data_volumes_now(vm: VirtualMachine, starting: bool) -> bool:
    return starting or vm.metadata.annotations.get(names.ANNOTATION_IMMEDIATE_DATA_VOLUMES) != "false"


def make_data_volume(vm: VirtualMachine, template: DataVolumeTemplateSpec) -> DataVolume:
    given = template.metadata or ObjectMeta()
    metadata = ObjectMeta(
        name=given.name,
        namespace=vm.metadata.namespace,
        labels=dict(given.labels) | {names.LABEL_CREATED_BY: vm.metadata.uid},
        annotations=dict(given.annotations) | {KEY_ADOPTION: "true"},
        owner_references=[owner_reference(vm)],
    )
    return DataVolume(metadata=metadata, spec=_spec(vm, template))


def _spec(vm: VirtualMachine, template: DataVolumeTemplateSpec) -> dict[str, Any]:
    """What fills the disk is as urgent as the machine."""
    spec, machine = dict(template.spec), vm.spec.template
    if machine is not None and machine.spec.priority_class_name and not spec.get("priorityClassName"):
        spec["priorityClassName"] = machine.spec.priority_class_name
    return spec


def phase_of(volume: DataVolume) -> str:
    return volume.status.phase or "Pending"


def is_filling(phase: str) -> bool:
    """Whether its bytes are still on their way."""
    return phase not in {DONE, *WAITING}


def vm_volumes(vm: VirtualMachine) -> list[str]:
    """The keys of the claims and DataVolumes whose changes concern a VM."""
    need = needs(vm.spec.template.spec) if vm.spec.template is not None else Needs((), ())
    made = [t.metadata.name for t in vm.spec.data_volume_templates if t.metadata is not None]
    return [f"{vm.metadata.namespace}/{name}" for name in {*need.claims, *need.data_volumes, *made}]


class DataVolumes:
    """The DataVolumes of a cluster, if it has any."""

    def __init__(self, client: KubeClient, known: Informer[DataVolume]) -> None:
        self._client, self._known, self._guard = client, known, CloneGuard(client)

    def phases(self, namespace: str, wanted: tuple[str, ...]) -> dict[str, str]:
        """Of those that exist."""
        found = {name: self._known.get(f"{namespace}/{name}") for name in wanted}
        return {name: phase_of(volume) for name, volume in found.items() if volume is not None}

    def create(self, vm: VirtualMachine, template: DataVolumeTemplateSpec) -> None:
        """Raises NoDataVolumesError, CloneRefusedError, ApiError."""
        self._guard.check(vm, template)
        try:
            self._client.create(make_data_volume(vm, template))
        except AlreadyExists:
            return
        except NotFound as error:
            name = template.metadata.name if template.metadata is not None else ""
            raise NoDataVolumesError(
                f"DataVolume {name!r} cannot be made: the cluster has no CDI, which makes DataVolumes,"
                " and does not have Virtpod's importer either (the chart's value dataVolumes.enabled)"
            ) from error


class VolumeKeeper:
    """Makes the DataVolumes that a VM's templates want, and says how its volumes are."""

    def __init__(self, data_volumes: DataVolumes, claims: Claims) -> None:
        self._data_volumes, self._claims = data_volumes, claims

    def look(self, vm: VirtualMachine, starting: bool) -> Volumes:
        if vm.spec.template is None or is_terminating(vm):
            return Volumes()
        need, space = needs(vm.spec.template.spec), vm.metadata.namespace
        phases = self._data_volumes.phases(space, need.data_volumes)
        if wants_data_volumes_now(vm, starting):
            self._make_missing(vm, phases)
        return state(need, space, self._claims, phases)

    def _make_missing(self, vm: VirtualMachine, phases: dict[str, str]) -> None:
        for template in vm.spec.data_volume_templates:
            name = template.metadata.name if template.metadata is not None else ""
            if name and name not in phases and self._claims(f"{vm.metadata.namespace}/{name}") is None:
                self._data_volumes.create(vm, template)
                phases[name] = "Pending"
