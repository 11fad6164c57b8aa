"""The migration controller: looks up the objects, lets `decide` decide, and does what it says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from msgspec import structs

from virt_controller.launcher_pod import NotPermittedError, UnsupportedSpecError, render
from virt_controller.launcher_pod.sections import Move, TemplateConfig
from virt_controller.migration import target
from virt_controller.migration.decide import (
    Chance,
    Decision,
    decide,
    failed,
    is_over_quota,
    must_look,
    over_quota,
    target_pod,
)
from virt_controller.migration.jobs import backoff_s, is_unfinished
from virt_controller.migration.limits import crowd, quota_words, surplus
from virt_controller.migration.volumes import Bringer
from virt_controller.vmi import networks
from virt_controller.vmi.controller import OWNER_INDEX, limits_cpu, network_resources, offers, with_devices
from virt_controller.vmi.pods import is_finished
from virt_controller.vmi.surroundings import Looker
from virt_core.apis import names
from virt_core.apis.facts import is_terminating
from virt_core.apis.migration import VirtualMachineInstanceMigration
from virt_core.apis.migrationstate import MigrationConfiguration
from virt_core.apis.nodes import Namespace, Node
from virt_core.apis.podroles import active_pod, owner_uid
from virt_core.apis.pods import Pod
from virt_core.apis.policy import MigrationPolicy
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.client import KubeClient
from virt_core.kube.configvalues import ClusterConfig
from virt_core.kube.controller import Result
from virt_core.kube.errors import ApiError, Conflict, Forbidden, NotFound
from virt_core.kube.expectations import TIMEOUT_S, Expectations
from virt_core.kube.informer import Informer
from virt_core.kube.movesettings import best_policy, settle
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.store import key_of
from virt_core.kube.workqueue import WorkQueue
from virt_core.kube.writes import OwnWrites, write_difference, write_operations, write_status
from virt_core.runtime.clock import Clock
from virt_core.runtime.logs import get_logger

log = get_logger(__name__)

Job = VirtualMachineInstanceMigration

#: Jobs by the VMI that they move.
VMI_INDEX = "vmi"
#: How soon a job that waits for its turn is looked at again, by its priority.
_RETRY_S = {names.PRIORITY_CRITICAL: 1.0, names.PRIORITY_USER: 3.0}
_RETRY_OTHER_S = 5.0


def vmi_indexer(job: Job) -> list[str]:
    return [f"{job.metadata.namespace}/{job.spec.vmi_name}"] if job.spec.vmi_name else []


class MigrationController:
    def __init__(
        self,
        client: KubeClient,
        *,
        queue: WorkQueue,
        jobs: Informer[Job],
        vmis: Informer[VirtualMachineInstance],
        pods: Informer[Pod],
        nodes: Informer[Node],
        namespaces: Informer[Namespace],
        policies: Informer[MigrationPolicy],
        look: Looker,
        bringer: Bringer,
        attachments: Informer[Pod],
        recorder: EventRecorder,
        template: TemplateConfig,
        clock: Clock,
        config: Callable[[], ClusterConfig],
    ) -> None:
        self._client, self._queue, self._recorder, self._clock = client, queue, recorder, clock
        self._jobs, self._vmis, self._pods = jobs, vmis, pods
        self._nodes, self._namespaces, self._policies = nodes, namespaces, policies
        self._look, self._template, self._config = look, template, config
        self._bringer = bringer
        self._expectations = Expectations(clock)
        self._job_writes: OwnWrites[Job] = OwnWrites()
        self._vmi_writes: OwnWrites[VirtualMachineInstance] = OwnWrites()
        jobs.add_handler(self._job_changed, lambda _old, new: self._job_changed(new), self._job_gone)
        vmis.add_handler(self._vmi_changed, lambda _old, new: self._vmi_changed(new), self._vmi_changed)
        for informer in (pods, attachments):
            informer.add_handler(self._pod_changed, lambda _old, new: self._pod_changed(new), self._pod_changed)

    def reconcile(self, key: str) -> Result | None:
        cached = self._jobs.get(key)
        if cached is None:
            self._expectations.forget(key)
            return None
        if not self._expectations.satisfied(key):
            return Result(TIMEOUT_S)
        job = self._job_writes.freshest(cached)
        vmi = self._vmi(job)
        pods = self._pods.by_index(OWNER_INDEX, vmi.metadata.uid) if vmi is not None else []
        if vmi is not None and must_look(job, vmi, pods):
            pods = self._pods_now(vmi)
        decision = decide(job, vmi, pods, self._clock.now(), self._patient(job, vmi, self._chance(job, vmi, pods)))
        decision = self._act(key, job, vmi, pods, decision)
        self._sweep(decision.job or job)
        return Result(decision.recheck_s) if decision.recheck_s else None

    def _pods_now(self, vmi: VirtualMachineInstance) -> list[Pod]:
        """Asked of the API server, where a cache is not enough."""
        uid = vmi.metadata.uid
        found = self._client.list(Pod, vmi.metadata.namespace, f"{names.LABEL_CREATED_BY}={uid}").items
        return [pod for pod in found if owner_uid(pod) == uid]

    def _vmi(self, job: Job) -> VirtualMachineInstance | None:
        cached = self._vmis.get(f"{job.metadata.namespace}/{job.spec.vmi_name}")
        return self._vmi_writes.freshest(cached) if cached is not None else None

    def _act(
        self, key: str, job: Job, vmi: VirtualMachineInstance | None, pods: Sequence[Pod], decision: Decision
    ) -> Decision:
        """What was done: something else than was decided, if there could be no target Pod."""
        if decision.vmi is not None and vmi is not None:
            self._write_vmi(job, vmi, decision.vmi, decision.alarm)
        if decision.create_pod and vmi is not None:
            decision = self._create_pod(key, job, vmi, pods) or decision
        if decision.create_attachment and vmi is not None and (beside := target_pod(job, vmi, pods)) is not None:
            made = self._bringer.create(job, vmi, beside)
            log.info("created the Pod that brings volumes to the target", job=key, pod=made.metadata.name)
        for pod in decision.delete_pods:
            self._delete_pod(key, pod)
        self._tell_devices(job, vmi, pods, decision)
        self._write_job(job, decision)
        for note in decision.notes:
            self._recorder.event(job, note.type, note.reason, note.message)
        return decision

    def _tell_devices(
        self, job: Job, vmi: VirtualMachineInstance | None, pods: Sequence[Pod], decision: Decision
    ) -> None:
        """What the target got for its networks: its launcher has no other way to know."""
        pod = target_pod(job, vmi, pods) if vmi is not None else None
        if vmi is None or pod is None or pod in decision.delete_pods or is_terminating(pod):
            return
        if operations := networks.told_devices(vmi, pod):
            with suppress(NotFound):
                write_operations(self._client, pod, operations)

    def _sweep(self, job: Job) -> None:
        """With each job that is over, the oldest of its VMI go."""
        for old in surplus(self._jobs_of(job)) if not is_unfinished(job) else ():
            self._drop(old)

    def _drop(self, job: VirtualMachineInstanceMigration) -> None:
        meta = job.metadata
        try:
            self._client.delete(VirtualMachineInstanceMigration, meta.name, meta.namespace, uid=meta.uid)
        except NotFound:
            return

    def _write_vmi(self, job: Job, old: VirtualMachineInstance, new: VirtualMachineInstance, alarm: str) -> None:
        """A conflict is nobody's fault: it is decided anew."""
        try:
            written = write_difference(self._client, old, new)
        except ApiError as error:
            if alarm and not isinstance(error, Conflict):
                self._recorder.event(job, names.EVENT_WARNING, alarm, f"the VMI could not be written: {error}")
            raise
        if written is not None:
            self._vmi_writes.remember(written)

    def _write_job(self, job: Job, decision: Decision) -> None:
        if decision.job is None:
            return
        try:
            written = write_status(self._client, job, decision.job) or job
            # Its status is a subresource, so what keeps the job goes with a write of its own.
            kept = structs.replace(written.metadata, finalizers=decision.job.metadata.finalizers)
            freed = write_difference(self._client, written, structs.replace(written, metadata=kept))
        except NotFound:
            return
        self._job_writes.remember(freed or written)

    def _create_pod(self, key: str, job: Job, vmi: VirtualMachineInstance, pods: Sequence[Pod]) -> Decision | None:
        """What is done instead if there can be none."""
        try:
            pod = render(target.grown(vmi), self._template_for(job, vmi, pods))
        except (UnsupportedSpecError, NotPermittedError) as error:
            return failed(job, f"the target Pod cannot be made: {error}", self._clock.now())
        pod.metadata.annotations.update(target.room_note(vmi))
        try:
            created = self._client.create(pod)
        except Forbidden as error:
            if why := quota_words(str(error)):
                return over_quota(job, why, self._clock.now())
            raise
        self._expectations.expect_created(key, created.metadata.uid)
        if self._pods.get(key_of(created)) is not None:
            self._expectations.created_observed(key, created.metadata.uid)
        log.info("created the target Pod", job=key, pod=created.metadata.name)
        return None

    def _delete_pod(self, key: str, pod: Pod) -> None:
        meta = pod.metadata
        try:
            self._client.delete(Pod, meta.name, meta.namespace, uid=meta.uid)
        except NotFound:
            return
        log.info("deleted the target Pod", job=key, pod=meta.name)

    def _template_for(self, job: Job, vmi: VirtualMachineInstance, pods: Sequence[Pod]) -> TemplateConfig:
        config, around = self._config(), self._look.look(vmi)
        node = self._nodes.get(vmi.status.node_name)
        return replace(
            with_devices(self._template, self._nodes.list(), config),
            claims=around.claims,
            state_claim=around.state.claim.metadata.name if around.state.claim is not None else "",
            limit_cpu=limits_cpu(vmi.metadata.namespace, config, self._namespaces),
            near=around.near,
            network_resources=network_resources(around, config),
            move=Move(
                job.metadata.name,
                job.metadata.uid,
                job.spec.added_node_selector,
                target.processor_labels(vmi, active_pod(vmi, pods), node.metadata.labels if node is not None else {}),
                self._may_post_copy(job, vmi),
            ),
        )

    def _may_post_copy(self, job: Job, vmi: VirtualMachineInstance) -> bool:
        """Where it is wished, and another node offers what it takes."""
        others = (node for node in self._nodes.list() if node.metadata.name != vmi.status.node_name)
        wished = self._settings(job, vmi)[0].allow_post_copy
        return bool(wished) and any(offers(node, names.RESOURCE_USERFAULTFD) for node in others)

    # -- who may go ----------------------------------------------------------------------------------------------------

    def _chance(self, job: Job, vmi: VirtualMachineInstance | None, pods: Sequence[Pod]) -> Chance:
        made = target_pod(job, vmi, pods)
        settings, policy = self._settings(job, vmi)
        return Chance(
            settings=settings,
            policy=policy.metadata.name if policy is not None else None,
            wait=self._crowd(job),
            rival=self._rival(job),
            retry_s=_RETRY_S.get(job.spec.priority or names.PRIORITY_USER, _RETRY_OTHER_S),
            volumes=self._bringer.look(job, vmi, made) if vmi is not None and made is not None else None,
        )

    def _settings(
        self, job: Job, vmi: VirtualMachineInstance | None
    ) -> tuple[MigrationConfiguration, MigrationPolicy | None]:
        namespace = self._namespaces.get(job.metadata.namespace)
        labels = vmi.metadata.labels if vmi is not None else {}
        policy = best_policy(self._policies.list(), labels, namespace.metadata.labels if namespace is not None else {})
        return settle(self._config().migrations, policy), policy

    def _patient(self, job: Job, vmi: VirtualMachineInstance | None, chance: Chance) -> Chance:
        """A job that nobody asked for by hand waits after failures. It is told once, when the job is new."""
        wait_s = backoff_s(job, self._jobs_of(job), self._clock.now())
        if not wait_s or job.status.phase not in ("", names.MIGRATION_PENDING):
            return chance
        text = f"the migration {job.metadata.name} waits for {wait_s:.0f} s, since the last one failed"
        if vmi is not None and not job.status.phase:
            self._recorder.event(vmi, names.EVENT_WARNING, names.EVENT_MIGRATION_BACKOFF, text)
        return replace(chance, wait=text, retry_s=wait_s)

    def _crowd(self, job: Job) -> str:
        now = self._clock.now()

        def waits(other: Job) -> bool:
            return is_over_quota(other) or bool(backoff_s(other, self._jobs_of(other), now))

        return crowd(job, self._jobs.list(), self._node_of, self._config().migrations, waits)

    def _node_of(self, job: Job) -> str:
        vmi = self._vmi(job)
        return vmi.status.node_name if vmi is not None else ""

    def _rival(self, job: Job) -> str:
        """A job of the same VMI that is not over and came first."""
        mine = (job.metadata.creation_timestamp or "", job.metadata.uid)
        for other in self._jobs_of(job):
            first = (other.metadata.creation_timestamp or "", other.metadata.uid) < mine
            if other.metadata.uid != job.metadata.uid and other.status.phase not in names.FINAL_PHASES and first:
                return other.metadata.name
        return ""

    def _jobs_of(self, job: Job) -> list[Job]:
        """All of the same VMI."""
        return [each for vmi in vmi_indexer(job) for each in self._jobs.by_index(VMI_INDEX, vmi)]

    # -- events --------------------------------------------------------------------------------------------------------

    def _job_changed(self, job: Job) -> None:
        self._queue.add(key_of(job))

    def _job_gone(self, job: Job) -> None:
        self._job_writes.forget(job.metadata.uid)
        self._queue.add(key_of(job))

    def _vmi_changed(self, vmi: VirtualMachineInstance) -> None:
        for job in self._jobs.by_index(VMI_INDEX, key_of(vmi)):
            if job.status.phase not in names.FINAL_PHASES:
                self._queue.add(key_of(job))

    def _pod_changed(self, pod: Pod) -> None:
        name = pod.metadata.annotations.get(names.ANNOTATION_MIGRATION_JOB_NAME, "")
        if name:
            key = f"{pod.metadata.namespace}/{name}"
            self._expectations.created_observed(key, pod.metadata.uid)
            self._queue.add(key)
        if is_finished(pod):
            # The guest may have left it by a job that did not make it, and that is over already.
            machine = pod.metadata.annotations.get(names.ANNOTATION_DOMAIN, "")
            for job in self._jobs.by_index(VMI_INDEX, f"{pod.metadata.namespace}/{machine}"):
                self._queue.add(key_of(job))
