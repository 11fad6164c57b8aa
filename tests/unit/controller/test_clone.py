"""What becomes of a VirtualMachineClone, step by step, and how the new VM differs from the old one."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from virt_controller.clone import render
from virt_controller.clone.decide import GIVE_UP_S, Decision, World, claims_of, decide
from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.clone import VirtualMachineClone
from virt_core.apis.registry import owner_reference
from virt_core.apis.snapshot import (
    ANNOTATION_LAST_RESTORE,
    VirtualMachineRestore,
    VirtualMachineSnapshot,
    VirtualMachineSnapshotContent,
)
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine
from virt_core.runtime.times import rfc3339

NOW = datetime(2026, 1, 1, tzinfo=UTC)
VM = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "old"}
SAVED = {"apiGroup": "snapshot.kubevirt.io", "kind": "VirtualMachineSnapshot", "name": "saved"}
DISK = {"name": "root", "persistentVolumeClaim": {"claimName": "old-root"}}


def clone(source: dict[str, Any] = VM, *, status: dict[str, Any] | None = None, **spec: Any) -> VirtualMachineClone:
    target = {"kind": "VirtualMachine", "name": "new"}
    return from_plain(
        {
            "metadata": {"name": "copy", "namespace": "default", "uid": "u1"},
            "spec": {"source": source, "target": target, **spec},
            "status": status or {},
        },
        VirtualMachineClone,
    )


def vm(
    *volumes: dict[str, Any], name: str = "old", domain: dict[str, Any] | None = None, **more: Any
) -> VirtualMachine:
    template = {"metadata": more.pop("template", {}), "spec": {"domain": domain or {}, "volumes": list(volumes)}}
    statuses = [{"name": each["name"], "enabled": True} for each in volumes]
    return from_plain(
        {
            "metadata": {"name": name, "namespace": "default", **more},
            "spec": {"template": template},
            "status": {"volumeSnapshotStatuses": statuses},
        },
        VirtualMachine,
    )


def snapshot(given: VirtualMachineClone, *, ours: bool = True, **status: Any) -> VirtualMachineSnapshot:
    owners = [to_plain(owner_reference(given))] if ours else []
    meta = {"name": render.snapshot_name(given), "namespace": "default", "ownerReferences": owners}
    return from_plain({"metadata": meta, "status": status}, VirtualMachineSnapshot)


def ready(given: VirtualMachineClone, *, ours: bool = True) -> VirtualMachineSnapshot:
    return snapshot(
        given, ours=ours, phase="Succeeded", readyToUse=True, virtualMachineSnapshotContentName="held", sourceUID="s"
    )


def content(machine: VirtualMachine, *backed: str) -> VirtualMachineSnapshotContent:
    backups = [{"volumeName": each, "persistentVolumeClaim": {}, "volumeSnapshotName": each} for each in backed]
    spec = {"source": {"virtualMachine": to_plain(machine)}, "volumeBackups": backups}
    return from_plain({"metadata": {"name": "held"}, "spec": spec}, VirtualMachineSnapshotContent)


def restore(given: VirtualMachineClone, *, ours: bool = True, **status: Any) -> VirtualMachineRestore:
    owners = [to_plain(owner_reference(given))] if ours else []
    meta = {"name": "tmp-restore-u1", "namespace": "default", "ownerReferences": owners}
    return from_plain({"metadata": meta, "status": status}, VirtualMachineRestore)


def claim(phase: str) -> PersistentVolumeClaim:
    return from_plain({"status": {"phase": phase}}, PersistentVolumeClaim)


def look(given: VirtualMachineClone, **world: Any) -> Decision:
    return decide(given, World(**world), NOW)


def after(given: VirtualMachineClone, decision: Decision) -> VirtualMachineClone:
    return replace(given, status=decision.status)


def reasons(decision: Decision) -> list[str]:
    return [each.reason for each in decision.notes]


def conditions(decision: Decision) -> dict[str, tuple[str, str]]:
    return {each.type: (each.status, each.reason) for each in decision.status.conditions}


def said(decision: Decision) -> str:
    return next(each.message for each in decision.status.conditions if each.type == "Progressing")


FAILED = {"Progressing": ("False", "Failed"), "Ready": ("False", "Failed")}
PENDING = {"Progressing": ("False", "Pending"), "Ready": ("False", "Pending")}
BUSY = {"Progressing": ("True", "Still processing"), "Ready": ("False", "Still processing")}


def test_from_a_vm_to_a_vm() -> None:
    """Each phase, what it makes, what it says, and that nothing is left."""
    given, source = clone(), vm(DISK)
    first = look(given, source=source)
    assert (first.create_snapshot, reasons(first)) == (True, ["SnapshotCreated"])
    assert (first.status.phase, first.status.snapshot_name) == ("SnapshotInProgress", "tmp-snapshot-u1")
    assert conditions(first) == BUSY

    given = after(given, first)
    waiting = look(given, source=source, snapshot=snapshot(given, phase="InProgress"))
    assert (waiting.status, waiting.notes, waiting.create_snapshot) == (given.status, (), False)

    held = content(source, "root")
    second = look(given, source=source, snapshot=ready(given), content=held)
    assert reasons(second) == ["SnapshotReady", "RestoreCreated"]
    assert second.restore_from is not None
    assert (second.status.phase, second.status.restore_name) == ("RestoreInProgress", "tmp-restore-u1")

    given = after(given, second)
    busy = look(given, snapshot=ready(given), content=held, restore=restore(given, complete=False))
    assert (busy.status, busy.notes, busy.restore_from) == (given.status, (), None)

    done = restore(given, complete=True, restores=[made("root", "restored")])
    third = look(given, snapshot=ready(given), restore=done)
    assert (third.status.phase, reasons(third)) == ("CreatingTargetVM", ["RestoreReady"])

    given = after(given, third)
    new = vm({"name": "root", "persistentVolumeClaim": {"claimName": "restored"}}, name="new")
    fourth = look(given, snapshot=ready(given), restore=done, target=new)
    assert (fourth.status.phase, reasons(fourth), fourth.status.target_name) == (
        "Succeeded",
        ["TargetVMCreated"],
        "new",
    )
    assert conditions(fourth) == {"Progressing": ("False", "Ready"), "Ready": ("True", "Ready")}
    assert (fourth.status.creation_time, fourth.clean_up) == (rfc3339(NOW), False)

    given = after(given, fourth)
    unbound = look(given, snapshot=ready(given), restore=done, target=new, claims={"restored": claim("Pending")})
    assert (unbound.status, unbound.notes, unbound.clean_up) == (given.status, (), False)

    last = look(given, snapshot=ready(given), restore=done, target=new, claims={"restored": claim("Bound")})
    assert (reasons(last), last.clean_up) == (["PVCBound"], True)
    assert (last.status.snapshot_name, last.status.restore_name) == (None, None)
    assert last.status.phase == "Succeeded"

    given = after(given, last)
    over = look(given, target=new)
    assert (over.status, over.notes, over.clean_up, over.delete_clone) == (given.status, (), False, False)
    assert look(given).delete_clone


def made(volume: str, name: str) -> dict[str, str]:
    return {"volumeName": volume, "persistentVolumeClaim": name, "volumeSnapshotName": "x"}


def test_both_ends_at_once_are_both_told() -> None:
    """A restore that was complete, with its VM, before anybody looked."""
    given = clone(status={"phase": "RestoreInProgress", "restoreName": "tmp-restore-u1"})
    decision = look(given, snapshot=ready(given), restore=restore(given, complete=True), target=vm(name="new"))
    assert (decision.status.phase, reasons(decision)) == ("Succeeded", ["RestoreReady", "TargetVMCreated"])


def test_from_a_snapshot() -> None:
    """It is the user's: it is used as it is, and nobody makes another one."""
    given = clone(SAVED)
    waiting = look(given)
    assert (waiting.status.phase, reasons(waiting), conditions(waiting)) == ("", ["SourceDoesNotExist"], PENDING)
    unready = look(given, snapshot=snapshot(given, ours=False, phase="InProgress"))
    assert (unready.status.phase, unready.status.snapshot_name) == ("SnapshotInProgress", "saved")
    begun = look(given, snapshot=ready(given, ours=False), content=content(vm(DISK), "root"))
    assert (begun.status.phase, begun.create_snapshot) == ("RestoreInProgress", False)
    assert begun.restore_from is not None


