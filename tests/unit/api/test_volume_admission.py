"""Volumes that come and go: wishes in a VM's status, and changes of a running VMI."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from unit.api.fakecluster import FakeCluster, meta
from unit.api.reviews import CONFIG, CONTROLLER, hooks, update, vm, vmi

from virt_core.apis.base import from_plain
from virt_core.apis.gates import enabled_gates
from virt_core.apis.migrationstate import VirtualMachineInstanceMigrationState
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmi import VirtualMachineInstanceSpec as Spec
from virt_core.apis.vmistatus import VirtualMachineInstanceStatus

INVALID, NOT_SUPPORTED = "FieldValueInvalid", "FieldValueNotSupported"
REQUESTS = "Status.volumeRequests"
CLAIM = {"persistentVolumeClaim": {"claimName": "c"}}
SCSI = {"name": "h", "disk": {"bus": "scsi"}}


def add(disk: dict[str, Any] | None = None, name: str = "h") -> dict[str, Any]:
    return {"addVolumeOptions": {"name": name, "disk": disk or SCSI, "volumeSource": CLAIM}}


def remove(name: str = "h") -> dict[str, Any]:
    return {"removeVolumeOptions": {"name": name}}


@pytest.mark.parametrize(
    ("requests", "causes"),
    [
        ([add()], []),
        ([add(), remove("x")], []),
        ([add({"name": "h", "lun": {"bus": "scsi"}})], []),
        ([add({"name": "h", "disk": {"bus": "virtio"}, "dedicatedIOThread": True})], []),
        ([{}], [(REQUESTS, INVALID)]),
        ([{**add(), **remove()}], [(REQUESTS, INVALID)]),
        ([add(), add()], [(REQUESTS, INVALID)]),
        ([remove(), remove()], [(REQUESTS, INVALID)]),
        ([add({"name": "h", "disk": {"bus": "sata"}})], [(REQUESTS, INVALID)]),
        ([add({"name": "h", "cdrom": {"bus": "scsi"}})], [(REQUESTS, INVALID)]),
        ([add({"name": "h", "lun": {"bus": "virtio"}})], [(REQUESTS, INVALID)]),
        ([add({"name": "h", "lun": {"bus": "scsi", "reservation": True}})], [(REQUESTS, INVALID)]),
        ([add({**SCSI, "dedicatedIOThread": True})], [(REQUESTS, INVALID)]),
        ([add({**SCSI, "bootOrder": 0})], [("spec.domain.devices.disks[1].bootOrder", INVALID)]),
        ([add(name="d0")], [(REQUESTS, INVALID)]),
    ],
)
def test_wishes(requests: list[dict[str, Any]], causes: list[tuple[str, str]]) -> None:
    obj = {**vm(), "status": {"volumeRequests": requests}}
    assert update(obj, vm(), "/status-validate").causes == causes
    assert update(obj, vm(), "/virtualmachines-validate").causes == causes


def test_a_wish_must_leave_a_machine_that_can_run() -> None:
    disk = {"name": "h", "disk": {"bus": "virtio"}, "bootOrder": 1}
    old = vm()
    old["spec"]["template"]["spec"]["domain"]["devices"]["disks"][0]["bootOrder"] = 1
    obj = {**old, "status": {"volumeRequests": [add(disk)]}}
    field = "spec.template.spec.domain.devices.disks[1].bootOrder"
    assert update(obj, old, "/status-validate").causes == [(field, INVALID)]
    live = VirtualMachineInstance(metadata=meta("t"), spec=from_plain(old["spec"]["template"]["spec"], Spec))
    verdict = update(obj, old, "/status-validate", using=hooks(FakeCluster(live)))
    assert verdict.fields == [field, "spec.domain.devices.disks[1].bootOrder"]


def test_no_wishes_while_the_machine_moves() -> None:
    state = VirtualMachineInstanceMigrationState()
    running = VirtualMachineInstance(metadata=meta("t"), status=VirtualMachineInstanceStatus(migration_state=state))
    obj = {**vm(), "status": {"volumeRequests": [add()]}}
    verdict = update(obj, vm(), "/status-validate", using=hooks(FakeCluster(running)))
    assert verdict.causes == [(REQUESTS, NOT_SUPPORTED)]


def test_a_status_must_be_one_but_may_hold_more() -> None:
    assert update({**vm(), "status": {"surprise": 1}}, vm(), "/status-validate").code == 200
    assert update({**vm(), "status": {"created": "maybe"}}, vm(), "/status-validate").causes == [("status", INVALID)]


def running() -> dict[str, Any]:
    return {**vmi(), "status": {"phase": "Running", "volumeStatus": [{"name": "d0", "target": "vda"}]}}


def plugged(volume: dict[str, Any] | None = None, disk: dict[str, Any] | None = None) -> dict[str, Any]:
    obj = copy.deepcopy(running())
    obj["spec"]["volumes"].append({"name": "h", **(volume or CLAIM)})
    obj["spec"]["domain"]["devices"]["disks"].append(disk or SCSI)
    return obj


def changed(obj: dict[str, Any], old: dict[str, Any], gates: frozenset[str] = frozenset()) -> list[tuple[str, str]]:
    config = replace(CONFIG, feature_gates=enabled_gates() | gates)
    return update(obj, old, "/virtualmachineinstances-validate-update", CONTROLLER, hooks(config=config)).causes


def test_volumes_are_plugged_and_unplugged() -> None:
    assert changed(plugged(), running()) == []
    assert changed(running(), plugged()) == []


@pytest.mark.parametrize(
    ("obj", "field"),
    [
        (plugged({"emptyDisk": {"capacity": "1Gi"}}), "spec.volumes"),
        (plugged(disk={"name": "other", "disk": {"bus": "scsi"}}), "spec.volumes"),
        (plugged(disk={"name": "h", "disk": {"bus": "sata"}}), "spec.domain.devices.disks"),
        (
            {**running(), "spec": {**vmi()["spec"], "utilityVolumes": [{"name": "u", "claimName": "c"}]}},
            "spec.utilityVolumes",
        ),
    ],
)
def test_what_cannot_be_plugged(obj: dict[str, Any], field: str) -> None:
    assert changed(obj, running()) == [(field, INVALID)]


def test_what_is_still_being_detached_does_not_come_back_yet() -> None:
    """Under the same name there would be another claim behind a disk that the guest still has."""
    before, after = running(), plugged()
    for document in (before, after):
        document["status"]["volumeStatus"] = [
            *document["status"].get("volumeStatus", []),
            {"name": "h", "phase": "Detaching", "hotplugVolume": {}},
        ]
    assert changed(after, before) == [("spec.volumes", INVALID)]


def test_permanent_volumes_stay() -> None:
    obj = running()
    obj["spec"]["volumes"][0]["containerDisk"]["image"] = "other:1"
    assert changed(obj, running()) == [("spec.volumes", INVALID)]
    obj["status"]["migratedVolumes"] = [{"volumeName": "d0"}]
    assert changed(obj, running()) == []
    gone = running()
    gone["spec"]["volumes"], gone["spec"]["domain"]["devices"]["disks"] = [], []
    assert changed(gone, running()) == [("spec.volumes", INVALID)]


def test_what_is_plugged_in_is_not_changed() -> None:
    other = plugged({"persistentVolumeClaim": {"claimName": "other"}})
    assert changed(other, plugged()) == [("spec.volumes", INVALID)]
    assert changed(plugged(disk={**SCSI, "serial": "s"}), plugged()) == [("spec.domain.devices.disks", INVALID)]


@pytest.mark.parametrize(
    ("volumes", "causes"),
    [
        ([{"name": "u", "claimName": "c"}], []),
        ([{"name": "", "claimName": "c"}], [("spec.utilityVolumes[0].name", "FieldValueRequired")]),
        ([{"name": "u", "claimName": ""}], [("spec.utilityVolumes[0].claimName", "FieldValueRequired")]),
        (
            [{"name": "u", "claimName": "c"}, {"name": "u", "claimName": "c"}],
            [("spec.utilityVolumes[1].name", "FieldValueDuplicate")],
        ),
    ],
)
def test_utility_volumes(volumes: list[dict[str, Any]], causes: list[tuple[str, str]]) -> None:
    obj = {**running(), "spec": {**vmi()["spec"], "utilityVolumes": volumes}}
    assert changed(obj, running(), frozenset({"UtilityVolumes"})) == causes
