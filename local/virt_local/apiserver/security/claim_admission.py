"""A new claim that names no storage class gets the default one, if there is one."""

from __future__ import annotations

from virt_core.apis.names import ANNOTATION_DEFAULT_CLASS
from virt_local.apiserver.hooks import AdmissionRequest, Object
from virt_local.apiserver.security.objects import Kept, Source

_CLASSES = "storageclasses.storage.k8s.io"
#: The older way to name a class. Its value may be empty, which means none.
_BETA = "volume.beta.kubernetes.io/storage-class"


class DefaultClass:
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


def _is_default(storage_class: Object) -> bool:
    return bool((storage_class["metadata"].get("annotations") or {}).get(ANNOTATION_DEFAULT_CLASS) == "true")
