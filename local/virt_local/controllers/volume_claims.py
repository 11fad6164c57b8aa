"""PersistentVolumeClaims: bound to a fitting volume, or to a directory of this machine made for them.

The class `hostpath` (provisioner `virt-local/hostpath`) makes a hostPath volume below the data directory; all nodes of
an instance share the machine, so every node reaches it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from virt_core.apis.meta import ObjectMeta
from virt_core.apis.podparts import ObjectReference
from virt_core.apis.podvolumes import HostPathVolumeSource
from virt_core.apis.registry import key_of
from virt_core.apis.storage import PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec, StorageClass
from virt_core.kube.client import KubeClient
from virt_core.kube.controller import Controller, Result
from virt_core.kube.errors import AlreadyExists, NotFound
from virt_core.kube.informer import Informer
from virt_core.kube.patch import MergePatch
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.logs import get_logger
from virt_local.controllers.claim_rules import PROVISIONER, claims, default_class, fits, requested, size, why_pending

log = get_logger("virt-local.volume-claims")

_BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
_PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"


class VolumeClaims:
    def __init__(
        self,
        client: KubeClient,
        claims: Informer[PersistentVolumeClaim],
        volumes: Informer[PersistentVolume],
        classes: Informer[StorageClass],
        volume_dir: Path,
        *,
        recorder: EventRecorder,
    ) -> None:
        self._client = client
        self._claims = claims
        self._volumes = volumes
        self._classes = classes
        self._volume_dir = volume_dir
        self._recorder = recorder
        self._told: dict[str, str] = {}  # claim's UID → why it waits, as it was last said
        self.queue = WorkQueue(name="volume-claims", max_delay_s=30.0)
        claims.add_handler(
            on_add=self._enqueue, on_update=lambda _, new: self._enqueue(new), on_delete=self._on_claim_gone
        )
        volumes.add_handler(on_add=self._on_volume, on_update=lambda _, new: self._on_volume(new))

    def controller(self) -> Controller:
        informers = (self._claims, self._volumes, self._classes)
        return Controller("volume-claims", self.queue, self.reconcile, workers=1, informers=informers)

    def reconcile(self, key: str) -> Result | None:
        claim = self._claims.get(key)
        if claim is None or claim.metadata.deletion_timestamp or claim.status.phase == "Bound":
            return None
        volume = self._bound_volume(claim) or self._fitting(claim) or self._provision(claim)
        if volume is not None:
            self._bind(claim, volume)
        else:
            self._tell(claim)
        return None

    def _tell(self, claim: PersistentVolumeClaim) -> None:
        """Once for each reason: a claim is looked at whenever any volume changes."""
        why = why_pending(claim, self._class_of(claim))
        if self._told.get(claim.metadata.uid) != why.message:
            self._told[claim.metadata.uid] = why.message
            self._recorder.event(claim, why.type, why.reason, why.message)

    def _bound_volume(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        if claim.spec.volume_name:
            return self._volumes.get(claim.spec.volume_name)
        return next((each for each in self._volumes.list() if claims(each, claim)), None)

    def _fitting(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        fitting = [each for each in self._volumes.list() if fits(each, claim)]
        return min(fitting, key=lambda each: (size(each.spec.capacity), each.metadata.name), default=None)

    def _provision(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        chosen = self._class_of(claim)
        if chosen is None or chosen.provisioner != PROVISIONER or claim.spec.volume_mode == "Block":
            return None  # It waits for a volume that somebody makes.
        name = f"pvc-{claim.metadata.uid}"
        directory = self._volume_dir / name
        directory.mkdir(parents=True, exist_ok=True)
        # Any uid of any Pod may be the claim's user, as with a fresh disk of a cloud.
        directory.chmod(0o777)
        volume = PersistentVolume(
            metadata=ObjectMeta(name=name, annotations={_PROVISIONED_BY: PROVISIONER}),
            spec=PersistentVolumeSpec(
                capacity={"storage": requested(claim)},
                access_modes=claim.spec.access_modes,
                persistent_volume_reclaim_policy=chosen.reclaim_policy or "Delete",
                storage_class_name=chosen.metadata.name,
                volume_mode="Filesystem",
                host_path=HostPathVolumeSource(path=str(directory), type="Directory"),
                claim_ref=_reference(claim),
            ),
        )
        try:
            return self._client.create(volume)
        except AlreadyExists:
            return self._client.get(PersistentVolume, name)

    def _class_of(self, claim: PersistentVolumeClaim) -> StorageClass | None:
        """Its own; the default one for a claim that was made before there was one."""
        name = claim.spec.storage_class_name
        if name is not None:
            return self._classes.get(name) if name else None
        return default_class(self._classes.list())

    def _bind(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        """First the volume, then the claim: a crash in between is finished by the next look at the claim."""
        name = volume.metadata.name
        self._patch(PersistentVolume, name, "", {"spec": {"claimRef": _reference(claim)}})
        self._patch(PersistentVolume, name, "", {"status": {"phase": "Bound"}}, "status")
        meta = claim.metadata
        spec = {"metadata": {"annotations": {_BIND_COMPLETED: "yes"}}, "spec": {"volumeName": name}}
        self._patch(PersistentVolumeClaim, meta.name, meta.namespace, spec)
        status = {"phase": "Bound", "accessModes": volume.spec.access_modes, "capacity": volume.spec.capacity}
        self._patch(PersistentVolumeClaim, meta.name, meta.namespace, {"status": status}, "status")

    def _on_claim_gone(self, claim: PersistentVolumeClaim) -> None:
        """What we made for a claim goes with it, unless the class says Retain. The data goes with the volume."""
        self._told.pop(claim.metadata.uid, None)
        volume = self._volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
        if volume is None:
            return
        policy = volume.spec.persistent_volume_reclaim_policy
        ours = volume.metadata.annotations.get(_PROVISIONED_BY) == PROVISIONER
        if ours and policy == "Delete":
            self._remove(volume)
        else:
            self._patch(PersistentVolume, volume.metadata.name, "", {"status": {"phase": "Released"}}, "status")

    def _remove(self, volume: PersistentVolume) -> None:
        try:
            self._client.delete(PersistentVolume, volume.metadata.name, uid=volume.metadata.uid)
        except NotFound:
            pass
        remove_tree(self._volume_dir, volume.metadata.name)

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
        if volume.spec.claim_ref is None:
            for claim in self._claims.list():
                if claim.status.phase != "Bound":
                    self._enqueue(claim)


def _reference(claim: PersistentVolumeClaim) -> ObjectReference:
    meta = claim.metadata
    return ObjectReference(
        api_version="v1", kind="PersistentVolumeClaim", namespace=meta.namespace, name=meta.name, uid=meta.uid
    )


def remove_tree(parent: Path, name: str) -> None:
    """Pods have written to it. `name` is one path segment of ours; rmtree works on descriptors and follows no link."""
    if not name or "/" in name or name in (".", ".."):
        raise ValueError(f"{name!r} is not a directory's name")
    path = parent / name
    if path.is_symlink() or not path.exists():
        return
    if not shutil.rmtree.avoids_symlink_attacks:
        raise RuntimeError("this platform cannot remove directories safely")
    try:
        shutil.rmtree(path)
    except OSError as err:
        log.warning("a volume's directory could not be removed", path=str(path), error=str(err))
