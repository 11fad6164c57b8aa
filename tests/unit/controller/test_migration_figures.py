"""Moves as metrics: KubeVirt's names and labels, and numbers that follow from jobs and VMIs."""

from __future__ import annotations

from typing import Any

from framework.reference_metrics import OF_CONTROLLER
from framework.reference_metrics import PHASE_TIME as REFERENCE_PHASE_TIME

from virt_controller.migration.figures import PHASE_TIME, MoveFigures, observe
from virt_core.apis.base import from_plain
from virt_core.apis.migration import VirtualMachineInstanceMigration as Job
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.runtime.metrics import Registry

MADE, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:00:07Z"


class Listed:
    def __init__(self, *found: Any) -> None:
        self._found = list(found)

    def list(self) -> list[Any]:
        return self._found


def job(name: str, phase: str, *stamped: str) -> Job:
    stamps = [{"phase": each, "phaseTransitionTimestamp": LATER} for each in stamped]
    plain = {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "creationTimestamp": MADE},
        "spec": {"vmiName": "vm"},
        "status": {"phase": phase, "phaseTransitionTimestamps": stamps},
    }
    return from_plain(plain, Job)


def moved(job_name: str, **state: Any) -> VirtualMachineInstance:
    status = {"nodeName": "n2", "migrationState": {"migrationUid": f"uid-{job_name}", **state}}
    return from_plain({"metadata": {"name": "vm", "namespace": "ns"}, "status": status}, VirtualMachineInstance)


def page(jobs: Listed, vmis: Listed) -> str:
    registry = Registry()
    registry.collect(MoveFigures(jobs, vmis).collect)
    return registry.render()


def test_names_types_and_labels_are_those_of_the_reference() -> None:
    families = {f.name: (f.kind, f.labels) for f in MoveFigures(Listed(), Listed()).collect()}
    assert families == OF_CONTROLLER
    assert (PHASE_TIME.name, PHASE_TIME.kind, PHASE_TIME.labels) == REFERENCE_PHASE_TIME


def test_a_move_with_a_target_counts_as_running() -> None:
    phases = (
        "",
        "Pending",
        "Pending",
        "Scheduling",
        "Scheduled",
        "PreparingTarget",
        "TargetReady",
        "Running",
        "Failed",
    )
    text = page(Listed(*(job(f"j{n}", phase) for n, phase in enumerate(phases))), Listed())
    counts = {"unset": 1, "pending": 2, "scheduling": 1, "running": 4}
    for each, count in counts.items():
        assert f"kubevirt_vmi_migrations_in_{each}_phase {count}\n" in text


def test_each_job_that_is_over_tells_its_outcome() -> None:
    text = page(Listed(job("good", "Succeeded"), job("bad", "Failed"), job("going", "Running")), Listed())
    assert 'kubevirt_vmi_migration_succeeded{vmi="vm",vmim="good",namespace="ns"} 1' in text
    assert 'kubevirt_vmi_migration_failed{vmi="vm",vmim="bad",namespace="ns"} 1' in text
    assert 'vmim="going"' not in text


def test_the_last_move_of_a_machine_has_its_times() -> None:
    of_move = 'node="n2",namespace="ns",name="vm",migration_name="one"'
    jobs = Listed(job("one", "Running"))
    text = page(jobs, Listed(moved("one", startTimestamp=MADE)))
    assert f"kubevirt_vmi_migration_start_time_seconds{{{of_move}}} 1767225600" in text
    assert "migration_end_time_seconds{" not in text
    text = page(jobs, Listed(moved("one", startTimestamp=MADE, endTimestamp=LATER, completed=True, failed=True)))
    assert f'kubevirt_vmi_migration_end_time_seconds{{{of_move},status="failed"}} 1767225607' in text
    text = page(jobs, Listed(moved("one", startTimestamp=MADE, endTimestamp=LATER, completed=True)))
    assert f'kubevirt_vmi_migration_end_time_seconds{{{of_move},status="succeeded"}} 1767225607' in text


def test_a_move_whose_job_is_gone_has_no_name_to_be_told_by() -> None:
    assert "start_time_seconds{" not in page(Listed(), Listed(moved("gone", startTimestamp=MADE)))


def test_each_phase_is_timed_once() -> None:
    def counted() -> str:
        return "\n".join(PHASE_TIME.samples())

    before, pending = job("j", ""), job("j", "Scheduling", "Pending", "Scheduling")
    observe(before, pending)
    observe(pending, pending)
    text = counted()
    assert f'{PHASE_TIME.name}_count{{phase="Pending"}} 1' in text
    assert f'{PHASE_TIME.name}_bucket{{phase="Scheduling",le="5"}} 0' in text
    assert f'{PHASE_TIME.name}_bucket{{phase="Scheduling",le="10"}} 1' in text
