"""A backup as virt-handler leads it: when it is asked for, when it is given up, and how it went."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from virt_core.apis.base import from_plain
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import BackupStatus
from virt_handler.decisions import backups, migratable
from virt_protos.launcher.v1 import launcher_pb2 as pb

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
KEY = backups.key("b1", "t1")
RUNNING = pb.Backup(
    name="b1",
    started="t1",
    checkpoint="c1",
    volumes=["data"],
    incremental=True,
    quiesce="QuiesceFailed",
    quiesce_message="no agent",
)


def vmi(state: str = "Enabled", told: dict[str, Any] | None = None, **status: Any) -> VirtualMachineInstance:
    tracking = {"state": state, **({"backupStatus": told} if told else {})}
    spec = {
        "domain": {"devices": {"disks": [{"name": "data"}, {"name": "cd", "cdrom": {}}]}},
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "a"}},
            {"name": "cd", "persistentVolumeClaim": {"claimName": "b"}},
        ],
    }
    body = {"metadata": {"name": "vm"}, "spec": spec, "status": {"changedBlockTracking": tracking, **status}}
    return from_plain(body, VirtualMachineInstance)


def asked(**request: Any) -> dict[str, Any]:
    wish = {"volume": "v", "directory": "d", "checkpoint": "c1", "since": "c0", "keep": ["c0"], **request}
    return {"backupName": "b1", "startTimestamp": "t1", "request": wish}


def domain(backup: pb.Backup | None = None, tracked: tuple[str, ...] = ("data",)) -> pb.Domain:
    return pb.Domain(backup=backup, tracked_volumes=tracked, disk_targets={"data": "vda", "cd": "sda"})


def told(machine: VirtualMachineInstance, backup: pb.Backup | None = None, refused: str = "") -> BackupStatus:
    found = backups.told(machine, domain(backup), {KEY: refused} if refused else {}, NOW)
    assert found is not None
    assert found.backup_status is not None
    return found.backup_status


def test_it_is_on_when_each_disk_has_its_layer() -> None:
    def state(known: str, tracked: tuple[str, ...]) -> str:
        found = backups.told(vmi(known), domain(None, tracked), {}, NOW)
        assert found is not None
        return found.state

    assert state("Initializing", ("data",)) == "Enabled"
    assert state("Initializing", ()) == "Initializing"
    assert state("Enabled", ()) == "Initializing"
    assert state("Disabled", ("data",)) == "Disabled"


def test_the_launcher_is_asked_once() -> None:
    wanted = vmi(told=asked())
    request = backups.due(wanted, domain(), {})
    assert request is not None
    assert (request.name, request.started, request.since, list(request.keep)) == ("b1", "t1", "c0", ["c0"])
    assert backups.due(wanted, domain(RUNNING), {}) is None
    assert backups.due(wanted, domain(), {KEY: "no"}) is None
    assert backups.due(vmi(told=asked(abort=True)), domain(), {}) is None
    assert backups.due(vmi(told={**asked(), "completed": True}), domain(), {}) is None
    assert backups.due(vmi(), domain(), {}) is None
    # Another one of that name, from another time, is another one.
    assert backups.due(wanted, domain(pb.Backup(name="b1", started="t0", ended_us=1)), {}) is not None


def test_what_nobody_wants_any_more_is_given_up() -> None:
    assert backups.to_abort(vmi(told=asked()), domain(RUNNING)) == ""
    assert backups.to_abort(vmi(told=asked(abort=True)), domain(RUNNING)) == "b1"
    assert backups.to_abort(vmi(), domain(RUNNING)) == "b1"
    ended = pb.Backup(name="b1", started="t1", ended_us=5)
    assert backups.to_abort(vmi(told=asked(abort=True)), domain(ended)) == ""


def test_how_it_goes_and_ends() -> None:
    going = told(vmi(told=asked()), RUNNING)
    assert (going.completed, going.checkpoint_name, going.incremental) == (False, "c1", True)
    assert (going.quiesce_status, going.backup_msg) == ("QuiesceFailed", "no agent")
    done = pb.Backup()
    done.CopyFrom(RUNNING)
    done.ended_us = 7
    ended = told(vmi(told=asked()), done)
    assert (ended.completed, ended.failed, ended.backup_msg) == (True, False, "no agent")
    assert ended.end_timestamp == "2026-01-01T12:00:00Z"
    done.failure = "No space left on device"
    failed = told(vmi(told=asked()), done)
    assert (failed.failed, failed.backup_msg) == (True, "No space left on device")


def test_what_never_began() -> None:
    assert told(vmi(told=asked()), refused="there is no volume").backup_msg == "there is no volume"
    assert not told(vmi(told=asked())).completed
    assert told(vmi(told=asked(abort=True))).failed


def test_it_moves_only_with_a_claim_that_both_nodes_reach() -> None:
    def tie(mode: str) -> str:
        claim = {"claimName": "c", "accessModes": [mode]}
        everywhere = {"claimName": "c", "accessModes": ["ReadWriteMany"]}
        volumes = [
            {"name": "persistent-state-for-this-vm", "target": "", "persistentVolumeClaimInfo": claim},
            {"name": "data", "target": "", "persistentVolumeClaimInfo": everywhere},
        ]
        found = migratable.obstacle(vmi(volumeStatus=volumes))
        return found[1] if found is not None else ""

    assert "which blocks of its disks have changed" in tie("ReadWriteOnce")
    assert tie("ReadWriteMany") == ""
