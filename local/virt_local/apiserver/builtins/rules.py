"""What makes a built-in object invalid: only what would break its readers later, not a full validator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from virt_core.apis import names
from virt_local.apiserver.builtins.pod_rules import check_pod
from virt_local.apiserver.builtins.rbac_rules import check_binding, check_role
from virt_local.apiserver.builtins.service_rules import check_endpoint_slice, check_service
from virt_local.apiserver.builtins.volume_rules import check_claim, check_storage_class, check_volume
from virt_local.apiserver.builtins.webhook_rules import check_webhooks
from virt_local.apiserver.errors import Cause
from virt_local.apiserver.meta import is_dns_label, is_path_segment, is_subdomain
from virt_local.apiserver.schema.validate import bad_value, forbidden, required

Object = dict[str, Any]
Rule = Callable[[Object, Object | None], list[Cause]]

_DATA_LIMIT = 1 << 20
HIGHEST_PRIORITY = 1_000_000_000
SYSTEM_PRIORITIES = ("system-cluster-critical", "system-node-critical")


def check_data(obj: Object, old: Object | None) -> list[Cause]:
    """ConfigMaps and Secrets: keys that can be file names, a bounded size, immutable when they say so."""
    causes: list[Cause] = []
    size = 0
    both = set(obj.get("data") or ()) & set(obj.get("binaryData") or ())
    causes += [bad_value(f"data[{key}]", key, "duplicate of key present in binaryData") for key in sorted(both)]
    encoded = obj.get("kind") == "Secret"
    for name in ("data", "binaryData"):
        for key, value in (obj.get(name) or {}).items():
            size += len(value or "") * 3 // 4 if encoded or name == "binaryData" else len((value or "").encode())
            if not key or len(key) > 253 or key in (".", "..") or not all(c.isalnum() or c in "-_." for c in key):
                causes.append(bad_value(f"{name}[{key}]", key, "a key consists of alphanumerics, '-', '_' or '.'"))
    if size > _DATA_LIMIT:
        where, text = "data" if encoded else "[]", f"Too long: may not be more than {_DATA_LIMIT} bytes"
        causes.append(Cause(where, text, "FieldValueTooLong"))
    if old is not None and old.get("immutable"):
        changed = [name for name in ("data", "binaryData", "immutable") if obj.get(name) != old.get(name)]
        causes += [forbidden(name, "field is immutable when `immutable` is set") for name in changed]
    return causes


_TLS = (names.TLS_CERT_FILE, names.TLS_KEY_FILE)


def check_secret(obj: Object, old: Object | None) -> list[Cause]:
    causes = check_data(obj, old)
    if obj.get("type") == "kubernetes.io/tls":
        causes += [required(f"data[{key}]") for key in _TLS if key not in (obj.get("data") or {})]
    if old is not None and old.get("type") != obj.get("type"):
        causes.append(bad_value("type", obj.get("type"), "field is immutable"))
    return causes


def check_lease(lease: Object, _old: Object | None) -> list[Cause]:
    seconds = (lease.get("spec") or {}).get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        return [bad_value("spec.leaseDurationSeconds", seconds, "must be greater than 0")]
    return []


def check_priority_class(priority: Object, old: Object | None) -> list[Cause]:
    """The highest priorities and the names that go with them are the system's own."""
    name, value = priority["metadata"].get("name") or "", priority.get("value", 0)
    if name in SYSTEM_PRIORITIES or old is not None:
        return []
    if name.startswith("system-"):
        return [
            forbidden("metadata.name", "priority class names with 'system-' prefix are reserved for system use only")
        ]
    if value > HIGHEST_PRIORITY:
        why = f"maximum allowed value of a user defined priority is {HIGHEST_PRIORITY}"
        return [forbidden("value", why)]
    return []


def check_namespace(namespace: Object, _old: Object | None) -> list[Cause]:
    phase = (namespace.get("status") or {}).get("phase")
    if phase != "Active" and not namespace["metadata"].get("deletionTimestamp"):
        return [bad_value("status.Phase", phase, "may only be 'Active' if `deletionTimestamp` is empty")]
    return []


def check_budget(budget: Object, _old: Object | None) -> list[Cause]:
    spec = budget.get("spec") or {}
    for name in ("minAvailable", "maxUnavailable"):
        if isinstance(spec.get(name), int) and spec[name] < 0:
            return [bad_value(f"spec.{name}", spec[name], "must be greater than or equal to 0")]
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        return [bad_value("spec", spec, "minAvailable and maxUnavailable cannot be both set")]
    return []


def check_api_service(service: Object, _old: Object | None) -> list[Cause]:
    spec = service.get("spec") or {}
    expected = f"{spec.get('version', '')}.{spec.get('group', '')}"
    if service["metadata"].get("name") != expected:
        return [bad_value("metadata.name", service["metadata"].get("name"), f"must be {expected!r}: <version>.<group>")]
    causes: list[Cause] = []
    for name, highest in (("groupPriorityMinimum", 20000), ("versionPriority", 1000)):
        value = spec.get(name)
        if not isinstance(value, int) or not 0 < value <= highest:
            causes.append(bad_value(f"spec.{name}", value, f"must be positive and at most {highest}"))
    target = spec.get("service")
    if target is not None:
        causes += [required(f"spec.service.{name}") for name in ("namespace", "name") if not target.get(name)]
    if spec.get("insecureSkipTLSVerify") and spec.get("caBundle"):
        causes.append(bad_value("spec.insecureSkipTLSVerify", True, "may not be true if caBundle is present"))
    return causes


def check_event(event: Object, old: Object | None) -> list[Cause]:
    if event.get("eventTime") is None and event.get("reportingComponent") and old is None:
        return [required("eventTime")]
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
    "endpointslices": check_endpoint_slice,
    "persistentvolumeclaims": check_claim,
    "persistentvolumes": check_volume,
    "storageclasses": check_storage_class,
    "rolebindings": check_binding,
    "clusterrolebindings": check_binding,
    "roles": check_role,
    "clusterroles": check_role,
    "poddisruptionbudgets": check_budget,
    "leases": check_lease,
    "priorityclasses": check_priority_class,
    "namespaces": check_namespace,
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
