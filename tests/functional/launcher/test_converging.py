"""A real machine that is synced again: libvirt and QEMU take the changes, and see none where there are none."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from tests.functional.launcher.sandbox import UID, Sandbox
from tests.functional.launcher.vmis import request, vmi
from virt_protos.launcher.v1 import launcher_pb2 as pb

pytestmark = pytest.mark.root
Cache = list[pb.CacheFile]
TAP = "tap0"
NETWORK = {"interfaces": [pb.InterfaceAttachment(name="n", tap=TAP, mac="02:00:00:AA:00:01", mtu=1400)]}


def body(*disks: str, drive: bool = True, link: str = "", **domain: Any) -> dict[str, Any]:
    """Disks whose names begin with s are on the bus scsi. `drive`: the CD-ROM drive has a medium."""
    listed: list[dict[str, Any]] = [
        {"name": name, "disk": {"bus": "scsi" if name.startswith("s") else "virtio"}, "serial": name} for name in disks
    ]
    listed.append({"name": "cd", "cdrom": {"bus": "sata"}})
    devices = {
        "disks": listed,
        "interfaces": [{"name": "n", "bridge": {}, "state": link}],
        "rng": {},
        "inputs": [{"type": "tablet", "bus": "usb", "name": "pointer"}],
        "watchdog": {"name": "dog", "i6300esb": {"action": "reset"}},
        "sound": {"name": "bell"},
        "clientPassthrough": {},
        "panicDevices": [{"model": "isa"}],
    }
    rest = {
        "features": {"acpi": {}, "apic": {}, "smm": {}},
        "clock": {"utc": {}, "timer": {"hpet": {}}},
        "cpu": {"cores": 2, "sockets": 1, "maxSockets": 2},
        "ioThreadsPolicy": "shared",
        "rebootPolicy": "Terminate",
        "firmware": {"serial": "a serial", "uuid": UID},
        "chassis": {"asset": "7"},
    }
    result = vmi(devices=devices, **(rest | domain))
    volumes: list[dict[str, Any]] = [{"name": name, "emptyDisk": {"capacity": "1Mi"}} for name in disks]
    if drive:
        volumes.append({"name": "cd", "cloudInitNoCloud": {"userData": "#cloud-config"}})
    result["spec"]["volumes"] = volumes
    return result


@pytest.fixture
def running(box: Sandbox, capability_cache: Cache) -> Sandbox:
    box.serve_notify()
    box.start(tap=TAP)
    box.wait_ready()
    sync(box, capability_cache, body("root", "s1"), "first")
    return box


def sync(box: Sandbox, cache: Cache, wanted: dict[str, Any], digest: str) -> pb.SyncVMIResponse:
    message = request(wanted, cache, **NETWORK)
    message.digest = digest
    return box.stub.SyncVMI(message, timeout=60)


def logged(box: Sandbox) -> int:
    return box.log.read_text().count("a device was changed")


def test_a_machine_is_as_it_was_started(running: Sandbox, capability_cache: Cache) -> None:
    answer = sync(running, capability_cache, body("root", "s1"), "again")
    assert (answer.synced.digest, list(answer.synced.needs_restart)) == ("again", [])
    assert logged(running) == 0
    assert running.stub.GetDomain(pb.GetDomainRequest()).synced.digest == "again"


def test_disks_come_and_go(running: Sandbox, capability_cache: Cache) -> None:
    answer = sync(running, capability_cache, body("d1", "s2", "root", "s1"), "more")
    before = {"root": "vda", "cd": "sdb", "s1": "sda"}
    assert dict(answer.domain.disk_targets) == before | {"d1": "vdb", "s2": "sdc"}
    answer = sync(running, capability_cache, body("d1", "root", "s2"), "fewer")
    assert dict(answer.domain.disk_targets) == {"root": "vda", "cd": "sdb", "d1": "vdb", "s2": "sdc"}
    assert logged(running) == 3
    sync(running, capability_cache, body("s2", "d1", "root"), "the same")
    assert logged(running) == 3


def test_a_medium_is_taken_out_and_put_back(running: Sandbox, capability_cache: Cache) -> None:
    for number, drive in enumerate((False, True, False), start=1):
        answer = sync(running, capability_cache, body("root", "s1", drive=drive), f"medium {number}")
        assert list(answer.synced.needs_restart) == []
        assert logged(running) == number
        sync(running, capability_cache, body("root", "s1", drive=drive), "once more")
        assert logged(running) == number


def test_a_drive_that_starts_empty_takes_a_medium(box: Sandbox, capability_cache: Cache) -> None:
    box.serve_notify()
    box.start(tap=TAP)
    box.wait_ready()
    answer = sync(box, capability_cache, body("root", drive=False), "empty")
    assert dict(answer.domain.disk_targets) == {"root": "vda"}, "nothing is in the drive"
    answer = sync(box, capability_cache, body("root"), "medium")
    assert list(answer.synced.needs_restart) == []
    assert dict(answer.domain.disk_targets) == {"root": "vda", "cd": "sda"}
    assert logged(box) == 1


def test_a_link_goes_down_and_up(running: Sandbox, capability_cache: Cache) -> None:
    for state in ("down", "up"):
        answer = sync(running, capability_cache, body("root", "s1", link=state), state)
        assert [nic.link_state for nic in answer.domain.interfaces] == [state]
        running.handler.wait_for(lambda d, state=state: [nic.link_state for nic in d.interfaces] == [state])  # type: ignore[misc]


def test_a_guest_that_does_not_let_go_is_named_and_runs_on(running: Sandbox, capability_cache: Cache) -> None:
    """Firmware does not hear that a PCI device is to go."""
    sync(running, capability_cache, body("root", "s1", "d1"), "more")
    with pytest.raises(grpc.RpcError, match='disk "d1" was not detached: the guest') as call:
        sync(running, capability_cache, body("root", "s1"), "fewer")
    assert call.value.code() is grpc.StatusCode.INTERNAL
    answer = running.stub.GetDomain(pb.GetDomainRequest())
    assert (answer.synced.digest, answer.domain.state) == ("", pb.DOMAIN_STATE_RUNNING)


def test_a_machine_whose_ports_are_full_says_so(running: Sandbox, capability_cache: Cache) -> None:
    """Free are one port behind the devices and three that are kept for network cards."""
    names = [f"d{number}" for number in range(5)]
    answer = sync(running, capability_cache, body("root", "s1", *names), "many")
    assert {"d0", "d1", "d2", "d3"} <= {*answer.domain.disk_targets}
    [need] = answer.synced.needs_restart
    assert need.reason == 'disk "d4": the machine has no free PCI port for it; after a restart it has one'


def test_what_waits_for_a_restart_is_said(running: Sandbox, capability_cache: Cache) -> None:
    wanted = body("root", "s1", memory={"guest": "128Mi"})
    wanted["spec"]["domain"]["devices"]["disks"].append({"name": "late", "disk": {"bus": "sata"}})
    wanted["spec"]["volumes"].append({"name": "late", "emptyDisk": {"capacity": "1Mi"}})
    answer = sync(running, capability_cache, wanted, "other")
    fields = [need.field for need in answer.synced.needs_restart]
    assert fields == ["spec.domain.memory.guest", "spec.domain.devices.disks"]
    assert all(need.reason for need in answer.synced.needs_restart)
    assert list(running.stub.GetDomain(pb.GetDomainRequest()).synced.needs_restart) == list(answer.synced.needs_restart)
