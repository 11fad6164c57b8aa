"""Volumes that a VM wants on other claims while its machine runs: what is begun, waited for, given up and refused."""

from __future__ import annotations

from typing import Any

import pytest
from framework.vms import owned_vmi, vm

from virt_controller.migration.jobs import new_job
from virt_controller.migration.target import has_other_claims
from virt_controller.snapshot.source import blocked
from virt_controller.update.decide import Around, job_for, plan
from virt_controller.vm import volumemoves
from virt_controller.vm.liveupdate import Change, update
from virt_controller.vm.printable import View
from virt_controller.vm.status import Outcome, updated
from virt_controller.vm.volumemoves import Plan, Storage, Wish, lost, remembered
from virt_controller.vmi.owned import claims, with_grown_claims
from virt_core.apis import names
from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.kubevirt import KubeVirtWorkloadUpdateStrategy
from virt_core.apis.pods import Pod
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec
from virt_core.runtime.clock import FakeClock

NOW = FakeClock().now()
RWO, RWX = "ReadWriteOnce", "ReadWriteMany"
MOVING = {"migrationUid": "job", "targetNode": "node2"}
GIVEN_UP = "VolumesChangeCancellation"


def volume(claim: str, name: str = "data", **more: Any) -> dict[str, Any]:
    return {"name": name, "persistentVolumeClaim": {"claimName": claim, **more}}


def spec(*volumes: dict[str, Any], **disk: Any) -> VirtualMachineInstanceSpec:
    disks = [{"name": each["name"], **(disk or {"disk": {"bus": "virtio"}})} for each in volumes]
    return from_plain({"domain": {"devices": {"disks": disks}}, "volumes": list(volumes)}, VirtualMachineInstanceSpec)


def info(claim: str, mode: str = RWO) -> dict[str, Any]:
    return {"claimName": claim, "accessModes": [mode], "volumeMode": "Filesystem"}


def machine(claim: str = "a", *, modes: str = RWO, **status: Any) -> VirtualMachineInstance:
    """Runs with its disk on the claim."""
    told = [{"name": "data", "target": "vda", "persistentVolumeClaimInfo": info(claim, modes)}]
    vmi = owned_vmi(status={"volumeStatus": told, **status})
    vmi.spec = spec(volume(claim))
    return vmi


def on_its_way(**status: Any) -> VirtualMachineInstance:
    """From a to b."""
    moved = [{"volumeName": "data", "sourcePVCInfo": info("a"), "destinationPVCInfo": info("b")}]
    told = [{"type": "VolumesChange", "status": "True"}]
    vmi = machine("a", migratedVolumes=moved, **{"conditions": told, **status})
    vmi.spec = spec(volume("b"))
    return vmi


def claim(name: str, **metadata: Any) -> PersistentVolumeClaim:
    plain = {
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": {"accessModes": [RWO], "resources": {"requests": {"storage": "1Gi"}}},
    }
    return from_plain(plain, PersistentVolumeClaim)


def storage(*there: PersistentVolumeClaim, phases: dict[str, str] | None = None, user: str = "") -> Storage:
    found = {each.metadata.name: each for each in there or (claim("a"), claim("b"), claim("c"))}
    return Storage(found.get, (phases or {}).get, lambda _: user)


def wish(vmi: VirtualMachineInstance, to: str, **parts: Any) -> Plan:
    given = {"strategy": "Migration", "wanted": spec(volume(to)), "storage": storage(), **parts}
    return volumemoves.plan(Wish(vmi=vmi, now=NOW, **given))


def written(vmi: VirtualMachineInstance, found: Plan) -> VirtualMachineInstance:
    """The VMI after the plan's operations."""
    plain = to_plain(vmi)
    for each in found.operations:
        place, *path = each["path"].strip("/").split("/")
        part = plain.setdefault(place, {})
        for step in path[:-1]:
            part = part.setdefault(step, {})
        if each["op"] == "remove":
            del part[path[-1]]
        else:
            part[path[-1]] = to_plain(each["value"])
    return from_plain(plain, VirtualMachineInstance)


