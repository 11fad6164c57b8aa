"""A new claim without a storage class gets the default one, if any; to grow, a claim needs its class's leave."""

from __future__ import annotations

from virt_core.apis.names import ANNOTATION_DEFAULT_CLASS
from virt_core.apis.quantity import parse_bytes
from virt_local.apiserver import errors
from virt_local.apiserver.hooks import AdmissionRequest, Object
from virt_local.apiserver.security.objects import Kept, Source

_CLASSES = "storageclasses.storage.k8s.io"
#: The older way to name a class. Its value may be empty, which means none.
_BETA = "volume.beta.kubernetes.io/storage-class"


class ClaimClasses:
    def __init__(self, source: Source) -> None:
        self._classes = Kept(source, _CLASSES)

    def complete(self, request: AdmissionRequest) -> None:
        """An empty name is a choice too: no class."""
        claim = request.object
        if claim is None or claim.setdefault("spec", {}).get("storageClassName") is not None:
            return
        if _BETA in (claim["metadata"].get("annotations") or {}):
            return
        marked = [each for each in self._classes.all() if _is_default(each)]
        if marked:
            youngest = max(marked, key=lambda each: str(each["metadata"].get("creationTimestamp") or ""))
            claim["spec"]["storageClassName"] = youngest["metadata"]["name"]

    def check_growth(self, request: AdmissionRequest) -> None:
        """Raises Forbidden, in the words of Kubernetes' own plugin."""
        claim, old = request.object, request.old_object
        if claim is None or old is None or _size(claim) <= _size(old):
            return
        name = (old.get("spec") or {}).get("storageClassName")
        chosen = next((each for each in self._classes.all() if each["metadata"]["name"] == name), None)
        if chosen is None or not chosen.get("allowVolumeExpansion"):
            why = (
                "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must "
                "support resize"
            )
            raise errors.forbidden("persistentvolumeclaims", "", request.name, why)


def _size(claim: Object) -> int:
    requests = ((claim.get("spec") or {}).get("resources") or {}).get("requests") or {}
    return parse_bytes(requests.get("storage") or 0)


def _is_default(storage_class: Object) -> bool:
    return bool((storage_class["metadata"].get("annotations") or {}).get(ANNOTATION_DEFAULT_CLASS) == "true")
