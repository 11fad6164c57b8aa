"""What this machine has, and what of it a node offers to Pods."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from virt_core.apis import names
from virt_core.apis.nodes import NodeSystemInfo
from virt_core.apis.quantity import Quantity, format_bytes
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
    #: Bytes of memory in huge pages, by their resource.
    huge_pages: dict[str, int] = field(default_factory=dict)

    @property
    def architecture(self) -> str:
        return architecture()

    def capacity(self) -> dict[str, Quantity]:
        return self._resources(self.memory)

    def allocatable(self) -> dict[str, Quantity]:
        """Memory in huge pages is there for who asks for it by its name, and for nobody else."""
        ordinary = self.memory - sum(self.huge_pages.values())
        return self._resources(max(ordinary - RESERVED_MEMORY, ordinary // 2))

    def _resources(self, memory: int) -> dict[str, Quantity]:
        return {
            "cpu": str(self.cpus),
            "memory": f"{memory >> 10}Ki",
            "ephemeral-storage": f"{self.disk >> 10}Ki",
            "pods": str(MAX_PODS),
            **{name: format_bytes(size) for name, size in self.huge_pages.items()},
            **self.devices,
        }


def architecture() -> str:
    return _ARCHITECTURES.get(platform.machine(), platform.machine())


def read_machine(
    directory: Path, meminfo: Path = Path("/proc/meminfo"), pages: Path = Path("/sys/kernel/mm/hugepages")
) -> Machine:
    """`directory` says on which file system Pods write."""
    status = os.statvfs(directory)
    return Machine(
        cpus=len(os.sched_getaffinity(0)),
        memory=_memory(meminfo.read_text()),
        disk=status.f_blocks * status.f_frsize,
        devices=offered(),
        huge_pages=dict(_huge_pages(pages)),
    )


def _huge_pages(directory: Path) -> Iterator[tuple[str, int]]:
    """Of each size that the kernel knows: one of which it holds none any more is told, too."""
    prefix = names.RESOURCE_PREFIX_HUGE_PAGES  # The kernel's directories begin as the resources do.
    for each in sorted(directory.glob(f"{prefix}*kB")):
        size = int(each.name.removeprefix(prefix).removesuffix("kB")) << 10
        yield prefix + format_bytes(size), size * int((each / "nr_hugepages").read_text())


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
