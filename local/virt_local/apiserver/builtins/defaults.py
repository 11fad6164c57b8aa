"""Default values of built-in kinds that clients rely on. Pods have their own file."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from virt_local.apiserver.builtins.pod_defaults import default_pod
from virt_local.apiserver.builtins.volume_rules import is_known_source

Object = dict[str, Any]

AFFINITY_S = 10800


def default_service(service: Object) -> None:
    spec = service.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec["type"] in ("NodePort", "LoadBalancer"):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    if spec["sessionAffinity"] == "ClientIP":
        client = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
        client.setdefault("timeoutSeconds", AFFINITY_S)
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
    service.setdefault("status", {"loadBalancer": {}})


def default_secret(secret: Object) -> None:
    """stringData is write-only: it is encoded into data and never stored."""
    secret.setdefault("type", "Opaque")
    plain = secret.pop("stringData", None)
    if plain:
        data = secret.get("data") or {}
        secret["data"] = data | {key: base64.b64encode(str(value).encode()).decode() for key, value in plain.items()}


def default_namespace(namespace: Object) -> None:
    """Every namespace carries its own name as a label, so that selectors can name it."""
    spec = namespace.setdefault("spec", {})
    metadata = namespace["metadata"]
    if metadata.get("name"):
        labels = metadata.get("labels") or {}
        metadata["labels"] = labels | {"kubernetes.io/metadata.name": metadata["name"]}
    if not metadata.get("deletionTimestamp"):
        spec.setdefault("finalizers", ["kubernetes"])
    namespace.setdefault("status", {}).setdefault("phase", "Active")


def default_claim(claim: Object) -> None:
    spec = claim.setdefault("spec", {})
    spec.setdefault("volumeMode", "Filesystem")
    _default_source(spec)
    claim.setdefault("status", {}).setdefault("phase", "Pending")


def _default_source(spec: Object) -> None:
    """A source has an older and a newer field: each fills the other, where both can say it."""
    older, newer = spec.get("dataSource"), spec.get("dataSourceRef")
    if older and not newer:
        spec["dataSourceRef"] = dict(older)
    elif newer and not older and not newer.get("namespace") and is_known_source(newer):
        spec["dataSource"] = {name: newer[name] for name in ("apiGroup", "kind", "name") if name in newer}


def default_volume(volume: Object) -> None:
    spec = volume.setdefault("spec", {})
    spec.setdefault("volumeMode", "Filesystem")
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    if isinstance(spec.get("hostPath"), dict):
        spec["hostPath"].setdefault("type", "")
    volume.setdefault("status", {}).setdefault("phase", "Pending")


def default_storage_class(storage_class: Object) -> None:
    storage_class.setdefault("reclaimPolicy", "Delete")
    storage_class.setdefault("volumeBindingMode", "Immediate")


def default_endpoint_slice(slice_: Object) -> None:
    for port in slice_.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("name", "")
    for endpoint in slice_.get("endpoints") or ():
        endpoint.setdefault("conditions", {})


def default_binding(binding: Object) -> None:
    binding.setdefault("roleRef", {}).setdefault("apiGroup", "rbac.authorization.k8s.io")
    for subject in binding.get("subjects") or ():
        if subject.get("kind") in ("User", "Group"):
            subject.setdefault("apiGroup", "rbac.authorization.k8s.io")


def default_webhooks(configuration: Object) -> None:
    for webhook in configuration.get("webhooks") or ():
        webhook.setdefault("failurePolicy", "Fail")
        webhook.setdefault("matchPolicy", "Equivalent")
        webhook.setdefault("namespaceSelector", {})
        webhook.setdefault("objectSelector", {})
        webhook.setdefault("timeoutSeconds", 10)
        _default_service_reference(webhook.get("clientConfig") or {})
        for rule in webhook.get("rules") or ():
            rule.setdefault("scope", "*")


def default_mutating_webhooks(configuration: Object) -> None:
    default_webhooks(configuration)
    for webhook in configuration.get("webhooks") or ():
        webhook.setdefault("reinvocationPolicy", "Never")


def default_api_service(service: Object) -> None:
    _default_service_reference(service.get("spec") or {})


def _default_service_reference(holder: Object) -> None:
    if holder.get("service"):
        holder["service"].setdefault("port", 443)


def default_priority_class(priority: Object) -> None:
    priority.setdefault("preemptionPolicy", "PreemptLowerPriority")


def default_event(event: Object) -> None:
    """An Event has many fields that are written also when they say nothing."""
    event.setdefault("type", "Normal")
    event.setdefault("source", {})
    for name in ("firstTimestamp", "lastTimestamp", "eventTime"):
        event.setdefault(name, None)
    for name in ("reportingComponent", "reportingInstance"):
        event.setdefault(name, "")


def default_lease(lease: Object) -> None:
    lease.setdefault("spec", {})


def default_budget(budget: Object) -> None:
    status = budget.setdefault("status", {})
    for name in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"):
        status.setdefault(name, 0)


_NODE_INFO = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)


def default_node(node: Object) -> None:
    """What a node can give is what it has, unless it keeps something for itself."""
    node.setdefault("spec", {})
    status = node.setdefault("status", {})
    status.setdefault("daemonEndpoints", {}).setdefault("kubeletEndpoint", {"Port": 0})
    info = status.setdefault("nodeInfo", {})
    for name in _NODE_INFO:
        info.setdefault(name, "")
    if status.get("capacity"):
        status["allocatable"] = {**status["capacity"], **(status.get("allocatable") or {})}


def default_network_policy(policy: Object) -> None:
    spec = policy.setdefault("spec", {})
    spec.setdefault("podSelector", {})
    spec.setdefault("policyTypes", ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"])
    for rule in [*(spec.get("ingress") or ()), *(spec.get("egress") or ())]:
        for port in rule.get("ports") or ():
            port.setdefault("protocol", "TCP")


def default_quota(quota: Object) -> None:
    quota.setdefault("spec", {})
    quota.setdefault("status", {})


def default_crd(crd: Object) -> None:
    spec = crd.setdefault("spec", {})
    names = spec.setdefault("names", {})
    if names.get("kind"):
        names.setdefault("singular", names["kind"].lower())
        names.setdefault("listKind", names["kind"] + "List")
    spec.setdefault("conversion", {"strategy": "None"})


DEFAULTS: dict[str, Callable[[Object], None]] = {
    "pods": default_pod,
    "services": default_service,
    "secrets": default_secret,
    "namespaces": default_namespace,
    "persistentvolumeclaims": default_claim,
    "persistentvolumes": default_volume,
    "storageclasses": default_storage_class,
    "endpointslices": default_endpoint_slice,
    "rolebindings": default_binding,
    "clusterrolebindings": default_binding,
    "mutatingwebhookconfigurations": default_mutating_webhooks,
    "validatingwebhookconfigurations": default_webhooks,
    "apiservices": default_api_service,
    "priorityclasses": default_priority_class,
    "events": default_event,
    "leases": default_lease,
    "nodes": default_node,
    "poddisruptionbudgets": default_budget,
    "networkpolicies": default_network_policy,
    "resourcequotas": default_quota,
    "customresourcedefinitions": default_crd,
}
