"""A memory dump as virt-handler leads it: when it is asked for, and how it went."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import VolumeStatus
from virt_handler.decisions import memorydumps
from virt_protos.launcher.v1 import launcher_pb2 as pb

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
FILE = "vm1-dump-20260101-120000.memory.dump"


def vmi(**status: Any) -> VirtualMachineInstance:
    body = {
        "metadata": {"name": "vm1", "namespace": "ns"},
        "spec": {
            "domain": {"devices": {}},
            "volumes": [{"name": "dump", "memoryDump": {"claimName": "claim", "hotpluggable": True}}],
        },
        "status": {"volumeStatus": [{"name": "dump", **status}]},
    }
    return from_plain(body, VirtualMachineInstance)


def told(machine: VirtualMachineInstance, dump: pb.MemoryDump | None = None, refused: str = "") -> VolumeStatus:
    domain = pb.Domain(memory_dump=dump)
    [status] = memorydumps.told(machine, machine.status.volume_status, domain, {FILE: refused} if refused else {}, NOW)
    return status


def dumping() -> VirtualMachineInstance:
    begun = {"claimName": "claim", "targetFileName": FILE, "startTimestamp": "2026-01-01T12:00:00Z"}
    return vmi(phase="MemoryDumpInProgress", memoryDumpVolume=begun)


def test_it_begins_when_the_volume_is_in_the_pod() -> None:
    assert told(vmi(phase="AttachedToNode")).phase == "AttachedToNode"
    begun = told(vmi(phase="MountedToPod"))
    assert begun.phase == "MemoryDumpInProgress"
    assert begun.memory_dump_volume is not None
    assert begun.memory_dump_volume.target_file_name == FILE
    assert begun.memory_dump_volume.claim_name == "claim"


def test_the_launcher_is_asked_once() -> None:
    assert list(memorydumps.due(dumping(), pb.Domain(), {})) == [("dump", FILE, "")]
    known = pb.Domain(memory_dump=pb.MemoryDump(file_name=FILE))
    assert list(memorydumps.due(dumping(), known, {})) == []
    assert list(memorydumps.due(dumping(), pb.Domain(), {FILE: "no"})) == []
    assert list(memorydumps.due(vmi(phase="MountedToPod"), pb.Domain(), {})) == []


def test_how_it_went() -> None:
    assert told(dumping(), pb.MemoryDump(file_name=FILE)).phase == "MemoryDumpInProgress"
    assert told(dumping(), pb.MemoryDump(file_name="another", ended_us=5)).phase == "MemoryDumpInProgress"
    done = told(dumping(), pb.MemoryDump(file_name=FILE, ended_us=5))
    assert done.phase == "MemoryDumpCompleted"
    assert done.memory_dump_volume is not None
    assert done.memory_dump_volume.end_timestamp == "2026-01-01T12:00:00Z"
    failed = told(dumping(), pb.MemoryDump(file_name=FILE, ended_us=5, failure="No space left on device"))
    assert (failed.phase, "No space left on device" in failed.message) == ("MemoryDumpFailed", True)
    refused = told(dumping(), refused="the volume is not in the Pod")
    assert (refused.phase, "not in the Pod" in refused.message) == ("MemoryDumpFailed", True)


def saving(kind: str, **status: Any) -> VirtualMachineInstance:
    plain = to_plain(vmi())
    plain["metadata"] |= {"uid": "u1", "annotations": {"virtpod.io/save-state": kind}}
    plain["spec"]["volumes"][0]["name"] = "virtpod-machine-state"
    plain["status"]["volumeStatus"] = [{"name": "virtpod-machine-state", **status}]
    return from_plain(plain, VirtualMachineInstance)


def test_a_whole_state_has_a_name_of_its_own_and_its_kind() -> None:
    begun = told(saving("hibernate", phase="MountedToPod")).memory_dump_volume
    assert begun is not None
    assert begun.target_file_name == "vm1-u1-20260101-120000.machine.state"
    seen = saving("hibernate", phase="MemoryDumpInProgress", memoryDumpVolume={"targetFileName": "f.machine.state"})
    assert list(memorydumps.due(seen, pb.Domain(), {})) == [("virtpod-machine-state", "f.machine.state", "hibernate")]


def test_a_guest_is_let_go_when_nobody_wants_its_state_any_more() -> None:
    held = pb.Domain(memory_dump=pb.MemoryDump(held=True, kind=pb.DUMP_KIND_SNAPSHOT))
    plain = to_plain(saving("snapshot", phase="MemoryDumpCompleted"))
    assert not memorydumps.is_releasable(from_plain(plain, VirtualMachineInstance), held)
    plain["spec"]["volumes"] = []
    rid = from_plain(plain, VirtualMachineInstance)
    assert memorydumps.is_releasable(rid, held)
    ends = pb.Domain(memory_dump=pb.MemoryDump(held=True, kind=pb.DUMP_KIND_HIBERNATE))
    assert not memorydumps.is_releasable(rid, ends)
    assert not memorydumps.is_releasable(rid, pb.Domain())
