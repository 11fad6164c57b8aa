"""Objects between JSON and the messages of automation/v1, and the paths under which the API server has them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import msgspec

from virt_api.automation.failures import Failure, invalid
from virt_core.apis import names
from virt_core.apis.base import Struct, decode
from virt_core.apis.meta import Condition, ObjectMeta
from virt_core.apis.vmistatus import Handoff, VirtualMachineInstanceNetworkInterface
from virt_core.rpc.status import internal
from virt_protos.automation.v1 import automation_pb2 as pb

DEFAULT_NAMESPACE = "default"
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Resource:
    """One of the two kinds."""

    enum: pb.Kind.ValueType
    kind: str
    plural: str

    def path(self, namespace: str = "", name: str = "") -> str:
        path = f"/apis/{names.GROUP}/{names.VERSION}"
        path += f"/namespaces/{namespace}/{self.plural}" if namespace else f"/{self.plural}"
        return f"{path}/{name}" if name else path

    def sub_path(self, namespace: str, name: str, subresource: str) -> str:
        group = f"/apis/{names.SUBRESOURCE_GROUP}/{names.VERSION}"
        return f"{group}/namespaces/{namespace}/{self.plural}/{name}/{subresource}"


VM = Resource(pb.KIND_VIRTUAL_MACHINE, "VirtualMachine", "virtualmachines")
VMI = Resource(pb.KIND_VIRTUAL_MACHINE_INSTANCE, "VirtualMachineInstance", "virtualmachineinstances")
_RESOURCES = {each.enum: each for each in (VM, VMI)}


@dataclass(frozen=True, slots=True)
class Target:
    """An object by name, checked: its parts go into a path."""

    resource: Resource
    namespace: str
    name: str

    @property
    def path(self) -> str:
        return self.resource.path(self.namespace, self.name)

    def __str__(self) -> str:
        return f"{self.resource.kind} {self.namespace}/{self.name}"


def resource_of(kind: int) -> Resource:
    try:
        return _RESOURCES[kind]  # type: ignore[index]
    except KeyError:
        raise invalid("kind: give KIND_VIRTUAL_MACHINE or KIND_VIRTUAL_MACHINE_INSTANCE") from None


def target_of(ref: pb.Ref) -> Target:
    resource = resource_of(ref.kind)
    if not _NAME.fullmatch(ref.name):
        raise invalid(f"ref.name {ref.name!r} is not a valid object name")
    return Target(resource, namespace_of(ref.namespace or DEFAULT_NAMESPACE), ref.name)


def namespace_of(text: str) -> str:
    """Empty stays empty: all namespaces."""
    if text and not _NAMESPACE.fullmatch(text):
        raise invalid(f"namespace {text!r} is not a valid namespace name")
    return text


class Status(Struct):
    """What both kinds have in their status, as far as we look at it."""

    phase: str = ""
    printable_status: str = ""
    reason: str = ""
    node_name: str = ""
    conditions: list[Condition] = []
    interfaces: list[VirtualMachineInstanceNetworkInterface] = []
    handoffs: list[Handoff] = []


class View(Struct):
    """An object, as far as we look at it."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    status: Status = msgspec.field(default_factory=Status)

    @property
    def phase(self) -> str:
        return self.status.phase or self.status.printable_status

    def has(self, condition: str) -> bool:
        return any(each.type == condition and each.status == names.TRUE for each in self.status.conditions)


def view(body: bytes | msgspec.Raw) -> View:
    try:
        return decode(body, View)
    except msgspec.MsgspecError as error:
        raise internal(f"the API server's answer cannot be read: {error}") from error


def to_object(resource: Resource, body: bytes | msgspec.Raw) -> pb.Object:
    seen = view(body)
    meta = seen.metadata
    return pb.Object(
        kind=resource.enum,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        phase=seen.phase,
        ready=seen.has(names.CONDITION_READY),
        paused=seen.has(names.CONDITION_PAUSED),
        node_name=seen.status.node_name,
        ip_addresses=next((each.ip_addresses for each in seen.status.interfaces if each.ip_addresses), []),
        labels=meta.labels,
        creation_time=meta.creation_timestamp or "",
        deleting=bool(meta.deletion_timestamp),
        json=bytes(body),
    )


def manifest(resource: Resource, body: bytes, namespace: str) -> tuple[str, bytes]:
    """The namespace and the body of a new object, with what may be left out filled in."""
    document = _document(resource, body)
    metadata = document.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise invalid("json: metadata is not an object")
    own = metadata.get("namespace") or ""
    if namespace and own and own != namespace:
        raise invalid(f"json: metadata.namespace is {own!r}, but the request says {namespace!r}")
    chosen = namespace_of(namespace or str(own) or DEFAULT_NAMESPACE)
    metadata["namespace"] = chosen
    return chosen, msgspec.json.encode(document)


def replacement(target: Target, body: bytes) -> bytes:
    """The body of a full update. The API server compares its names with the path."""
    return msgspec.json.encode(_document(target.resource, body))


def _document(resource: Resource, body: bytes) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(body)
    except msgspec.MsgspecError as error:
        raise invalid(f"json: this is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise invalid("json: this is not an object")
    document.setdefault("apiVersion", f"{names.GROUP}/{names.VERSION}")
    if document.setdefault("kind", resource.kind) != resource.kind:
        raise _wrong_kind(resource, document["kind"])
    return document


def _wrong_kind(resource: Resource, kind: Any) -> Failure:
    return invalid(f"json: kind is {kind!r}, but the request says {resource.kind}")
