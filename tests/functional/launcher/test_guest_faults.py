"""What can befall a running guest: a full disk, a panic, its watchdog, a reboot, the death of libvirt."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.functional.launcher.sandbox import Sandbox, eventually
from tests.functional.launcher.test_guest import console, guest_vmi
from tests.functional.launcher.vmis import request
from virt_protos.launcher.v1 import launcher_pb2 as pb

pytestmark = pytest.mark.root

Cache = list[pb.CacheFile]


def boot(box: Sandbox, cache: Cache, guest_files: Path, script: str, **devices: Any) -> dict[str, Any]:
    """A guest that runs this script, with a second virtio disk /dev/vdc; gives its VMI."""
    return boot_with(box, cache, guest_files, f"#!/bin/sh\n{script}\n", **devices)


def boot_with(box: Sandbox, cache: Cache, guest_files: Path, user_data: str, **devices: Any) -> dict[str, Any]:
    """Likewise, with this user data."""
    return start(box, cache, guest_files, machine(user_data, **devices))


def start(box: Sandbox, cache: Cache, guest_files: Path, body: dict[str, Any], **given: Any) -> dict[str, Any]:
    if not (box.root / "images/disk_0").exists():
        shutil.copytree(guest_files, box.root / "images/disk_0")
    box.serve_notify()
    box.start(**given)
    box.wait_ready()
    box.stub.SyncVMI(request(body, cache), timeout=30)
    return body


def machine(user_data: str, **devices: Any) -> dict[str, Any]:
    body = guest_vmi()
    body["spec"]["volumes"][1]["cloudInitNoCloud"]["userData"] = user_data
    body["spec"]["volumes"][2]["emptyDisk"]["capacity"] = "64Mi"
    domain = body["spec"]["domain"]
    domain["devices"]["disks"][2]["disk"]["bus"] = "virtio"
    del domain["devices"]["interfaces"]  # The guest would wait for an address first.
    domain["devices"].update(devices)
    return body


def told(box: Sandbox, mark: str) -> str:
    """What the guest said behind a mark, once it did."""
    try:
        text = eventually(lambda: re.search(rf"{mark}: (.*?)\r?$", console(box), re.MULTILINE))
    except AssertionError as error:
        raise AssertionError(f"{error}: {console(box)[-1000:]}{box.log.read_text()[-2000:]}") from None
    return str(text[1])


# -- disks -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(box: Sandbox) -> Iterator[Path]:
    """A filler in the small filesystem in which the box keeps what its guest writes."""
    place = box.root / "ephemeral"
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40M,uid=107,gid=107,mode=755", "tmpfs", place], check=True)
    filler = place / "filler"
    filler.write_bytes(b"\0" * (30 << 20))
    yield filler
    box.close()
    subprocess.run(["umount", "--lazy", place], check=True)


def test_a_full_disk_stops_the_guest_until_there_is_room(
    box: Sandbox, capability_cache: Cache, guest_files: Path, small_disk: Path
) -> None:
    """The guest sees no error: it stands still in the middle of its write, and goes on when it can be done."""
    script = (
        "dd if=/dev/urandom of=/run/data bs=1M count=16 2>/dev/null\n"
        "dd if=/run/data of=/dev/vdc bs=1M conv=fsync 2>/dev/null; echo wrote: $? > /dev/console\n"
        "echo 3 > /proc/sys/vm/drop_caches\n"
        "dd if=/dev/vdc bs=1M count=16 2>/dev/null | cmp - /run/data; echo same: $? > /dev/console"
    )
    boot(box, capability_cache, guest_files, script)
    paused = box.handler.wait_for(lambda d: d.state == pb.DOMAIN_STATE_PAUSED)
    assert (paused.reason, paused.message) == ("IOError", "disk scratch: no space left")
    eventually(lambda: "still fails" in box.log.read_text())
    assert "wrote:" not in console(box)
    # An attempt that fails is told to nobody.
    assert [d.reason for d in box.handler.domains if d.state == pb.DOMAIN_STATE_PAUSED] == ["IOError"]
    assert box.handler.domains[-1].reason == "IOError"
    small_disk.unlink()
    assert told(box, "wrote") == "0"
    assert told(box, "same") == "0"
    eventually(lambda: box.handler.domains[-1].state == pb.DOMAIN_STATE_RUNNING)
    assert [r.message for r in box.handler.remarks] == ["the guest is paused: disk scratch: no space left"]


DEVICE_SIZE = 32 << 20


@pytest.fixture
def device() -> Iterator[tuple[Path, int]]:
    """A file and the number of the loop device on it. When the file is cut, reads behind its end fail."""
    with tempfile.NamedTemporaryFile(dir="/var/tmp") as file:
        os.truncate(file.name, DEVICE_SIZE)
        losetup = ["losetup", "-f", "--show", file.name]
        made = subprocess.run(losetup, capture_output=True, text=True, check=True).stdout.strip()
        try:
            yield Path(file.name), os.stat(made).st_rdev
        finally:
            subprocess.run(["losetup", "-d", made], check=True)


def test_a_disk_that_fails_stops_the_guest_until_it_is_mended(
    device: tuple[Path, int], box: Sandbox, capability_cache: Cache, guest_files: Path
) -> None:
    """Not for want of room, but by an error of the device. The guest sees none, and reads in the end what is there."""
    file, number = device
    script = (
        "until [ $(head -c 2 /dev/vdc)x = gox ]; do usleep 100000; echo 3 > /proc/sys/vm/drop_caches; done\n"
        "tail -c 4096 /dev/vdc | head -n 1 > /run/end; echo read: $? $(cat /run/end) > /dev/console"
    )
    body = machine(f"#!/bin/sh\n{script}\n")
    body["spec"]["volumes"][2] = {"name": "scratch", "persistentVolumeClaim": {"claimName": "data"}}
    info = {"claimName": "data", "volumeMode": "Block"}
    body["status"] = {"volumeStatus": [{"name": "scratch", "persistentVolumeClaimInfo": info}]}
    start(box, capability_cache, guest_files, body, disk=("scratch", number))
    box.handler.wait_for(lambda d: d.state == pb.DOMAIN_STATE_RUNNING)
    os.truncate(file, DEVICE_SIZE // 2)
    write(file, 0, b"go\n")
    paused = box.handler.wait_for(lambda d: d.state == pb.DOMAIN_STATE_PAUSED)
    assert (paused.reason, paused.message) == ("IOError", "disk scratch: input/output error")
    eventually(lambda: "still fails" in box.log.read_text())
    assert "read:" not in console(box)
    os.truncate(file, DEVICE_SIZE)
    write(file, DEVICE_SIZE - 4096, b"mended\n")
    assert told(box, "read") == "0 mended"
    eventually(lambda: box.handler.domains[-1].state == pb.DOMAIN_STATE_RUNNING)


def write(file: Path, offset: int, data: bytes) -> None:
    with file.open("r+b") as out:
        out.seek(offset)
        out.write(data)


# -- the guest's own end -----------------------------------------------------------------------------------------------


def test_a_kernel_that_panics_ends_its_machine_with_the_reason(
    box: Sandbox, capability_cache: Cache, guest_files: Path
) -> None:
    script = "echo c > /proc/sysrq-trigger"
    boot(box, capability_cache, guest_files, script, panicDevices=[{"model": "isa"}])
    assert box.wait_exit(150) != 0
    last = box.handler.domains[-1]
    assert (last.state, last.reason) == (pb.DOMAIN_STATE_CRASHED, "Panicked")
    assert last.message == "the guest's kernel panicked"
    assert [r.reason for r in box.handler.remarks] == ["GuestPanicked"]


#: Lets the i6300esb run out in two seconds: its clock at 1 MHz, and started. The test guest's kernel has no driver.
WATCHDOG = (
    "for d in /sys/bus/pci/devices/*; do\n"
    '  [ "$(cat $d/vendor $d/device | tr -d "\\n")" = 0x80860x25ab ] || continue\n'
    "  echo found: $d > /dev/console; echo 1 > $d/enable\n"
    "  printf '\\004\\000' | dd of=$d/config bs=2 seek=48 count=1 conv=notrunc 2>/dev/null\n"
    "  printf '\\002' | dd of=$d/config bs=1 seek=104 count=1 conv=notrunc 2>/dev/null\n"
    "done"
)


def bite(box: Sandbox, cache: Cache, guest_files: Path, action: str) -> None:
    watchdog = {"name": "dog", "i6300esb": {"action": action}}
    # Only once: a guest that was reset must not be bitten for ever.
    script = f"[ -s /dev/vdc ]; grep -q bitten /dev/vdc && exit 0; echo bitten > /dev/vdc; sync\n{WATCHDOG}"
    boot(box, cache, guest_files, script, watchdog=watchdog)


def test_a_watchdog_that_resets(box: Sandbox, capability_cache: Cache, guest_files: Path) -> None:
    bite(box, capability_cache, guest_files, "reset")
    eventually(lambda: console(box).count("virtpod guest: up") == 2, within_s=150)
    assert "found: " in console(box)
    assert [r.reason for r in box.handler.remarks] == ["WatchdogFired"]
    assert {d.state for d in box.handler.domains} == {pb.DOMAIN_STATE_RUNNING}


def test_a_watchdog_that_asks_the_guest(box: Sandbox, capability_cache: Cache, guest_files: Path) -> None:
    bite(box, capability_cache, guest_files, "shutdown")
    assert box.wait_exit(150) == 0, box.log.read_text()
    last = box.handler.domains[-1]
    assert (last.state, last.reason) == (pb.DOMAIN_STATE_SHUTOFF, "Shutdown")
    assert "ACPI power button" in console(box)


def test_a_watchdog_that_does_not_ask(box: Sandbox, capability_cache: Cache, guest_files: Path) -> None:
    bite(box, capability_cache, guest_files, "poweroff")
    assert box.wait_exit(150) != 0, box.log.read_text()
    last = box.handler.domains[-1]
    assert (last.state, last.reason) == (pb.DOMAIN_STATE_SHUTOFF, "Crashed")
    assert last.message == "the guest's watchdog ran out, and its action ended the machine"
    assert [r.reason for r in box.handler.remarks] == ["WatchdogFired"]
    assert "ACPI power button" not in console(box)


def test_a_guest_that_reboots_comes_back(box: Sandbox, capability_cache: Cache, guest_files: Path) -> None:
    boot(box, capability_cache, guest_files, "grep -q again /dev/vdc || { echo again > /dev/vdc; sync; reboot -f; }")
    qemu = box.qemu_pid
    eventually(lambda: console(box).count("virtpod guest: up") == 2, within_s=150)
    assert box.qemu_pid == qemu
    assert {d.state for d in box.handler.domains} == {pb.DOMAIN_STATE_RUNNING}


def test_a_guest_that_must_not_reboot_ends_instead(box: Sandbox, capability_cache: Cache, guest_files: Path) -> None:
    """The reboot is the guest's own, and a good end: whoever started it decides what comes next."""
    body = machine("#!/bin/sh\nreboot -f\n")
    body["spec"]["domain"]["rebootPolicy"] = "Terminate"
    start(box, capability_cache, guest_files, body)
    assert box.wait_exit(150) == 0, box.log.read_text()
    last = box.handler.domains[-1]
    assert last.state == pb.DOMAIN_STATE_SHUTOFF
    assert console(box).count("virtpod guest: up") == 1


