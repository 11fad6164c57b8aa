"""A machine while it runs: frozen and thawed, its libvirt killed, its kernel in panic, its figures read."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from . import figures
from .conftest import Space
from .engine import eventually, process_table
from .manifests import kernel_boot, with_volume
from .subresource import Subresources
from .vms import conditions

pytestmark = pytest.mark.e2e

AGENT = "AgentConnected"


def of(name: str, sub: str) -> str:
    return f"virtualmachineinstances/{name}/{sub}"


def agent_is_there(space: Space, name: str) -> None:
    eventually(lambda: AGENT in conditions(space.vmi(name)["status"]), within_s=90, what="the agent is connected")


def frozen(space: Space, name: str) -> bool:
    return bool(space.vmi(name)["status"].get("fsFreezeStatus") == "frozen")


@pytest.mark.alone
def test_a_frozen_guest_writes_nothing_and_thaws_without_virt_handler(space: Space) -> None:
    """A write stands still in the guest; nobody but the launcher is left to let it go, and it does."""
    space.boot(with_volume(kernel_boot("ice"), "data", {"emptyDisk": {"capacity": "32Mi"}}))
    agent_is_there(space, "ice")
    calls = Subresources(space)
    with space.console("ice") as console:
        console.prompt()
        console.shell("mke2fs /dev/vda >/dev/null 2>&1; mount -t ext2 /dev/vda /mnt || mount -t ext4 /dev/vda /mnt")
        assert "/mnt" in console.shell("grep /mnt /proc/mounts")
        assert calls.put(of("ice", "freeze"), {"unfreezeTimeout": "40s"}).status == 200
        eventually(lambda: frozen(space, "ice"), within_s=30, what="the VMI says that it is frozen")
        console.shell("touch /mnt/late & echo $! > /run/writer")
        stuck = lambda: "D (disk" in console.shell("grep State /proc/$(cat /run/writer)/status")  # noqa: E731
        eventually(stuck, within_s=30, what="the writer stands still")
        assert "/mnt/late" not in console.shell("echo /mnt/*")
        for pid in space.engine.component_pids("virt-handler"):
            os.kill(pid, signal.SIGKILL)
    with space.console("ice") as console:
        console.prompt()
        written = lambda: "/mnt/late" in console.shell("echo /mnt/*")  # noqa: E731
        eventually(written, within_s=120, what="the write was done")
    eventually(lambda: not frozen(space, "ice"), within_s=60, what="the VMI says that it is not frozen any more")


def daemon_of(launcher: int) -> int:
    for pid, args in process_table():
        if args[0].endswith(("/libvirtd", "/virtqemud")):
            parent = re.search(r"^PPid:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
            if parent is not None and int(parent[1]) == launcher:
                return pid
    raise LookupError(f"no libvirt daemon below {launcher}")


def test_the_guest_counts_on_when_libvirt_dies(space: Space) -> None:
    vmi = space.boot(kernel_boot("counter"))
    agent_is_there(space, "counter")
    launcher = space.engine.launcher_pid(vmi["metadata"]["uid"])
    qemu, daemon = space.engine.qemu_pid(space.namespace, "counter"), daemon_of(launcher)
    calls = Subresources(space)
    with space.console("counter") as console:
        console.prompt()
        console.shell("ticks on")
        console.expect("tick ", after=len(console.seen))
        os.kill(daemon, signal.SIGKILL)
        eventually(lambda: daemon_of(launcher) != daemon, within_s=30, what="another libvirt daemon")
        eventually(lambda: calls.get(of("counter", "guestosinfo")).status == 200, within_s=60, what="the agent answers")
        eventually(lambda: calls.put(of("counter", "pause")).status == 200, within_s=30, what="paused")
        eventually(lambda: "Paused" in conditions(space.vmi("counter")["status"]), within_s=30)
        assert calls.put(of("counter", "unpause")).status == 200
        mark = len(console.seen)
        console.expect("tick ", after=console.expect("tick ", after=mark))
        console.shell("ticks off")
        counted = [int(number) for number in re.findall(r"tick (\d+)\r", console.seen)]
    assert counted == list(range(counted[0], counted[0] + len(counted)))
    assert space.engine.qemu_pid(space.namespace, "counter") == qemu
    assert space.vmi("counter")["status"]["phase"] == "Running"


def test_a_panic_is_told(space: Space) -> None:
    manifest = kernel_boot("broken")
    manifest["spec"]["domain"]["devices"]["panicDevices"] = [{"model": "isa"}]
    space.boot(manifest)
    with space.console("broken") as console:
        console.prompt()
        console.send("echo c > /proc/sysrq-trigger")
        failed = space.phase("broken", "Failed", within_s=60)
    assert failed["status"]["reason"] == "GuestCrashed"
    assert "the guest's kernel panicked" in space.virtctl("explain", "vmi", "broken")
    events = space.engine.get("-n", space.namespace, "events")["items"]
    assert "GuestPanicked" in {event["reason"] for event in events}


def test_the_figures_of_a_machine(space: Space) -> None:
    vmi = space.boot(with_volume(kernel_boot("busy"), "data", {"emptyDisk": {"capacity": "32Mi"}}))
    agent_is_there(space, "busy")
    with space.console("busy") as console:
        console.prompt()
        console.shell("dd if=/dev/zero of=/dev/vda bs=1M count=4 conv=fsync 2>/dev/null")
    labels = f'node="{vmi["status"]["nodeName"]}",namespace="{space.namespace}",name="busy"'
    text = figures.of_handler(space.engine, vmi["status"]["nodeName"])

    def value(name: str, more: str = "") -> float:
        found = re.search(rf"^kubevirt_vmi_{name}{{{re.escape(labels + more)}}} (\S+)$", text, re.MULTILINE)
        assert found is not None, f"{name}{more} is not in {text}"
        return float(found[1])

    assert value("cpu_usage_seconds_total") > 0
    assert value("memory_resident_bytes") > 0
    assert value("vcpu_seconds_total", ',id="0",state="running"') > 0
    assert value("storage_write_traffic_bytes_total", ',drive="data"') == 4 << 20
    assert value("network_transmit_packets_total", ',interface="default"') > 0
    assert value("dirty_rate_bytes_per_second") >= 0


def test_a_machine_that_boots_nothing_is_told_of(space: Space) -> None:
    """It looks Running and Ready; who asks hears that nothing came of it."""
    nothing = with_volume(kernel_boot("void"), "data", {"emptyDisk": {"capacity": "8Mi"}})
    del nothing["spec"]["domain"]["firmware"]
    space.boot(nothing)
    silent = lambda: "GuestSilent" in conditions(space.vmi("void")["status"])  # noqa: E731
    eventually(silent, within_s=150, what="the machine counts as silent")
    assert "has sent nothing on its network cards" in space.virtctl("explain", "vmi", "void")
    assert conditions(space.vmi("void")["status"])["Ready"] == "True"


def test_a_guest_that_takes_no_lease_is_told_of(space: Space) -> None:
    """Neither has an agent. The first was told the address of another network: it sends, and its own is nobody's. The
    other is well."""
    seed = {"userData": "#cloud-config\nbootcmd:\n- rm /usr/sbin/qemu-ga\n"}
    elsewhere = "version: 2\nethernets:\n  eth0:\n    addresses: [10.77.0.5/24]\n"
    space.boot(with_volume(kernel_boot("quiet"), "seed", {"cloudInitNoCloud": seed}))
    space.boot(with_volume(kernel_boot("lost"), "seed", {"cloudInitNoCloud": seed | {"networkData": elsewhere}}))
    silent = lambda name: "GuestSilent" in conditions(space.vmi(name)["status"])  # noqa: E731
    eventually(lambda: silent("lost"), within_s=150, what="the guest without an address counts as silent")
    assert "it has taken no lease" in space.virtctl("explain", "vmi", "lost")
    assert conditions(space.vmi("lost")["status"])["Ready"] == "True"
    # The other was started before, so it was looked at as well.
    eventually(lambda: not silent("quiet"), within_s=60, what="the guest with an address does not")
    with space.console("lost") as console:
        console.prompt()
        console.shell("ip addr add 10.0.2.2/24 dev eth0")
    eventually(lambda: not silent("lost"), within_s=60, what="the guest answers for its address")
