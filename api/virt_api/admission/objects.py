"""An object as admission sees it: the metadata as the user wrote it, the spec as a struct."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from virt_api.admission.bounds import decoded
from virt_api.admission.causes import Cause, Refused, invalid, required
from virt_api.admission.document import read
from virt_core.apis.admission import AdmissionRequest
from virt_core.apis.vmi import VirtualMachineInstanceSpec

T = TypeVar("T")

_TOP_LEVEL = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})


def document_of(raw: msgspec.Raw) -> dict[str, Any]:
    """The object as plain JSON; empty when there is none (the old object of a create). Raises Denied."""
    document = decoded(raw)
    return document if isinstance(document, dict) else {}


def inside(document: Any, path: str) -> Any:
    """What stands at a path such as spec.domain; None where there is no such place."""
    for name in path.split("."):
        document = document.get(name) if isinstance(document, dict) else None
    return document


def part_of(document: Any, path: str) -> dict[str, Any]:
    """The object at a path; an empty one where something else stands."""
    found = inside(document, path)
    return found if isinstance(found, dict) else {}


def read_spec(document: dict[str, Any]) -> VirtualMachineInstanceSpec:
    """The spec of a VMI. Raises Refused with the path of everything that is wrong with its form."""
    return read_member(document, VirtualMachineInstanceSpec)


def read_member(document: dict[str, Any], cls: type[T], member: str = "spec") -> T:
    """A top-level member as a struct. Raises Refused with the path of everything that is wrong with its form."""
    causes: list[Cause] = [invalid(key, "unknown field") for key in document if key not in _TOP_LEVEL]
    if document.get(member) is None:
        raise Refused([*causes, required(member, "must be given")])
    try:
        found = read(document[member], cls, member)
    except Refused as refused:
        raise Refused([*causes, *refused.causes]) from None
    if causes:
        raise Refused(causes)
    return found


def metadata_of(document: dict[str, Any]) -> dict[str, Any]:
    metadata = document.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def is_terminating(document: dict[str, Any]) -> bool:
    """Whether the object is being deleted: nothing is checked then, lest a finalizer could not be taken away."""
    return metadata_of(document).get("deletionTimestamp") is not None


def labels_of(document: dict[str, Any]) -> dict[str, str]:
    return _texts(metadata_of(document).get("labels"))


def annotations_of(document: dict[str, Any]) -> dict[str, str]:
    return _texts(metadata_of(document).get("annotations"))


def _texts(found: Any) -> dict[str, str]:
    return {key: value for key, value in found.items() if isinstance(value, str)} if isinstance(found, dict) else {}


def user_of(request: AdmissionRequest) -> str:
    return request.user_info.username


def name_of(document: dict[str, Any]) -> str:
    name = metadata_of(document).get("name")
    return name if isinstance(name, str) else ""


def namespace_of(request: AdmissionRequest, document: dict[str, Any]) -> str:
    """The API server says it; a namespace in the object is the same or none."""
    named = metadata_of(document).get("namespace")
    return request.namespace or (named if isinstance(named, str) else "")


def with_finalizer(document: dict[str, Any], name: str) -> list[str]:
    """The object's finalizers and one more, unless it has that one."""
    given = metadata_of(document).get("finalizers")
    kept = [each for each in given if isinstance(each, str)] if isinstance(given, list) else []
    return kept if name in kept else [*kept, name]
