"""Backups of running VMs, and the checkpoints they build on."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from virt_core.apis.base import REQUIRED, Struct
from virt_core.apis.meta import Condition, ObjectMeta, Time
from virt_core.apis.podparts import TypedLocalObjectReference

COMPLETE, FAILED, PROGRESSING, QUIESCED = "Complete", "Failed", "Progressing", "Quiesced"
FULL, INCREMENTAL = "Full", "Incremental"
TRACKER = "VirtualMachineBackupTracker"
FINALIZER_BACKUP = "backup.kubevirt.io/vmbackup-protection"


class VirtualMachineBackupSpec(Struct):
    """What is backed up."""

    #: A VM or a VirtualMachineBackupTracker.
    source: Annotated[TypedLocalObjectReference, REQUIRED] = field(default_factory=TypedLocalObjectReference)
    mode: str | None = None  #: Push (default) or Pull.
    pvc_name: str | None = None  #: The claim that takes it.
    skip_quiesce: bool = False  #: Do not freeze the guest's filesystems.
    force_full_backup: bool = False  #: Take all blocks, not only changed ones.
    token_secret_ref: str = ""  #: The Secret with the token that a download must show.
    ttl_duration: str | None = None  #: How long it lasts.


class BackupVolumeInfo(Struct):
    """A volume of a backup."""

    volume_name: str  #: The volume.
    data_endpoint: str = ""  #: Where its bytes are.
    map_endpoint: str = ""  #: Where its changed blocks are listed.


class VirtualMachineBackupStatus(Struct):
    """What became of a backup."""

    type: str = ""  #: Full or Incremental.
    conditions: list[Condition] = []  #: Complete, Failed, Progressing and Quiesced.
    checkpoint_name: str | None = None  #: The checkpoint it made.
    endpoint_cert: str | None = None  #: The certificate to trust.
    included_volumes: list[BackupVolumeInfo] = []  #: The volumes.
    export_uid: str | None = field(default=None, name="exportUID")  #: The export that serves it.


class VirtualMachineBackup(Struct):
    """A backup of a running VM."""

    api_version: str = "backup.kubevirt.io/v1alpha1"
    kind: str = "VirtualMachineBackup"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    #: What is backed up.
    spec: Annotated[VirtualMachineBackupSpec, REQUIRED] = field(default_factory=VirtualMachineBackupSpec)
    status: VirtualMachineBackupStatus = field(default_factory=VirtualMachineBackupStatus)  #: What became of it.


class BackupCheckpoint(Struct):
    """A point in time that the next backup builds on."""

    name: str = ""  #: Its name.
    creation_time: Time | None = None  #: When it was made.
    volumes: list[BackupVolumeInfo] = []  #: The volumes.


class VirtualMachineBackupTrackerSpec(Struct):
    """Whose backups are tracked."""

    #: The VM.
    source: Annotated[TypedLocalObjectReference, REQUIRED] = field(default_factory=TypedLocalObjectReference)


class VirtualMachineBackupTrackerStatus(Struct):
    """Where the backups stand."""

    latest_checkpoint: BackupCheckpoint | None = None  #: The latest checkpoint.
    #: Whether the checkpoint must be told to the hypervisor again.
    checkpoint_redefinition_required: bool | None = None


class VirtualMachineBackupTracker(Struct):
    """Remembers the checkpoints of a VM's backups."""

    api_version: str = "backup.kubevirt.io/v1alpha1"
    kind: str = "VirtualMachineBackupTracker"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    #: Whose backups.
    spec: Annotated[VirtualMachineBackupTrackerSpec, REQUIRED] = field(default_factory=VirtualMachineBackupTrackerSpec)
    #: Where they stand.
    status: VirtualMachineBackupTrackerStatus = field(default_factory=VirtualMachineBackupTrackerStatus)


def is_over(backup: VirtualMachineBackup) -> bool:
    """It is there, or never will be."""
    return any(each.type in (COMPLETE, FAILED) and each.status == "True" for each in backup.status.conditions)
