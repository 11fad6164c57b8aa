"""Makes a volume for each claim that asks for one of ours, empty or from a source, and takes it back in the end.

What a claim waits for is told by an Event, and looked at again when it may have changed. A volume is on the disk before
the API hears of it; a mark beside it says that nobody does yet, so that one whose claim went away is found again.
"""

from __future__ import annotations

import threading

from virt_core.apis import names
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.podparts import ObjectReference
from virt_core.apis.podvolumes import HostPathVolumeSource
from virt_core.apis.quantity import format_bytes
from virt_core.apis.registry import key_for, key_of
from virt_core.apis.scheduling import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from virt_core.apis.storage import (
    LocalVolumeSource,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    StorageClass,
    VolumeNodeAffinity,
)
from virt_core.kube.controller import Controller, Result
from virt_core.kube.errors import AlreadyExists, NotFound
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.logs import get_logger
from virt_local.storage import loops, rules
from virt_local.storage import vocabulary as words
from virt_local.storage.content import InUse
from virt_local.storage.rules import Origin, Refused
from virt_local.storage.walk import ContentError
from virt_local.storage.world import World

log = get_logger(__name__)

_RETRY_S = 15.0
_WORKERS = 2
#: Keys that are no claims': a UID whose claim may be gone; a volume's name. Neither can be a namespace.
_GONE, _VOLUME = "!gone/", "!volume/"


