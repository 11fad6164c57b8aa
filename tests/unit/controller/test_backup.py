"""What becomes of a backup, decided on what is there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from virt_controller.backup.decide import Decision, World, decide, volume_name
from virt_core.apis.backup import VirtualMachineBackup, VirtualMachineBackupTracker
from virt_core.apis.base import from_plain
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
MADE = "2026-01-01T12:00:00Z"
CLAIM = from_plain({"metadata": {"name": "shelf"}}, PersistentVolumeClaim)
BLOCK = from_plain({"metadata": {"name": "shelf"}, "spec": {"volumeMode": "Block"}}, PersistentVolumeClaim)
THE_VM = from_plain({"metadata": {"name": "vm"}, "spec": {}}, VirtualMachine)


def backup(status: dict[str, Any] | None = None, deleted: bool = False, **spec: Any) -> VirtualMachineBackup:
    meta = {"name": "b1", "creationTimestamp": MADE, **({"deletionTimestamp": MADE} if deleted else {})}
    source = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "vm"}
    body = {"metadata": meta, "spec": {"source": source, "pvcName": "shelf", **spec}, "status": status or {}}
    return from_plain(body, VirtualMachineBackup)


def machine(
    phase: str = "Running", state: str = "Enabled", told: dict[str, Any] | None = None, volume: str = "", **meta: Any
) -> VirtualMachineInstance:
    tracking = {"state": state, **({"backupStatus": told} if told else {})}
    name = volume_name(backup())
    spec: dict[str, Any] = {
        "domain": {"devices": {"disks": [{"name": "data"}]}},
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}],
    }
    status: dict[str, Any] = {"phase": phase, "changedBlockTracking": tracking}
    if volume:
        spec["utilityVolumes"] = [{"name": name, "claimName": "shelf", "type": "Backup"}]
        status["volumeStatus"] = [{"name": name, "target": "", "phase": volume}]
    return from_plain({"metadata": {"name": "vm", **meta}, "spec": spec, "status": status}, VirtualMachineInstance)


def ours(**changes: Any) -> dict[str, Any]:
    return {"backupName": "b1", "startTimestamp": MADE, "request": {"directory": "vm/b1"}, **changes}


def world(vmi: VirtualMachineInstance | None, **changes: Any) -> World:
    parts: dict[str, Any] = {"vm_name": "vm", "vm": THE_VM, "vmi": vmi, "claim": CLAIM}
    return World(**{**parts, **changes})


def reason(decision: Decision, kind: str = "Progressing") -> tuple[str, str, str]:
    found = next(each for each in decision.status.conditions if each.type == kind)
    return found.status, found.reason, found.message


@pytest.mark.parametrize(
    ("around", "words"),
    [
        (world(None, vm_name="", vm=None), "VirtualMachineBackupTracker vm does not exist"),
        (world(None, vm=None), "VirtualMachine vm does not exist"),
        (world(None), "VirtualMachine vm does not run"),
        (world(machine("Scheduling")), "VirtualMachine vm does not run"),
        (world(machine(state="Initializing")), "the changed blocks of VirtualMachine vm are not tracked"),
        (world(machine(), moving=True), "VirtualMachine vm is being moved to another node"),
        (world(machine(told=ours(backupName="b0"))), "VirtualMachineBackup b0 is under way"),
        (world(machine(), claim=None), "PVC shelf does not exist"),
    ],
)
def test_what_it_waits_for(around: World, words: str) -> None:
    found = decide(backup(), around, NOW)
    assert reason(found) == ("True", "Initializing", words)
    assert not (found.attach)
    assert not (found.ask)
    assert not (found.release)
    assert found.recheck_s is not None
    late = decide(backup(), around, NOW + timedelta(hours=2))
    assert reason(late, "Failed")[2] == f"it could not begin in time: {words}"
    short = decide(backup(ttlDuration="30s"), around, NOW + timedelta(seconds=31))
    assert reason(short, "Failed")[0] == "True"


def test_a_block_device_takes_none() -> None:
    assert "block device" in reason(decide(backup(), world(machine(), claim=BLOCK), NOW), "Failed")[2]


def test_the_target_first_and_then_the_request() -> None:
    assert decide(backup(), world(machine()), NOW).attach
    waits = decide(backup(), world(machine(volume="AttachedToNode")), NOW)
    assert not (waits.attach)
    assert not (waits.ask)
    begun = decide(backup(skipQuiesce=True), world(machine(volume="MountedToPod"), kept=("x",)), NOW)
    assert begun.ask is not None
    wish = begun.ask.request
    assert wish is not None
    # Without a tracker nobody builds on it, so there is no checkpoint.
    assert (wish.checkpoint, wish.since, wish.skip_quiesce, wish.keep) == ("", "", True, ["x"])
    assert begun.status.type == "Full"


def test_the_tracker_says_what_it_builds_on() -> None:
    tracker = from_plain({"metadata": {}, "status": {"latestCheckpoint": {"name": "m"}}}, VirtualMachineBackupTracker)
    around = world(machine(volume="MountedToPod"), tracker=tracker)
    found = decide(backup(), around, NOW)
    assert found.ask is not None
    assert found.ask.request is not None
    assert (found.ask.request.since, found.status.type) == ("m", "Incremental")
    forced = decide(backup(forceFullBackup=True), around, NOW)
    assert forced.ask is not None
    assert forced.ask.request is not None
    assert (forced.ask.request.since, forced.status.type) == ("", "Full")


def test_how_it_goes_and_ends() -> None:
    going = decide(backup(), world(machine(told=ours(quiesceStatus="QuiesceFailed", backupMsg="no agent"))), NOW)
    assert reason(going, "Quiesced") == ("False", "QuiesceFailed", "no agent")
    done = ours(completed=True, quiesceStatus="QuiesceFailed", backupMsg="no agent", volumes=[{"volumeName": "data"}])
    ended = decide(backup(), world(machine(told=done)), NOW)
    status, why, words = reason(ended, "Complete")
    assert (status, why) == ("True", "CompletedWithWarning")
    assert "not frozen: no agent" in words
    assert "vm/b1 of PVC shelf" in words
    assert ended.checkpoint is None
    assert [each.volume_name for each in ended.status.included_volumes] == ["data"]


@pytest.mark.parametrize(
    ("vmi", "why"),
    [
        (None, "SourceLost"),
        (machine(), "SourceLost"),
        (machine("Succeeded", told=ours()), "SourceUnhealthy"),
        (machine(told=ours(), deletionTimestamp=MADE), "SourceUnhealthy"),
        (machine(told=ours(startTimestamp="2020-01-01T00:00:00Z")), "SourceLost"),
    ],
)
def test_a_machine_that_is_lost(vmi: VirtualMachineInstance | None, why: str) -> None:
    assert reason(decide(backup({"type": "Full"}), world(vmi), NOW), "Failed")[1] == why


def test_one_that_takes_too_long_is_given_up_once() -> None:
    late = NOW + timedelta(hours=3)
    found = decide(backup({"type": "Full"}), world(machine(told=ours())), late)
    assert found.ask is not None
    assert found.ask.request is not None
    assert found.ask.request.abort
    said = machine(told=ours(request={"abort": True}))
    assert decide(backup({"type": "Full"}), world(said), late).ask is None
    over = machine(told=ours(completed=True, failed=True, backupMsg="aborted"))
    assert "longer than its ttlDuration" in reason(decide(backup({"type": "Full"}), world(over), late), "Failed")[2]


def test_deleted_before_it_began_and_after() -> None:
    assert decide(backup(deleted=True), world(machine()), NOW).release
    assert decide(backup(deleted=True), world(machine(volume="MountedToPod")), NOW).clean_up
    going = decide(backup({"type": "Full"}, deleted=True), world(machine(told=ours())), NOW)
    assert going.ask is not None
    assert reason(going)[1] == "Aborting"
    assert decide(backup({"type": "Full"}, deleted=True), world(None), NOW).release


def test_over_is_over() -> None:
    over = backup({"conditions": [{"type": "Complete", "status": "True"}]})
    assert decide(over, world(machine(volume="MountedToPod", told=ours(completed=True))), NOW).clean_up
    # Of another backup nothing is touched.
    rival = decide(over, world(machine(told=ours(backupName="b2"))), NOW)
    assert (rival.clean_up, rival.release) == (False, True)


def test_names_with_dots_and_long_ones_fit_into_a_pod() -> None:
    long = backup()
    long.metadata.name = "a.b" + "c" * 100
    assert "." not in volume_name(long)
    assert len(volume_name(long)) <= 63
