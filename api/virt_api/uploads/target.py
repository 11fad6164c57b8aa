"""Which importer waits for the disk of a claim."""

from __future__ import annotations

from virt_api.kube import Kube
from virt_api.problems import Problem
from virt_core.apis import importplan, names
from virt_core.apis.datavolume import DONE, KEY_POD_PHASE, KEY_POD_READY, KEY_UPLOAD_TARGET
from virt_core.apis.pods import Pod
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.kube.errors import ApiError, NotFound


async def claim_for(kube: Kube, namespace: str, name: str) -> PersistentVolumeClaim:
    """A claim that waits, or will wait, for a disk. Raises Problem 404, 409, 422."""
    try:
        claim = await kube.claim(namespace, name)
    except NotFound as error:
        raise Problem(404, f"there is no claim {name} in the namespace {namespace}") from error
    except ApiError as error:
        raise Problem(503, f"the API server did not answer: {error}") from error
    annotations = claim.metadata.annotations
    if KEY_UPLOAD_TARGET not in annotations or not await _owner(kube, claim):
        raise Problem(422, f"spec.pvcName: the claim {name} is not made for an upload by a DataVolume")
    if annotations.get(KEY_POD_PHASE) == DONE:
        raise Problem(409, f"the claim {name} is filled already")
    return claim


def listens(claim: PersistentVolumeClaim) -> bool:
    return claim.metadata.annotations.get(KEY_POD_READY) == "true"


async def importer_of(kube: Kube, claim: PersistentVolumeClaim) -> str:
    """The name of the Pod. It is the importer of the claim's own DataVolume. Raises Problem 503."""
    meta = claim.metadata
    name = importplan.pod_name(meta.name)
    try:
        pod = await kube.pod(meta.namespace, name)
    except ApiError as error:
        raise Problem(503, f"the importer of {meta.name} is not there: {error}") from error
    if not _is_importer(pod, await _owner(kube, claim)):
        raise Problem(503, f"the Pod {name} is not the importer of the claim {meta.name}, or does not run")
    return name


async def _owner(kube: Kube, claim: PersistentVolumeClaim) -> str:
    """The UID of its DataVolume: the claim belongs to it, or it belongs to a claim that was there first."""
    meta = claim.metadata
    if found := next((ref.uid for ref in meta.owner_references if ref.kind == "DataVolume"), ""):
        return found
    try:
        volume = await kube.data_volume(meta.namespace, meta.name)
    except ApiError:
        return ""
    return volume.metadata.uid if any(ref.uid == meta.uid for ref in volume.metadata.owner_references) else ""


def _is_importer(pod: Pod, owner: str) -> bool:
    return (
        pod.status.phase == "Running"
        and pod.metadata.labels.get(names.LABEL_APP) == names.APP_IMPORTER
        and any(ref.uid == owner and ref.kind == "DataVolume" for ref in pod.metadata.owner_references)
    )
