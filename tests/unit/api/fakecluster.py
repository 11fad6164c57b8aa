"""A cluster in memory for the admission tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from virt_core.apis.auth import ResourceAttributes, UserInfo
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.preset import VirtualMachineInstancePreset

T = TypeVar("T")


class FakeCluster:
    """Holds structs, finds them as the API server would, and remembers patches."""

    def __init__(self, *objects: Any, documents: dict[tuple[str, str], dict[str, Any]] | None = None) -> None:
        self.objects = list(objects)
        self.documents = documents or {}
        #: user, verb, resource, namespace
        self.rights: set[tuple[str, str, str, str]] = set()
        self.asked: list[tuple[str, ResourceAttributes]] = []
        self.patches: list[tuple[str, list[dict[str, Any]]]] = []

    def get(self, cls: type[T], name: str, namespace: str = "") -> T | None:
        found = (o for o in self.list(cls, namespace) if o.metadata.name == name)  # type: ignore[attr-defined]
        return next(found, None)

    def list(self, cls: type[T], namespace: str = "", label_selector: str = "") -> list[T]:
        key, _, value = label_selector.partition("=")
        return [
            obj
            for obj in self.objects
            if type(obj) is cls
            and (not namespace or obj.metadata.namespace == namespace)
            and (not key or obj.metadata.labels.get(key) == value)
        ]

    def presets(self, namespace: str) -> Sequence[VirtualMachineInstancePreset]:
        return self.list(VirtualMachineInstancePreset, namespace)

    def document(self, kind: str, name: str, namespace: str) -> dict[str, Any] | None:
        return self.documents.get((kind, name))

    def allowed(self, user: UserInfo, wanted: ResourceAttributes) -> bool:
        self.asked.append((user.username, wanted))
        return (user.username, wanted.verb, wanted.resource, wanted.namespace) in self.rights

    def patch(self, cls: type[T], name: str, namespace: str, operations: Sequence[dict[str, Any]]) -> None:
        self.patches.append((name, [*operations]))


def meta(name: str, namespace: str = "default", **rest: Any) -> ObjectMeta:
    return ObjectMeta(name=name, namespace=namespace, **rest)