class Provisioner:
    def __init__(self, world: World) -> None:
        self._world = world
        self._making: dict[str, int] = {}
        self._lock = threading.Lock()
        self.queue = WorkQueue(name="storage-claims", max_delay_s=30.0)
        world.claims.add_handler(
            on_add=self._on_claim, on_update=lambda _, new: self._on_claim(new), on_delete=self._on_claim_gone
        )
        world.volumes.add_handler(on_add=self._on_volume, on_update=lambda _, new: self._on_volume(new))
        world.snapshots.add_handler(on_add=self._on_source, on_update=lambda _, new: self._on_source(new))
        world.classes.add_handler(on_add=self._on_source)

    def controller(self) -> Controller:
        world = self._world
        informers = (world.claims, world.volumes, world.classes, world.pods)
        for name in world.store.marked():
            self.queue.add(f"{_GONE}{name.removeprefix('pvc-')}")
        return Controller("storage-claims", self.queue, self.reconcile, workers=_WORKERS, informers=informers)

    def reconcile(self, key: str) -> Result | None:
        if key.startswith(_GONE):
            self._clear(key.removeprefix(_GONE))
            return None
        if key.startswith(_VOLUME):
            self._reclaim(key.removeprefix(_VOLUME))
            return None
        claim = self._world.claims.get(key)
        if claim is None:
            return None
        self._release_source(claim)
        chosen = self._world.classes.get(claim.spec.storage_class_name or "")
        if chosen is None or not rules.is_asked(claim, chosen):
            return None
        return self._provision(claim, chosen)

    def _provision(self, claim: PersistentVolumeClaim, chosen: StorageClass) -> Result | None:
        try:
            self._make(claim, chosen)
        except Refused as error:
            kind = names.EVENT_WARNING if error.reason == "ProvisioningFailed" else names.EVENT_NORMAL
            return self._wait(claim, error, kind, error.reason)
        except (loops.NoLoopDevices, InUse, ContentError, OSError) as error:
            return self._wait(claim, error)
        return None

    def _wait(
        self,
        claim: PersistentVolumeClaim,
        error: Exception,
        kind: str = names.EVENT_WARNING,
        reason: str = "ProvisioningFailed",
    ) -> Result:
        self._world.tell(claim, kind, reason, f"failed to provision volume: {error}")
        return Result(requeue_after_s=_RETRY_S)

    def _make(self, claim: PersistentVolumeClaim, chosen: StorageClass) -> None:
        world, name = self._world, f"pvc-{claim.metadata.uid}"
        block, size = rules.is_block(claim.spec.volume_mode), rules.wanted_size(claim)
        rules.check_parameters(chosen)
        if block:
            loops.check()
        origin = self._origin(claim, size)
        if not world.store.has(name, block=block):
            self._book(name, size, rules.overcommit(chosen))
            try:
                self._fill(claim, name, origin, block=block, size=size)
            except BaseException:
                self._making.pop(name, None)
                raise
        if self._still_wanted(claim):
            self._announce(claim, chosen, name, size, block=block)
        else:
            self._making.pop(name, None)
            world.store.discard(name)

    def _fill(self, claim: PersistentVolumeClaim, name: str, origin: Origin | None, *, block: bool, size: int) -> None:
        store = self._world.store
        if origin is None:
            store.make(name, block=block, size=size)
            return
        what = "snapshot" if origin.is_snapshot else "claim"
        text = f"copying the content of the source {what} for {key_of(claim)}"
        self._world.tell(claim, names.EVENT_NORMAL, "Provisioning", text)
        place = store.snapshot_place if origin.is_snapshot else store.place
        store.make_copy(name, place(origin.name, block=block), block=block, size=size)

    def _origin(self, claim: PersistentVolumeClaim, size: int) -> Origin | None:
        """The source is held until the copy is there: see `_release_source`."""
        world, reference = self._world, rules.source_of(claim)
        if reference is None:
            return None
        key = key_for(claim.metadata.namespace, reference.name)
        if reference.kind == words.CLAIM_KIND:
            source = world.claims.get(key)
            origin = rules.clone_origin(claim, source, world.volume_of(source), size)
            world.hold(source, words.CLONING)
            return origin
        snapshot = world.snapshots.get(key)
        content = world.contents.get(snapshot.status.bound_volume_snapshot_content_name or "") if snapshot else None
        origin = rules.snapshot_origin(claim, snapshot, content, size)
        world.hold(snapshot, words.SNAPSHOT_SOURCE)
        return origin

    def _release_source(self, claim: PersistentVolumeClaim) -> None:
        """A claim that nobody copies any more may go."""
        if words.CLONING not in claim.metadata.finalizers:
            return
        wanted = [each for each in self._world.claims.list() if not each.spec.volume_name and _clones(each, claim)]
        if not wanted:
            self._world.let_go(claim, words.CLONING)

    def _book(self, name: str, size: int, factor: float) -> None:
        """Two claims never count on the same room: it stays booked until the volume is seen. Raises Refused."""
        with self._lock:
            for known in [each for each in self._making if self._world.volumes.get(each) is not None]:
                del self._making[known]
            promised = self._world.promised() + sum(self._making.values())
            rules.check_room(size, promised, self._world.store.free(), factor)
            self._making[name] = size

    def _still_wanted(self, claim: PersistentVolumeClaim) -> bool:
        """A copy takes a while; the informer may not know yet."""
        meta = claim.metadata
        try:
            found = self._world.client.get(PersistentVolumeClaim, meta.name, meta.namespace)
        except NotFound:
            return False
        return found.metadata.uid == meta.uid and not found.metadata.deletion_timestamp

    def _announce(
        self, claim: PersistentVolumeClaim, chosen: StorageClass, name: str, size: int, *, block: bool
    ) -> None:
        volume = PersistentVolume(
            metadata=ObjectMeta(
                name=name, annotations={words.PROVISIONED_BY: words.PROVISIONER}, finalizers=[words.RECLAIMED]
            ),
            spec=PersistentVolumeSpec(
                capacity={"storage": format_bytes(size)},
                access_modes=claim.spec.access_modes,
                persistent_volume_reclaim_policy=chosen.reclaim_policy or "Delete",
                storage_class_name=chosen.metadata.name,
                volume_mode=names.VOLUME_MODE_BLOCK if block else names.VOLUME_MODE_FILESYSTEM,
                claim_ref=reference_to(claim),
            ),
        )
        store = self._world.store
        if block:
            volume.spec.local = LocalVolumeSource(path=str(store.device(name)))
            volume.spec.node_affinity = _EVERYWHERE
        else:
            volume.spec.host_path = HostPathVolumeSource(path=str(store.place(name, block=False)), type="Directory")
        try:
            self._world.client.create(volume)
        except AlreadyExists:
            log.info("the volume is there already", volume=name)
        store.settle(name)
        text = f"Successfully provisioned volume {name}"
        self._world.tell(claim, names.EVENT_NORMAL, "ProvisioningSucceeded", text)

    def _clear(self, uid: str) -> None:
        """A volume that was made for a claim which went away before anybody was told of the volume."""
        name = f"pvc-{uid}"
        if name not in self._world.store.marked() or any(c.metadata.uid == uid for c in self._world.claims.list()):
            return
        try:
            self._world.client.get(PersistentVolume, name)
        except NotFound:
            self._world.store.discard(name)
            return
        self._world.store.settle(name)

    def _reclaim(self, name: str) -> None:
        """First the bytes, then the object: what is still told of may be asked for again, what is forgotten not."""
        volume = self._world.volumes.get(name)
        if volume is None or not is_released(volume) or self._world.claim_of(volume) is not None:
            return
        if volume.spec.persistent_volume_reclaim_policy != "Delete":
            if volume.metadata.deletion_timestamp:
                self._world.let_go(volume, words.RECLAIMED)
            return
        self._world.store.discard(name)
        try:
            self._world.client.delete(PersistentVolume, name, uid=volume.metadata.uid)
            volume = self._world.client.get(PersistentVolume, name)
        except NotFound:
            return
        self._world.let_go(volume, words.RECLAIMED)

    def _on_claim(self, claim: PersistentVolumeClaim) -> None:
        self.queue.add(key_of(claim))
        if claim.status.phase == "Bound" or claim.metadata.deletion_timestamp:
            self._on_source(claim)

    def _on_claim_gone(self, claim: PersistentVolumeClaim) -> None:
        self._world.forget(claim.metadata.uid)
        self.queue.add(f"{_GONE}{claim.metadata.uid}")
        self._on_source(claim)

    def _on_volume(self, volume: PersistentVolume) -> None:
        if is_released(volume):
            self.queue.add(f"{_VOLUME}{volume.metadata.name}")

    def _on_source(self, _source: object) -> None:
        """Others may have waited for it, or hold it no longer."""
        for claim in self._world.claims.list():
            if not claim.spec.volume_name or words.CLONING in claim.metadata.finalizers:
                self.queue.add(key_of(claim))


def _clones(claim: PersistentVolumeClaim, source: PersistentVolumeClaim) -> bool:
    try:
        reference = rules.source_of(claim)
    except Refused:
        return False
    same = claim.metadata.namespace == source.metadata.namespace
    return (
        same and reference is not None and (reference.kind, reference.name) == (words.CLAIM_KIND, source.metadata.name)
    )


def is_released(volume: PersistentVolume) -> bool:
    return rules.is_ours(volume) and volume.status.phase == "Released"


def reference_to(claim: PersistentVolumeClaim) -> ObjectReference:
    meta = claim.metadata
    return ObjectReference(
        api_version="v1", kind=words.CLAIM_KIND, namespace=meta.namespace, name=meta.name, uid=meta.uid
    )


_ANY_NODE = NodeSelectorRequirement(key=names.LABEL_NODE_HOSTNAME, operator="Exists")
#: Every node of the machine reaches it; a local volume must say where it is.
_EVERYWHERE = VolumeNodeAffinity(
    required=NodeSelector(node_selector_terms=[NodeSelectorTerm(match_expressions=[_ANY_NODE])])
)
