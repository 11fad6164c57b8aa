"""The columns that `kubectl get` shows for built-in kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from virt_local.apiserver.builtins import cells
from virt_local.apiserver.kinds import Column

Object = dict[str, Any]
NONE = "<none>"


def at(path: str, default: Any = NONE) -> Callable[[Object], Any]:
    """Reads a dotted path."""
    parts = path.split(".")

    def read(obj: Object) -> Any:
        value: Any = obj
        for part in parts:
            value = value.get(part) if isinstance(value, dict) else None
        return default if value in (None, "", []) else value

    return read


def size_of(*names: str) -> Callable[[Object], int]:
    return lambda obj: sum(len(obj.get(name) or ()) for name in names)


def joined(path: str) -> Callable[[Object], str]:
    read = at(path, [])
    return lambda obj: ",".join(str(item) for item in read(obj)) or NONE


NAME = Column("Name", at("metadata.name", ""), format="name", description="The object's name in its namespace.")
AGE = Column("Age", at("metadata.creationTimestamp", ""), age=True, description="When the object was made.")
CREATED = Column("Created At", at("metadata.creationTimestamp", ""), type="date", plain=True)


def _number(name: str, value: Callable[[Object], Any]) -> Column:
    return Column(name, value, type="integer")


def _wide(name: str, value: Callable[[Object], Any]) -> Column:
    return Column(name, value, wide=True)


_BINDING = (
    NAME,
    Column("Role", cells.binding_role),
    AGE,
    _wide("Users", lambda obj: cells.binding_subjects(obj, "User")),
    _wide("Groups", lambda obj: cells.binding_subjects(obj, "Group")),
    _wide("ServiceAccounts", lambda obj: cells.binding_subjects(obj, "ServiceAccount")),
)

COLUMNS: dict[str, tuple[Column, ...]] = {
    "namespaces": (NAME, Column("Status", at("status.phase")), AGE),
    "nodes": (
        NAME,
        Column("Status", cells.node_status),
        Column("Roles", cells.node_roles),
        AGE,
        Column("Version", at("status.nodeInfo.kubeletVersion", "")),
        _wide("Internal-IP", lambda obj: cells.node_address(obj, "InternalIP")),
        _wide("External-IP", lambda obj: cells.node_address(obj, "ExternalIP")),
        _wide("OS-Image", at("status.nodeInfo.osImage", "<unknown>")),
        _wide("Kernel-Version", at("status.nodeInfo.kernelVersion", "<unknown>")),
        _wide("Container-Runtime", at("status.nodeInfo.containerRuntimeVersion", "<unknown>")),
    ),
    "pods": (
        NAME,
        Column("Ready", cells.pod_ready),
        Column("Status", cells.pod_status),
        Column("Restarts", cells.pod_restarts),
        AGE,
        _wide("IP", cells.pod_ip),
        _wide("Node", at("spec.nodeName")),
        _wide("Nominated Node", at("status.nominatedNodeName")),
        _wide("Readiness Gates", cells.pod_gates),
    ),
    "events": (
        Column("Last Seen", cells.event_last_seen),
        Column("Type", at("type", "")),
        Column("Reason", at("reason", "")),
        Column("Object", cells.event_object),
        _wide("Subobject", at("involvedObject.fieldPath", "")),
        _wide("Source", cells.event_source),
        Column("Message", at("message", "")),
        _wide("First Seen", cells.event_first_seen),
        _wide("Count", cells.event_count),
        Column("Name", at("metadata.name"), format="name", wide=True),
    ),
    "configmaps": (NAME, Column("Data", size_of("data", "binaryData")), AGE),
    "secrets": (NAME, Column("Type", at("type", "")), Column("Data", size_of("data")), AGE),
    "serviceaccounts": (NAME, AGE),
    "services": (
        NAME,
        Column("Type", at("spec.type", "ClusterIP")),
        Column("Cluster-IP", at("spec.clusterIP")),
        Column("External-IP", cells.service_external_ip),
        Column("Port(s)", cells.service_ports),
        AGE,
        _wide("Selector", lambda obj: cells.labels((obj.get("spec") or {}).get("selector"))),
    ),
    "endpointslices": (
        NAME,
        Column("AddressType", at("addressType", "")),
        Column("Ports", cells.slice_ports),
        Column("Endpoints", cells.slice_endpoints),
        AGE,
    ),
    "persistentvolumes": (
        NAME,
        Column("Capacity", at("spec.capacity.storage", "")),
        Column("Access Modes", cells.access_modes),
        Column("Reclaim Policy", at("spec.persistentVolumeReclaimPolicy", "")),
        Column("Status", cells.terminating_or_phase),
        Column("Claim", cells.volume_claim),
        Column("StorageClass", at("spec.storageClassName", "")),
        Column("VolumeAttributesClass", at("spec.volumeAttributesClassName", "<unset>")),
        Column("Reason", at("status.reason", "")),
        AGE,
        _wide("VolumeMode", at("spec.volumeMode", "Filesystem")),
    ),
    "persistentvolumeclaims": (
        NAME,
        Column("Status", cells.terminating_or_phase),
        Column("Volume", at("spec.volumeName", "")),
        Column("Capacity", at("status.capacity.storage", "")),
        Column("Access Modes", cells.access_modes),
        Column("StorageClass", at("spec.storageClassName", "")),
        Column("VolumeAttributesClass", at("spec.volumeAttributesClassName", "<unset>")),
        AGE,
        _wide("VolumeMode", at("spec.volumeMode", "Filesystem")),
    ),
    "storageclasses": (
        Column("Name", cells.storage_class_name, format="name"),
        Column("Provisioner", at("provisioner", "")),
        Column("ReclaimPolicy", at("reclaimPolicy", "Delete")),
        Column("VolumeBindingMode", at("volumeBindingMode", "Immediate")),
        Column("AllowVolumeExpansion", at("allowVolumeExpansion", False)),
        AGE,
    ),
    "leases": (NAME, Column("Holder", at("spec.holderIdentity", "")), AGE),
    "controllerrevisions": (
        NAME,
        Column("Controller", cells.controller),
        Column("Revision", at("revision", 0)),
        AGE,
    ),
    "poddisruptionbudgets": (
        NAME,
        Column("Min Available", at("spec.minAvailable", "N/A")),
        Column("Max Unavailable", at("spec.maxUnavailable", "N/A")),
        _number("Allowed Disruptions", at("status.disruptionsAllowed", 0)),
        AGE,
    ),
    "priorityclasses": (
        NAME,
        _number("Value", at("value", 0)),
        Column("Global-Default", at("globalDefault", False), type="boolean"),
        AGE,
        Column("PreemptionPolicy", at("preemptionPolicy", "PreemptLowerPriority")),
    ),
    "roles": (NAME, CREATED),
    "clusterroles": (NAME, CREATED),
    "rolebindings": _BINDING,
    "clusterrolebindings": _BINDING,
    "networkpolicies": (NAME, Column("Pod-Selector", cells.pod_selector), AGE),
    "limitranges": (NAME, CREATED),
    "resourcequotas": (
        NAME,
        Column("Request", lambda obj: cells.quota(obj, limits=False)),
        Column("Limit", lambda obj: cells.quota(obj, limits=True)),
        AGE,
    ),
    "customresourcedefinitions": (NAME, CREATED),
    "mutatingwebhookconfigurations": (NAME, _number("Webhooks", size_of("webhooks")), AGE),
    "validatingwebhookconfigurations": (NAME, _number("Webhooks", size_of("webhooks")), AGE),
    "apiservices": (NAME, Column("Service", cells.api_service), Column("Available", cells.api_available), AGE),
}

DEFAULT_COLUMNS = (NAME, AGE)
