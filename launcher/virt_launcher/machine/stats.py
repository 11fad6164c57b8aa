"""libvirt's flat statistics (`net.0.rx.bytes`) as the nested JSON of docs/domain-stats.md. Pure."""

from __future__ import annotations

import json
from typing import Any

#: Groups with one entry for each device, by their name in libvirt.
_LISTS = ("vcpu", "net", "block")
_MAX_DIGITS = 9
_GROUPS = {"cpu": "cpu", "balloon": "memory", "dirtyrate": "dirtyRate"}


def stats_json(name: str, uuid: str, flat: dict[str, Any]) -> bytes:
    if not flat:
        return b""
    document: dict[str, Any] = {"name": name, "uuid": uuid}
    for theirs, ours in _GROUPS.items():
        document[ours] = _group(flat, f"{theirs}.")
    for group in _LISTS:
        document[group] = _list(flat, group)
    return json.dumps(document, separators=(",", ":")).encode()


def _group(flat: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {_camel(key.removeprefix(prefix)): value for key, value in flat.items() if key.startswith(prefix)}


def _list(flat: dict[str, Any], group: str) -> list[dict[str, Any]]:
    """By the numbers that are there: vCPUs that are not plugged in are missing, and a count may say anything."""
    count = flat.get(f"{group}.count", flat.get(f"{group}.maximum", 0))
    entries: dict[int, dict[str, Any]] = {}
    for key, value in flat.items():
        name, _, rest = key.partition(".")
        number, _, field = rest.partition(".")
        if name == group and field and number.isdecimal() and len(number) <= _MAX_DIGITS and int(number) < count:
            entries.setdefault(int(number), {"index": int(number)})[_camel(field)] = value
    return [entries[number] for number in sorted(entries)]


def _camel(key: str) -> str:
    """`rx.bytes` → `rxBytes`, `swap_in` → `swapIn`, `last-update` → `lastUpdate`."""
    head, *rest = key.replace("_", ".").replace("-", ".").split(".")
    return head + "".join(word.capitalize() for word in rest)
