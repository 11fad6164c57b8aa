"""What this machine has, and what of it a node offers to Pods."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, field
from pathlib import Path

from virt_core.apis.nodes import NodeSystemInfo
from virt_core.apis.quantity import Quantity
from virt_local.node import kernel
from virt_local.node.devices import offered

MAX_PODS = 250
#: Kept back for the host and for our own processes.
RESERVED_MEMORY = 256 << 20
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Machine:
    cpus: int
    memory: int
    disk: int
    devices: dict[str, str] = field(default_factory=dict)

    @property
    def architecture(self) -> str:
        return architecture()

    def capacity(self) -> dict[str, Quantity]:
        return self._resources(self.memory)

    def allocatable(self) -> dict[str, Quantity]:
        return self._resources(max(self.memory - RESERVED_MEMORY, self.memory // 2))

    def _resources(self, memory: int) -> dict[str, Quantity]:
        return {
            "cpu": str(self.cpus),
            "memory": f"{memory >> 10}Ki",
            "ephemeral-storage": f"{self.disk >> 10}Ki",
            "pods": str(MAX_PODS),
            **self.devices,
        }


def architecture() -> str:
    return _ARCHITECTURES.get(platform.machine(), platform.machine())


def read_machine(directory: Path, meminfo: Path = Path("/proc/meminfo")) -> Machine:
    """`directory` says on which file system Pods write."""
    status = os.statvfs(directory)
    return Machine(
        cpus=len(os.sched_getaffinity(0)),
        memory=_memory(meminfo.read_text()),
        disk=status.f_blocks * status.f_frsize,
        devices=offered(),
    )


def _memory(meminfo: str) -> int:
    for line in meminfo.splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) << 10
    raise ValueError("/proc/meminfo has no MemTotal")


def system_info(version: str, runtime: str) -> NodeSystemInfo:
    return NodeSystemInfo(
        machine_id=_text(Path("/etc/machine-id")),
        system_uuid=_text(Path("/etc/machine-id")),
        boot_id=kernel.boot_id(),
        kernel_version=platform.release(),
        os_image=_pretty_name(_text(Path("/etc/os-release"))),
        container_runtime_version=runtime,
        kubelet_version=version,
        operating_system="linux",
        architecture=architecture(),
    )


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _pretty_name(os_release: str) -> str:
    for line in os_release.splitlines():
        name, _, value = line.partition("=")
        if name == "PRETTY_NAME":
            return value.strip('"')
    return "Linux"
