"""Snapshots of VMs: when a VM is held, what is kept of it, how its guest is frozen, and how all of it ends."""

from __future__ import annotations

from typing import Any

import pytest
from framework.copies import CONTENT, SAVED, at, claim, content, locked, saved, snapshot, vm_with
from framework.reference_metrics import OF_SNAPSHOTS
from framework.vms import owned_vmi
from msgspec.structs import replace

from virt_controller.snapshot import classes, contents, source
from virt_controller.snapshot.classes import Choice, Disks
from virt_controller.snapshot.decide import World, decide
from virt_controller.snapshot.figures import SnapshotFigures
from virt_core.apis import snapshot as words
from virt_core.apis.base import from_plain
from virt_core.apis.datavolume import DataVolume, StorageProfile
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.snapshot import VirtualMachineSnapshotStatus
from virt_core.apis.storage import StorageClass
from virt_core.apis.vm import VirtualMachineSpec
from virt_core.apis.volumesnapshots import VolumeSnapshotClass

READY = {"creationTime": "2026-01-01T00:00:09Z", "readyToUse": True}


def told(status: VirtualMachineSnapshotStatus) -> dict[str, tuple[str, str]]:
    return {each.type: (each.status, each.reason) for each in status.conditions}


def running(*conditions: str) -> Any:
    found = [{"type": each, "status": "True"} for each in conditions]
    return owned_vmi(status={"conditions": found})


# Which class


def driver(name: str, of: str = "csi", **annotations: str) -> VolumeSnapshotClass:
    return VolumeSnapshotClass(metadata=ObjectMeta(name=name, annotations=annotations), driver=of)


FAST = StorageClass(metadata=ObjectMeta(name="fast"), provisioner="csi")
DEFAULT = {"snapshot.storage.kubernetes.io/is-default-class": "true"}


@pytest.mark.parametrize(
    ("known", "wanted"),
    [
        ([], ""),
        ([driver("other", "nfs")], ""),
        ([driver("other", "nfs"), driver("a")], "a"),
        ([driver("a"), driver("b")], ""),
        ([driver("a"), driver("b", **DEFAULT)], "b"),
        ([driver("a", **{next(iter(DEFAULT)): "false"}), driver("b", **DEFAULT)], "b"),
    ],
)
def test_the_class_is_that_of_the_driver(known: list[VolumeSnapshotClass], wanted: str) -> None:
    found = classes.choice(FAST, None, known)
    assert found.name == wanted
    assert bool(found.why) != bool(wanted)


def test_a_profile_goes_before_the_driver_also_when_it_is_wrong() -> None:
    profile = from_plain({"metadata": {"name": "fast"}, "status": {"snapshotClass": "b"}}, StorageProfile)
    assert classes.choice(FAST, profile, [driver("a"), driver("b", "nfs")]).name == "b"
    assert "b, which does not exist" in classes.choice(FAST, profile, [driver("a")]).why
    assert classes.choice(None, profile, [driver("a")]).why


def test_each_volume_says_whether_it_can_be_saved() -> None:
    choose = lambda name: Choice("a") if name == "fast" else Choice(why="no class")  # noqa: E731
    disks = Disks({"default/disk": claim()}.get, {}.get, choose)
    (root, data) = classes.statuses(vm_with(), disks)
    assert (root.enabled, data.enabled) == (False, True)
    assert root.reason
    (_, gone) = classes.statuses(vm_with({"persistentVolumeClaim": {"claimName": "gone"}}), disks)
    assert (gone.enabled, gone.reason) == (False, "PVC gone not found")
    volume = from_plain({"metadata": {"name": "dv"}, "spec": {"storage": {"storageClassName": "fast"}}}, DataVolume)
    coming = Disks({}.get, {"default/dv": volume}.get, choose)
    assert classes.statuses(vm_with({"dataVolume": {"name": "dv"}}), coming)[1].enabled


# Whether the VM can be held


def disk(**changes: Any) -> source.Disk:
    return replace_disk(source.Disk("data", "disk", claim(), choice=Choice("a")), **changes)


def replace_disk(found: source.Disk, **changes: Any) -> source.Disk:
    import dataclasses

    return dataclasses.replace(found, **changes)


