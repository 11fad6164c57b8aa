"""A backup of a machine's disks: whole or not there, one at a time, of one instant, and never through a link."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tests.unit.launcher.parts import Parts, make_parts, plain_vmi
from virt_core.apis import names
from virt_core.apis.base import from_plain
from virt_core.apis.vmistatus import ChangedBlockTrackingStatus, VolumeStatus
from virt_launcher.disks import held
from virt_launcher.errors import InvalidVMIError, LauncherError, NoMachineError, WrongStateError
from virt_launcher.hypervisor.ports import AgentReport, BackupEnd
from virt_launcher.machine import backup
from virt_launcher.machine.backup import Backup, Order
from virt_launcher.machine.checkpoints import FILE, Checkpoint, Checkpoints
from virt_launcher.machine.manager import SyncOptions
from virt_launcher.service.messages import domain_message

SIZE = 2 << 20
ONE = Order(name="one", started="t1", volume="shelf", directory="vm1/one", checkpoint="one")
TWO = Order(name="two", started="t2", volume="shelf", directory="vm1/two", checkpoint="two", since="one", keep=("one",))


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Parts:
    monkeypatch.setattr(backup, "_LOOK_S", 0.01)
    monkeypatch.setattr(backup, "check_held", lambda _pid, _wanted: None)
    monkeypatch.setattr("virt_launcher.machine.manager.check_held", lambda _pid, _wanted: None)
    parts = make_parts(tmp_path)
    paths = parts.settings.paths
    paths.disk_directory("data").mkdir(parents=True)
    layers(parts).mkdir(parents=True)
    disks = [{"name": name, "disk": {"bus": "virtio"}} for name in ("data", "scratch")]
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "scratch", "emptyDisk": {"capacity": "1Mi"}},
    ]
    vmi = plain_vmi(volumes=volumes, domain={"memory": {"guest": "64Mi"}, "devices": {"disks": disks}})
    info = {"claimName": "data", "volumeMode": "Filesystem", "requests": {"storage": str(SIZE)}}
    vmi.status.volume_status.append(from_plain({"name": "data", "persistentVolumeClaimInfo": info}, VolumeStatus))
    vmi.status.changed_block_tracking = ChangedBlockTrackingStatus(state="Initializing")
    parts.manager.sync(vmi, SyncOptions())
    parts.hypervisor.disk_sizes = {"vda": SIZE, "vdb": 1 << 20}
    parts.hypervisor.report = AgentReport()
    shelf(parts).mkdir(parents=True)
    return parts


def layers(parts: Parts) -> Path:
    return parts.settings.paths.kept_state / names.KEPT_BLOCKS


def shelf(parts: Parts) -> Path:
    return parts.settings.paths.hotplug("shelf")


def finished(parts: Parts) -> Backup:
    for thread in threading.enumerate():
        if thread.name == "backup":
            thread.join(10)
    found = parts.manager.view().backup
    assert found is not None
    assert found.ended_us > 0
    return found


def files(parts: Parts) -> list[str]:
    return sorted(str(each.relative_to(shelf(parts))) for each in shelf(parts).rglob("*") if each.is_file())


def back_up(parts: Parts, order: Order, **result: Any) -> Backup:
    parts.hypervisor.backup_result = BackupEnd(**result)
    parts.manager.back_up(order)
    return finished(parts)


def test_the_first_is_full_and_the_next_holds_what_changed(parts: Parts) -> None:
    assert parts.manager.view().tracked == ("data",)
    seen: list[ET.Element] = []
    parts.hypervisor.backup = lambda xml: seen.append(ET.fromstring(xml))
    first = back_up(parts, ONE)
    assert (first.failure, first.incremental, first.volumes, first.quiesce) == (
        "",
        False,
        ("data",),
        "QuiesceSucceeded",
    )
    second = back_up(parts, TWO)
    assert (second.failure, second.incremental, second.broken) == ("", True, "")
    assert files(parts) == ["vm1/one/one-data.qcow2", "vm1/two/two-data.qcow2"]
    assert [each.findtext("incremental") for each in seen] == [None, "one"]
    assert [each.find("disks/disk").get("backupmode") for each in seen] == ["full", "incremental"]  # type: ignore[union-attr]
    assert [each.name for each in Checkpoints(layers(parts)).all()] == ["one", "two"]
    told = domain_message(parts.manager.view()).backup
    assert (told.name, told.started, told.incremental, list(told.volumes)) == ("two", "t2", True, ["data"])
    third = replace(
        TWO, name="three", started="t3", directory="vm1/three", checkpoint="three", since="two", keep=("two",)
    )
    back_up(parts, third)
    assert [each.name for each in Checkpoints(layers(parts)).all()] == ["two", "three"]
    assert "delete_checkpoint one" in parts.hypervisor.calls


def test_the_guest_stands_still_only_while_it_begins(parts: Parts) -> None:
    frozen: list[bool] = []
    parts.hypervisor.backup = lambda _xml: frozen.append(parts.hypervisor.frozen)
    back_up(parts, ONE)
    assert (frozen, parts.hypervisor.frozen) == ([True], False)
    back_up(parts, replace(TWO, skip_quiesce=True))
    assert frozen == [True, False]
    assert parts.manager.view().backup.quiesce == "QuiesceSkipped"  # type: ignore[union-attr]


def test_a_guest_that_cannot_be_frozen_is_saved_and_it_says_so(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    def no() -> bool:
        raise WrongStateError("guest agent is not connected")

    monkeypatch.setattr(parts.hypervisor, "is_frozen", no)
    found = back_up(parts, ONE)
    assert (found.failure, found.quiesce) == ("", "QuiesceFailed")
    assert "not connected" in found.quiesce_message


def test_one_that_somebody_froze_before_stays_frozen(parts: Parts) -> None:
    parts.manager.controls.freeze(60)
    back_up(parts, ONE)
    assert parts.hypervisor.frozen
    parts.manager.controls.unfreeze()


def test_after_a_restart_libvirt_is_told_of_the_checkpoints(parts: Parts) -> None:
    back_up(parts, ONE)
    parts.hypervisor.known_checkpoints.clear()
    assert back_up(parts, TWO).incremental
    assert "redefine_checkpoint one" in parts.hypervisor.calls


@pytest.mark.parametrize("loss", ["bitmap", "list", "garbage"])
def test_a_broken_chain_begins_anew_and_says_why(parts: Parts, loss: str) -> None:
    back_up(parts, ONE)
    parts.hypervisor.known_checkpoints.clear()
    if loss == "bitmap":
        parts.hypervisor.bitmaps.clear()
    elif loss == "list":
        (layers(parts) / FILE).unlink()
    else:
        (layers(parts) / FILE).write_bytes(b"\xff{")
    found = back_up(parts, TWO)
    assert (found.failure, found.incremental) == ("", False)
    assert "the checkpoint one cannot be built on" in found.broken
    assert [each.name for each in Checkpoints(layers(parts)).all()] == ["two"]


def test_a_disk_that_came_later_is_saved_whole(parts: Parts) -> None:
    back_up(parts, ONE)
    Checkpoints(layers(parts)).add(Checkpoint(name="one", created=1, volumes=["another"]))
    seen: list[ET.Element] = []
    parts.hypervisor.backup = lambda xml: seen.append(ET.fromstring(xml))
    assert not back_up(parts, TWO).incremental
    assert seen[0].find("disks/disk").get("backupmode") == "full"  # type: ignore[union-attr]


def test_a_failure_leaves_neither_files_nor_a_checkpoint(parts: Parts) -> None:
    back_up(parts, ONE)
    found = back_up(parts, TWO, failure="No space left on device")
    assert found.failure == "No space left on device"
    assert files(parts) == ["vm1/one/one-data.qcow2"]
    assert not (shelf(parts) / "vm1/two").exists()
    assert parts.hypervisor.known_checkpoints == ["one"]
    assert [each.name for each in Checkpoints(layers(parts)).all()] == ["one"]
    again = back_up(parts, replace(TWO, name="three", started="t3", directory="vm1/three", checkpoint="three"))
    assert (again.failure, again.incremental) == ("", True)


def test_what_libvirt_refuses_leaves_nothing(parts: Parts) -> None:
    def refuses(_xml: str) -> None:
        raise LauncherError("domain backup job is already running")

    parts.hypervisor.backup = refuses
    found = back_up(parts, ONE)
    assert "already running" in found.failure
    assert (files(parts), parts.hypervisor.frozen) == ([], False)


def test_one_at_a_time_and_each_once(parts: Parts) -> None:
    parts.hypervisor.backup_result = None
    parts.manager.back_up(ONE)
    parts.manager.back_up(ONE)
    with pytest.raises(WrongStateError, match="one is still being written"):
        parts.manager.back_up(TWO)
    parts.hypervisor.backup_result = BackupEnd()
    finished(parts)
    parts.manager.back_up(ONE)
    finished(parts)
    assert parts.hypervisor.calls.count("begin_backup") == 1


def test_an_aborted_one_leaves_nothing(parts: Parts) -> None:
    parts.hypervisor.backup_result = None
    parts.manager.back_up(ONE)
    parts.manager.backups.abort("another")
    assert not parts.hypervisor.aborted.is_set()
    parts.manager.backups.abort("one")
    assert "aborted" in finished(parts).failure
    assert files(parts) == []


def test_one_that_does_not_end_is_given_up(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup, "_LEAST_S", 0.01)
    monkeypatch.setattr(backup, "_BYTES_PER_S", 1 << 60)
    parts.hypervisor.backup_result = None
    parts.manager.back_up(ONE)
    assert "was not written within" in finished(parts).failure
    assert files(parts) == []


def test_a_file_that_qemu_does_not_hold_ends_it(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    def another(_pid: int | None, _wanted: list[held.Identity]) -> None:
        raise InvalidVMIError("", "replaced")

    monkeypatch.setattr(backup, "check_held", another)
    parts.hypervisor.backup_result = None
    parts.manager.back_up(ONE)
    assert "was replaced" in finished(parts).failure


def test_a_link_in_the_claim_is_not_followed(parts: Parts, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (shelf(parts) / "vm1").symlink_to(elsewhere)
    assert back_up(parts, ONE).failure
    assert list(elsewhere.iterdir()) == []


def test_a_directory_that_is_there_is_not_written_to(parts: Parts) -> None:
    (shelf(parts) / "vm1/one").mkdir(parents=True)
    assert "has a directory vm1/one already" in back_up(parts, ONE).failure


@pytest.mark.parametrize("change", [{"name": ""}, {"name": "../x"}, {"volume": ".."}, {"directory": "vm1/../x"}])
def test_names_that_lead_elsewhere(parts: Parts, change: dict[str, str]) -> None:
    with pytest.raises(InvalidVMIError):
        parts.manager.back_up(replace(ONE, **change))  # type: ignore[arg-type]


def test_without_a_volume_a_tracked_disk_or_a_machine(parts: Parts, tmp_path: Path) -> None:
    with pytest.raises(WrongStateError, match="'gone' is not in the Pod"):
        parts.manager.back_up(replace(ONE, volume="gone"))
    with pytest.raises(NoMachineError):
        make_parts(tmp_path / "other").manager.back_up(ONE)
    plain = make_parts(tmp_path / "plain")
    plain.manager.sync(plain_vmi(), SyncOptions())
    shelf(plain).mkdir(parents=True)
    assert "no disk whose changed blocks are tracked" in back_up(plain, ONE).failure
