"""Which claims a Pod uses, and which Pods use a claim. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from virt_core.apis.pods import Pod
from virt_core.apis.podvolumes import Volume
from virt_core.apis.storage import PersistentVolumeClaim

_ENDED = ("Succeeded", "Failed")


def claims_used(pod: Pod) -> set[str]:
    return {name for volume in pod.spec.volumes if (name := claim_in(pod, volume))}


def claim_in(pod: Pod, volume: Volume) -> str:
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name
    return f"{pod.metadata.name}-{volume.name}" if volume.ephemeral is not None else ""


def users(pods: Iterable[Pod], claim: PersistentVolumeClaim) -> list[Pod]:
    """The Pods that use a claim, or will: those that have not ended."""
    meta = claim.metadata
    return [
        pod
        for pod in pods
        if pod.metadata.namespace == meta.namespace and pod.status.phase not in _ENDED and meta.name in claims_used(pod)
    ]
