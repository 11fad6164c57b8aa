"""What a Pod that runs may have more or less of."""

from __future__ import annotations

from typing import Any

from virt_core.apis.quantity import QuantityError, parse_quantity
from virt_local.apiserver.builtins.pod_defaults import qos_class
from virt_local.apiserver.errors import Cause
from virt_local.apiserver.schema.validate import bad_value, forbidden

Object = dict[str, Any]
_MUTABLE = ("cpu", "memory")


def check_resize(pod: Object, old: Object) -> list[Cause]:
    """`pod` is the old one with other resources."""
    causes: list[Cause] = []
    pairs = zip(pod["spec"]["containers"], old["spec"]["containers"], strict=True)
    for index, (container, before) in enumerate(pairs):
        path = f"spec.containers[{index}].resources"
        causes += _check_container(container.get("resources") or {}, before.get("resources") or {}, path)
    if not causes and qos_class(pod["spec"]) != qos_class(old["spec"]):
        text = "Pod QOS Class may not change as a result of resizing"
        causes.append(bad_value("spec", qos_class(pod["spec"]), text))
    return causes


def _check_container(new: Object, old: Object, path: str) -> list[Cause]:
    causes: list[Cause] = []
    for kind in ("limits", "requests"):
        after, before = new.get(kind) or {}, old.get(kind) or {}
        if any(after.get(name) != before.get(name) for name in {*after, *before} - {*_MUTABLE}):
            causes.append(forbidden(path, "only cpu and memory resources are mutable"))
        if gone := [name for name in _MUTABLE if name in before and name not in after]:
            causes += [forbidden(f"{path}.{kind}[{name}]", f"resource {kind} cannot be removed") for name in gone]
    return causes or _check_amounts(new, path)


def _check_amounts(new: Object, path: str) -> list[Cause]:
    requests, limits = new.get("requests") or {}, new.get("limits") or {}
    causes: list[Cause] = []
    for name in _MUTABLE:
        try:
            request, limit = parse_quantity(requests.get(name, 0)), parse_quantity(limits.get(name, 0))
        except QuantityError as error:
            causes.append(bad_value(f"{path}[{name}]", requests.get(name), str(error)))
            continue
        if request < 0 or limit < 0:
            causes.append(bad_value(f"{path}[{name}]", requests.get(name), "must be greater than or equal to 0"))
        elif name in limits and request > limit:
            text = f"must be less than or equal to {name} limit of {limits[name]}"
            causes.append(bad_value(f"{path}.requests", requests[name], text))
    return causes
