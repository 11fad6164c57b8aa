"""The controller of DataVolumes: looks at one, its claim and its importer Pod, lets `decide` decide, and does it."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from virt_controller.datavolume import claims, progress
from virt_controller.datavolume.decide import Decision, World, decide
from virt_controller.datavolume.plan import plan_of
from virt_controller.datavolume.render import importer_pod
from virt_controller.datavolume.whose import Whose
from virt_controller.launcher_pod import TemplateConfig
from virt_controller.vmi.surroundings import VOLUME_INDEX
from virt_core.apis import names
from virt_core.apis.base import from_plain
from virt_core.apis.datavolume import DONE, DataVolume, DataVolumeSpec
from virt_core.apis.facts import is_final, is_terminating
from virt_core.apis.importplan import Progress, pod_name
from virt_core.apis.pods import Pod
from virt_core.apis.registry import owner_reference
from virt_core.apis.storage import PersistentVolumeClaim, StorageClass
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.client import KubeClient
from virt_core.kube.controller import Result
from virt_core.kube.errors import AlreadyExists, NotFound
from virt_core.kube.informer import Informer
from virt_core.kube.patch import op, pointer
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.store import key_of
from virt_core.kube.workqueue import WorkQueue
from virt_core.kube.writes import OwnWrites, write_difference, write_operations, write_status
from virt_core.runtime.clock import Clock

Ask = Callable[[Pod], Progress | None]
#: A cluster that gets our definition later, or loses it, is noticed then.
_NOT_OURS_S = 60.0


class DataVolumeController:
    def __init__(
        self,
        client: KubeClient,
        *,
        queue: WorkQueue,
        volumes: Informer[DataVolume],
        claims: Informer[PersistentVolumeClaim],
        pods: Informer[Pod],
        vmis: Informer[VirtualMachineInstance],
        recorder: EventRecorder,
        clock: Clock,
        template: TemplateConfig,
        ask: Ask = progress.ask,
    ) -> None:
        self._client, self._queue, self._recorder, self._clock = client, queue, recorder, clock
        self._volumes, self._claims, self._pods, self._vmis = volumes, claims, pods, vmis
        self._template, self._ask = template, ask
        self._whose = Whose(client, clock)
        self._writes: OwnWrites[DataVolume] = OwnWrites()
        volumes.add_handler(self._wake, lambda _old, new: self._wake(new), self._gone)
        claims.add_handler(self._claim_changed, lambda _old, new: self._claim_changed(new), self._wake)
        pods.add_handler(self._pod_changed, lambda _old, new: self._pod_changed(new), self._pod_changed)

    def reconcile(self, key: str) -> Result | None:
        cached = self._volumes.get(key)
        if cached is None:
            return self._begin_with(key)
        if is_terminating(cached):
            return None
        if not self._whose.ours():
            return Result(_NOT_OURS_S)
        volume = self._writes.freshest(cached)
        spec = from_plain(volume.spec, DataVolumeSpec)
        world = self._look(volume, spec)
        decision = decide(volume, spec, world, self._clock.now())
        self._act(volume, spec, world, decision)
        return Result(decision.recheck_s) if decision.recheck_s is not None else None

    def _begin_with(self, key: str) -> Result | None:
        """A claim that was there first and asks for an upload."""
        claim = self._claims.get(key)
        if claim is None or is_terminating(claim) or not claims.asks_for_upload(claim):
            return None
        if not self._whose.ours():
            return Result(_NOT_OURS_S)
        if claims.is_archive(claim):
            # The reason is the one by which clients that wait for such a claim stop waiting.
            words = "Virtpod's importer takes disks only, no archives"
            self._recorder.event(claim, names.EVENT_WARNING, "ProvisioningFailed", words)
            return None
        self._create(claims.volume_for(claim))
        return None

    def _look(self, volume: DataVolume, spec: DataVolumeSpec) -> World:
        claim = self._claims.get(key_of(volume))
        copied = spec.source.pvc if spec.source is not None else None
        source = f"{volume.metadata.namespace}/{copied.name}" if copied is not None else ""
        pod = self._pods.get(f"{volume.metadata.namespace}/{pod_name(volume.metadata.name)}")
        if pod is not None and not any(ref.uid == volume.metadata.uid for ref in pod.metadata.owner_references):
            pod = None
        unbound = claim is not None and claim.status.phase != "Bound"
        return World(
            claim=claim,
            pod=pod,
            progress=self._ask(pod) if pod is not None else None,
            first_consumer=unbound and self._waits_for_consumer(claim),
            source=self._filled(source) if source else None,
            users=self._users(source or (key_of(volume) if claim and claims.came_first(volume, claim) else "")),
        )

    def _filled(self, key: str) -> PersistentVolumeClaim | None:
        """A claim that is there, bound, and not itself being filled."""
        claim, volume = self._claims.get(key), self._volumes.get(key)
        if claim is None or claim.status.phase != "Bound" or (volume is not None and volume.status.phase != DONE):
            return None
        return claim

    def _users(self, key: str) -> tuple[str, ...]:
        """Machines that may be writing to it."""
        if not key:
            return ()
        vmis = self._vmis.by_index(VOLUME_INDEX, key)
        return tuple(sorted(f"VMI {vmi.metadata.name}" for vmi in vmis if not is_final(vmi)))

    def _waits_for_consumer(self, claim: PersistentVolumeClaim | None) -> bool:
        name = claim.spec.storage_class_name if claim is not None else None
        if not name:
            return False
        try:
            found = self._client.get(StorageClass, name)
        except NotFound:
            return False
        return found.volume_binding_mode == names.BINDING_FIRST_CONSUMER

    # What it does

    def _act(self, volume: DataVolume, spec: DataVolumeSpec, world: World, decision: Decision) -> None:
        """First what others see as done, then the status; the Pod goes only after what it said was written."""
        size = claims.disk_size(spec, world.source)
        if decision.create_claim:
            self._create(claims.claim_of(volume, spec, size))
        if world.claim is not None and decision.adopt_claim:
            self._adopt(volume, world.claim)
        if decision.create_pod:
            self._create(importer_pod(volume, spec, plan_of(spec, size, world.claim, world.source), self._template))
        if world.claim is not None and decision.annotations:
            self._annotate(world.claim, decision.annotations)
        self._write(volume, decision)
        if decision.delete_pod and world.pod is not None:
            self._delete(world.pod)

    def _create(self, made: PersistentVolumeClaim | Pod | DataVolume) -> None:
        try:
            self._client.create(made)
        except AlreadyExists:
            return

    def _adopt(self, volume: DataVolume, claim: PersistentVolumeClaim) -> None:
        owners = [*claim.metadata.owner_references, owner_reference(volume)]
        write_operations(self._client, claim, [op.add(pointer("metadata", "ownerReferences"), owners)])

    def _annotate(self, claim: PersistentVolumeClaim, annotations: dict[str, str]) -> None:
        meta = replace(claim.metadata, annotations=claim.metadata.annotations | annotations)
        try:
            write_difference(self._client, claim, replace(claim, metadata=meta))
        except NotFound:
            return

    def _write(self, volume: DataVolume, decision: Decision) -> None:
        try:
            written = write_status(self._client, volume, replace(volume, status=decision.status))
        except NotFound:
            return
        if written is None:
            return
        self._writes.remember(written)
        for note in decision.notes:
            if _said(volume) != note.message:
                self._recorder.event(volume, note.type, note.reason, note.message)

    def _delete(self, pod: Pod) -> None:
        try:
            self._client.delete(Pod, pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid)
        except NotFound:
            return

    # What wakes it

    def _wake(self, obj: DataVolume | PersistentVolumeClaim) -> None:
        """A claim has the name of its DataVolume."""
        if self._volumes.get(key_of(obj)) is not None:
            self._queue.add(key_of(obj))

    def _claim_changed(self, claim: PersistentVolumeClaim) -> None:
        if claims.asks_for_upload(claim):
            self._queue.add(key_of(claim))
        else:
            self._wake(claim)

    def _gone(self, volume: DataVolume) -> None:
        self._writes.forget(volume.metadata.uid)

    def _pod_changed(self, pod: Pod) -> None:
        for ref in pod.metadata.owner_references:
            if ref.kind == "DataVolume":
                self._queue.add(f"{pod.metadata.namespace}/{ref.name}")


def _said(volume: DataVolume) -> str:
    return next((each.message for each in volume.status.conditions if each.type == "Running"), "")