@pytest.mark.parametrize(
    ("source", "reason", "text"),
    [
        (None, "SourceDoesNotExist", "there is no VirtualMachine old yet"),
        (vm(deletionTimestamp="2026-01-01T00:00:00Z"), "SourceDoesNotExist", "there is no VirtualMachine old yet"),
        (
            replace(vm(DISK), status=vm().status),
            "VMVolumeSnapshotsInvalid",
            "it is not known yet whether the volume root can be snapshotted",
        ),
    ],
)
def test_what_is_waited_for(source: VirtualMachine | None, reason: str, text: str) -> None:
    decision = look(clone(), source=source)
    assert (decision.status.phase, reasons(decision), said(decision)) == ("", [reason], text)
    assert conditions(decision) == PENDING
    assert not decision.create_snapshot
    assert decision.recheck_s


def test_a_volume_that_cannot_be_snapshotted_is_named_and_waited_for() -> None:
    source = vm(DISK, {"name": "image", "containerDisk": {"image": "x"}})
    for each in source.status.volume_snapshot_statuses:
        each.enabled, each.reason = False, "no VolumeSnapshotClass"
    decision = look(clone(), source=source)
    assert reasons(decision) == ["VMVolumeSnapshotsInvalid"]
    assert said(decision) == "the volume root cannot be snapshotted: no VolumeSnapshotClass"
    source.status.volume_snapshot_statuses[0].enabled = True
    assert look(clone(), source=source).create_snapshot


