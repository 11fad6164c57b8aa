"""Everything that only the leader does: the live copies of what it watches, and the controllers that work on them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from msgspec.structs import replace

from virt_controller.install import DefaultKubeVirt
from virt_controller.kubevirt import KubeVirtController
from virt_controller.launcher_pod import TemplateConfig
from virt_controller.node.controller import NODE_INDEX, NodeController, node_indexer
from virt_controller.pool import controller as pool
from virt_controller.pool.controller import PoolController
from virt_controller.replicaset import controller as replicaset
from virt_controller.replicaset.controller import ReplicaSetController
from virt_controller.sets.members import CONTROLLER_INDEX, ORPHAN_INDEX, controller_indexer, orphan_indexer
from virt_controller.vm.actions import revision_owner
from virt_controller.vm.controller import VOLUME_INDEX as VM_VOLUMES
from virt_controller.vm.controller import VMController
from virt_controller.vm.instancetypes import InstancetypeExpander
from virt_controller.vm.volumes import vm_volumes
from virt_controller.vmi.controller import OWNER_INDEX, VMIController, owner_indexer
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
from virt_core.kube.clusterconfig import ConfigWatcher
from virt_core.kube.controller import Controller, Result
from virt_core.kube.informer import Informer
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.typelookup import CachedLookup
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import SystemClock
from virt_core.runtime.supervisor import Supervisor, ThreadBody

T = TypeVar("T", bound=KubeObject)

_MAX_DELAY_S = 60.0
_MEMBERS: dict[str, Callable[[KubeObject], list[str]]] = {
    CONTROLLER_INDEX: controller_indexer,
    ORPHAN_INDEX: orphan_indexer,
}


def without_managed_fields(obj: T) -> T:
    """Nobody here reads them, and they are half of a cached object."""
    anything: Any = obj
    changed: T = replace(anything, metadata=replace(obj.metadata, managed_fields=[]))
    return changed


class Work:
    def __init__(self, client: KubeClient, template: TemplateConfig, workers: int, namespace: str) -> None:
        self._client, self._workers = client, workers
        self._clock = SystemClock()
        self._informers: list[Informer[Any]] = []
        self._controllers: list[Controller] = []
        self._bodies: dict[str, ThreadBody] = {}
        self._recorder = EventRecorder(client, "virt-controller", clock=self._clock)
        self._config = ConfigWatcher(client, namespace)
        self._types = CachedLookup(client)
        self._vmis = self._watch(
            VirtualMachineInstance, indexers={NODE_INDEX: node_indexer, VMI_VOLUMES: vmi_volumes, **_MEMBERS}
        )
        self._pods = self._watch(Pod, f"{names.LABEL_APP}={names.APP_LAUNCHER}", {OWNER_INDEX: owner_indexer})
        self._nodes = self._watch(Node)
        self._vms = self._watch(VirtualMachine, indexers={VM_VOLUMES: vm_volumes, **_MEMBERS})
        self._claims = self._watch(PersistentVolumeClaim)
        self._data_volumes = self._watch(DataVolume, optional=True)
        self._machines(template)
        self._sets()
        self._configuration()

    def _watch(
        self,
        cls: type[T],
        labels: str = "",
        indexers: dict[str, Callable[[T], list[str]]] | None = None,
        *,
        optional: bool = False,
    ) -> Informer[T]:
        informer = Informer(
            self._client,
            cls,
            label_selector=labels,
            indexers=indexers,
            transform=without_managed_fields,
            optional=optional,
        )
        self._informers.append(informer)
        return informer

    def _run(self, name: str, queue: WorkQueue, reconcile: Callable[[str], Result | None], workers: int) -> None:
        self._controllers.append(Controller(name, queue, reconcile, workers, [*self._informers, self._config]))

    def _queue(self, name: str) -> WorkQueue:
        return WorkQueue(self._clock, name, max_delay_s=_MAX_DELAY_S)

    def _machines(self, template: TemplateConfig) -> None:
        """VMIs, VMs and nodes."""
        common: dict[str, Any] = {"recorder": self._recorder, "clock": self._clock}
        revisions = self._watch(
            ControllerRevision, f"{names.LABEL_APP}={names.APP_VM_REVISION}", {"owner": revision_owner}
        )
        queue = self._queue("vmi")
        vmi = VMIController(
            self._client,
            queue=queue,
            vmis=self._vmis,
            pods=self._pods,
            nodes=self._nodes,
            template=template,
            vms=self._vms,
            storage=self._claims,
            data_volumes=self._data_volumes,
            namespaces=self._watch(Namespace),
            config=self._config.current,
            **common,
        )
        self._run("vmi", queue, vmi.reconcile, self._workers)
        queue = self._queue("vm")
        vm = VMController(
            self._client,
            queue=queue,
            vms=self._vms,
            vmis=self._vmis,
            claims=self._claims,
            data_volumes=self._data_volumes,
            revisions=revisions,
            expand=InstancetypeExpander(self._client, self._types, self._config.current),
            live_update=lambda: self._config.current().live_update,
            **common,
        )
        self._run("vm", queue, vm.reconcile, self._workers)
        queue = self._queue("node")
        node = NodeController(self._client, queue=queue, nodes=self._nodes, vmis=self._vmis, pods=self._pods, **common)
        self._run("node", queue, node.reconcile, 1)

    @property
    def config(self) -> ConfigWatcher:
        """The cluster's configuration, as far as this copy has seen it."""
        return self._config

    def _configuration(self) -> None:
        queue = self._queue("kubevirt")
        kubevirt = KubeVirtController(
            self._client,
            queue=queue,
            kubevirts=self._config.informer,
            state=self._config.state,
            recorder=self._recorder,
            clock=self._clock,
        )
        self._controllers.append(Controller("kubevirt", queue, kubevirt.reconcile, 1, [self._config]))

    def _sets(self) -> None:
        """Replica sets and pools."""
        common: dict[str, Any] = {"recorder": self._recorder, "clock": self._clock}
        sets = self._watch(VirtualMachineInstanceReplicaSet)
        queue = self._queue("replicaset")
        replicas = ReplicaSetController(
            self._client, queue=queue, sets=sets, members=self._vmis, kind=replicaset.KIND, **common
        )
        self._run("replicaset", queue, replicas.reconcile, 2)
        pools = self._watch(VirtualMachinePool)
        revisions = self._watch(
            ControllerRevision, f"{names.LABEL_APP}={pool.APP_REVISION}", {CONTROLLER_INDEX: controller_indexer}
        )
        queue = self._queue("pool")
        members = PoolController(self._client, queue=queue, sets=pools, members=self._vms, kind=pool.KIND, **common)
        members.use(self._vmis, self._nodes, revisions)
        self._run("pool", queue, members.reconcile, 2)

    def default_kubevirt(self, namespace: str, file: str) -> DefaultKubeVirt:
        return DefaultKubeVirt(self._client, namespace, file, kubevirts=self._config.informer, clock=self._clock)

    def also(self, name: str, body: ThreadBody) -> None:
        """More work for the leader; ends with the lead."""
        self._bodies[name] = body

    def run(self, work_stop: threading.Event) -> None:
        """Blocks until the stop; raises when one of its threads dies."""
        inner = Supervisor("leader", grace_s=9.0)
        for name, body in self._bodies.items():
            inner.thread(name, body)
        for number, informer in enumerate(self._informers):
            inner.thread(f"informer-{number}", informer.run)
        inner.thread("types", self._types.run)
        inner.thread("events", self._recorder.run)
        for controller in self._controllers:
            inner.thread(f"controller-{controller.name}", controller.run)

        def stop_with_lead() -> None:
            work_stop.wait()
            inner.request_stop()

        threading.Thread(target=stop_with_lead, name="work-stop", daemon=True).start()
        if inner.run(signals=False) and not work_stop.is_set():
            raise RuntimeError("a controller ended, see the log")

    def ready(self) -> str | None:
        synced = self._config.has_synced() and all(informer.has_synced() for informer in self._informers)
        return None if synced else "waiting for the first lists"
