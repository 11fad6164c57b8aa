"""The validating webhook of VMs: the rules of the machine as it would run, and those of the VM itself."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from virt_api.admission.causes import Cause, Refused, invalid, not_supported
from virt_api.admission.cluster import Cluster
from virt_api.admission.defaults import apply_defaults
from virt_api.admission.instancetypes import Instancetypes
from virt_api.admission.metadata import template_metadata
from virt_api.admission.objects import (
    document_of,
    inside,
    is_terminating,
    name_of,
    namespace_of,
    part_of,
    read_member,
    user_of,
)
from virt_api.admission.review import Accepted
from virt_api.admission.rules import SPEC_RULES, broken_rules
from virt_api.admission.rules.base import Check
from virt_api.admission.validate import spec_warnings
from virt_api.admission.vm.base import VMCheck
from virt_api.admission.vm.requests import broken_requests
from virt_api.admission.vm.rules import VM_RULES
from virt_core.apis import names
from virt_core.apis.admission import AdmissionRequest
from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.support.table import TODAY, Support
from virt_core.apis.vm import VirtualMachine, VirtualMachineSpec, VirtualMachineStatus
from virt_core.apis.vmi import VirtualMachineInstanceSpec
from virt_core.apis.volumemoves import MIGRATION, REPLACEMENT
from virt_core.kube.configvalues import ClusterConfig

RUNNING_WARNING = "spec.running is deprecated, please use spec.runStrategy instead."
VOLUMES_WARNING = "spec.updateVolumesStrategy: {!r} is neither Migration nor Replacement, and counts as the latter."


class VMValidator:
    def __init__(
        self,
        config: Callable[[], ClusterConfig],
        types: Instancetypes,
        cluster: Cluster,
        trusted: frozenset[str],
        support: Support = TODAY,
    ) -> None:
        self._config, self._types, self._cluster, self._trusted = config, types, cluster, trusted
        self._support = support

    def __call__(self, request: AdmissionRequest) -> Accepted:
        """Raises Refused with every cause."""
        document, old = document_of(request.object), document_of(request.old_object)
        if is_terminating(document):
            return Accepted()
        spec = read_member(document, VirtualMachineSpec)
        namespace = namespace_of(request, document)
        causes = list(self._causes(request, spec, document, old, namespace))
        if causes:
            raise Refused(causes)
        warnings = [RUNNING_WARNING] if spec.running is not None else []
        if spec.update_volumes_strategy not in (None, MIGRATION, REPLACEMENT):
            warnings.append(VOLUMES_WARNING.format(spec.update_volumes_strategy))
        if spec.template is not None:
            warnings += spec_warnings(spec.template.spec, self._config(), "spec.template.spec")
        return Accepted(warnings=warnings)

    def _causes(
        self, request: AdmissionRequest, spec: VirtualMachineSpec, document: Any, old: Any, namespace: str
    ) -> Iterator[Cause]:
        # A new VM of ours is made from a pool, a snapshot or the patches of a clone: what is in it was said by users.
        trusted = request.operation == "UPDATE" and user_of(request) in self._trusted
        name = name_of(document)
        vm = VirtualMachine(metadata=ObjectMeta(name=name, namespace=namespace), spec=copy.deepcopy(spec))
        conflicts = self._types.expand(vm)
        yield from conflicts
        machine = vm.spec.template.spec if vm.spec.template else VirtualMachineInstanceSpec()
        config = self._config()
        if not conflicts:
            if _matchers(document) != _matchers(old):
                yield from _brought(self._support, spec, machine)
            yield from broken_spec(spec, machine, config, "spec", trusted=trusted)
        yield from _data_volume_namespaces(spec, old, namespace)
        if request.operation == "UPDATE":
            yield from frozen_while_busy(document, old)
        status = _status(document)
        if status is not None and status.volume_requests:
            yield from broken_requests(vm, status.volume_requests, self._cluster, config)


def _matchers(document: Any) -> tuple[Any, Any]:
    spec = part_of(document, "spec")
    return spec.get("instancetype"), spec.get("preference")


def _brought(support: Support, spec: VirtualMachineSpec, machine: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    """What is not built and asked for by the instance type or the preference, not by the VM itself."""
    if spec.instancetype is None and spec.preference is None:
        return
    own = {path for path, _ in support.of_machine(to_plain(spec.template.spec if spec.template else None))}
    where = "spec.instancetype" if spec.instancetype is not None else "spec.preference"
    for path, feature in support.of_machine(to_plain(machine)):
        if path not in own:
            yield not_supported(where, f"asks for {path}: {feature.refusal}")


def broken_spec(
    spec: VirtualMachineSpec, machine: VirtualMachineInstanceSpec, config: ClusterConfig, path: str, *, trusted: bool
) -> Iterator[Cause]:
    """All rules of a VM's spec; `machine` is its template with the instance type applied, and is filled in here."""
    apply_defaults(machine, config)
    metadata = spec.template.metadata if spec.template else None
    if metadata is not None:
        yield from template_metadata(f"{path}.template.metadata", metadata, config, trusted=trusted)
    yield from broken_rules(Check(machine, config, f"{path}.template.spec"), SPEC_RULES)
    check = VMCheck(spec, machine, config, path)
    for rule in VM_RULES:
        yield from rule(check)


def _data_volume_namespaces(spec: VirtualMachineSpec, old: Any, namespace: str) -> Iterator[Cause]:
    before = inside(old, "spec.dataVolumeTemplates")
    if before is not None and before == to_plain(spec).get("dataVolumeTemplates"):
        return
    for i, entry in enumerate(spec.data_volume_templates):
        if entry.metadata is not None and entry.metadata.namespace not in ("", namespace):
            yield invalid(f"spec.dataVolumeTemplates[{i}]", f"must be in the namespace of the VM, {namespace!r}")


def frozen_while_busy(new: dict[str, Any], old: dict[str, Any]) -> Iterator[Cause]:
    """A snapshot or a restore that is under way needs the VM to hold still."""
    status, after, before = part_of(new, "status"), part_of(new, "spec"), part_of(old, "spec")
    if status.get("snapshotInProgress"):
        if _volumes(after) != _volumes(before):
            yield not_supported("spec", "volumes cannot be changed while a snapshot is being taken")
        if _strategy(after) != _strategy(before):
            yield not_supported("spec", "the run strategy cannot be changed while a snapshot is being taken")
    halted = _strategy(after) == names.STRATEGY_HALTED
    if status.get("restoreInProgress") and not halted and _strategy(after) != _strategy(before):
        yield not_supported("spec", "the run strategy cannot be changed while a restore is under way")


def _volumes(spec: dict[str, Any]) -> Any:
    return inside(spec, "template.spec.volumes") or []


def _strategy(spec: dict[str, Any]) -> Any:
    running = spec.get("running")
    return spec.get("runStrategy") if running is None else (names.STRATEGY_ALWAYS if running else names.STRATEGY_HALTED)


def _status(document: dict[str, Any]) -> VirtualMachineStatus | None:
    """Only where it asks for something. Raises Refused."""
    status = document.get("status")
    if not isinstance(status, dict) or not status.get("volumeRequests"):
        return None
    try:
        return from_plain(status, VirtualMachineStatus)
    except msgspec.ValidationError as error:
        raise Refused([invalid("status", str(error))]) from error
