"""What the server knows about one kind, whether it is built in or comes from a CRD."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from virt_local.apiserver.schema.node import Node

Object = dict[str, Any]
Convert = Callable[[Object], Object]

FULL = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
CUSTOM = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")


@dataclass(frozen=True)
class Column:
    """One column of a table. `value` reads it from an object; `wide` ones show with `-o wide` only."""

    name: str
    value: Callable[[Object], Any]
    type: str = "string"
    format: str = ""
    description: str = ""
    wide: bool = False
    plain: bool = False  # a time that is shown as it is
    age: bool = False  # the value is a time, shown as how long ago it was

    def definition(self) -> Object:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description or self.name,
            "priority": 1 if self.wide else 0,
        }


@dataclass(frozen=True)
class Scale:
    """Where a kind keeps the three values of its scale subresource."""

    spec_replicas: str
    status_replicas: str
    selector: str = ""


@dataclass(frozen=True, eq=False)
class Kind:
    """One kind in one version. `storage` names its records; versions of a kind share them."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    node: Node
    singular: str = ""
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = FULL
    subresources: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    fields: tuple[str, ...] = ()  # paths that field selectors may name, beside metadata.name and metadata.namespace
    type_name: str = ""  # of the built-in type; empty for CRDs
    schema: Object = field(default_factory=dict)  # OpenAPI of a CRD's version
    scale: Scale | None = None
    has_generation: bool = False
    stored_version: str = ""
    to_stored: Convert | None = None  # for versions whose fields differ from the stored ones
    from_stored: Convert | None = None
    virtual: bool = False  # answered, never stored (the reviews)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def stored_api_version(self) -> str:
        version = self.stored_version or self.version
        group = self.stored_group
        return f"{group}/{version}" if group else version

    @property
    def stored_group(self) -> str:
        """Events have two groups and one store."""
        return "" if self.storage == "events" else self.group

    @property
    def storage(self) -> str:
        if self.plural == "events" and self.group == "events.k8s.io":
            return "events"
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def custom(self) -> bool:
        return not self.type_name

    @property
    def is_stored_form(self) -> bool:
        return self.api_version == self.stored_api_version

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources

    def view(self, obj: Object) -> Object:
        """A stored object in this version. Changes and returns the object that it was given."""
        if not self.is_stored_form:
            obj = self.from_stored(obj) if self.from_stored else obj
            obj["apiVersion"] = self.api_version
        return obj

    def store(self, obj: Object) -> Object:
        """An object of this version in its stored form."""
        if not self.is_stored_form:
            obj = self.to_stored(obj) if self.to_stored else obj
            obj["apiVersion"] = self.stored_api_version
        return obj
