"""Figures of the node for a guest that may know them: on a disk and on a port, true, and not to be worn out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from .conftest import Configure, Space, admitted
from .console import Console
from .engine import eventually
from .manifests import kernel_boot, with_volume

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

#: The disk as it is now, not as the guest's cache has it.
READ_DISK = "echo 3 >/proc/sys/vm/drop_caches; tail -c +17 /dev/vda | head -c 6000 | tr -d '\\0'"
FIND_PORT = "port=/dev/$(basename $(dirname $(grep -l vhostmd /sys/class/virtio-ports/*/name)))"
READ_LINES = 'while read -r l <&3 && [ -n "$l" ]; do echo "$l"; done'
ASK = f"exec 3<>$port; printf 'GET /metrics/XML\\n\\n' >&3; {READ_LINES}; exec 3>&-"
#: Long enough to go through every buffer on the way.
FLOOD = "timeout 5 head -c 50000000 /dev/zero >$port; timeout 5 sh -c 'while :; do echo GET; done' >$port; true"


def with_metrics(name: str) -> dict[str, Any]:
    manifest = with_volume(kernel_boot(name), "figures", {"downwardMetrics": {}})
    manifest["spec"]["domain"]["devices"]["downwardMetrics"] = {}
    return manifest


@pytest.fixture
def gate(space: Space, configure: Configure) -> None:
    assert admitted(space, with_metrics("figures")) is None, "the gate is closed unless somebody opens it"
    configure({"developerConfiguration": {"featureGates": ["DownwardMetrics"]}})
    eventually(lambda: admitted(space, with_metrics("figures")), within_s=10, what="the gate is open")


def figures(seen: str) -> dict[tuple[str, str], str]:
    """Of the last whole document in what the console shows."""
    documents = re.findall(r"<metrics>\s*<metric .*?</metrics>", seen.replace("\r", ""), re.DOTALL)
    if not documents:
        return {}
    found = ET.fromstring(documents[-1]).findall("metric")
    return {(each.attrib["context"], each.findtext("name") or ""): each.findtext("value") or "" for each in found}


def resident_kib(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1])


def ask(console: Console) -> dict[tuple[str, str], str]:
    return figures(console.shell(ASK, within_s=60))


@pytest.mark.usefixtures("gate")
def test_a_guest_reads_true_figures_from_disk_and_port_and_wears_nobody_out(space: Space) -> None:
    vmi = space.boot(with_metrics("figures"))
    with space.console("figures") as console:
        console.prompt()
        disk = eventually(lambda: figures(console.shell(READ_DISK)), within_s=60, what="figures on the disk")
        later = eventually(
            lambda: (now := figures(console.shell(READ_DISK))) != disk and now, within_s=60, what="newer figures"
        )
        console.shell(FIND_PORT)
        port = ask(console)
        assert disk.keys() == port.keys() == later.keys()
        for found in (disk, port):
            assert found["host", "HostName"] == vmi["status"]["nodeName"]
            assert found["host", "VirtProductInfo"].startswith("qemu-")
            assert found["vm", "ResourceProcessorLimit"] == "1"
            assert found["vm", "PhysicalMemoryAllocatedToVirtualSystem"] == str(128 << 10)
        assert 0 < float(disk["vm", "TotalCPUTime"]) < float(later["vm", "TotalCPUTime"])
        assert int(disk["host", "Time"]) < int(later["host", "Time"])
        launcher = space.engine.launcher_pid(vmi["metadata"]["uid"])
        before = resident_kib(launcher)
        console.shell(FLOOD, within_s=60)
        assert resident_kib(launcher) - before < 16 << 10
        assert eventually(lambda: ask(console), within_s=90, what="an answer after the flood")["host", "HostName"]
    assert space.vmi("figures")["status"]["phase"] == "Running"
