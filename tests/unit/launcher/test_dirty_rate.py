"""How fast a guest changes its memory: measured once for all who ask, and never for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.launcher.parts import Parts, make_parts, plain_vmi
from virt_launcher.errors import LauncherError, NoMachineError
from virt_launcher.machine.dirty_rate import DirtyRate
from virt_launcher.machine.manager import SyncOptions


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    parts = make_parts(tmp_path)
    parts.manager.sync(plain_vmi(), SyncOptions())
    parts.hypervisor.dirty_mib = 7
    return parts


def rate_of(parts: Parts, time: Time) -> DirtyRate:
    return DirtyRate(parts.hypervisor, parts.manager._require, lambda: None, lambda: time.now, time.sleep)


def test_the_rate_is_in_bytes_and_asked_for_once(parts: Parts) -> None:
    time = Time()
    rate = rate_of(parts, time)
    assert rate.measure() == rate.measure() == 7 << 20
    assert parts.hypervisor.calls.count("start_dirty_rate 1") == 1
    time.sleep(10)
    parts.hypervisor.dirty_mib = 9
    assert rate.measure() == 9 << 20


def test_a_measurement_that_does_not_come_is_given_up(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts.hypervisor, "stats", lambda: {"dirtyrate.calc_status": 1})
    with pytest.raises(LauncherError, match="did not measure in time"):
        rate_of(parts, Time()).measure()


def test_no_machine_has_no_rate(tmp_path: Path) -> None:
    with pytest.raises(NoMachineError):
        rate_of(make_parts(tmp_path), Time()).measure()


def test_a_machine_on_its_way_is_not_measured_again(parts: Parts) -> None:
    """libvirt would keep the question waiting until the move is over."""
    moving = DirtyRate(parts.hypervisor, parts.manager._require, lambda: 5)
    assert moving.measure() == 5
    assert "start_dirty_rate 1" not in parts.hypervisor.calls
