"""Fields that a JSON object names twice: most likely a mistake, so strict clients are told."""

from __future__ import annotations

import json
from typing import Any

Pairs = list[tuple[str, Any]]


class _Doubled(dict[str, Any]):
    """An object with fields that came twice, until it is known where it stands."""

    names: list[str]


def duplicates(body: bytes, *, merge: bool) -> tuple[list[str], dict[str, Any]]:
    """The paths of doubled fields, and the document. `merge` joins doubled maps, as a decoder into a struct does."""
    found = False

    def hook(pairs: Pairs) -> dict[str, Any]:
        nonlocal found
        plain = dict(pairs)
        if len(plain) == len(pairs):
            return plain
        found = True
        return _doubled(pairs, merge)

    document: dict[str, Any] = json.loads(body, object_pairs_hook=hook)
    paths: list[str] = []
    if found:
        document = _collect(document, "", paths)
    return paths, document


def _doubled(pairs: Pairs, merge: bool) -> _Doubled:
    result, names = _Doubled(), []
    for key, value in pairs:
        if key in result and key not in names:
            names.append(key)
        old = result.get(key)
        result[key] = {**old, **value} if merge and isinstance(old, dict) and isinstance(value, dict) else value
    result.names = names
    return result


def _collect(value: Any, path: str, paths: list[str]) -> Any:
    """Notes the places of doubled fields, and returns the value as plain data."""
    if isinstance(value, dict):
        prefix = f"{path}." if path else ""
        paths += [prefix + name for name in getattr(value, "names", ())]
        return {key: _collect(item, prefix + key, paths) for key, item in value.items()}
    if isinstance(value, list):
        return [_collect(item, f"{path}[{index}]", paths) for index, item in enumerate(value)]
    return value
