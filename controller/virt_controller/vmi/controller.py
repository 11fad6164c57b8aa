"""The VMI controller: looks up the objects, lets `decide` decide, and does what it says. Nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from virt_controller.launcher_pod import NotPermittedError, UnsupportedSpecError, first_consumer, render, resources
from virt_controller.launcher_pod.sections import TemplateConfig
from virt_controller.vmi import decide as rules
from virt_controller.vmi import gate, resize
from virt_controller.vmi.keptstate import NoClassError, StateKeeper
from virt_controller.vmi.owned import Surroundings, owner_vm
from virt_controller.vmi.pods import Trouble, was_refused
from virt_controller.vmi.reach import reach
from virt_controller.vmi.resizing import resized
from virt_controller.vmi.surroundings import NETWORK_INDEX, VOLUME_INDEX, Looker
from virt_core.apis import names
from virt_core.apis.datavolume import DataVolume
from virt_core.apis.facts import is_terminating
from virt_core.apis.nodes import Namespace, Node
from virt_core.apis.podnetworks import NetworkAttachmentDefinition
from virt_core.apis.podroles import active_pod, controller_of, is_stranger, owner_uid, recorded
from virt_core.apis.pods import Pod
from virt_core.apis.quantity import parse_int
from virt_core.apis.selectors import is_empty, matches
from virt_core.apis.sizes import with_size
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.client import KubeClient
from virt_core.kube.configvalues import UNCONFIGURED, ClusterConfig
from virt_core.kube.controller import Result
from virt_core.kube.errors import ApiError, Conflict, NotFound, Unreachable
from virt_core.kube.expectations import TIMEOUT_S, Expectations
from virt_core.kube.informer import Informer
from virt_core.kube.patch import StrategicPatch
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.store import key_of
from virt_core.kube.workqueue import WorkQueue
from virt_core.kube.writes import OwnWrites, write_difference, write_operations
from virt_core.runtime.clock import Clock
from virt_core.runtime.logs import get_logger

log = get_logger(__name__)

OWNER_INDEX = "owner"
#: How often the configuration is asked anew whether it permits what a VMI asks for.
PERMISSION_RECHECK_S = 10.0


class VMIController:
    def __init__(
        self,
        client: KubeClient,
        *,
        queue: WorkQueue,
        vmis: Informer[VirtualMachineInstance],
        pods: Informer[Pod],
        nodes: Informer[Node],
        recorder: EventRecorder,
        template: TemplateConfig,
        clock: Clock,
        vms: Informer[VirtualMachine] | None = None,
        storage: Informer[PersistentVolumeClaim] | None = None,
        data_volumes: Informer[DataVolume] | None = None,
        networks: Informer[NetworkAttachmentDefinition] | None = None,
        namespaces: Informer[Namespace] | None = None,
        config: Callable[[], ClusterConfig] = lambda: UNCONFIGURED,
    ) -> None:
        self._config = config
        self._states = StateKeeper(client, storage, config, clock.now)
        self._around = Looker(vms, storage, data_volumes, vmis, self._states, definitions=networks)
        self._namespaces = namespaces
        self._client, self._queue, self._recorder, self._clock = client, queue, recorder, clock
        self._vmis, self._pods, self._nodes = vmis, pods, nodes
        self._template = template
        self._expectations = Expectations(clock)
        self._writes: OwnWrites[VirtualMachineInstance] = OwnWrites()
        #: The Pods that were made and are not recorded yet, by the UIDs of their VMIs.
        self._made: dict[str, Pod] = {}
        self._pod_writes: OwnWrites[Pod] = OwnWrites()
        vmis.add_handler(self._vmi_changed, lambda _old, new: self._vmi_changed(new), self._vmi_gone)
        for informer in (storage, data_volumes):
            if informer is not None:
                informer.add_handler(
                    self._volume_changed, lambda _old, new: self._volume_changed(new), self._volume_changed
                )
        if networks is not None:
            networks.add_handler(
                self._network_changed, lambda _old, new: self._network_changed(new), self._network_changed
            )
        pods.add_handler(self._pod_added, lambda _old, new: self._pod_changed(new), self._pod_gone)

    def reconcile(self, key: str) -> Result | None:
        cached = self._vmis.get(key)
        if cached is None:
            self._expectations.forget(key)
            return None
        if not self._expectations.satisfied(key):
            return Result(TIMEOUT_S)
        vmi = self._recorded(self._writes.freshest(cached))
        pods = [self._pod_writes.freshest(pod) for pod in self._pods.by_index(OWNER_INDEX, vmi.metadata.uid)]
        around = replace(self._around.look(vmi), launcher_image=self._template.launcher_image)
        around = self._with_resizing(vmi, pods, around)
        decision = rules.decide(vmi, pods, self._clock.now(), around)
        for pod in decision.delete_pods:
            self._delete_pod(key, pod)
        for claim in decision.delete_states:
            self._drop_state(vmi, claim)
        if decision.create_state:
            return self._create_state(vmi)
        if decision.create_pod:
            self._create_pod(key, vmi, around, provisioning=decision.provisioning)
        elif decision.vmi is not None:
            self._write(vmi, decision.vmi)
        if decision.patch_pod is not None:
            self._patch_pod(*decision.patch_pod)
        for note in decision.notes:
            self._recorder.event(vmi, note.type, note.reason, note.message)
        if decision.gate is not None:
            self._tell_gate(*decision.gate)
        # Last: a stranger that cannot be deleted must not hold up the VMI.
        if decision.strangers:
            self._turn_away(key, vmi, decision.strangers)
        return Result(decision.recheck_s) if decision.recheck_s else None

    def _create_state(self, vmi: VirtualMachineInstance) -> Result | None:
        """The claim brings the VMI back here when it changes."""
        try:
            self._states.make(vmi)
        except NoClassError as error:
            self._state_failed(vmi, str(error))
            return Result(rules.CLAIM_RECHECK_S)
        except ApiError as error:
            if not isinstance(error, Unreachable):
                self._state_failed(vmi, str(error))
            raise
        return None

    def _state_failed(self, vmi: VirtualMachineInstance, why: str) -> None:
        text = f"the claim for what firmware and TPM store could not be made: {why}"
        trouble = Trouble(names.REASON_STATE_NOT_CREATED, text)
        self._write(vmi, rules.not_synchronized(vmi, trouble, self._clock.now()))

    def _drop_state(self, vmi: VirtualMachineInstance, claim: PersistentVolumeClaim) -> None:
        self._states.remove(claim)
        text = f"deleted the claim {claim.metadata.name}: the machine no longer keeps what firmware and TPM store"
        self._recorder.event(vmi, names.EVENT_NORMAL, names.EVENT_SUCCESSFUL_DELETE, text)

    def _write(self, old: VirtualMachineInstance, new: VirtualMachineInstance) -> None:
        try:
            written = write_difference(self._client, old, new)
        except NotFound:
            return  # Deleted for good meanwhile; there is nothing left to say.
        if written is not None:
            self._writes.remember(written)

    def _patch_pod(self, pod: Pod, operations: list[dict[str, object]]) -> None:
        try:
            write_operations(self._client, pod, operations)
        except NotFound:
            return  # Its end is seen next.

    def _tell_gate(self, pod: Pod, status: str) -> None:
        meta = pod.metadata
        patch = StrategicPatch({"metadata": {"uid": meta.uid}} | gate.document(status, self._clock.now()))
        try:
            self._pod_writes.remember(self._client.patch(Pod, meta.name, meta.namespace, patch, subresource="status"))
        except (NotFound, Conflict):
            return  # Another Pod of that name, or none: seen next.

    def _recorded(self, vmi: VirtualMachineInstance) -> VirtualMachineInstance:
        """Writes down a Pod whose record did not get through. After a restart nobody knows of it, and it is a stranger:
        nothing has spoken to it yet."""
        made = self._made.get(vmi.metadata.uid)
        if made is None:
            return vmi
        if vmi.status.phase in rules.BEFORE_HAND_OVER and made.metadata.uid not in recorded(vmi):
            self._write(vmi, self._with_record(vmi, made))
        del self._made[vmi.metadata.uid]
        return self._writes.freshest(vmi)

    def _with_record(self, vmi: VirtualMachineInstance, made: Pod) -> VirtualMachineInstance:
        if names.ANNOTATION_EPHEMERAL_PROVISIONING in made.metadata.annotations:
            return rules.provisioning(vmi, made.metadata.uid)
        promised = made.metadata.annotations.get(names.ANNOTATION_TSC_FREQUENCY, "")
        return rules.scheduling(vmi, made.metadata.uid, self._clock.now(), int(promised or 0))

    def _create_pod(
        self, key: str, vmi: VirtualMachineInstance, around: Surroundings, *, provisioning: bool = False
    ) -> None:
        try:
            reachable = reach(self._client, around.later_volumes)
            pod = render(vmi, replace(self._template_for(vmi, around), reach=reachable))
        except UnsupportedSpecError as error:
            decision = rules.failed(vmi, names.FAILED_INVALID_SPEC, str(error), self._clock.now())
            self._write(vmi, decision.vmi or vmi)
            self._recorder.event(vmi, names.EVENT_WARNING, names.FAILED_INVALID_SPEC, str(error))
            return
        except NotPermittedError as error:
            self._tell(vmi, Trouble(error.reason, str(error)))
            self._queue.add_after(key, PERMISSION_RECHECK_S)
            return
        try:
            created = self._client.create(first_consumer(pod) if provisioning else pod)
        except ApiError as error:
            self._creation_failed(vmi, error)
            raise
        self._expect(key, created)
        self._made[vmi.metadata.uid] = created
        self._recorded(vmi)
        if not provisioning:
            self._tell_created(vmi, created)
            # Before its node has it: opened later, the Pod would be unready for a moment.
            self._tell_gate(created, names.TRUE)

    def _expect(self, key: str, pod: Pod) -> None:
        self._expectations.expect_created(key, pod.metadata.uid)
        seen = self._pods.get(key_of(pod))
        if seen is not None and seen.metadata.uid == pod.metadata.uid:
            self._expectations.created_observed(key, pod.metadata.uid)

    def _tell_created(self, vmi: VirtualMachineInstance, pod: Pod) -> None:
        """A VM has told its own start under the same word, and the scheduler tells the Pod's: once more would cost
        each start of a VM a write and say nothing new."""
        if owner_vm(vmi) is None:
            text = f"created the launcher Pod {pod.metadata.name}"
            self._recorder.event(vmi, names.EVENT_NORMAL, names.EVENT_SUCCESSFUL_CREATE, text)

    def _creation_failed(self, vmi: VirtualMachineInstance, error: ApiError) -> None:
        if isinstance(error, Unreachable):
            return  # If it was made all the same, it is a stranger and goes.
        self._tell(vmi, Trouble(names.REASON_FAILED_CREATE, f"the launcher Pod could not be created: {error}"))

    def _tell(self, vmi: VirtualMachineInstance, trouble: Trouble) -> None:
        told = rules.not_synchronized(vmi, trouble, self._clock.now())
        self._write(vmi, told)
        if told != vmi:
            self._recorder.event(vmi, names.EVENT_WARNING, trouble.reason, trouble.message)

    def _turn_away(self, key: str, vmi: VirtualMachineInstance, strangers: Sequence[Pod]) -> None:
        """Asks for the newest record first: our cache may be older than what a former leader wrote."""
        try:
            newest = self._client.get(VirtualMachineInstance, vmi.metadata.name, vmi.metadata.namespace)
        except NotFound:
            return  # The garbage collector takes its Pods.
        if newest.metadata.uid != vmi.metadata.uid:
            return
        for pod in strangers:
            if not is_stranger(pod, newest):
                continue
            self._delete_pod(key, pod)
            if not was_refused(pod):
                text = (
                    f"Pod {pod.metadata.name} claimed to be the launcher Pod of this VMI and is not, so it was deleted"
                )
                self._recorder.event(vmi, names.EVENT_WARNING, names.EVENT_STRANGER, text)

    def _delete_pod(self, key: str, pod: Pod) -> None:
        meta = pod.metadata
        self._expectations.expect_deletions(key, [meta.uid])
        try:
            self._client.delete(Pod, meta.name, meta.namespace, uid=meta.uid)
        except NotFound:
            self._expectations.deletion_observed(key, meta.uid)
        except ApiError:
            self._expectations.deletion_observed(key, meta.uid)
            raise
        log.info("deleted the launcher Pod", vmi=key, pod=meta.name)

    def _template_for(self, vmi: VirtualMachineInstance, around: Surroundings) -> TemplateConfig:
        config = self._config()
        template = with_devices(self._template, self._nodes.list(), config)
        limited = limits_cpu(vmi.metadata.namespace, config, self._namespaces)
        state = around.state.claim.metadata.name if around.state.claim is not None else ""
        return replace(
            template,
            claims=around.claims,
            state_claim=state,
            limit_cpu=limited,
            near=around.near,
            network_resources=network_resources(around, config),
        )

    def _with_resizing(self, vmi: VirtualMachineInstance, pods: Sequence[Pod], around: Surroundings) -> Surroundings:
        """Asks for other resources of the Pod of a machine that is to have another size."""
        pod = active_pod(vmi, pods)
        if pod is None or is_terminating(vmi) or not resize.is_due(vmi, pod):
            return around
        fresh = resources(with_size(vmi, resize.target(vmi)), self._template_for(vmi, around))
        return replace(around, resizing=resized(self._client, pod, resize.wanted(pod, fresh)))

    def _volume_changed(self, volume: PersistentVolumeClaim | DataVolume) -> None:
        for vmi in self._vmis.by_index(VOLUME_INDEX, key_of(volume)):
            self._queue.add(key_of(vmi))
        if names.LABEL_KEPT_STATE in volume.metadata.labels:
            for owner in volume.metadata.owner_references:  # A VMI has the name of its VM.
                self._queue.add(f"{volume.metadata.namespace}/{owner.name}")

    def _network_changed(self, network: NetworkAttachmentDefinition) -> None:
        for vmi in self._vmis.by_index(NETWORK_INDEX, key_of(network)):
            self._queue.add(key_of(vmi))

    def _vmi_changed(self, vmi: VirtualMachineInstance) -> None:
        self._queue.add(key_of(vmi))

    def _vmi_gone(self, vmi: VirtualMachineInstance) -> None:
        self._writes.forget(vmi.metadata.uid)
        self._made.pop(vmi.metadata.uid, None)
        self._states.forget(vmi.metadata.uid)
        self._queue.add(key_of(vmi))

    def _pod_added(self, pod: Pod) -> None:
        if key := owner_key(pod):
            self._expectations.created_observed(key, pod.metadata.uid)
        self._pod_changed(pod)

    def _pod_changed(self, pod: Pod) -> None:
        if key := owner_key(pod):
            if is_terminating(pod):
                self._expectations.deletion_observed(key, pod.metadata.uid)
            self._queue.add(key)

    def _pod_gone(self, pod: Pod) -> None:
        self._pod_writes.forget(pod.metadata.uid)
        if key := owner_key(pod):
            self._expectations.created_observed(key, pod.metadata.uid)
            self._expectations.deletion_observed(key, pod.metadata.uid)
            self._queue.add(key)


def owner_key(pod: Pod) -> str:
    """The key of the VMI that controls the Pod; the UID decides later whether it is the same VMI still."""
    ref = controller_of(pod)
    return f"{pod.metadata.namespace}/{ref.name}" if ref is not None and owner_uid(pod) else ""


def owner_indexer(pod: Pod) -> list[str]:
    uid = owner_uid(pod)
    return [uid] if uid else []


def limits_cpu(namespace: str, config: ClusterConfig, namespaces: Informer[Namespace] | None) -> bool:
    """Whether machines of the namespace get a CPU limit although they ask for none."""
    selector = config.auto_cpu_limit_selector
    if selector is None or namespaces is None:
        return False
    found = namespaces.get(namespace)
    return is_empty(selector) or (found is not None and matches(selector, found.metadata.labels))


def network_resources(around: Surroundings, config: ClusterConfig) -> Mapping[str, str]:
    """What a Pod asks for because of its networks. Where somebody else adds that to Pods, nothing."""
    return {} if config.has("ExternalNetResourceInjection") else around.network_resources


def with_devices(template: TemplateConfig, nodes: list[Node], cluster: ClusterConfig = UNCONFIGURED) -> TemplateConfig:
    """A device is asked for when some node offers it: then the scheduler finds that node. KVM is asked for in any case
    where the cluster does not allow emulation: then the machine waits for a node that has it."""
    return TemplateConfig(
        launcher_image=template.launcher_image,
        launcher_pull_policy=template.launcher_pull_policy,
        kvm=not cluster.use_emulation or any(offers(node, names.RESOURCE_KVM) for node in nodes),
        vhost_net=any(offers(node, names.RESOURCE_VHOST_NET) for node in nodes),
        node_labels=[node.metadata.labels for node in nodes],
        qemu_timeout_s=template.qemu_timeout_s,
        user_namespaces=template.user_namespaces,
        cluster=cluster,
    )


def offers(node: Node, resource: str) -> bool:
    return parse_int(node.status.allocatable.get(resource, 0)) > 0
