"""What a node does about volumes that come and go, and what it tells of them."""

from __future__ import annotations

from typing import Any

import pytest
from framework.vmis import handed_over

from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import VolumeStatus
from virt_handler.decisions import hotplug
from virt_handler.decisions.hotplug import Mounts, Plugged, Work
from virt_handler.decisions.wanted import digest
from virt_protos.launcher.v1 import launcher_pb2 as pb


def volume(name: str, phase: str, *, pod: str = "pod", mode: str = "Filesystem", **more: Any) -> dict[str, Any]:
    info = {"claimName": name, "volumeMode": mode}
    return {
        "name": name,
        "phase": phase,
        "persistentVolumeClaimInfo": info,
        "hotplugVolume": {"attachPodName": "hp", "attachPodUID": pod} if pod else {},
        **more,
    }


def machine(*statuses: dict[str, Any], asked: str = "a", drive: bool = False) -> VirtualMachineInstance:
    volumes = [{"name": n, "persistentVolumeClaim": {"claimName": n, "hotpluggable": True}} for n in asked.split()]
    kind = {"cdrom": {"bus": "sata"}} if drive else {"disk": {"bus": "scsi"}}
    disks = [{"name": name, **kind} for name in asked.split()]
    domain = {"devices": {"disks": disks}}
    return handed_over("Running", spec={"volumes": volumes, "domain": domain}, status={"volumeStatus": list(statuses)})


def with_disks(**targets: str) -> pb.Domain:
    return pb.Domain(state=pb.DOMAIN_STATE_RUNNING, disk_targets=targets)


def test_what_an_attachment_pod_holds_is_mounted_once() -> None:
    vmi = machine(volume("a", "AttachedToNode"), volume("b", "AttachedToNode", mode="Block"), asked="a b")
    assert hotplug.work(vmi, Mounts(), None, None).mount == (Plugged("a", "pod"), Plugged("b", "pod", block=True))
    assert hotplug.work(vmi, Mounts(frozenset("ab")), None, None) == Work()


def test_a_utility_volume_is_mounted_though_no_disk_is_made_of_it() -> None:
    utility = {"utilityVolumes": [{"name": "u", "claimName": "u"}]}
    vmi = handed_over("Running", spec=utility, status={"volumeStatus": [volume("u", "AttachedToNode")]})
    assert hotplug.work(vmi, Mounts(), None, None).mount == (Plugged("u", "pod"),)
    [told] = hotplug.told(vmi, vmi.status.volume_status, Mounts(frozenset("u")))
    assert told.phase == "MountedToPod"


def test_without_a_pod_that_runs_nothing_is_mounted() -> None:
    assert hotplug.work(machine(volume("a", "AttachedToNode", pod="")), Mounts(), None, None) == Work()


def test_what_nobody_asks_for_is_not_mounted() -> None:
    vmi = machine(volume("a", "AttachedToNode"), volume("b", "AttachedToNode"))
    assert [each.name for each in hotplug.work(vmi, Mounts(), None, None).mount] == ["a"]


def test_a_volume_is_taken_out_when_the_guest_has_let_it_go() -> None:
    """Not while its disk is there, and not before the launcher has done what the VMI asks for now."""
    vmi, there = machine(volume("b", "Ready")), Mounts(frozenset("b"))
    assert hotplug.work(vmi, there, with_disks(b="sda"), digest(vmi)).unmount == ()
    assert hotplug.work(vmi, there, with_disks(), "something older").unmount == ()
    assert hotplug.work(vmi, there, with_disks(), digest(vmi)).unmount == ("b",)


@pytest.mark.parametrize(
    ("phase", "there", "asked", "target", "expected"),
    [
        ("AttachedToNode", True, True, "", ("MountedToPod", "VolumeMountedToPod")),
        ("AttachedToNode", False, True, "", ("AttachedToNode", "")),
        ("MountedToPod", True, True, "sda", ("Ready", "VolumeReady")),
        ("AttachedToNode", True, True, "sda", ("Ready", "VolumeReady")),
        ("Ready", True, True, "", ("Ready", "")),
        ("Ready", True, False, "", ("Ready", "")),
        ("Ready", False, False, "", ("UnMountedFromPod", "VolumeUnMountedFromPod")),
        ("AttachedToNode", False, False, "", ("UnMountedFromPod", "VolumeUnMountedFromPod")),
        ("Detaching", False, False, "", ("Detaching", "")),
        ("Bound", False, True, "", ("Bound", "")),
    ],
)
def test_phases(phase: str, there: bool, asked: bool, target: str, expected: tuple[str, str]) -> None:
    vmi = machine(volume("a", phase, target=target), asked="a" if asked else "other")
    mounts = Mounts(frozenset("a") if there else frozenset())
    (told,) = hotplug.told(vmi, vmi.status.volume_status, mounts)
    assert (told.phase, told.reason) == expected


def test_nothing_is_told_before_the_node_has_looked() -> None:
    vmi = machine(volume("a", "Ready"), asked="other")
    assert hotplug.told(vmi, vmi.status.volume_status, None) == vmi.status.volume_status


def test_a_failure_stands_at_the_volume() -> None:
    vmi = machine(volume("a", "AttachedToNode"))
    (told,) = hotplug.told(vmi, vmi.status.volume_status, Mounts(failures={"a": "no way"}))
    assert (told.phase, told.reason, told.message) == ("AttachedToNode", "HotplugFailed", "no way")


def test_the_first_start_waits_for_all_volumes() -> None:
    assert "AttachedToNode" in hotplug.missing(machine(volume("a", "AttachedToNode")))
    assert not hotplug.missing(machine(volume("a", "MountedToPod")))
    assert not hotplug.missing(machine(volume("gone", "Detaching")))


def test_a_volume_on_its_way_is_no_reason_to_sync() -> None:
    """Nor is one that nobody has spoken of yet; once it is there it is one."""
    before = digest(machine(asked=""))
    for statuses in ((), (volume("a", "Bound"),), (volume("a", "AttachedToNode"),)):
        assert digest(machine(*statuses)) == before
    assert digest(machine(volume("a", "MountedToPod"))) != before
    assert digest(machine(volume("a", "Detaching"), asked="")) == before
    assert digest(machine(volume("a", "MountedToPod"))) == digest(machine(volume("a", "Ready", pod="other")))


def test_a_drive_is_there_before_its_medium() -> None:
    empty = digest(machine(drive=True))
    assert empty != digest(machine(asked=""))
    assert empty == digest(machine(volume("a", "Bound"), drive=True))
    assert empty != digest(machine(volume("a", "MountedToPod"), drive=True))


def test_each_phase_that_changed_is_told_once() -> None:
    before = [VolumeStatus(name="a", phase="AttachedToNode")]
    vmi = machine(volume("a", "MountedToPod", reason="VolumeMountedToPod", message="there"))
    assert hotplug.notes(before, vmi.status.volume_status) == [("Normal", "VolumeMountedToPod", "there")]
    assert hotplug.notes(vmi.status.volume_status, vmi.status.volume_status) == []