@pytest.mark.parametrize(
    "domain",
    [
        {"devices": {"tpm": {"persistent": True}}},
        {"firmware": {"bootloader": {"efi": {"persistent": True}}}},
    ],
)
def test_what_keeps_state_is_refused(domain: dict[str, Any]) -> None:
    given = clone()
    machine = vm(domain=domain)
    for decision in (
        look(given, source=machine),
        look(given, source=vm(), keeps_state=True),
        look(given, snapshot=ready(given), content=content(machine)),
    ):
        assert (decision.status.phase, reasons(decision)) == ("Failed", ["SourceVMWithBackendStorageInvalid"])
        assert conditions(decision) == FAILED
        assert not decision.create_snapshot
        assert decision.restore_from is None


def test_a_target_that_is_there_already_is_never_written_over() -> None:
    """A restore into the VM that a snapshot was taken of would take its disks back."""
    given = clone(SAVED)
    decision = look(given, snapshot=ready(given, ours=False), content=content(vm()), target=vm(name="new"))
    assert (decision.status.phase, reasons(decision)) == ("Failed", ["TargetExists"])
    assert decision.restore_from is None
    assert reasons(look(clone(), source=vm(), target=vm(name="new"))) == ["TargetExists"]


def test_an_address_for_an_interface_that_is_not_there() -> None:
    given = clone(newMacAddresses={"eth1": "02:00:00:00:00:01"})
    decision = look(given, source=vm(domain={"devices": {"interfaces": [{"name": "eth0", "masquerade": {}}]}}))
    assert (decision.status.phase, reasons(decision)) == ("Failed", ["UnknownInterface"])
    assert said(decision) == "spec.newMacAddresses: VirtualMachine old has no interface eth1"


@pytest.mark.parametrize(
    ("world", "reason", "text"),
    [
        ({}, "SnapshotDeleted", "VirtualMachineSnapshot tmp-snapshot-u1 is gone"),
        (
            {"snapshot": {"phase": "Failed", "error": {"message": "deadline"}}},
            "SnapshotFailed",
            "VirtualMachineSnapshot tmp-snapshot-u1 failed: deadline",
        ),
        (
            {"restore": {"conditions": [{"type": "Failure", "status": "True", "reason": "no room"}]}},
            "RestoreFailed",
            "VirtualMachineRestore tmp-restore-u1 failed: no room",
        ),
        ({"restore": {}}, "SnapshotDeleted", "VirtualMachineSnapshot tmp-snapshot-u1 is gone"),
    ],
)
def test_what_ends_it(world: dict[str, Any], reason: str, text: str) -> None:
    """With a reason, and without what was made for it."""
    given = clone(status={"phase": "SnapshotInProgress", "snapshotName": "tmp-snapshot-u1"})
    made = {"snapshot": snapshot, "restore": restore}
    decision = look(given, source=vm(), **{kind: made[kind](given, **status) for kind, status in world.items()})
    assert (decision.status.phase, reasons(decision), said(decision)) == ("Failed", [reason], text)
    assert (conditions(decision), decision.clean_up, decision.create_snapshot) == (FAILED, True, False)
    assert look(after(given, decision), source=vm()).status == decision.status


def test_a_restore_that_vanished() -> None:
    given = clone(status={"phase": "RestoreInProgress", "restoreName": "tmp-restore-u1"})
    decision = look(given, snapshot=ready(given), content=content(vm()))
    assert (decision.status.phase, reasons(decision)) == ("Failed", ["RestoreDeleted"])


