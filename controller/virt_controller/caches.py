"""The live copies of what the controllers read, each watched once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from virt_controller.backup.controller import NAMESPACE_INDEX as BACKUP_NAMESPACE
from virt_controller.backup.controller import namespace_indexer as backup_namespace
from virt_controller.clone.controller import ABOUT_INDEX
from virt_controller.clone.controller import about as about_clone
from virt_controller.export.controller import NAMESPACE_INDEX, namespace_indexer
from virt_controller.hotplug.controller import LAUNCHER_INDEX, launcher_indexer
from virt_controller.migration.controller import VMI_INDEX as MIGRATED_VMI
from virt_controller.migration.controller import vmi_indexer
from virt_controller.node.controller import NODE_INDEX, node_indexer
from virt_controller.pool import controller as pool
from virt_controller.restore.controller import TARGET_INDEX, target_indexer
from virt_controller.sets.members import CONTROLLER_INDEX, ORPHAN_INDEX, controller_indexer, orphan_indexer
from virt_controller.snapshot.controller import SOURCE_INDEX, source_indexer
from virt_controller.vm.actions import revision_owner
from virt_controller.vm.controller import VOLUME_INDEX as VM_VOLUMES
from virt_controller.vm.volumes import vm_volumes
from virt_controller.vmi.controller import OWNER_INDEX, owner_indexer
from virt_controller.vmi.keptstate import STATE_INDEX, state_indexer
from virt_controller.vmi.networks import definitions
from virt_controller.vmi.surroundings import NETWORK_INDEX, vmi_volumes
from virt_controller.vmi.surroundings import VOLUME_INDEX as VMI_VOLUMES
from virt_core.apis import names
from virt_core.apis.apps import ControllerRevision, PodDisruptionBudget
from virt_core.apis.backup import VirtualMachineBackup, VirtualMachineBackupTracker
from virt_core.apis.clone import VirtualMachineClone
from virt_core.apis.datavolume import DataVolume, StorageProfile
from virt_core.apis.export import VirtualMachineExport
from virt_core.apis.migration import VirtualMachineInstanceMigration
from virt_core.apis.nodes import Namespace, Node
from virt_core.apis.podnetworks import NetworkAttachmentDefinition
from virt_core.apis.pods import Pod
from virt_core.apis.policy import MigrationPolicy
from virt_core.apis.pool import VirtualMachinePool
from virt_core.apis.replicaset import VirtualMachineInstanceReplicaSet
from virt_core.apis.services import Service
from virt_core.apis.snapshot import VirtualMachineRestore, VirtualMachineSnapshot, VirtualMachineSnapshotContent
from virt_core.apis.storage import PersistentVolumeClaim, StorageClass
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.volumesnapshots import VolumeSnapshot, VolumeSnapshotClass
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
            VirtualMachineInstance,
            indexers={NODE_INDEX: node_indexer, VMI_VOLUMES: vmi_volumes, NETWORK_INDEX: definitions, **_MEMBERS},
        )
        self.pods = self._watch(Pod, _labelled(names.APP_LAUNCHER), {OWNER_INDEX: owner_indexer})
        self.attachments = self._watch(Pod, _labelled(names.APP_ATTACHMENT), {LAUNCHER_INDEX: launcher_indexer})
        self.importers = self._watch(Pod, _labelled(names.APP_IMPORTER))
        self.exporters = self._watch(Pod, _labelled(names.APP_EXPORTER))
        self.export_services = self._watch(Service, _labelled(names.APP_EXPORTER))
        self.exports = self._watch(VirtualMachineExport, indexers={NAMESPACE_INDEX: namespace_indexer})
        self.nodes = self._watch(Node)
        self.namespaces = self._watch(Namespace)
        self.vms = self._watch(VirtualMachine, indexers={VM_VOLUMES: vm_volumes, **_MEMBERS})
        self.claims = self._watch(PersistentVolumeClaim, indexers={STATE_INDEX: state_indexer})
        self.data_volumes = self._watch(DataVolume, optional=True)
        self.networks = self._watch(NetworkAttachmentDefinition, optional=True)
        self.vm_revisions = self._watch(ControllerRevision, _labelled(names.APP_VM_REVISION), {"owner": revision_owner})
        self.replica_sets = self._watch(VirtualMachineInstanceReplicaSet)
        self.pools = self._watch(VirtualMachinePool)
        self.clones = self._watch(VirtualMachineClone, indexers={ABOUT_INDEX: about_clone})
        self.migrations = self._watch(VirtualMachineInstanceMigration, indexers={MIGRATED_VMI: vmi_indexer})
        self.migration_policies = self._watch(MigrationPolicy)
        self.budgets = self._watch(PodDisruptionBudget)
        self.storage_classes = self._watch(StorageClass)
        self.storage_profiles = self._watch(StorageProfile, optional=True)
        self.snapshot_classes = self._watch(VolumeSnapshotClass, optional=True)
        self.volume_snapshots = self._watch(VolumeSnapshot, optional=True)
        self.snapshots = self._watch(VirtualMachineSnapshot, indexers={SOURCE_INDEX: source_indexer})
        self.snapshot_contents = self._watch(VirtualMachineSnapshotContent)
        self.backups = self._watch(VirtualMachineBackup, indexers={BACKUP_NAMESPACE: backup_namespace})
        self.trackers = self._watch(VirtualMachineBackupTracker, indexers={BACKUP_NAMESPACE: backup_namespace})
        self.restores = self._watch(VirtualMachineRestore, indexers={TARGET_INDEX: target_indexer})
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
