"""The cluster's settings: spec.configuration of the KubeVirt object."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from virt_core.apis.base import Struct, Uint, Uint32
from virt_core.apis.configparts import (
    ChangedBlockTrackingSelectors,
    CommonInstancetypesDeployment,
    ConfidentialComputeConfiguration,
    HypervisorConfiguration,
    KSMConfiguration,
    MediatedDevicesConfiguration,
    PermittedHostDevices,
    PersistentReservationConfiguration,
    ReloadableComponentConfiguration,
    ResourceRequirementsWithoutClaims,
    SeccompConfiguration,
    SupportContainerResources,
    TLSConfiguration,
    VirtTemplateDeployment,
    VirtualMachineOptions,
)
from virt_core.apis.meta import LabelSelector
from virt_core.apis.migrationstate import MigrationConfiguration
from virt_core.apis.quantity import Quantity


class DiskVerification(Struct):
    """How disk images are looked at."""

    memory_limit: Quantity  #: The memory that it may take.


class LogVerbosity(Struct):
    """How much is logged, from 0 to 9."""

    virt_api: int = field(default=0, name="virtAPI")  #: By virt-api.
    virt_controller: int = 0  #: By virt-controller.
    virt_handler: int = 0  #: By virt-handler.
    virt_launcher: int = 0  #: By virt-launcher.
    virt_operator: int = 0  #: By the operator.
    virt_synchronization_controller: int = 0  #: By the synchronisation controller.
    node_verbosity: dict[str, int] = {}  #: By virt-handler, node by node.


class DeveloperConfiguration(Struct):
    """Settings for experts."""

    feature_gates: list[str] = []  #: Features that are switched on.
    disabled_feature_gates: list[str] = []  #: Features that are switched off.
    #: How much smaller than asked for a disk may be; 10 by default.
    pvc_tolerate_less_space_up_to_percent: Annotated[
        int | None, Meta(extra_json_schema={"minimum": 0, "maximum": 100})
    ] = None
    #: What stays free in a claim; 131072 by default.
    minimum_reserve_pvc_bytes: Uint | None = field(default=None, name="minimumReservePVCBytes")
    memory_overcommit: int | None = None  #: The guest's memory in percent of what is reserved; 100 by default.
    node_selectors: dict[str, str] = {}  #: Labels that nodes must have.
    use_emulation: bool = False  #: Emulate in software where the node has no KVM.
    cpu_allocation_ratio: int | None = None  #: vCPUs on a CPU; 10 by default.
    #: The lowest TSC frequency to count on.
    minimum_cluster_tsc_frequency: int | None = field(default=None, name="minimumClusterTSCFrequency")
    disk_verification: DiskVerification | None = None  #: How disk images are looked at.
    log_verbosity: LogVerbosity | None = None  #: How much is logged.
    cluster_profiler: bool = False  #: Offer the profiler.


class InterfaceBindingMigration(Struct):
    """How a binding migrates."""

    method: str = ""  #: link-refresh or nothing.


class InterfaceBindingPlugin(Struct):
    """A way to bind NICs that comes from outside."""

    sidecar_image: str = ""  #: The image of its sidecar.
    network_attachment_definition: str = ""  #: The network that its CNI plugin is called by.
    domain_attachment_type: str = ""  #: tap or managedTap.
    migration: InterfaceBindingMigration | None = None  #: How it migrates.
    downward_api: str = field(default="", name="downwardAPI")  #: device-info or nothing.
    compute_resource_overhead: ResourceRequirementsWithoutClaims | None = None  #: What it needs.


class NetworkConfiguration(Struct):
    """Defaults of networks."""

    default_network_interface: str = ""  #: The binding of a NIC that is added: bridge (default) or masquerade.
    #: Whether bridge may be used on the Pod network; true by default.
    permit_bridge_interface_on_pod_network: bool | None = None
    permit_slirp_interface: bool | None = None  #: Ignored.
    binding: dict[str, InterfaceBindingPlugin] = {}  #: Bindings that come from outside.


class ArchSpecificConfiguration(Struct):
    """Defaults of an architecture."""

    ovmf_path: str = ""  #: Where the UEFI firmware is.
    emulated_machines: list[str] = []  #: Machine types that are allowed.
    machine_type: str = ""  #: The default machine type.


class ArchConfiguration(Struct):
    """Defaults of the architectures."""

    amd64: ArchSpecificConfiguration | None = None  #: Of amd64.
    arm64: ArchSpecificConfiguration | None = None  #: Of arm64.
    ppc64le: ArchSpecificConfiguration | None = None  #: Ignored.
    s390x: ArchSpecificConfiguration | None = None  #: Of s390x.
    default_architecture: str = ""  #: The default architecture.


class LiveUpdateConfiguration(Struct):
    """How far machines may grow while running."""

    max_hotplug_ratio: Uint32 = 0  #: Times the size at start; 4 by default.
    max_cpu_sockets: Uint32 | None = None  #: Sockets, at most.
    max_guest: Quantity | None = None  #: Memory, at most.


class InstancetypeConfiguration(Struct):
    """How instance types are used."""

    reference_policy: str | None = None  #: reference (default), expand or expandAll.


class SMBiosConfiguration(Struct):
    """What SMBIOS tells the guest."""

    manufacturer: str = ""  #: The manufacturer.
    product: str = ""  #: The product.
    version: str = ""  #: The version.
    sku: str = ""  #: The stock keeping unit.
    family: str = ""  #: The family.


class KubeVirtConfiguration(Struct):
    """The cluster's settings."""

    additional_guest_memory_overhead_ratio: str | None = None  #: Times the overhead of a machine.
    api_configuration: ReloadableComponentConfiguration | None = None  #: virt-api.
    architecture_configuration: ArchConfiguration | None = None  #: Defaults of the architectures.
    #: Namespaces whose VMIs get CPU limits.
    auto_cpu_limit_namespace_label_selector: LabelSelector | None = field(
        default=None, name="autoCPULimitNamespaceLabelSelector"
    )
    #: VMs whose changed blocks are tracked.
    changed_block_tracking_label_selectors: ChangedBlockTrackingSelectors | None = None
    #: Whether common instance types are installed.
    common_instancetypes_deployment: CommonInstancetypesDeployment | None = None
    confidential_compute: ConfidentialComputeConfiguration | None = None  #: Memory encryption.
    controller_configuration: ReloadableComponentConfiguration | None = None  #: virt-controller.
    cpu_model: str = ""  #: The default CPU model.
    cpu_request: Quantity | None = None  #: What is reserved for a vCPU; 100m by default.
    default_runtime_class: str = ""  #: The runtime class of launcher Pods.
    developer_configuration: DeveloperConfiguration | None = None  #: Settings for experts.
    emulated_machines: list[str] = []  #: Machine types that are allowed. Deprecated.
    #: What a drain does: None (default), LiveMigrate, LiveMigrateIfPossible or External.
    eviction_strategy: str | None = None
    handler_configuration: ReloadableComponentConfiguration | None = None  #: virt-handler.
    hypervisors: list[HypervisorConfiguration] = []  #: The hypervisors; kvm by default.
    image_pull_policy: str = ""  #: Always, IfNotPresent (default) or Never.
    instancetype: InstancetypeConfiguration | None = None  #: How instance types are used.
    ksm_configuration: KSMConfiguration | None = None  #: Which nodes merge equal pages.
    live_update_configuration: LiveUpdateConfiguration | None = None  #: How far machines may grow while running.
    machine_type: str = ""  #: The default machine type. Deprecated.
    mediated_devices_configuration: MediatedDevicesConfiguration | None = None  #: Devices to make on nodes.
    mem_balloon_stats_period: Uint32 | None = None  #: Seconds between memory statistics; 10 by default, 0 is never.
    migrations: MigrationConfiguration | None = None  #: Migrations.
    min_cpu_model: str = field(default="", name="minCPUModel")  #: Ignored.
    network: NetworkConfiguration | None = None  #: Defaults of networks.
    #: CPU models that are not offered.
    obsolete_cpu_models: dict[str, bool] = field(default_factory=dict, name="obsoleteCPUModels")
    ovmf_path: str = ""  #: Where the UEFI firmware is. Deprecated.
    permitted_host_devices: PermittedHostDevices | None = None  #: Devices that guests may have.
    persistent_reservation_configuration: PersistentReservationConfiguration | None = None  #: SCSI reservations.
    role_aggregation_strategy: str | None = None  #: Whether the roles join the cluster's own.
    seccomp_configuration: SeccompConfiguration | None = None  #: The seccomp profile of launchers.
    selinux_launcher_type: str = ""  #: The SELinux type of launchers.
    smbios: SMBiosConfiguration | None = None  #: What SMBIOS tells the guest.
    support_container_resources: list[SupportContainerResources] = []  #: What helper containers may take.
    supported_guest_agent_versions: list[str] = []  #: Guest agents that are supported.
    tls_configuration: TLSConfiguration | None = None  #: TLS.
    virt_template_deployment: VirtTemplateDeployment | None = None  #: Whether VM templates are installed.
    virtual_machine_instances_per_node: int | None = None  #: VMIs on a node, at most.
    virtual_machine_options: VirtualMachineOptions | None = None  #: Defaults of machines.
    vm_rollout_strategy: str | None = None  #: LiveUpdate (default) or Stage.
    vm_state_storage_class: str = ""  #: The storage class of state that is kept.
    webhook_configuration: ReloadableComponentConfiguration | None = None  #: The webhooks.
