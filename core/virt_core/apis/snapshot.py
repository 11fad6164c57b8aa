"""Snapshots of VMs, what they hold, and the way back."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, field

from virt_core.apis.base import REQUIRED, Struct
from virt_core.apis.meta import Condition, ObjectMeta, Time
from virt_core.apis.names import LABEL_KEPT_STATE
from virt_core.apis.podparts import TypedLocalObjectReference

_KEY = "snapshot.kubevirt.io/"
FINALIZER_SNAPSHOT = f"{_KEY}vmsnapshot-protection"
FINALIZER_CONTENT = f"{_KEY}vmsnapshotcontent-protection"
FINALIZER_RESTORE = f"{_KEY}vmrestore-protection"
#: On a VM that is being saved.
FINALIZER_SOURCE = f"{_KEY}snapshot-source-protection"
LABEL_SOURCE_NAME, LABEL_SOURCE_NAMESPACE = f"{_KEY}source-vm-name", f"{_KEY}source-vm-namespace"
#: On a content: when the guest's file systems go on by themselves.
ANNOTATION_FROZEN_UNTIL = "virtpod.io/frozen-until"
#: Ours. On a snapshot: `true` asks for the memory, too. On a content: what is known of the state that it holds.
ANNOTATION_MEMORY = "virtpod.io/memory"
ANNOTATION_MACHINE_STATE = "virtpod.io/machine-state"

_RESTORE = "restore.kubevirt.io/"
LABEL_RESTORED_NAME, LABEL_RESTORED_NAMESPACE = f"{_RESTORE}source-vm-name", f"{_RESTORE}source-vm-namespace"
ANNOTATION_RESTORE_NAME = f"{_RESTORE}name"
#: On what a restore has made or changed: `mark_of` of it.
ANNOTATION_LAST_RESTORE = f"{_RESTORE}lastRestoreUID"
#: On a claim that goes to the VM as soon as there is one.
ANNOTATION_OWNED_BY_VM = f"{_RESTORE}owned-by-vm"
#: On the claim that kept a machine's state before.
ANNOTATION_CLEANUP_STATE = f"{_RESTORE}cleanup-backend-pvc"

#: Phases
IN_PROGRESS, SUCCEEDED, FAILED, DELETING = "InProgress", "Succeeded", "Failed", "Deleting"
#: Conditions
READY, PROGRESSING, FAILURE = "Ready", "Progressing", "Failure"
#: What may be said of how it was taken
ONLINE, PAUSED, PARTIAL = "Online", "Paused", "PartialSnapshot"
GUEST_AGENT, NO_GUEST_AGENT, QUIESCE_TIMEOUT = "GuestAgent", "NoGuestAgent", "QuiesceTimeout"
MEMORY = "Memory"
#: What becomes of the content, and how a restore deals with its target and its claims
RETAIN = "Retain"
STOP_TARGET, WAIT_GRACE_PERIOD, FAIL_IMMEDIATE = "StopTarget", "WaitGracePeriod", "FailImmediate"
IN_PLACE, PREFIX_TARGET_NAME, OWNED_BY_NOBODY = "InPlace", "PrefixTargetName", "None"

#: How long a snapshot may take where nobody says it.
DEADLINE_S = 300.0
_NAME_LIMIT, _HASH_DIGITS = 63, 8


class Error(Struct):
    """What went wrong."""

    time: Time | None = None  #: When.
    message: str | None = None  #: What.


class SnapshotVolumesLists(Struct):
    """Which volumes a snapshot holds."""

    included_volumes: list[str] = []  #: Those it holds.
    excluded_volumes: list[str] = []  #: Those it does not.


class SourceIndication(Struct):
    """Something to know about how a snapshot was taken."""

    indication: str  #: In one word.
    message: str  #: In a sentence.


class VirtualMachineSnapshotSpec(Struct):
    """What is snapshotted."""

    #: The VM.
    source: Annotated[TypedLocalObjectReference, REQUIRED] = field(default_factory=TypedLocalObjectReference)
    deletion_policy: str | None = None  #: Delete (default) or Retain: what becomes of the content.
    failure_deadline: str | None = None  #: How long it may take; 5m by default.


class VirtualMachineSnapshotStatus(Struct):
    """What became of a snapshot."""

    source_uid: str | None = field(default=None, name="sourceUID")  #: The VM's UID.
    virtual_machine_snapshot_content_name: str | None = None  #: The content.
    creation_time: Time | None = None  #: When it was taken.
    phase: str = ""  #: InProgress, Succeeded, Failed, Deleting or Unknown.
    ready_to_use: bool | None = None  #: Whether it can be restored.
    error: Error | None = None  #: What went wrong.
    conditions: list[Condition] = []  #: Ready, Progressing and Failure.
    indications: list[str] = []  #: Online, NoGuestAgent, GuestAgent, QuiesceTimeout, Paused or PartialSnapshot.
    source_indications: list[SourceIndication] = []  #: The indications, with sentences.
    snapshot_volumes: SnapshotVolumesLists | None = None  #: Which volumes it holds.


class VirtualMachineSnapshot(Struct):
    """A snapshot of a VM."""

    api_version: str = "snapshot.kubevirt.io/v1beta1"
    kind: str = "VirtualMachineSnapshot"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    #: What is snapshotted.
    spec: Annotated[VirtualMachineSnapshotSpec, REQUIRED] = field(default_factory=VirtualMachineSnapshotSpec)
    status: VirtualMachineSnapshotStatus = field(default_factory=VirtualMachineSnapshotStatus)  #: What became of it.


class SourceSpec(Struct):
    """What was snapshotted."""

    virtual_machine: dict[str, Any] | None = None  #: The VM as it was.


class VolumeBackup(Struct):
    """A volume as it was."""

    volume_name: str  #: The volume.
    persistent_volume_claim: dict[str, Any]  #: Its claim.
    volume_snapshot_name: str | None = None  #: The VolumeSnapshot that holds its bytes.


class VirtualMachineSnapshotContentSpec(Struct):
    """What a snapshot holds."""

    source: Annotated[SourceSpec, REQUIRED] = field(default_factory=SourceSpec)  #: The VM as it was.
    virtual_machine_snapshot_name: str | None = None  #: The snapshot.
    volume_backups: list[VolumeBackup] = []  #: The volumes.


class SnapshotVolumeStatus(Struct):
    """A VolumeSnapshot."""

    volume_snapshot_name: str  #: Its name.
    creation_time: Time | None = None  #: When it was taken.
    ready_to_use: bool | None = None  #: Whether it can be restored.
    error: Error | None = None  #: What went wrong.


class VirtualMachineSnapshotContentStatus(Struct):
    """What became of a snapshot's content."""

    creation_time: Time | None = None  #: When it was taken.
    ready_to_use: bool | None = None  #: Whether it can be restored.
    error: Error | None = None  #: What went wrong.
    volume_snapshot_status: list[SnapshotVolumeStatus] = []  #: The VolumeSnapshots.


