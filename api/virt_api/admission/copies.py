"""Admission of what copies a VM or its disks: snapshots, restores, exports, backups."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from virt_api.admission.causes import Cause, Denied, Refused, invalid, not_found, one_of, required
from virt_api.admission.cluster import Cluster
from virt_api.admission.objects import document_of, namespace_of, read_member
from virt_api.admission.vmpatches import broken_patches
from virt_core.apis import exportplan, gates
from virt_core.apis.admission import AdmissionRequest
from virt_core.apis.backup import (
    TRACKER,
    VirtualMachineBackup,
    VirtualMachineBackupSpec,
    VirtualMachineBackupTrackerSpec,
)
from virt_core.apis.backup import is_over as backup_is_over
from virt_core.apis.base import from_plain
from virt_core.apis.export import VirtualMachineExportSpec
from virt_core.apis.names import GROUP
from virt_core.apis.snapshot import (
    VirtualMachineRestore,
    VirtualMachineRestoreSpec,
    VirtualMachineSnapshot,
    VirtualMachineSnapshotContent,
    VirtualMachineSnapshotContentSpec,
    VirtualMachineSnapshotSpec,
    content_name,
    is_over,
    state_volume,
)
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.workloadupdate import seconds
from virt_core.kube.configvalues import ClusterConfig

VM = "VirtualMachine"
SNAPSHOT_GROUP, BACKUP_GROUP = "snapshot.kubevirt.io", "backup.kubevirt.io"
DELETION = ("Delete", "Retain")
READINESS = ("StopTarget", "WaitGracePeriod", "FailImmediate", "WaitEventually")
RESTORE_NAMES = ("RandomizeNames", "InPlace", "PrefixTargetName")
OWNERSHIP = ("Vm", "None")
_EXPORTS = {"PersistentVolumeClaim": "", "VirtualMachineSnapshot": SNAPSHOT_GROUP, VM: GROUP,
            "VirtualMachineBackup": BACKUP_GROUP}  # fmt: skip
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class Copies:
    """The webhooks of these kinds; one method each."""

    def __init__(self, config: Callable[[], ClusterConfig], cluster: Cluster) -> None:
        self._config, self._cluster = config, cluster

    def snapshot(self, request: AdmissionRequest) -> None:
        spec = read_member(document_of(request.object), VirtualMachineSnapshotSpec)
        self._gate(request, "Snapshot")
        _refuse(_frozen(request) or [*_vm_source("spec.source", spec.source), *_snapshot(spec)])

    def content(self, request: AdmissionRequest) -> None:
        spec = read_member(document_of(request.object), VirtualMachineSnapshotContentSpec)
        _refuse(_content(spec))

    def restore(self, request: AdmissionRequest) -> None:
        document = document_of(request.object)
        spec = read_member(document, VirtualMachineRestoreSpec)
        self._gate(request, "Snapshot")
        _refuse(_frozen(request) or [*_vm_source("spec.target", spec.target), *_restore(spec)])
        if request.operation == "CREATE":
            namespace = namespace_of(request, document)
            self._own_state(spec, namespace)
            self._one_restore(spec, namespace)

    def _own_state(self, spec: VirtualMachineRestoreSpec, namespace: str) -> None:
        """What a machine's firmware and TPM have stored is no other machine's. A snapshot may come later."""
        snapshot = self._cluster.get(VirtualMachineSnapshot, spec.virtual_machine_snapshot_name, namespace)
        if snapshot is None or snapshot.spec.source.name == spec.target.name:
            return
        content = self._cluster.get(VirtualMachineSnapshotContent, content_name(snapshot), namespace)
        held = [each.volume_name for each in content.spec.volume_backups] if content is not None else []
        if state_volume(snapshot.spec.source.name) in held:
            words = "what firmware and TPM of a machine have stored cannot be restored to another VM"
            _refuse([invalid("spec", words)])

    def _one_restore(self, spec: VirtualMachineRestoreSpec, namespace: str) -> None:
        for other in self._cluster.list(VirtualMachineRestore, namespace):
            if other.spec.target == spec.target and not is_over(other):
                _refuse(
                    [
                        invalid(
                            "spec.target", f"VirtualMachineRestore {other.metadata.name!r} is already restoring this VM"
                        )
                    ]
                )

    def export(self, request: AdmissionRequest) -> None:
        spec = read_member(document_of(request.object), VirtualMachineExportSpec)
        _refuse(_frozen(request) or _export(spec))

    def backup(self, request: AdmissionRequest) -> None:
        document = document_of(request.object)
        spec = read_member(document, VirtualMachineBackupSpec)
        self._gate(request, "IncrementalBackup")
        _refuse(_frozen(request) or _backup(spec))
        if request.operation == "CREATE":
            self._one_backup(spec, namespace_of(request, document))

    def _one_backup(self, spec: VirtualMachineBackupSpec, namespace: str) -> None:
        for other in self._cluster.list(VirtualMachineBackup, namespace):
            if other.spec.source == spec.source and not backup_is_over(other):
                _refuse(
                    [
                        invalid(
                            "spec.source",
                            f"VirtualMachineBackup {other.metadata.name!r} is already backing up this source",
                        )
                    ]
                )

    def tracker(self, request: AdmissionRequest) -> None:
        spec = read_member(document_of(request.object), VirtualMachineBackupTrackerSpec)
        self._gate(request, "IncrementalBackup")
        _refuse(_frozen(request) or _vm_source("spec.source", spec.source))

    def _gate(self, request: AdmissionRequest, gate: str) -> None:
        if request.operation == "CREATE" and not self._config().has(gate):
            raise Denied(gates.why_off(gate), 422, "Invalid")


def _refuse(causes: Any) -> None:
    if found := list(causes):
        raise Refused(found)


def _frozen(request: AdmissionRequest) -> list[Cause]:
    """What was asked for stays as it was asked for."""
    if request.operation != "UPDATE":
        return []
    same = document_of(request.object).get("spec") == document_of(request.old_object).get("spec")
    return [] if same else [invalid("spec", "cannot be changed")]


def _vm_source(field: str, source: Any) -> Iterator[Cause]:
    if source.api_group is None:
        yield not_found(f"{field}.apiGroup", "must be given")
    elif source.api_group != GROUP:
        yield invalid(f"{field}.apiGroup", one_of(source.api_group, (GROUP,)))
    elif source.kind != VM:
        yield invalid(f"{field}.kind", one_of(source.kind, (VM,)))
    if not source.name:
        yield required(f"{field}.name", "must be given")


def _snapshot(spec: VirtualMachineSnapshotSpec) -> Iterator[Cause]:
    if spec.deletion_policy is not None and spec.deletion_policy not in DELETION:
        yield invalid("spec.deletionPolicy", one_of(spec.deletion_policy, DELETION))
    try:
        seconds(spec.failure_deadline or "0s")
    except ValueError as error:
        yield invalid("spec.failureDeadline", str(error))


def _content(spec: VirtualMachineSnapshotContentSpec) -> Iterator[Cause]:
    """Whoever restores from it reads it as what it says it is."""
    try:
        from_plain(spec.source.virtual_machine or {}, VirtualMachine)
    except msgspec.ValidationError as error:
        yield invalid("spec.source.virtualMachine", str(error))
    for i, backup in enumerate(spec.volume_backups):
        field = f"spec.volumeBackups[{i}].persistentVolumeClaim"
        try:
            claim = from_plain(backup.persistent_volume_claim, PersistentVolumeClaim)
        except msgspec.ValidationError as error:
            yield invalid(field, str(error))
            continue
        if not claim.metadata.name:
            yield required(f"{field}.metadata.name", "must be given")


def _restore(spec: VirtualMachineRestoreSpec) -> Iterator[Cause]:
    if not spec.virtual_machine_snapshot_name:
        yield required("spec.virtualMachineSnapshotName", "must be given")
    for name, value, allowed in (
        ("targetReadinessPolicy", spec.target_readiness_policy, READINESS),
        ("volumeRestorePolicy", spec.volume_restore_policy, RESTORE_NAMES),
        ("volumeOwnershipPolicy", spec.volume_ownership_policy, OWNERSHIP),
    ):
        if value is not None and value not in allowed:
            yield invalid(f"spec.{name}", one_of(value, allowed))
    for i, override in enumerate(spec.volume_restore_overrides):
        if not override.volume_name:
            yield required(f"spec.volumeRestoreOverrides[{i}].volumeName", "must be given")
        elif not (override.restore_name or override.labels or override.annotations):
            yield invalid(f"spec.volumeRestoreOverrides[{i}]", "must give restoreName, labels or annotations")
    yield from broken_patches(spec.patches)


def _export(spec: VirtualMachineExportSpec) -> Iterator[Cause]:
    source = spec.source
    if source.kind not in _EXPORTS:
        yield invalid("spec.source.kind", one_of(source.kind, tuple(_EXPORTS)))
        return
    if not source.name:
        yield invalid("spec.source.name", "must be given")
    if (source.api_group or "") != _EXPORTS[source.kind]:
        yield invalid("spec.source.APIGroup", f"must be {_EXPORTS[source.kind]!r} for the kind {source.kind}")
    elif source.kind == "VirtualMachineBackup":
        yield invalid("spec.source.kind", "the export of a VirtualMachineBackup is not built yet")
    yield from _export_ends(spec)


def _export_ends(spec: VirtualMachineExportSpec) -> Iterator[Cause]:
    """Who gets in, and for how long."""
    if spec.token_secret_ref is not None and not _NAME.fullmatch(spec.token_secret_ref):
        yield invalid("spec.tokenSecretRef", f"{spec.token_secret_ref!r} is not the name of a Secret")
    yield from _ttl(spec.ttl_duration)


def _ttl(duration: str | None) -> Iterator[Cause]:
    if duration is None:
        return
    try:
        seconds = exportplan.seconds_of(duration)
    except ValueError as error:
        yield invalid("spec.ttlDuration", str(error))
        return
    if not 0 < seconds <= exportplan.MAX_TTL_S:
        yield invalid("spec.ttlDuration", f"must be more than 0 and at most {exportplan.MAX_TTL_S / 3600:.0f}h")


def _backup(spec: VirtualMachineBackupSpec) -> Iterator[Cause]:
    source = spec.source
    groups = {VM: GROUP, TRACKER: BACKUP_GROUP}
    if source.kind not in groups:
        yield invalid("spec.source.kind", one_of(source.kind, tuple(groups)))
    elif source.api_group != groups[source.kind]:
        yield invalid("spec.source.apiGroup", f"must be {groups[source.kind]!r} for the kind {source.kind}")
    if not source.name:
        yield required("spec.source.name", "must be given")
    if spec.mode is not None and spec.mode not in ("Push", "Pull"):
        yield invalid("spec.mode", one_of(spec.mode, ("Push", "Pull")))
    if not spec.pvc_name:
        yield required("spec.pvcName", "must be given")
    if spec.mode == "Pull":
        yield invalid("spec.mode", "Pull is not built yet; a backup is pushed into a claim")
    yield from _ttl(spec.ttl_duration)