def test_a_restore_that_has_nothing_but_trouble_is_told_and_given_up() -> None:
    given = clone(status={"phase": "RestoreInProgress", "restoreName": "tmp-restore-u1"})

    def tried(seconds: float) -> Decision:
        since = rfc3339(NOW - timedelta(seconds=seconds))
        told = {"type": "Progressing", "status": "False", "reason": "no quota", "lastTransitionTime": since}
        return look(given, snapshot=ready(given), restore=restore(given, conditions=[told]))

    soon = tried(GIVE_UP_S - 5)
    assert (soon.status.phase, soon.recheck_s) == ("RestoreInProgress", 5.0)
    assert said(soon) == "VirtualMachineRestore tmp-restore-u1 does not get on: no quota"
    assert (tried(GIVE_UP_S).status.phase, reasons(tried(GIVE_UP_S))) == ("Failed", ["RestoreFailed"])


@pytest.mark.parametrize(
    ("patches", "said_"),
    [
        (['{"op":"remove","path":"/spec/nothing/here"}'], "spec.patches[0] cannot be applied: "),
        (['{"op":"add","path":"/spec/running","value":true}', "no"], "spec.patches[1] cannot be applied: "),
        (['{"op":"replace","path":"/spec/template","value":1}'], "spec.patches do not leave a VM: "),
    ],
)
def test_patches_that_do_not_fit_are_found_before_anything_is_made(patches: list[str], said_: str) -> None:
    """The number is that of the user's own list, whatever comes before it."""
    given, machine = clone(patches=patches), vm(DISK, domain={"firmware": {"uuid": "1", "serial": "2"}})
    for decision in (
        look(given, source=machine),
        look(given, snapshot=ready(given), content=content(machine, "root")),
    ):
        assert (decision.status.phase, reasons(decision)) == ("Failed", ["PatchInvalid"])
        assert said(decision).startswith(said_)
        assert (decision.create_snapshot, decision.restore_from) == (False, None)


def test_a_patch_that_fits() -> None:
    given = clone(patches=['{"op":"replace","path":"/spec/runStrategy","value":"Manual"}'])
    assert look(given, source=vm(DISK)).create_snapshot


def test_a_clone_that_goes_waits_for_its_restore_which_takes_the_claims_along() -> None:
    given = clone(status={"phase": "Failed"})
    leaving = look(given, restore=restore(given))
    assert (leaving.clean_up, leaving.let_go) == (True, False)
    assert look(given).let_go
    assert look(given, restore=restore(given, ours=False)).let_go, "somebody else's holds nothing up"


def test_a_snapshot_that_lacks_a_disk_is_no_source() -> None:
    given = clone(SAVED)
    data = {"name": "data", "dataVolume": {"name": "d"}}
    image = {"name": "image", "containerDisk": {"image": "x"}}
    decision = look(given, snapshot=ready(given, ours=False), content=content(vm(DISK, data, image), "root"))
    assert (decision.status.phase, reasons(decision)) == ("Failed", ["SnapshotContentInvalid"])
    assert said(decision) == "VirtualMachineSnapshotContent held does not hold the volumes data"


@pytest.mark.parametrize("held", [None, {"spec": {"template": 1}}, {"spec": {"template": {"spec": {"volumes": "x"}}}}])
def test_a_content_that_is_no_vm_ends_it(held: Any) -> None:
    given = clone(SAVED)
    broken = content(vm())
    broken.spec.source.virtual_machine = held
    decision = look(given, snapshot=ready(given, ours=False), content=broken)
    assert (decision.status.phase, reasons(decision)) == ("Failed", ["SnapshotContentInvalid"])


def test_what_only_has_the_name_is_not_believed() -> None:
    given = clone()
    taken = look(given, source=vm(), snapshot=ready(given, ours=False), content=content(vm()))
    assert (taken.status.phase, reasons(taken)) == ("Failed", ["SnapshotCreationFailed"])
    foreign = look(given, restore=restore(given, ours=False, complete=True), target=vm(name="new"))
    assert (foreign.status.phase, reasons(foreign)) == ("Failed", ["RestoreCreationFailed"])


