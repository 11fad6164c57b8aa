"""A machine on its way to another node, in one sentence, and the phases of its migration as rows. Pure."""

from __future__ import annotations

from datetime import datetime

from virt_core.apis import names
from virt_core.apis.migration import VirtualMachineInstanceMigration as Job
from virt_core.apis.movewords import WAITS, failure, figures, success
from virt_core.kube.conditions import get_condition
from virt_core.runtime.times import parse_rfc3339
from virtctl.explain.evidence import pod_trouble
from virtctl.explain.facts import Facts
from virtctl.explain.timeline import State, Step
from virtctl.explain.words import Standing, duration, text_of

_CONTROLLER, _KUBELET, _HANDLER = "virt-controller", "kubelet", "virt-handler"
#: Each phase: whose doing it is, and what it means.
_PHASES = {
    names.MIGRATION_PENDING: (_CONTROLLER, "the migration was accepted"),
    names.MIGRATION_SCHEDULING: (_CONTROLLER, "the target's Pod was made"),
    names.MIGRATION_SCHEDULED: (_KUBELET, "the target's Pod runs"),
    names.MIGRATION_PREPARING_TARGET: (_CONTROLLER, "both nodes know of the move"),
    names.MIGRATION_TARGET_READY: (_HANDLER, "the target has made ready"),
    names.MIGRATION_RUNNING: (_HANDLER, "the machine is being moved"),
    names.MIGRATION_SUCCEEDED: (_HANDLER, "the guest runs on the other node"),
    names.MIGRATION_FAILED: (_CONTROLLER, "the migration is over without success"),
}


def standing_of(facts: Facts) -> Standing:
    """Of a migration."""
    job = facts.job
    if job is None:
        return Standing("There is no migration.", f"kubectl get vmim -n {facts.namespace}")
    if job.status.phase == names.MIGRATION_FAILED:
        return _failed(facts, job)
    look = f"virtctl console {job.spec.vmi_name} -n {facts.namespace}"
    if job.status.phase == names.MIGRATION_SUCCEEDED:
        moved = success(job, facts.progress).removeprefix("it ")
        return Standing(f"VMI {job.spec.vmi_name} {moved}.", look, final=True)
    words = f"{_under_way(facts, job)}{_given_up(job)}{_forecast(job)}"
    return Standing(words[:1].upper() + words[1:], f"kubectl get vmim {job.metadata.name} -n {facts.namespace} -w")


def of_machine(facts: Facts) -> str:
    """A sentence to go behind one that says where the machine is, with a space before it; empty when it never moved, or
    its last move went well."""
    job = facts.job
    if job is None or job.status.phase == names.MIGRATION_SUCCEEDED:
        return ""
    if job.status.phase == names.MIGRATION_FAILED:
        ago = _ago(job, names.MIGRATION_FAILED, facts.now)
        return f" Its last move (vmim {job.metadata.name}){ago} failed: {failure(job).rstrip('.')}."
    return f" Migration {job.metadata.name} is under way: {_under_way(facts, job)}{_given_up(job)}{_forecast(job)}"


def _failed(facts: Facts, job: Job) -> Standing:
    vmi = facts.vmi
    stays = ""
    if vmi is not None and vmi.status.phase == names.PHASE_RUNNING:
        stays = f" The guest goes on at {vmi.status.node_name}."
    look = f"virtctl explain vmi {job.spec.vmi_name} -n {facts.namespace}"
    return Standing(f"It Failed: {failure(job).rstrip('.')}.{stays}", look, final=True, failed=True)


def _under_way(facts: Facts, job: Job) -> str:
    phase, held = job.status.phase, facts.progress
    if held is not None and held.held:
        return "the target was lost at the last moment; the guest stands still until it is known where it runs."
    if held is not None and held.reason and not held.ended:
        return f"{held.reason.rstrip('.')}."
    state = facts.vmi.status.migration_state if facts.vmi is not None else None
    ours = state is not None and state.migration_uid == job.metadata.uid
    way = f" from {state.source_node} to {state.target_node}" if ours and state is not None else ""
    if phase == names.MIGRATION_RUNNING and held is not None and held.percent is not None:
        return f"the machine is being moved{way}: {figures(held)}."
    trouble = next(filter(None, map(pod_trouble, facts.pods)), None) if phase == names.MIGRATION_SCHEDULING else None
    if trouble is not None:
        return f"the target does not start: {str(trouble).rstrip('.')}."
    since = _ago(job, phase, facts.now, " and has done so for")
    return f"{_awaited(job)}{way}{since}."


def _awaited(job: Job) -> str:
    phase = job.status.phase
    full = get_condition(job.status.conditions, names.CONDITION_MIGRATION_QUOTA)
    if full is not None and phase == names.MIGRATION_PENDING:
        return f"its target Pod does not fit into the namespace's quota ({text_of(full).rstrip('.')}), and it waits"
    told = get_condition(job.status.conditions, names.CONDITION_MIGRATION_WAITING)
    if phase == names.MIGRATION_PENDING and told is not None and text_of(told):
        return f"it waits for its turn ({text_of(told).rstrip('.')})"
    return WAITS.get(phase, phase)


def _given_up(job: Job) -> str:
    return " It is being given up: somebody has deleted it." if job.metadata.deletion_timestamp else ""


def _forecast(job: Job) -> str:
    told = get_condition(job.status.conditions, names.CONDITION_MIGRATION_FORECAST)
    return f" Forecast: {text_of(told).rstrip('.')}." if told is not None and text_of(told) else ""


def _ago(job: Job, phase: str, now: datetime, words: str = "") -> str:
    moment = next((each for each in reversed(_stamps(job)) if each[0] == phase), None)
    if moment is None:
        return ""
    passed = duration((now - moment[1]).total_seconds())
    return f"{words} {passed}" if words else f", {passed} ago,"


def _stamps(job: Job) -> list[tuple[str, datetime]]:
    found = job.status.phase_transition_timestamps
    return [
        (each.phase, parse_rfc3339(each.phase_transition_timestamp))
        for each in found
        if each.phase_transition_timestamp
    ]


def steps_of(job: Job, now: datetime) -> list[Step]:
    """A row for each phase that it came through; the last one is where it is now."""
    made = job.metadata.creation_timestamp
    start = before = parse_rfc3339(made) if made else now
    rows: list[Step] = []
    for phase, moment in _stamps(job):
        owner, title = _PHASES.get(phase, ("", ""))
        took, since = (moment - before).total_seconds(), (moment - start).total_seconds()
        row = Step(name=phase, owner=owner, title=title, state=State.DONE, time=moment, took_s=took, at_s=since)
        rows.append(row)
        before = moment
    return rows
