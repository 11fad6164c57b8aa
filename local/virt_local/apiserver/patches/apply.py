"""Server-side apply: a manager says which fields it wants, and owns them from then on.

What would change and is somebody else's is a conflict; who insists takes it over. What a manager wanted before and does
not name any more goes away, unless somebody else wants it too.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

from virt_local.apiserver import errors
from virt_local.apiserver.patches import fields as fieldset
from virt_local.apiserver.patches.fields import FieldSet
from virt_local.apiserver.patches.ownership import entries_of, entry, owned_part, sorted_entries
from virt_local.apiserver.schema.node import Node

Object = dict[str, Any]


class Applier(NamedTuple):
    """Who applies, to which part of the object, and whether they insist."""

    manager: str
    force: bool = False
    subresource: str = ""

    def owns(self, known: Object) -> bool:
        mine = (known.get("manager"), known.get("operation"), known.get("subresource", ""))
        return mine == (self.manager, "Apply", self.subresource)


def apply(live: Object | None, wanted: Object, node: Node, applier: Applier) -> Object:
    """The live object with the applied configuration merged in and its managedFields brought up to date."""
    wanted = copy.deepcopy(wanted)
    metadata = wanted.setdefault("metadata", {})
    metadata.pop("managedFields", None)
    mine = fieldset.applied(owned_part(wanted, applier.subresource), node)
    if live is None:
        metadata.pop("resourceVersion", None)
        metadata["managedFields"] = [entry(applier.manager, "Apply", wanted, mine, applier.subresource)]
        return wanted
    entries = entries_of(live, node)
    result: Object = _merged(copy.deepcopy(live), wanted, node)
    before = next((known for known in entries if applier.owns(known)), None)
    others = [known for known in entries if known is not before]
    others = _settle_conflicts(live, result, node, others, applier)
    if before is not None:
        _drop_abandoned(result, node, fieldset.minus(before["fieldsV1"], mine), others)
    own = entry(applier.manager, "Apply", result, mine, applier.subresource)
    if owned_part(live) == owned_part(result):
        # The time of an entry is that of its last change of the object: who only joins in has none.
        own["time"] = (before or {}).get("time")
    _write_entries(result, node, others, own)
    return result


def _settle_conflicts(live: Object, result: Object, node: Node, others: list[Object], applier: Applier) -> list[Object]:
    """Only a field that another manager owns and that would change is a conflict."""
    changes = fieldset.changed(owned_part(live), owned_part(result), node) or {}
    causes = [
        errors.Cause(place, _whose(known), "FieldManagerConflict")
        for known in others
        for place in sorted(fieldset.shown(path) for path in fieldset.common(changes, known.get("fieldsV1") or {}))
    ]
    if causes and not applier.force:
        raise errors.apply_conflict(causes)
    if not causes:
        return others
    taken = [known | {"fieldsV1": fieldset.minus(known.get("fieldsV1") or {}, changes)} for known in others]
    return [known for known in taken if known["fieldsV1"]]


def _whose(known: Object) -> str:
    text = f'conflict with "{known.get("manager")}"'
    if known.get("subresource"):
        text += f' with subresource "{known["subresource"]}"'
    return text if known.get("operation") == "Apply" else f"{text} using {known.get('apiVersion')}"


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


def _drop_abandoned(result: Object, node: Node, abandoned: FieldSet, others: list[Object]) -> None:
    """What this manager applied before and does not want any more goes, unless somebody else owns it too."""
    used: FieldSet = {}
    for known in others:
        used = fieldset.union(used, known.get("fieldsV1") or {})
    inside = set(fieldset.paths(used))
    # The outer places first: an item that has lost its key could not be found any more.
    for path in sorted(fieldset.paths(abandoned), key=len):
        if not any(other[: len(path)] == path for other in inside):
            fieldset.remove_at(result, path, node)


def _write_entries(result: Object, node: Node, others: list[Object], own: Object) -> None:
    body = owned_part(result)
    kept = [known | {"fieldsV1": fieldset.present(known.get("fieldsV1") or {}, body, node)} for known in others]
    own = {key: value for key, value in own.items() if value is not None}
    result["metadata"]["managedFields"] = sorted_entries([known for known in (*kept, own) if known["fieldsV1"]])
