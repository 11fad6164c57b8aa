"""Instance types, preferences and the machines they shape, for tests; and a cluster in a dict."""

from __future__ import annotations

from typing import Any

from virt_core.apis.base import from_plain
from virt_core.apis.instancetype import VirtualMachineInstancetypeSpec
from virt_core.apis.preference import VirtualMachinePreferenceSpec
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstanceSpec


class Objects:
    """A cluster in a dict."""

    def __init__(self) -> None:
        self.stored: dict[tuple[str, str, str], Any] = {}
        self.documents: dict[tuple[str, str, str], dict[str, Any]] = {}

    def put(self, cls: type[Any], name: str, namespace: str = "", **fields: Any) -> Any:
        metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "generation": 3}
        metadata |= fields.pop("metadata", {})
        obj = from_plain({"metadata": metadata, **fields}, cls)
        self.stored[cls.__name__, namespace, name] = obj
        return obj

    def put_document(self, kind: str, name: str, namespace: str = "ns", **fields: Any) -> None:
        self.documents[kind, namespace, name] = fields

    def get(self, cls: type[Any], name: str, namespace: str = "") -> Any:
        return self.stored.get((cls.__name__, namespace, name))

    def document(self, kind: str, name: str, namespace: str) -> dict[str, Any] | None:
        return self.documents.get((kind, namespace, name))


def spec(**fields: Any) -> VirtualMachineInstanceSpec:
    return from_plain({"domain": {"devices": {}}, **fields}, VirtualMachineInstanceSpec)


def size(cpu: int = 2, memory: str = "1Gi", /, **fields: Any) -> VirtualMachineInstancetypeSpec:
    plain: dict[str, Any] = {"cpu": {"guest": cpu}, "memory": {"guest": memory}}
    for key, value in fields.items():
        plain[key] = plain[key] | value if key in plain else value
    return from_plain(plain, VirtualMachineInstancetypeSpec)


def habit(**fields: Any) -> VirtualMachinePreferenceSpec:
    return from_plain(fields, VirtualMachinePreferenceSpec)


def vm(template: dict[str, Any] | None = None, **fields: Any) -> VirtualMachine:
    status = fields.pop("status", {})
    inner = {"spec": {"domain": {"devices": {}}, **(template or {})}}
    plain = {
        "metadata": {"name": "vm", "namespace": "ns", "uid": "vm-uid"},
        "spec": {"template": inner, **fields},
        "status": status,
    }
    return from_plain(plain, VirtualMachine)
