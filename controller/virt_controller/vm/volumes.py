"""Claims and DataVolumes of a VM: those of its templates are made, and all must be there before it starts.

DataVolumes belong to another project (CDI), which may not be installed. They are read one by one when a VM names some:
a watch on a kind that may not exist would never come to rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from virt_controller.vm.printable import Volumes
from virt_core.apis import names
from virt_core.apis.base import encode, to_plain
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.registry import owner_reference
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import DataVolumeTemplateSpec, VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstanceSpec
from virt_core.kube.client import KubeClient
from virt_core.kube.errors import AlreadyExists, NotFound

_DATA_VOLUMES = "/apis/cdi.kubevirt.io/v1beta1/namespaces/{}/datavolumes"
_API_VERSION = "cdi.kubevirt.io/v1beta1"
_DONE = "Succeeded"
_FAILED = "Failed"
#: Made when the first consumer comes, so it is no reason to wait.
_WAITING = frozenset({"WaitForFirstConsumer", "PendingPopulation"})

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
    open_ = [name for name in need.data_volumes if phases.get(name, _DONE) not in {_DONE, *_WAITING}]
    missing = [name for name, claim in found.items() if claim is None and name not in phases]
    return Volumes(
        failed=any(phases.get(name) == _FAILED for name in need.data_volumes),
        provisioning=bool(open_),
        unbound=any(c is not None and c.status.phase != "Bound" for c in found.values()),
        missing=tuple(missing),
    )


def wants_data_volumes_now(vm: VirtualMachine, starting: bool) -> bool:
    return starting or vm.metadata.annotations.get(names.ANNOTATION_IMMEDIATE_DATA_VOLUMES) != "false"


def make_data_volume(vm: VirtualMachine, template: DataVolumeTemplateSpec) -> dict[str, Any]:
    given = template.metadata or ObjectMeta()
    metadata = ObjectMeta(
        name=given.name,
        namespace=vm.metadata.namespace,
        labels=dict(given.labels),
        annotations=dict(given.annotations),
        owner_references=[owner_reference(vm)],
    )
    return {"apiVersion": _API_VERSION, "kind": "DataVolume", "metadata": to_plain(metadata), "spec": template.spec}


class DataVolumes:
    """The DataVolumes of a cluster, if it has any."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    def phase(self, namespace: str, name: str) -> str | None:
        """None when it does not exist."""
        try:
            body = self._client.raw("GET", f"{_DATA_VOLUMES.format(namespace)}/{name}")
        except NotFound:
            return None
        return str((msgspec.json.decode(body).get("status") or {}).get("phase") or "Pending")

    def phases(self, namespace: str, wanted: tuple[str, ...]) -> dict[str, str]:
        found = {name: self.phase(namespace, name) for name in wanted}
        return {name: phase for name, phase in found.items() if phase is not None}

    def create(self, vm: VirtualMachine, template: DataVolumeTemplateSpec) -> None:
        try:
            document = encode(make_data_volume(vm, template))
            self._client.raw("POST", _DATA_VOLUMES.format(vm.metadata.namespace), body=document)
        except AlreadyExists:
            return
        except NotFound as error:
            name = template.metadata.name if template.metadata is not None else ""
            raise NoDataVolumesError(f"the cluster has no DataVolumes, so {name!r} can not be made") from error


class VolumeKeeper:
    """Makes the DataVolumes that a VM's templates want, and says how its volumes are."""

    def __init__(self, data_volumes: DataVolumes, claims: Claims) -> None:
        self._data_volumes, self._claims = data_volumes, claims

    def look(self, vm: VirtualMachine, starting: bool) -> Volumes:
        if vm.spec.template is None or vm.metadata.deletion_timestamp is not None:
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
