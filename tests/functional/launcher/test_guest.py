"""The test guest in a launcher: from a container disk and by kernel, user data, agent, network card, power button."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.functional.launcher.sandbox import UID, Sandbox, eventually
from tests.functional.launcher.vmis import request, with_volume
from virt_protos.launcher.v1 import launcher_pb2 as pb

pytestmark = pytest.mark.root
MAC = "02:00:00:aa:bb:01"


def console(box: Sandbox) -> str:
    path = box.root / "private" / UID / "virt-serial0-log"
    return path.read_text(errors="replace") if path.exists() else ""


def guest_vmi() -> dict[str, Any]:
    body = with_volume({"containerDisk": {"image": "guest:v1"}})
    body["spec"]["domain"]["memory"] = {"guest": "128Mi"}
    devices = body["spec"]["domain"]["devices"]
    devices["disks"] += [{"name": "ci", "disk": {"bus": "virtio"}}, {"name": "scratch", "disk": {"bus": "sata"}}]
    devices["interfaces"] = [{"name": "default", "masquerade": {}}]
    script = "#!/bin/sh\necho user-data-ran > /dev/console\n"
    body["spec"]["volumes"] += [
        {"name": "ci", "cloudInitNoCloud": {"userData": script}},
        {"name": "scratch", "emptyDisk": {"capacity": "10Mi"}},
    ]
    return body


def test_a_guest_from_its_disk_until_its_power_button(
    box: Sandbox, capability_cache: list[pb.CacheFile], guest_files: Path
) -> None:
    shutil.copytree(guest_files, box.root / "images/disk_0")
    box.serve_notify()
    box.start(tap="tap0")
    box.wait_ready()
    nic = pb.InterfaceAttachment(name="default", tap="tap0", mac=MAC, mtu=1450)
    answer = box.stub.SyncVMI(request(guest_vmi(), capability_cache, interfaces=[nic]), timeout=30)
    assert dict(answer.domain.disk_targets) == {"root": "vda", "ci": "vdb", "scratch": "sda"}
    told = box.handler.wait_for(lambda d: d.agent_connected)
    assert told.os_info.id == "virtpod-guest"
    assert told.agent_version
    [card] = [i for i in told.interfaces if i.from_domain]
    assert (card.name, card.mac, card.from_agent, card.link_state) == ("default", MAC, True, "up")
    info = box.stub.GetGuestInfo(pb.GetGuestInfoRequest())
    assert info.os_info.id == "virtpod-guest"
    eventually(lambda: "user-data-ran" in console(box))
    _link_goes_down(box, capability_cache, nic)
    box.signal(signal.SIGTERM)
    assert box.wait_exit(30) == 0, box.log.read_text()
    assert "ACPI power button" in console(box)
    last = box.handler.domains[-1]
    assert (last.state, last.reason) == (pb.DOMAIN_STATE_SHUTOFF, "Shutdown")


def _link_goes_down(box: Sandbox, cache: list[pb.CacheFile], nic: pb.InterfaceAttachment) -> None:
    body = guest_vmi()
    body["spec"]["domain"]["devices"]["interfaces"][0]["state"] = "down"
    answer = box.stub.SyncVMI(request(body, cache, interfaces=[nic]), timeout=30)
    assert answer.domain.interfaces[0].link_state == "down"


#: Tells which virtio disks the guest has, whenever that changes.
DISKS = """#!/bin/sh
while :; do
  new=$(echo /sys/block/vd*)
  [ "$new" = "$old" ] || echo "disks: $new." > /dev/console
  old=$new
  usleep 200000
