"""The cluster as the author of an object may see it.

virt-api itself may read claims and images everywhere. What it tells a user about another namespace is what that user
could read there, or could copy from there, which shows even more.
"""

from __future__ import annotations

from typing import Any, TypeVar

from virt_api.admission.causes import Denied
from virt_api.admission.cluster import Cluster
from virt_core.apis.auth import ResourceAttributes, UserInfo
from virt_core.apis.registry import resource_of

T = TypeVar("T")

#: kind → its group and plural
_DOCUMENTS = {
    "DataVolume": ("cdi.kubevirt.io", "datavolumes"),
    "DataSource": ("cdi.kubevirt.io", "datasources"),
    "VolumeSnapshot": ("snapshot.storage.k8s.io", "volumesnapshots"),
}


class AsUser:
    """`home` is the object's own namespace. `ours`: accounts of our own, which act for others; what those may see
    elsewhere, nobody knows."""

    def __init__(self, cluster: Cluster, user: UserInfo, home: str, ours: frozenset[str] = frozenset()) -> None:
        self._cluster, self._user, self._home, self._ours = cluster, user, home, ours

    def get(self, cls: type[T], name: str, namespace: str = "") -> T | None:
        """Raises Denied."""
        resource = resource_of(cls)
        if resource.namespaced:
            self._require(resource.group, resource.plural, name, namespace)
        return self._cluster.get(cls, name, namespace)

    def document(self, kind: str, name: str, namespace: str) -> dict[str, Any] | None:
        """Raises Denied."""
        group, plural = _DOCUMENTS[kind]
        self._require(group, plural, name, namespace)
        return self._cluster.document(kind, name, namespace)

    def _require(self, group: str, plural: str, name: str, namespace: str) -> None:
        if namespace == self._home or self._may(group, plural, name, namespace):
            return
        raise Denied(
            f"{plural} {name!r} of namespace {namespace!r} cannot be read by {self._user.username!r}", 403, "Forbidden"
        )

    def _may(self, group: str, plural: str, name: str, namespace: str) -> bool:
        if self._user.username in self._ours:
            return False
        read = ResourceAttributes(namespace=namespace, verb="get", group=group, resource=plural, name=name)
        copy = ResourceAttributes(
            namespace=namespace, verb="create", group="cdi.kubevirt.io", resource="datavolumes", subresource="source"
        )
        return self._cluster.allowed(self._user, read) or self._cluster.allowed(self._user, copy)
