"""VirtualMachine: a machine that is kept, running or not."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, field

from virt_core.apis.base import REQUIRED, Struct
from virt_core.apis.devices import Disk
from virt_core.apis.hibernation import VirtualMachineHibernation
from virt_core.apis.meta import Condition, ObjectMeta, Time
from virt_core.apis.names import API_VERSION
from virt_core.apis.vmi import VirtualMachineInstanceSpec
from virt_core.apis.vmistatus import ChangedBlockTrackingStatus, StorageMigratedVolumeInfo
from virt_core.apis.volumes import DataVolumeSource, VMIPersistentVolumeClaim

_STOPPED = Meta(extra_json_schema={"default": "Stopped"})


class InstancetypeMatcher(Struct):
    """The instance type that gives the machine its size."""

    name: str = ""  #: Its name.
    kind: str = ""  #: VirtualMachineClusterInstancetype (default) or VirtualMachineInstancetype.
    revision_name: str = ""  #: The ControllerRevision that was captured.
    infer_from_volume: str = ""  #: Take the name from the labels of this volume.
    infer_from_volume_failure_policy: str | None = None  #: Reject (default) or Ignore.


class PreferenceMatcher(Struct):
    """The preference that fills in what was left open."""

    name: str = ""  #: Its name.
    kind: str = ""  #: VirtualMachineClusterPreference (default) or VirtualMachinePreference.
    revision_name: str = ""  #: The ControllerRevision that was captured.
    infer_from_volume: str = ""  #: Take the name from the labels of this volume.
    infer_from_volume_failure_policy: str | None = None  #: Reject (default) or Ignore.


class VirtualMachineInstanceTemplateSpec(Struct):
    """What the VM's VMI is made from."""

    metadata: ObjectMeta | None = None  #: Labels and annotations of the VMI.
    spec: VirtualMachineInstanceSpec = field(default_factory=VirtualMachineInstanceSpec)  #: The VMI's spec.


class DataVolumeTemplateDummyStatus(Struct):
    """Kept for old manifests; ignored."""


class DataVolumeTemplateSpec(Struct):
    """A DataVolume that is made with the VM."""

    api_version: str = ""  #: The DataVolume's API version.
    kind: str = ""  #: DataVolume.
    metadata: ObjectMeta | None = None  #: Its name, labels and annotations.
    spec: Annotated[dict[str, Any], REQUIRED] = field(default_factory=dict)  #: The DataVolume's spec.
    status: DataVolumeTemplateDummyStatus | None = None  #: Ignored.


class VirtualMachineSpec(Struct):
    """What a VM shall be."""

    #: What its VMI is made from.
    template: Annotated[VirtualMachineInstanceTemplateSpec | None, REQUIRED] = None
    running: bool | None = None  #: Deprecated: use runStrategy.
    run_strategy: str | None = None  #: Always, Halted, Manual, RerunOnFailure, Once or WaitAsReceiver.
    instancetype: InstancetypeMatcher | None = None  #: The instance type.
    preference: PreferenceMatcher | None = None  #: The preference.
    data_volume_templates: list[DataVolumeTemplateSpec] = []  #: DataVolumes that are made with it.
    update_volumes_strategy: str | None = None  #: Replacement or Migration.


class VirtualMachineStateChangeRequest(Struct):
    """A wish to start or stop."""

    action: str  #: Start or Stop.
    data: dict[str, str] = {}  #: Options, such as paused.
    uid: str | None = None  #: The VMI that a stop is meant for.


class HotplugVolumeSource(Struct):
    """A claim or a DataVolume. Exactly one."""

    persistent_volume_claim: VMIPersistentVolumeClaim | None = None  #: A claim.
    data_volume: DataVolumeSource | None = None  #: A DataVolume.


class AddVolumeOptions(Struct):
    """A volume to attach."""

    name: str  #: The volume's name.
    disk: Disk  #: How the guest sees it.
    volume_source: HotplugVolumeSource  #: Where its bytes are.
    dry_run: list[str] = []  #: All: only check.


class RemoveVolumeOptions(Struct):
    """A volume to detach."""

    name: str  #: The volume's name.
    dry_run: list[str] = []  #: All: only check.