done &
"""


def disks(box: Sandbox) -> list[str]:
    """As the guest told last."""
    told = [line.partition("disks: ")[2] for line in console(box).splitlines() if "disks: " in line]
    return [path.removeprefix("/sys/block/") for path in told[-1].rstrip(". \r").split()] if told else []


def test_a_guest_gets_a_disk_and_lets_it_go(
    box: Sandbox, capability_cache: list[pb.CacheFile], guest_files: Path
) -> None:
    """On a port that was spare: the guest's own kernel finds the disk, and answers when it is to go."""
    shutil.copytree(guest_files, box.root / "images/disk_0")
    box.serve_notify()
    box.start()
    box.wait_ready()
    body = guest_vmi()
    body["spec"]["volumes"][1]["cloudInitNoCloud"]["userData"] = DISKS
    del body["spec"]["domain"]["devices"]["interfaces"]  # The guest would wait for an address first.

    def sync() -> pb.SyncVMIResponse:
        return box.stub.SyncVMI(request(body, capability_cache), timeout=30)

    sync()
    eventually(lambda: disks(box) == ["vda", "vdb"])
    # First in both lists: nobody moves for it.
    body["spec"]["domain"]["devices"]["disks"].insert(0, {"name": "late", "disk": {"bus": "virtio"}})
    body["spec"]["volumes"].insert(0, {"name": "late", "emptyDisk": {"capacity": "10Mi"}})
    before = {"root": "vda", "ci": "vdb", "scratch": "sda"}
    assert dict(sync().domain.disk_targets) == before | {"late": "vdc"}
    eventually(lambda: disks(box) == ["vda", "vdb", "vdc"])
    del body["spec"]["domain"]["devices"]["disks"][0], body["spec"]["volumes"][0]
    assert dict(sync().domain.disk_targets) == before
    eventually(lambda: disks(box) == ["vda", "vdb"])


#: Tells where its network cards sit, and which virtio disks it has, whenever that changes.
PLACES = """#!/bin/sh
while :; do
  new="cards: $(for n in /sys/class/net/eth*; do readlink -f $n/device; done | grep -o '[0-9a-f:.]*/virtio')"
  new="$(echo $new) disks: $(echo /sys/block/vd*)"
  [ "$new" = "$old" ] || echo "$new." > /dev/console
  old=$new
  usleep 200000
done &
"""


def cards(box: Sandbox) -> list[str] | None:
    """The PCI addresses of its network cards, as the guest told last."""
    told = [
        line.partition("cards:")[2].partition("disks:")[0] for line in console(box).splitlines() if "cards:" in line
    ]
    return [path.removesuffix("/virtio") for path in told[-1].split()] if told else None


def test_what_a_guest_started_with_sits_behind_ports_and_can_go(
    box: Sandbox, capability_cache: list[pb.CacheFile], guest_files: Path
) -> None:
    """The first card is what systemd calls enp1s0: bus 1, slot 0."""
    shutil.copytree(guest_files, box.root / "images/disk_0")
    box.serve_notify()
    box.start(tap="tap0")
    box.wait_ready()
    body = guest_vmi()
    body["spec"]["volumes"][1]["cloudInitNoCloud"]["userData"] = PLACES
    devices = body["spec"]["domain"]["devices"]
    devices["disks"].append({"name": "data", "disk": {"bus": "virtio"}})
    body["spec"]["volumes"].append({"name": "data", "emptyDisk": {"capacity": "10Mi"}})
    nic = pb.InterfaceAttachment(name="default", tap="tap0", mac=MAC, mtu=1450)

    def sync() -> pb.SyncVMIResponse:
        return box.stub.SyncVMI(request(body, capability_cache, interfaces=[nic]), timeout=30)

    sync()
    eventually(lambda: (cards(box), disks(box)) == (["0000:01:00.0"], ["vda", "vdb", "vdc"]))
    del devices["disks"][-1], body["spec"]["volumes"][-1]
    assert dict(sync().domain.disk_targets) == {"root": "vda", "ci": "vdb", "scratch": "sda"}
    eventually(lambda: disks(box) == ["vda", "vdb"])
    card = devices.pop("interfaces")
    assert not [i for i in sync().domain.interfaces if i.from_domain]
    eventually(lambda: cards(box) == [])
    devices["interfaces"] = card
    sync()
    eventually(lambda: cards(box) == ["0000:01:00.0"])


