"""What the node reports of a Pod. Pure: the Pod, its containers and the time in, the status out."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from virt_core.apis.pods import (
    Container,
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    HostIP,
    Pod,
    PodCondition,
    PodIP,
    PodStatus,
)
from virt_core.runtime.times import parse_rfc3339, rfc3339
from virt_local.node.pods.decide import Plan, backoff_delay, should_restart
from virt_local.node.pods.resize import TYPES, Held
from virt_local.node.pods.view import POD_PHASES_ENDED, ContainerView, Views, is_sidecar, view_of
from virt_local.node.runtime.records import ContainerRecord

RUNTIME = "virtpod"


@dataclass(frozen=True)
class Facts:
    """What the node knows beside the containers."""

    node_ips: tuple[str, ...] = ()
    pod_ips: tuple[str, ...] = ()
    sandbox_ready: bool = False
    start_time: str = ""
    failure: tuple[str, str] | None = None
    ending: bool = False
    message: str = field(default="")
    resize: Held | None = None


def compute(pod: Pod, views: Views, plan: Plan, facts: Facts, now: datetime) -> PodStatus:
    phase = "Failed" if facts.failure and plan.phase in POD_PHASES_ENDED else plan.phase
    statuses = [_container_status(pod, c, view_of(views, c), plan, facts) for c in pod.spec.containers]
    inits = [_container_status(pod, c, view_of(views, c), plan, facts) for c in pod.spec.init_containers]
    reason, message = facts.failure or ("", facts.message)
    ips = list(facts.pod_ips) or [entry.ip for entry in pod.status.pod_ips]
    status = msgspec.structs.replace(
        pod.status,
        phase=phase,
        reason=reason,
        message=message,
        host_ip=facts.node_ips[0] if facts.node_ips else "",
        host_ips=[HostIP(ip=ip) for ip in facts.node_ips],
        pod_ip=ips[0] if ips else "",
        pod_ips=[PodIP(ip=ip) for ip in ips],
        start_time=pod.status.start_time or facts.start_time or rfc3339(now),
        container_statuses=statuses,
        init_container_statuses=inits,
    )
    status.conditions = _conditions(pod, statuses, plan, facts, rfc3339(now))
    return status


def _container_status(pod: Pod, container: Container, view: ContainerView, plan: Plan, facts: Facts) -> ContainerStatus:
    record, ended = view.current, plan.phase in POD_PHASES_ENDED or facts.ending
    state = _state(pod, container, view, plan, ended)
    before = view.previous
    if record is not None and record.exited and state.waiting is not None:
        before = record
    init_done = record is not None and record.exit_code == 0 and not is_sidecar(container)
    is_init = any(init.name == container.name for init in pod.spec.init_containers)
    given = record.resources if record is not None and record.running else None
    return ContainerStatus(
        name=container.name,
        state=state,
        last_state=ContainerState(terminated=_terminated(before)) if before is not None else ContainerState(),
        ready=(is_init and init_done) or (view.running and view.ready and view.started),
        started=view.running and view.started,
        restart_count=record.attempt if record is not None else 0,
        image=record.image if record is not None else container.image,
        image_id=record.image_id if record is not None else "",
        container_id=f"{RUNTIME}://{record.id}" if record is not None else "",
        allocated_resources=dict(given.requests) if given is not None else {},
        resources=given,
    )


def _state(pod: Pod, container: Container, view: ContainerView, plan: Plan, ended: bool) -> ContainerState:
    record = view.current
    if record is not None and record.running:
        return ContainerState(running=ContainerStateRunning(started_at=_seconds(record.started_at)))
    if record is not None and record.exited:
        if ended or not should_restart(pod, container, record):
            return ContainerState(terminated=_terminated(record))
        if view.waiting is None:
            return ContainerState(waiting=_crash_loop(pod, container, record))
    if view.waiting is not None:
        return ContainerState(waiting=ContainerStateWaiting(reason=view.waiting.reason, message=view.waiting.message))
    is_init = any(init.name == container.name for init in pod.spec.init_containers)
    reason = "PodInitializing" if pod.spec.init_containers and not plan.initialized else "ContainerCreating"
    return ContainerState(waiting=ContainerStateWaiting(reason="PodInitializing" if is_init else reason))


def _crash_loop(pod: Pod, container: Container, record: ContainerRecord) -> ContainerStateWaiting:
    delay, meta = int(backoff_delay(record).total_seconds()), pod.metadata
    text = (
        f"back-off {delay}s restarting failed container={container.name} pod={meta.name}_{meta.namespace}({meta.uid})"
    )
    return ContainerStateWaiting(reason="CrashLoopBackOff", message=text)


def _terminated(record: ContainerRecord) -> ContainerStateTerminated:
    return ContainerStateTerminated(
        exit_code=record.exit_code or 0,
        reason=record.reason,
        message=record.message,
        started_at=_seconds(record.started_at),
        finished_at=_seconds(record.finished_at),
        container_id=f"{RUNTIME}://{record.id}",
    )


def _seconds(text: str) -> str | None:
    """Records have microseconds; the API has seconds."""
    return rfc3339(parse_rfc3339(text)) if text else None


def _conditions(pod: Pod, statuses: list[ContainerStatus], plan: Plan, facts: Facts, now: str) -> list[PodCondition]:
    """Ours in their usual order; those of others stay as they are."""
    ended = plan.phase in POD_PHASES_ENDED
    unready = [status.name for status in statuses if not status.ready]
    gates = [gate.condition_type for gate in pod.spec.readiness_gates]
    true = {condition.type for condition in pod.status.conditions if condition.status == "True"}
    open_gates = [gate for gate in gates if gate not in true]
    containers = _readiness(plan.phase, unready, "ContainersNotReady", "containers with unready status")
    ready = (
        containers if containers.status == "False" else _readiness("", open_gates, "ReadinessGatesNotReady", "gates")
    )
    init = PodCondition(type="Initialized", status="True")
    if not plan.initialized:
        init = PodCondition(type="Initialized", status="False", reason="ContainersNotInitialized")
    elif ended and plan.phase == "Succeeded":
        init = PodCondition(type="Initialized", status="True", reason="PodCompleted")
    ours = [
        PodCondition(type="PodReadyToStartContainers", status="True" if facts.sandbox_ready else "False"),
        init,
        msgspec.structs.replace(ready, type="Ready"),
        msgspec.structs.replace(containers, type="ContainersReady"),
        PodCondition(type="PodScheduled", status="True"),
    ]
    if facts.resize is not None:
        held, seen = facts.resize, pod.metadata.generation
        ours.append(PodCondition(held.type, "True", seen, reason=held.reason, message=held.message))
    told = [c for c in pod.status.conditions if c.type not in TYPES or (facts.resize and c.type == facts.resize.type)]
    return _merge(told, ours, now)


def _readiness(phase: str, missing: list[str], reason: str, what: str) -> PodCondition:
    if phase == "Succeeded":
        return PodCondition(type="", status="False", reason="PodCompleted")
    if phase == "Failed":
        return PodCondition(type="", status="False", reason="PodFailed")
    if missing:
        return PodCondition(type="", status="False", reason=reason, message=f"{what}: [{' '.join(missing)}]")
    return PodCondition(type="", status="True")


def _merge(existing: list[PodCondition], ours: list[PodCondition], now: str) -> list[PodCondition]:
    """A condition keeps its place, and its transition time as long as its status stays the same."""
    fresh = {condition.type: condition for condition in ours}
    merged = []
    for old in existing:
        new = fresh.pop(old.type, None)
        if new is None or (old.type == "PodScheduled" and old.status == "True"):
            merged.append(old)
            continue
        new.last_transition_time = old.last_transition_time if old.status == new.status else now
        merged.append(new)
    for new in fresh.values():
        new.last_transition_time = now
        merged.append(new)
    return merged
