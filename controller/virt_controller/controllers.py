"""The table of controllers: how each is built from what all share, and which live copies it waits for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from virt_controller.caches import Caches
from virt_controller.kubevirt import KubeVirtController
from virt_controller.launcher_pod import TemplateConfig
from virt_controller.node.controller import NodeController
from virt_controller.pool import controller as pool
from virt_controller.pool.controller import PoolController
from virt_controller.replicaset import controller as replicaset
from virt_controller.replicaset.controller import ReplicaSetController
from virt_controller.vm.controller import VMController
from virt_controller.vm.instancetypes import InstancetypeExpander
from virt_controller.vmi.controller import VMIController
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
        recorder=shared.recorder,
        clock=shared.clock,
    ).reconcile


CONTROLLERS = (
    Row("vmi", _vmi, lambda c: (c.vmis, c.pods, c.nodes, c.namespaces, c.vms, c.claims, c.data_volumes)),
    Row("vm", _vm, lambda c: (c.vms, c.vmis, c.claims, c.data_volumes, c.vm_revisions)),
    Row("node", _node, lambda c: (c.nodes, c.vmis, c.pods), workers=1),
    Row("replicaset", _replica_set, lambda c: (c.replica_sets, c.vmis), workers=2),
    Row("pool", _pool, lambda c: (c.pools, c.vms, c.vmis, c.nodes, c.pool_revisions), workers=2),
    Row("kubevirt", _kubevirt, lambda _: (), workers=1),
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
