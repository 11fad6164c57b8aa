"""The table of controllers: how each is built from what all share, and which live copies it waits for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from virt_controller.backup.controller import BackupController
from virt_controller.budgets.controller import BudgetController
from virt_controller.caches import Caches
from virt_controller.clone.controller import CloneController
from virt_controller.datavolume.controller import DataVolumeController
from virt_controller.evacuation.controller import EvacuationController
from virt_controller.export.controller import ExportController
from virt_controller.export.entrance import Entrance
from virt_controller.hotplug.controller import HotplugController
from virt_controller.kubevirt import KubeVirtController
from virt_controller.launcher_pod import TemplateConfig
from virt_controller.migration.controller import MigrationController
from virt_controller.migration.volumes import Bringer
from virt_controller.node.controller import NodeController
from virt_controller.pool import controller as pool
from virt_controller.pool.controller import PoolController
from virt_controller.replicaset import controller as replicaset
from virt_controller.replicaset.controller import ReplicaSetController
from virt_controller.restore.controller import RestoreController
from virt_controller.restore.volumes import Volumes
from virt_controller.snapshot.contentcontroller import ContentController
from virt_controller.snapshot.controller import SnapshotController
from virt_controller.snapshot.storage import SnapshotStorage
from virt_controller.update.controller import UpdateController
from virt_controller.vm.controller import VMController
from virt_controller.vm.instancetypes import InstancetypeExpander
from virt_controller.vmi.controller import VMIController
from virt_controller.vmi.keptstate import StateKeeper
from virt_controller.vmi.surroundings import Looker
from virt_core.kube.client import KubeClient
from virt_core.kube.clusterconfig import ConfigWatcher
from virt_core.kube.controller import Controller, Result, Synced
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.typelookup import CachedLookup
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import Clock

Reconcile = Callable[[str], Result | None]

_MAX_DELAY_S = 60.0


@dataclass(frozen=True, slots=True)
class Shared:
    """What a controller may use beside its own queue."""

    client: KubeClient
    clock: Clock
    recorder: EventRecorder
    caches: Caches
    config: ConfigWatcher
    types: CachedLookup
    template: TemplateConfig
    entrance: Entrance = field(default_factory=Entrance)


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    build: Callable[[Shared, WorkQueue], Reconcile]
    #: What must have been listed once before the first reconcile; the configuration is waited for in any case.
    needs: Callable[[Caches], Sequence[Synced]]
    #: How many keys at a time; None: as many as the command line says.
    workers: int | None = None


def _vmi(shared: Shared, queue: WorkQueue) -> Reconcile:
    return VMIController(
        shared.client,
        queue=queue,
        vmis=shared.caches.vmis,
        pods=shared.caches.pods,
        nodes=shared.caches.nodes,
        recorder=shared.recorder,
        template=shared.template,
        clock=shared.clock,
        vms=shared.caches.vms,
        storage=shared.caches.claims,
        data_volumes=shared.caches.data_volumes,
        networks=shared.caches.networks,
        namespaces=shared.caches.namespaces,
        config=shared.config.current,
    ).reconcile


def _vm(shared: Shared, queue: WorkQueue) -> Reconcile:
    return VMController(
        shared.client,
        queue=queue,
        vms=shared.caches.vms,
        vmis=shared.caches.vmis,
        claims=shared.caches.claims,
        data_volumes=shared.caches.data_volumes,
        revisions=shared.caches.vm_revisions,
        recorder=shared.recorder,
        clock=shared.clock,
        expand=InstancetypeExpander(shared.client, shared.types, shared.config.current),
        live_update=lambda: shared.config.current().live_update,
        storage=_snapshot_storage(shared),
        namespaces=shared.caches.namespaces,
        config=shared.config.current,
    ).reconcile


def _snapshot_storage(shared: Shared) -> SnapshotStorage:
    caches = shared.caches
    return SnapshotStorage(
        caches.storage_classes, caches.snapshot_classes, caches.storage_profiles, caches.claims, caches.data_volumes
    )


def _snapshot(shared: Shared, queue: WorkQueue) -> Reconcile:
    caches = shared.caches
    return SnapshotController(
        shared.client,
        queue=queue,
        snapshots=caches.snapshots,
        contents=caches.snapshot_contents,
        vms=caches.vms,
        vmis=caches.vmis,
        claims=caches.claims,
        data_volumes=caches.data_volumes,
        revisions=caches.vm_revisions,
        storage=_snapshot_storage(shared),
        recorder=shared.recorder,
        clock=shared.clock,
    ).reconcile


def _snapshot_content(shared: Shared, queue: WorkQueue) -> Reconcile:
    caches = shared.caches
    return ContentController(
        shared.client,
        queue=queue,
        contents=caches.snapshot_contents,
        snapshots=caches.snapshots,
        vms=caches.vms,
        vmis=caches.vmis,
        saved=caches.volume_snapshots,
        storage=_snapshot_storage(shared),
        recorder=shared.recorder,
        clock=shared.clock,
    ).reconcile


def _restore(shared: Shared, queue: WorkQueue) -> Reconcile:
    caches = shared.caches
    return RestoreController(
        shared.client,
        queue=queue,
        restores=caches.restores,
        snapshots=caches.snapshots,
        contents=caches.snapshot_contents,
        vms=caches.vms,
        vmis=caches.vmis,
        claims=caches.claims,
        volumes=Volumes(
            shared.client, caches.claims, caches.data_volumes, caches.volume_snapshots, caches.storage_classes
        ),
        recorder=shared.recorder,
        clock=shared.clock,
    ).reconcile


def _data_volume(shared: Shared, queue: WorkQueue) -> Reconcile:
    return DataVolumeController(
        shared.client,
        queue=queue,
        volumes=shared.caches.data_volumes,
        claims=shared.caches.claims,
        pods=shared.caches.importers,
        vmis=shared.caches.vmis,
        recorder=shared.recorder,
        clock=shared.clock,
        template=shared.template,
    ).reconcile


def _backup(shared: Shared, queue: WorkQueue) -> Reconcile:
    return BackupController(
        shared.client,
        queue=queue,
        backups=shared.caches.backups,
        trackers=shared.caches.trackers,
        vms=shared.caches.vms,
        vmis=shared.caches.vmis,
        claims=shared.caches.claims,
        recorder=shared.recorder,
        clock=shared.clock,
    ).reconcile


def _clone(shared: Shared, queue: WorkQueue) -> Reconcile:
    return CloneController(
        shared.client,
        queue=queue,
        clones=shared.caches.clones,
        vms=shared.caches.vms,
        snapshots=shared.caches.snapshots,
        contents=shared.caches.snapshot_contents,
        restores=shared.caches.restores,
        claims=shared.caches.claims,
        recorder=shared.recorder,
        clock=shared.clock,
    ).reconcile


def _export(shared: Shared, queue: WorkQueue) -> Reconcile:
    expander = InstancetypeExpander(shared.client, shared.types, shared.config.current)
    return ExportController(
        shared.client,
        queue=queue,
        exports=shared.caches.exports,
        pods=shared.caches.exporters,
        services=shared.caches.export_services,
        claims=shared.caches.claims,
        data_volumes=shared.caches.data_volumes,
        vms=shared.caches.vms,
        vmis=shared.caches.vmis,
        recorder=shared.recorder,
        clock=shared.clock,
        template=shared.template,
        expand=expander.without_references,
        outside=shared.entrance.way,
    ).reconcile


def _hotplug(shared: Shared, queue: WorkQueue) -> Reconcile:
    return HotplugController(
        shared.client,
        queue=queue,
        vmis=shared.caches.vmis,
        launchers=shared.caches.pods,
        attachments=shared.caches.attachments,
        claims=shared.caches.claims,
        data_volumes=shared.caches.data_volumes,
        recorder=shared.recorder,
        clock=shared.clock,
    ).reconcile


def _migration(shared: Shared, queue: WorkQueue) -> Reconcile:
    caches = shared.caches
    states = StateKeeper(shared.client, caches.claims, shared.config.current, shared.clock.now)
    return MigrationController(
        shared.client,
        queue=queue,
        jobs=caches.migrations,
        vmis=caches.vmis,
        pods=caches.pods,
        nodes=caches.nodes,
        namespaces=caches.namespaces,
        policies=caches.migration_policies,
        look=Looker(caches.vms, caches.claims, caches.data_volumes, caches.vmis, states, definitions=caches.networks),
        bringer=Bringer(shared.client, caches.attachments, caches.claims, caches.data_volumes),
        attachments=caches.attachments,
        recorder=shared.recorder,
        template=shared.template,
        clock=shared.clock,
        config=shared.config.current,
    ).reconcile


def _evacuation(shared: Shared, queue: WorkQueue) -> Reconcile:
    return EvacuationController(
        shared.client,
        queue=queue,
        nodes=shared.caches.nodes,
        vmis=shared.caches.vmis,
        jobs=shared.caches.migrations,
        recorder=shared.recorder,
        clock=shared.clock,
        config=shared.config.current,
    ).reconcile


def _budgets(shared: Shared, queue: WorkQueue) -> Reconcile:
    return BudgetController(
        shared.client,
        queue=queue,
        vmis=shared.caches.vmis,
        jobs=shared.caches.migrations,
        budgets=shared.caches.budgets,
        config=shared.config.current,
    ).reconcile


def _node(shared: Shared, queue: WorkQueue) -> Reconcile:
    return NodeController(
        shared.client,
        queue=queue,
        nodes=shared.caches.nodes,
        vmis=shared.caches.vmis,
        pods=shared.caches.pods,
        recorder=shared.recorder,
        clock=shared.clock,
    ).reconcile


def _replica_set(shared: Shared, queue: WorkQueue) -> Reconcile:
    return ReplicaSetController(
        shared.client,
        queue=queue,
        sets=shared.caches.replica_sets,
        members=shared.caches.vmis,
        recorder=shared.recorder,
        clock=shared.clock,
        kind=replicaset.KIND,
    ).reconcile


def _pool(shared: Shared, queue: WorkQueue) -> Reconcile:
    controller = PoolController(
        shared.client,
        queue=queue,
        sets=shared.caches.pools,
        members=shared.caches.vms,
        recorder=shared.recorder,
        clock=shared.clock,
        kind=pool.KIND,
    )
    controller.use(shared.caches.vmis, shared.caches.nodes, shared.caches.pool_revisions)
    return controller.reconcile


def _kubevirt(shared: Shared, queue: WorkQueue) -> Reconcile:
    return KubeVirtController(
        shared.client,
        queue=queue,
        kubevirts=shared.config.informer,
        state=shared.config.state,
        vmis=shared.caches.vmis,
        image=shared.template.launcher_image,
        recorder=shared.recorder,
        clock=shared.clock,
    ).reconcile


def _update(shared: Shared, queue: WorkQueue) -> Reconcile:
    return UpdateController(
        shared.client,
        queue=queue,
        kubevirts=shared.config.informer,
        state=shared.config.state,
        vmis=shared.caches.vmis,
        pods=shared.caches.pods,
        jobs=shared.caches.migrations,
        recorder=shared.recorder,
        clock=shared.clock,
        image=shared.template.launcher_image,
    ).reconcile


def _classes(caches: Caches) -> tuple[Synced, ...]:
    """What says which claims can be saved."""
    return (caches.storage_classes, caches.snapshot_classes, caches.storage_profiles)


CONTROLLERS = (
    Row("vmi", _vmi, lambda c: (c.vmis, c.pods, c.nodes, c.namespaces, c.vms, c.claims, c.data_volumes, c.networks)),
    Row("vm", _vm, lambda c: (c.vms, c.vmis, c.claims, c.data_volumes, c.vm_revisions, c.namespaces, *_classes(c))),
    Row(
        "snapshot",
        _snapshot,
        lambda c: (
            c.snapshots,
            c.snapshot_contents,
            c.vms,
            c.vmis,
            c.claims,
            c.data_volumes,
            c.vm_revisions,
            *_classes(c),
        ),
        workers=2,
    ),
    Row(
        "snapshot-content",
        _snapshot_content,
        lambda c: (
            c.snapshot_contents,
            c.snapshots,
            c.vms,
            c.vmis,
            c.volume_snapshots,
            c.claims,
            c.data_volumes,
            *_classes(c),
        ),
        workers=2,
    ),
    Row(
        "restore",
        _restore,
        lambda c: (
            c.restores,
            c.snapshots,
            c.snapshot_contents,
            c.vms,
            c.vmis,
            c.claims,
            c.data_volumes,
            c.volume_snapshots,
            c.storage_classes,
        ),
        workers=2,
    ),
    Row("backup", _backup, lambda c: (c.backups, c.trackers, c.vms, c.vmis, c.claims), workers=2),
    Row("datavolume", _data_volume, lambda c: (c.data_volumes, c.claims, c.importers, c.vmis), workers=2),
    Row(
        "clone", _clone, lambda c: (c.clones, c.vms, c.snapshots, c.snapshot_contents, c.restores, c.claims), workers=2
    ),
    Row(
        "export",
        _export,
        lambda c: (c.exports, c.exporters, c.export_services, c.claims, c.data_volumes, c.vms, c.vmis),
        workers=2,
    ),
    Row("hotplug", _hotplug, lambda c: (c.vmis, c.pods, c.attachments, c.claims, c.data_volumes), workers=2),
    Row("node", _node, lambda c: (c.nodes, c.vmis, c.pods), workers=1),
    Row("replicaset", _replica_set, lambda c: (c.replica_sets, c.vmis), workers=2),
    Row("pool", _pool, lambda c: (c.pools, c.vms, c.vmis, c.nodes, c.pool_revisions), workers=2),
    Row(
        "migration",
        _migration,
        lambda c: (
            c.migrations,
            c.migration_policies,
            c.vmis,
            c.vms,
            c.pods,
            c.attachments,
            c.nodes,
            c.namespaces,
            c.claims,
            c.data_volumes,
            c.networks,
        ),
        # One at a time: the limits count those that go.
        workers=1,
    ),
    Row("evacuation", _evacuation, lambda c: (c.nodes, c.vmis, c.migrations), workers=1),
    Row("budgets", _budgets, lambda c: (c.vmis, c.migrations, c.budgets), workers=1),
    Row("kubevirt", _kubevirt, lambda c: (c.vmis,), workers=1),
    Row("update", _update, lambda c: (c.vmis, c.pods, c.migrations), workers=1),
)


def build(shared: Shared, workers: int) -> list[Controller]:
    """All of them, each with a queue of its own."""
    result = []
    for row in CONTROLLERS:
        queue = WorkQueue(shared.clock, row.name, max_delay_s=_MAX_DELAY_S)
        reconcile = row.build(shared, queue)
        needed = [*row.needs(shared.caches), shared.config]
        result.append(Controller(row.name, queue, reconcile, row.workers or workers, needed))
    return result
