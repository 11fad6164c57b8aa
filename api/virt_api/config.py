"""What the cluster decides for all VMIs: defaults, limits and feature gates.

The constants are those of a KubeVirt cluster that nobody has configured; gates that open a hole to the host are off.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

_ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64", "s390x": "s390x"}

#: Gates that are on unless the cluster turns them off.
_DEFAULT_GATES = frozenset(
    {
        "ImageVolume", "GPUsWithDRA", "HostDevicesWithDRA", "DeclarativeHotplugVolumes", "PasstBinding", "RebootPolicy",
        "NodeRestriction", "NUMA", "WorkloadEncryptionSEV", "PanicDevices", "VideoConfig",
    }
)  # fmt: skip

_MACHINE_TYPES = MappingProxyType({"amd64": "q35", "arm64": "virt", "s390x": "s390-ccw-virtio"})
_EMULATED_MACHINES = MappingProxyType(
    {"amd64": ("q35*", "pc-q35*"), "arm64": ("virt*",), "s390x": ("s390-ccw-virtio*",)}
)


def host_architecture() -> str:
    """The architecture of this machine in Kubernetes' words."""
    return _ARCHITECTURES.get(platform.machine().lower(), "amd64")


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """Read-only; one for the process."""

    default_architecture: str = field(default_factory=host_architecture)
    machine_types: Mapping[str, str] = field(default_factory=lambda: _MACHINE_TYPES)
    emulated_machines: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _EMULATED_MACHINES)
    cpu_model: str = "host-model"
    eviction_strategy: str | None = "None"
    default_network_interface: str = "bridge"
    permit_bridge_on_pod_network: bool = True
    persistent_reservation: bool = False
    live_update: bool = True
    max_hotplug_ratio: int = 4
    max_vcpus: int = 512
    max_guest_vcpus: int = 4096
    feature_gates: frozenset[str] = _DEFAULT_GATES

    def has(self, gate: str) -> bool:
        return gate in self.feature_gates
