"""Which struct is which resource, and how objects are named and written.

The table holds dotted names, so that looking up one kind does not import all the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import msgspec

from virt_core.apis.base import to_plain
from virt_core.apis.names import GROUP

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*", re.ASCII)


class UnusableName(ValueError):
    """No object has such a name; as a part of a path it would lead elsewhere."""


def segment(name: str) -> str:
    """A name as one segment of a path. An API server looks at paths after `%2F` became `/`, so quoting is not enough
    for that. Raises UnusableName."""
    if _PLAIN.fullmatch(name):
        return name
    if not name or name in (".", "..") or "/" in name or "%" in name:
        raise UnusableName(f"no object can be called {name[:_SHOWN]!r}")
    from urllib.parse import quote  # Nearly no name needs it.

    return quote(name, safe="")


_SHOWN = 64


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind, its place in the API and the struct that holds it."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    module: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """The start of every path: /api/v1 or /apis/GROUP/VERSION."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path of a collection, an object or a subresource. Raises UnusableName."""
        parts = [self.root]
        if self.namespaced and namespace:
            parts += ["namespaces", segment(namespace)]
        parts.append(self.plural)
        if name:
            parts.append(segment(name))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)

    def load(self) -> type[Any]:
        """The struct; imports its module."""
        cls: type[Any] = getattr(import_module(f"virt_core.apis.{self.module}"), self.kind)
        return cls


def _table() -> Iterator[Resource]:
    for group, version, module, kinds in _KINDS:
        for entry in kinds.split():
            kind, plural, scope = entry.split(":")
            yield Resource(group, version, kind, plural, scope == "ns", module)


#: group, version, module, kinds as Kind:plural:scope
_KINDS: tuple[tuple[str, str, str, str], ...] = (
    ("", "v1", "pods", "Pod:pods:ns"),
    ("", "v1", "nodes", "Node:nodes:cluster Namespace:namespaces:cluster Event:events:ns"),
    ("", "v1", "config", "ConfigMap:configmaps:ns Secret:secrets:ns ServiceAccount:serviceaccounts:ns"),
    ("", "v1", "services", "Service:services:ns"),
    ("discovery.k8s.io", "v1", "services", "EndpointSlice:endpointslices:ns"),
    ("", "v1", "storage", "PersistentVolume:persistentvolumes:cluster PersistentVolumeClaim:persistentvolumeclaims:ns"),
    ("storage.k8s.io", "v1", "storage", "StorageClass:storageclasses:cluster"),
    ("snapshot.storage.k8s.io", "v1", "volumesnapshots", "VolumeSnapshot:volumesnapshots:ns"),
    ("snapshot.storage.k8s.io", "v1", "volumesnapshots", "VolumeSnapshotContent:volumesnapshotcontents:cluster"),
    ("snapshot.storage.k8s.io", "v1", "volumesnapshots", "VolumeSnapshotClass:volumesnapshotclasses:cluster"),
    ("cdi.kubevirt.io", "v1beta1", "datavolume", "DataVolume:datavolumes:ns StorageProfile:storageprofiles:cluster"),
    ("cdi.kubevirt.io", "v1beta1", "upload", "CDIConfig:cdiconfigs:cluster"),
    ("upload.cdi.kubevirt.io", "v1beta1", "upload", "UploadTokenRequest:uploadtokenrequests:ns"),
    (
        "k8s.cni.cncf.io",
        "v1",
        "podnetworks",
        "NetworkAttachmentDefinition:network-attachment-definitions:ns",
    ),
    ("coordination.k8s.io", "v1", "coordination", "Lease:leases:ns"),
    ("apps", "v1", "apps", "ControllerRevision:controllerrevisions:ns"),
    ("policy", "v1", "apps", "PodDisruptionBudget:poddisruptionbudgets:ns"),
    ("scheduling.k8s.io", "v1", "apps", "PriorityClass:priorityclasses:cluster"),
    ("rbac.authorization.k8s.io", "v1", "rbac", "Role:roles:ns RoleBinding:rolebindings:ns"),
    ("rbac.authorization.k8s.io", "v1", "rbac", "ClusterRole:clusterroles:cluster"),
    ("rbac.authorization.k8s.io", "v1", "rbac", "ClusterRoleBinding:clusterrolebindings:cluster"),
    ("authentication.k8s.io", "v1", "auth", "TokenReview:tokenreviews:cluster"),
    ("authorization.k8s.io", "v1", "auth", "SubjectAccessReview:subjectaccessreviews:cluster"),
    ("authorization.k8s.io", "v1", "auth", "SelfSubjectAccessReview:selfsubjectaccessreviews:cluster"),
    (
        "admissionregistration.k8s.io",
        "v1",
        "admission",
        "MutatingWebhookConfiguration:mutatingwebhookconfigurations:cluster",
    ),
    (
        "admissionregistration.k8s.io",
        "v1",
        "admission",
        "ValidatingWebhookConfiguration:validatingwebhookconfigurations:cluster",
    ),
    ("apiextensions.k8s.io", "v1", "apiextensions", "CustomResourceDefinition:customresourcedefinitions:cluster"),
    ("apiregistration.k8s.io", "v1", "apiextensions", "APIService:apiservices:cluster"),
    ("certificates.k8s.io", "v1", "certificates", "CertificateSigningRequest:certificatesigningrequests:cluster"),
    (GROUP, "v1", "vm", "VirtualMachine:virtualmachines:ns"),
    (GROUP, "v1", "vmi", "VirtualMachineInstance:virtualmachineinstances:ns"),
    (GROUP, "v1", "migration", "VirtualMachineInstanceMigration:virtualmachineinstancemigrations:ns"),
    (GROUP, "v1", "replicaset", "VirtualMachineInstanceReplicaSet:virtualmachineinstancereplicasets:ns"),
    (GROUP, "v1", "preset", "VirtualMachineInstancePreset:virtualmachineinstancepresets:ns"),
    (GROUP, "v1", "kubevirt", "KubeVirt:kubevirts:ns"),
    ("pool.kubevirt.io", "v1beta1", "pool", "VirtualMachinePool:virtualmachinepools:ns"),
    ("snapshot.kubevirt.io", "v1beta1", "snapshot", "VirtualMachineSnapshot:virtualmachinesnapshots:ns"),
    ("snapshot.kubevirt.io", "v1beta1", "snapshot", "VirtualMachineSnapshotContent:virtualmachinesnapshotcontents:ns"),
    ("snapshot.kubevirt.io", "v1beta1", "snapshot", "VirtualMachineRestore:virtualmachinerestores:ns"),
    ("export.kubevirt.io", "v1", "export", "VirtualMachineExport:virtualmachineexports:ns"),
    ("clone.kubevirt.io", "v1beta1", "clone", "VirtualMachineClone:virtualmachineclones:ns"),
    ("backup.kubevirt.io", "v1alpha1", "backup", "VirtualMachineBackup:virtualmachinebackups:ns"),
    ("backup.kubevirt.io", "v1alpha1", "backup", "VirtualMachineBackupTracker:virtualmachinebackuptrackers:ns"),
    (
        "instancetype.kubevirt.io",
        "v1beta1",
        "instancetype",
        "VirtualMachineInstancetype:virtualmachineinstancetypes:ns",
    ),
    (
        "instancetype.kubevirt.io",
        "v1beta1",
        "instancetype",
        "VirtualMachineClusterInstancetype:virtualmachineclusterinstancetypes:cluster",
    ),
    ("instancetype.kubevirt.io", "v1beta1", "instancetype", "VirtualMachinePreference:virtualmachinepreferences:ns"),
    (
        "instancetype.kubevirt.io",
        "v1beta1",
        "instancetype",
        "VirtualMachineClusterPreference:virtualmachineclusterpreferences:cluster",
    ),
    ("migrations.kubevirt.io", "v1alpha1", "policy", "MigrationPolicy:migrationpolicies:cluster"),
)

