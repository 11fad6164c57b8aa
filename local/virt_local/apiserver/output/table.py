"""Tables, as `kubectl get` prints them."""

from __future__ import annotations

from typing import Any

from virt_local.apiserver.builtins.columns import DEFAULT_COLUMNS
from virt_local.apiserver.humanize import since
from virt_local.apiserver.kinds import Column, Kind

Object = dict[str, Any]


def partial(obj: Object) -> Object:
    """An object's identity and metadata, without its content."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj.get("metadata", {})}


def table(kind: Kind, objects: list[Object], list_metadata: Object, include: str, *, header: bool = True) -> Object:
    """Cells are made from stored objects. `include` says what comes with each row: Metadata, Object or None."""
    columns = kind.columns or DEFAULT_COLUMNS
    result: Object = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": list_metadata}
    result["columnDefinitions"] = [column.definition() for column in columns] if header else []
    result["rows"] = [_row(kind, columns, obj, include) for obj in objects]
    return result


def _row(kind: Kind, columns: tuple[Column, ...], obj: Object, include: str) -> Object:
    row: Object = {"cells": [_cell(column, obj) for column in columns]}
    if include == "Object":
        row["object"] = kind.view(dict(obj))
    elif include != "None":
        row["object"] = partial(obj)
    return row


def _cell(column: Column, obj: Object) -> Any:
    value = column.value(obj)
    return since(value) if column.type == "date" and value is not None else value
