"""What a machine brings along, between two real libvirt daemons: its disks to the byte, what was plugged in and what it
grew to, its own CPUs, the state of its firmware; and that its new place announces it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.functional.launcher.sandbox import Sandbox, eventually
from tests.functional.launcher.test_guest import guest_vmi
from tests.functional.launcher.test_moves import AT, Pair, domain, migrate
from tests.functional.launcher.vmis import request, vmi
from virt_core.apis import names, topology
from virt_core.apis.topology import Cpu
from virt_protos.launcher.v1 import launcher_pb2 as pb

pytestmark = pytest.mark.root
Cache = list[pb.CacheFile]
MIB = 1 << 20
YEAR = 365 * 86400
CPUS = sorted(os.sched_getaffinity(0))[:2]
EFI = Path("/usr/share/OVMF")
CREATED = "2026-01-02T03:04:05Z"


class Boxes(Pair):
    def begin(self, cache: Cache, body: dict[str, Any], **how: Any) -> None:
        """Starts both, and the machine in the first; `how`: of both, or a pair."""
        self.cache = cache
        options = how.pop("options", {})
        self.options = options
        for number, (box, extra) in enumerate(((self.source, ()), (self.target, ("--role", "target")))):
            mine = {key: value[number] if isinstance(value, tuple) else value for key, value in how.items()}
            box.serve_notify()
            box.start("--grace-period-seconds", "2", *extra, at=AT, **mine)
        for box in (self.source, self.target):
            box.wait_ready()
        self.source.stub.SyncVMI(request(body, cache, **options), timeout=60)

    def prepare(self, body: dict[str, Any]) -> pb.PrepareTargetResponse:
        asked = request(body, self.cache, **self.options)
        message = pb.PrepareTargetRequest(vmi_json=asked.vmi_json, options=asked.options)
        return self.target.stub.PrepareTarget(message, timeout=60)

    def facts(self, body: dict[str, Any]) -> dict[str, Any]:
        """The VMI with what the source tells of its disks, as virt-handler writes it down."""
        message = pb.GetDiskFactsRequest(vmi_json=json.dumps(body).encode())
        found = self.source.stub.GetDiskFacts(message, timeout=60).disks
        status = [
            {"name": name, "size": each.size, "containerDiskVolume": {"checksum": each.checksum}}
            for name, each in found.items()
        ]
        known = body.get("status", {})
        return body | {"status": known | {"volumeStatus": known.get("volumeStatus", []) + status}}

    def move(self, body: dict[str, Any], **wishes: Any) -> None:
        self.connect()
        migrate(self, body, **wishes)
        over = self.source.handler.wait_for(lambda d: d.move.ended_us > 0)
        assert not over.move.failed, over.move.reason
        self.target.handler.wait_for(lambda d: d.state == pb.DOMAIN_STATE_RUNNING)

    def sync_there(self, body: dict[str, Any]) -> pb.SyncVMIResponse:
        """As virt-handler does once it has taken the guest over."""
        return self.target.stub.SyncVMI(request(body, self.cache, **self.options), timeout=60)


@pytest.fixture
def boxes() -> Iterator[Boxes]:
    both = Boxes()
    try:
        yield both
    finally:
        both.close()


def give(path: Path, content: bytes) -> Path:
    """A file of the launcher's user, with its directories."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    subprocess.run(["chown", "-R", f"{names.LAUNCHER_UID}:{names.LAUNCHER_UID}", str(path.parent)], check=True)
    return path


def share(source: Path, target: Path) -> None:
    """The same file in both boxes, as a claim that all nodes reach."""
    target.parent.mkdir(parents=True, exist_ok=True)
    os.link(source, target)
    subprocess.run(["chown", "-R", f"{names.LAUNCHER_UID}:{names.LAUNCHER_UID}", str(target.parent)], check=True)


def created(body: dict[str, Any], **spec: Any) -> dict[str, Any]:
    body["metadata"]["creationTimestamp"] = CREATED
    body["spec"] |= spec
    return body


