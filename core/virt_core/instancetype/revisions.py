"""What a VM keeps of its instance type and preference, so that a later change of those does not reach it.

Three policies: `reference` stores a ControllerRevision and remembers it in the VM's status; `expand` writes the values
into the VM and drops the names, unless a revision was stored before; `expandAll` does so in any case.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from virt_core.apis.apps import ControllerRevision
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.registry import owner_reference, plain_object
from virt_core.apis.vm import ControllerRevisionRef, InstancetypeStatusRef, VirtualMachine
from virt_core.instancetype.find import (
    Lookup,
    Matcher,
    Preference,
    Type,
    captured,
    instancetype_object,
    preference_object,
)

REFERENCE, EXPAND, EXPAND_ALL = "reference", "expand", "expandAll"

_PREFIX = "instancetype.kubevirt.io/object-"
LABEL_GENERATION = f"{_PREFIX}generation"
LABEL_KIND = f"{_PREFIX}kind"
LABEL_NAME = f"{_PREFIX}name"
LABEL_UID = f"{_PREFIX}uid"
LABEL_VERSION = f"{_PREFIX}version"


@dataclass(frozen=True, slots=True)
class Capture:
    """What to create, and what the VM's status shall say. None: nothing to do."""

    revisions: tuple[ControllerRevision, ...] = ()
    instancetype_ref: InstancetypeStatusRef | None = None
    preference_ref: InstancetypeStatusRef | None = None
    #: The names of revisions that new ones stand for.
    replaced: tuple[str, ...] = ()


def revision_name(vm: VirtualMachine, obj: Type | Preference) -> str:
    """Of VM, object, version, UID and generation: the same state of the same object always has the same name."""
    version = obj.api_version.rpartition("/")[2]
    return f"{vm.metadata.name}-{obj.metadata.name}-{version}-{obj.metadata.uid}-{obj.metadata.generation or 0}"


def revision_for(vm: VirtualMachine, obj: Type | Preference) -> ControllerRevision:
    """Owned by the VM. Of the object's metadata only what identifies it is kept."""
    meta = obj.metadata
    kept = ObjectMeta(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        generation=meta.generation,
        resource_version=meta.resource_version,
        creation_timestamp=meta.creation_timestamp,
    )
    labels = {
        LABEL_GENERATION: str(meta.generation or 0),
        LABEL_KIND: obj.kind,
        LABEL_NAME: meta.name,
        LABEL_UID: meta.uid,
        LABEL_VERSION: obj.api_version.rpartition("/")[2],
    }
    return ControllerRevision(
        metadata=ObjectMeta(
            name=revision_name(vm, obj),
            namespace=vm.metadata.namespace,
            labels=labels,
            owner_references=[owner_reference(vm)],
        ),
        data=plain_object(replace(obj, metadata=kept)),
    )


def same_content(one: ControllerRevision, other: ControllerRevision) -> bool:
    """Whether a revision that is already there holds what we would store."""
    return (one.data or {}).get("spec") == (other.data or {}).get("spec")


def capture(vm: VirtualMachine, lookup: Lookup) -> Capture:
    """The revisions to store under the policy `reference`. Raises NotFoundError."""
    revisions: list[ControllerRevision] = []
    refs: list[InstancetypeStatusRef | None] = [None, None]
    if vm.spec.instancetype is not None and not captured(vm.spec.instancetype, vm.status.instancetype_ref):
        revisions.append(revision_for(vm, instancetype_object(vm, vm.spec.instancetype, lookup)))
        refs[0] = status_ref(vm.spec.instancetype, revisions[-1])
    if vm.spec.preference is not None and not captured(vm.spec.preference, vm.status.preference_ref):
        revisions.append(revision_for(vm, preference_object(vm, vm.spec.preference, lookup)))
        refs[1] = status_ref(vm.spec.preference, revisions[-1])
    return Capture(tuple(revisions), refs[0], refs[1])


def status_ref(matcher: Matcher, revision: ControllerRevision) -> InstancetypeStatusRef:
    return InstancetypeStatusRef(
        name=matcher.name,
        kind=revision.metadata.labels.get(LABEL_KIND, matcher.kind),
        controller_revision_ref=ControllerRevisionRef(name=revision.metadata.name),
        infer_from_volume=matcher.infer_from_volume,
        infer_from_volume_failure_policy=matcher.infer_from_volume_failure_policy,
    )


def wants_expansion(vm: VirtualMachine, policy: str) -> bool:
    """Whether the VM is to be written out in full under this policy."""
    if policy == EXPAND_ALL:
        return vm.spec.instancetype is not None or vm.spec.preference is not None
    if policy != EXPAND or (vm.spec.instancetype is None and vm.spec.preference is None):
        return False
    return not stored_revisions(vm)


def stored_revisions(vm: VirtualMachine) -> list[str]:
    """The revisions that the VM's status points to; after an expansion they can go."""
    refs = (vm.status.instancetype_ref, vm.status.preference_ref)
    return [ref.controller_revision_ref.name for ref in refs if ref is not None and ref.controller_revision_ref]


def unused_revisions(vm: VirtualMachine) -> list[str]:
    """The revisions that its status still points to although its spec names neither type nor preference any more."""
    pairs = ((vm.spec.instancetype, vm.status.instancetype_ref), (vm.spec.preference, vm.status.preference_ref))
    return [
        ref.controller_revision_ref.name
        for matcher, ref in pairs
        if matcher is None and ref is not None and ref.controller_revision_ref
    ]
