"""A guest's memory in a claim: whole or not there, one at a time, and never through a link."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tests.unit.launcher.parts import Parts, make_parts, plain_vmi
from virt_launcher.errors import InvalidVMIError, LauncherError, NoMachineError, WrongStateError
from virt_launcher.machine import memory_dump
from virt_launcher.machine.manager import SyncOptions
from virt_launcher.machine.memory_dump import Dump
from virt_launcher.service.messages import domain_message

FILE = "vm1-dump-20260101-120000.memory.dump"


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    parts = make_parts(tmp_path)
    parts.manager.sync(plain_vmi(), SyncOptions())
    directory(parts).mkdir(parents=True)
    return parts


def directory(parts: Parts) -> Path:
    return parts.settings.paths.hotplug("dump")


def finished(parts: Parts) -> Dump:
    for thread in threading.enumerate():
        if thread.name == "memory-dump":
            thread.join(10)
    dump = parts.manager.view().memory_dump
    assert dump is not None
    assert dump.ended_us >= dump.started_us > 0
    return dump


def writes(path: str) -> None:
    Path(path).write_bytes(b"core")


def test_a_dump_replaces_the_one_before(parts: Parts) -> None:
    (directory(parts) / f"old{memory_dump.SUFFIX}").write_bytes(b"old")
    (directory(parts) / "kept").write_bytes(b"the user's")
    parts.hypervisor.dump = writes
    news: list[int] = []
    parts.manager.on_news = lambda: news.append(1)
    parts.manager.dump_memory("dump", FILE)
    assert finished(parts).failure == ""
    assert {path.name: path.read_bytes() for path in directory(parts).iterdir()} == {
        FILE: b"core",
        "kept": b"the user's",
    }
    assert len(news) == 2
    told = domain_message(parts.manager.view()).memory_dump
    assert (told.volume, told.file_name, told.failure) == ("dump", FILE, "")


def test_the_same_file_is_not_written_twice(parts: Parts) -> None:
    parts.hypervisor.dump = writes
    for _ in range(2):
        parts.manager.dump_memory("dump", FILE)
        finished(parts)
    assert parts.hypervisor.calls.count("dump_memory") == 1


def test_half_a_file_does_not_stay_and_the_reason_does(parts: Parts) -> None:
    def full(path: str) -> None:
        writes(path)
        raise LauncherError("dump: failed to save memory: No space left on device")

    parts.hypervisor.dump = full
    parts.manager.dump_memory("dump", FILE)
    assert "No space left" in finished(parts).failure
    assert list(directory(parts).iterdir()) == []


def test_a_disk_that_does_not_write_is_given_up(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_dump, "_LEAST_S", 0.01)
    monkeypatch.setattr(memory_dump, "_BYTES_PER_S", 1 << 60)

    def hangs(_path: str) -> None:
        assert parts.hypervisor.aborted.wait(10)
        raise LauncherError("operation aborted")

    parts.hypervisor.dump = hangs
    parts.manager.dump_memory("dump", FILE)
    assert "was not written within" in finished(parts).failure
    assert list(directory(parts).iterdir()) == []


def test_one_at_a_time(parts: Parts) -> None:
    let_go = threading.Event()

    def waits(_path: str) -> None:
        assert let_go.wait(10)

    parts.hypervisor.dump = waits
    parts.manager.dump_memory("dump", FILE)
    with pytest.raises(WrongStateError, match="still being written"):
        parts.manager.dump_memory("dump", f"other{memory_dump.SUFFIX}")
    let_go.set()
    finished(parts)


@pytest.mark.parametrize(
    "file", ["", ".", f"../x{memory_dump.SUFFIX}", f"a/b{memory_dump.SUFFIX}", "disk.img", "x" * 300]
)
def test_names_that_lead_elsewhere(parts: Parts, file: str) -> None:
    with pytest.raises(InvalidVMIError):
        parts.manager.dump_memory("dump", file)
    with pytest.raises(InvalidVMIError):
        parts.manager.dump_memory("../..", FILE)


def test_a_link_in_the_claim_is_not_followed(parts: Parts, tmp_path: Path) -> None:
    """The link is taken for an older dump and goes; what it points at stays."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (directory(parts) / FILE).symlink_to(victim)
    parts.hypervisor.dump = writes
    parts.manager.dump_memory("dump", FILE)
    assert finished(parts).failure == ""
    assert victim.read_bytes() == b"precious"
    assert not (directory(parts) / FILE).is_symlink()


def test_without_a_volume_or_a_machine(parts: Parts, tmp_path: Path) -> None:
    with pytest.raises(WrongStateError, match="'gone' is not in the Pod"):
        parts.manager.dump_memory("gone", FILE)
    os.symlink("/etc", parts.settings.paths.hotplug("linked"))
    with pytest.raises(NoMachineError):
        make_parts(tmp_path / "other").manager.dump_memory("dump", FILE)
