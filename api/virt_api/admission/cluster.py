"""What admission asks the cluster. A port, so that the rules can be tested without one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from virt_api.admission.causes import Denied
from virt_api.admission.rules.base import is_dns_subdomain
from virt_core.apis.auth import ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec, UserInfo
from virt_core.apis.preset import VirtualMachineInstancePreset
from virt_core.kube.errors import ApiError, NotFound
from virt_core.kube.patch import JsonPatch
from virt_core.kube.typelookup import KubeLookup

T = TypeVar("T")


class Cluster(Protocol):
    """Reads, and the one write that an eviction needs. Raises Denied when the API server does not answer."""

    def get(self, cls: type[T], name: str, namespace: str = "") -> T | None: ...

    def list(self, cls: type[T], namespace: str = "", label_selector: str = "") -> list[T]: ...

    def presets(self, namespace: str) -> Sequence[VirtualMachineInstancePreset]: ...

    def document(self, kind: str, name: str, namespace: str) -> dict[str, Any] | None:
        """A DataVolume, DataSource or VolumeSnapshot as JSON; their kinds need not be installed."""

    def patch(self, cls: type[T], name: str, namespace: str, operations: Sequence[dict[str, Any]]) -> None: ...

    def allowed(self, user: UserInfo, wanted: ResourceAttributes) -> bool: ...


class Cache(Protocol):
    """What is used of an informer."""

    def has_synced(self) -> bool: ...

    def list(self) -> Any: ...


class KubeCluster:
    """The real one. Presets are asked for at every VMI, so they come from a cache."""

    def __init__(self, client: Any, presets: Cache | None = None) -> None:
        self._client, self._presets = client, presets

    def get(self, cls: type[T], name: str, namespace: str = "") -> T | None:
        """The name comes from a user: one that no object can have must not become a path."""
        if not is_dns_subdomain(name) or (namespace and not is_dns_subdomain(namespace)):
            return None
        try:
            found: T = self._client.get(cls, name, namespace)
        except NotFound:
            return None
        except ApiError as error:
            raise _unanswered(cls, error) from error
        return found

    def list(self, cls: type[T], namespace: str = "", label_selector: str = "") -> list[T]:
        try:
            return list(self._client.list(cls, namespace, label_selector=label_selector).items)
        except ApiError as error:
            raise _unanswered(cls, error) from error

    def presets(self, namespace: str) -> Sequence[VirtualMachineInstancePreset]:
        if self._presets is None or not self._presets.has_synced():
            return self.list(VirtualMachineInstancePreset, namespace)
        return [preset for preset in self._presets.list() if preset.metadata.namespace == namespace]

    def document(self, kind: str, name: str, namespace: str) -> dict[str, Any] | None:
        try:
            return KubeLookup(self._client).document(kind, name, namespace)
        except ApiError as error:
            raise Denied(f"cannot look up {kind} {name}: {error}", 500, "InternalError") from error

    def patch(self, cls: type[T], name: str, namespace: str, operations: Sequence[dict[str, Any]]) -> None:
        try:
            self._client.patch(cls, name, namespace, JsonPatch(operations))
        except ApiError as error:
            raise _unanswered(cls, error) from error

    def allowed(self, user: UserInfo, wanted: ResourceAttributes) -> bool:
        spec = SubjectAccessReviewSpec(
            resource_attributes=wanted, user=user.username, uid=user.uid, groups=user.groups, extra=user.extra
        )
        try:
            status = self._client.create(SubjectAccessReview(spec=spec)).status
        except ApiError as error:
            raise _unanswered(SubjectAccessReview, error) from error
        return bool(status.allowed and not status.denied)


def _unanswered(cls: type[Any], error: ApiError) -> Denied:
    return Denied(f"cannot look up {cls.__name__}: {error}", 500, "InternalError")


class NoCluster:
    """Where nothing is but the object itself: there is nothing to find, and nothing to write to."""

    def get(self, cls: type[T], name: str, namespace: str = "") -> T | None:  # noqa: ARG002
        return None

    def list(self, cls: type[T], namespace: str = "", label_selector: str = "") -> list[T]:  # noqa: ARG002
        return []

    def presets(self, namespace: str) -> Sequence[VirtualMachineInstancePreset]:  # noqa: ARG002
        return ()

    def document(self, kind: str, name: str, namespace: str) -> dict[str, Any] | None:  # noqa: ARG002
        return None

    def patch(self, cls: type[T], name: str, namespace: str, operations: Sequence[dict[str, Any]]) -> None:  # noqa: ARG002
        raise Denied(f"there is no {cls.__name__} {namespace}/{name}", 404, "NotFound")

    def allowed(self, user: UserInfo, wanted: ResourceAttributes) -> bool:  # noqa: ARG002
        return False
