"""Server-side apply: a manager says which fields it wants, and owns them from then on.

Ownership is recorded for objects that somebody has applied at least once; an object that nobody applies to carries no
managedFields and costs nothing. At the first apply, what was there before belongs to `before-first-apply`.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

from virt_local.apiserver import errors
from virt_local.apiserver.meta import now_text
from virt_local.apiserver.patches import fields as fieldset
from virt_local.apiserver.patches.fields import FieldSet, Path
from virt_local.apiserver.schema.node import Node

Object = dict[str, Any]
FIRST = "before-first-apply"


class Applier(NamedTuple):
    """Who applies, to which part of the object, and whether they insist."""

    manager: str
    force: bool = False
    subresource: str = ""

    def owns(self, entry: Object) -> bool:
        mine = (entry.get("manager"), entry.get("operation"), entry.get("subresource", ""))
        return mine == (self.manager, "Apply", self.subresource)


def apply(live: Object | None, wanted: Object, node: Node, applier: Applier) -> Object:
    """The live object with the applied configuration merged in and its managedFields brought up to date."""
    wanted = copy.deepcopy(wanted)
    wanted.get("metadata", {}).pop("managedFields", None)
    owned = set(fieldset.paths(fieldset.fields_of(wanted, node)))
    if live is None:
        result, entries = wanted, []
    else:
        entries = _entries(live, node)
        if not applier.force:
            others = [entry for entry in entries if not applier.owns(entry)]
            _refuse_conflicts(live, wanted, node, others, owned)
        result = _merged(copy.deepcopy(live), wanted, node)
        _drop_abandoned(result, node, entries, owned, applier)
    _write_entries(result, entries, owned, applier)
    return result


def _entries(live: Object, node: Node) -> list[Object]:
    entries = copy.deepcopy(live["metadata"].get("managedFields") or [])
    if entries:
        return entries
    return [_entry(FIRST, "Update", live, fieldset.fields_of(live, node), "")]


def _entry(manager: str, operation: str, obj: Object, fields: FieldSet, subresource: str) -> Object:
    entry = {
        "manager": manager,
        "operation": operation,
        "apiVersion": obj.get("apiVersion", ""),
        "time": now_text(),
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    return entry | {"subresource": subresource} if subresource else entry


def _refuse_conflicts(live: Object, wanted: Object, node: Node, others: list[Object], owned: set[Path]) -> None:
    """Only a field that another manager owns and that would change is a conflict."""
    causes = []
    for entry in others:
        theirs = set(fieldset.paths(entry.get("fieldsV1") or {}))
        for path in sorted(theirs & owned):
            if _would_change(live, wanted, node, path, owned):
                what = f'conflict with "{entry.get("manager")}" using {entry.get("apiVersion")}'
                causes.append(errors.Cause(fieldset.shown(path), what, "FieldManagerConflict"))
    if causes:
        raise errors.apply_conflict(causes)


def _would_change(live: Object, wanted: Object, node: Node, path: Path, owned: set[Path]) -> bool:
    new, old = fieldset.value_at(wanted, path, node), fieldset.value_at(live, path, node)
    if isinstance(new, dict | list) and not _is_leaf(path, owned):
        return False
    return new != old and not fieldset.is_absent(old)


def _is_leaf(path: Path, owned: set[Path]) -> bool:
    return not any(len(other) > len(path) and other[: len(path)] == path for other in owned)


def _merged(live: Any, wanted: Any, node: Node | None) -> Any:
    if isinstance(wanted, dict) and isinstance(live, dict) and not (node is not None and node.atomic):
        for key, value in wanted.items():
            child = node.child(key) if node else None
            live[key] = _merged(live[key], value, child) if key in live else value
        return live
    if isinstance(wanted, list) and isinstance(live, list) and node is not None and node.list_type != "atomic":
        return _merged_list(live, wanted, node)
    return wanted


def _merged_list(live: list[Any], wanted: list[Any], node: Node) -> list[Any]:
    by_key = {fieldset.item_key(item, node): item for item in wanted}
    result = []
    for item in live:
        key = fieldset.item_key(item, node)
        result.append(_merged(item, by_key.pop(key), node.items) if key in by_key else item)
    return result + list(by_key.values())


def _drop_abandoned(result: Object, node: Node, entries: list[Object], owned: set[Path], applier: Applier) -> None:
    """What this manager applied before and does not want any more goes, unless somebody else owns it too."""
    before = next((entry for entry in entries if applier.owns(entry)), None)
    if before is None:
        return
    used = set(owned)
    for entry in entries:
        if entry is not before:
            used |= set(fieldset.paths(entry.get("fieldsV1") or {}))
    abandoned = set(fieldset.paths(before.get("fieldsV1") or {})) - owned
    # The outer places first: an item that has lost its key could not be found any more.
    for path in sorted(abandoned, key=len):
        if not any(other[: len(path)] == path for other in used):
            fieldset.remove_at(result, path, node)


def _write_entries(result: Object, entries: list[Object], owned: set[Path], applier: Applier) -> None:
    before = next((entry for entry in entries if applier.owns(entry)), None)
    kept = [entry for entry in entries if entry is not before]
    if applier.force:
        kept = [_without(entry, owned) for entry in kept]
    mine = _entry(applier.manager, "Apply", result, fieldset.from_paths(owned), applier.subresource)
    if before is not None and before.get("fieldsV1") == mine["fieldsV1"]:
        mine["time"] = before.get("time", mine["time"])
    result["metadata"]["managedFields"] = [*(entry for entry in kept if entry.get("fieldsV1")), mine]


def _without(entry: Object, taken: set[Path]) -> Object:
    left = {path for path in fieldset.paths(entry.get("fieldsV1") or {}) if path not in taken}
    return entry | {"fieldsV1": fieldset.from_paths(left)}


def track_update(old: Object, new: Object, node: Node, *, manager: str, subresource: str = "") -> None:
    """After a plain write on an object that has been applied to: the changed fields now belong to the writer."""
    entries = copy.deepcopy(old["metadata"].get("managedFields") or [])
    if not entries or new["metadata"].get("managedFields") == []:
        new["metadata"].pop("managedFields", None)
        return
    changed = _changed(old, new, node)
    present = set(fieldset.paths(fieldset.fields_of(new, node)))
    identity = (manager, "Update", subresource)
    result, found = [], False
    for entry in entries:
        mine = (entry.get("manager"), entry.get("operation"), entry.get("subresource", "")) == identity
        owned = set(fieldset.paths(entry.get("fieldsV1") or {}))
        owned = (owned | changed if mine else owned - changed) & present
        found = found or mine
        if owned:
            result.append(entry | {"fieldsV1": fieldset.from_paths(owned)} | ({"time": now_text()} if mine else {}))
    if changed and not found:
        result.append(_entry(manager, "Update", new, fieldset.from_paths(changed), subresource))
    new["metadata"]["managedFields"] = result if changed else entries


def _changed(old: Object, new: Object, node: Node) -> set[Path]:
    """The leaves of the new object that differ from the old one."""
    owned = set(fieldset.paths(fieldset.fields_of(new, node)))
    changed = set()
    for path in owned:
        value, before = fieldset.value_at(new, path, node), fieldset.value_at(old, path, node)
        is_inner = isinstance(value, dict | list) and not _is_leaf(path, owned)
        if value != before and (not is_inner or fieldset.is_absent(before)):
            changed.add(path)
    return changed