def told(vmi: VirtualMachineInstance) -> tuple[str, str] | None:
    found = [each for each in vmi.status.conditions if each.type == "VolumesChange"]
    return (found[0].status, found[0].reason) if found else None


def claim_named(vmi: VirtualMachineInstance) -> str:
    source = vmi.spec.volumes[0].persistent_volume_claim
    return source.claim_name if source is not None else ""


def test_a_change_is_written_at_once_with_where_the_bytes_still_are() -> None:
    vmi = machine()
    found = wish(vmi, "b")
    after = written(vmi, found)
    assert (found.waits, found.restart, found.names) == (True, "", {"data"})
    assert (claim_named(after), told(after)) == ("b", ("True", ""))
    moved = after.status.migrated_volumes[0]
    assert moved.source_pvc_info is not None
    assert moved.destination_pvc_info is not None
    assert (moved.source_pvc_info.claim_name, moved.destination_pvc_info.claim_name) == ("a", "b")
    assert moved.destination_pvc_info.requests == {"storage": "1Gi"}
    # Nobody takes the new claim for what the machine has.
    assert after.status.volume_status == vmi.status.volume_status
    assert wish(after, "b") == Plan(waits=True, names=frozenset({"data"}))


@pytest.mark.parametrize("strategy", ["Replacement", None])
def test_without_the_strategy_a_change_is_left_to_a_restart(strategy: str | None) -> None:
    vmi = machine()
    assert wish(vmi, "b", strategy=strategy) == Plan()
    done = update(Change(spec(volume("a")), spec(volume("b")), vmi, 2))
    assert done.restart == ["spec.template.spec.volumes changed"]
    assert wish(vmi, "b", live=False) == Plan()


@pytest.mark.parametrize(
    ("there", "phases", "words"),
    [
        ((claim("a"),), {}, 'there is no PersistentVolumeClaim "b"'),
        ((claim("b", deletionTimestamp="2026-01-01T00:00:00Z"),), {}, "is being deleted"),
        ((claim("b"),), {"b": "ImportInProgress"}, "is not filled yet (ImportInProgress)"),
        ((claim("b"),), {"b": "WaitForFirstConsumer"}, "waits for its first user"),
    ],
)
def test_a_claim_that_is_not_ready_is_waited_for(there: Any, phases: dict[str, str], words: str) -> None:
    vmi = machine()
    found = wish(vmi, "b", storage=storage(*there, phases=phases))
    after = written(vmi, found)
    assert (found.waits, claim_named(after), told(after)) == (True, "a", ("False", "DestinationNotReady"))
    assert words in after.status.conditions[0].message
    # What was waited for is no more, once it is there or its owner has thought better of it.
    assert told(written(after, wish(after, "b"))) == ("True", "")
    assert told(written(after, wish(after, "a"))) is None


@pytest.mark.parametrize(
    ("disk", "source", "words"),
    [
        ({"lun": {"bus": "scsi"}}, {}, "is a lun"),
        ({"disk": {"bus": "virtio"}, "shareable": True}, {}, "is shared with other machines"),
        ({"cdrom": {"bus": "sata"}}, {}, "is only read"),
        ({"disk": {"bus": "virtio", "readonly": True}}, {}, "is only read"),
        ({"disk": {"bus": "virtio"}}, {"readOnly": True}, "is only read"),
        ({"disk": {"bus": "scsi"}}, {"hotpluggable": True}, "is hot-plugged"),
    ],
)
def test_what_cannot_be_copied_waits_for_a_restart(disk: dict[str, Any], source: dict[str, Any], words: str) -> None:
    vmi = machine()
    vmi.spec = spec(volume("a", **source), **disk)
    found = wish(vmi, "b", wanted=spec(volume("b", **source), **disk))
    assert words in found.restart
    assert not found.operations


