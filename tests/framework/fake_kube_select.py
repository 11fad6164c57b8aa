"""What a path of the fake API server means, and which objects a query chooses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from virt_core.apis.crdkinds import KINDS
from virt_core.apis.registry import resource_by_kind
from virt_local.apiserver.selectors import parse_labels

_CUSTOM = {resource_by_kind(kind.kind).plural: kind.status_subresource for kind in KINDS}
#: Kinds of Kubernetes itself whose status is written apart.
_BUILT_IN = frozenset(
    {"pods", "nodes", "namespaces", "persistentvolumes", "persistentvolumeclaims", "certificatesigningrequests"}
)


@dataclass(frozen=True, slots=True)
class Kind:
    #: As messages name it: plural and group.
    resource: str
    is_collection: bool
    has_status: bool
    has_generation: bool

    @property
    def uncounted(self) -> frozenset[str]:
        """Fields whose change does not raise the generation."""
        return frozenset({"metadata", "status"} if self.has_status else {"metadata"})


@cache
def kind_of(path: str) -> Kind:
    parts = path.removesuffix("/status").removesuffix("/approval").strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    plural = rest[0] if rest else ""
    custom = plural in _CUSTOM
    return Kind(
        resource=f"{plural}.{group}" if group else plural,
        is_collection=len(rest) == 1,
        has_status=_CUSTOM[plural] if custom else plural in _BUILT_IN,
        has_generation=custom,
    )


def in_collection(own: str, asked: str) -> bool:
    """A namespaced object is also in its kind's collection over all namespaces."""
    if own == asked:
        return True
    head, separator, tail = own.partition("/namespaces/")
    return bool(separator) and "/" in tail and f"{head}/{tail.split('/', 1)[1]}" == asked


def matches(obj: dict[str, Any], query: dict[str, str]) -> bool:
    if not parse_labels(query.get("labelSelector", ""))(obj["metadata"].get("labels") or {}):
        return False
    return all(_field_holds(obj, term) for term in query.get("fieldSelector", "").split(",") if term)


def _field_holds(obj: dict[str, Any], term: str) -> bool:
    wanted = "!=" not in term
    path, _, value = term.partition("=" if wanted else "!=")
    found: Any = obj
    for part in path.split("."):
        found = (found or {}).get(part)
    return (str(found or "") == value.removeprefix("=")) is wanted
