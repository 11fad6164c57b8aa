"""The three ways to change an object that somebody else owns too.

`JsonPatch([op.test("/metadata/resourceVersion", rv), op.replace("/status/phase", "Running")])` is the usual one: it
fails instead of overwriting what changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from virt_core.apis.base import encode


class Patch(Protocol):
    @property
    def content_type(self) -> str: ...

    def body(self) -> bytes: ...

    def query(self) -> dict[str, str]: ...


class op:
    """RFC 6902 operations. Values may be structs."""

    @staticmethod
    def test(path: str, value: Any) -> dict[str, Any]:
        return {"op": "test", "path": path, "value": value}

    @staticmethod
    def add(path: str, value: Any) -> dict[str, Any]:
        """Adds or replaces a member of a map; inserts into a list (`/-` appends)."""
        return {"op": "add", "path": path, "value": value}

    @staticmethod
    def replace(path: str, value: Any) -> dict[str, Any]:
        return {"op": "replace", "path": path, "value": value}

    @staticmethod
    def remove(path: str) -> dict[str, Any]:
        return {"op": "remove", "path": path}


def pointer(*parts: str) -> str:
    """A JSON pointer: `pointer("metadata", "labels", "kubevirt.io/nodeName")` with the slashes escaped."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


@dataclass(frozen=True)
class JsonPatch:
    operations: Iterable[Mapping[str, Any]]
    content_type: str = "application/json-patch+json"

    def body(self) -> bytes:
        return encode(list(self.operations))

    def query(self) -> dict[str, str]:
        return {}


@dataclass(frozen=True)
class MergePatch:
    """RFC 7386: maps merge, lists and scalars are replaced, None removes."""

    document: Mapping[str, Any]
    content_type: str = "application/merge-patch+json"

    def body(self) -> bytes:
        return encode(self.document)

    def query(self) -> dict[str, str]:
        return {}


@dataclass(frozen=True)
class StrategicPatch:
    """As MergePatch, but lists that have a key (the conditions of a Pod) merge by it. For built-in kinds only."""

    document: Mapping[str, Any]
    content_type: str = "application/strategic-merge-patch+json"

    def body(self) -> bytes:
        return encode(self.document)

    def query(self) -> dict[str, str]:
        return {}


@dataclass(frozen=True)
class ApplyPatch:
    """Server-side apply: the document holds only what the field manager owns, with apiVersion and kind."""

    document: Mapping[str, Any]
    field_manager: str
    force: bool = True
    content_type: str = "application/apply-patch+yaml"

    def body(self) -> bytes:
        return encode(self.document)

    def query(self) -> dict[str, str]:
        return {"fieldManager": self.field_manager, "force": "true" if self.force else "false"}
