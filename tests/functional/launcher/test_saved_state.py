"""The state of a real machine, as libvirt and QEMU write and read it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.functional.launcher.sandbox import Sandbox, eventually
from tests.functional.launcher.vmis import request, vmi, with_volume
from virt_core.apis.names import DIRECTORY_HOTPLUG, LAUNCHER_UID
from virt_protos.launcher.v1 import launcher_pb2 as pb

pytestmark = pytest.mark.root

FILE = "vm1-uid-20260101-120000.machine.state"
VOLUME = "virtpod-machine-state"


def on_claim(**annotations: str) -> dict[str, Any]:
    body = with_volume({"persistentVolumeClaim": {"claimName": "disk"}})
    # As VMs have it: with room for more, for which libvirt numbers those that are there.
    body["spec"]["domain"]["cpu"] = {"sockets": 1, "maxSockets": 4}
    body["metadata"]["annotations"] = annotations
    body["status"] = {"volumeStatus": [{"name": "root", "persistentVolumeClaimInfo": {"volumeMode": "Filesystem"}}]}
    return body


def own(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    shutil.chown(directory, LAUNCHER_UID, LAUNCHER_UID)
    return directory


def disk(box: Sandbox) -> Path:
    image = own(box.root / "private" / "vmi-disks" / "root") / "disk.img"
    with image.open("wb") as file:
        file.truncate(4 << 20)
    shutil.chown(image, LAUNCHER_UID, LAUNCHER_UID)
    return image


def running(box: Sandbox, body: dict[str, Any], cache: list[pb.CacheFile]) -> None:
    box.serve_notify()
    box.start()
    box.wait_ready()
    box.stub.SyncVMI(request(body, cache), timeout=30)


def saved(box: Sandbox, kind: pb.DumpKind) -> pb.MemoryDump:
    wanted = pb.DumpMemoryRequest(volume=VOLUME, file_name=FILE, kind=kind, hold_seconds=60)
    box.stub.DumpMemory(wanted, timeout=20)
    return box.handler.wait_for(lambda d: d.memory_dump.ended_us > 0).memory_dump


@pytest.fixture
def other() -> Iterator[Sandbox]:
    """The Pod of the next start."""
    box = Sandbox()
    yield box
    box.close()


def test_a_machine_ends_and_goes_on_in_another_pod(
    box: Sandbox, other: Sandbox, capability_cache: list[pb.CacheFile]
) -> None:
    image, target = disk(box), own(box.root / "private" / DIRECTORY_HOTPLUG / VOLUME)
    running(box, on_claim(), capability_cache)
    assert saved(box, pb.DUMP_KIND_HIBERNATE).failure == ""
    ended = box.handler.wait_for(lambda d: d.state == pb.DOMAIN_STATE_SHUTOFF)
    assert ended.reason == "Saved"
    assert ended.memory_dump.ended_us > 0
    assert box.wait_exit() == 0

    kept = own(other.root / "private" / "machine-state")
    for name in (FILE, f"{FILE}.facts"):
        shutil.copy2(target / name, kept / name)
        shutil.chown(kept / name, LAUNCHER_UID, LAUNCHER_UID)
    shutil.copy2(image, disk(other))
    note = json.dumps({"claim": "sleep", "file": FILE})
    running(other, on_claim(**{"virtpod.io/resume-from": note}), capability_cache)
    eventually(lambda: other.stub.GetDomain(pb.GetDomainRequest()).domain.state == pb.DOMAIN_STATE_RUNNING)
    assert (kept / f"{FILE}.used").stat().st_size == 0
    assert not (kept / FILE).exists()
    # libvirt knows it as the machine that was defined here.
    assert str(other.root) in other.virsh("dumpxml", "ns_vm1")


def test_a_machine_of_another_size_is_refused(
    box: Sandbox, other: Sandbox, capability_cache: list[pb.CacheFile]
) -> None:
    target = own(box.root / "private" / DIRECTORY_HOTPLUG / VOLUME)
    running(box, vmi(), capability_cache)
    assert saved(box, pb.DUMP_KIND_HIBERNATE).failure == ""
    kept = own(other.root / "private" / "machine-state")
    for name in (FILE, f"{FILE}.facts"):
        shutil.copy2(target / name, kept / name)
        shutil.chown(kept / name, LAUNCHER_UID, LAUNCHER_UID)
    body = vmi(memory={"guest": "96Mi"})
    body["metadata"]["annotations"] = {"virtpod.io/resume-from": json.dumps({"claim": "sleep", "file": FILE})}
    with pytest.raises(grpc.RpcError) as refused:
        running(other, body, capability_cache)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "memory" in (refused.value.details() or "")
    assert (kept / FILE).exists()


def test_a_guest_stands_still_for_a_snapshot(box: Sandbox, capability_cache: list[pb.CacheFile]) -> None:
    disk(box)
    target = own(box.root / "private" / DIRECTORY_HOTPLUG / VOLUME)
    running(box, on_claim(), capability_cache)
    assert saved(box, pb.DUMP_KIND_SNAPSHOT).failure == ""
    assert (target / FILE).stat().st_size > 0
    domain = box.stub.GetDomain(pb.GetDomainRequest()).domain
    assert (domain.state, domain.memory_dump.held) == (pb.DOMAIN_STATE_PAUSED, True)
    with pytest.raises(grpc.RpcError) as refused:
        box.stub.Unpause(pb.UnpauseRequest(), timeout=20)
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    box.stub.ReleaseState(pb.ReleaseStateRequest(), timeout=20)
    eventually(lambda: box.stub.GetDomain(pb.GetDomainRequest()).domain.state == pb.DOMAIN_STATE_RUNNING)
