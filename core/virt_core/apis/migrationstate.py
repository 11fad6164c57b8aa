"""The state of a migration, shared by the status of VMIs and of migrations."""

from __future__ import annotations

from msgspec import field

from virt_core.apis.base import Struct
from virt_core.apis.meta import Time
from virt_core.apis.quantity import Quantity


class StallDetector(Struct):
    """When a migration counts as stalled."""

    stall_margin: int | None = None  #: How far below the best value still counts as progress.
    stall_progress_timeout: int | None = None  #: Seconds without progress.
    switchover_timeout: int | None = None  #: Seconds that the switch may take.
    search_local_minima: bool | None = None  #: Whether it waits for a good moment.
    completion_timeout_factor: Quantity | None = None  #: Times the timeout.
    ewma_alpha: Quantity | None = None  #: The weight of the newest value.
    patience_window_decay_factor: Quantity | None = None  #: How fast patience ends.
    precopy_possible_factor: Quantity | None = None  #: When pre-copy still can succeed.


class DowntimeTuning(Struct):
    """How the allowed downtime grows."""

    initial_ms: int | None = None  #: Milliseconds at first.
    steps: int | None = None  #: In how many steps it grows.
    start_after_iteration: int | None = None  #: After how many rounds it starts to grow.
    cooldown_seconds: int | None = None  #: Seconds between two steps.


class ExperimentalMigrationConfiguration(Struct):
    """Settings that may change."""

    stall_detector: StallDetector | None = None  #: When a migration counts as stalled.
    downtime_tuning: DowntimeTuning | None = None  #: How the allowed downtime grows.
    compression: str | None = None  #: none or zstd.


class MigrationConfiguration(Struct):
    """The settings that a migration runs with."""

    node_drain_taint_key: str | None = None  #: The taint of nodes that are drained.
    parallel_outbound_migrations_per_node: int | None = None  #: How many may leave a node at once.
    parallel_migrations_per_cluster: int | None = None  #: How many may run at once.
    allow_auto_converge: bool | None = None  #: Slow the guest down if it writes too fast.
    bandwidth_per_migration: Quantity | None = None  #: The limit in bytes a second; 0 is none.
    completion_timeout_per_gi_b: int | None = field(default=None, name="completionTimeoutPerGiB")  #: Seconds a GiB.
    max_downtime_ms: int | None = None  #: The longest stop in milliseconds.
    progress_timeout: int | None = None  #: Seconds without progress before it is given up.
    utility_volumes_timeout: int | None = None  #: Seconds to wait for utility volumes.
    unsafe_migration_override: bool | None = None  #: Migrate although it is unsafe.
    allow_post_copy: bool | None = None  #: Switch to post-copy if it takes too long.
    allow_workload_disruption: bool | None = None  #: Pause the guest if it takes too long.
    disable_tls: bool | None = field(default=None, name="disableTLS")  #: Send without encryption.
    network: str | None = None  #: The network to migrate over.
    match_se_linux_level_on_migration: bool | None = field(
        default=None, name="matchSELinuxLevelOnMigration"
    )  #: SELinux.
    experimental: ExperimentalMigrationConfiguration | None = None  #: Settings that may change.


class VirtualMachineInstanceMigrationSourceState(Struct):
    """The side that the machine leaves."""

    node: str = ""  #: The node.
    pod: str = ""  #: The launcher Pod.
    migration_uid: str | None = field(default=None, name="migrationUID")  #: The migration.
    domain_name: str | None = None  #: The domain.
    domain_namespace: str | None = None  #: Its namespace.
    sync_address: str | None = None  #: Where the other cluster reaches this side.
    persistent_state_pvc_name: str = field(default="", name="persistentStatePVCName")  #: The claim with its state.
    selinux_context: str = ""  #: The SELinux label.
    virtual_machine_instance_uid: str | None = field(default=None, name="virtualMachineInstanceUID")  #: The VMI.
    node_selectors: dict[str, str] = {}  #: What the target node must have.


class VirtualMachineInstanceMigrationTargetState(Struct):
    """The side that the machine moves to."""

    node: str = ""  #: The node.
    pod: str = ""  #: The launcher Pod.
    migration_uid: str | None = field(default=None, name="migrationUID")  #: The migration.
    domain_name: str | None = None  #: The domain.
    domain_namespace: str | None = None  #: Its namespace.
    sync_address: str | None = None  #: Where the other cluster reaches this side.
    persistent_state_pvc_name: str = field(default="", name="persistentStatePVCName")  #: The claim with its state.
    selinux_context: str = ""  #: The SELinux label.
    virtual_machine_instance_uid: str | None = field(default=None, name="virtualMachineInstanceUID")  #: The VMI.
    domain_ready_timestamp: Time | None = None  #: When the domain was ready.
    domain_detected: bool = False  #: Whether the domain was seen.
    node_address: str | None = None  #: The node's address.
    direct_migration_node_ports: dict[str, int] = {}  #: The ports to send to.
    attachment_pod_uid: str | None = field(default=None, name="attachmentPodUID")  #: The Pod of hot-plugged volumes.
    cpu_set: list[int] = []  #: The CPUs it is given.
    node_topology: str | None = None  #: The node's topology.


class VirtualMachineInstanceMigrationState(Struct):
    """A migration as it runs or ran."""

    start_timestamp: Time | None = None  #: When it began.
    end_timestamp: Time | None = None  #: When it ended.
    target_node_domain_ready_timestamp: Time | None = None  #: When the target was ready.
    target_node_domain_detected: bool = False  #: Whether the target was seen.
    target_node_address: str = ""  #: The target node's address.
    target_direct_migration_node_ports: dict[str, int] = {}  #: The ports to send to.
    target_node: str = ""  #: The target node.
    target_pod: str = ""  #: The target launcher Pod.
    target_attachment_pod_uid: str = field(default="", name="targetAttachmentPodUID")  #: The Pod of its volumes.
    source_node: str = ""  #: The source node.
    source_pod: str = ""  #: The source launcher Pod.
    completed: bool = False  #: Whether it is done.
    failed: bool = False  #: Whether it failed.
    abort_requested: bool = False  #: Whether it shall be given up.
    abort_status: str = ""  #: Aborting, Succeeded or Failed.
    failure_reason: str = ""  #: Why it failed.
    migration_uid: str = ""  #: The migration.
    mode: str = ""  #: PreCopy, PostCopy or Paused.
    migration_policy_name: str | None = None  #: The policy that applied.
    migration_configuration: MigrationConfiguration | None = None  #: The settings it runs with.
    target_cpu_set: list[int] = field(default_factory=list, name="targetCPUSet")  #: The CPUs of the target.
    target_node_topology: str = ""  #: The target node's topology.
    source_persistent_state_pvc_name: str = field(default="", name="sourcePersistentStatePVCName")  #: State, from.
    target_persistent_state_pvc_name: str = field(default="", name="targetPersistentStatePVCName")  #: State, to.
    source_state: VirtualMachineInstanceMigrationSourceState | None = None  #: The side it leaves.
    target_state: VirtualMachineInstanceMigrationTargetState | None = None  #: The side it moves to.
    migration_network_type: str = ""  #: Pod or Migration.
    target_memory_overhead: Quantity | None = None  #: What the target machine itself needs.