@pytest.mark.parametrize(
    ("found", "users", "status", "said"),
    [
        ({"claim": None}, [], {}, "not found"),
        ({"claim": claim(deletionTimestamp="2026-01-01T00:00:00Z")}, [], {}, "being deleted"),
        ({"claim": claim(phase="Pending")}, [], {}, "not bound"),
        ({"filling": True}, [], {}, "still being filled"),
        ({}, ["pod"], {}, "Pods use its claims: pod"),
        ({}, [], {"snapshotInProgress": "other"}, "snapshot other"),
        ({}, [], {"restoreInProgress": "other"}, "restore other"),
        ({}, [], {}, ""),
    ],
)
def test_what_keeps_a_vm_from_being_held(
    found: dict[str, Any], users: list[str], status: dict[str, str], said: str
) -> None:
    words_ = source.blocked(vm_with(status=status), None, [disk(**found)], users)
    assert (said in words_) if said else words_ == ""


def test_a_running_machine_is_kept_as_it_was_started_with_the_volumes_of_now() -> None:
    vm = vm_with()
    started = from_plain({"template": {"spec": {"domain": {"memory": {"guest": "1Gi"}}}}}, VirtualMachineSpec)
    kept = source.kept_spec(vm, running(), started)
    assert kept.template is not None
    assert kept.template.spec.domain.memory is not None
    assert kept.template.spec.domain.memory.guest == "1Gi"
    assert [each.name for each in kept.template.spec.volumes] == ["root", "data"]
    assert source.kept_spec(vm, None, started) == vm.spec


# The snapshot


def test_a_vm_is_held_and_its_content_made() -> None:
    found = decide(snapshot(), World(vm=vm_with()), at(1))
    assert (found.lock, found.create_content, found.unlock) == (True, True, False)
    assert told(found.status) == {
        "Progressing": ("True", "Source locked and operation in progress"),
        "Ready": ("False", "Not ready"),
    }
    assert found.status.phase == "InProgress"


def test_what_it_waits_for_is_told() -> None:
    assert told(decide(snapshot(), World(), at(1)).status)["Progressing"] == ("False", "Source does not exist")
    found = decide(snapshot(), World(vm=vm_with(), blocked="claims are not bound: disk"), at(1))
    assert not found.lock
    assert told(found.status)["Progressing"] == ("False", "Source not locked: claims are not bound: disk")


def test_a_snapshot_is_taken_when_its_content_is_and_ready_when_that_is() -> None:
    world = World(vm=locked(vm_with()), content=content({"creationTime": "2026-01-01T00:00:09Z"}))
    found = decide(snapshot(), world, at(10))
    assert (found.unlock, found.status.phase) == (True, "Succeeded")
    assert told(found.status)["Ready"] == ("False", "Not ready")
    found = decide(snapshot(), World(vm=vm_with(), content=content(READY)), at(10))
    assert told(found.status) == {"Progressing": ("False", "Operation complete"), "Ready": ("True", "Ready")}
    assert not found.unlock
    lists = found.status.snapshot_volumes
    assert lists is not None
    assert (lists.included_volumes, lists.excluded_volumes) == (["data"], ["root"])
    assert found.status.source_uid == vm_with().metadata.uid


@pytest.mark.parametrize(
    ("vmi", "wanted"),
    [
        (None, []),
        (running(), ["NoGuestAgent", "Online"]),
        (running("AgentConnected"), ["GuestAgent", "Online"]),
        (running("AgentConnected", "Paused"), ["Online", "Paused"]),
        (owned_vmi("Succeeded"), []),
    ],
)
def test_how_it_was_taken(vmi: Any, wanted: list[str]) -> None:
    found = decide(snapshot(), World(vm=locked(vm_with()), vmi=vmi, content=content()), at(1)).status
    assert found.indications == wanted
    assert [each.indication for each in found.source_indications] == wanted
    assert all(each.message for each in found.source_indications)


def test_a_volume_that_is_left_out_is_told_of() -> None:
    held = content()
    held.spec.volume_backups = []
    found = decide(snapshot(), World(vm=locked(vm_with()), content=held), at(1)).status
    assert found.indications == ["PartialSnapshot"]
    assert found.snapshot_volumes is not None
    assert found.snapshot_volumes.excluded_volumes == ["root", "data"]


