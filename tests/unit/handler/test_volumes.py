"""Volumes are brought and taken out beside the loop; what goes wrong is told once and tried again."""

from __future__ import annotations

from typing import Any

import pytest
from framework.vmis import POD_UID, UID
from framework.waiting import eventually
from unit.handler.test_hotplug import machine, volume

from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import FakeClock
from virt_handler.decisions.hotplug import Mounts, Plugged
from virt_handler.loop.errands import Errands
from virt_handler.loop.records import GhostRecord
from virt_handler.loop.sessions import Session
from virt_handler.loop.volumes import Volumes
from virt_handler.pods.plugging import NotThereError


class FakePlugging:
    """Mounts in a set."""

    def __init__(self, *there: str) -> None:
        self.there = set(there)
        self.looks = 0
        self.error: OSError | None = None

    def mounted(self, _pod_uid: str, _launcher: Any) -> frozenset[str]:
        self.looks += 1
        return frozenset(self.there)

    def mount(self, _pod_uid: str, _launcher: Any, plugged: Plugged) -> None:
        if self.error is not None:
            raise self.error
        self.there.add(plugged.name)

    def unmount(self, _pod_uid: str, _launcher: Any, name: str) -> None:
        self.there.remove(name)


class FakeRecorder:
    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def event(self, _obj: Any, _kind: str, reason: str, message: str) -> None:
        self.events.append((reason, message))


class Rig:
    def __init__(self, *there: str) -> None:
        self.clock = FakeClock()
        self.queue = WorkQueue(self.clock, "vmi")
        self.plugging, self.recorder = FakePlugging(*there), FakeRecorder()
        parts: Any = (self.plugging, Errands(), self.queue, self.recorder)
        self.volumes = Volumes(*parts)
        self.session = Session(GhostRecord(pod_uid=POD_UID, vmi_uid=UID, namespace="default", name="vm"), self.clock)
        launcher: Any = object()
        self.session.launcher = launcher

    def follow(self, *statuses: dict[str, Any], asked: str = "a") -> None:
        """Until there is nothing more to do now."""
        vmi = machine(*statuses, asked=asked)
        for _ in range(3):
            self.volumes.follow(self.session, vmi)
            eventually(lambda: not self.volumes._errands._under_way, within_s=5)


def test_a_machine_without_such_volumes_is_not_looked_at() -> None:
    rig = Rig()
    rig.follow({"name": "root", "target": "vda"})
    assert (rig.plugging.looks, rig.session.mounts) == (0, None)


def test_what_a_former_process_mounted_is_found_and_the_rest_is_brought() -> None:
    rig = Rig("a")
    rig.follow(volume("a", "Ready"), volume("b", "AttachedToNode"), asked="a b")
    assert (rig.plugging.looks, rig.plugging.there) == (1, {"a", "b"})
    assert rig.session.mounts == Mounts(frozenset("ab"))


def test_what_is_no_longer_wanted_is_taken_out() -> None:
    rig = Rig("a")
    rig.follow(volume("a", "Ready"), asked="other")
    assert rig.plugging.there == set()


def test_a_failure_is_told_once_and_tried_again_after_a_while() -> None:
    rig = Rig()
    rig.plugging.error = PermissionError(1, "no way")
    for _ in range(2):
        rig.follow(volume("a", "AttachedToNode"))
        rig.clock.step(1.1)
    ((reason, message),) = rig.recorder.events
    assert (reason, "no way" in message) == ("HotplugFailed", True)
    assert rig.session.mounts is not None
    assert "no way" in rig.session.mounts.failures["a"]
    rig.plugging.error = None
    rig.follow(volume("a", "AttachedToNode"))
    assert rig.session.mounts == Mounts(frozenset("a"))


def test_a_pod_that_has_just_begun_is_no_failure() -> None:
    rig = Rig()
    rig.plugging.error = NotThereError(2, "no process")
    rig.follow(volume("a", "AttachedToNode"))
    assert rig.recorder.events == []
    rig.plugging.error = None
    rig.follow(volume("a", "AttachedToNode"))
    assert rig.plugging.there == set(), "not at once again"
    rig.clock.step(0.2)
    rig.follow(volume("a", "AttachedToNode"))
    assert rig.plugging.there == {"a"}


@pytest.mark.parametrize("gone", [True, False])
def test_without_a_launcher_nothing_is_done(gone: bool) -> None:
    rig = Rig()
    if gone:
        rig.session.launcher_gone()
    else:
        rig.session.launcher = None
    rig.follow(volume("a", "AttachedToNode"))
    assert (rig.plugging.looks, rig.plugging.there) == (0, set())