class VirtualMachineVolumeRequest(Struct):
    """A wish to attach or detach. Exactly one."""

    add_volume_options: AddVolumeOptions | None = None  #: Attach.
    remove_volume_options: RemoveVolumeOptions | None = None  #: Detach.


class VolumeSnapshotStatus(Struct):
    """Whether a volume can be snapshotted."""

    name: str  #: The volume.
    enabled: bool  #: Whether it can.
    reason: str = ""  #: Why not.


class VirtualMachineStartFailure(Struct):
    """How often the VM failed to start."""

    consecutive_fail_count: int = 0  #: Failures in a row.
    last_failed_vmi_uid: str = field(default="", name="lastFailedVMIUID")  #: The last VMI that failed.
    retry_after_timestamp: Time | None = None  #: When the next try is due.


class VirtualMachineMemoryDumpRequest(Struct):
    """A wish for a memory dump, and how it goes."""

    claim_name: str  #: The claim that takes it.
    phase: str = ""  #: Associating, InProgress, Unmounting, Completed, Dissociating or Failed.
    remove: bool = False  #: Whether the claim shall be let go.
    start_timestamp: Time | None = None  #: When it began.
    end_timestamp: Time | None = None  #: When it ended.
    file_name: str | None = None  #: The file.
    message: str = ""  #: What went wrong.


class VolumeMigrationState(Struct):
    """Volumes that move to other claims."""

    migrated_volumes: list[StorageMigratedVolumeInfo] = []  #: The volumes.


class VolumeUpdateState(Struct):
    """A change of volumes that is under way."""

    volume_migration_state: VolumeMigrationState | None = None  #: The migration of volumes.


class ControllerRevisionRef(Struct):
    """A ControllerRevision."""

    name: str = ""  #: Its name.


class InstancetypeStatusRef(Struct):
    """The instance type or preference in use."""

    name: str = ""  #: Its name.
    kind: str = ""  #: Its kind.
    controller_revision_ref: ControllerRevisionRef | None = None  #: The revision that was captured.
    infer_from_volume: str = ""  #: The volume it was taken from.
    infer_from_volume_failure_policy: str | None = None  #: Reject or Ignore.


class VirtualMachineStatus(Struct):
    """What became of a VM."""

    snapshot_in_progress: str | None = None  #: The snapshot that is being taken.
    restore_in_progress: str | None = None  #: The restore that is under way.
    created: bool = False  #: Whether its VMI exists.
    ready: bool = False  #: Whether its VMI is ready.
    printable_status: Annotated[str, _STOPPED] = ""  #: Where it stands, in one word.
    conditions: list[Condition] = []  #: What is observed of it.
    state_change_requests: list[VirtualMachineStateChangeRequest] = []  #: Wishes to start or stop.
    volume_requests: list[VirtualMachineVolumeRequest] = []  #: Wishes to attach or detach volumes.
    volume_snapshot_statuses: list[VolumeSnapshotStatus] = []  #: Which volumes can be snapshotted.
    start_failure: VirtualMachineStartFailure | None = None  #: How often it failed to start.
    memory_dump_request: VirtualMachineMemoryDumpRequest | None = None  #: A memory dump.
    hibernation: VirtualMachineHibernation | None = None  #: The saved state of its memory and devices.
    observed_generation: int = 0  #: The generation that its VMI was made from.
    desired_generation: int = 0  #: The generation of the VM.
    run_strategy: str = ""  #: The strategy last acted on.
    volume_update_state: VolumeUpdateState | None = None  #: A change of volumes.
    changed_block_tracking: ChangedBlockTrackingStatus | None = None  #: Whether changed blocks are tracked.
    instancetype_ref: InstancetypeStatusRef | None = None  #: The instance type in use.
    preference_ref: InstancetypeStatusRef | None = None  #: The preference in use.


class VirtualMachine(Struct):
    """A virtual machine that is kept, running or not."""

    api_version: str = API_VERSION
    kind: str = "VirtualMachine"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    #: What it shall be.
    spec: Annotated[VirtualMachineSpec, REQUIRED] = field(default_factory=VirtualMachineSpec)
    status: VirtualMachineStatus = field(default_factory=VirtualMachineStatus)  #: What became of it.
