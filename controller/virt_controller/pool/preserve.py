"""Volumes that outlive their VM: the VM is no longer their owner, so they are not deleted with it."""

from __future__ import annotations

from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine
from virt_core.kube.client import KubeClient
from virt_core.kube.errors import NotFound
from virt_core.kube.patch import op
from virt_core.kube.writes import write_operations


def claims_of(vm: VirtualMachine) -> list[str]:
    """The claims that were made with the VM."""
    return [t.metadata.name for t in vm.spec.data_volume_templates if t.metadata is not None]


def detach_volumes(client: KubeClient, vm: VirtualMachine) -> None:
    for name in claims_of(vm):
        try:
            claim = client.get(PersistentVolumeClaim, name, vm.metadata.namespace)
        except NotFound:
            continue
        owners = claim.metadata.owner_references
        kept = [ref for ref in owners if ref.uid != vm.metadata.uid and ref.kind != "DataVolume"]
        if len(kept) != len(owners):
            write_operations(client, claim, [op.add("/metadata/ownerReferences", kept)])
