"""The mutating webhook of VMs: names instead of guesses, and the few defaults that a VM keeps for all its lives."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

from virt_api.admission.asuser import AsUser
from virt_api.admission.causes import Cause, Denied, Refused, invalid
from virt_api.admission.cluster import Cluster
from virt_api.admission.document import without_fractions
from virt_api.admission.instancetypes import Instancetypes
from virt_api.admission.objects import (
    document_of,
    is_terminating,
    labels_of,
    metadata_of,
    name_of,
    namespace_of,
    read_member,
    with_finalizer,
)
from virt_api.admission.review import PatchOps
from virt_api.admission.vm.matchers import broken_matchers
from virt_core.apis import names
from virt_core.apis.admission import AdmissionRequest
from virt_core.apis.base import to_plain
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.preference import VirtualMachinePreferenceSpec
from virt_core.apis.vm import VirtualMachine, VirtualMachineSpec
from virt_core.kube.configvalues import ClusterConfig

_ARCHITECTURE_LABEL = "template.kubevirt.io/architecture"
_ARCHITECTURES = ("amd64", "arm64", "s390x")

Document = dict[str, Any]


class VMMutator:
    def __init__(
        self,
        config: Callable[[], ClusterConfig],
        types: Instancetypes,
        cluster: Cluster,
        ours: frozenset[str] = frozenset(),
    ) -> None:
        self._config, self._types, self._cluster, self._ours = config, types, cluster, ours

    def __call__(self, request: AdmissionRequest) -> PatchOps:
        """The patch. Raises Refused or Denied."""
        document = document_of(request.object)
        if is_terminating(document):
            return []
        spec = read_member(document, VirtualMachineSpec)
        if causes := [*broken_matchers(spec, _old_spec(request)), *_misshapen(spec)]:
            raise Refused(causes)
        metadata = ObjectMeta(name=name_of(document), namespace=namespace_of(request, document))
        vm = VirtualMachine(metadata=metadata, spec=spec)
        seen = AsUser(self._cluster, request.user_info, metadata.namespace, self._ours)
        changed = dict(without_fractions(document["spec"], VirtualMachineSpec))
        if _guesses(spec):
            vm = self._types.infer(vm, seen)
            _take_matchers(changed, vm.spec)
        created = request.operation == "CREATE"
        self._fill(changed, vm, seen, created=created)
        patch = [{"op": "replace", "path": "/spec", "value": changed}] if changed != document["spec"] else []
        return [*_finalizer(document), *patch] if created else patch

    def _fill(self, spec: Document, vm: VirtualMachine, seen: AsUser, *, created: bool) -> None:
        template = spec["template"] = dict(spec["template"])
        inner = template["spec"] = dict(template.get("spec") or {})
        domain = inner["domain"] = dict(inner.get("domain") or {})
        preference = self._types.preference(vm) if _is_open(spec, inner, domain) else None
        if preference is not None:
            _prefer(spec, inner, domain, preference)
        if created:
            firmware = domain["firmware"] = dict(domain.get("firmware") or {})
            for key in ("uuid", "serial"):
                firmware[key] = firmware.get(key) or str(uuid.uuid4())
        config = self._config()
        inner["architecture"] = inner.get("architecture") or _architecture_of(vm, seen, config)
        machine = domain["machine"] = dict(domain.get("machine") or {})
        machine["type"] = machine.get("type") or config.machine_types.get(inner["architecture"], "")
        if created:
            _remember_topology(template, inner["architecture"], machine["type"])


def _finalizer(document: Document) -> PatchOps:
    """The controller adds it to a VM that lacks it; a VM that is made with it needs one write less to start."""
    metadata, wanted = metadata_of(document), with_finalizer(document, names.FINALIZER_VM_CONTROLLER)
    return [{"op": "add", "path": "/metadata", "value": {**metadata, "finalizers": wanted}}]


def _old_spec(request: AdmissionRequest) -> VirtualMachineSpec | None:
    old = document_of(request.old_object)
    if request.operation != "UPDATE" or not old:
        return None
    try:
        return read_member(old, VirtualMachineSpec)
    except Refused:
        return None  # Stored before a rule was made; nothing to compare with.


def _misshapen(spec: VirtualMachineSpec) -> Iterator[Cause]:
    """A DataVolume's spec belongs to others, but what we look at in it must be what it seems."""
    for i, entry in enumerate(spec.data_volume_templates):
        for key in ("pvc", "storage", "source", "sourceRef"):
            if entry.spec.get(key) is not None and not isinstance(entry.spec[key], dict):
                yield invalid(f"spec.dataVolumeTemplates[{i}].spec.{key}", "must be an object")