class VirtualMachineSnapshotContent(Struct):
    """What a snapshot holds."""

    api_version: str = "snapshot.kubevirt.io/v1beta1"
    kind: str = "VirtualMachineSnapshotContent"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    #: What it holds.
    spec: Annotated[VirtualMachineSnapshotContentSpec, REQUIRED] = field(
        default_factory=VirtualMachineSnapshotContentSpec
    )
    #: What became of it.
    status: VirtualMachineSnapshotContentStatus = field(default_factory=VirtualMachineSnapshotContentStatus)


class VolumeRestoreOverride(Struct):
    """How one volume is restored."""

    volume_name: str = ""  #: The volume.
    restore_name: str = ""  #: The new claim's name.
    labels: dict[str, str] = {}  #: Labels of the new claim.
    annotations: dict[str, str] = {}  #: Annotations of the new claim.


class VirtualMachineRestoreSpec(Struct):
    """What is restored."""

    virtual_machine_snapshot_name: Annotated[str, REQUIRED] = ""  #: The snapshot.
    #: The VM.
    target: Annotated[TypedLocalObjectReference, REQUIRED] = field(default_factory=TypedLocalObjectReference)
    #: StopTarget, WaitGracePeriod (default), FailImmediate or WaitEventually.
    target_readiness_policy: Annotated[str | None, Meta(extra_json_schema={"default": "WaitGracePeriod"})] = None
    volume_restore_policy: str | None = None  #: RandomizeNames (default), InPlace or PrefixTargetName.
    volume_ownership_policy: str | None = None  #: Vm (default) or None.
    volume_restore_overrides: list[VolumeRestoreOverride] = []  #: How single volumes are restored.
    patches: list[str] = []  #: JSON patches of the VM's spec.


class VolumeRestore(Struct):
    """A volume that is restored."""

    volume_name: str  #: The volume.
    persistent_volume_claim: str  #: The new claim.
    volume_snapshot_name: str  #: Where its bytes come from.
    data_volume_name: str | None = None  #: The new DataVolume.


class VirtualMachineRestoreStatus(Struct):
    """What became of a restore."""

    restores: list[VolumeRestore] = []  #: The volumes.
    restore_time: Time | None = None  #: When it was done.
    deleted_data_volumes: list[str] = []  #: DataVolumes that were in the way.
    complete: bool | None = None  #: Whether it is done.
    conditions: list[Condition] = []  #: Ready, Progressing and Failure.


class VirtualMachineRestore(Struct):
    """Puts a VM back to a snapshot."""

    api_version: str = "snapshot.kubevirt.io/v1beta1"
    kind: str = "VirtualMachineRestore"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    #: What is restored.
    spec: Annotated[VirtualMachineRestoreSpec, REQUIRED] = field(default_factory=VirtualMachineRestoreSpec)
    status: VirtualMachineRestoreStatus = field(default_factory=VirtualMachineRestoreStatus)  #: What became of it.


def short_name(base: str, suffix: str) -> str:
    """Both with a dash; a long base is cut and made unique by a digest."""
    whole = f"{base}-{suffix}"
    if len(whole) <= _NAME_LIMIT:
        return whole
    room = _NAME_LIMIT - _HASH_DIGITS - 2 - len(suffix)
    return f"{base[:room]}-{_fnv1a(base)}-{suffix}" if room > 0 else f"{base[:54]}-{_fnv1a(whole)}"


def _fnv1a(text: str) -> str:
    value = 0x811C9DC5
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return f"{value:08x}"


def content_name(snapshot: VirtualMachineSnapshot) -> str:
    return f"vmsnapshot-content-{snapshot.metadata.uid}"


def volume_snapshot_name(snapshot: VirtualMachineSnapshot, volume: str) -> str:
    return f"vmsnapshot-{snapshot.metadata.uid}-volume-{volume}"


def state_volume(vm: str) -> str:
    """The name under which the claim with what firmware and TPM store goes."""
    return short_name(LABEL_KEPT_STATE, vm)


def mark_of(restore: VirtualMachineRestore) -> str:
    """Nobody can know it before the restore is there."""
    return f"{restore.metadata.name}-{restore.metadata.uid}"


def is_over(restore: VirtualMachineRestore) -> bool:
    """It is done, or has failed for good."""
    failed = any(each.type == FAILURE and each.status == "True" for each in restore.status.conditions)
    return bool(restore.status.complete) or failed
