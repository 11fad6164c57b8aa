"""What a guest may know of its node, and of itself as the node sees it: nothing of other machines, and nothing that the
launcher's container does not see anyway, so no privilege is needed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from virt_core.apis import names
from virt_launcher.hostmetrics.document import HOST, VM, Metric
from virt_launcher.hypervisor.ports import Hypervisor

_KIB = "KiB"
_NANOSECONDS = 10**9
_MAX_BYTES = 1 << 20


class Figures:
    def __init__(self, node: str, hypervisor: Hypervisor, proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> None:
        self._node, self._hypervisor, self._proc, self._sys = node, hypervisor, proc, sys

    def collect(self) -> list[Metric]:
        """Raises LauncherError, OSError."""
        return [*self._fixed(), *_machine(self._hypervisor.stats()), *self._processor(), *self._memory(), _now()]

    def _fixed(self) -> Iterator[Metric]:
        version = self._hypervisor.qemu_version()
        yield Metric(HOST, "HostName", self._node)
        yield Metric(HOST, "HostSystemInfo", "linux")
        yield Metric(HOST, "VirtualizationVendor", names.GROUP)
        yield Metric(HOST, "VirtProductInfo", f"qemu-{version // 10**6}.{version // 1000 % 1000}.{version % 1000}")

    def _processor(self) -> Iterator[Metric]:
        packages = {_text(file) for file in self._sys.glob("devices/system/cpu/cpu[0-9]*/topology/physical_package_id")}
        yield Metric(HOST, "NumberOfPhysicalCPUs", len(packages))
        user, nice, system = (int(word) for word in _text(self._proc / "stat").split()[1:4])
        yield Metric(HOST, "TotalCPUTime", (user + nice + system) / os.sysconf("SC_CLK_TCK"), "s")

    def _memory(self) -> Iterator[Metric]:
        found = _numbers(self._proc / "meminfo")
        free, swap_free = found["MemFree"], found.get("SwapFree", 0)
        caches = found.get("Buffers", 0) + found.get("Cached", 0)
        used = found["MemTotal"] - free - caches
        swap = found.get("SwapTotal", 0) - found.get("SwapCached", 0)
        yield Metric(HOST, "FreePhysicalMemory", free, _KIB)
        yield Metric(HOST, "FreeVirtualMemory", free + swap_free, _KIB)
        yield Metric(HOST, "MemoryAllocatedToVirtualServers", max(used, 0), _KIB)
        yield Metric(HOST, "UsedVirtualMemory", max(used + swap, 0), _KIB)
        swapped, page = _numbers(self._proc / "vmstat"), os.sysconf("SC_PAGESIZE") // 1024
        yield Metric(HOST, "PagedInMemory", swapped.get("pswpin", 0) * page, _KIB)
        yield Metric(HOST, "PagedOutMemory", swapped.get("pswpout", 0) * page, _KIB)


def _machine(stats: dict[str, Any]) -> Iterator[Metric]:
    nanoseconds = sum(value for key, value in stats.items() if key.startswith("vcpu.") and key.endswith(".time"))
    yield Metric(VM, "TotalCPUTime", nanoseconds / _NANOSECONDS, "s")
    yield Metric(VM, "ResourceProcessorLimit", int(stats.get("vcpu.current", 0)))
    memory = int(stats.get("balloon.current", 0))
    yield Metric(VM, "PhysicalMemoryAllocatedToVirtualSystem", memory, _KIB)
    yield Metric(VM, "ResourceMemoryLimit", memory, _KIB)


def _now() -> Metric:
    return Metric(HOST, "Time", int(time.time()), "s")


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MAX_BYTES).decode(errors="replace").strip()


def _numbers(path: Path) -> dict[str, int]:
    """`MemFree:  123 kB` and `pswpin 123` alike."""
    words = (line.split() for line in _text(path).splitlines())
    return {line[0].rstrip(":"): int(line[1]) for line in words if len(line) > 1 and line[1].isdecimal()}
