"""What the cluster decides for all machines, as one read-only snapshot: `ClusterConfig`.

The defaults are those of a cluster that nobody has configured; gates that open a hole to the host are off.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from virt_core.apis.gates import enabled_gates
from virt_core.apis.meta import LabelSelector

_ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64", "s390x": "s390x"}
_MACHINE_TYPES = MappingProxyType({"amd64": "q35", "arm64": "virt", "s390x": "s390-ccw-virtio"})
_EMULATED_MACHINES = MappingProxyType(
    {"amd64": ("q35*", "pc-q35*"), "arm64": ("virt*",), "s390x": ("s390-ccw-virtio*",)}
)
_EMPTY: Mapping[str, Any] = MappingProxyType({})
#: Models that no guest should be built on any more.
OBSOLETE_CPU_MODELS = frozenset(
    {
        "486", "pentium", "pentium2", "pentium3", "pentiumpro", "coreduo", "n270", "core2duo", "Conroe", "athlon",
        "phenom", "qemu32", "qemu64", "kvm32", "kvm64", "Opteron_G1", "Opteron_G2",
    }
)  # fmt: skip
#: From this verbosity on a component tells every step.
DEBUG_VERBOSITY = 4

REFERENCE, EXPAND, EXPAND_ALL = "reference", "expand", "expandAll"


def host_architecture() -> str:
    """The architecture of this machine in Kubernetes' words."""
    return _ARCHITECTURES.get(platform.machine().lower(), "amd64")


@dataclass(frozen=True, slots=True)
class MigrationLimits:
    """The `migrations` block."""

    parallel_per_cluster: int = 5
    parallel_outbound_per_node: int = 2
    bandwidth: int = 0  #: Bytes a second; 0 has no limit.
    progress_timeout_s: int = 150
    completion_timeout_per_gib_s: int = 150
    max_downtime_ms: int = 900
    utility_volumes_timeout_s: int = 150
    node_drain_taint_key: str = "kubevirt.io/drain"
    allow_auto_converge: bool = False
    allow_post_copy: bool = False
    allow_workload_disruption: bool = False
    unsafe_migration_override: bool = False
    disable_tls: bool = False
    network: str = ""
    match_selinux_level: bool = True


@dataclass(frozen=True, slots=True)
class SMBios:
    """What the guest reads about its maker."""

    manufacturer: str = "KubeVirt"
    product: str = "None"
    version: str = ""
    sku: str = ""
    family: str = "KubeVirt"


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """One moment of the cluster's configuration. `raw` has all of it as JSON, for what has no field here."""

    default_architecture: str = field(default_factory=host_architecture)
    machine_types: Mapping[str, str] = field(default_factory=lambda: _MACHINE_TYPES)
    emulated_machines: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _EMULATED_MACHINES)
    feature_gates: frozenset[str] = field(default_factory=enabled_gates)  #: Those that are on.
    use_emulation: bool = False  #: Whether a machine may run without KVM where no node has it.
    # CPU and memory
    cpu_model: str = "host-model"
    obsolete_cpu_models: frozenset[str] = OBSOLETE_CPU_MODELS
    cpu_request: str = "100m"
    cpu_allocation_ratio: int = 10
    memory_overcommit: int = 100
    overhead_ratio: str = ""  #: Multiplies the memory that is booked beside the guest's.
    mem_balloon_stats_period_s: int = 10
    max_hotplug_ratio: int = 4
    max_cpu_sockets: int | None = None
    max_guest: str | int | float | None = None
    max_vcpus: int = 512
    even_parity: str | None = None  #: The KubeVirt object's annotation: emulator threads fill up to an even count.
    auto_cpu_limit_selector: LabelSelector | None = None  #: Namespaces whose machines get a CPU limit by themselves.
    live_update: bool = True  #: vmRolloutStrategy LiveUpdate; else changes wait for a restart.
    # Network
    default_network_interface: str = "bridge"
    permit_bridge_on_pod_network: bool = True
    network_bindings: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    # Life
    eviction_strategy: str | None = "None"
    migrations: MigrationLimits = field(default_factory=MigrationLimits)
    reference_policy: str = REFERENCE  #: How a VM keeps its instance type.
    smbios: SMBios = field(default_factory=SMBios)
    supported_agent_versions: tuple[str, ...] = ("2.*", "3.*", "4.*", "5.*")
    # Nodes and Pods
    image_pull_policy: str = "IfNotPresent"
    node_selectors: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    permitted_host_devices: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    persistent_reservation: bool = False
    #: The profile of system calls that launchers have, below the kubelet's directory of them; empty: the runtime's.
    seccomp_profile: str = ""
    minimum_tsc_hz: int = 0  #: 0: the lowest among the nodes.
    disable_free_page_reporting: bool = False
    disable_serial_console_log: bool = False
    # Storage
    pvc_tolerate_less_space_percent: int = 10
    minimum_reserve_pvc_bytes: int = 131072
    vm_state_storage_class: str = ""
    tracked_namespaces: LabelSelector | None = None  #: Whose VMs' changed blocks are tracked.
    tracked_vms: LabelSelector | None = None  #: Likewise, by the labels of VMs.
    # Logs: by component (virtAPI, virtController, virtHandler, virtLauncher) and by node
    log_verbosity: Mapping[str, int] = field(default_factory=lambda: _EMPTY)
    node_verbosity: Mapping[str, int] = field(default_factory=lambda: _EMPTY)
    raw: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)

    def has(self, gate: str) -> bool:
        """Whether a feature gate is on."""
        return gate in self.feature_gates

    def log_level(self, component: str, node: str = "") -> str | None:
        """The level for `virtHandler` (on a node); None where the configuration says nothing."""
        verbosity = self.node_verbosity.get(node) if node else None
        if verbosity is None:
            verbosity = self.log_verbosity.get(component)
        if verbosity is None:
            return None
        if verbosity >= DEBUG_VERBOSITY:
            return "debug"
        return "info" if verbosity > 0 else "warning"


#: What holds while there is no KubeVirt object: the machine decides about KVM.
UNCONFIGURED = ClusterConfig(use_emulation=True)
