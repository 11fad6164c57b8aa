"""Which volume a claim may have, and why it has none yet. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from virt_core.apis.names import (
    ANNOTATION_DEFAULT_CLASS,
    ANNOTATION_SELECTED_NODE,
    BINDING_FIRST_CONSUMER,
    EVENT_NORMAL,
    EVENT_WARNING,
)
from virt_core.apis.quantity import parse_bytes
from virt_core.apis.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from virt_local.storage.vocabulary import PROVISIONER


@dataclass(frozen=True, slots=True)
class Why:
    """As an Event tells it."""

    type: str
    reason: str
    message: str


def waits_for_consumer(claim: PersistentVolumeClaim, chosen: StorageClass | None) -> bool:
    """The class wants to know where the first Pod runs, and none has been placed yet."""
    late = chosen is not None and chosen.volume_binding_mode == BINDING_FIRST_CONSUMER
    return late and not claim.spec.volume_name and ANNOTATION_SELECTED_NODE not in claim.metadata.annotations


def why_pending(claim: PersistentVolumeClaim, chosen: StorageClass | None) -> Why | None:
    """`chosen` is the claim's class, if there is such a one. No volume that exists fits. None: it is in good hands."""
    name = claim.spec.storage_class_name
    if chosen is None and name:
        return Why(EVENT_WARNING, "ProvisioningFailed", f'storageclass.storage.k8s.io "{name}" not found')
    if chosen is None:
        text = "no persistent volumes available for this claim and no storage class is set"
        return Why(EVENT_NORMAL, "FailedBinding", text)
    if waits_for_consumer(claim, chosen):
        return Why(EVENT_NORMAL, BINDING_FIRST_CONSUMER, "waiting for first consumer to be created before binding")
    if chosen.provisioner != PROVISIONER:
        text = f"storage class {chosen.metadata.name} belongs to {chosen.provisioner}, which is not part of virt-local"
        return Why(EVENT_NORMAL, "ExternalProvisioning", f"{text}: waiting for a volume that somebody makes")
    return None


def default_class(classes: Iterable[StorageClass]) -> StorageClass | None:
    """As in Kubernetes: of several the youngest, of equally old ones the first by name."""
    marked = [each for each in classes if each.metadata.annotations.get(ANNOTATION_DEFAULT_CLASS) == "true"]
    by_name = sorted(marked, key=lambda each: each.metadata.name)
    return max(by_name, key=lambda each: each.metadata.creation_timestamp or "", default=None)


def claims(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """The volume is reserved for this very claim."""
    ref = volume.spec.claim_ref
    if ref is None or (ref.namespace, ref.name) != (claim.metadata.namespace, claim.metadata.name):
        return False
    return ref.uid in ("", claim.metadata.uid)


def fits(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """A free volume of the same class that is large enough and offers the wanted access. One that was there before is
    no copy of the claim's source."""
    return (
        claim.spec.data_source is None
        and claim.spec.data_source_ref is None
        and volume.spec.claim_ref is None
        and volume.status.phase in ("", "Available")
        and not volume.metadata.deletion_timestamp
        and volume.spec.storage_class_name == (claim.spec.storage_class_name or "")
        and (volume.spec.volume_mode or "Filesystem") == (claim.spec.volume_mode or "Filesystem")
        and set(claim.spec.access_modes) <= set(volume.spec.access_modes)
        and size(volume.spec.capacity) >= parse_bytes(requested(claim))
    )


def may_bind(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """A volume that the claim names, or that names the claim: nobody else has it, and it is what the claim asks for."""
    free = volume.spec.claim_ref is None or claims(volume, claim)
    same_mode = (volume.spec.volume_mode or "Filesystem") == (claim.spec.volume_mode or "Filesystem")
    same_class = volume.spec.storage_class_name == (claim.spec.storage_class_name or "")
    return free and same_mode and same_class and size(volume.spec.capacity) >= parse_bytes(requested(claim))


def why_not_bound(claim: PersistentVolumeClaim, volume: PersistentVolume | None) -> Why:
    """Of a claim that names its volume."""
    name = claim.spec.volume_name
    if volume is None:
        return Why(EVENT_NORMAL, "FailedBinding", f'volume "{name}" is not there yet')
    if volume.spec.claim_ref is not None and not claims(volume, claim):
        return Why(EVENT_WARNING, "FailedBinding", f'volume "{name}" already bound to a different claim.')
    text = f'Cannot bind to requested volume "{name}": its storage class, volumeMode or capacity does not match'
    return Why(EVENT_WARNING, "VolumeMismatch", text)


def requested(claim: PersistentVolumeClaim) -> str:
    resources = claim.spec.resources
    return str(resources.requests.get("storage", "0")) if resources else "0"


def size(capacity: dict[str, str] | dict[str, str | int | float]) -> int:
    return parse_bytes(capacity.get("storage", "0"))
