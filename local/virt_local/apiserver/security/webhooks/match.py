"""Which webhooks a write concerns: rules, scope and the two selectors. Pure functions over plain objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from virt_local.apiserver.selectors import selects

if TYPE_CHECKING:
    from virt_local.apiserver.hooks import AdmissionRequest, Object

EXEMPT_GROUP = "admissionregistration.k8s.io"


@dataclass(frozen=True, slots=True)
class Webhook:
    """One entry of a webhook configuration."""

    configuration: str
    spec: Object
    mutating: bool

    @property
    def name(self) -> str:
        return str(self.spec["name"])

    @property
    def timeout_s(self) -> int:
        return int(self.spec.get("timeoutSeconds") or 10)

    @property
    def ignores_failure(self) -> bool:
        return bool(self.spec.get("failurePolicy") == "Ignore")

    @property
    def reinvoked(self) -> bool:
        return self.mutating and self.spec.get("reinvocationPolicy") == "IfNeeded"

    @property
    def supports_dry_run(self) -> bool:
        return self.spec.get("sideEffects") in ("None", "NoneOnDryRun")


def matching_version(webhook: Webhook, request: AdmissionRequest, namespace_labels: dict[str, str] | None) -> str:
    """The version in which to send the object, empty when the webhook does not care about this write.

    `namespace_labels` is None for objects outside namespaces.
    """
    if request.group == EXEMPT_GROUP:
        return ""
    version = _rules_version(webhook, request)
    if not version:
        return ""
    if not _namespace_selected(webhook, request, namespace_labels) or not _object_selected(webhook, request):
        return ""
    return version


def _rules_version(webhook: Webhook, request: AdmissionRequest) -> str:
    equivalent = webhook.spec.get("matchPolicy", "Equivalent") == "Equivalent"
    for rule in webhook.spec.get("rules") or ():
        if not _rule_matches(rule, request):
            continue
        versions: Sequence[str] = rule.get("apiVersions") or ()
        if "*" in versions or request.version in versions:
            return request.version
        if equivalent and versions:
            return versions[0]
    return ""


def _rule_matches(rule: Object, request: AdmissionRequest) -> bool:
    return (
        _in(request.operation, rule.get("operations") or ())
        and _in(request.group, rule.get("apiGroups") or ())
        and any(_resource_matches(pattern, request) for pattern in rule.get("resources") or ())
        and _scope_matches(rule.get("scope", "*"), request)
    )


def _in(value: str, allowed: Sequence[str]) -> bool:
    return "*" in allowed or value in allowed


def _resource_matches(pattern: str, request: AdmissionRequest) -> bool:
    resource, slash, subresource = pattern.partition("/")
    if resource not in ("*", request.resource):
        return False
    if not slash:
        return not request.subresource
    return subresource in ("*", request.subresource)


def _scope_matches(scope: str, request: AdmissionRequest) -> bool:
    """A Namespace counts as an object of the cluster, although requests for it carry its own name as namespace."""
    namespaced = bool(request.namespace) and not _is_namespace(request)
    return scope == "*" or (scope == "Namespaced") == namespaced


def _is_namespace(request: AdmissionRequest) -> bool:
    return request.group == "" and request.resource == "namespaces"


def _namespace_selected(webhook: Webhook, request: AdmissionRequest, labels: dict[str, str] | None) -> bool:
    selector = webhook.spec.get("namespaceSelector")
    if _is_namespace(request):
        labels = _labels(request.object or request.old_object)
    return labels is None or selects(selector, labels)


def _object_selected(webhook: Webhook, request: AdmissionRequest) -> bool:
    selector = webhook.spec.get("objectSelector")
    if not selector:
        return True
    return any(selects(selector, _labels(obj)) for obj in (request.object, request.old_object) if obj is not None)


def _labels(obj: Object | None) -> dict[str, str]:
    labels: dict[str, str] = ((obj or {}).get("metadata") or {}).get("labels") or {}
    return labels
