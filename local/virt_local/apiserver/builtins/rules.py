"""What makes a built-in object invalid: only what would break its readers later, not a full validator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from virt_local.apiserver.builtins.pod_rules import check_pod
from virt_local.apiserver.errors import Cause
from virt_local.apiserver.meta import is_dns_label, is_path_segment, is_qualified_name, is_subdomain
from virt_local.apiserver.schema.validate import bad_value, forbidden, required, unsupported

Object = dict[str, Any]
Rule = Callable[[Object, Object | None], list[Cause]]

_DATA_LIMIT = 1 << 20


def check_data(obj: Object, old: Object | None) -> list[Cause]:
    """ConfigMaps and Secrets: keys that can be file names, a bounded size, immutable when they say so."""
    causes: list[Cause] = []
    size = 0
    for name in ("data", "binaryData"):
        for key, value in (obj.get(name) or {}).items():
            size += len(value or "")
            if not key or len(key) > 253 or key in (".", "..") or not all(c.isalnum() or c in "-_." for c in key):
                causes.append(bad_value(f"{name}[{key}]", key, "a key consists of alphanumerics, '-', '_' or '.'"))
    if size > _DATA_LIMIT * 4 // 3:
        causes.append(Cause("", f"Too long: must have at most {_DATA_LIMIT} bytes", "FieldValueTooLong"))
    if old is not None and old.get("immutable"):
        changed = [name for name in ("data", "binaryData", "immutable") if obj.get(name) != old.get(name)]
        causes += [forbidden(name, "field is immutable when `immutable` is set") for name in changed]
    return causes


def check_secret(obj: Object, old: Object | None) -> list[Cause]:
    causes = check_data(obj, old)
    if old is not None and old.get("type") != obj.get("type"):
        causes.append(bad_value("type", obj.get("type"), "field is immutable"))
    return causes


def check_service(service: Object, old: Object | None) -> list[Cause]:
    spec = service.get("spec") or {}
    causes: list[Cause] = []
    if spec.get("type") not in ("ClusterIP", "NodePort", "LoadBalancer", "ExternalName"):
        allowed = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]
        causes.append(unsupported("spec.type", spec.get("type"), allowed))
    ports = spec.get("ports") or []
    if not ports and spec.get("type") != "ExternalName" and spec.get("clusterIP") != "None":
        causes.append(required("spec.ports"))
    for index, port in enumerate(ports):
        number = port.get("port")
        if not isinstance(number, int) or not 0 < number < 65536:
            causes.append(bad_value(f"spec.ports[{index}].port", number, "must be between 1 and 65535, inclusive"))
        if len(ports) > 1 and not port.get("name"):
            causes.append(required(f"spec.ports[{index}].name"))
    was = ((old or {}).get("spec") or {}).get("clusterIP")
    if was and spec.get("clusterIP") != was and spec.get("type") != "ExternalName":
        causes.append(bad_value("spec.clusterIP", spec.get("clusterIP"), "field is immutable"))
    return causes


def check_claim(claim: Object, old: Object | None) -> list[Cause]:
    spec = claim.get("spec") or {}
    causes: list[Cause] = []
    if not spec.get("accessModes"):
        causes.append(required("spec.accessModes", "at least 1 access mode is required"))
    if not ((spec.get("resources") or {}).get("requests") or {}).get("storage"):
        causes.append(required("spec.resources[storage]"))
    before = (old or {}).get("spec") or {}
    fixed = ("volumeName", "storageClassName", "volumeMode")
    changed = [name for name in fixed if before.get(name) and spec.get(name) != before[name]]
    return causes + [forbidden("spec", f"spec.{name} is immutable after creation") for name in changed]


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
        elif subject["kind"] == "ServiceAccount" and not subject.get("namespace"):
            causes.append(required(f"subjects[{index}].namespace"))
    if old is not None and old.get("roleRef") != binding.get("roleRef"):
        causes.append(bad_value("roleRef", role, "cannot change roleRef"))
    return causes


def check_role(role: Object, _old: Object | None) -> list[Cause]:
    causes: list[Cause] = []
    for index, rule in enumerate(role.get("rules") or ()):
        if not rule.get("verbs"):
            causes.append(required(f"rules[{index}].verbs", "verbs must contain at least one value"))
        if not rule.get("nonResourceURLs") and not (rule.get("apiGroups") and rule.get("resources")):
            causes.append(required(f"rules[{index}].resources", "a rule names apiGroups and resources, or URLs"))
    return causes


def check_budget(budget: Object, _old: Object | None) -> list[Cause]:
    spec = budget.get("spec") or {}
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        return [bad_value("spec", spec, "minAvailable and maxUnavailable cannot be both set")]
    return []


def check_webhooks(configuration: Object, _old: Object | None) -> list[Cause]:
    causes: list[Cause] = []
    for index, webhook in enumerate(configuration.get("webhooks") or ()):
        path = f"webhooks[{index}]"
        if not is_qualified_name(webhook.get("name", "")) or webhook["name"].count(".") < 2:
            causes.append(bad_value(f"{path}.name", webhook.get("name", ""), "should be a domain with three segments"))
        client = webhook.get("clientConfig") or {}
        if bool(client.get("url")) == bool(client.get("service")):
            causes.append(required(f"{path}.clientConfig", "exactly one of url or service is required"))
        if webhook.get("sideEffects") not in ("None", "NoneOnDryRun"):
            causes.append(unsupported(f"{path}.sideEffects", webhook.get("sideEffects"), ["None", "NoneOnDryRun"]))
        if not webhook.get("admissionReviewVersions"):
            causes.append(required(f"{path}.admissionReviewVersions"))
    return causes


def check_api_service(service: Object, _old: Object | None) -> list[Cause]:
    spec = service.get("spec") or {}
    expected = f"{spec.get('version', '')}.{spec.get('group', '')}"
    if service["metadata"].get("name") != expected:
        return [bad_value("metadata.name", service["metadata"].get("name"), f"must be {expected!r}: <version>.<group>")]
    return []


def check_event(event: Object, old: Object | None) -> list[Cause]:
    about = (event.get("involvedObject") or {}).get("namespace") or ""
    namespace = event["metadata"].get("namespace", "")
    if old is None and about not in (namespace, ""):
        return [bad_value("involvedObject.namespace", about, "does not match event.namespace")]
    return []


RULES: dict[str, Rule] = {
    "pods": check_pod,
    "configmaps": check_data,
    "secrets": check_secret,
    "services": check_service,
    "persistentvolumeclaims": check_claim,
    "persistentvolumes": check_volume,
    "storageclasses": check_storage_class,
    "rolebindings": check_binding,
    "clusterrolebindings": check_binding,
    "roles": check_role,
    "clusterroles": check_role,
    "poddisruptionbudgets": check_budget,
    "mutatingwebhookconfigurations": check_webhooks,
    "validatingwebhookconfigurations": check_webhooks,
    "apiservices": check_api_service,
    "events": check_event,
}

NameRule = Callable[[str], bool]
_RBAC = ("roles", "rolebindings", "clusterroles", "clusterrolebindings")
NAME_RULES: dict[str, NameRule] = {"namespaces": is_dns_label, "services": is_dns_label}
NAME_RULES |= dict.fromkeys(_RBAC, is_path_segment)


def name_rule(plural: str) -> NameRule:
    return NAME_RULES.get(plural, is_subdomain)
