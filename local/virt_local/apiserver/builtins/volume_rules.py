"""What makes a claim, a volume or a storage class invalid."""

from __future__ import annotations

from typing import Any

from virt_local.apiserver.errors import Cause
from virt_local.apiserver.schema.validate import bad_value, forbidden, required, unsupported

Object = dict[str, Any]

_MODES = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"]


def check_claim(claim: Object, old: Object | None) -> list[Cause]:
    spec = claim.get("spec") or {}
    causes: list[Cause] = []
    if not spec.get("accessModes"):
        causes.append(required("spec.accessModes", "at least 1 access mode is required"))
    if not ((spec.get("resources") or {}).get("requests") or {}).get("storage"):
        causes.append(required("spec.resources[storage]"))
    strange = [mode for mode in spec.get("accessModes") or () if mode not in _MODES]
    causes += [unsupported("spec.accessModes", mode, _MODES) for mode in strange]
    return causes + (_check_claim_update(claim, old) if old is not None else [])


def _check_claim_update(claim: Object, old: Object) -> list[Cause]:
    """A claim's wishes are fixed; what it got may be written once, and a bound one may grow."""
    after, before = dict(claim.get("spec") or {}), dict(old.get("spec") or {})
    free = [name for name in ("volumeName", "storageClassName") if not before.get(name)]
    if (old.get("status") or {}).get("phase") == "Bound":
        free += ["resources", "volumeAttributesClassName"]
    for name in free:
        after.pop(name, None)
        before.pop(name, None)
    if after == before:
        return []
    why = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
    causes = [forbidden("spec", why)]
    if after.get("volumeMode") != before.get("volumeMode"):
        causes.append(bad_value("volumeMode", after.get("volumeMode"), "field is immutable"))
    return causes


def check_volume(volume: Object, _old: Object | None) -> list[Cause]:
    spec = volume.get("spec") or {}
    causes = [] if spec.get("accessModes") else [required("spec.accessModes")]
    if not (spec.get("capacity") or {}).get("storage"):
        causes.append(required("spec.capacity"))
    return causes


def check_storage_class(storage_class: Object, old: Object | None) -> list[Cause]:
    causes = [] if storage_class.get("provisioner") else [required("provisioner")]
    fixed = ("provisioner", "parameters", "reclaimPolicy", "volumeBindingMode") if old is not None else ()
    changed = [name for name in fixed if (old or {}).get(name) != storage_class.get(name)]
    return causes + [forbidden(name, "updates to this field are forbidden") for name in changed]
