"""Admission of VirtualMachineClones."""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Callable, Iterator
from typing import Any

from virt_api.admission.causes import Cause, Denied, Refused, invalid, one_of
from virt_api.admission.objects import document_of, is_terminating, read_member
from virt_api.admission.review import PatchOps
from virt_api.admission.vmpatches import broken_patches
from virt_core.apis import clonefilters, gates
from virt_core.apis.admission import AdmissionRequest
from virt_core.apis.clone import VirtualMachineCloneSpec
from virt_core.apis.names import GROUP
from virt_core.apis.podparts import TypedLocalObjectReference
from virt_core.kube.configvalues import ClusterConfig

VM, SNAPSHOT, SNAPSHOT_GROUP = "VirtualMachine", "VirtualMachineSnapshot", "snapshot.kubevirt.io"
VOLUME_NAMES = ("RandomizeNames", "PrefixTargetName")
_GATE = "Snapshot"
_SOURCES = {VM: GROUP, SNAPSHOT: SNAPSHOT_GROUP}
_MAC = re.compile(r"([0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}")
#: dmidecode and Windows show that much; a longer one is no serial number.
_LONGEST_SERIAL = 256


def mutate_clone(request: AdmissionRequest) -> PatchOps:
    """A clone without a target gets one with a name of its own."""
    document = document_of(request.object)
    spec = read_member(document, VirtualMachineCloneSpec)
    if spec.target is not None and spec.target.name:
        return []
    target: dict[str, Any] = dict(document["spec"].get("target") or {"apiGroup": GROUP, "kind": VM})
    suffix = "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(5))
    target["name"] = f"clone-{spec.source.name}-{suffix}"
    return [{"op": "add", "path": "/spec", "value": {**document["spec"], "target": target}}]


class CloneValidator:
    def __init__(self, config: Callable[[], ClusterConfig]) -> None:
        self._config = config

    def __call__(self, request: AdmissionRequest) -> None:
        """Raises Refused with every cause, or Denied."""
        document = document_of(request.object)
        if is_terminating(document):
            return
        spec = read_member(document, VirtualMachineCloneSpec)
        if request.operation == "CREATE" and not self._config().has(_GATE):
            raise Denied(gates.why_off(_GATE), 422, "Invalid")
        causes = list(_frozen(request) or _causes(spec))
        if causes:
            raise Refused(causes)


def _frozen(request: AdmissionRequest) -> list[Cause]:
    """What was asked for stays as it was asked for."""
    if request.operation != "UPDATE":
        return []
    same = document_of(request.object).get("spec") == document_of(request.old_object).get("spec")
    return [] if same else [invalid("spec", "cannot be changed")]


def _causes(spec: VirtualMachineCloneSpec) -> Iterator[Cause]:
    template = spec.template
    yield from _filters("spec.annotations", spec.annotation_filters)
    yield from _filters("spec.labels", spec.label_filters)
    yield from _filters("spec.template.annotations", template.annotation_filters)
    yield from _filters("spec.template.labels", template.label_filters)
    yield from _source(spec.source)
    if spec.target is not None:
        yield from _target(spec.target, spec.source)
    for name, mac in spec.new_mac_addresses.items():
        if mac and not _MAC.fullmatch(mac):
            yield invalid(f"spec.newMacAddresses.{name}", f"{mac!r} is not a MAC address")
    if spec.new_sm_bios_serial is not None and len(spec.new_sm_bios_serial) > _LONGEST_SERIAL:
        yield invalid("spec.newSMBiosSerial", f"must have at most {_LONGEST_SERIAL} characters")
    yield from broken_patches(spec.patches)
    if spec.volume_name_policy is not None and spec.volume_name_policy not in VOLUME_NAMES:
        yield invalid("spec.volumeNamePolicy", one_of(spec.volume_name_policy, VOLUME_NAMES))


def _filters(field: str, filters: list[str] | None) -> Iterator[Cause]:
    if filters is not None and len(filters) > clonefilters.MOST:
        yield invalid(field, f"has {len(filters)} filters, and at most {clonefilters.MOST} are tried")
        return
    for text in filters or ():
        if problem := clonefilters.fault_of(text):
            yield invalid(field, f"{text[:64]!r}: {problem}")


def _source(source: TypedLocalObjectReference) -> Iterator[Cause]:
    if source.kind not in _SOURCES:
        yield invalid("spec.Source.Kind", one_of(source.kind, tuple(_SOURCES)))
    if not source.api_group:
        yield invalid("spec.Source.APIGroup", "must be given")
    elif source.kind in _SOURCES and source.api_group != _SOURCES[source.kind]:
        yield invalid("spec.Source.APIGroup", f"must be {_SOURCES[source.kind]!r} for the kind {source.kind}")
    if not source.name:
        yield invalid("spec.Source.Name", "must be given")


def _target(target: TypedLocalObjectReference, source: TypedLocalObjectReference) -> Iterator[Cause]:
    if target.kind != VM:
        yield invalid("spec.Target.Kind", one_of(target.kind, (VM,)))
    if target.api_group not in (None, "", GROUP):
        yield invalid("spec.Target.APIGroup", one_of(target.api_group, (GROUP,)))
    if (target.kind, target.name) == (source.kind, source.name):
        yield invalid("spec.target.name", "must differ from spec.source.name")