RESOURCES: tuple[Resource, ...] = tuple(_table())
_BY_KIND = {resource.kind: resource for resource in RESOURCES}


def resource_of(cls: type[Any]) -> Resource:
    """The resource that a struct stands for."""
    resource = _BY_KIND.get(cls.__name__)
    if resource is None:
        raise LookupError(f"{cls.__name__} is not a kind that the registry knows")
    return resource


def resource_by_kind(kind: str) -> Resource:
    """The resource of a kind, by the kind's name."""
    resource = _BY_KIND.get(kind)
    if resource is None:
        raise LookupError(f"the registry knows no kind {kind}")
    return resource


def encode_object(obj: Any) -> bytes:
    """The object as JSON; always says its apiVersion and kind, which omit_defaults would leave out."""
    if obj.kind == "ControllerRevision":
        return _as_go_writes(plain_object(obj))
    return msgspec.json.encode(plain_object(obj))


def _as_go_writes(plain: dict[str, Any]) -> bytes:
    """The bytes that the API server would write itself.

    It keeps the data of a ControllerRevision as it came and compares the bytes at each later change. A patch of its
    metadata passes through Go's encoder, so other bytes for the same data count as a change of what must not change:
    no garbage collector could take the owner off, and a VM could not be orphaned.
    """
    text = msgspec.json.encode(plain, order="sorted").decode()
    for letter, escaped in _GO_ESCAPES.items():
        text = text.replace(letter, escaped)
    return text.encode()


#: In JSON these stand in strings only.
_GO_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def plain_object(obj: Any) -> dict[str, Any]:
    """The object as a dict, with apiVersion and kind."""
    plain: dict[str, Any] = to_plain(obj)
    return {"apiVersion": obj.api_version, "kind": obj.kind, "metadata": plain.get("metadata", {}), **plain}


def key_of(obj: Any) -> str:
    """namespace/name, or name alone for what has no namespace: how caches and queues know an object."""
    return key_for(obj.metadata.namespace, obj.metadata.name)


def key_for(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def split_key(key: str) -> tuple[str, str]:
    """The namespace and name of a key."""
    namespace, _, name = key.rpartition("/")
    return namespace, name


def owner_reference(obj: Any, *, controller: bool = True) -> Any:
    """A reference that makes `obj` the owner, as metadata.ownerReferences wants it."""
    from virt_core.apis.meta import OwnerReference

    return OwnerReference(
        api_version=obj.api_version,
        kind=obj.kind,
        name=obj.metadata.name,
        uid=obj.metadata.uid,
        controller=controller,
        block_owner_deletion=controller,
    )
