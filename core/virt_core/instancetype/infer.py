"""inferFromVolume: the instance type and preference that a volume's labels name.

The labels may be on the claim, on the DataVolume, on the DataSource that it is made from, or on the claim or snapshot
behind that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import InstancetypeMatcher, PreferenceMatcher, VirtualMachine
from virt_core.apis.volumes import Volume
from virt_core.instancetype.apply import copy_of
from virt_core.instancetype.find import Lookup

_LABEL = "instancetype.kubevirt.io/default-"
LABEL_INSTANCETYPE, LABEL_INSTANCETYPE_KIND = f"{_LABEL}instancetype", f"{_LABEL}instancetype-kind"
LABEL_PREFERENCE, LABEL_PREFERENCE_KIND = f"{_LABEL}preference", f"{_LABEL}preference-kind"
IGNORE = "Ignore"

Labels = dict[str, str]


class InferError(LookupError):
    """Nothing can be inferred. `ignorable`: with the policy Ignore the VM is taken without."""

    def __init__(self, field: str, message: str, *, ignorable: bool) -> None:
        super().__init__(message)
        self.field = field
        self.ignorable = ignorable


def infer(vm: VirtualMachine, lookup: Lookup) -> VirtualMachine:
    """The VM, or a copy in which the matchers have names. Raises InferError, and what the lookup raises."""
    kind, habit = vm.spec.instancetype, vm.spec.preference
    if not (kind and kind.infer_from_volume) and not (habit and habit.infer_from_volume):
        return vm
    copy = copy_of(vm)
    if kind and kind.infer_from_volume:
        _infer_instancetype(copy, kind, lookup)
    if habit and habit.infer_from_volume:
        _infer_preference(copy, habit, lookup)
    return copy


def _infer_instancetype(vm: VirtualMachine, matcher: InstancetypeMatcher, lookup: Lookup) -> None:
    ignore = matcher.infer_from_volume_failure_policy == IGNORE
    try:
        name, kind = _named(
            vm, matcher.infer_from_volume, "spec.instancetype", LABEL_INSTANCETYPE, LABEL_INSTANCETYPE_KIND, lookup
        )
    except InferError as error:
        if not (ignore and error.ignorable):
            raise
        vm.spec.instancetype = None
        return
    vm.spec.instancetype = InstancetypeMatcher(name=name, kind=kind)
    if ignore and vm.spec.template is not None:
        # The memory was only there in case nothing could be inferred.
        vm.spec.template.spec.domain.memory = None


def _infer_preference(vm: VirtualMachine, matcher: PreferenceMatcher, lookup: Lookup) -> None:
    try:
        name, kind = _named(
            vm, matcher.infer_from_volume, "spec.preference", LABEL_PREFERENCE, LABEL_PREFERENCE_KIND, lookup
        )
    except InferError as error:
        if matcher.infer_from_volume_failure_policy != IGNORE or not error.ignorable:
            raise
        vm.spec.preference = None
        return
    vm.spec.preference = PreferenceMatcher(name=name, kind=kind)


def _named(  # noqa: PLR0917 - two labels and where they are looked for
    vm: VirtualMachine, volume_name: str, field: str, name_label: str, kind_label: str, lookup: Lookup
) -> tuple[str, str]:
    volumes = vm.spec.template.spec.volumes if vm.spec.template is not None else []
    volume = next((each for each in volumes if each.name == volume_name), None)
    if volume is None:
        raise InferError(f"{field}.inferFromVolume", f"there is no volume {volume_name!r}", ignorable=False)
    try:
        for labels in _labels_of(vm, volume, lookup):
            if name_label in labels:
                return labels[name_label], labels.get(kind_label, "")
    except _MissingError as missing:
        raise InferError(f"{field}.inferFromVolume", str(missing), ignorable=missing.ignorable) from missing
    words = f"nothing behind volume {volume_name!r} has the label {name_label}"
    raise InferError(f"{field}.inferFromVolume", words, ignorable=True)


class _MissingError(Exception):
    def __init__(self, message: str, *, ignorable: bool = False) -> None:
        super().__init__(message)
        self.ignorable = ignorable


def _labels_of(vm: VirtualMachine, volume: Volume, lookup: Lookup) -> Iterator[Labels]:
    """The labels of all that is behind a volume, nearest first."""
    namespace = vm.metadata.namespace
    if volume.persistent_volume_claim is not None:
        yield _claim(volume.persistent_volume_claim.claim_name, namespace, lookup)
    elif volume.data_volume is not None:
        yield from _data_volume(vm, volume.data_volume.name, lookup)
    else:
        raise _MissingError(f"volume {volume.name!r} is neither a claim nor a DataVolume", ignorable=True)


def _claim(name: str, namespace: str, lookup: Lookup) -> Labels:
    claim = lookup.get(PersistentVolumeClaim, name, namespace)
    if claim is None:
        raise _MissingError(f"there is no PersistentVolumeClaim {namespace}/{name}")
    return claim.metadata.labels


def _data_volume(vm: VirtualMachine, name: str, lookup: Lookup) -> Iterator[Labels]:
    namespace = vm.metadata.namespace
    for template in vm.spec.data_volume_templates:
        if template.metadata is not None and template.metadata.name == name:
            yield template.metadata.labels
            yield from _source(template.spec, namespace, lookup)
            return
    found = lookup.document("DataVolume", name, namespace)
    if found is None:
        # DataVolumes may be collected once they are done; the claim has the same name.
        yield _claim(name, namespace, lookup)
        return
    yield _labels(found)
    yield from _source(found.get("spec") or {}, namespace, lookup)


def _source(spec: dict[str, Any], namespace: str, lookup: Lookup) -> Iterator[Labels]:
    source, ref = _map(spec.get("source")), _map(spec.get("sourceRef"))
    if source:
        yield from _claim_or_snapshot(source, namespace, lookup)
    elif ref.get("kind") == "DataSource":
        name, where = _place(ref, namespace)
        found = lookup.document("DataSource", name, where)
        if found is None:
            raise _MissingError(f"there is no DataSource {where}/{name}")
        yield _labels(found)
        yield from _claim_or_snapshot(_map(_map(found.get("spec")).get("source")), where, lookup)


def _claim_or_snapshot(source: dict[str, Any], namespace: str, lookup: Lookup) -> Iterator[Labels]:
    if claim := _map(source.get("pvc")):
        yield _claim(*_place(claim, namespace), lookup)
    elif snapshot := _map(source.get("snapshot")):
        name, where = _place(snapshot, namespace)
        found = lookup.document("VolumeSnapshot", name, where)
        if found is None:
            raise _MissingError(f"there is no VolumeSnapshot {where}/{name}")
        yield _labels(found)


def _map(value: Any) -> dict[str, Any]:
    """These documents belong to others, and their authors write what they like."""
    return value if isinstance(value, dict) else {}


def _place(reference: dict[str, Any], namespace: str) -> tuple[str, str]:
    return str(reference.get("name") or ""), str(reference.get("namespace") or namespace)


def _labels(document: dict[str, Any]) -> Labels:
    return (document.get("metadata") or {}).get("labels") or {}
