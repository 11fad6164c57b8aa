"""The status of a VMI."""

from __future__ import annotations

from msgspec import field

from virt_core.apis.base import Struct
from virt_core.apis.domain import Machine
from virt_core.apis.meta import Condition, Time
from virt_core.apis.migrationstate import VirtualMachineInstanceMigrationState
from virt_core.apis.quantity import Quantity


class Handoff(Struct):
    """A step of the start, or of a move, that is done: who did it, and when."""

    name: str  #: The step.
    owner: str  #: The program that owns it.
    time: Time  #: When it was done, with microseconds.
    message: str = ""  #: What is worth knowing about it.
    pod_uid: str = field(default="", name="podUID")  #: The Pod of a move that it was done for; none: the start.


class VirtualMachineInstancePhaseTransitionTimestamp(Struct):
    """When a phase began."""

    phase: str = ""  #: The phase.
    phase_transition_timestamp: Time | None = None  #: When it began.


class VirtualMachineInstanceNetworkInterface(Struct):
    """A NIC of the guest as it is."""

    ip_address: str = field(default="", name="ipAddress")  #: The first address.
    mac: str = ""  #: The MAC address.
    name: str = ""  #: The name in the spec.
    ip_addresses: list[str] = field(default_factory=list, name="ipAddresses")  #: All addresses.
    pod_interface_name: str = ""  #: The Pod's interface behind it.
    interface_name: str = ""  #: Its name in the guest.
    info_source: str = ""  #: Where this is known from: domain, guest-agent, multus-status.
    queue_count: int = 0  #: Its number of queues.
    link_state: str = ""  #: up or down.


class VirtualMachineInstanceGuestOSInfo(Struct):
    """What the guest agent says of the guest's system."""

    name: str = ""  #: The system's name.
    kernel_release: str = ""  #: The kernel's release.
    version: str = ""  #: The system's version.
    pretty_name: str = ""  #: Name and version for people.
    version_id: str = ""  #: The version for programs.
    kernel_version: str = ""  #: The kernel's version.
    machine: str = ""  #: The machine.
    id: str = ""  #: The system's name for programs.


class TopologyHints(Struct):
    """What the scheduler must know of the guest's clock."""

    tsc_frequency: int | None = None  #: The TSC frequency in Hz.


class CPUTopology(Struct):
    """Sockets, cores and threads."""

    cores: int = 0  #: Cores in a socket.
    sockets: int = 0  #: Sockets.
    threads: int = 0  #: Threads of a core.


class PodRoom(Struct):
    """The size of a machine for which its launcher Pod has the resources."""

    sockets: int = 0  #: CPU sockets.
    guest: Quantity | None = None  #: The guest's memory.


class MemoryStatus(Struct):
    """The guest's memory as it is."""

    guest_at_boot: Quantity | None = None  #: What it started with.
    guest_current: Quantity | None = None  #: What it has.
    guest_requested: Quantity | None = None  #: What was asked for.
    memory_overhead: Quantity | None = None  #: What the machine itself needs.


class PersistentVolumeClaimInfo(Struct):
    """A claim as the controller saw it."""

    claim_name: str = ""  #: The claim's name.
    access_modes: list[str] = []  #: Its access modes.
    volume_mode: str | None = None  #: Block or Filesystem.
    capacity: dict[str, Quantity] = {}  #: What it has.
    requests: dict[str, Quantity] = {}  #: What it asks for.
    preallocated: bool = False  #: Whether its space is taken beforehand.
    filesystem_overhead: str | None = None  #: The share that the filesystem takes.


class StorageMigratedVolumeInfo(Struct):
    """A volume that moves to another claim."""

    volume_name: str  #: The volume.
    source_pvc_info: PersistentVolumeClaimInfo | None = field(default=None, name="sourcePVCInfo")  #: From.
    destination_pvc_info: PersistentVolumeClaimInfo | None = field(default=None, name="destinationPVCInfo")  #: To.


class HotplugVolumeStatus(Struct):
    """The Pod that holds a hot-plugged volume."""

    attach_pod_name: str = ""  #: Its name.
    attach_pod_uid: str = field(default="", name="attachPodUID")  #: Its UID.


class DomainMemoryDumpInfo(Struct):
    """A memory dump."""

    start_timestamp: Time | None = None  #: When it began.
    end_timestamp: Time | None = None  #: When it ended.
    claim_name: str = ""  #: The claim that takes it.
    target_file_name: str = ""  #: The file.


class ContainerDiskInfo(Struct):
    """A container disk."""

    checksum: int = 0  #: Of the image below it, from the first move of the machine on.


class VolumeStatus(Struct):
    """A volume of the VMI as it is."""

    name: str  #: The volume.
    target: str = ""  #: The device in the guest.
    phase: str = ""  #: Pending, Bound, AttachedToNode, MountedToPod, Ready, Detaching and others.
    reason: str = ""  #: Why it is in this phase.
    message: str = ""  #: The same, as a sentence.
    size: int = 0  #: The size in bytes.
    persistent_volume_claim_info: PersistentVolumeClaimInfo | None = None  #: The claim behind it.
    hotplug_volume: HotplugVolumeStatus | None = None  #: If it was attached while running.
    memory_dump_volume: DomainMemoryDumpInfo | None = None  #: If it takes a memory dump.
    container_disk_volume: ContainerDiskInfo | None = None  #: If it is a container disk.