def _guesses(spec: VirtualMachineSpec) -> bool:
    return any(matcher is not None and matcher.infer_from_volume for matcher in (spec.instancetype, spec.preference))


def _take_matchers(spec: Document, inferred: VirtualMachineSpec) -> None:
    """What the volumes said, instead of the question."""
    for key, matcher in (("instancetype", inferred.instancetype), ("preference", inferred.preference)):
        spec.pop(key, None)
        if matcher is not None:
            spec[key] = to_plain(matcher)
    if inferred.template is not None and inferred.template.spec.domain.memory is None:
        template = spec["template"] = dict(spec["template"])
        inner = template["spec"] = dict(template.get("spec") or {})
        inner["domain"] = {key: value for key, value in (inner.get("domain") or {}).items() if key != "memory"}


def _is_open(spec: Document, inner: Document, domain: Document) -> bool:
    """Whether a preference could still decide anything; most writes of a VM come long after that."""
    machine = domain.get("machine") or {}
    return not (inner.get("architecture") and machine.get("type")) or bool(spec.get("dataVolumeTemplates"))


def _prefer(spec: Document, inner: Document, domain: Document, preference: VirtualMachinePreferenceSpec) -> None:
    inner["architecture"] = inner.get("architecture") or preference.preferred_architecture or ""
    if preference.machine is not None and preference.machine.preferred_machine_type:
        machine = domain["machine"] = dict(domain.get("machine") or {})
        machine["type"] = machine.get("type") or preference.machine.preferred_machine_type
    storage_class = preference.volumes.preferred_storage_class_name if preference.volumes else ""
    if storage_class and spec.get("dataVolumeTemplates"):
        spec["dataVolumeTemplates"] = [_classed(entry, storage_class) for entry in spec["dataVolumeTemplates"]]


def _classed(entry: Document, storage_class: str) -> Document:
    wanted = dict(entry.get("spec") or {})
    for key in ("pvc", "storage"):
        if isinstance(wanted.get(key), dict) and not wanted[key].get("storageClassName"):
            wanted[key] = {**wanted[key], "storageClassName": storage_class}
    return {**entry, "spec": wanted}


def _remember_topology(template: Document, architecture: str, machine: str) -> None:
    """New machines number their PCI devices in the newest way, for ever."""
    if architecture not in ("", "amd64", "arm64") or not ("q35" in machine or machine.startswith("virt")):
        return
    metadata = template["metadata"] = dict(template.get("metadata") or {})
    annotations = metadata["annotations"] = dict(metadata.get("annotations") or {})
    annotations.setdefault(names.ANNOTATION_PCI_TOPOLOGY_VERSION, names.PCI_TOPOLOGY_V3)


def _architecture_of(vm: VirtualMachine, cluster: AsUser, config: ClusterConfig) -> str:
    """That of the image which the disk is made from, if its author may see that, else the cluster's."""
    for entry in vm.spec.data_volume_templates:
        reference = entry.spec.get("sourceRef")
        if isinstance(reference, dict) and reference.get("kind") == "DataSource":
            namespace = reference.get("namespace") or vm.metadata.namespace
            named = _label(cluster, str(reference.get("name") or ""), str(namespace))
            if named in _ARCHITECTURES:
                return named
    return config.default_architecture


def _label(cluster: AsUser, name: str, namespace: str) -> str:
    try:
        return labels_of(cluster.document("DataSource", name, namespace) or {}).get(_ARCHITECTURE_LABEL, "")
    except Denied as denied:
        if denied.code == 403:
            return ""
        raise
