"""Admission of VirtualMachineInstanceMigrations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from virt_api.admission.causes import Cause, Denied, Refused, forbidden, invalid, not_supported, required
from virt_api.admission.cluster import Cluster
from virt_api.admission.objects import (
    document_of,
    labels_of,
    metadata_of,
    namespace_of,
    read_member,
    user_of,
    with_finalizer,
)
from virt_api.admission.review import PatchOps
from virt_core.apis import names
from virt_core.apis.admission import AdmissionRequest
from virt_core.apis.facts import is_final
from virt_core.apis.migration import VirtualMachineInstanceMigration, VirtualMachineInstanceMigrationSpec
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.configvalues import ClusterConfig

GATE = "DecentralizedLiveMigration"
_LABEL = names.LABEL_MIGRATION_VMI_NAME
#: What a node's label may be: the selector becomes one of the target's Pod, and would be refused there.
_WORD = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY = re.compile(rf"(?:[a-z0-9](?:[-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_WORD}")
_SHOWN = 64
_VALUE = re.compile(rf"(?:{_WORD})?")


def mutate_migration(request: AdmissionRequest) -> PatchOps:
    """A label to find it by, and a finalizer, so that deleting it means cancelling it."""
    document = document_of(request.object)
    spec = read_member(document, VirtualMachineInstanceMigrationSpec)
    metadata = dict(metadata_of(document))
    metadata["labels"] = {**labels_of(document), _LABEL: spec.vmi_name}
    metadata["finalizers"] = with_finalizer(document, names.FINALIZER_MIGRATION)
    return [{"op": "add", "path": "/metadata", "value": metadata}]


class MigrationCreateValidator:
    def __init__(self, config: Callable[[], ClusterConfig], cluster: Cluster, controller_user: str) -> None:
        self._config, self._cluster, self._controller = config, cluster, controller_user

    def __call__(self, request: AdmissionRequest) -> None:
        """Raises Refused, or Denied when the VMI cannot migrate now."""
        document = document_of(request.object)
        spec = read_member(document, VirtualMachineInstanceMigrationSpec)
        if causes := list(self._causes(spec, user_of(request))):
            raise Refused(causes)
        namespace = namespace_of(request, document)
        self._migratable(spec, namespace)
        self._alone(spec.vmi_name, namespace)

    def _causes(self, spec: VirtualMachineInstanceMigrationSpec, user: str) -> Iterator[Cause]:
        if not spec.vmi_name:
            yield required("spec.vmiName", "must name the VMI to migrate")
        if spec.priority is not None and user != self._controller:
            yield forbidden("spec.migrationPriority", "can only be set by virt-controller")
        for key, value in spec.added_node_selector.items():
            if not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
                field = f"spec.addedNodeSelector[{key[:_SHOWN]}]"
                yield invalid(field, "must be a label and a value that a node can have")
        ends = {"sendTo": spec.send_to, "receive": spec.receive}
        for name, end in ends.items():
            if end is not None and not self._config().has(GATE):
                yield not_supported(f"spec.{name}", f"needs the feature gate {GATE}")
        if spec.send_to and spec.receive and spec.send_to.migration_id != spec.receive.migration_id:
            yield invalid("spec.sendTo.migrationID", "must equal receive.migrationID")

    def _migratable(self, spec: VirtualMachineInstanceMigrationSpec, namespace: str) -> None:
        name = spec.vmi_name
        vmi = self._cluster.get(VirtualMachineInstance, name, namespace)
        if vmi is None:
            raise Denied(f"there is no VMI {name!r} in namespace {namespace!r}")
        if is_final(vmi):
            raise Denied(f"VMI {name!r} has ended and cannot be migrated")
        condition = next((c for c in vmi.status.conditions if c.type == names.CONDITION_LIVE_MIGRATABLE), None)
        if condition is None or condition.status != names.FALSE:
            return
        across = (spec.send_to is None) != (spec.receive is None)
        if not (across and condition.reason == names.REASON_DISKS_NOT_MIGRATABLE):
            raise Denied(f"VMI {name!r} cannot be live-migrated: {condition.reason}: {condition.message}")

    def _alone(self, name: str, namespace: str) -> None:
        others = self._cluster.list(VirtualMachineInstanceMigration, namespace, f"{_LABEL}={name}")
        for other in others:
            if other.spec.vmi_name == name and other.status.phase not in names.FINAL_PHASES:
                raise Denied(f"VMI {name!r} is already being migrated by {other.metadata.name!r}")


def validate_migration_update(request: AdmissionRequest) -> None:
    """Raises Refused with every cause."""
    new, old = document_of(request.object), document_of(request.old_object)
    if causes := list(_changes(new, old)):
        raise Refused(causes)


def _changes(new: dict[str, Any], old: dict[str, Any]) -> Iterator[Cause]:
    if new.get("spec") != old.get("spec"):
        yield not_supported("spec", "a migration cannot be changed; delete it to cancel it")
    status = old.get("status")
    phase = status.get("phase") if isinstance(status, dict) else ""
    before = labels_of(old).get(_LABEL)
    if before is not None and labels_of(new).get(_LABEL) != before and phase not in names.FINAL_PHASES:
        yield not_supported("metadata.labels", f"{_LABEL} cannot be changed until the migration has ended")
