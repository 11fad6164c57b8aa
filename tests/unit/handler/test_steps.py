"""Every decision of the handler's loop, on plain values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from framework.vmis import handed_over

from virt_core.apis import handoffs
from virt_core.apis.podroles import Role
from virt_core.apis.vmi import VirtualMachineInstance
from virt_handler.decisions import steps
from virt_handler.decisions.domains import End
from virt_handler.decisions.vocabulary import Action, Launcher, Step, Task, View, Work
from virt_protos.launcher.v1 import launcher_pb2 as pb

HANDED_OVER = datetime(2026, 1, 1, tzinfo=UTC)
NOW = HANDED_OVER + timedelta(seconds=1)
DELETED = {"deletionTimestamp": "2026-01-01T00:00:05Z"}
ABSENT = pb.Domain(state=pb.DOMAIN_STATE_ABSENT)
RUNNING = pb.Domain(state=pb.DOMAIN_STATE_RUNNING)
DONE = Work(Task.DONE)


def after(seconds: float) -> datetime:
    return HANDED_OVER + timedelta(seconds=seconds)


def view(**changes: Any) -> View:
    return View(**({"since": HANDED_OVER} | changes))


def next_step(vmi: VirtualMachineInstance | None, view: View, now: datetime) -> Step:
    """For the Pod that has the guest; test_beside.py is about the others."""
    return steps.next_step(vmi, view, now, Role.ACTIVE)


def ended(reason: str, message: str = "", state: Any = pb.DOMAIN_STATE_SHUTOFF) -> pb.Domain:
    return pb.Domain(state=state, reason=reason, message=message)


# The start


def test_network_is_wired_before_the_launcher_is_there() -> None:
    step = next_step(handed_over(), view(), NOW)
    assert step.action is Action.WIRE_NETWORK


def test_waits_for_the_launcher_once_the_network_is_on_its_way() -> None:
    step = next_step(handed_over(), view(network=Work(Task.RUNNING)), NOW)
    assert step.action is Action.NOTHING
    assert step.overdue is None
    assert step.recheck_s == pytest.approx(29, abs=0.1), "the next deadline, not a poll"


@pytest.mark.parametrize(
    ("network", "launcher", "domain"),
    [(Work(Task.RUNNING), Launcher.READY, ABSENT), (DONE, Launcher.WAITING, None), (DONE, Launcher.READY, None)],
)
def test_sync_needs_network_launcher_and_knowledge(network: Work, launcher: Launcher, domain: pb.Domain | None) -> None:
    step = next_step(handed_over(), view(network=network, launcher=launcher, domain=domain), NOW)
    assert step.action is Action.NOTHING


def test_sync_when_all_is_ready() -> None:
    ready = view(network=DONE, launcher=Launcher.READY, domain=ABSENT)
    assert next_step(handed_over(), ready, NOW).action is Action.SYNC


def test_a_machine_whose_owner_vouches_for_it_waits_for_his_session() -> None:
    """And no longer than any start: somebody may have forgotten it."""
    ready = view(network=DONE, launcher=Launcher.READY, domain=ABSENT)

    def attested(**sev: str) -> VirtualMachineInstance:
        return handed_over(spec={"domain": {"devices": {}, "launchSecurity": {"sev": {"attestation": {}, **sev}}}})

    assert next_step(attested(), ready, NOW).action is Action.NOTHING
    assert next_step(attested(session="c2Vzc2lvbg=="), ready, NOW).action is Action.SYNC
    end = next_step(attested(), ready, after(steps.START_LIMIT_S)).end
    assert end is not None
    assert "sev/setupsession" in end.message


def test_one_sync_at_a_time_and_retries_when_due() -> None:
    busy = view(network=DONE, launcher=Launcher.READY, domain=ABSENT, sync=Work(Task.RUNNING, started=NOW))
    assert next_step(handed_over(), busy, NOW).action is Action.NOTHING
    failed = Work(Task.FAILED, error="x", started=NOW, retry_at=after(3))
    waiting = view(network=DONE, launcher=Launcher.READY, domain=ABSENT, sync=failed)
    step = next_step(handed_over(), waiting, after(2))
    assert step.action is Action.NOTHING
    assert step.recheck_s == pytest.approx(1, abs=0.1)
    assert next_step(handed_over(), waiting, after(3)).action is Action.SYNC


def test_running_machine_is_not_synced_before_its_launcher_was_asked() -> None:
    """Also not by a handler that has just been started."""
    step = next_step(handed_over("Scheduled"), view(launcher=Launcher.READY, domain=RUNNING, network=DONE), NOW)
    assert step.action is Action.NOTHING
    step = next_step(handed_over("Running"), view(launcher=Launcher.READY, domain=RUNNING), NOW)
    assert step == Step()


def test_report_waits_a_moment_for_the_answer_with_the_handoffs() -> None:
    started = view(domain=RUNNING, launcher=Launcher.READY, sync=Work(Task.RUNNING, started=NOW), alive_since=NOW)
    assert next_step(handed_over(), started, NOW).hold
    late = next_step(handed_over(), started, NOW + timedelta(seconds=steps.HOLD_S))
    assert not late.hold


@pytest.mark.parametrize(
    ("changes", "age_s", "missing"),
    [
        ({"network": Work(Task.RUNNING)}, 29, None),
        ({"network": Work(Task.RUNNING)}, 31, handoffs.NETWORK_READY),
        ({"network": DONE}, 59, None),
        ({"network": DONE}, 61, handoffs.LAUNCHER_READY),
    ],
)
def test_overdue_handoffs_are_named(changes: dict[str, Any], age_s: float, missing: Any) -> None:
    assert next_step(handed_over(), view(**changes), after(age_s)).overdue is missing


def test_overdue_sync_is_named_by_its_own_start() -> None:
    busy = view(network=DONE, launcher=Launcher.READY, domain=ABSENT, sync=Work(Task.RUNNING, started=after(10)))
    assert next_step(handed_over(), busy, after(69)).overdue is None
    assert next_step(handed_over(), busy, after(71)).overdue is handoffs.DOMAIN_DEFINED
    assert next_step(handed_over(), busy, after(131)).overdue is handoffs.GUEST_STARTED


@pytest.mark.parametrize(
    ("changes", "reason", "words"),
    [
        ({"network": Work(Task.FAILED, error="no eth0")}, "NetworkSetupFailed", "no eth0"),
        ({"network": DONE}, "LauncherNotReady", "command socket"),
        (
            {"network": DONE, "launcher": Launcher.READY, "domain": ABSENT, "sync": Work(Task.FAILED, error="no qemu")},
            "SyncFailed",
            "no qemu",
        ),
    ],
)
def test_gives_up_with_what_was_missing(changes: dict[str, Any], reason: str, words: str) -> None:
    assert next_step(handed_over(), view(**changes), after(239)).end is None
    end = next_step(handed_over(), view(**changes), after(240)).end
    assert end is not None
    assert (end.phase, end.reason) == ("Failed", reason)
    assert words in end.message


def test_fatal_errors_end_at_once() -> None:
    network = view(network=Work(Task.FAILED, error="bad cidr", fatal=True))
    assert next_step(handed_over(), network, NOW).end == End("Failed", "NetworkSetupFailed", "bad cidr")
    sync = view(
        network=DONE, launcher=Launcher.READY, domain=ABSENT, sync=Work(Task.FAILED, error="no file", fatal=True)
    )
    assert next_step(handed_over(), sync, NOW).end == End("Failed", "InvalidSpec", "no file")


def test_an_impostor_fails_the_vmi() -> None:
    end = next_step(handed_over(), view(refused="launcher-sock leads over a link"), NOW).end
    assert end == End("Failed", "LauncherFailed", "launcher-sock leads over a link")
    assert next_step(handed_over("Running"), view(refused="x"), NOW).end is not None


# The end


@pytest.mark.parametrize(
    ("domain", "phase", "reason"),
    [
        (ended("Shutdown"), "Succeeded", ""),
        (ended("Saved"), "Succeeded", ""),
        (ended("Crashed", "QEMU was killed by signal 9 (SIGKILL)"), "Failed", "LauncherFailed"),
        (ended("Failed"), "Failed", "LauncherFailed"),
        (ended("Panicked"), "Failed", "GuestCrashed"),
        (ended("Panicked", state=pb.DOMAIN_STATE_CRASHED), "Failed", "GuestCrashed"),
        (ended("Destroyed"), "Failed", "GuestKilled"),
        (ended(""), "Failed", "LauncherFailed"),
    ],
)
def test_how_a_machine_ends(domain: pb.Domain, phase: str, reason: str) -> None:
    end = next_step(handed_over("Running"), view(launcher=Launcher.READY, domain=domain), NOW).end
    assert end is not None
    assert (end.phase, end.reason) == (phase, reason)
    if domain.message:
        assert end.message == domain.message


def test_destroyed_without_grace_or_acpi_is_a_good_end() -> None:
    hard = handed_over("Running", spec={"terminationGracePeriodSeconds": 0})
    assert next_step(hard, view(launcher=Launcher.READY, domain=ended("Destroyed")), NOW).end == End("Succeeded")
    deaf = handed_over("Running", spec={"domain": {"features": {"acpi": {"enabled": False}}, "devices": {}}})
    assert next_step(deaf, view(launcher=Launcher.READY, domain=ended("Destroyed")), NOW).end == End("Succeeded")


def test_migrated_away_is_no_end() -> None:
    assert next_step(handed_over("Running"), view(launcher=Launcher.READY, domain=ended("Migrated")), NOW).end is None


def test_launcher_gone_with_a_running_guest_fails() -> None:
    for domain in (RUNNING, None):
        end = next_step(handed_over("Running"), view(launcher=Launcher.GONE, domain=domain), NOW).end
        assert end is not None
        assert end.reason == "LauncherFailed"
        assert "launcher" in end.message


def test_launcher_gone_after_a_told_end_keeps_that_end() -> None:
    gone = view(launcher=Launcher.GONE, domain=ended("Shutdown"))
    assert next_step(handed_over("Running"), gone, NOW).end == End("Succeeded")


def test_all_told_and_gone_is_cleaned_up() -> None:
    for vmi in (None, handed_over("Failed"), handed_over("Succeeded")):
        assert next_step(vmi, view(launcher=Launcher.GONE, domain=RUNNING), NOW).action is Action.CLEAN_UP


def test_machine_lost_by_a_living_launcher_fails() -> None:
    end = next_step(handed_over("Running"), view(launcher=Launcher.READY, domain=ABSENT), NOW).end
    assert end is not None
    assert end.reason == "LauncherFailed"


def test_restarted_handler_waits_for_its_launcher_while_the_pod_is_there() -> None:
    assert next_step(handed_over("Running"), view(), NOW).end is None
    end = next_step(handed_over("Running"), view(pod_exists=False), NOW).end
    assert end is not None
    assert end.reason == "LauncherFailed"


# The stop


def stopping(**changes: Any) -> View:
    return view(**({"launcher": Launcher.READY, "domain": RUNNING} | changes))


def test_deleted_guest_is_asked_then_asked_again_then_killed() -> None:
    vmi = handed_over("Running", metadata=DELETED, spec={"terminationGracePeriodSeconds": 20})
    first = next_step(vmi, stopping(), after(10))
    assert first.action is Action.SHUTDOWN
    asked = stopping(stop_started=after(10), stop_sent=after(10))
    assert next_step(vmi, asked, after(12)).action is Action.NOTHING
    assert next_step(vmi, asked, after(12)).recheck_s == pytest.approx(3)
    assert next_step(vmi, asked, after(15)).action is Action.SHUTDOWN
    late = stopping(stop_started=after(10), stop_sent=after(25))
    assert next_step(vmi, late, after(28)).recheck_s == pytest.approx(2), "wakes when the grace is over"
    assert next_step(vmi, late, after(30)).action is Action.KILL
    killed = stopping(stop_started=after(10), stop_sent=after(25), kill_sent=after(30))
    assert next_step(vmi, killed, after(31)).action is Action.NOTHING
    assert next_step(vmi, killed, after(35)).action is Action.KILL


def test_no_grace_kills_at_once() -> None:
    vmi = handed_over("Running", metadata=DELETED, spec={"terminationGracePeriodSeconds": 0})
    assert next_step(vmi, stopping(), NOW).action is Action.KILL


def test_launcher_that_was_told_to_end_gets_its_guest_shut_down() -> None:
    asks = pb.Domain(state=pb.DOMAIN_STATE_RUNNING, graceful_shutdown_requested=True)
    assert next_step(handed_over("Running"), stopping(domain=asks), NOW).action is Action.SHUTDOWN


def test_machine_of_a_failed_vmi_is_killed() -> None:
    assert next_step(handed_over("Failed"), stopping(), NOW).action is Action.KILL


def test_machine_without_a_vmi_is_shut_down_by_the_record() -> None:
    assert next_step(None, stopping(grace_s=30), NOW).action is Action.SHUTDOWN
    assert next_step(None, stopping(grace_s=5, stop_started=after(0)), after(6)).action is Action.KILL


def test_ended_machine_is_told_and_forgotten_once() -> None:
    vmi = handed_over("Running", metadata=DELETED)
    step = next_step(vmi, stopping(domain=ended("Shutdown")), NOW)
    assert step.action is Action.DELETE
    assert step.end == End("Succeeded")
    again = next_step(vmi, stopping(domain=ended("Shutdown"), delete_sent=True), NOW)
    assert again.action is Action.NOTHING


def test_deleted_before_the_machine_started_is_not_started() -> None:
    vmi = handed_over("Scheduled", metadata=DELETED)
    ready = view(network=DONE, launcher=Launcher.READY, domain=ABSENT)
    assert next_step(vmi, ready, NOW).action is Action.NOTHING
    assert next_step(vmi, view(launcher=Launcher.GONE, domain=ABSENT), NOW).action is Action.CLEAN_UP
    assert next_step(vmi, view(pod_exists=False), NOW).action is Action.CLEAN_UP


def test_launcher_of_a_failed_vmi_is_told_to_forget_it() -> None:
    ready = view(launcher=Launcher.READY, domain=ABSENT)
    assert next_step(handed_over("Failed"), ready, NOW).action is Action.DELETE


def test_vmi_that_is_not_handed_over_is_left_alone() -> None:
    assert next_step(handed_over("Scheduling"), view(), NOW) == Step()
