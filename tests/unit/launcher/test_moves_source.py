"""A machine leaves, with a hypervisor in memory: who may ask for what, and what is told of it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.framework.fake_hypervisor import FakeHypervisor
from tests.framework.waiting import eventually
from virt_core.apis.vmi import VirtualMachineInstance
from virt_launcher.domain.domain import Domain, to_xml
from virt_launcher.errors import LauncherError, NoMachineError, UnavailableError, WrongStateError
from virt_launcher.hypervisor.ports import ALIVE, Facts, JobFigures, State
from virt_launcher.machine.state import MoveView
from virt_launcher.moves.traffic import Traffic, Wishes

VMI = VirtualMachineInstance()


class World:
    def __init__(self, directory: Path) -> None:
        self.hypervisor = FakeHypervisor("ns_vm")
        self.hypervisor.define(to_xml(Domain(name="ns_vm")))
        self.hypervisor.start()
        self.killed = threading.Event()
        self.traffic = Traffic(
            self.hypervisor,
            sockets=directory,
            private=directory,
            require=self._require,
            kill=self.killed.set,
            on_news=lambda: None,
            on_remark=lambda reason, words: self.remarks.append((reason, words)),
        )
        self.remarks: list[tuple[str, str]] = []

    def _require(self) -> Facts:
        facts = self.hypervisor.facts()
        if facts is None or facts.state not in ALIVE:
            raise NoMachineError("none")
        return facts

    def over(self) -> MoveView:
        eventually(lambda: not self.traffic.under_way)
        assert self.traffic.view is not None
        return self.traffic.view


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_move_ends_well(world: World) -> None:
    world.hypervisor.figures = JobFigures(total=100, downtime_ms=42)
    world.traffic.leave(VMI, Wishes(uid="job"))
    assert world.traffic.under_way
    world.hypervisor.finish_move()
    view = world.over()
    assert (view.failed, view.downtime_ms, view.abort) == (False, 42, "")
    assert view.ended_us >= view.started_us > 0


@pytest.mark.parametrize(("kind", "version", "told"), [
    ("qemu", 7_002_022, 1), ("qemu", 10_000_002, 0), ("kvm", 7_002_022, 0),
])  # fmt: skip
def test_who_moves_an_emulated_guest_with_an_old_qemu_is_told(world: World, kind: str, version: int, told: int) -> None:
    world.hypervisor.define(to_xml(Domain(name="ns_vm", type=kind)))
    world.hypervisor.qemu_version = lambda: version  # type: ignore[method-assign]
    for _ in range(2):  # Asked again by somebody who did not get the answer.
        world.traffic.leave(VMI, Wishes(uid="job"))
    assert [reason for reason, _ in world.remarks] == ["EmulatedMove"] * told
    assert all("QEMU 7.2 can lose what an emulated guest writes" in words for _, words in world.remarks)
    world.hypervisor.finish_move()
    world.over()


def test_the_end_of_a_move_is_waited_for(world: World) -> None:
    """The machine is gone before its figures are known; the launcher must not be gone before them, too."""
    assert world.traffic.wait(0)
    world.traffic.leave(VMI, Wishes(uid="job"))
    assert not world.traffic.wait(0.01)
    world.hypervisor.finish_move()
    assert world.traffic.wait(10)
    assert world.traffic.view is not None
    assert world.traffic.view.ended_us > 0


def test_a_failure_has_its_reason(world: World) -> None:
    world.traffic.leave(VMI, Wishes(uid="job"))
    world.hypervisor.finish_move(LauncherError("no such host"))
    assert world.over().reason == "the move failed: no such host"


def test_a_lost_way_is_said_to_be_one(world: World) -> None:
    world.traffic.leave(VMI, Wishes(uid="job"))
    world.hypervisor.finish_move(LauncherError("End of file while reading data: Input/output error"))
    assert "the way to the other node was lost (End of file" in world.over().reason


def test_one_at_a_time_and_each_job_once(world: World) -> None:
    world.traffic.leave(VMI, Wishes(uid="job"))
    world.traffic.leave(VMI, Wishes(uid="job"))
    with pytest.raises(WrongStateError, match="already"):
        world.traffic.leave(VMI, Wishes(uid="other"))
    world.hypervisor.finish_move(LauncherError("broken"))
    world.over()
    world.traffic.leave(VMI, Wishes(uid="job"))
    assert world.hypervisor.calls.count("migrate") == 1


def test_given_up_in_time(world: World) -> None:
    world.traffic.leave(VMI, Wishes(uid="job"))
    eventually(lambda: "migrate" in world.hypervisor.calls)
    world.traffic.cancel("job")
    view = world.over()
    assert (view.failed, view.abort) == (True, "Succeeded")
    assert view.reason == "the move was given up: it was asked to be given up"
    with pytest.raises(WrongStateError, match="over"):
        world.traffic.cancel("job")


def test_given_up_before_it_began_it_never_does(world: World) -> None:
    """The call that was to begin it may still be on its way."""
    world.traffic.cancel("job")
    view = world.over()
    assert (view.uid, view.failed, view.abort) == ("job", True, "Succeeded")
    assert view.reason == "the move was given up before it began"
    world.traffic.leave(VMI, Wishes(uid="job"))
    assert "migrate" not in world.hypervisor.calls
    world.traffic.leave(VMI, Wishes(uid="next"))
    assert world.traffic.view is not None
    assert world.traffic.view.uid == "next"
    world.hypervisor.finish_move()
    world.over()


@pytest.mark.parametrize(("gone", "runs"), [(True, False), (False, True)])
def test_a_guest_that_stood_still_when_libvirt_died_is_held(world: World, gone: bool, runs: bool) -> None:
    world.traffic.leave(VMI, Wishes(uid="job"))
    eventually(lambda: "migrate" in world.hypervisor.calls)
    world.hypervisor.suspend()
    world.hypervisor.finish_move(UnavailableError("libvirt is gone"))
    eventually(lambda: world.traffic.view is not None and world.traffic.view.held)
    assert "resume" not in world.hypervisor.calls
    world.traffic.settle("job", gone=gone)
    view = world.over()
    assert (view.failed, view.held) == (True, False)
    assert (world.killed.is_set(), "resume" in world.hypervisor.calls) == (gone, runs)


@pytest.mark.parametrize("loss", [UnavailableError("libvirt is gone"), LauncherError("client socket is closed")])
def test_a_guest_with_memory_on_both_sides_is_sent_after(world: World, loss: LauncherError) -> None:
    """Neither held, which would end it here, nor failed, which would end it there."""
    world.traffic.leave(VMI, Wishes(uid="job"))
    eventually(lambda: "migrate" in world.hypervisor.calls)
    world.hypervisor.becomes(State.PAUSED, "PostcopyFailed")
    world.hypervisor.finish_move(loss)
    eventually(lambda: world.traffic.view is not None and "lost in post-copy" in world.traffic.view.reason)
    with pytest.raises(WrongStateError, match="not held"):
        world.traffic.settle("job", gone=True)
    view = world.over()
    assert (view.failed, view.reason, view.mode) == (False, "", "PostCopy")
    assert not world.killed.is_set()
    assert "resume" not in world.hypervisor.calls


def test_a_guest_that_runs_when_libvirt_is_back_has_stayed(world: World) -> None:
    world.traffic.leave(VMI, Wishes(uid="job"))
    world.hypervisor.finish_move(UnavailableError("libvirt is gone"))
    assert "libvirt's daemon ended" in world.over().reason
    assert not world.killed.is_set()


def test_another_jobs_move_is_nobodys_business(world: World) -> None:
    world.traffic.leave(VMI, Wishes(uid="job"))
    for ask in (lambda: world.traffic.cancel("other"), lambda: world.traffic.settle("other", gone=True)):
        with pytest.raises(WrongStateError, match="other"):
            ask()
    with pytest.raises(WrongStateError, match="not held"):
        world.traffic.settle("job", gone=True)
    assert not world.killed.is_set()
    world.hypervisor.finish_move()
    world.over()


def test_too_slow_is_given_up_by_itself(world: World) -> None:
    world.hypervisor.figures = JobFigures(total=100, remaining=60)
    world.traffic.leave(VMI, Wishes(uid="job", progress_timeout=1))
    view = world.over()
    assert "no progress for 1 s" in view.reason
    assert view.remaining_bytes == 60
