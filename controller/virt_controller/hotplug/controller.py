"""The hot-plug controller: looks at a VMI, its launcher Pod and its attachment Pods, lets the pure modules decide, does
what they say, and writes down how far each volume is."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from virt_controller.hotplug.decide import Decision, decide, is_over
from virt_controller.hotplug.render import attachment_pod
from virt_controller.hotplug.statuses import statuses
from virt_controller.hotplug.wanted import Storage, Wanted, wanted
from virt_controller.vm.volumes import phase_of
from virt_controller.vmi.surroundings import VOLUME_INDEX, vmi_volumes
from virt_core.apis import names, podroles
from virt_core.apis.datavolume import DataVolume
from virt_core.apis.facts import is_terminating
from virt_core.apis.pods import Pod
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.client import KubeClient
from virt_core.kube.controller import Result
from virt_core.kube.errors import ApiError, NotFound
from virt_core.kube.expectations import TIMEOUT_S, Expectations
from virt_core.kube.informer import Informer
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.store import key_of
from virt_core.kube.workqueue import WorkQueue
from virt_core.kube.writes import OwnWrites, write_difference
from virt_core.runtime.clock import Clock
from virt_core.runtime.logs import get_logger

log = get_logger(__name__)

#: Attachment Pods by the UID of the launcher Pod that owns them.
LAUNCHER_INDEX = "launcher"
#: A claim that is not there yet is seen when it comes; this is for a change that was missed.
RECHECK_S = 60.0
_ALIVE = frozenset({names.PHASE_SCHEDULED, names.PHASE_RUNNING})


class HotplugController:
    def __init__(
        self,
        client: KubeClient,
        *,
        queue: WorkQueue,
        vmis: Informer[VirtualMachineInstance],
        launchers: Informer[Pod],
        attachments: Informer[Pod],
        claims: Informer[PersistentVolumeClaim],
        data_volumes: Informer[DataVolume],
        recorder: EventRecorder,
        clock: Clock,
    ) -> None:
        self._client, self._queue, self._recorder = client, queue, recorder
        self._vmis, self._launchers, self._attachments = vmis, launchers, attachments
        self._claims, self._data_volumes = claims, data_volumes
        self._expectations = Expectations(clock)
        self._writes: OwnWrites[VirtualMachineInstance] = OwnWrites()
        #: The UIDs of Pods that we made, by the UID of the VMI; what a former leader made is in the VMI's status.
        self._made: dict[str, set[str]] = {}
        vmis.add_handler(self._vmi_changed, lambda _old, new: self._vmi_changed(new), self._vmi_gone)
        for informer in (claims, data_volumes):
            informer.add_handler(
                self._volume_changed, lambda _old, new: self._volume_changed(new), self._volume_changed
            )
        attachments.add_handler(self._pod_changed, lambda _old, new: self._pod_changed(new), self._pod_gone)
        launchers.add_handler(self._launcher_changed, lambda _old, new: self._launcher_changed(new))

    def reconcile(self, key: str) -> Result | None:
        cached = self._vmis.get(key)
        if cached is None:
            self._expectations.forget(key)
            return None
        if not self._expectations.satisfied(key):
            return Result(TIMEOUT_S)
        vmi = self._writes.freshest(cached)
        self._clear_up(key, vmi)
        launcher = self._launcher(vmi)
        if launcher is None:
            return None
        asked, storage = wanted(vmi, launcher), storage_of(vmi, self._claims, self._data_volumes)
        pods = self._own(key, vmi, launcher)
        if not asked and not pods and not any(status.hotplug_volume for status in vmi.status.volume_status):
            return None
        found, decision = decide(vmi, asked, storage, pods)
        if vmi.status.phase in _ALIVE:
            status = replace(vmi.status, volume_status=statuses(vmi, asked, storage, found))
            self._write(vmi, replace(vmi, status=status))
        self._act(key, vmi, launcher, storage, decision)
        unready = any(not storage.is_ready(each.claim) for each in asked)
        return Result(RECHECK_S) if unready else None

    def _launcher(self, vmi: VirtualMachineInstance) -> Pod | None:
        role = podroles.active(vmi)
        if role is None:
            return None
        found = self._launchers.by_index("owner", vmi.metadata.uid)
        return next((pod for pod in found if pod.metadata.uid == role.uid and pod.spec.node_name), None)

    def _own(self, key: str, vmi: VirtualMachineInstance, launcher: Pod) -> list[Pod]:
        """Those that we made, or that are written down. Whoever else says that he brings volumes is turned away."""
        made = self._made.get(vmi.metadata.uid, set())
        plugged = [s.hotplug_volume for s in vmi.status.volume_status if s.hotplug_volume is not None]
        recorded = {each.attach_pod_name for each in plugged} | {each.attach_pod_uid for each in plugged}
        if (move := vmi.status.migration_state) is not None:
            recorded.add(move.target_attachment_pod_uid)  # The guest has moved to where it brought them.
        own = []
        for pod in self._attachments.by_index(LAUNCHER_INDEX, launcher.metadata.uid):
            if pod.metadata.uid in made or {pod.metadata.uid, pod.metadata.name} & recorded:
                own.append(pod)
            elif not is_terminating(pod):
                self._turn_away(key, vmi, pod)
        return own

    def _clear_up(self, key: str, vmi: VirtualMachineInstance) -> None:
        """Where the guest has left, nobody needs its volumes; the launcher Pod there stays as a record."""
        for launcher in self._launchers.by_index("owner", vmi.metadata.uid):
            if not is_over(launcher):
                continue
            for pod in self._attachments.by_index(LAUNCHER_INDEX, launcher.metadata.uid):
                if not is_terminating(pod):
                    self._delete(key, vmi, pod)

    def _turn_away(self, key: str, vmi: VirtualMachineInstance, pod: Pod) -> None:
        self._delete(key, vmi, pod, tell=False)
        text = f"Pod {pod.metadata.name} claimed to bring volumes to this VMI and was not made for that: deleted"
        self._recorder.event(vmi, names.EVENT_WARNING, names.EVENT_STRANGER, text)

    def _write(self, old: VirtualMachineInstance, new: VirtualMachineInstance) -> None:
        try:
            written = write_difference(self._client, old, new)
        except NotFound:
            return
        if written is not None:
            self._writes.remember(written)

    def _act(self, key: str, vmi: VirtualMachineInstance, launcher: Pod, storage: Storage, decision: Decision) -> None:
        if decision.create:
            self._create(key, vmi, launcher, storage, decision.create)
        for each in decision.trigger:
            self._create(key, vmi, launcher, storage, (each,), trigger=True)
        for pod in decision.delete:
            self._delete(key, vmi, pod)

    def _create(
        self,
        key: str,
        vmi: VirtualMachineInstance,
        launcher: Pod,
        storage: Storage,
        volumes: Sequence[Wanted],
        *,
        trigger: bool = False,
    ) -> None:
        what = ", ".join(each.name for each in volumes)
        try:
            pod = self._client.create(attachment_pod(vmi, launcher, volumes, storage, trigger=trigger))
        except ApiError as error:
            words = f"the attachment Pod for {what} could not be created: {error}"
            self._recorder.event(vmi, names.EVENT_WARNING, names.EVENT_FAILED_CREATE, words)
            raise
        self._made.setdefault(vmi.metadata.uid, set()).add(pod.metadata.uid)
        self._expectations.expect_created(key, pod.metadata.uid)
        seen = self._attachments.get(key_of(pod))
        if seen is not None and seen.metadata.uid == pod.metadata.uid:
            self._expectations.created_observed(key, pod.metadata.uid)
        words = f"Created attachment pod {pod.metadata.name} for {what}"
        self._recorder.event(vmi, names.EVENT_NORMAL, names.EVENT_SUCCESSFUL_CREATE, words)

    def _delete(self, key: str, vmi: VirtualMachineInstance, pod: Pod, *, tell: bool = True) -> None:
        meta = pod.metadata
        self._expectations.expect_deletions(key, [meta.uid])
        try:
            self._client.delete(Pod, meta.name, meta.namespace, uid=meta.uid)
        except NotFound:
            self._expectations.deletion_observed(key, meta.uid)
            return
        except ApiError as error:
            self._expectations.deletion_observed(key, meta.uid)
            words = f"the attachment Pod {meta.name} could not be deleted: {error}"
            self._recorder.event(vmi, names.EVENT_WARNING, names.EVENT_FAILED_DELETE, words)
            raise
        if tell:
            words = f"Deleted attachment pod {meta.name}"
            self._recorder.event(vmi, names.EVENT_NORMAL, names.EVENT_SUCCESSFUL_DELETE, words)

    # What wakes it

    def _vmi_changed(self, vmi: VirtualMachineInstance) -> None:
        self._queue.add(key_of(vmi))

    def _vmi_gone(self, vmi: VirtualMachineInstance) -> None:
        self._writes.forget(vmi.metadata.uid)
        self._made.pop(vmi.metadata.uid, None)
        self._queue.add(key_of(vmi))

    def _volume_changed(self, volume: PersistentVolumeClaim | DataVolume) -> None:
        for vmi in self._vmis.by_index(VOLUME_INDEX, key_of(volume)):
            self._queue.add(key_of(vmi))

    def _launcher_changed(self, pod: Pod) -> None:
        """A recorded launcher that our own copy did not show yet."""
        ref = podroles.controller_of(pod)
        if ref is not None and podroles.owner_uid(pod):
            self._queue.add(f"{pod.metadata.namespace}/{ref.name}")

    def _pod_changed(self, pod: Pod) -> None:
        key = _vmi_key(pod)
        self._expectations.created_observed(key, pod.metadata.uid)
        if is_terminating(pod):
            self._expectations.deletion_observed(key, pod.metadata.uid)
        self._queue.add(key)

    def _pod_gone(self, pod: Pod) -> None:
        key = _vmi_key(pod)
        self._expectations.created_observed(key, pod.metadata.uid)
        self._expectations.deletion_observed(key, pod.metadata.uid)
        self._queue.add(key)


def storage_of(
    vmi: VirtualMachineInstance, claims: Informer[PersistentVolumeClaim], data_volumes: Informer[DataVolume]
) -> Storage:
    space = vmi.metadata.namespace
    asked = [volume.rpartition("/")[2] for volume in vmi_volumes(vmi)]
    found = {name: claim for name in asked if (claim := claims.get(f"{space}/{name}")) is not None}
    filled = {name: data_volumes.get(f"{space}/{name}") for name in asked}
    return Storage(found, {name: phase_of(volume) for name, volume in filled.items() if volume is not None})


def _vmi_key(pod: Pod) -> str:
    """Only a hint whom to look at: whose Pod it is follows from its owner and from what was written down."""
    return f"{pod.metadata.namespace}/{pod.metadata.annotations.get(names.ANNOTATION_OWNER_VMI_NAME, '')}"


def launcher_indexer(pod: Pod) -> list[str]:
    ref = podroles.controller_of(pod)
    return [ref.uid] if ref is not None and ref.kind == "Pod" else []
