"""What a Pod needs next: which containers to start or stop, when to look again, and the phase. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from virt_core.apis.pods import Container, Pod
from virt_core.runtime.times import parse_rfc3339
from virt_local.node.pods.view import ContainerView, Views, is_sidecar, view_of
from virt_local.node.runtime.records import ContainerRecord

BACKOFF_BASE_S = 10
BACKOFF_MAX_S = 300
#: A container that ran this long has recovered: its next restart is immediate again.
BACKOFF_RESET = timedelta(minutes=10)


@dataclass(frozen=True)
class Plan:
    start: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    wake_at: datetime | None = None
    initialized: bool = False
    phase: str = "Pending"


def backoff_delay(record: ContainerRecord) -> timedelta:
    """How long an ended container waits for its restart: nothing the first time, then 10 s, 20 s … 5 min."""
    if record.level == 0 or _ran_long(record):
        return timedelta()
    return timedelta(seconds=min(BACKOFF_BASE_S * 2 ** (record.level - 1), BACKOFF_MAX_S))


def next_level(record: ContainerRecord) -> int:
    return 1 if _ran_long(record) else record.level + 1


def _ran_long(record: ContainerRecord) -> bool:
    if not record.started_at or not record.finished_at:
        return False
    return parse_rfc3339(record.finished_at) - parse_rfc3339(record.started_at) >= BACKOFF_RESET


def restart_at(record: ContainerRecord) -> datetime:
    return parse_rfc3339(record.finished_at) + backoff_delay(record)


def should_restart(pod: Pod, container: Container, record: ContainerRecord) -> bool:
    policy = pod.spec.restart_policy or "Always"
    if is_sidecar(container):
        return True
    if record.exit_code == 0 and (_is_init(pod, container) or policy == "OnFailure"):
        return False
    return policy != "Never"


def _is_init(pod: Pod, container: Container) -> bool:
    return any(init is container or init.name == container.name for init in pod.spec.init_containers)


def plan(pod: Pod, views: Views, now: datetime) -> Plan:
    initialized, failed, wanted = _init_phase(pod, views)
    if initialized:
        wanted += [c for c in pod.spec.containers if _wants_start(pod, c, view_of(views, c))]
    done = failed or (initialized and _all_ended(pod, views))
    sidecars = [c.name for c in pod.spec.init_containers if is_sidecar(c) and view_of(views, c).running]
    if done:
        phase = "Running" if sidecars else _final_phase(pod, views, failed)
        return Plan(stop=tuple(reversed(sidecars)), initialized=initialized, phase=phase)
    start, wake_at = _due(wanted, views, now)
    return Plan(tuple(start), (), wake_at, initialized, _phase(pod, views, initialized))


def _init_phase(pod: Pod, views: Views) -> tuple[bool, bool, list[Container]]:
    """Whether initialisation is over, whether it failed, and which init containers should start."""
    wanted: list[Container] = []
    begun = any(view_of(views, c).current is not None for c in pod.spec.containers)
    for container in pod.spec.init_containers:
        view = view_of(views, container)
        if is_sidecar(container):
            if _wants_start(pod, container, view):
                wanted.append(container)
            if not begun and not (view.running and view.started):
                return False, False, wanted
        elif not begun and not (view.exited and view.current is not None and view.current.exit_code == 0):
            if view.exited and pod.spec.restart_policy == "Never":
                return False, True, wanted
            return False, False, [*wanted, *([container] if _wants_start(pod, container, view) else [])]
    return True, False, wanted


def _wants_start(pod: Pod, container: Container, view: ContainerView) -> bool:
    record = view.current
    if record is None:
        return True
    return record.exited and should_restart(pod, container, record)


def _all_ended(pod: Pod, views: Views) -> bool:
    records = [(c, view_of(views, c).current) for c in pod.spec.containers]
    return all(r is not None and r.exited and not should_restart(pod, c, r) for c, r in records)


def _final_phase(pod: Pod, views: Views, failed: bool) -> str:
    codes = [record.exit_code for record in _records(pod, views)]
    return "Failed" if failed or any(codes) else "Succeeded"


def _records(pod: Pod, views: Views) -> Iterator[ContainerRecord]:
    for container in pod.spec.containers:
        record = view_of(views, container).current
        if record is not None:
            yield record


def _phase(pod: Pod, views: Views, initialized: bool) -> str:
    """Pending until every container has run at least once."""
    begun = all(view_of(views, c).current is not None for c in pod.spec.containers)
    return "Running" if initialized and begun else "Pending"


def _due(wanted: list[Container], views: Views, now: datetime) -> tuple[list[str], datetime | None]:
    """Splits what wants to start into what may start now and the next moment at which more may."""
    start: list[str] = []
    later: list[datetime] = []
    for container in wanted:
        view = view_of(views, container)
        times = [restart_at(view.current)] if view.current is not None and view.current.exited else []
        if view.waiting is not None:
            if view.waiting.until is None:
                continue
            times.append(view.waiting.until)
        due = max(times, default=now)
        if due <= now:
            start.append(container.name)
        else:
            later.append(due)
    return start, min(later, default=None)