def with_images() -> dict[str, Any]:
    disks = [
        {"name": "root", "disk": {"bus": "virtio"}},
        {"name": "cloud", "disk": {"bus": "virtio"}},
        {"name": "drive", "cdrom": {"bus": "sata"}},
        {"name": "tools", "cdrom": {"bus": "sata"}},
    ]
    volumes = [
        {"name": "root", "containerDisk": {"image": "guest:v1"}},
        {"name": "cloud", "cloudInitNoCloud": {"userData": "first words"}},
        {"name": "drive", "cloudInitConfigDrive": {"userData": "on a disc"}},
        {"name": "tools", "containerDisk": {"image": "tools:v1"}},
    ]
    return created(vmi(devices={"disks": disks}), volumes=volumes)


def image(box: Sandbox, content: bytes = b"image " * MIB) -> Path:
    give(box.root / "images/disk_3/disk/tools.iso", bytes(MIB))
    return give(box.root / "images/disk_0/disk/guest.img", content[: 4 * MIB])


def cloud_images(box: Sandbox) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in box.root.glob("ephemeral/**/*.iso")}


def test_disks_arrive_to_the_byte(boxes: Boxes, capability_cache: Cache) -> None:
    """What the guest could write to is copied, whatever its Secret says by now; a disc is made of the same bytes."""
    for box in (boxes.source, boxes.target):
        image(box)
    body = with_images()
    boxes.begin(capability_cache, body)
    here = cloud_images(boxes.source)
    assert sorted(here) == ["cloud.iso", "drive.iso"]
    changed = boxes.facts(body)
    told = {each["name"]: each for each in changed["status"]["volumeStatus"]}
    assert {name: bool(each["containerDiskVolume"]["checksum"]) for name, each in told.items()} == {
        "root": True,
        "cloud": False,
        "tools": True,
    }
    changed["spec"]["volumes"][1]["cloudInitNoCloud"]["userData"] = "other words " * 10_000
    boxes.prepare(changed)
    boxes.move(changed)
    assert cloud_images(boxes.target) == here
    answer = boxes.sync_there(changed)
    assert list(answer.synced.needs_restart) == []
    assert boxes.source.wait_exit() == 0


def test_another_image_under_the_same_tag_is_refused(boxes: Boxes, capability_cache: Cache) -> None:
    image(boxes.source)
    image(boxes.target, b"newer " * MIB)
    body = with_images()
    boxes.begin(capability_cache, body)
    with pytest.raises(grpc.RpcError) as call:
        boxes.prepare(boxes.facts(body))
    assert call.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "'guest:v1' is another image on this node" in (call.value.details() or "")
    assert domain(boxes.source).state == pb.DOMAIN_STATE_RUNNING


def plugged(body: dict[str, Any], *volumes: str) -> dict[str, Any]:
    """With volumes that were brought while it ran."""
    claims = [{"name": n, "persistentVolumeClaim": {"claimName": n, "hotpluggable": True}} for n in volumes]
    info = {
        "claimName": "c",
        "accessModes": ["ReadWriteMany"],
        "volumeMode": "Filesystem",
        "capacity": {"storage": "16Mi"},
    }
    status = [{"name": n, "phase": "Ready", "hotplugVolume": {}, "persistentVolumeClaimInfo": info} for n in volumes]
    domain_ = body["spec"]["domain"]
    disks = [{"name": n, "serial": n, "disk": {"bus": "scsi"}} for n in volumes]
    spec = body["spec"] | {"volumes": claims, "domain": domain_ | {"devices": {"disks": disks}}}
    return body | {"spec": spec, "status": body.get("status", {}) | {"volumeStatus": status}}