# -- libvirt -----------------------------------------------------------------------------------------------------------


def ticks(box: Sandbox) -> list[int]:
    return [int(number) for number in re.findall(r"^tick (\d+)\r?$", console(box), re.MULTILINE)]


def test_a_guest_does_not_notice_the_death_of_libvirt(box: Sandbox, capability_cache: Cache, guest_files: Path) -> None:
    """No tick is lost or late by more than one, and everything that can be asked of a machine is answered again."""
    body = boot(box, capability_cache, guest_files, "ticks on")
    box.handler.wait_for(lambda d: d.agent_connected)
    qemu = box.qemu_pid
    eventually(lambda: len(ticks(box)) >= 2)
    name = "virtqemud" if box.descendants("virtqemud") else "libvirtd"
    [daemon] = box.descendants(name)
    os.kill(daemon, signal.SIGKILL)
    eventually(lambda: box.descendants(name) not in ([], [daemon]))
    eventually(lambda: b"cpu" in _stats(box))
    assert box.qemu_pid == qemu
    # The agent is there again, and so are events and commands.
    eventually(lambda: _frozen(box), within_s=30)
    box.stub.Unfreeze(pb.UnfreezeRequest(), timeout=20)
    box.stub.Pause(pb.PauseRequest(), timeout=20)
    eventually(lambda: box.handler.domains[-1].reason == "User")
    seen = len(ticks(box))
    box.stub.Unpause(pb.UnpauseRequest(), timeout=20)
    eventually(lambda: box.handler.domains[-1].state == pb.DOMAIN_STATE_RUNNING)
    eventually(lambda: len(ticks(box)) >= seen + 2)
    counted = ticks(box)
    assert counted == list(range(counted[0], counted[0] + len(counted)))
    answer = box.stub.SyncVMI(request(body, capability_cache), timeout=30)
    assert answer.domain.agent_connected
    os.kill(qemu, signal.SIGKILL)
    assert box.wait_exit(150) != 0
    assert "SIGKILL" in box.handler.domains[-1].message


def _stats(box: Sandbox) -> bytes:
    try:
        return bytes(box.stub.GetDomainStats(pb.GetDomainStatsRequest(), timeout=5).stats_json)
    except grpc.RpcError:
        return b""


def _frozen(box: Sandbox) -> bool:
    try:
        box.stub.Freeze(pb.FreezeRequest(unfreeze_timeout_seconds=60), timeout=20)
    except grpc.RpcError:
        return False
    return True
