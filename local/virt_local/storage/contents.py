"""VolumeSnapshotContents of our driver: takes the snapshot, or looks up the one that is named; removes it at last."""

from __future__ import annotations

from typing import Any

from virt_core.apis import names
from virt_core.apis.registry import key_for
from virt_core.apis.storage import PersistentVolume
from virt_core.apis.volumesnapshots import VolumeSnapshot, VolumeSnapshotContent
from virt_core.kube.controller import Controller, Result
from virt_core.kube.errors import NotFound
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import Clock, SystemClock
from virt_core.runtime.times import rfc3339
from virt_local.storage import rules
from virt_local.storage import vocabulary as words
from virt_local.storage.content import InUse
from virt_local.storage.rules import Refused
from virt_local.storage.snapshot_rules import handle_of
from virt_local.storage.store import Snapshot
from virt_local.storage.walk import ContentError
from virt_local.storage.world import World

_RETRY_S = 10.0


class Contents:
    def __init__(self, world: World, clock: Clock | None = None) -> None:
        self._world = world
        self._clock = clock or SystemClock()
        self.queue = WorkQueue(name="storage-contents", max_delay_s=30.0)
        world.contents.add_handler(on_add=self._on_content, on_update=lambda _, new: self._on_content(new))
        world.contents.add_handler(on_delete=lambda gone: world.forget(gone.metadata.uid))

    def controller(self) -> Controller:
        world = self._world
        informers = (world.contents, world.snapshots, world.volumes, world.classes)
        return Controller("storage-contents", self.queue, self.reconcile, workers=2, informers=informers)

    def reconcile(self, name: str) -> Result | None:
        content = self._world.contents.get(name)
        if content is None or content.spec.driver != words.PROVISIONER:
            return None
        if content.metadata.deletion_timestamp:
            return self._end(content)
        if words.BEING_DELETED in content.metadata.annotations and content.spec.deletion_policy != "Delete":
            self._world.let_go(content, words.CONTENT_BOUND)
            return None
        self._world.hold(content, words.CONTENT_BOUND)
        if content.status.ready_to_use:
            return None
        try:
            self._publish(content, self._take(content))
        except (Refused, InUse, ContentError, OSError, ValueError) as error:
            self._fail(content, f"failed to take snapshot of the volume: {error}")
            return Result(_RETRY_S)
        return None

    def _take(self, content: VolumeSnapshotContent) -> Snapshot:
        store, handle = self._world.store, handle_of(content)
        known = store.snapshot(handle)
        if known is not None:
            return known
        if content.spec.source.snapshot_handle:
            raise Refused(f"there is no snapshot {handle!r}")
        volume = self._world.volumes.get(content.spec.source.volume_handle or "")
        if volume is None or not rules.is_ours(volume):
            raise Refused(f"there is no volume {content.spec.source.volume_handle!r} of ours")
        block = rules.is_block(volume.spec.volume_mode)
        self._check_room(volume, block=block)
        place = store.place(volume.metadata.name, block=block)
        return store.take(handle, place, block=block, size=rules.capacity_of(volume))

    def _check_room(self, volume: PersistentVolume, *, block: bool) -> None:
        """A snapshot is not promised anything: it needs what its source takes, now. Raises Refused."""
        store = self._world.store
        chosen = self._world.classes.get(volume.spec.storage_class_name)
        factor = rules.overcommit(chosen) if chosen is not None else 1.0
        size = store.used(volume.metadata.name, block=block)
        rules.check_room(size, self._world.promised(), store.free(), factor)

    def _publish(self, content: VolumeSnapshotContent, taken: Snapshot) -> None:
        status = {
            "snapshotHandle": handle_of(content),
            "creationTime": taken.created_ns,
            "restoreSize": taken.size,
            "readyToUse": True,
            "error": None,
        }
        self._world.patch(content, {"status": status}, "status")

    def _fail(self, content: VolumeSnapshotContent, text: str) -> None:
        self._world.tell(content, names.EVENT_WARNING, "SnapshotCreationFailed", text)
        known = content.status.error
        if known is None or known.message != text:
            error: dict[str, Any] = {"message": text, "time": rfc3339(self._clock.now())}
            self._world.patch(content, {"status": {"readyToUse": False, "error": error}}, "status")

    def _end(self, content: VolumeSnapshotContent) -> Result | None:
        """Bound content waits for its snapshot's end."""
        if words.BEING_DELETED not in content.metadata.annotations and self._is_bound(content):
            return Result(_RETRY_S)
        if content.spec.deletion_policy == "Delete":
            try:
                self._world.store.discard_snapshot(handle_of(content))
            except (OSError, ValueError) as error:
                self._world.tell(content, names.EVENT_WARNING, "SnapshotDeleteError", str(error))
                return Result(_RETRY_S)
        self._world.let_go(content, words.CONTENT_BOUND)
        return None

    def _is_bound(self, content: VolumeSnapshotContent) -> bool:
        ref = content.spec.volume_snapshot_ref
        found = self._world.snapshots.get(key_for(ref.namespace, ref.name))
        if found is None:
            try:
                found = self._world.client.get(VolumeSnapshot, ref.name, ref.namespace)
            except NotFound:
                return False
        return found.metadata.uid == ref.uid

    def _on_content(self, content: VolumeSnapshotContent) -> None:
        self.queue.add(content.metadata.name)