def test_the_claims_of_the_new_vm() -> None:
    """Also when somebody has deleted the restore that knew them."""
    given = clone()
    new = vm(DISK, {"name": "data", "dataVolume": {"name": "d"}}, {"name": "i", "containerDisk": {"image": "x"}})
    assert claims_of(restore(given, restores=[made("x", "y")]), new) == {"old-root", "d", "y"}
    assert claims_of(None, new) == {"old-root", "d"}
    assert claims_of(None, None) == set()


# What is made


NICS = [
    {"name": "eth0", "masquerade": {}, "macAddress": "02:00:00:00:00:0a"},
    {"name": "eth1", "bridge": {}, "macAddress": "02:00:00:00:00:0b"},
    {"name": "eth2", "bridge": {}},
]
DOMAIN = "/spec/template/spec/domain"


def operations(given: VirtualMachineClone, saved: VirtualMachine) -> list[Any]:
    return [json.loads(each) for each in render.patches_of(given.spec, saved)]


def test_the_patches_in_their_order() -> None:
    saved = vm(
        domain={"devices": {"interfaces": NICS}, "firmware": {"uuid": "1", "serial": "2"}},
        labels={"keep/me": "1", "drop": "2"},
        annotations={"a/b": "1", ANNOTATION_LAST_RESTORE: "x", "c": "3"},
        template={"labels": {"x": "1", "y": "2"}, "annotations": {"z": "1"}},
    )
    mine = '{"op": "replace", "path": "/spec/runStrategy", "value": "Manual"}'
    given = clone(
        newMacAddresses={"eth1": "02:00:00:00:00:01"},
        newSMBiosSerial="s",
        labelFilters=["*", "!drop"],
        annotationFilters=["c"],
        template={"labelFilters": ["x"], "annotationFilters": []},
        patches=[mine],
    )
    assert operations(given, saved) == [
        {"op": "remove", "path": f"{DOMAIN}/devices/interfaces/0/macAddress"},
        {"op": "add", "path": f"{DOMAIN}/devices/interfaces/1/macAddress", "value": "02:00:00:00:00:01"},
        {"op": "add", "path": f"{DOMAIN}/firmware/serial", "value": "s"},
        {"op": "remove", "path": "/metadata/labels/drop"},
        {"op": "remove", "path": "/metadata/annotations/a~1b"},
        {"op": "remove", "path": "/spec/template/metadata/labels/y"},
        {"op": "remove", "path": "/spec/template/metadata/annotations/z"},
        {"op": "remove", "path": f"{DOMAIN}/firmware/uuid"},
        {"op": "replace", "path": "/spec/runStrategy", "value": "Manual"},
    ]
    assert render.patches_of(given.spec, saved)[-1] == mine


def test_identity_is_not_copied() -> None:
    saved = vm(
        domain={"devices": {"interfaces": NICS[:1]}, "firmware": {"uuid": "1", "serial": "2"}}, labels={"a": "b"}
    )
    assert operations(clone(), saved) == [
        {"op": "remove", "path": f"{DOMAIN}/devices/interfaces/0/macAddress"},
        {"op": "remove", "path": f"{DOMAIN}/firmware/serial"},
        {"op": "remove", "path": f"{DOMAIN}/firmware/uuid"},
    ]


def test_nothing_to_change() -> None:
    assert operations(clone(), vm(domain={"devices": {"interfaces": NICS[2:]}, "firmware": {}})) == []
    assert operations(clone(), vm()) == []


def test_a_serial_for_a_machine_without_firmware() -> None:
    expected = [{"op": "add", "path": f"{DOMAIN}/firmware", "value": {"serial": "s"}}]
    assert operations(clone(newSMBiosSerial="s"), vm()) == expected


def test_what_is_made_belongs_to_the_clone() -> None:
    given = clone(volumeNamePolicy="PrefixTargetName")
    made = (render.snapshot_of(given), render.restore_of(given, vm()))
    for each in made:
        [owner] = each.metadata.owner_references
        assert (owner.kind, owner.uid, owner.controller) == ("VirtualMachineClone", "u1", True)
        assert each.metadata.namespace == "default"
    assert to_plain(made[0].spec) == {"source": VM}
    assert to_plain(made[1].spec) == {
        "virtualMachineSnapshotName": "tmp-snapshot-u1",
        "target": {**VM, "name": "new"},
        "volumeRestorePolicy": "PrefixTargetName",
    }


def test_a_clone_that_came_around_our_door_has_a_target_all_the_same() -> None:
    given = clone()
    given.spec.target = None
    assert render.target_name(given) == "clone-u1"
