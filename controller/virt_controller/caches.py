"""The live copies of what the controllers read, each watched once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from virt_controller.node.controller import NODE_INDEX, node_indexer
from virt_controller.pool import controller as pool
from virt_controller.sets.members import CONTROLLER_INDEX, ORPHAN_INDEX, controller_indexer, orphan_indexer
from virt_controller.vm.actions import revision_owner
from virt_controller.vm.controller import VOLUME_INDEX as VM_VOLUMES
from virt_controller.vm.volumes import vm_volumes
from virt_controller.vmi.controller import OWNER_INDEX, owner_indexer
from virt_controller.vmi.surroundings import VOLUME_INDEX as VMI_VOLUMES
from virt_controller.vmi.surroundings import vmi_volumes
from virt_core.apis import names
from virt_core.apis.apps import ControllerRevision
from virt_core.apis.datavolume import DataVolume
from virt_core.apis.nodes import Namespace, Node
from virt_core.apis.pods import Pod
from virt_core.apis.pool import VirtualMachinePool
from virt_core.apis.replicaset import VirtualMachineInstanceReplicaSet
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.client import KubeClient, KubeObject
from virt_core.kube.controller import Synced
from virt_core.kube.informer import Informer
from virt_core.runtime.supervisor import ThreadBody

T = TypeVar("T", bound=KubeObject)
Indexers = dict[str, Callable[[T], list[str]]]

_MEMBERS: Indexers[KubeObject] = {CONTROLLER_INDEX: controller_indexer, ORPHAN_INDEX: orphan_indexer}


class Cache(Synced, Protocol):
    """A live copy, whatever it is of."""

    @property
    def run(self) -> ThreadBody: ...


def without_managed_fields(obj: T) -> T:
    """Nobody here reads them, and they are half of a cached object."""
    anything: Any = obj
    changed: T = replace(anything, metadata=replace(obj.metadata, managed_fields=[]))
    return changed


def _labelled(app: str) -> str:
    return f"{names.LABEL_APP}={app}"


class Caches:
    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self.all: list[Cache] = []
        self.vmis = self._watch(
            VirtualMachineInstance, indexers={NODE_INDEX: node_indexer, VMI_VOLUMES: vmi_volumes, **_MEMBERS}
        )
        self.pods = self._watch(Pod, _labelled(names.APP_LAUNCHER), {OWNER_INDEX: owner_indexer})
        self.nodes = self._watch(Node)
        self.namespaces = self._watch(Namespace)
        self.vms = self._watch(VirtualMachine, indexers={VM_VOLUMES: vm_volumes, **_MEMBERS})
        self.claims = self._watch(PersistentVolumeClaim)
        self.data_volumes = self._watch(DataVolume, optional=True)
        self.vm_revisions = self._watch(ControllerRevision, _labelled(names.APP_VM_REVISION), {"owner": revision_owner})
        self.replica_sets = self._watch(VirtualMachineInstanceReplicaSet)
        self.pools = self._watch(VirtualMachinePool)
        self.pool_revisions = self._watch(
            ControllerRevision, _labelled(pool.APP_REVISION), {CONTROLLER_INDEX: controller_indexer}
        )

    def _watch(
        self, cls: type[T], labels: str = "", indexers: Indexers[T] | None = None, *, optional: bool = False
    ) -> Informer[T]:
        informer = Informer(
            self._client,
            cls,
            label_selector=labels,
            indexers=indexers,
            transform=without_managed_fields,
            optional=optional,
        )
        self.all.append(informer)
        return informer
