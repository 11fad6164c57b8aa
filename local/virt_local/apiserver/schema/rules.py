"""x-kubernetes-validations: rules in CEL that a value must keep, by itself and compared with what it was before."""

from __future__ import annotations

from typing import Any

from virt_local.apiserver import cel
from virt_local.apiserver.errors import Cause
from virt_local.apiserver.schema.node import ARRAY, Node

_ABSENT: Any = object()
_REASONS = ("FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate")


def check_rules(new: Any, old: Any, node: Node, path: str = "") -> list[Cause]:
    """Every rule that does not hold. `old` is None for a new object."""
    causes: list[Cause] = []
    _walk(new, _ABSENT if old is None else old, node, path, causes)
    return causes


def _walk(new: Any, old: Any, node: Node, path: str, causes: list[Cause]) -> None:
    if not node.has_rules or new is None:
        return
    for rule in node.rules:
        _apply(rule, new, old, path, causes)
    if isinstance(new, dict):
        before = old if isinstance(old, dict) else {}
        for name, item in new.items():
            child = node.child(name)
            if child is not None:
                _walk(item, before.get(name, _ABSENT), child, f"{path}.{name}" if path else name, causes)
    elif isinstance(new, list) and node.items is not None:
        for index, item in enumerate(new):
            _walk(item, _counterpart(item, old, node), node.items, f"{path}[{index}]", causes)


def _counterpart(item: Any, old: Any, node: Node) -> Any:
    """An item's former self is known by its keys; items of other lists have none."""
    if node.type != ARRAY or node.list_type != "map" or not isinstance(old, list) or not isinstance(item, dict):
        return _ABSENT
    keys = [item.get(key) for key in node.list_keys]
    same = (o for o in old if isinstance(o, dict) and [o.get(key) for key in node.list_keys] == keys)
    return next(same, _ABSENT)


def _apply(rule: dict[str, Any], new: Any, old: Any, path: str, causes: list[Cause]) -> None:
    expression = cel.compile_expression(rule["rule"])
    if expression.uses("oldSelf") and old is _ABSENT:
        return  # A transition needs two states.
    values = {"self": new} if old is _ABSENT else {"self": new, "oldSelf": old}
    try:
        if expression.holds(values):
            return
        text = rule.get("message") or f"failed rule: {rule['rule']}"
    except cel.Failed as error:
        text = f"rule evaluation error: {error}"
    reason = rule.get("reason") if rule.get("reason") in _REASONS else _REASONS[0]
    word = {"FieldValueForbidden": "Forbidden: ", "FieldValueRequired": "Required value: "}.get(reason or "")
    where = path + str(rule.get("fieldPath") or "")
    causes.append(Cause(where.lstrip("."), f"{word or 'Invalid value: '}{text}", reason or _REASONS[0]))