def test_the_deadline_ends_it_and_frees_the_vm() -> None:
    held = content({"error": {"message": "no room"}})
    found = decide(snapshot(failureDeadline="30s"), World(vm=locked(vm_with()), content=held), at(30))
    assert (found.unlock, found.delete_content, found.status.phase) == (True, True, "Failed")
    assert told(found.status)["Failure"] == ("True", "snapshot deadline exceeded")
    assert told(found.status)["Progressing"] == ("False", "Operation failed")
    assert found.status.error is not None
    assert found.status.error.message == "snapshot deadline exceeded: no room"
    assert decide(snapshot(failureDeadline="0s"), World(vm=vm_with()), at(10**6)).lock
    left = decide(snapshot(failureDeadline="30s"), World(vm=vm_with()), at(29)).recheck_s
    assert left == pytest.approx(1.0)


def test_what_can_never_be_saved_fails_at_once() -> None:
    found = decide(snapshot(), World(vm=vm_with(), hopeless="the cluster has no VolumeSnapshots"), at(1))
    assert (found.status.phase, found.lock) == ("Failed", False)
    assert told(found.status)["Failure"] == ("True", "the cluster has no VolumeSnapshots")


def test_a_failed_one_stays_so_and_lets_everything_go() -> None:
    world = World(vm=locked(vm_with()), content=content(READY))
    found = decide(snapshot({"phase": "Failed"}), world, at(1))
    assert (found.status.phase, found.unlock, found.delete_content) == ("Failed", True, True)


@pytest.mark.parametrize(
    ("policy", "status", "deleted"), [(None, READY, True), ("Retain", READY, False), ("Retain", {}, True)]
)
def test_the_content_goes_with_it_unless_it_is_retained(policy: str | None, status: Any, deleted: bool) -> None:
    gone = snapshot({"phase": "Succeeded"}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}, deletionPolicy=policy)
    found = decide(gone, World(vm=locked(vm_with()), content=content(status)), at(1))
    assert (found.delete_content, found.release, found.unlock) == (deleted, not deleted, not deleted)
    assert found.status.phase == "Deleting"
    found = decide(gone, World(vm=locked(vm_with())), at(1))
    assert (found.release, found.unlock) == (True, True)


def test_a_content_that_is_lost_is_told_of() -> None:
    found = decide(snapshot({"phase": "Succeeded", "readyToUse": True}), World(vm=vm_with()), at(1)).status
    assert found.ready_to_use is False
    assert found.error is not None
    assert "is gone" in (found.error.message or "")


# The content


def world(**changes: Any) -> contents.World:
    found = {"snapshot": snapshot(), "vm": locked(vm_with()), **changes}
    return contents.World(**found)


def test_nothing_is_saved_before_the_vm_is_held() -> None:
    found = contents.decide(content(), world(vm=vm_with()), at(1))
    assert (found.create, found.freeze_s) == ((), None)


def test_a_guest_with_an_agent_is_frozen_once() -> None:
    agent = running("AgentConnected")
    found = contents.decide(content(), world(vmi=agent), at(1))
    assert found.freeze_s == 300.0
    assert [each.volume_name for each in found.create] == ["data"]
    noted = content(annotations={words.ANNOTATION_FROZEN_UNTIL: "2026-01-01T00:05:00Z"})
    found = contents.decide(noted, world(vmi=agent), at(1))
    assert (found.freeze_s, len(found.create)) == (None, 1)


@pytest.mark.parametrize("vmi", [None, running(), running("AgentConnected", "Paused"), owned_vmi("Scheduling")])
def test_what_cannot_be_frozen_is_not(vmi: Any) -> None:
    found = contents.decide(content(), world(vmi=vmi), at(1))
    assert (found.freeze_s, len(found.create)) == (None, 1)


@pytest.mark.parametrize(("deadline", "wanted"), [(None, 300), ("0s", 300), ("10ms", 1), ("90s", 90), ("5h", 3600)])
def test_no_freeze_is_without_an_end(deadline: str | None, wanted: float) -> None:
    assert contents.freeze_s(snapshot(failureDeadline=deadline)) == wanted


