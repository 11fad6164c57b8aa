"""Answers in the form that was asked for: JSON, YAML, a name, or a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def document(value: Any, form: str) -> str:
    """`json` or `yaml`, with the keys in the order that they were given in."""
    if form == "json":
        import json

        return json.dumps(value, indent=2) + "\n"
    import yaml

    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=1000))


def name_of(obj: dict[str, Any]) -> str:
    """`service/web`, `virtualmachine.kubevirt.io/web`: as kubectl prints with -o name."""
    group, slash, _ = str(obj["apiVersion"]).partition("/")
    kind = str(obj["kind"]).lower() + (f".{group}" if slash else "")
    return f"{kind}/{obj['metadata']['name']}\n"


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [list(header), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "".join("   ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() + "\n" for line in lines)


def _cell(value: Any) -> str:
    return "<none>" if value is None or value == "" else str(value)


def size(count: Any) -> str:
    """`1.5 GiB` of a number of bytes."""
    if not isinstance(count, (int, float)):
        return ""
    from virt_core.apis.quantity import readable

    return readable(count)
