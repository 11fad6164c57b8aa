"""What makes a Pod invalid, and which of its fields may change after it was made."""

from __future__ import annotations

from typing import Any

from virt_local.apiserver.errors import Cause
from virt_local.apiserver.meta import is_dns_label, is_label_value, is_qualified_name
from virt_local.apiserver.schema.validate import bad_value, forbidden, required, unsupported

Object = dict[str, Any]

_IMMUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`, `spec.initContainers[*].image`, "
    "`spec.activeDeadlineSeconds`, `spec.tolerations` (only additions), `spec.terminationGracePeriodSeconds` "
    "(allow it to be set to 1 if it was previously negative), `spec.schedulingGates` (only removals)"
)
_DNS = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]
_OPERATORS = ["Equal", "Exists"]
_RESTART = ["Always", "OnFailure", "Never"]


def check_pod(pod: Object, old: Object | None) -> list[Cause]:
    if old is not None:
        return _check_update(pod, old)
    spec = pod.get("spec") or {}
    causes: list[Cause] = []
    if not spec.get("containers"):
        causes.append(required("spec.containers"))
    if spec.get("restartPolicy") not in _RESTART:
        causes.append(unsupported("spec.restartPolicy", spec.get("restartPolicy"), _RESTART))
    causes += _check_choices(spec)
    volumes = _check_volumes(spec.get("volumes") or [], causes)
    names: set[str] = set()
    for key in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(key) or ()):
            _check_container(container, f"spec.{key}[{index}]", names, volumes, causes)
    return causes


def _check_choices(spec: Object) -> list[Cause]:
    causes: list[Cause] = []
    if spec.get("dnsPolicy") not in _DNS:
        causes.append(unsupported("spec.dnsPolicy", spec.get("dnsPolicy"), _DNS))
    for key, value in (spec.get("nodeSelector") or {}).items():
        if not is_qualified_name(key):
            causes.append(bad_value("spec.nodeSelector", key, "is not a valid label key"))
        if not is_label_value(value or ""):
            causes.append(bad_value("spec.nodeSelector", value, "is not a valid label value"))
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        if toleration.get("operator", "Equal") not in _OPERATORS:
            where = f"spec.tolerations[{index}].operator"
            causes.append(unsupported(where, toleration["operator"], _OPERATORS))
    return causes


def _check_volumes(volumes: list[Object], causes: list[Cause]) -> set[str]:
    names: set[str] = set()
    for index, volume in enumerate(volumes):
        path, name = f"spec.volumes[{index}]", volume.get("name") or ""
        if not name:
            causes.append(required(f"{path}.name"))
        elif not is_dns_label(name):
            causes.append(bad_value(f"{path}.name", name, "must be a lowercase RFC 1123 label"))
        elif name in names:
            causes.append(Cause(f"{path}.name", f'Duplicate value: "{name}"', "FieldValueDuplicate"))
        names.add(name)
        sources = [key for key, value in volume.items() if key != "name" and value is not None]
        if not sources:
            causes.append(required(path, "must specify a volume type"))
        elif len(sources) > 1:
            causes.append(forbidden(f"{path}.{sources[1]}", "may not specify more than 1 volume type"))
    return names


def _check_container(container: Object, path: str, names: set[str], volumes: set[str], causes: list[Cause]) -> None:
    name = container.get("name") or ""
    if not name:
        causes.append(required(f"{path}.name"))
    elif not is_dns_label(name):
        causes.append(bad_value(f"{path}.name", name, "must be a lowercase RFC 1123 label"))
    elif name in names:
        causes.append(Cause(f"{path}.name", f'Duplicate value: "{name}"', "FieldValueDuplicate"))
    names.add(name)
    if not container.get("image"):
        causes.append(required(f"{path}.image"))
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        if not mount.get("mountPath"):
            causes.append(required(f"{path}.volumeMounts[{index}].mountPath"))
        if mount.get("name") not in volumes:
            where = f"{path}.volumeMounts[{index}].name"
            causes.append(Cause(where, f'Not found: "{mount.get("name", "")}"', "FieldValueNotFound"))


def _check_update(pod: Object, old: Object) -> list[Cause]:
    new_spec, old_spec = _frozen(pod, old), _frozen(old, old)
    if len(new_spec["containers"]) != len(old_spec["containers"]):
        return [forbidden("spec.containers", "pod updates may not add or remove containers")]
    known = {gate.get("name") for gate in (old.get("spec") or {}).get("schedulingGates") or ()}
    for index, gate in enumerate((pod.get("spec") or {}).get("schedulingGates") or ()):
        if gate.get("name") not in known:
            return [
                forbidden(
                    f"spec.schedulingGates[{index}].name", "only deletion is allowed, but found new scheduling gate"
                )
            ]
    if new_spec == old_spec:
        return _check_tolerations(pod, old)
    changed = sorted(key for key in new_spec.keys() | old_spec.keys() if new_spec.get(key) != old_spec.get(key))
    return [forbidden("spec", f"{_IMMUTABLE}: changed are {', '.join(changed)}")]


def _frozen(pod: Object, old: Object) -> Object:
    """The part of a spec that may not change. While a Pod is held back by its gates, its node selector may."""
    free = {"activeDeadlineSeconds", "tolerations", "schedulingGates", "containers", "initContainers"}
    if (old.get("spec") or {}).get("schedulingGates"):
        free.add("nodeSelector")
    spec = pod.get("spec") or {}
    kept = {key: value for key, value in spec.items() if key not in free and value not in (None, [], {})}
    for key in ("containers", "initContainers"):
        kept[key] = [{k: v for k, v in c.items() if k != "image"} for c in spec.get(key) or ()]
    return kept


def _check_tolerations(pod: Object, old: Object) -> list[Cause]:
    before = (old.get("spec") or {}).get("tolerations") or []
    after = (pod.get("spec") or {}).get("tolerations") or []
    if all(toleration in after for toleration in before):
        return []
    return [forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")]
