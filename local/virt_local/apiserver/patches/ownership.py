"""Who owns which field of an object: metadata.managedFields, kept up to date by every write.

An object whose entries were taken away by a client is not tracked until somebody applies to it; then what was there
before belongs to `before-first-apply`.
"""

from __future__ import annotations

from typing import Any

from virt_local.apiserver.builtins.events import event_from_stored
from virt_local.apiserver.kinds import Kind
from virt_local.apiserver.meta import now_text
from virt_local.apiserver.patches import fields as fieldset
from virt_local.apiserver.patches.fields import FieldSet
from virt_local.apiserver.schema.node import Node

Object = dict[str, Any]

FIRST = "before-first-apply"
# Not anybody's: the identity of the object and what the server writes.
_IDENTITY = frozenset(("apiVersion", "kind"))
_SERVER = frozenset(
    (
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "managedFields",
        "selfLink",
    )
)
# Parts that exist in every new object of a built-in kind, so that nobody owns them by making one.
_EMPTY: Object = {"metadata": {}, "spec": {}, "status": {}}
_BLANKS: Object = dict.fromkeys(("firstTimestamp", "lastTimestamp", "eventTime"))
_BLANKS |= {"reportingComponent": "", "reportingInstance": "", "source": {}, "involvedObject": {}}
_SHELLS: dict[str, Object] = {
    "pods": {**_EMPTY, "spec": {"containers": None}},
    "namespaces": {**_EMPTY, "spec": {"finalizers": ["kubernetes"]}},
    "persistentvolumeclaims": {**_EMPTY, "spec": {"resources": {}}},
    "networkpolicies": {**_EMPTY, "spec": {"podSelector": {}}},
    "customresourcedefinitions": {**_EMPTY, "spec": {"names": {}}},
    "events": {"metadata": {}, **_BLANKS, **event_from_stored(_BLANKS)},
}


def owned_part(obj: Object, subresource: str = "", *, apart: bool = False) -> Object:
    """What of an object can be owned. A write to a subresource is about that part alone; `apart` leaves the status out,
    where it has a subresource of its own."""
    if subresource == "status":
        return {"status": obj["status"]} if "status" in obj else {}
    body = {key: value for key, value in obj.items() if key not in _IDENTITY and not (apart and key == "status")}
    metadata = {key: value for key, value in (body.get("metadata") or {}).items() if key not in _SERVER}
    if metadata:
        body["metadata"] = metadata
    else:
        body.pop("metadata", None)
    return body


def entry(manager: str, operation: str, obj: Object, fields: FieldSet, subresource: str) -> Object:
    made = {
        "manager": manager,
        "operation": operation,
        "apiVersion": obj.get("apiVersion", ""),
        "time": now_text(),
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    return made | {"subresource": subresource} if subresource else made


def entries_of(live: Object, node: Node) -> list[Object]:
    known: list[Object] = live["metadata"].get("managedFields") or []
    if known:
        return [dict(each) for each in known]
    everything = fieldset.whole(owned_part(live), node)
    everything.pop(fieldset.SELF, None)
    return [entry(FIRST, "Update", live, _unmarked(everything), "")]


def sorted_entries(entries: list[Object]) -> list[Object]:
    return sorted(entries, key=lambda e: (e.get("operation", ""), e.get("time", ""), e.get("manager", "")))


def track_create(kind: Kind, obj: Object, manager: str) -> None:
    """A new object belongs to whoever made it."""
    shell: Object = {"metadata": {}} if kind.custom else _SHELLS.get(kind.plural, _EMPTY)
    fields = fieldset.changed(shell, owned_part(obj, apart=kind.has_status), kind.node)
    if fields:
        obj["metadata"]["managedFields"] = [entry(manager, "Update", obj, _unmarked(fields), "")]


def _unmarked(fields: FieldSet) -> FieldSet:
    """The metadata as a whole is nobody's."""
    if fieldset.SELF in fields.get("f:metadata", {}):
        metadata = {key: value for key, value in fields["f:metadata"].items() if key != fieldset.SELF}
        return {**fields, "f:metadata": metadata}
    return fields


def track_update(old: Object, new: Object, node: Node, *, manager: str, subresource: str = "") -> None:
    """After a plain write on a tracked object: the changed fields now belong to the writer."""
    given = new["metadata"].get("managedFields")
    entries: list[Object] = old["metadata"].get("managedFields") or []
    if not entries or given in ([], [{}]):
        new["metadata"].pop("managedFields", None)
        return
    before, after = owned_part(old), owned_part(new)
    if before == after:
        new["metadata"]["managedFields"] = entries
        return
    changes = _unmarked(fieldset.changed({"metadata": {}, **before}, after, node) or {})
    identity = (manager, "Update", subresource, new.get("apiVersion", ""))
    result = _reassigned(entries, changes, identity)
    if fieldset.loses(before, after):
        result = _present(result, after, node)
    if changes and not any(_identity(known) == identity for known in result):
        result.append(entry(manager, "Update", new, changes, subresource))
    new["metadata"]["managedFields"] = sorted_entries(result)


def forget_absent(obj: Object, node: Node) -> None:
    """After the server itself took something away: nobody owns what is not there."""
    entries = obj["metadata"].get("managedFields")
    if not entries:
        return
    kept = _present(entries, owned_part(obj), node)
    if kept:
        obj["metadata"]["managedFields"] = kept
    else:
        del obj["metadata"]["managedFields"]


def _identity(known: Object) -> tuple[Any, ...]:
    return (known.get("manager"), known.get("operation"), known.get("subresource", ""), known.get("apiVersion"))


def _present(entries: list[Object], body: Object, node: Node) -> list[Object]:
    """Nobody owns what is not there."""
    kept = [known | {"fieldsV1": fieldset.present(known.get("fieldsV1") or {}, body, node)} for known in entries]
    return [known for known in kept if known["fieldsV1"]]


def _reassigned(entries: list[Object], changes: FieldSet, identity: tuple[Any, ...]) -> list[Object]:
    result = []
    for known in entries:
        owned = known.get("fieldsV1") or {}
        if _identity(known) == identity:
            owned = fieldset.union(owned, changes)
            known = {**known, "time": now_text()} if changes else known  # noqa: PLW2901 (the entry, brought up to date)
        else:
            owned = fieldset.minus(owned, changes)
        if owned:
            result.append({**known, "fieldsV1": owned})
    return result
