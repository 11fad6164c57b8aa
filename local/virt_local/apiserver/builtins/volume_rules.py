"""What makes a claim, a volume or a storage class invalid."""

from __future__ import annotations

from typing import Any

from virt_core.apis.quantity import parse_bytes
from virt_local.apiserver.errors import Cause
from virt_local.apiserver.schema.validate import bad_value, forbidden, required, unsupported

Object = dict[str, Any]

_MODES = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"]


#: What the older field for a claim's source may name; the newer one takes any kind, for populators.
_SOURCES = (("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot"))


def is_known_source(reference: Object) -> bool:
    return ((reference.get("apiGroup") or ""), reference.get("kind")) in _SOURCES


def check_claim(claim: Object, old: Object | None) -> list[Cause]:
    spec = claim.get("spec") or {}
    causes: list[Cause] = []
    if not spec.get("accessModes"):
        causes.append(required("spec.accessModes", "at least 1 access mode is required"))
    if not ((spec.get("resources") or {}).get("requests") or {}).get("storage"):
        causes.append(required("spec.resources[storage]"))
    strange = [mode for mode in spec.get("accessModes") or () if mode not in _MODES]
    causes += [unsupported("spec.accessModes", mode, _MODES) for mode in strange]
    causes += _check_source(spec)
    return causes + (_check_claim_update(claim, old) if old is not None else [])


def _check_source(spec: Object) -> list[Cause]:
    causes: list[Cause] = []
    for name in ("dataSource", "dataSourceRef"):
        found = spec.get(name)
        if found and not found.get("name"):
            causes.append(required(f"spec.{name}.name"))
        if found and not found.get("apiGroup") and found.get("kind") != "PersistentVolumeClaim":
            why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
            causes.append(bad_value(f"spec.{name}", found.get("kind"), why))
    older, newer = spec.get("dataSource"), spec.get("dataSourceRef")
    if older and newer and {k: v for k, v in newer.items() if v} != {k: v for k, v in older.items() if v}:
        causes.append(bad_value("spec", "", "must match dataSourceRef"))
    return causes


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
        return _check_size(claim, old)
    why = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
    causes = [forbidden("spec", why)]
    if after.get("volumeMode") != before.get("volumeMode"):
        causes.append(bad_value("volumeMode", after.get("volumeMode"), "field is immutable"))
    return causes


def _check_size(claim: Object, old: Object) -> list[Cause]:
    """A claim grows; back to what it has, when growing failed, and no further. One that got more than it asked for may
    keep asking for less."""
    wanted, before = (
        ((each["spec"].get("resources") or {}).get("requests") or {}).get("storage") for each in (claim, old)
    )
    if wanted == before:
        return []
    has = ((old.get("status") or {}).get("capacity") or {}).get("storage")
    if wanted is None or has is None or parse_bytes(wanted) >= parse_bytes(has):
        return []
    return [forbidden("spec.resources.requests.storage", "field can not be less than status.capacity")]


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