def test_what_was_plugged_in_comes_along_and_can_be_taken_out_there(boxes: Boxes, capability_cache: Cache) -> None:
    """And so do processors and memory that came later."""
    small = vmi(cpu={"sockets": 1, "maxSockets": 3}, memory={"guest": "1Gi", "maxGuest": "4Gi"})
    small["status"] = {"memory": {"guestAtBoot": "1Gi"}}
    boxes.begin(capability_cache, small)
    disk = give(boxes.source.root / f"private/{names.DIRECTORY_HOTPLUG}/data/disk.img", bytes(16 * MIB))
    share(disk, boxes.target.root / f"private/{names.DIRECTORY_HOTPLUG}/data/disk.img")
    grown = small | {"spec": {"domain": small["spec"]["domain"] | {"cpu": {"sockets": 2, "maxSockets": 3}}}}
    grown["spec"]["domain"] = grown["spec"]["domain"] | {"memory": {"guest": "2Gi", "maxGuest": "4Gi"}}
    body = plugged(grown, "data")
    boxes.source.stub.SyncVMI(request(body, capability_cache), timeout=60)
    before = domain(boxes.source)
    assert (before.processors, dict(before.disk_targets)) == (2, {"data": "sda"})
    boxes.prepare(body)
    boxes.move(body, unsafe=True)  # libvirt knows that this file system is of one machine.
    answer = boxes.sync_there(body)
    assert list(answer.synced.needs_restart) == []
    assert (answer.domain.processors, dict(answer.domain.disk_targets)) == (2, {"data": "sda"})
    assert answer.domain.memory_bytes == before.memory_bytes
    after = boxes.sync_there(plugged(grown))
    assert dict(after.domain.disk_targets) == {}


@pytest.mark.skipif(len(CPUS) < 2, reason="this machine has one CPU")
def test_a_machine_gets_the_cpus_of_its_new_pod(boxes: Boxes, capability_cache: Cache) -> None:
    body = vmi(cpu={"dedicatedCpuPlacement": True, "cores": 1})
    boxes.begin(capability_cache, body, cpus=((CPUS[0],), (CPUS[1],)))
    assert vcpu_places(boxes.source) == [{CPUS[0]}]
    cpus = boxes.prepare(body).cpus
    assert [cpu.number for cpu in cpus] == [CPUS[1]]
    told = topology.text_of([Cpu(cell=c.cell, core=c.core, number=c.number) for c in cpus])
    state = {"migrationUid": "x", "targetCPUSet": [CPUS[1]], "targetNodeTopology": told}
    boxes.move(body | {"status": {"migrationState": state}})
    eventually(lambda: vcpu_places(boxes.target) == [{CPUS[1]}])


def vcpu_places(box: Sandbox) -> list[set[int]]:
    tasks = Path(f"/proc/{box.qemu_pid}/task").iterdir()
    return [os.sched_getaffinity(int(t.name)) for t in tasks if (t / "comm").read_text().startswith("CPU ")]


@pytest.mark.skipif(not list(EFI.glob("OVMF_VARS*.fd")), reason="this machine has no UEFI for guests")
def test_the_variables_of_the_firmware_move_with_their_claim(boxes: Boxes, capability_cache: Cache) -> None:
    for box in (boxes.source, boxes.target):
        for part in ("meta", "nvram"):
            give(box.root / f"private/{names.VOLUME_KEPT_STATE}/{part}/.here", b"")
    body = vmi(
        firmware={"bootloader": {"efi": {"secureBoot": False, "persistent": True}}},
        memory={"guest": "128Mi"},
    )
    boxes.begin(capability_cache, body)
    (here,) = (boxes.source.root / f"private/{names.VOLUME_KEPT_STATE}/nvram").glob("*.fd")
    os.link(here, boxes.target.root / f"private/{names.VOLUME_KEPT_STATE}/nvram" / here.name)
    boxes.prepare(body)
    boxes.move(body)
    held = {
        os.stat(f"/proc/{boxes.target.qemu_pid}/fd/{fd}").st_ino
        for fd in os.listdir(f"/proc/{boxes.target.qemu_pid}/fd")
    }
    assert here.stat().st_ino in held


@pytest.mark.skipif(shutil.which("swtpm") is None, reason="this machine has no software TPM")
def test_a_tpm_that_keeps_nothing_moves_with_the_memory(boxes: Boxes, capability_cache: Cache) -> None:
    body = vmi(devices={"tpm": {}})
    boxes.begin(capability_cache, body)
    boxes.prepare(body)
    boxes.move(body)
    assert boxes.target.descendants("swtpm")