def test_a_guest_with_virtio_devices_of_the_older_kind(
    box: Sandbox, capability_cache: list[pb.CacheFile], guest_files: Path
) -> None:
    shutil.copytree(guest_files, box.root / "images/disk_0")
    box.serve_notify()
    box.start(tap="tap0")
    box.wait_ready()
    body = guest_vmi()
    body["spec"]["domain"]["devices"]["useVirtioTransitional"] = True
    nic = pb.InterfaceAttachment(name="default", tap="tap0", mac=MAC, mtu=1450)
    box.stub.SyncVMI(request(body, capability_cache, interfaces=[nic]), timeout=30)
    assert box.handler.wait_for(lambda d: d.agent_connected).os_info.id == "virtpod-guest"
    eventually(lambda: "user-data-ran" in console(box))


def test_a_guest_by_its_kernel(box: Sandbox, capability_cache: list[pb.CacheFile], guest_files: Path) -> None:
    shutil.copytree(guest_files, box.root / "kernel", dirs_exist_ok=True)
    box.start()
    box.wait_ready()
    container = {"image": "guest:v1", "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd.img"}
    boot = {"kernelArgs": "console=ttyS0 marker=from-the-vmi", "container": container}
    body = with_volume({"emptyDisk": {"capacity": "1Mi"}})
    body["spec"]["domain"] |= {"memory": {"guest": "128Mi"}, "firmware": {"kernelBoot": boot}}
    box.stub.SyncVMI(request(body, capability_cache), timeout=30)
    eventually(lambda: "virtpod guest: up" in console(box))


#: Shows what its config drive tells it of its devices, and what it sees of them itself.
TAGS = """#!/bin/sh
mkdir -p /run/seed
for disk in /dev/vd?; do mount -o ro -t iso9660 $disk /run/seed 2>/dev/null && break; done
place() { readlink -f $1/device | sed 's|/virtio[0-9]*$||; s|.*/||'; }
told=$(tr -d '\\n' < /run/seed/openstack/latest/meta_data.json)
scratch=$(basename $(dirname $(grep -lx scratch-1 /sys/block/vd*/serial)))
echo "tags: $(place /sys/class/net/eth0) $(place /sys/block/$scratch) $told :end" > /dev/console
"""


def test_a_guest_is_told_which_device_is_which(
    box: Sandbox, capability_cache: list[pb.CacheFile], guest_files: Path
) -> None:
    """By the config drive, with the very addresses at which the guest finds them."""
    shutil.copytree(guest_files, box.root / "images/disk_0")
    box.serve_notify()
    box.start(tap="tap0")
    box.wait_ready()
    body = guest_vmi()
    body["spec"]["volumes"][1] = {"name": "ci", "cloudInitConfigDrive": {"userData": TAGS}}
    devices = body["spec"]["domain"]["devices"]
    devices["interfaces"][0]["tag"] = "uplink"
    devices["disks"][2] = {"name": "scratch", "disk": {"bus": "virtio"}, "serial": "scratch-1", "tag": "data"}
    nic = pb.InterfaceAttachment(name="default", tap="tap0", mac=MAC, mtu=1450)
    box.stub.SyncVMI(request(body, capability_cache, interfaces=[nic]), timeout=30)
    eventually(lambda: " :end" in console(box))
    [line] = [line for line in console(box).splitlines() if " :end" in line]
    card, disk, told = line.partition("tags: ")[2].split(maxsplit=2)
    assert json.loads(told.partition(" :end")[0])["devices"] == [
        {"type": "disk", "bus": "pci", "address": disk, "serial": "scratch-1", "tags": ["data"]},
        {"type": "nic", "bus": "pci", "address": card, "mac": MAC, "tags": ["uplink"]},
    ]
