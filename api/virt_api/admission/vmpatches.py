"""The patches by which a restore or a clone changes the VM that it makes.

virt-controller applies them, with its own rights and in its own memory, so that they may only be of a kind that cannot
grow, and may only touch what a user decides of a VM.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from virt_api.admission.causes import Cause, invalid, one_of
from virt_core.apis.base import UNREADABLE

#: `copy` is not among them: thirty that copy what the one before copied fill any memory. `move` needs its twin.
OPERATIONS = ("add", "remove", "replace", "test")
PLACES = ("/spec/", "/metadata/labels/", "/metadata/annotations/")
#: A clone that filters labels adds one for each.
MOST = 256


def broken_patches(patches: Sequence[str], field: str = "spec.patches") -> Iterator[Cause]:
    if len(patches) > MOST:
        yield invalid(field, f"has {len(patches)} operations, and at most {MOST} are applied")
        return
    for i, text in enumerate(patches):
        try:
            operation: Any = msgspec.json.decode(text)
        except UNREADABLE:
            yield invalid(f"{field}[{i}]", "is not a JSON patch operation")
            continue
        if problem := _fault(operation):
            yield invalid(f"{field}[{i}]", problem)
        elif not operation["path"].startswith(PLACES):
            yield invalid(field, f"[{i}] changes {operation['path']!r}, which is not under {', '.join(PLACES)}")


def _fault(operation: Any) -> str:
    if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
        return "is not a JSON patch operation: it needs op and path"
    if operation.get("op") not in OPERATIONS:
        return f"op: {one_of(str(operation.get('op')), OPERATIONS)}"
    if operation["op"] != "remove" and "value" not in operation:
        return f"is not a JSON patch operation: {operation['op']} needs a value"
    return ""