def test_a_guest_that_runs_meets_its_agent_again(boxes: Boxes, capability_cache: Cache, guest_files: Path) -> None:
    """With a processor and a disk that came while it ran, and its clock is set."""
    mac = "02:00:00:00:00:78"
    for box in (boxes.source, boxes.target):
        shutil.copytree(guest_files, box.root / "images/disk_0")
    options = {"interfaces": [pb.InterfaceAttachment(name="default", tap="tap0", mac=mac, mtu=1450, queues=1)]}
    body = guest_vmi()
    body["spec"]["domain"]["cpu"] = {"sockets": 1, "maxSockets": 2}
    boxes.begin(capability_cache, body, tap="tap0", options=options)
    boxes.source.handler.wait_for(lambda d: d.agent_connected)
    disk = give(boxes.source.root / f"private/{names.DIRECTORY_HOTPLUG}/data/disk.img", bytes(16 * MIB))
    share(disk, boxes.target.root / f"private/{names.DIRECTORY_HOTPLUG}/data/disk.img")
    grown = with_plugged(body, "data")
    grown["spec"]["domain"]["cpu"] = {"sockets": 2, "maxSockets": 2}
    boxes.source.stub.SyncVMI(request(grown, capability_cache, **options), timeout=60)
    boxes.source.virsh("domtime", "ns_vm1", "--time", "1000000000")
    assert abs(guest_time(boxes.source) - time.time()) > YEAR
    moved = boxes.facts(grown)
    boxes.prepare(moved)
    boxes.move(moved, unsafe=True, parallel_connections=8)
    boxes.target.handler.wait_for(lambda d: d.agent_connected)
    answer = boxes.sync_there(moved)
    assert list(answer.synced.needs_restart) == []
    assert (answer.domain.processors, answer.domain.disk_targets["data"]) == (2, "sdb")
    assert boxes.source.wait_exit() == 0
    # The node's time, not the one that it came with.
    eventually(lambda: abs(guest_time(boxes.target) - time.time()) < YEAR)


def guest_time(box: Sandbox) -> int:
    """By its agent, which may be asked something else just then."""

    def told() -> int:
        try:
            return int(box.virsh("domtime", "ns_vm1").split()[-1])
        except subprocess.CalledProcessError as error:
            raise AssertionError(error.stderr) from error

    return eventually(told)


def with_plugged(body: dict[str, Any], name: str) -> dict[str, Any]:
    """Beside what it has."""
    more = plugged(json.loads(json.dumps(body)), name)
    spec = body["spec"]
    volumes, disks = more["spec"]["volumes"], more["spec"]["domain"]["devices"]["disks"]
    devices = spec["domain"]["devices"] | {"disks": spec["domain"]["devices"]["disks"] + disks}
    more["spec"] = spec | {"volumes": spec["volumes"] + volumes, "domain": spec["domain"] | {"devices": devices}}
    return more


LISTEN = """
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x8035))
s.bind(("tap0", 0))
s.settimeout(60)
print("listening", flush=True)
print(s.recv(64)[6:12].hex(":"), flush=True)
"""


def test_the_new_place_announces_the_machine(boxes: Boxes, capability_cache: Cache) -> None:
    """Switches learn by it where its MAC is now."""
    mac = "02:00:00:00:00:77"
    body = created(
        vmi(devices={"interfaces": [{"name": "n", "masquerade": {}, "macAddress": mac}]}),
        networks=[{"name": "n", "pod": {}}],
    )
    options = {"interfaces": [pb.InterfaceAttachment(name="n", tap="tap0", mac=mac, mtu=1500, queues=1)]}
    boxes.begin(capability_cache, body, tap="tap0", options=options)
    boxes.prepare(body)
    enter = ["nsenter", f"--net=/proc/{boxes.target.pid}/ns/net", sys.executable, "-c", LISTEN]
    with subprocess.Popen(enter, stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdout is not None
        assert listener.stdout.readline() == "listening\n"
        boxes.move(body)
        assert listener.stdout.readline().strip() == mac
