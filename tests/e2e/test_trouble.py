"""What befalls a running guest from below: no room behind its disk, more of it, a watchdog that was not fed."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import Space
from .engine import eventually
from .loopdisks import MIB, LoopDisk, loop_claim, skip_without_loop_devices
from .manifests import kernel_boot, with_volume
from .vms import conditions

pytestmark = pytest.mark.e2e

#: Lets the i6300esb run out in two seconds: its clock at 1 MHz, and started. The test guest's kernel has no driver.
BITE = (
    "for d in /sys/bus/pci/devices/*; do "
    '[ "$(cat $d/vendor $d/device | tr -d "\\n")" = 0x80860x25ab ] || continue; echo 1 > $d/enable; '
    "printf '\\004\\000' | dd of=$d/config bs=2 seek=48 count=1 conv=notrunc 2>/dev/null; "
    "printf '\\002' | dd of=$d/config bs=1 seek=104 count=1 conv=notrunc 2>/dev/null; done"
)


class Short:
    """A disk of 32 MiB for which there is room for 2 at first."""

    def __init__(self, room: Path, disk: LoopDisk) -> None:
        self.room, self.disk, self.file = room, disk, room / "disk"

    def make_room(self) -> None:
        subprocess.run(["mount", "-o", "remount,size=64M", self.room], check=True)

    def grow(self, space: Space) -> None:
        """As a storage system does it: first the volume, then the claim says so."""
        os.truncate(self.file, 48 * MIB)
        subprocess.run(["losetup", "-c", self.disk.device], check=True)
        told = '{"status": {"capacity": {"storage": "48Mi"}}}'
        space.kubectl("patch", "pvc", self.disk.claim, "--subresource=status", "--type=merge", "-p", told)


@pytest.fixture
def short(space: Space) -> Iterator[Short]:
    skip_without_loop_devices(space)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as room:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2M", "tmpfs", room], check=True)
        try:
            file = Path(room) / "disk"
            file.touch()
            os.truncate(file, 32 * MIB)
            with loop_claim(space, "short", str(file)) as disk:
                yield Short(Path(room), disk)
        finally:
            subprocess.run(["umount", "--lazy", room], check=True)


def reasons(space: Space) -> set[str]:
    return {event["reason"] for event in space.engine.get("-n", space.namespace, "events")["items"]}


def is_paused(space: Space) -> bool:
    return "Paused" in conditions(space.vmi("short")["status"])


def test_a_guest_stands_still_for_want_of_room_sees_its_disk_grow_and_is_reset_by_its_watchdog(
    space: Space, short: Short
) -> None:
    manifest = with_volume(kernel_boot("short"), "data", {"persistentVolumeClaim": {"claimName": short.disk.claim}})
    manifest["spec"]["domain"]["devices"]["watchdog"] = {"name": "dog", "i6300esb": {"action": "reset"}}
    space.boot(manifest)
    with space.console("short") as console:
        console.prompt()
        console.shell("dd if=/dev/urandom of=/run/data bs=1M count=4 2>/dev/null")
        mark = len(console.seen)
        # A page at a time: of a request that fits in part only, a loop device says that it is done.
        console.send("dd if=/run/data of=/dev/vda bs=4096 oflag=direct 2>/dev/null; echo wrote-$?-")
        eventually(lambda: is_paused(space), within_s=60, what="the guest stands still")
        [told] = [each for each in space.vmi("short")["status"]["conditions"] if each["type"] == "Paused"]
        assert told["reason"] == "PausedIOError"
        assert "no space left" in space.virtctl("explain", "vmi", "short")
        assert "IOerror" in reasons(space)
        short.make_room()
        console.expect("wrote-0-", after=mark, within_s=90)
        eventually(lambda: not is_paused(space), within_s=30, what="the VMI says that the guest goes on")
        console.shell("echo 3 > /proc/sys/vm/drop_caches")
        same = "dd if=/dev/vda bs=1M count=4 2>/dev/null | cmp - /run/data && echo same-$((6*7))"
        assert "same-42" in console.shell(same, within_s=60)
        short.grow(space)
        larger = f"{48 * MIB // 512}\r"
        seen = lambda: larger in console.shell("cat /sys/block/vda/size")  # noqa: E731
        eventually(seen, within_s=60, what="the guest sees a larger disk")
        console.send(BITE)
        console.expect("virtpod guest: up", after=len(console.seen), within_s=90)
    assert "WatchdogFired" in reasons(space)
    assert space.vmi("short")["status"]["phase"] == "Running"
