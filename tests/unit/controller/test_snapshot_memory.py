"""The memory in a snapshot: saved before the disks are, and worth something only if the guest stood still for both."""

from __future__ import annotations

from typing import Any

from framework.copies import at, claim, content, locked, snapshot, vm_with
from framework.vms import owned_vmi

from virt_controller.restore import claims
from virt_controller.snapshot import memory, source
from virt_controller.snapshot.classes import Choice
from virt_controller.snapshot.decide import World, decide
from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.snapshot import VirtualMachineSnapshotContent

FILE = "vm-uid-20260101-000000.machine.state"
WANTED = {"annotations": {"virtpod.io/memory": "true"}}
INFO = {"targetFileName": FILE, "endTimestamp": "2026-01-01T00:00:05Z"}
TAKEN = {"creationTime": "2026-01-01T00:00:09Z", "readyToUse": True}


def standing(phase: str = "MemoryDumpCompleted", *, paused: bool = True, **more: Any) -> Any:
    conditions = [{"type": "Paused", "status": "True"}] if paused else []
    volume = {"name": "virtpod-machine-state", "phase": phase, "memoryDumpVolume": INFO, **more}
    return owned_vmi(status={"phase": "Running", "conditions": conditions, "volumeStatus": [volume]})


def test_the_memory_comes_before_the_content_and_after_the_lock() -> None:
    first = decide(snapshot(metadata=WANTED), World(vm=vm_with(), memory_missing=True), at(1))
    assert (first.lock, first.save_memory, first.create_content) == (True, False, False)
    then = decide(snapshot(metadata=WANTED), World(vm=locked(vm_with()), memory_missing=True), at(1))
    assert (then.lock, then.save_memory, then.create_content) == (False, True, False)
    last = decide(snapshot(metadata=WANTED), World(vm=locked(vm_with())), at(1))
    assert (last.save_memory, last.create_content) == (False, True)


def test_it_is_saved_when_it_is_whole_and_the_guest_stands_still() -> None:
    assert memory.is_saved(standing())
    assert not memory.is_saved(standing(paused=False))
    assert not memory.is_saved(standing("MemoryDumpInProgress"))
    assert not memory.is_saved(None)


def test_a_guest_that_went_on_spoils_it() -> None:
    assert not memory.went_on(standing(), at(60))
    assert memory.went_on(standing(paused=False), at(60))
    assert memory.went_on(standing(), at(5 + memory.HOLD_S + 1))
    world = World(vm=locked(vm_with()), content=content(TAKEN), went_on=True)
    found = decide(snapshot(metadata=WANTED), world, at(10))
    assert (found.status.phase, found.unlock, found.delete_content) == ("Failed", True, True)
    # Once it was taken, the guest goes on with our leave.
    assert decide(snapshot({"phase": "Succeeded"}, WANTED), world, at(10)).status.phase == "Succeeded"


def test_what_can_never_be_saved() -> None:
    good = [source.Disk("data", "disk", claim(), choice=Choice("a"))]
    bad = [source.Disk("data", "disk", claim(), choice=Choice(why="no class"))]
    on_claims: dict[str, Any] = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "disk"}}]}

    def machine(volume: dict[str, Any] | None = None, **spec: Any) -> Any:
        made = to_plain(standing(**(volume or {})))
        made["spec"] = {"domain": {"devices": {}}, **on_claims, **spec}
        return from_plain(made, type(standing()))

    assert memory.hopeless(machine(), good) == ""
    assert "does not run" in memory.hopeless(None, good)
    assert "no class" in memory.hopeless(machine(), bad)
    scratch = [{"name": "scratch", "emptyDisk": {"capacity": "1Gi"}}]
    assert "spec.volumes[scratch]" in memory.hopeless(machine(volumes=scratch), good)
    assert "full" in memory.hopeless(machine({"phase": "MemoryDumpFailed", "message": "full"}), good)


def test_the_content_knows_the_state_it_holds() -> None:
    note = {"virtpod.io/machine-state": memory.state_of(snapshot(metadata=WANTED), standing())}
    kept = memory.kept_in(content(annotations=note))
    assert kept is not None
    assert (kept.phase, kept.file_name, kept.copied) == ("Saved", FILE, True)
    for forged in ("{", '{"phase":"Saved","fileName":"../../etc/passwd"}', '{"fileName":7}'):
        assert memory.kept_in(content(annotations={"virtpod.io/machine-state": forged})) is None


def test_a_state_is_restored_to_its_own_vm_only() -> None:
    plain = to_plain(content())
    backup = {"volumeName": "virtpod-machine-state", "volumeSnapshotName": "s"}
    plain["spec"]["volumeBackups"].append({**backup, "persistentVolumeClaim": to_plain(claim("memory"))})
    held = from_plain(plain, VirtualMachineSnapshotContent)
    found = [each.backup.volume_name for each in claims.kept(held, vm_with(), "vm")]
    assert found == ["data", "virtpod-machine-state"]
    assert [each.backup.volume_name for each in claims.kept(held, vm_with(), "another")] == ["data"]
