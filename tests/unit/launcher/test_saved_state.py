"""The state of a machine in a claim: whole or not there, resumed once at most, and never over disks that went on."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.unit.launcher.cases import UID
from tests.unit.launcher.parts import Parts, make_parts, plain_vmi
from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.vmi import VirtualMachineInstance
from virt_launcher.errors import InvalidVMIError, LauncherError, UnavailableError, WrongStateError
from virt_launcher.hypervisor.ports import State
from virt_launcher.machine.manager import SyncOptions
from virt_launcher.machine.memory_dump import Dump

FILE = "vm1-uid-20260101-120000.machine.state"
VOLUME = "virtpod-machine-state"
USED = f"{FILE}.used"


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    parts = make_parts(tmp_path)
    parts.settings.paths.hotplug(VOLUME).mkdir(parents=True)
    parts.settings.paths.machine_state.mkdir(parents=True)
    parts.hypervisor.dump = writes
    return parts


def writes(path: str) -> None:
    Path(path).write_bytes(b"state")


def save(parts: Parts, kind: str, hold_s: float = 60.0) -> Dump:
    parts.manager.dump_memory(VOLUME, FILE, kind, hold_s)
    for thread in threading.enumerate():
        if thread.name == "memory-dump":
            thread.join(10)
    dump = parts.manager.view().memory_dump
    assert dump is not None
    return dump


def files(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def resuming(**told: Any) -> VirtualMachineInstance:
    body = to_plain(plain_vmi())
    note = json.dumps({"claim": "sleep", "file": FILE, **told})
    body["metadata"] |= {"uid": UID, "annotations": {"virtpod.io/resume-from": note}}
    return from_plain(body, VirtualMachineInstance)


def keep(parts: Parts, *, paused: bool = False, disks: dict[str, list[int]] | None = None) -> Path:
    directory = parts.settings.paths.machine_state
    (directory / FILE).write_bytes(b"state")
    (directory / f"{FILE}.facts").write_text(json.dumps({"paused": paused, "disks": disks or {}}))
    return directory


def test_a_machine_ends_once_its_state_is_whole(parts: Parts) -> None:
    parts.manager.sync(plain_vmi(), SyncOptions())
    dump = save(parts, "hibernate")
    assert (dump.failure, dump.kind) == ("", "hibernate")
    assert files(parts.settings.paths.hotplug(VOLUME)) == {FILE, f"{FILE}.facts"}
    calls = [c for c in parts.hypervisor.calls if c in ("suspend", "save_state", "destroy")]
    assert calls == ["suspend", "save_state", "destroy"]
    seen = parts.manager.view()
    assert (seen.state, seen.reason, seen.ended_well) == (State.SHUTOFF, "Saved", True)


def test_a_state_that_cannot_be_written_leaves_the_guest_running(parts: Parts) -> None:
    def full(path: str) -> None:
        Path(path).write_bytes(b"half")
        raise LauncherError("no space left")

    parts.hypervisor.dump = full
    parts.manager.sync(plain_vmi(), SyncOptions())
    assert "no space left" in save(parts, "hibernate").failure
    assert files(parts.settings.paths.hotplug(VOLUME)) == set()
    assert parts.manager.view().state is State.RUNNING
    parts.manager.unpause()


def test_a_guest_stands_still_until_it_is_let_go(parts: Parts) -> None:
    parts.manager.sync(plain_vmi(), SyncOptions())
    save(parts, "snapshot")
    seen = parts.manager.view()
    assert (seen.state, seen.held) == (State.PAUSED, True)
    for command in (parts.manager.unpause, parts.manager.shut_down):
        with pytest.raises(WrongStateError, match="stands still"):
            command()
    with pytest.raises(UnavailableError):
        parts.manager.sync(plain_vmi(), SyncOptions())
    parts.manager.release_state()
    assert parts.manager.view().state is State.RUNNING
    assert not parts.manager.view().held


def test_a_guest_that_nobody_lets_go_goes_on_by_itself(parts: Parts) -> None:
    went_on = threading.Event()
    parts.manager.sync(plain_vmi(), SyncOptions())
    parts.manager.on_news = lambda: went_on.set() if "resume" in parts.hypervisor.calls else None
    save(parts, "snapshot", hold_s=0.05)
    assert went_on.wait(10)
    assert parts.manager.view().state is State.RUNNING


def test_a_guest_that_the_user_paused_stays_so(parts: Parts) -> None:
    parts.manager.sync(plain_vmi(), SyncOptions())
    parts.manager.pause()
    save(parts, "snapshot")
    facts = json.loads((parts.settings.paths.hotplug(VOLUME) / f"{FILE}.facts").read_text())
    assert facts["paused"] is True
    parts.manager.release_state()
    assert parts.manager.view().state is State.PAUSED


@pytest.mark.parametrize("paused", [False, True])
def test_a_state_is_marked_as_used_before_the_guest_runs(
    parts: Parts, paused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = keep(parts, paused=paused)
    at_resume: list[set[str]] = []
    resume = parts.hypervisor.resume

    def watched() -> None:
        at_resume.append(files(directory))
        resume()

    monkeypatch.setattr(parts.hypervisor, "resume", watched)
    parts.manager.sync(resuming(), SyncOptions())
    assert parts.hypervisor.restored == b"state"
    assert "start" not in parts.hypervisor.calls
    assert files(directory) == {USED, f"{FILE}.facts"}
    assert (directory / USED).stat().st_size == 0
    assert at_resume == ([] if paused else [{USED, f"{FILE}.facts"}])
    assert parts.manager.view().state is (State.PAUSED if paused else State.RUNNING)


def test_a_state_is_never_resumed_twice(parts: Parts) -> None:
    directory = keep(parts)
    (directory / FILE).rename(directory / USED)
    remarks: list[str] = []
    parts.manager.on_remark = lambda reason, _words: remarks.append(reason)
    parts.manager.sync(resuming(), SyncOptions())
    assert "restore" not in parts.hypervisor.calls
    assert remarks == ["SavedStateUsed"]
    assert parts.manager.view().state is State.RUNNING


def test_a_state_that_is_not_there_is_no_reason_to_boot(parts: Parts) -> None:
    with pytest.raises(InvalidVMIError, match="--discard-state"):
        parts.manager.sync(resuming(), SyncOptions())
    assert parts.manager.view().state is State.ABSENT


def test_a_state_that_does_not_fit_stays_whole(parts: Parts) -> None:
    directory = keep(parts)
    parts.hypervisor.refuses = "Target memory size does not match"
    with pytest.raises(InvalidVMIError, match="Target memory size"):
        parts.manager.sync(resuming(), SyncOptions())
    assert files(directory) == {FILE, f"{FILE}.facts"}


def test_a_state_is_not_put_over_another_disk(parts: Parts) -> None:
    directory = keep(parts, disks={"root": [1, 2]})
    with pytest.raises(InvalidVMIError, match='the disk "root" was written'):
        parts.manager.sync(resuming(), SyncOptions())
    assert files(directory) == {FILE, f"{FILE}.facts"}
    # Copies of both have other times, and came together.
    parts.manager.sync(resuming(copied=True), SyncOptions())
    assert parts.manager.view().state is State.RUNNING


def test_a_link_is_no_state(parts: Parts, tmp_path: Path) -> None:
    directory = keep(parts)
    (directory / FILE).rename(tmp_path / "elsewhere")
    (directory / FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidVMIError):
        parts.manager.sync(resuming(), SyncOptions())
    assert "restore" not in parts.hypervisor.calls
