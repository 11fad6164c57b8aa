"""Who writes what: the fields that a create or an update may set, and those that stay as they were."""

from __future__ import annotations

import copy
from typing import Any

from virt_local.apiserver.builtins.pod_defaults import new_pod_status, qos_class
from virt_local.apiserver.kinds import Kind
from virt_local.apiserver.meta import finalizers, is_terminating, now_text

Object = dict[str, Any]

PVC_PROTECTION, PV_PROTECTION = "kubernetes.io/pvc-protection", "kubernetes.io/pv-protection"
_SERVER_METADATA = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
)


def prepare_create(kind: Kind, obj: Object) -> None:
    """A new object starts without a status where the status is a subresource. Nodes report theirs at once."""
    if kind.custom:
        if kind.has_status:
            obj.pop("status", None)
        return
    if kind.plural == "pods":
        obj["status"] = new_pod_status(obj)
    elif kind.plural == "namespaces":
        obj["status"] = {"phase": "Active"}
    elif kind.plural == "persistentvolumeclaims":
        obj["status"] = {"phase": "Pending"}
        _protect(obj, PVC_PROTECTION)
    elif kind.plural == "persistentvolumes":
        obj["status"] = {"phase": "Pending", "lastPhaseTransitionTime": now_text()}
        _protect(obj, PV_PROTECTION)
    elif kind.plural == "poddisruptionbudgets":
        obj["status"] = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}
    elif kind.plural in ("apiservices", "resourcequotas"):
        obj["status"] = {}
    elif kind.plural == "services":
        obj["status"] = {"loadBalancer": {}}


def _protect(obj: Object, finalizer: str) -> None:
    """A volume in use does not go away under whoever uses it."""
    held = obj["metadata"].get("finalizers") or []
    if finalizer not in held:
        obj["metadata"]["finalizers"] = [*held, finalizer]


def keep_unowned(kind: Kind, new: Object, old: Object, subresource: str) -> None:
    """Puts back what this kind of update may not change. Changes `new` in place."""
    _keep_metadata(new, old)
    if subresource == "status":
        _keep_all_but_status(kind, new, old)
    elif subresource == "resize":
        _keep_all_but_resources(new, old)
    elif subresource == "finalize":
        wanted = (new.get("spec") or {}).get("finalizers") or []
        _copy(new, old, "status")
        new["spec"] = {**(old.get("spec") or {}), "finalizers": wanted}
    elif kind.has_status:
        _copy(new, old, "status")
        if kind.plural == "namespaces":
            _copy(new, old, "spec")


def _keep_metadata(new: Object, old: Object) -> None:
    for name in _SERVER_METADATA:
        _copy(new["metadata"], old["metadata"], name)


def _keep_all_but_status(kind: Kind, new: Object, old: Object) -> None:
    for name in new.keys() | old.keys():
        if name not in ("status", "metadata"):
            _copy(new, old, name)
    if kind.custom:
        kept = dict(old["metadata"])
        kept["resourceVersion"] = new["metadata"].get("resourceVersion", kept.get("resourceVersion"))
        _copy(kept, new["metadata"], "managedFields")
        new["metadata"] = kept
    else:
        for name in ("ownerReferences", "finalizers"):
            _copy(new["metadata"], old["metadata"], name)
    if kind.plural == "pods" and not kind.custom:
        new.setdefault("status", {}).setdefault("qosClass", qos_class(old["spec"]))


def _keep_all_but_resources(pod: Object, old: Object) -> None:
    """Of the containers that are there; who leaves one out, or adds one, changes nothing by that."""
    asked = {container.get("name"): container.get("resources") for container in _containers(pod)}
    kept = dict(old["metadata"])
    kept["resourceVersion"] = pod["metadata"].get("resourceVersion", kept.get("resourceVersion"))
    _copy(kept, pod["metadata"], "managedFields")
    pod.clear()
    pod.update(copy.deepcopy(old) | {"metadata": kept})
    for container in _containers(pod):
        if asked.get(container["name"]) is not None:
            container["resources"] = asked[container["name"]]


def _containers(pod: Object) -> list[Object]:
    return list((pod.get("spec") or {}).get("containers") or ())


def _copy(target: Object, source: Object, name: str) -> None:
    if name in source:
        target[name] = source[name]
    else:
        target.pop(name, None)


def is_removable(kind: Kind, obj: Object) -> bool:
    """Marked as deleted, out of its grace period, and nobody holds it any more."""
    if not is_terminating(obj) or finalizers(obj):
        return False
    if kind.storage == "namespaces" and (obj.get("spec") or {}).get("finalizers"):
        return False
    return not obj["metadata"].get("deletionGracePeriodSeconds")
