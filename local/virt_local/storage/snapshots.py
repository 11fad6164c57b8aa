"""VolumeSnapshots: each gets content of its own, or is bound to content that is there; its status follows.

A snapshot stays while a claim is being made from it, and goes after its content. Its source stays until it is taken.
"""

from __future__ import annotations

from virt_core.apis import names
from virt_core.apis.registry import key_for, key_of
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.volumesnapshots import VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent
from virt_core.kube.controller import Controller, Result
from virt_core.kube.errors import AlreadyExists, NotFound
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import Clock, SystemClock
from virt_core.runtime.times import rfc3339
from virt_local.storage import rules
from virt_local.storage import snapshot_rules as decide
from virt_local.storage import vocabulary as words
from virt_local.storage.rules import Refused
from virt_local.storage.world import World

_RETRY_S = 10.0
#: Keys of claims that were held for a snapshot. No namespace begins so.
_CLAIM = "!claim/"


class Snapshots:
    def __init__(self, world: World, clock: Clock | None = None) -> None:
        self._world = world
        self._clock = clock or SystemClock()
        self.queue = WorkQueue(name="storage-snapshots", max_delay_s=30.0)
        world.snapshots.add_handler(
            on_add=self._on_snapshot, on_update=lambda _, new: self._on_snapshot(new), on_delete=self._on_gone
        )
        world.contents.add_handler(
            on_add=self._on_content, on_update=lambda _, new: self._on_content(new), on_delete=self._on_content
        )
        world.claims.add_handler(
            on_add=self._on_claim, on_update=lambda _, new: self._on_claim(new), on_delete=self._on_claim
        )
        world.snapshot_classes.add_handler(on_add=self._on_class)

    def controller(self) -> Controller:
        world = self._world
        informers = (world.snapshots, world.contents, world.snapshot_classes, world.claims, world.volumes)
        return Controller("storage-snapshots", self.queue, self.reconcile, workers=1, informers=informers)

    def reconcile(self, key: str) -> Result | None:
        if key.startswith(_CLAIM):
            self._release_source(key.removeprefix(_CLAIM))
            return None
        snapshot = self._world.snapshots.get(key)
        if snapshot is None:
            return None
        if snapshot.metadata.deletion_timestamp:
            return self._end(snapshot)
        try:
            content = self._content(snapshot)
        except Refused as error:
            self._fail(snapshot, error)
            return Result(_RETRY_S)
        if content is not None:
            self._follow(snapshot, content)
        return None

    def _content(self, snapshot: VolumeSnapshot) -> VolumeSnapshotContent | None:
        """None: not ours, or the next look will find it. Raises Refused."""
        world, existing = self._world, snapshot.spec.source.volume_snapshot_content_name
        found = world.contents.get(decide.content_name(snapshot))
        if existing or found is not None:
            content = decide.check_bound(snapshot, found)
            if content.spec.driver != words.PROVISIONER:
                return None
            world.hold(snapshot, words.SNAPSHOT_SOURCE, words.SNAPSHOT_BOUND)
            if not content.spec.volume_snapshot_ref.uid:
                world.patch(content, {"spec": {"volumeSnapshotRef": {"uid": snapshot.metadata.uid}}})
                return None
            return content
        if snapshot.status.bound_volume_snapshot_content_name:
            decide.check_bound(snapshot, None)
        self._begin(snapshot)
        return None

    def _begin(self, snapshot: VolumeSnapshot) -> None:
        world, meta = self._world, snapshot.metadata
        name = snapshot.spec.source.persistent_volume_claim_name or ""
        claim = world.claims.get(key_for(meta.namespace, name))
        volume = decide.check_source(name, claim, world.volume_of(claim))
        if not rules.is_ours(volume):
            raise Refused(
                f"the claim {name} has a volume that {words.PROVISIONER} did not make", "SnapshotCreationFailed"
            )
        chosen = self._class(snapshot)
        if chosen is None:
            return
        world.hold(snapshot, words.SNAPSHOT_SOURCE, words.SNAPSHOT_BOUND)
        world.hold(claim, words.TAKING)
        text = f"Waiting for a snapshot {key_of(snapshot)} to be created by {words.PROVISIONER}."
        world.tell(snapshot, names.EVENT_NORMAL, "CreatingSnapshot", text)
        try:
            world.client.create(decide.new_content(snapshot, chosen, volume))
        except AlreadyExists:
            return

    def _class(self, snapshot: VolumeSnapshot) -> VolumeSnapshotClass | None:
        """None: another driver's. Without a name the default one, whose name is then written down."""
        name, world = snapshot.spec.volume_snapshot_class_name, self._world
        if name is None:
            chosen = decide.default_class(world.snapshot_classes.list())
            world.patch(snapshot, {"spec": {"volumeSnapshotClassName": chosen.metadata.name}})
            return None
        found = world.snapshot_classes.get(name)
        if found is None:
            raise Refused(f"there is no VolumeSnapshotClass {name!r}", "GetSnapshotClassFailed")
        return found if found.driver == words.PROVISIONER else None

    def _follow(self, snapshot: VolumeSnapshot, content: VolumeSnapshotContent) -> None:
        wanted = decide.status_from(content)
        if decide.differs(snapshot, wanted):
            self._world.patch(snapshot, {"status": wanted}, "status")
        key = key_of(snapshot)
        if wanted["error"] is not None and not wanted["readyToUse"]:
            message = str(wanted["error"]["message"])
            self._world.tell(snapshot, names.EVENT_WARNING, "SnapshotCreationFailed", message)
        elif wanted["readyToUse"] and not snapshot.status.ready_to_use:
            self._world.tell(
                snapshot, names.EVENT_NORMAL, "SnapshotCreated", f"Snapshot {key} was successfully created."
            )
            self._world.tell(snapshot, names.EVENT_NORMAL, "SnapshotReady", f"Snapshot {key} is ready to use.")

    def _fail(self, snapshot: VolumeSnapshot, error: Refused) -> None:
        text = str(error)
        self._world.tell(snapshot, names.EVENT_WARNING, error.reason, text)
        known = snapshot.status.error
        if known is None or known.message != text or snapshot.status.ready_to_use is not False:
            told = {"message": text, "time": rfc3339(self._clock.now())}
            self._world.patch(snapshot, {"status": {"readyToUse": False, "error": told}}, "status")

    def _end(self, snapshot: VolumeSnapshot) -> Result | None:
        world = self._world
        if any(decide.restores_from(claim, snapshot) for claim in world.claims.list()):
            text = "Snapshot is being used to restore a PVC"
            world.tell(snapshot, names.EVENT_WARNING, "SnapshotDeletePending", text)
            return Result(_RETRY_S)
        name = snapshot.status.bound_volume_snapshot_content_name or decide.content_name(snapshot)
        try:
            content = world.client.get(VolumeSnapshotContent, name)
        except NotFound:
            content = None
        if content is not None and content.spec.driver != words.PROVISIONER:
            return None
        if content is not None and content.spec.volume_snapshot_ref.uid == snapshot.metadata.uid:
            if words.BEING_DELETED not in content.metadata.annotations:
                world.patch(content, {"metadata": {"annotations": {words.BEING_DELETED: "yes"}}})
            if content.spec.deletion_policy == "Delete":
                self._delete(content)
                return Result(_RETRY_S)
        world.let_go(snapshot, words.SNAPSHOT_SOURCE, words.SNAPSHOT_BOUND)
        return None

    def _delete(self, content: VolumeSnapshotContent) -> None:
        if not content.metadata.deletion_timestamp:
            try:
                self._world.client.delete(VolumeSnapshotContent, content.metadata.name, uid=content.metadata.uid)
            except NotFound:
                return

    def _release_source(self, key: str) -> None:
        claim = self._world.claims.get(key)
        if claim is None or words.TAKING not in claim.metadata.finalizers:
            return
        if not any(decide.takes_from(each, claim) for each in self._world.snapshots.list()):
            self._world.let_go(claim, words.TAKING)

    def _on_snapshot(self, snapshot: VolumeSnapshot) -> None:
        self.queue.add(key_of(snapshot))
        if source := snapshot.spec.source.persistent_volume_claim_name:
            self.queue.add(f"{_CLAIM}{snapshot.metadata.namespace}/{source}")

    def _on_gone(self, snapshot: VolumeSnapshot) -> None:
        self._world.forget(snapshot.metadata.uid)
        self._on_snapshot(snapshot)

    def _on_content(self, content: VolumeSnapshotContent) -> None:
        ref = content.spec.volume_snapshot_ref
        self.queue.add(f"{ref.namespace}/{ref.name}")

    def _on_claim(self, claim: PersistentVolumeClaim) -> None:
        """Snapshots may wait for it to be bound, or to be made."""
        if words.TAKING in claim.metadata.finalizers:
            self.queue.add(f"{_CLAIM}{key_of(claim)}")
        for snapshot in self._world.snapshots.list():
            if snapshot.metadata.namespace == claim.metadata.namespace and not snapshot.status.ready_to_use:
                self.queue.add(key_of(snapshot))

    def _on_class(self, _chosen: VolumeSnapshotClass) -> None:
        for snapshot in self._world.snapshots.list():
            if not snapshot.status.ready_to_use:
                self.queue.add(key_of(snapshot))
