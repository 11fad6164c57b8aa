"""JSON patch and merge patch for the fake API server, as far as tests need them."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def merge(target: Object, patch: Object) -> None:
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict) and isinstance(target.get(key), dict):
            merge(target[key], value)
        else:
            target[key] = value


def json_patch(document: Object, operations: list[Object]) -> bool:
    """Enough of RFC 6902 for tests. False: a test failed or a path does not exist."""
    for operation in operations:
        *parents, last = [p.replace("~1", "/").replace("~0", "~") for p in operation["path"].split("/")[1:]]
        target: Any = document
        for part in parents:
            target = target[int(part)] if isinstance(target, list) else target.get(part)
            if target is None:
                return False
        if not _apply(target, last, operation):
            return False
    return True


def _apply(target: Any, last: str, operation: Object) -> bool:
    kind, value = operation["op"], operation.get("value")
    if isinstance(target, list):
        if kind == "add":
            target.insert(len(target) if last == "-" else int(last), value)
        elif kind == "remove":
            del target[int(last)]
        elif kind == "replace":
            target[int(last)] = value
        return kind != "test" or target[int(last)] == value
    if kind == "test":
        return bool(target.get(last) == value)
    if kind in ("remove", "replace") and last not in target:
        return False
    if kind == "remove":
        del target[last]
    else:
        target[last] = value
    return True
