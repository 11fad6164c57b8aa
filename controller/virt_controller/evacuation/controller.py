"""The evacuation controller: makes the jobs by which machines leave a node that is drained or evicts them."""

from __future__ import annotations

from collections.abc import Callable

from virt_controller.evacuation.decide import is_drained, job_for, plan
from virt_controller.migration.controller import VMI_INDEX
from virt_controller.node.controller import NODE_INDEX
from virt_core.apis import names
from virt_core.apis.eviction import why_tied
from virt_core.apis.migration import VirtualMachineInstanceMigration
from virt_core.apis.nodes import Node
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.client import KubeClient
from virt_core.kube.configvalues import ClusterConfig
from virt_core.kube.controller import Result
from virt_core.kube.errors import ApiError, NotFound
from virt_core.kube.expectations import TIMEOUT_S, Expectations
from virt_core.kube.informer import Informer
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.store import key_of
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import Clock
from virt_core.runtime.logs import get_logger

log = get_logger(__name__)

Job = VirtualMachineInstanceMigration


class EvacuationController:
    """Its keys are nodes."""

    def __init__(
        self,
        client: KubeClient,
        *,
        queue: WorkQueue,
        nodes: Informer[Node],
        vmis: Informer[VirtualMachineInstance],
        jobs: Informer[Job],
        recorder: EventRecorder,
        clock: Clock,
        config: Callable[[], ClusterConfig],
    ) -> None:
        self._client, self._queue, self._recorder, self._config = client, queue, recorder, config
        self._nodes, self._vmis, self._jobs = nodes, vmis, jobs
        self._expectations = Expectations(clock)
        #: Told that they cannot leave, with the reason.
        self._told: dict[str, str] = {}
        nodes.add_handler(self._node_changed, lambda old, new: self._node_changed(new, old))
        vmis.add_handler(self._vmi_changed, lambda old, new: self._vmi_changed(new, old), self._vmi_gone)
        jobs.add_handler(self._job_seen, lambda _old, new: self._job_changed(new), self._job_seen)

    def reconcile(self, name: str) -> Result | None:
        if not self._expectations.satisfied(name):
            return Result(TIMEOUT_S)
        config = self._config()
        drained = is_drained(self._nodes.get(name), config.migrations.node_drain_taint_key)
        here = self._vmis.by_index(NODE_INDEX, name)
        wanted = plan(name, drained, here, self._jobs_of, config.eviction_strategy)
        for job in wanted.cancel:
            self._give_up(job)
        for vmi in wanted.tied:
            self._tell_tied(vmi)
        failed = [error for vmi in wanted.create if (error := self._move(vmi, name)) is not None]
        if failed:
            raise failed[-1]  # The others have had their turn; the queue brings the node back.
        return None

    def _jobs_of(self, vmi: VirtualMachineInstance) -> list[Job]:
        return self._jobs.by_index(VMI_INDEX, key_of(vmi))

    def _move(self, vmi: VirtualMachineInstance, node: str) -> ApiError | None:
        job = job_for(vmi, node)
        try:
            created = self._client.create(job)
        except ApiError as error:
            text = f"the migration that takes it from node {node} could not be created: {error}"
            self._recorder.event(vmi, names.EVENT_WARNING, names.EVENT_FAILED_CREATE, text)
            return error
        self._expectations.expect_created(node, created.metadata.uid)
        if self._jobs.get(key_of(created)) is not None:
            self._expectations.created_observed(node, created.metadata.uid)
        self._told.pop(vmi.metadata.uid, None)
        text = f"created the migration {created.metadata.name}, by which it leaves node {node}"
        self._recorder.event(vmi, names.EVENT_NORMAL, names.EVENT_SUCCESSFUL_CREATE, text)
        log.info("created a migration", vmi=key_of(vmi), node=node, job=created.metadata.name)
        return None

    def _give_up(self, job: VirtualMachineInstanceMigration) -> None:
        meta = job.metadata
        try:
            self._client.delete(VirtualMachineInstanceMigration, meta.name, meta.namespace, uid=meta.uid)
        except NotFound:
            return
        log.info("gave up a migration: the machine may stay", job=key_of(job))

    def _tell_tied(self, vmi: VirtualMachineInstance) -> None:
        why = why_tied(vmi)
        if self._told.get(vmi.metadata.uid) == why:
            return
        self._told[vmi.metadata.uid] = why
        text = f"it must leave node {vmi.status.node_name} and cannot be moved: {why}"
        self._recorder.event(vmi, names.EVENT_WARNING, names.EVENT_FAILED_MIGRATION, text)

    # -- events --------------------------------------------------------------------------------------------------------

    def _node_changed(self, node: Node, old: Node | None = None) -> None:
        """One whose taint was just taken away is looked at, too: its machines may stay."""
        if node.spec.taints or (old is not None and old.spec.taints):
            self._queue.add(node.metadata.name)

    def _vmi_changed(self, vmi: VirtualMachineInstance, old: VirtualMachineInstance | None = None) -> None:
        """Only of those that must leave, or had to a moment ago: others are none of our business."""
        node = vmi.status.node_name
        marked = vmi.status.evacuation_node_name or (old is not None and old.status.evacuation_node_name)
        taint = self._config().migrations.node_drain_taint_key
        if node and (marked or is_drained(self._nodes.get(node), taint)):
            self._queue.add(node)

    def _vmi_gone(self, vmi: VirtualMachineInstance) -> None:
        self._told.pop(vmi.metadata.uid, None)

    def _job_seen(self, job: Job) -> None:
        """For the first time, or the last."""
        node = job.metadata.annotations.get(names.ANNOTATION_EVACUATION, "")
        self._expectations.created_observed(node, job.metadata.uid)
        self._job_changed(job)

    def _job_changed(self, job: Job) -> None:
        """Also of a job that somebody else made: when it has failed, it is our turn."""
        vmi = self._vmis.get(f"{job.metadata.namespace}/{job.spec.vmi_name}")
        if vmi is not None and vmi.status.node_name:
            self._queue.add(vmi.status.node_name)
