"""The VMI as admission sees it: the metadata as the user wrote it, the spec as a struct."""

from __future__ import annotations

from typing import Any

import msgspec

from virt_api.admission.causes import Cause, Refused, invalid, required
from virt_api.admission.document import read
from virt_core.apis.admission import AdmissionRequest
from virt_core.apis.vmi import VirtualMachineInstanceSpec

_TOP_LEVEL = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})


def document_of(raw: msgspec.Raw) -> dict[str, Any]:
    """The object as plain JSON; empty when there is none (the old object of a create)."""
    document = msgspec.json.decode(raw) if bytes(raw) else None
    return document if isinstance(document, dict) else {}


def read_spec(document: dict[str, Any]) -> VirtualMachineInstanceSpec:
    """The spec. Raises Refused with the path of everything that is wrong with its form."""
    causes: list[Cause] = [invalid(key, "unknown field") for key in document if key not in _TOP_LEVEL]
    if document.get("spec") is None:
        raise Refused([*causes, required("spec", "must be given")])
    try:
        spec = read(document["spec"], VirtualMachineInstanceSpec, "spec")
    except Refused as refused:
        raise Refused([*causes, *refused.causes]) from None
    if causes:
        raise Refused(causes)
    return spec


def labels_of(document: dict[str, Any]) -> dict[str, str]:
    return (document.get("metadata") or {}).get("labels") or {}


def annotations_of(document: dict[str, Any]) -> dict[str, str]:
    return (document.get("metadata") or {}).get("annotations") or {}


def user_of(request: AdmissionRequest) -> str:
    return request.user_info.username
