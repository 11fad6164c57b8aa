"""What makes a role or a binding invalid."""

from __future__ import annotations

from typing import Any

from virt_local.apiserver.errors import Cause
from virt_local.apiserver.schema.validate import bad_value, required, unsupported

Object = dict[str, Any]


def check_binding(binding: Object, old: Object | None) -> list[Cause]:
    role = binding.get("roleRef") or {}
    causes: list[Cause] = []
    if role.get("kind") not in ("Role", "ClusterRole"):
        causes.append(unsupported("roleRef.kind", role.get("kind", ""), ["Role", "ClusterRole"]))
    if not role.get("name"):
        causes.append(required("roleRef.name"))
    for index, subject in enumerate(binding.get("subjects") or ()):
        if not subject.get("name"):
            causes.append(required(f"subjects[{index}].name"))
        if subject.get("kind") not in ("User", "Group", "ServiceAccount"):
            kinds = ["Group", "ServiceAccount", "User"]
            causes.append(unsupported(f"subjects[{index}].kind", subject.get("kind", ""), kinds))
        elif binding.get("kind") == "ClusterRoleBinding" and _lacks_namespace(subject):
            causes.append(required(f"subjects[{index}].namespace"))
    if old is not None and old.get("roleRef") != binding.get("roleRef"):
        causes.append(bad_value("roleRef", role, "cannot change roleRef"))
    return causes


def _lacks_namespace(subject: Object) -> bool:
    return subject["kind"] == "ServiceAccount" and not subject.get("namespace")


def check_role(role: Object, _old: Object | None) -> list[Cause]:
    causes: list[Cause] = []
    for index, rule in enumerate(role.get("rules") or ()):
        if not rule.get("verbs"):
            causes.append(required(f"rules[{index}].verbs", "verbs must contain at least one value"))
        causes += _check_rule_target(rule, f"rules[{index}]", namespaced=role.get("kind") == "Role")
    return causes


def _check_rule_target(rule: Object, path: str, *, namespaced: bool) -> list[Cause]:
    urls = rule.get("nonResourceURLs")
    if urls:
        why = "namespaced rules cannot apply to non-resource URLs"
        return [bad_value(f"{path}.nonResourceURLs", urls, why)] if namespaced else []
    causes: list[Cause] = []
    if not rule.get("apiGroups"):
        causes.append(required(f"{path}.apiGroups", "resource rules must supply at least one api group"))
    if not rule.get("resources"):
        causes.append(required(f"{path}.resources", "resource rules must supply at least one resource"))
    return causes