class KernelInfo(Struct):
    """The kernel."""

    checksum: int = 0  #: Its checksum.


class InitrdInfo(Struct):
    """The initial RAM disk."""

    checksum: int = 0  #: Its checksum.


class KernelBootStatus(Struct):
    """What was booted directly."""

    kernel_info: KernelInfo | None = None  #: The kernel.
    initrd_info: InitrdInfo | None = None  #: The initial RAM disk.


class BackupVolume(Struct):
    """A volume of a backup."""

    volume_name: str  #: The volume.


class BackupRequest(Struct):
    """What is asked of the node."""

    volume: str = ""  #: The utility volume that takes it.
    directory: str = ""  #: The directory in there.
    checkpoint: str = ""  #: The checkpoint that it makes.
    since: str = ""  #: The checkpoint since which changes count.
    skip_quiesce: bool = False  #: Do not freeze the guest's filesystems.
    keep: list[str] = []  #: Checkpoints that other backups build on.
    abort: bool = False  #: Give it up.


class BackupStatus(Struct):
    """A backup that runs."""

    backup_name: str = ""  #: Its name.
    start_timestamp: Time | None = None  #: When it began.
    end_timestamp: Time | None = None  #: When it ended.
    completed: bool = False  #: Whether it is done.
    failed: bool = False  #: Whether it failed.
    backup_msg: str = ""  #: What happened.
    checkpoint_name: str = ""  #: The checkpoint it made.
    quiesce_status: str = ""  #: Whether the guest's filesystems were frozen.
    volumes: list[BackupVolume] = []  #: The volumes.
    incremental: bool = False  #: Whether it holds only what has changed.
    broken: str = ""  #: Why it holds everything although only changes were asked for.
    request: BackupRequest | None = None  #: What is asked of the node.


class ChangedBlockTrackingStatus(Struct):
    """Whether changed blocks are tracked."""

    state: str = ""  #: PendingRestart, Initializing, Enabled, Disabled or empty.
    backup_status: BackupStatus | None = None  #: The backup that runs.


class VirtualMachineInstanceStatus(Struct):
    """What became of a VMI."""

    node_name: str = ""  #: The node it runs on.
    reason: str = ""  #: Why it is in this phase, in one word.
    conditions: list[Condition] = []  #: What is observed of it.
    phase: str = ""  #: Pending, Scheduling, Scheduled, Running, Succeeded, Failed, WaitingForSync or Unknown.
    phase_transition_timestamps: list[VirtualMachineInstancePhaseTransitionTimestamp] = []  #: When each phase began.
    handoffs: list[Handoff] = []  #: The steps of its start and of its moves, as they were done.
    interfaces: list[VirtualMachineInstanceNetworkInterface] = []  #: Its NICs.
    guest_os_info: VirtualMachineInstanceGuestOSInfo | None = field(default=None, name="guestOSInfo")  #: The guest.
    migration_state: VirtualMachineInstanceMigrationState | None = None  #: The last migration.
    migration_method: str = ""  #: LiveMigration or BlockMigration.
    migration_transport: str = ""  #: Unix.
    migrated_volumes: list[StorageMigratedVolumeInfo] = []  #: Volumes that move.
    qos_class: str | None = None  #: Guaranteed, Burstable or BestEffort.
    launcher_container_image_version: str = ""  #: The launcher's image.
    evacuation_node_name: str = ""  #: The node it must leave.
    active_pods: dict[str, str] = {}  #: Its Pods, by UID, and their nodes.
    provisioning_pod_uid: str = field(
        default="", name="provisioningPodUID"
    )  #: The Pod that is first to use its claims.
    volume_status: list[VolumeStatus] = []  #: Its volumes.
    kernel_boot_status: KernelBootStatus | None = None  #: What was booted directly.
    fs_freeze_status: str = ""  #: frozen, or empty.
    topology_hints: TopologyHints | None = None  #: Hints for the scheduler.
    virtual_machine_revision_name: str = ""  #: The revision of the VM it was made from.
    runtime_user: int | None = None  #: The user that runs it: 107.
    vsock_cid: int | None = field(default=None, name="VSOCKCID")  #: Its vsock address.
    selinux_context: str = ""  #: The launcher's SELinux label, or none.
    machine: Machine | None = None  #: The machine type that was chosen.
    current_cpu_topology: CPUTopology | None = field(default=None, name="currentCPUTopology")  #: The CPU as it is.
    memory: MemoryStatus | None = None  #: The memory as it is.
    pod_room: PodRoom | None = None  #: What the launcher Pod was last changed for; absent: what it was made for.
    changed_block_tracking: ChangedBlockTrackingStatus | None = None  #: Whether changed blocks are tracked.