def test_the_guest_goes_on_when_all_is_taken_and_only_then() -> None:
    noted = content(annotations={words.ANNOTATION_FROZEN_UNTIL: "2026-01-01T00:05:00Z"})
    agent = running("AgentConnected")
    found = contents.decide(noted, world(vmi=agent, saved={SAVED: saved()}), at(2))
    assert (found.thaw, found.status.creation_time) == (False, None)
    found = contents.decide(noted, world(vmi=agent, saved={SAVED: saved(creationTime="2026-01-01T00:00:01Z")}), at(2))
    assert (found.thaw, found.status.creation_time, found.status.ready_to_use) == (True, "2026-01-01T00:00:02Z", False)
    ready = {SAVED: saved(creationTime="2026-01-01T00:00:01Z", readyToUse=True)}
    assert contents.decide(noted, world(vmi=agent, saved=ready), at(400)).thaw is False
    assert contents.decide(noted, world(saved=ready), at(2)).status.ready_to_use is True


def test_a_freeze_that_was_too_short_is_told_of() -> None:
    notes = {words.ANNOTATION_FROZEN_UNTIL: "2026-01-01T00:00:05Z"}
    before = snapshot({"indications": ["GuestAgent", "Online"]})
    before.status.source_indications = source.indications(running("AgentConnected"), partial=False, late=False)
    found = decide(before, World(vm=vm_with(), content=content(READY, annotations=notes)), at(10)).status
    assert found.indications == ["GuestAgent", "Online", "QuiesceTimeout"]


def test_an_error_of_the_storage_is_passed_on_until_it_is_ready() -> None:
    wrong = saved(error={"message": "no room"}, readyToUse=False)
    found = contents.decide(content(), world(saved={SAVED: wrong}), at(1)).status
    assert found.error is not None
    assert found.error.message == f"VolumeSnapshot {SAVED}: no room"
    progressing = decide(
        snapshot(), World(vm=locked(vm_with()), content=replace(content(), status=found)), at(1)
    ).status
    assert told(progressing)["Progressing"] == ("False", "In error state")
    late = saved(creationTime="2026-01-01T00:00:01Z", readyToUse=True, error={"message": "x"})
    assert contents.decide(content(READY), world(saved={SAVED: late}), at(9)).status.error is None


def test_a_class_that_is_gone_is_no_crash() -> None:
    found = contents.decide(content(), world(trouble={"data": "there is no class"}), at(1))
    assert found.create == ()
    assert found.status.error is not None
    assert "data: there is no class" in (found.status.error.message or "")


def test_a_volume_snapshot_that_is_gone_is_missed() -> None:
    found = contents.decide(content(READY), world(), at(20))
    assert found.missing == (SAVED,)
    assert found.status.ready_to_use is False
    assert found.status.error is not None
    assert found.status.error.message == f"VolumeSnapshots ({SAVED}) missing"
    again = contents.decide(replace(content(READY), status=found.status), world(), at(99))
    assert again.status == found.status, "told once"


def test_a_volume_snapshot_is_of_the_claim_and_goes_with_the_content() -> None:
    made = contents.volume_snapshot(content(), content().spec.volume_backups[0], "a")
    assert made.spec.source.persistent_volume_claim_name == "disk"
    assert made.metadata.name == SAVED
    assert made.metadata.owner_references[0].name == CONTENT
    assert made.metadata.labels["snapshot.kubevirt.io/source-vm-name"] == "vm"


def test_short_names_are_unique_and_fit() -> None:
    assert words.short_name("vm", "data") == "vm-data"
    long, other = words.short_name("v" * 60, "data"), words.short_name("v" * 61, "data")
    assert len(long) == len(other) == 63
    assert long != other
    assert long.endswith("-data")
    assert len(words.short_name("v", "d" * 70)) <= 63
    assert words._fnv1a("foobar") == "bf9cf968", "as FNV-1a of 32 bits is published"


def test_a_snapshot_is_a_figure() -> None:
    class Listed:
        def list(self) -> Any:
            return [snapshot({"phase": "Succeeded", "creationTime": "1970-01-01T00:01:00Z"}), snapshot()]

    (family,) = SnapshotFigures(Listed()).collect()
    assert {family.name: (family.kind, family.labels)} == OF_SNAPSHOTS
    assert list(family.samples) == [(("vm", "snap", "default"), 60.0)]