def test_no_volume_is_written_over() -> None:
    """A claim that somebody uses, this machine or another, is no place for a copy."""
    assert "which VM x uses" in wish(machine(), "b", storage=storage(user="VM x")).restart
    assert "could not be made" in wish(machine(), "b", storage=storage(claim("b"), phases={"b": "Failed"})).restart
    two = machine()
    two.spec = spec(volume("a"), volume("b", "more"))
    two.status.volume_status += [
        from_plain({"name": "more", "persistentVolumeClaimInfo": info("b")}, type(two.status.volume_status[0]))
    ]
    for wanted in ((volume("b"), volume("a", "more")), (volume("c"), volume("c", "more"))):
        assert "another volume of the machine" in wish(two, "", wanted=spec(*wanted)).restart
    alone = wish(two, "", wanted=spec(volume("c"), volume("b", "more")))
    assert 'only one node at a time reaches "more"' in alone.restart
    both = wish(two, "", wanted=spec(volume("c"), volume("d", "more")), storage=storage(claim("c"), claim("d")))
    assert [each.volume_name for each in written(two, both).status.migrated_volumes] == ["data", "more"]


def test_a_machine_that_cannot_move_says_why() -> None:
    tied = machine(conditions=[{"type": "StorageLiveMigratable", "status": "False", "message": "it is tied"}])
    assert wish(tied, "b").restart == "volumes cannot move with the machine: it is tied"
    tracked = wish(machine(changedBlockTracking={"state": "Enabled"}), "b")
    assert "tracked for backups" in tracked.restart
    assert not tracked.operations


@pytest.mark.parametrize("parts", [{"held": True}, {"vmi": machine(migrationState=MOVING)}, {"vmi": machine()}])
def test_nothing_is_begun_beside_a_snapshot_or_a_move(parts: dict[str, Any]) -> None:
    vmi = parts.pop("vmi", machine())
    if "held" not in parts and vmi.status.migration_state is None:
        vmi.status.phase = names.PHASE_SCHEDULED
    found = wish(vmi, "b", **parts)
    assert (found.waits, found.operations) == (True, [])


@pytest.mark.parametrize("parts", [{"to": "a"}, {"to": "c"}, {"to": "b", "strategy": "Replacement"}])
def test_another_wish_gives_a_change_up_first(parts: dict[str, Any]) -> None:
    vmi = on_its_way(migrationState={**MOVING, "failed": True, "completed": True})
    after = written(vmi, wish(vmi, **parts))
    assert (claim_named(after), after.status.migrated_volumes) == ("a", [])
    assert told(after) == ("False", GIVEN_UP)
    assert after.status.volume_status == vmi.status.volume_status


def test_a_change_is_not_given_up_before_its_move_is_over() -> None:
    """Who knows on which side the guest writes: the updater ends the job first, and the nodes say what came of it."""
    vmi = on_its_way(migrationState=MOVING)
    after = written(vmi, wish(vmi, "a"))
    assert (claim_named(after), told(after)) == ("b", ("False", GIVEN_UP))
    assert after.status.migrated_volumes == vmi.status.migrated_volumes
    assert wish(after, "a").operations == []


def test_a_volume_that_was_a_datavolume_is_one_again() -> None:
    vmi, wanted = on_its_way(), spec({"name": "data", "dataVolume": {"name": "a"}})
    after = written(vmi, wish(vmi, "", wanted=wanted))
    assert after.spec.volumes == wanted.volumes


def test_a_volume_that_has_moved_is_no_difference_and_one_that_goes_back_is() -> None:
    started, moved = spec(volume("a")), machine("b")
    assert update(Change(started, spec(volume("b")), moved, 2, volumes=wish(moved, "b"))).restart == []
    back = update(Change(started, spec(volume("a")), moved, 3, volumes=wish(moved, "a", strategy=None)))
    assert back.restart == ["spec.template.spec.volumes changed"]


def test_while_volumes_are_on_their_way_the_vm_waits_and_needs_no_restart() -> None:
    vmi = on_its_way()
    done = update(Change(spec(volume("a")), spec(volume("b")), vmi, 2, copies=True, volumes=wish(vmi, "b")))
    assert (done.waits, done.restart, done.operations) == (True, [], [])


