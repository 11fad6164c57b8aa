"""Lets a bound claim grow while it is used: the file, its device, then the volume's and the claim's capacity.

A claim never shrinks. A filesystem claim is a directory, whose size nothing enforces: growing it is a promise, for
which there must be room. What it takes beyond its size is told by an Event, again and again as it grows.
"""

from __future__ import annotations

from typing import Any

from virt_core.apis import names
from virt_core.apis.quantity import format_bytes
from virt_core.apis.registry import key_of
from virt_core.apis.storage import PersistentVolume, PersistentVolumeClaim
from virt_core.kube.controller import Controller, Result
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import Clock, SystemClock
from virt_core.runtime.times import rfc3339
from virt_local.storage import rules
from virt_local.storage.rules import Refused
from virt_local.storage.world import World

_RETRY_S = 30.0
#: How often a filesystem claim is measured.
_MEASURE_S = 120.0
#: Directories and the file system's own blocks.
_SLACK = 1 << 20
_RESIZING, _FAILED = "Resizing", "ControllerResizeError"


class Resizer:
    def __init__(self, world: World, clock: Clock | None = None) -> None:
        self._world = world
        self._clock = clock or SystemClock()
        self.queue = WorkQueue(name="storage-resizer", max_delay_s=30.0)
        world.claims.add_handler(on_add=self._on_claim, on_update=lambda _, new: self._on_claim(new))
        world.volumes.add_handler(on_add=self._on_volume)

    def controller(self) -> Controller:
        informers = (self._world.claims, self._world.volumes, self._world.classes)
        return Controller("storage-resizer", self.queue, self.reconcile, workers=1, informers=informers)

    def reconcile(self, key: str) -> Result | None:
        claim = self._world.claims.get(key)
        volume = self._world.volume_of(claim)
        if claim is None or volume is None or not rules.is_ours(volume) or claim.status.phase != "Bound":
            return None
        if self._world.claim_of(volume) is None:
            return None
        try:
            wanted = rules.wanted_size(claim)
            if wanted > rules.told_capacity(claim):
                self._grow(claim, volume, wanted)
        except (Refused, OSError) as error:
            self._fail(claim, str(error))
            return Result(_RETRY_S)
        return self._measure(claim, volume)

    def _grow(self, claim: PersistentVolumeClaim, volume: PersistentVolume, wanted: int) -> None:
        store, name, block = self._world.store, volume.metadata.name, rules.is_block(volume.spec.volume_mode)
        if rules.capacity_of(volume) < wanted:
            self._check(claim, volume, wanted)
            self._world.tell(claim, names.EVENT_NORMAL, _RESIZING, f"resizing volume {name} to {format_bytes(wanted)}")
            store.grow(name, block=block, size=wanted)
            self._world.patch(volume, {"spec": {"capacity": {"storage": format_bytes(wanted)}}})
        conditions = [each for each in claim.status.conditions if each.type not in (_RESIZING, _FAILED)]
        document = {"capacity": {"storage": format_bytes(wanted)}, "conditions": conditions or None}
        self._world.patch(claim, {"status": document}, "status")
        text = f"Resize volume succeeded: {name} has {format_bytes(wanted)}"
        self._world.tell(claim, names.EVENT_NORMAL, "VolumeResizeSuccessful", text)

    def _check(self, claim: PersistentVolumeClaim, volume: PersistentVolume, wanted: int) -> None:
        """The API server asks the class too; it may have been another one then. Raises Refused."""
        chosen = self._world.classes.get(claim.spec.storage_class_name or "")
        if chosen is None or not chosen.allow_volume_expansion:
            raise Refused("its storage class does not allow volumes to grow (allowVolumeExpansion)")
        store, name, block = self._world.store, volume.metadata.name, rules.is_block(volume.spec.volume_mode)
        rest = max(wanted - store.used(name, block=block), 0)
        rules.check_room(rest, self._world.promised(without=name), store.free(), rules.overcommit(chosen))

    def _fail(self, claim: PersistentVolumeClaim, why: str) -> None:
        self._world.tell(claim, names.EVENT_WARNING, "VolumeResizeFailed", f"resize failed: {why}")
        known = next((each for each in claim.status.conditions if each.type == _FAILED), None)
        if known is not None and known.message == why:
            return
        now = rfc3339(self._clock.now())
        condition: dict[str, Any] = {"type": _FAILED, "status": "True", "lastTransitionTime": now, "message": why}
        rest = [each for each in claim.status.conditions if each.type != _FAILED]
        self._world.patch(claim, {"status": {"conditions": [*rest, condition]}}, "status")

    def _measure(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> Result | None:
        if rules.is_block(volume.spec.volume_mode):
            return None
        used, size = self._world.store.used(volume.metadata.name, block=False), rules.capacity_of(volume)
        if used > size + size // 64 + _SLACK:
            text = f"the claim has {format_bytes(size)}, and its files take more: {format_bytes(used)}"
            text += ". Nothing stops that here, and other claims were promised the same disk"
            self._world.tell(claim, names.EVENT_WARNING, "VolumeOverCapacity", text)
        return Result(_MEASURE_S)

    def _on_claim(self, claim: PersistentVolumeClaim) -> None:
        if claim.spec.volume_name:
            self.queue.add(key_of(claim))

    def _on_volume(self, volume: PersistentVolume) -> None:
        ref = volume.spec.claim_ref
        if ref is not None and rules.is_ours(volume):
            self.queue.add(f"{ref.namespace}/{ref.name}")
