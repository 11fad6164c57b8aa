"""A disk goes to another claim with its machine: real libvirt, real QEMU, and every byte compared."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.functional.launcher.sandbox import Sandbox
from tests.functional.launcher.test_moves import AT, JOB, Pair, domain, migrate
from tests.functional.launcher.vmis import request, vmi
from virt_core.apis import names
from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.volumemoves import arrived, at_target
from virt_launcher.domain.domain import from_xml
from virt_protos.launcher.v1 import launcher_pb2 as pb

pytestmark = pytest.mark.root
Cache = list[pb.CacheFile]
MIB = 1 << 20
SIZE = 16 * MIB


class Claims(Pair):
    """Two launchers, each with a claim of its own at the same place: a directory, or a block device."""

    def __init__(self) -> None:
        super().__init__()
        self.loops: list[str] = []
        self.devices: dict[int, str] = {}

    def file(self, box: Sandbox) -> Path:
        return box.root / "private/vmi-disks/data/disk.img"

    def path(self, box: Sandbox) -> Path:
        return Path(self.devices.get(id(box), "") or self.file(box))

    def give(self, box: Sandbox, mode: str, content: bytes) -> None:
        self.file(box).parent.mkdir(parents=True)
        self.file(box).write_bytes(content)
        subprocess.run(["chown", "-R", "107:107", str(box.root / "private/vmi-disks")], check=True)
        if mode == "Block":
            backing = box.root / "device"
            backing.write_bytes(content)
            done = subprocess.run(["losetup", "-f", "--show", str(backing)], capture_output=True, text=True, check=True)
            self.loops.append(done.stdout.strip())
            self.devices[id(box)] = self.loops[-1]

    def start(self) -> None:
        for box, extra in ((self.source, ()), (self.target, ("--role", "target"))):
            box.serve_notify()
            device = self.devices.get(id(box))
            disk = ("data", os.stat(device).st_rdev) if device else ("", 0)
            box.start("--grace-period-seconds", "2", *extra, at=AT, disk=disk)
        for box in (self.source, self.target):
            box.wait_ready()

    def bytes_of(self, box: Sandbox) -> bytes:
        path = self.path(box)
        if str(path).startswith("/dev/"):
            subprocess.run(["blockdev", "--flushbufs", str(path)], check=True)
        return path.read_bytes()

    def close(self) -> None:
        super().close()
        for loop in self.loops:
            subprocess.run(["losetup", "-d", loop], check=False)


@pytest.fixture
def claims() -> Iterator[Claims]:
    both = Claims()
    try:
        yield both
    finally:
        both.close()


def body_of(source: str, there: str, size: int = 0, room: str = "16Mi") -> dict[str, Any]:
    def info(claim: str, mode: str, space: str) -> dict[str, Any]:
        return {"claimName": claim, "volumeMode": mode, "requests": {"storage": space}}

    body = vmi(devices={"disks": [{"name": "data", "disk": {"bus": "virtio"}}]})
    body["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "new"}}]
    here, new = info("old", source, "16Mi"), info("new", there, room)
    body["status"] = {
        "volumeStatus": [{"name": "data", "size": size, "persistentVolumeClaimInfo": here}],
        "migratedVolumes": [{"volumeName": "data", "sourcePVCInfo": here, "destinationPVCInfo": new}],
    }
    return body


def as_target(body: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = to_plain(at_target(from_plain(body, VirtualMachineInstance)))
    return told


def content() -> bytes:
    """Random, with a hole in it: what is zero here must be zero there."""
    return os.urandom(5 * MIB) + bytes(6 * MIB) + os.urandom(5 * MIB)


def prepare(claims: Claims, body: dict[str, Any], cache: Cache) -> None:
    asked = request(as_target(body), cache)
    claims.target.stub.PrepareTarget(
        pb.PrepareTargetRequest(vmi_json=asked.vmi_json, options=asked.options), timeout=60
    )


@pytest.mark.parametrize(
    ("source", "there"), [("Filesystem", "Filesystem"), ("Filesystem", "Block"), ("Block", "Filesystem")]
)
def test_every_byte_arrives_whatever_was_there(
    claims: Claims, capability_cache: Cache, source: str, there: str
) -> None:
    """The other claim is full of old bytes, and larger."""
    wanted = content()
    claims.give(claims.source, source, wanted)
    claims.give(claims.target, there, b"\xff" * (20 * MIB))
    claims.start()
    before = body_of(source, there)
    started = {**before, "status": {"volumeStatus": before["status"]["volumeStatus"]}}
    claims.source.stub.SyncVMI(request(started, capability_cache), timeout=60)
    told = claims.source.stub.GetDiskFacts(pb.GetDiskFactsRequest(vmi_json=json.dumps(before).encode()), timeout=60)
    assert told.disks["data"].size == SIZE
    body = body_of(source, there, SIZE, "20Mi")
    prepare(claims, body, capability_cache)
    claims.connect()
    migrate(claims, body)
    left = claims.source.handler.wait_for(lambda d: d.move.ended_us > 0)
    assert not left.move.failed, left.move.reason
    claims.target.handler.wait_for(lambda d: d.state == pb.DOMAIN_STATE_RUNNING)
    assert claims.cables[names.SOCKET_MOVE_DISKS].bytes > 10 * MIB
    assert claims.bytes_of(claims.target)[:SIZE] == wanted
    disk = from_xml(claims.target.virsh("dumpxml", "ns_vm1")).devices.disks[0]
    assert disk.type == ("block" if there == "Block" else "file")
    # Once it is there it becomes as large as its claim, and is otherwise as one that was started there.
    after = from_plain(body, VirtualMachineInstance)
    plain = {**body, "status": to_plain(arrived(after.status))}
    message = request(plain, capability_cache)
    message.digest = "there"
    answer = claims.target.stub.SyncVMI(message, timeout=60)
    assert answer.synced.digest == "there"
    wait = [each.reason for each in answer.synced.needs_restart]
    seen = claims.target.virsh("domblkinfo", "ns_vm1", "vda", "--human").splitlines()[0]
    # Before libvirt 10 a disk that has a part of its device has it until the next start.
    assert wait == [] or (there == "Block" and "it has a part of its device" in wait[0]), wait
    assert ("20.000 MiB" in seen) == (not wait), seen


def test_a_disk_stays_whole_where_it_was_if_its_move_is_given_up(claims: Claims, capability_cache: Cache) -> None:
    wanted = content()
    claims.give(claims.source, "Filesystem", wanted)
    claims.give(claims.target, "Filesystem", b"")
    claims.start()
    body = body_of("Filesystem", "Filesystem", SIZE)
    started = {**body, "status": {"volumeStatus": body["status"]["volumeStatus"]}}
    claims.source.stub.SyncVMI(request(started, capability_cache), timeout=60)
    prepare(claims, body, capability_cache)
    claims.connect()
    cable = claims.cables[names.SOCKET_MOVE_DISKS]
    cable.stop_after(2 * MIB)
    migrate(claims, body)
    claims.source.handler.wait_for(lambda d: d.move.uid == JOB and cable.bytes > 2 * MIB)
    claims.source.stub.CancelMigration(pb.CancelMigrationRequest(uid=JOB), timeout=30)
    cable.gate.set()
    left = claims.source.handler.wait_for(lambda d: d.move.ended_us > 0)
    assert left.move.failed
    assert domain(claims.source).state == pb.DOMAIN_STATE_RUNNING
    assert claims.file(claims.source).read_bytes() == wanted


def test_a_claim_that_is_too_small_is_refused_with_both_sizes(claims: Claims, capability_cache: Cache) -> None:
    claims.give(claims.source, "Filesystem", content())
    claims.give(claims.target, "Filesystem", b"precious")
    claims.start()
    with pytest.raises(grpc.RpcError, match="has 8388608 bytes, and the disk that is to be copied there has 16777216"):
        prepare(claims, body_of("Filesystem", "Filesystem", SIZE, "8Mi"), capability_cache)
    assert claims.file(claims.target).read_bytes() == b"precious"
