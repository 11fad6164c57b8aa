"""Snapshots of VMs, what they hold, and the way back."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, field

from virt_core.apis.base import REQUIRED, Struct
from virt_core.apis.meta import Condition, ObjectMeta, Time
from virt_core.apis.podparts import TypedLocalObjectReference


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
