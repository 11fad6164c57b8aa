"""The devices of block volumes: attached while some Pod uses the claim or will, detached when the last has ended.

A Pod that runs knows its device by a number, and the kernel gives a freed number to somebody else. So a device is taken
away in an order that leaves no gap: first its node is hidden, then the API server itself is asked for Pods. Whoever
found the node did so after his Pod was there to be seen; whoever comes later does not find it, and tries again.
"""

from __future__ import annotations

from virt_core.apis import names
from virt_core.apis.pods import Pod
from virt_core.apis.registry import key_for
from virt_core.apis.storage import PersistentVolume, PersistentVolumeClaim
from virt_core.kube.controller import Controller, Result
from virt_core.kube.workqueue import WorkQueue
from virt_local.storage import loops, rules
from virt_local.storage.uses import claims_used, users
from virt_local.storage.world import World

_RETRY_S = 5.0


class Devices:
    def __init__(self, world: World) -> None:
        self._world = world
        self.queue = WorkQueue(name="storage-devices", max_delay_s=10.0)
        world.pods.add_handler(on_add=self._on_pod, on_update=lambda _, new: self._on_pod(new), on_delete=self._on_pod)
        world.volumes.add_handler(on_add=self._on_volume, on_update=lambda _, new: self._on_volume(new))
        world.claims.add_handler(on_update=lambda _, new: self._on_claim(new))

    def controller(self) -> Controller:
        informers = (self._world.claims, self._world.volumes, self._world.pods)
        return Controller("storage-devices", self.queue, self.reconcile, workers=1, informers=informers)

    def reconcile(self, name: str) -> Result | None:
        world, volume = self._world, self._world.volumes.get(name)
        if volume is None or not rules.is_ours(volume) or not rules.is_block(volume.spec.volume_mode):
            return None
        claim = world.claim_of(volume)
        if claim is None or not world.store.has(name, block=True):
            return None
        if not users(world.pods.list(), claim):
            self._take_away(claim, name)
            return None
        try:
            world.store.attach(name)
        except (loops.NoLoopDevices, OSError) as error:
            world.tell(claim, names.EVENT_WARNING, "FailedAttachVolume", f"{name} cannot be attached: {error}")
            return Result(_RETRY_S)
        return None

    def _take_away(self, claim: PersistentVolumeClaim, name: str) -> None:
        if not self._world.store.is_attached(name):
            return
        self._world.store.hide(name)
        if users(self._world.client.list(Pod, claim.metadata.namespace).items, claim):
            self._world.store.attach(name)
        else:
            self._world.store.detach(name)

    def _on_pod(self, pod: Pod) -> None:
        for name in claims_used(pod):
            claim = self._world.claims.get(key_for(pod.metadata.namespace, name))
            if claim is not None:
                self._on_claim(claim)

    def _on_claim(self, claim: PersistentVolumeClaim) -> None:
        if claim.spec.volume_name:
            self.queue.add(claim.spec.volume_name)

    def _on_volume(self, volume: PersistentVolume) -> None:
        if rules.is_block(volume.spec.volume_mode):
            self.queue.add(volume.metadata.name)
