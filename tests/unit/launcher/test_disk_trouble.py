"""A guest whose disk failed goes on by itself, and nobody is told of attempts that fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.launcher.parts import Parts, make_parts, plain_vmi
from virt_launcher.hypervisor.ports import State
from virt_launcher.machine import disk_trouble
from virt_launcher.machine.disk_trouble import words
from virt_launcher.machine.manager import SyncOptions
from virt_launcher.machine.state import MachineView


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Parts:
    monkeypatch.setattr(disk_trouble, "SETTLE_S", 0.0)
    monkeypatch.setattr(disk_trouble, "FIRST_PAUSE_S", 0.001)
    parts = make_parts(tmp_path)
    parts.manager.sync(plain_vmi(), SyncOptions())
    return parts


def fails(parts: Parts) -> MachineView:
    parts.hypervisor.errors = {"vda": "no space left"}
    parts.hypervisor.becomes(State.PAUSED, "IOError")
    return parts.manager.view()


def test_the_view_names_the_disk(parts: Parts) -> None:
    view = fails(parts)
    assert (view.reason, view.message) == ("IOError", "disk vda: no space left")


def test_a_volume_is_called_by_its_name() -> None:
    assert words({"vda": "no space left"}, (("root", "vda"),)) == "disk root: no space left"
    assert words({}, ()) == "a disk failed"
    assert len(words({f"d{n}": "x" for n in range(1000)}, ())) < 200


def test_the_guest_goes_on_when_the_disk_is_well_again(parts: Parts) -> None:
    trouble = parts.manager.disk_trouble
    trouble.on_state(fails(parts))
    assert trouble._thread is not None
    trouble._thread.join(10)
    assert not trouble._thread.is_alive()
    assert parts.manager.view().state is State.RUNNING


def test_a_failed_attempt_is_not_told(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    view = fails(parts)
    shown: list[MachineView] = []
    resume = parts.hypervisor.resume

    def fails_again() -> None:
        resume()
        shown.append(parts.manager.view())
        parts.hypervisor.becomes(State.PAUSED, "IOError")

    monkeypatch.setattr(parts.hypervisor, "resume", fails_again)
    trouble = parts.manager.disk_trouble
    trouble._told = view
    assert trouble.attempt() is False
    assert shown == [view]
    assert parts.manager.view() == view


def test_a_guest_that_its_owner_paused_is_left_alone(parts: Parts) -> None:
    parts.manager.pause()
    parts.manager.disk_trouble.on_state(parts.manager.view())
    assert parts.manager.disk_trouble._thread is None
    assert parts.manager.disk_trouble.attempt() is True
    assert parts.manager.view().state is State.PAUSED
