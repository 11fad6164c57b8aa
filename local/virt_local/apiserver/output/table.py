"""Tables, as `kubectl get` prints them."""

from __future__ import annotations

from typing import Any

from virt_local.apiserver.builtins.columns import DEFAULT_COLUMNS
from virt_local.apiserver.humanize import since
from virt_local.apiserver.kinds import Column, Kind
from virt_local.apiserver.output.negotiate import Wanted

Object = dict[str, Any]


def partial(obj: Object, version: str = "v1") -> Object:
    """An object's identity and metadata, without its content."""
    metadata = obj.get("metadata", {})
    return {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{version}", "metadata": metadata}


def table(kind: Kind, objects: list[Object], list_metadata: Object, wanted: Wanted, *, header: bool = True) -> Object:
    """Cells are made from stored objects. The header of a watch is sent once."""
    columns = kind.columns or DEFAULT_COLUMNS
    result: Object = {"kind": "Table", "apiVersion": f"meta.k8s.io/{wanted.version}", "metadata": list_metadata}
    result["columnDefinitions"] = [column.definition() for column in columns] if header else None
    result["rows"] = [_row(kind, columns, obj, wanted) for obj in objects]
    return result


def _row(kind: Kind, columns: tuple[Column, ...], obj: Object, wanted: Wanted) -> Object:
    row: Object = {"cells": [_cell(column, obj) for column in columns], "object": None}
    if wanted.include == "Object":
        row["object"] = kind.view(dict(obj))
    elif wanted.include != "None":
        row["object"] = partial(obj, wanted.version)
    return row


def _cell(column: Column, obj: Object) -> Any:
    value = column.value(obj)
    is_age = column.age or (column.type == "date" and not column.plain)
    return since(value) if is_age and value is not None else value
