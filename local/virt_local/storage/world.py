"""What the storage controllers look at and act on: the API's objects, the directory, and Events told once."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from virt_core.apis.pods import Pod
from virt_core.apis.registry import key_for
from virt_core.apis.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from virt_core.apis.volumesnapshots import VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent
from virt_core.kube.client import KubeClient
from virt_core.kube.errors import NotFound
from virt_core.kube.informer import Informer
from virt_core.kube.patch import MergePatch
from virt_core.kube.recorder import EventRecorder
from virt_local.storage import rules
from virt_local.storage.store import VolumeStore


@dataclass
class World:
    client: KubeClient
    recorder: EventRecorder
    store: VolumeStore
    pods: Informer[Pod]
    claims: Informer[PersistentVolumeClaim]
    volumes: Informer[PersistentVolume]
    classes: Informer[StorageClass]
    snapshots: Informer[VolumeSnapshot]
    contents: Informer[VolumeSnapshotContent]
    snapshot_classes: Informer[VolumeSnapshotClass]
    _told: dict[tuple[str, str], str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def tell(self, obj: Any, type: str, reason: str, message: str) -> None:
        """Once for each message, until another one is told of the same object for the same reason."""
        key = (obj.metadata.uid, reason)
        with self._lock:
            if self._told.get(key) == message:
                return
            self._told[key] = message
        self.recorder.event(obj, type, reason, message)

    def forget(self, uid: str) -> None:
        with self._lock:
            for key in [key for key in self._told if key[0] == uid]:
                del self._told[key]

    def patch(self, obj: Any, document: dict[str, Any], subresource: str = "") -> None:
        """What is gone meanwhile needs no change."""
        meta = obj.metadata
        try:
            self.client.patch(type(obj), meta.name, meta.namespace, MergePatch(document), subresource=subresource)
        except NotFound:
            return

    def hold(self, obj: Any, *finalizers: str) -> None:
        """It does not go before we say so. Raises Conflict when it changed meanwhile."""
        missing = [each for each in finalizers if each not in obj.metadata.finalizers]
        if missing:
            self._write_finalizers(obj, [*obj.metadata.finalizers, *missing])

    def let_go(self, obj: Any, *finalizers: str) -> None:
        left = [each for each in obj.metadata.finalizers if each not in finalizers]
        if len(left) < len(obj.metadata.finalizers):
            self._write_finalizers(obj, left)

    def _write_finalizers(self, obj: Any, finalizers: list[str]) -> None:
        meta = obj.metadata
        document = {"metadata": {"finalizers": finalizers, "resourceVersion": meta.resource_version, "uid": meta.uid}}
        self.patch(obj, document)

    def promised(self, without: str = "") -> int:
        """What our volumes may still take of the disk."""
        ours = [each for each in self.volumes.list() if rules.is_ours(each)]
        used = {
            each.metadata.name: self.store.used(each.metadata.name, block=rules.is_block(each.spec.volume_mode))
            for each in ours
        }
        return rules.promised_rest(ours, used, without)

    def volume_of(self, claim: PersistentVolumeClaim | None) -> PersistentVolume | None:
        return self.volumes.get(claim.spec.volume_name) if claim is not None and claim.spec.volume_name else None

    def claim_of(self, volume: PersistentVolume) -> PersistentVolumeClaim | None:
        """The claim that the volume is bound to, if it is still that one."""
        ref = volume.spec.claim_ref
        claim = self.claims.get(key_for(ref.namespace, ref.name)) if ref is not None else None
        return claim if claim is not None and ref is not None and claim.metadata.uid == ref.uid else None
