"""When a running machine is synced again, and when not."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from framework.vmis import handed_over, plain_vmi

from virt_core.apis import names
from virt_core.apis.base import from_plain
from virt_core.apis.podroles import Role
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.conditions import get_condition
from virt_core.runtime.clock import FakeClock
from virt_handler.decisions.status import reported
from virt_handler.decisions.steps import next_step
from virt_handler.decisions.vocabulary import Action, Launcher, Step, Task, View, Work
from virt_handler.decisions.wanted import digest
from virt_handler.loop.records import GhostRecord
from virt_handler.loop.sessions import Session
from virt_protos.launcher.v1 import launcher_pb2 as pb

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DONE = Work(Task.DONE)
RUNNING = pb.Domain(state=pb.DOMAIN_STATE_RUNNING)
CLAIM = {"claimName": "c", "volumeMode": "Filesystem"}


def changed(path: str, value: Any) -> VirtualMachineInstance:
    """The usual VMI with another value at this place."""
    plain = plain_vmi(phase="Running")
    *parents, leaf = path.split(".")
    place: Any = plain
    for key in parents:
        place = place[int(key)] if isinstance(place, list) else place.setdefault(key, {})
    place[leaf] = value
    return from_plain(plain, VirtualMachineInstance)


USUAL = changed("metadata.name", "vm")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.domain.devices.interfaces.0.state", "down"),
        ("spec.domain.devices.disks", []),
        ("spec.domain.cpu", {"sockets": 2}),
        ("spec.domain.memory.guest", "1Gi"),
        ("spec.volumes", []),
        ("spec.networks", []),
        ("status.volumeStatus", [{"name": "root", "persistentVolumeClaimInfo": CLAIM}]),
        ("status.volumeStatus", [{"name": "root", "hotplugVolume": {}, "phase": "MountedToPod"}]),
        ("status.VSOCKCID", 7),
    ],
)
def test_what_the_launcher_reads_counts(path: str, value: Any) -> None:
    assert digest(changed(path, value)) != digest(USUAL)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.labels", {"a": "b"}),
        ("metadata.resourceVersion", "99"),
        ("spec.nodeSelector", {"zone": "a"}),
        ("spec.tolerations", [{"key": "k"}]),
        ("spec.terminationGracePeriodSeconds", 5),
        ("status.phase", "Scheduled"),
        ("status.conditions", [{"type": "Ready", "status": "True"}]),
        ("status.interfaces", [{"name": "default", "ipAddress": "10.0.0.1"}]),
        ("status.volumeStatus", [{"name": "root", "target": "vda"}]),
    ],
)
def test_what_others_read_or_we_write_does_not(path: str, value: Any) -> None:
    assert digest(changed(path, value)) == digest(USUAL)


def test_a_volume_on_its_way_counts_when_it_has_arrived() -> None:
    def volume(phase: str) -> VirtualMachineInstance:
        return changed("status.volumeStatus", [{"name": "root", "hotplugVolume": {}, "phase": phase, "target": phase}])

    assert digest(volume("Bound")) == digest(volume("AttachedToNode")) != digest(volume("MountedToPod"))
    assert digest(volume("MountedToPod")) == digest(volume("Ready"))


def test_the_order_of_maps_is_of_no_account() -> None:
    one = changed("spec.domain.resources", {"requests": {"cpu": "1", "memory": "1Gi"}})
    other = changed("spec.domain.resources", {"requests": {"memory": "1Gi", "cpu": "1"}})
    assert digest(one) == digest(other)


def step(vmi: VirtualMachineInstance, view: View, now: datetime, role: Role | None = Role.ACTIVE) -> Step:
    return next_step(vmi, view, now, role)


def session() -> Session:
    return Session(GhostRecord("v", "default", "vm", "p"), FakeClock())


def ready(one: Session) -> View:
    return replace(one.view(), launcher=Launcher.READY)


def view(vmi: VirtualMachineInstance | None, sync: Work = DONE, **more: Any) -> View:
    synced = None if vmi is None else pb.Synced(digest=digest(vmi))
    changes = {"since": NOW, "launcher": Launcher.READY, "domain": RUNNING, "sync": sync, "synced": synced}
    return View(**(changes | more))


DOWN = changed("spec.domain.devices.interfaces.0.state", "down")


def test_a_machine_is_synced_when_the_vmi_asks_for_another() -> None:
    assert step(USUAL, view(USUAL), NOW) == Step()
    assert step(DOWN, view(USUAL), NOW).action is Action.SYNC
    # Nobody knows yet what the launcher was asked for: it is asked first.
    assert step(DOWN, view(None), NOW) == Step()


@pytest.mark.parametrize("role", [Role.SOURCE, Role.TARGET, None])
def test_only_the_side_that_has_the_guest_is_synced(role: Role | None) -> None:
    assert step(DOWN, view(USUAL, network=DONE), NOW, role).action is not Action.SYNC


def test_one_sync_at_a_time() -> None:
    assert step(DOWN, view(USUAL, Work(Task.RUNNING)), NOW) == Step()


@pytest.mark.parametrize("fatal", [True, False])
def test_a_failure_is_tried_again_later_and_ends_no_guest(fatal: bool) -> None:
    work = Work(Task.FAILED, "x", fatal=fatal, retry_at=NOW + timedelta(seconds=4), asked=digest(DOWN))
    assert step(DOWN, view(USUAL, work), NOW) == Step(recheck_s=4)
    assert step(DOWN, view(USUAL, work), NOW + timedelta(seconds=4)) == Step(Action.SYNC)


def test_another_wish_does_not_wait_for_the_last_ones_failure() -> None:
    work = Work(Task.FAILED, "x", retry_at=NOW + timedelta(seconds=4), asked="something else")
    assert step(DOWN, view(USUAL, work), NOW) == Step(Action.SYNC)


def test_a_wish_that_was_taken_back_is_synced_too() -> None:
    """Half of it may have been done."""
    one = session()
    one.sync_started(digest(USUAL))
    one.sync_done(pb.SyncVMIResponse(domain=RUNNING, synced=pb.Synced(digest=digest(USUAL))), one.version())
    assert step(USUAL, ready(one), NOW) == Step()
    one.sync_started(digest(DOWN))
    one.sync_failed("x", fatal=False)
    assert step(USUAL, ready(one), NOW) == Step(Action.SYNC)


def test_an_answer_that_got_lost_is_asked_for_again() -> None:
    """The machine did start, and nobody knows with what."""
    one = session()
    one.sync_started(digest(USUAL))
    one.sync_failed("deadline exceeded", fatal=False)
    one.domain_told(RUNNING, 1)
    assert step(USUAL, ready(one), one.view().sync.retry_at or NOW) == Step(Action.SYNC)


def test_a_launcher_of_an_older_release_is_believed_to_have_done_it() -> None:
    one = session()
    one.sync_started(digest(DOWN))
    one.sync_done(pb.SyncVMIResponse(domain=RUNNING), one.version())
    assert step(DOWN, ready(one), NOW) == Step()


@pytest.mark.parametrize(
    "more",
    [
        {"domain": pb.Domain(state=pb.DOMAIN_STATE_SHUTTING_DOWN)},
        {"domain": pb.Domain(state=pb.DOMAIN_STATE_SHUTOFF, reason="Shutdown")},
        {"launcher": Launcher.WAITING},
    ],
)
def test_what_ends_or_is_not_there_is_left_alone(more: dict[str, Any]) -> None:
    assert step(DOWN, view(USUAL, **more), NOW).action is Action.NOTHING


def test_a_machine_that_shall_stop_is_not_changed_first() -> None:
    vmi = handed_over("Running", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert step(vmi, view(USUAL), NOW).action is Action.SHUTDOWN


def synchronized(vmi: VirtualMachineInstance, view: View) -> str | None:
    told = get_condition(reported(vmi, view, Step(), NOW).status.conditions, names.CONDITION_SYNCHRONIZED)
    return None if told is None else f"{told.status} {told.reason} {told.message}"


def test_a_failure_shows_until_the_machine_is_in_line() -> None:
    failed = Work(Task.FAILED, 'disk "d" was not attached: no room', asked=digest(DOWN))
    sentence = 'False SyncFailed disk "d" was not attached: no room'
    assert synchronized(DOWN, view(USUAL, failed)) == sentence
    again = Work(Task.RUNNING, failed.error, asked=failed.asked)
    assert synchronized(DOWN, view(USUAL, again)) == sentence
    assert synchronized(DOWN, view(DOWN)) is None


def test_what_waits_for_a_restart_is_a_condition() -> None:
    need = pb.RestartNeed(field="spec.domain.memory.guest", reason="the guest's memory cannot change")
    seen = view(USUAL, synced=pb.Synced(digest="d", needs_restart=[need]))
    vmi = reported(USUAL, seen, Step(), NOW)
    told = get_condition(vmi.status.conditions, names.CONDITION_RESTART_REQUIRED)
    assert told is not None
    assert told.message == "a restart is needed: spec.domain.memory.guest: the guest's memory cannot change"
    # A handler that has not met the launcher yet knows nothing better, nor one that the machine has moved to.
    for nothing in (None, pb.Synced()):
        kept = reported(vmi, view(None, synced=nothing), Step(), NOW).status.conditions
        assert get_condition(kept, names.CONDITION_RESTART_REQUIRED) is not None
    gone = reported(vmi, view(USUAL), Step(), NOW).status.conditions
    assert get_condition(gone, names.CONDITION_RESTART_REQUIRED) is None
