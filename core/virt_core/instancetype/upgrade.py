"""ControllerRevisions that an older release stored: no version in the name, no label that says it, or another version.

Such a revision is stored again in today's form, the VM's status points to the new one, and the old one goes.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
from msgspec.structs import replace

from virt_core.apis.apps import ControllerRevision
from virt_core.apis.base import from_plain
from virt_core.apis.vm import ControllerRevisionRef, InstancetypeStatusRef, VirtualMachine
from virt_core.instancetype.find import Lookup, Matcher, NotFoundError, Preference, Type, captured, class_of
from virt_core.instancetype.revisions import LABEL_KIND, LABEL_VERSION, Capture, revision_for

LATEST = "v1beta1"


def modernized(vm: VirtualMachine, found: Capture, lookup: Lookup) -> Capture:
    """What `capture` found, and what replaces revisions of an older form. Raises NotFoundError."""
    result = found
    if vm.spec.instancetype is not None:
        field = "spec.instancetype"
        if pair := _upgrade(vm, vm.spec.instancetype, vm.status.instancetype_ref, field, lookup):
            result = _with(result, *pair, "instancetype_ref")
    if vm.spec.preference is not None:
        field = "spec.preference"
        if pair := _upgrade(vm, vm.spec.preference, vm.status.preference_ref, field, lookup):
            result = _with(result, *pair, "preference_ref")
    return result


def _with(found: Capture, old: str, new: ControllerRevision, ref: InstancetypeStatusRef, which: str) -> Capture:
    changes: dict[str, Any] = {"revisions": (*found.revisions, new), "replaced": (*found.replaced, old), which: ref}
    return dataclasses.replace(found, **changes)


def _upgrade(
    vm: VirtualMachine, matcher: Matcher, ref: InstancetypeStatusRef | None, field: str, lookup: Lookup
) -> tuple[str, ControllerRevision, InstancetypeStatusRef] | None:
    """The name tells, without a request, that a revision has today's form. One that the user named is the user's."""
    name = "" if matcher.revision_name else captured(matcher, ref)
    if not name or ref is None or f"-{LATEST}-" in name:
        return None
    old = lookup.get(ControllerRevision, name, vm.metadata.namespace)
    if old is None:
        raise NotFoundError(field, f"there is no ControllerRevision {name!r}")
    if old.metadata.labels.get(LABEL_VERSION) == LATEST:
        return None
    new = revision_for(vm, _object_in(old, matcher, ref, field))
    return name, new, replace(ref, controller_revision_ref=ControllerRevisionRef(name=new.metadata.name))


def _object_in(
    revision: ControllerRevision, matcher: Matcher, ref: InstancetypeStatusRef, field: str
) -> Type | Preference:
    """The object that was stored, as one of today's version."""
    data = revision.data or {}
    kind = data.get("kind") or revision.metadata.labels.get(LABEL_KIND) or ref.kind
    cls = class_of(str(kind), matcher)
    if cls is None:
        words = f"ControllerRevision {revision.metadata.name!r} holds a {kind!r}"
        raise NotFoundError(field, f"{words}, which {field} cannot name")
    metadata = {"name": ref.name} | (data.get("metadata") or {})
    try:
        return from_plain({"metadata": metadata, "spec": data.get("spec") or {}}, cls)
    except msgspec.ValidationError as error:
        words = f"ControllerRevision {revision.metadata.name!r} cannot be read: {error}"
        raise NotFoundError(field, words) from error
