"""PersistentVolumeClaims: bound to a volume that fits, or to the one that their class's provisioner is asked to make.

The provisioner of virt-local's own classes is `virt_local.storage`, in this process; this controller knows it only by
the annotation that asks, as Kubernetes' own knows any other.
"""

from __future__ import annotations

from typing import Any

from virt_core.apis.registry import key_for, key_of
from virt_core.apis.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from virt_core.kube.client import KubeClient
from virt_core.kube.controller import Controller, Result
from virt_core.kube.errors import NotFound
from virt_core.kube.informer import Informer
from virt_core.kube.patch import MergePatch
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.logs import get_logger
from virt_local.controllers.claim_rules import (
    claims,
    default_class,
    fits,
    may_bind,
    size,
    waits_for_consumer,
    why_not_bound,
    why_pending,
)
from virt_local.storage.provisioner import reference_to
from virt_local.storage.vocabulary import ASKED, ASKED_BETA

log = get_logger("virt-local.volume-claims")

_BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
#: Keys of volumes. No namespace begins so.
_VOLUME = "!volume/"


class VolumeClaims:
    def __init__(
        self,
        client: KubeClient,
        claims: Informer[PersistentVolumeClaim],
        volumes: Informer[PersistentVolume],
        classes: Informer[StorageClass],
        *,
        recorder: EventRecorder,
    ) -> None:
        self._client = client
        self._claims = claims
        self._volumes = volumes
        self._classes = classes
        self._recorder = recorder
        self._told: dict[str, str] = {}  # claim's UID → why it waits, as it was last said
        self.queue = WorkQueue(name="volume-claims", max_delay_s=30.0)
        claims.add_handler(
            on_add=self._enqueue, on_update=lambda _, new: self._enqueue(new), on_delete=self._on_claim_gone
        )
        volumes.add_handler(on_add=self._on_volume, on_update=lambda _, new: self._on_volume(new))
        classes.add_handler(on_add=lambda _: self._wake())

    def controller(self) -> Controller:
        informers = (self._claims, self._volumes, self._classes)
        return Controller("volume-claims", self.queue, self.reconcile, workers=1, informers=informers)

    def reconcile(self, key: str) -> Result | None:
        if key.startswith(_VOLUME):
            self._release(key.removeprefix(_VOLUME))
            return None
        claim = self._claims.get(key)
        if claim is None or claim.metadata.deletion_timestamp or claim.status.phase == "Bound":
            return None
        chosen = self._class_of(claim)
        volume = self._bound_volume(claim)
        if volume is None and not claim.spec.volume_name and not waits_for_consumer(claim, chosen):
            volume = self._fitting(claim)
        if volume is not None and may_bind(volume, claim):
            self._bind(claim, volume)
        elif not self._ask(claim, chosen):
            self._tell(claim)
        return None

    def _ask(self, claim: PersistentVolumeClaim, chosen: StorageClass | None) -> bool:
        """Whoever makes volumes of the class sees his name on the claim. True: the claim was changed."""
        if chosen is None or claim.spec.volume_name:
            return False
        document: dict[str, Any] = {}
        if claim.spec.storage_class_name is None:
            document["spec"] = {"storageClassName": chosen.metadata.name}
        if not waits_for_consumer(claim, chosen) and claim.metadata.annotations.get(ASKED) != chosen.provisioner:
            document["metadata"] = {"annotations": dict.fromkeys((ASKED, ASKED_BETA), chosen.provisioner)}
        if document:
            self._patch(PersistentVolumeClaim, claim.metadata.name, claim.metadata.namespace, document)
        return bool(document)

    def _tell(self, claim: PersistentVolumeClaim) -> None:
        """Once for each reason: a claim is looked at whenever any volume changes."""
        named = claim.spec.volume_name
        why = why_not_bound(claim, self._volumes.get(named)) if named else why_pending(claim, self._class_of(claim))
        if why is None:
            self._told.pop(claim.metadata.uid, None)
        elif self._told.get(claim.metadata.uid) != why.message:
            self._told[claim.metadata.uid] = why.message
            self._recorder.event(claim, why.type, why.reason, why.message)

    def _bound_volume(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        if claim.spec.volume_name:
            return self._volumes.get(claim.spec.volume_name)
        return next((each for each in self._volumes.list() if claims(each, claim)), None)

    def _fitting(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        fitting = [each for each in self._volumes.list() if fits(each, claim)]
        return min(fitting, key=lambda each: (size(each.spec.capacity), each.metadata.name), default=None)

    def _class_of(self, claim: PersistentVolumeClaim) -> StorageClass | None:
        """Its own; the default one for a claim that was made before there was one."""
        name = claim.spec.storage_class_name
        if name is not None:
            return self._classes.get(name) if name else None
        return default_class(self._classes.list())

    def _bind(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        """First the volume, then the claim: a crash in between is finished by the next look at the claim."""
        name = volume.metadata.name
        self._patch(PersistentVolume, name, "", {"spec": {"claimRef": reference_to(claim)}})
        self._patch(PersistentVolume, name, "", {"status": {"phase": "Bound"}}, "status")
        meta = claim.metadata
        spec = {"metadata": {"annotations": {_BIND_COMPLETED: "yes"}}, "spec": {"volumeName": name}}
        self._patch(PersistentVolumeClaim, meta.name, meta.namespace, spec)
        status = {"phase": "Bound", "accessModes": volume.spec.access_modes, "capacity": volume.spec.capacity}
        self._patch(PersistentVolumeClaim, meta.name, meta.namespace, {"status": status}, "status")

    def _on_claim_gone(self, claim: PersistentVolumeClaim) -> None:
        self._told.pop(claim.metadata.uid, None)
        if claim.spec.volume_name:
            self.queue.add(f"{_VOLUME}{claim.spec.volume_name}")

    def _release(self, name: str) -> None:
        """A volume whose claim is gone serves nobody else; who made it decides by its reclaim policy what follows."""
        volume = self._volumes.get(name)
        ref = volume.spec.claim_ref if volume is not None else None
        if volume is None or ref is None or not ref.uid or volume.status.phase == "Released":
            return
        try:
            found = self._client.get(PersistentVolumeClaim, ref.name, ref.namespace)
        except NotFound:
            found = None
        if found is None or found.metadata.uid != ref.uid:
            self._patch(PersistentVolume, name, "", {"status": {"phase": "Released"}}, "status")

    def _patch(
        self, cls: type[object], name: str, namespace: str, document: dict[str, object], subresource: str = ""
    ) -> None:
        try:
            self._client.patch(cls, name, namespace, MergePatch(document), subresource=subresource)  # type: ignore[type-var]
        except NotFound:
            return

    def _enqueue(self, claim: PersistentVolumeClaim) -> None:
        self.queue.add(key_of(claim))

    def _on_volume(self, volume: PersistentVolume) -> None:
        ref = volume.spec.claim_ref
        if ref is None:
            self._wake()
            return
        claim = self._claims.get(key_for(ref.namespace, ref.name))
        if claim is not None and ref.uid in ("", claim.metadata.uid):
            self._enqueue(claim)
        elif ref.uid:
            self.queue.add(f"{_VOLUME}{volume.metadata.name}")

    def _wake(self) -> None:
        for claim in self._claims.list():
            if claim.status.phase != "Bound":
                self._enqueue(claim)
