"""The controller of workload updates: moves machines to a new launcher Pod, as the KubeVirt object says."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from virt_controller.migration.controller import VMI_INDEX
from virt_controller.migration.jobs import is_unfinished
from virt_controller.update.decide import Around, Plan, is_wanted, job_for, plan, takes_volumes
from virt_controller.vmi.controller import OWNER_INDEX
from virt_controller.vmi.upkeep import is_outdated
from virt_core.apis import names
from virt_core.apis.base import encode
from virt_core.apis.facts import is_terminating
from virt_core.apis.kubevirt import KubeVirt
from virt_core.apis.migration import VirtualMachineInstanceMigration
from virt_core.apis.podroles import active_pod
from virt_core.apis.pods import Pod
from virt_core.apis.registry import resource_of
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.client import KubeClient
from virt_core.kube.clusterconfig import ConfigState
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

_TOO_MANY_REQUESTS = 429
#: Changes are gathered for this long.
_PAUSE_S = 1.0


class UpdateController:
    """Its key is the KubeVirt object that is in force."""

    def __init__(
        self,
        client: KubeClient,
        *,
        queue: WorkQueue,
        kubevirts: Informer[KubeVirt],
        state: Callable[[], ConfigState],
        vmis: Informer[VirtualMachineInstance],
        pods: Informer[Pod],
        jobs: Informer[Job],
        recorder: EventRecorder,
        clock: Clock,
        image: str,
    ) -> None:
        self._client, self._queue, self._recorder, self._clock = client, queue, recorder, clock
        self._kubevirts, self._state, self._image = kubevirts, state, image
        self._vmis, self._pods, self._jobs = vmis, pods, jobs
        self._expectations = Expectations(clock)
        self._evicted_at: datetime | None = None
        kubevirts.add_handler(lambda _: self._look(), lambda _old, _new: self._look())
        vmis.add_handler(self._vmi_changed, lambda old, new: self._vmi_changed(new, old))
        jobs.add_handler(self._job_seen, lambda _old, _new: self._look(), self._job_seen)

    def reconcile(self, key: str) -> Result | None:
        source = self._state().source
        if source is None or key_of(source) != key or is_terminating(source):
            return None
        if not self._expectations.satisfied(key):
            return Result(TIMEOUT_S)
        found = self._plan(source)
        for job in found.cancel:
            self._give_up(job)
        for vmi in found.evict:
            self._evict(vmi)
        failed = [error for vmi in found.migrate if (error := self._move(key, vmi)) is not None]
        if failed:
            raise failed[-1]
        return Result(found.recheck_s) if found.recheck_s else None

    def _plan(self, source: KubeVirt) -> Plan:
        config = self._state().config
        around = Around(
            image=self._image,
            now=self._clock.now(),
            going=sum(is_unfinished(job) for job in self._jobs.list()),
            limit=config.migrations.parallel_per_cluster,
            eviction=config.eviction_strategy,
            evicted_at=self._evicted_at,
        )
        return plan(self._vmis.list(), self._jobs_of, source.spec.workload_update_strategy, around)

    def _jobs_of(self, vmi: VirtualMachineInstance) -> list[Job]:
        return self._jobs.by_index(VMI_INDEX, key_of(vmi))

    def _move(self, key: str, vmi: VirtualMachineInstance) -> ApiError | None:
        try:
            created = self._client.create(job_for(vmi, self._image))
        except ApiError as error:
            text = f"the migration to a new launcher Pod could not be created: {error}"
            self._recorder.event(vmi, names.EVENT_WARNING, names.EVENT_FAILED_CREATE, text)
            return error
        self._expectations.expect_created(key, created.metadata.uid)
        if self._jobs.get(key_of(created)) is not None:
            self._expectations.created_observed(key, created.metadata.uid)
        gets = self._gain(vmi)
        text = f"created the migration {created.metadata.name}, by which it gets {gets}"
        self._recorder.event(vmi, names.EVENT_NORMAL, names.EVENT_SUCCESSFUL_CREATE, text)
        log.info("created a migration", vmi=key_of(vmi), job=created.metadata.name, gets=gets)
        return None

    def _gain(self, vmi: VirtualMachineInstance) -> str:
        if takes_volumes(vmi):
            return "its volumes on other claims"
        return (
            "a new launcher" if is_outdated(vmi, self._image) else "a launcher Pod with room for the size it asks for"
        )

    def _give_up(self, job: VirtualMachineInstanceMigration) -> None:
        meta = job.metadata
        try:
            self._client.delete(VirtualMachineInstanceMigration, meta.name, meta.namespace, uid=meta.uid)
        except NotFound:
            return

    def _evict(self, vmi: VirtualMachineInstance) -> None:
        """As anybody else would: virt-api may know that it must stay, or have it moved."""
        pod = active_pod(vmi, self._pods.by_index(OWNER_INDEX, vmi.metadata.uid))
        if pod is None or is_terminating(pod):
            return
        self._evicted_at = self._clock.now()
        meta = pod.metadata
        path = resource_of(Pod).path(meta.namespace, meta.name, "eviction")
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": meta.name, "namespace": meta.namespace},
            "deleteOptions": {"preconditions": {"uid": meta.uid}},
        }
        try:
            self._client.raw("POST", path, body=encode(eviction))
        except NotFound:
            return
        except ApiError as error:
            self._tell_refusal(vmi, error)
            return
        text = f"evicted the launcher Pod {meta.name}, whose image is outdated"
        self._recorder.event(vmi, names.EVENT_NORMAL, names.EVENT_SUCCESSFUL_EVICT, text)

    def _tell_refusal(self, vmi: VirtualMachineInstance, error: ApiError) -> None:
        text = f"the outdated launcher Pod was not evicted: {error}"
        log.info("an eviction was refused", vmi=key_of(vmi), error=str(error))
        kind = names.EVENT_NORMAL if error.status == _TOO_MANY_REQUESTS else names.EVENT_WARNING
        self._recorder.event(vmi, kind, names.EVENT_FAILED_EVICT, text)

    # -- events --------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        for each in self._kubevirts.list():
            self._queue.add_after(key_of(each), _PAUSE_S)

    def _vmi_changed(self, vmi: VirtualMachineInstance, old: VirtualMachineInstance | None = None) -> None:
        """Only of those that should have another launcher Pod, or should have had one a moment ago."""
        if is_wanted(vmi, self._image) or (old is not None and is_wanted(old, self._image)):
            self._look()

    def _job_seen(self, job: Job) -> None:
        for each in self._kubevirts.list():
            self._expectations.created_observed(key_of(each), job.metadata.uid)
        self._look()