def test_a_hot_plugged_volume_is_not_exchanged_without_its_bytes() -> None:
    vmi = machine()
    vmi.spec, wanted = spec(volume("a", hotpluggable=True)), spec(volume("b", hotpluggable=True))
    found = wish(vmi, "", wanted=wanted)
    kept = update(Change(vmi.spec, wanted, vmi, 2, copies=True, volumes=found))
    assert "is hot-plugged" in kept.restart[0]
    assert kept.operations == []
    other = update(Change(vmi.spec, wanted, vmi, 2))
    assert next(each["path"] for each in other.operations) == "/spec/volumes"


# What the VM remembers


def owner_of(to: str, **more: Any) -> VirtualMachine:
    return from_plain(
        to_plain(vm(spec={"updateVolumesStrategy": "Migration", "template": {"spec": to_plain(spec(volume(to)))}}))
        | more,
        VirtualMachine,
    )


def test_a_vm_does_not_start_from_claims_that_are_not_whole() -> None:
    """Also when nobody was there to see its machine end: the VMI says it, and then the VM."""
    for ended in ("Failed", "Succeeded"):
        vmi, owner = on_its_way(), owner_of("b")
        vmi.status.phase = ended
        assert "data from a to b" in lost(owner, vmi)
        owner.status = updated(View(owner, vmi), Outcome(), NOW)
        assert lost(owner, None)
        kept = updated(View(owner, None), Outcome(), NOW)
        assert [each.reason for each in kept.conditions if each.type == "ManualRecoveryRequired"] == [
            "VolumesNotCopied"
        ]
        assert kept.volume_update_state == owner.status.volume_update_state
        back = owner_of("a", status=to_plain(owner.status))
        assert lost(back, None) == ""
        owner.spec.update_volumes_strategy = None
        assert lost(owner, None) == ""
        assert not [c for c in updated(View(owner, None), Outcome(), NOW).conditions if "Manual" in c.type]


def test_a_vm_forgets_a_change_that_is_over() -> None:
    owner = owner_of("b")
    assert remembered(owner, on_its_way()) is not None
    assert remembered(owner, machine("b")) is None
    assert lost(owner, on_its_way()) == ""


def test_nothing_is_saved_while_volumes_are_on_their_way() -> None:
    assert blocked(owner_of("b"), on_its_way(), [], []) == "its volumes are on their way to other claims: data"


# Who moves it


def test_the_updater_moves_the_machine_and_ends_what_is_not_wanted_any_more() -> None:
    strategy, around = KubeVirtWorkloadUpdateStrategy(workload_update_methods=["LiveMigrate"]), Around("", NOW)
    movable = {"type": "LiveMigratable", "status": "True"}
    vmi = on_its_way(conditions=[movable, {"type": "VolumesChange", "status": "True"}])
    assert plan([vmi], lambda _: [], strategy, around).migrate == (vmi,)
    job = job_for(vmi, "")
    assert (job.metadata.labels, job.spec.priority) == ({"kubevirt.io/volume-update-migration": "vm"}, "user-triggered")
    job.status.phase = names.MIGRATION_RUNNING
    assert plan([vmi], lambda _: [job], strategy, around).cancel == ()
    given_up = on_its_way(conditions=[movable, {"type": "VolumesChange", "status": "False", "reason": GIVEN_UP}])
    assert plan([given_up], lambda _: [job], strategy, around).cancel == (job,)
    assert plan([given_up], lambda _: [new_job(vmi, "x", {}, "")], strategy, around).cancel == ()


def test_a_target_that_was_made_with_other_claims_is_not_used() -> None:
    pod = from_plain(
        {"metadata": {"name": "p"}, "spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "b"}}]}},
        Pod,
    )
    assert not has_other_claims(pod, on_its_way())
    assert has_other_claims(pod, machine("a"))


def test_the_claim_that_is_left_is_still_the_machines_and_nothing_grows_meanwhile() -> None:
    vmi = on_its_way()
    assert sorted(claims(vmi)) == ["a", "b"]
    assert with_grown_claims(vmi, {"a": claim("a"), "b": claim("b")}) is vmi
    assert with_grown_claims(machine("a"), {"a": claim("a")}) is not vmi
