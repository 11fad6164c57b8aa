"""Run strategies, back-off and the one word: pure tables."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from framework.vmis import UID
from framework.vms import owned_vmi, vm

from virt_controller.vm import backoff
from virt_controller.vm.printable import View, Volumes, word
from virt_controller.vm.strategy import Plan, plan
from virt_core.apis import names
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.runtime.clock import FakeClock
from virt_core.runtime.times import rfc3339

NOW = FakeClock().now()
START = {"stateChangeRequests": [{"action": "Start"}]}
STOP = {"stateChangeRequests": [{"action": "Stop", "uid": UID}]}
STOP_OTHER = {"stateChangeRequests": [{"action": "Stop", "uid": "another"}]}
RUNS, FAILED, SUCCEEDED = "Running", "Failed", "Succeeded"
DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def vmi_in(phase: str | None, **changes: Any) -> VirtualMachineInstance | None:
    return owned_vmi(phase, **changes) if phase is not None else None


@pytest.mark.parametrize(
    ("strategy", "phase", "status", "expected"),
    [
        ("Always", None, {}, Plan(start=True)),
        ("Always", RUNS, {}, Plan()),
        ("Always", RUNS, STOP, Plan(stop=True)),
        ("Always", RUNS, STOP_OTHER, Plan()),
        ("Always", FAILED, {}, Plan(stop=True)),
        ("Always", SUCCEEDED, {}, Plan(stop=True)),
        ("RerunOnFailure", None, {}, Plan(start=True)),
        ("RerunOnFailure", None, {"runStrategy": "RerunOnFailure"}, Plan()),
        ("RerunOnFailure", None, {"runStrategy": "RerunOnFailure"} | START, Plan(start=True)),
        ("RerunOnFailure", None, {"runStrategy": "Halted"}, Plan(start=True)),
        ("RerunOnFailure", RUNS, {}, Plan()),
        ("RerunOnFailure", RUNS, STOP, Plan(stop=True)),
        ("RerunOnFailure", FAILED, {}, Plan(stop=True, ask_start=True)),
        ("RerunOnFailure", SUCCEEDED, {}, Plan(stop=True)),
        ("Manual", None, {}, Plan()),
        ("Manual", None, START, Plan(start=True)),
        ("Manual", RUNS, {}, Plan()),
        ("Manual", RUNS, STOP, Plan(stop=True)),
        ("Manual", FAILED, {}, Plan()),
        ("Halted", None, {}, Plan()),
        ("Halted", None, START, Plan(switch_to="Always")),
        ("Halted", RUNS, {}, Plan(stop=True)),
        ("Halted", FAILED, {}, Plan(stop=True)),
        ("Once", None, {}, Plan(start=True)),
        ("Once", RUNS, {}, Plan()),
        ("Once", FAILED, {}, Plan()),
        ("Once", SUCCEEDED, {}, Plan()),
        ("WaitAsReceiver", None, {}, Plan(start=True, receive=True)),
        ("WaitAsReceiver", RUNS, {}, Plan()),
    ],
)
def test_each_strategy(strategy: str, phase: str | None, status: dict[str, Any], expected: Plan) -> None:
    assert plan(vm(strategy=strategy, status=status), vmi_in(phase), NOW) == expected


def test_only_the_first_request_counts() -> None:
    status = {"stateChangeRequests": [{"action": "Stop", "uid": "another"}, {"action": "Start"}]}
    assert plan(vm(strategy="Manual", status=status), None, NOW) == Plan()


def test_running_is_the_old_name_of_two_strategies() -> None:
    on, off = {"runStrategy": None, "running": True}, {"runStrategy": None, "running": False}
    assert plan(vm(spec=on), None, NOW) == Plan(start=True)
    assert plan(vm(spec=off), owned_vmi(), NOW) == Plan(stop=True)


def test_a_vm_that_goes_takes_its_vmi_along_once() -> None:
    gone = vm(metadata=DELETED)
    assert plan(gone, owned_vmi(), NOW) == Plan(stop=True)
    assert plan(gone, owned_vmi(metadata=DELETED), NOW) == Plan()
    assert plan(vm(), owned_vmi("Failed", metadata=DELETED), NOW) == Plan()


def test_a_receiver_gets_its_strategy_back_after_the_migration() -> None:
    waits = vm(strategy="WaitAsReceiver", metadata={"annotations": {"kubevirt.io/restore-run-strategy": "Manual"}})
    assert plan(waits, owned_vmi(status={"migrationState": {"completed": True}}), NOW) == Plan(switch_to="Manual")
    assert plan(waits, owned_vmi(status={"migrationState": {"failed": True, "completed": True}}), NOW) == Plan()


@pytest.mark.parametrize(("failures", "expected"), [(1, 10.0), (2, 40.0), (3, 90.0), (5, 250.0), (6, 300.0)])
def test_delays_grow_with_the_square(failures: int, expected: float) -> None:
    assert backoff.delay_s(failures, lambda _limit: 0.0) == expected
    assert expected <= backoff.delay_s(failures) <= min(expected * 1.5, 300.0)


def test_a_failed_start_is_counted_once_and_makes_the_next_wait() -> None:
    machine, failed = vm(), owned_vmi("Failed")
    record = backoff.after(machine, failed, NOW, lambda _limit: 0.0)
    assert record is not None
    assert (record.consecutive_fail_count, record.last_failed_vmi_uid) == (1, UID)
    assert record.retry_after_timestamp == rfc3339(NOW + timedelta(seconds=10))
    machine.status.start_failure = record
    assert backoff.after(machine, failed, NOW) is record
    assert plan(machine, None, NOW) == Plan(wait_s=10.0)
    assert plan(machine, None, NOW + timedelta(seconds=11)) == Plan(start=True)
    second = backoff.after(machine, owned_vmi("Succeeded", metadata={"uid": "next"}), NOW, lambda _limit: 0.0)
    assert second is not None
    assert second.consecutive_fail_count == 2


def test_the_record_goes_when_the_vm_ran_or_waits_for_orders() -> None:
    record = {"startFailure": {"consecutiveFailCount": 2, "lastFailedVMIUID": "x"}}
    assert backoff.after(vm(status=record), owned_vmi("Running"), NOW) is None
    assert backoff.after(vm(status=record), owned_vmi("Failed", ran=True), NOW) is None
    assert backoff.after(vm(strategy="Halted", status=record), None, NOW) is None
    assert backoff.after(vm(status=record), owned_vmi("Scheduling"), NOW) is not None


CRASHED = {"startFailure": {"consecutiveFailCount": 1, "lastFailedVMIUID": "x"}}


def condition(type: str, status: str, reason: str = "") -> dict[str, Any]:
    return {"conditions": [{"type": type, "status": status, "reason": reason}]}


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (View(vm(metadata=DELETED), owned_vmi()), "Terminating"),
        (View(vm(), owned_vmi(metadata=DELETED)), "Stopping"),
        (View(vm(), owned_vmi("Scheduling"), stopping=True), "Stopping"),
        (View(vm(), owned_vmi("Failed", metadata=DELETED)), "Stopped"),
        (View(vm(), owned_vmi(status={"migrationState": {"startTimestamp": "2026-01-01T00:00:00Z"}})), "Migrating"),
        (View(vm(), owned_vmi(status=condition("Paused", "True"))), "Paused"),
        (View(vm(), owned_vmi()), "Running"),
        (
            View(vm(), owned_vmi("Pending", status=condition("Synchronized", "False", "FailedPvcNotFound"))),
            "ErrorPvcNotFound",
        ),
        (View(vm(), None, volumes=Volumes(failed=True, provisioning=True)), "DataVolumeError"),
        (
            View(vm(), owned_vmi("Scheduling", status=condition("PodScheduled", "False", "Unschedulable"))),
            "ErrorUnschedulable",
        ),
        (View(vm(), None, volumes=Volumes(provisioning=True)), "Provisioning"),
        (View(vm(), owned_vmi("Scheduling"), volumes=Volumes(unbound=True)), "WaitingForVolumeBinding"),
        (
            View(vm(), owned_vmi("Scheduling", status=condition("Synchronized", "False", "ErrImagePull"))),
            "ErrImagePull",
        ),
        (
            View(vm(), owned_vmi("Scheduling", status=condition("Synchronized", "False", "ImagePullBackOff"))),
            "ImagePullBackOff",
        ),
        (View(vm(), None, starting=True), "Starting"),
        (View(vm(), owned_vmi("Pending")), "Starting"),
        (View(vm(), owned_vmi("Scheduled")), "Starting"),
        (View(vm(status=CRASHED), owned_vmi("Scheduled")), "Starting"),
        (View(vm(status=CRASHED)), "CrashLoopBackOff"),
        (View(vm(status=CRASHED), owned_vmi("Failed")), "CrashLoopBackOff"),
        (View(vm(strategy="Manual", status=CRASHED)), "Stopped"),
        (View(vm()), "Stopped"),
        (View(vm(), owned_vmi("Succeeded")), "Stopped"),
        (View(vm(), owned_vmi("WaitingForSync")), "WaitingForReceiver"),
        (View(vm(), owned_vmi("Unknown")), "Unknown"),
    ],
)
def test_the_first_line_that_holds_is_the_word(view: View, expected: str) -> None:
    assert word(view) == expected


def test_every_word_is_a_name_that_others_know() -> None:
    known = {value for key, value in vars(names).items() if key.startswith("PRINT_")}
    assert len(known) == 17
