"""Which instance type and preference hold for a VM: the captured revision, else the object that it names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import msgspec

from virt_core.apis.apps import ControllerRevision
from virt_core.apis.base import from_plain
from virt_core.apis.instancetype import (
    VirtualMachineClusterInstancetype,
    VirtualMachineClusterPreference,
    VirtualMachineInstancetype,
    VirtualMachineInstancetypeSpec,
    VirtualMachinePreference,
)
from virt_core.apis.preference import VirtualMachinePreferenceSpec
from virt_core.apis.vm import InstancetypeMatcher, InstancetypeStatusRef, PreferenceMatcher, VirtualMachine

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)
Matcher = InstancetypeMatcher | PreferenceMatcher
Type = VirtualMachineInstancetype | VirtualMachineClusterInstancetype
Preference = VirtualMachinePreference | VirtualMachineClusterPreference

_INSTANCETYPES: dict[str, type[Type]] = {
    "virtualmachineinstancetype": VirtualMachineInstancetype,
    "virtualmachineclusterinstancetype": VirtualMachineClusterInstancetype,
}
_PREFERENCES: dict[str, type[Preference]] = {
    "virtualmachinepreference": VirtualMachinePreference,
    "virtualmachineclusterpreference": VirtualMachineClusterPreference,
}


class Lookup(Protocol):
    """The way to a cluster's objects. None: there is no such object."""

    def get(self, cls: type[T], name: str, namespace: str = "") -> T | None:
        """An instance type, a preference, a ControllerRevision or a PersistentVolumeClaim."""

    def document(self, kind: str, name: str, namespace: str) -> dict[str, Any] | None:
        """A DataVolume, DataSource or VolumeSnapshot, as JSON: their add-ons may not be installed."""


class NotFoundError(LookupError):
    """What a VM names is not there, or is of no kind that could be."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class Found:
    """What holds for a VM. Shared with caches: never change it."""

    instancetype: VirtualMachineInstancetypeSpec | None = None
    preference: VirtualMachinePreferenceSpec | None = None


def resolve(vm: VirtualMachine, lookup: Lookup) -> Found:
    """Raises NotFoundError, and what the lookup raises."""
    return Found(find_instancetype(vm, lookup), find_preference(vm, lookup))


def find_instancetype(vm: VirtualMachine, lookup: Lookup) -> VirtualMachineInstancetypeSpec | None:
    matcher = vm.spec.instancetype
    if matcher is None:
        return None
    if name := captured(matcher, vm.status.instancetype_ref):
        revision = _revision(vm, name, "spec.instancetype", lookup)
        return from_revision(revision, VirtualMachineInstancetypeSpec, "spec.instancetype")
    return instancetype_object(vm, matcher, lookup).spec


def find_preference(vm: VirtualMachine, lookup: Lookup) -> VirtualMachinePreferenceSpec | None:
    matcher = vm.spec.preference
    if matcher is None:
        return None
    if name := captured(matcher, vm.status.preference_ref):
        revision = _revision(vm, name, "spec.preference", lookup)
        return from_revision(revision, VirtualMachinePreferenceSpec, "spec.preference")
    return preference_object(vm, matcher, lookup).spec


def captured(matcher: Matcher, ref: InstancetypeStatusRef | None) -> str:
    """The revision that holds: the one the VM asks for, else the one that was stored for what it names now."""
    if matcher.revision_name:
        return matcher.revision_name
    if ref is None or ref.controller_revision_ref is None or ref.name != matcher.name:
        return ""
    same = kind_key(ref.kind, matcher) == kind_key(matcher.kind, matcher)
    return ref.controller_revision_ref.name if same else ""


def kind_key(kind: str, matcher: Matcher) -> str:
    """People also write the plural and any case; nothing means the cluster's."""
    default = "virtualmachineclusterinstancetype"
    if isinstance(matcher, PreferenceMatcher):
        default = "virtualmachineclusterpreference"
    return kind.lower().removesuffix("s") or default


def class_of(kind: str, matcher: Matcher) -> type[Type | Preference] | None:
    """What a matcher's kind stands for, if anything."""
    if isinstance(matcher, PreferenceMatcher):
        return _PREFERENCES.get(kind_key(kind, matcher))
    return _INSTANCETYPES.get(kind_key(kind, matcher))


def instancetype_object(vm: VirtualMachine, matcher: InstancetypeMatcher, lookup: Lookup) -> Type:
    """The object that a matcher names."""
    cls = _INSTANCETYPES.get(kind_key(matcher.kind, matcher))
    if cls is None:
        raise NotFoundError("spec.instancetype.kind", f"{matcher.kind!r} is not a kind of instance type")
    found = lookup.get(cls, matcher.name, vm.metadata.namespace if cls is VirtualMachineInstancetype else "")
    if found is None:
        raise NotFoundError("spec.instancetype", f"there is no {cls.__name__} {matcher.name!r}")
    return found


def preference_object(vm: VirtualMachine, matcher: PreferenceMatcher, lookup: Lookup) -> Preference:
    """The object that a matcher names."""
    cls = _PREFERENCES.get(kind_key(matcher.kind, matcher))
    if cls is None:
        raise NotFoundError("spec.preference.kind", f"{matcher.kind!r} is not a kind of preference")
    found = lookup.get(cls, matcher.name, vm.metadata.namespace if cls is VirtualMachinePreference else "")
    if found is None:
        raise NotFoundError("spec.preference", f"there is no {cls.__name__} {matcher.name!r}")
    return found


def _revision(vm: VirtualMachine, name: str, field: str, lookup: Lookup) -> ControllerRevision:
    revision = lookup.get(ControllerRevision, name, vm.metadata.namespace)
    if revision is None:
        raise NotFoundError(f"{field}.revisionName", f"there is no ControllerRevision {name!r}")
    return revision


def from_revision(revision: ControllerRevision, cls: type[S], field: str) -> S:
    """The spec that was stored. Unknown fields of another version are left out."""
    data = revision.data or {}
    try:
        return from_plain(data.get("spec") or {}, cls)
    except msgspec.ValidationError as error:
        words = f"ControllerRevision {revision.metadata.name!r} cannot be read: {error}"
        raise NotFoundError(field, words) from error
