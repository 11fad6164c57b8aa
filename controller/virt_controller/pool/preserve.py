"""Volumes that outlive their VM: the VM is no longer their owner, so they are not deleted with it.

The next VM with the same number finds them under the same names.
"""

from __future__ import annotations

import msgspec

from virt_core.apis.registry import UnusableName, segment
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.volumes import Volume
from virt_core.kube.client import KubeClient
from virt_core.kube.errors import NotFound
from virt_core.kube.patch import JsonPatch, op
from virt_core.kube.writes import write_operations

_DATA_VOLUME = "/apis/cdi.kubevirt.io/v1beta1/namespaces/{}/datavolumes/{}"


def _volumes(vm: VirtualMachine) -> list[Volume]:
    return vm.spec.template.spec.volumes if vm.spec.template is not None else []


def data_volumes_of(vm: VirtualMachine) -> list[str]:
    made = [t.metadata.name for t in vm.spec.data_volume_templates if t.metadata is not None]
    return list(dict.fromkeys(made + [v.data_volume.name for v in _volumes(vm) if v.data_volume is not None]))


def claims_of(vm: VirtualMachine) -> list[str]:
    """A DataVolume's claim has its name."""
    named = [v.persistent_volume_claim.claim_name for v in _volumes(vm) if v.persistent_volume_claim is not None]
    return list(dict.fromkeys(data_volumes_of(vm) + named))


def detach_volumes(client: KubeClient, vm: VirtualMachine) -> None:
    for name in claims_of(vm):
        _detach_claim(client, vm, name)
    for name in data_volumes_of(vm):
        _detach_data_volume(client, vm, name)


def _detach_claim(client: KubeClient, vm: VirtualMachine, name: str) -> None:
    try:
        claim = client.get(PersistentVolumeClaim, name, vm.metadata.namespace)
        owners = claim.metadata.owner_references
        kept = [ref for ref in owners if ref.uid != vm.metadata.uid]
        if len(kept) != len(owners):
            write_operations(client, claim, [op.add("/metadata/ownerReferences", kept)])
    except (NotFound, UnusableName):
        return


def _detach_data_volume(client: KubeClient, vm: VirtualMachine, name: str) -> None:
    """Plain: the kind belongs to another project, which may not be installed."""
    try:
        path = _DATA_VOLUME.format(segment(vm.metadata.namespace), segment(name))
        owners = msgspec.json.decode(client.raw("GET", path))["metadata"].get("ownerReferences") or []
        kept = [ref for ref in owners if ref["uid"] != vm.metadata.uid]
        if len(kept) != len(owners):
            where = "/metadata/ownerReferences"
            patch = JsonPatch([op.test(where, owners), op.replace(where, kept)])
            client.raw("PATCH", path, body=patch.body(), content_type=patch.content_type)
    except NotFound:
        return
