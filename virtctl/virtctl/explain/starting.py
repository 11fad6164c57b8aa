"""Situations on the way: which step is missing, whose it is, and what Pods, conditions and Events say about it."""

from __future__ import annotations

from virt_core.apis import handoffs, names
from virt_core.kube.conditions import get_condition
from virt_core.runtime.times import parse_rfc3339
from virtctl.explain.evidence import Trouble, last_warning, plain_cause, pod_trouble, warning_after
from virtctl.explain.facts import Facts
from virtctl.explain.filling import filling
from virtctl.explain.settled import volumes_on_their_way
from virtctl.explain.timeline import Step, kind_of, timeline, waiting_step
from virtctl.explain.words import Standing, describe, duration, logs, pod_command, text_of


def pod_in_trouble(facts: Facts) -> Standing | None:
    if facts.phase not in (names.PHASE_UNSET, names.PHASE_PENDING, names.PHASE_SCHEDULING, names.PHASE_SCHEDULED):
        return None
    if facts.pod is None:
        return None
    trouble = pod_trouble(facts.pod)
    warning = last_warning(facts, "Pod")
    if trouble is None and warning is not None and facts.phase == names.PHASE_SCHEDULING:
        cause = plain_cause(warning.message, facts.namespace)
        trouble = Trouble(f"its Pod {facts.pod.metadata.name} does not start", cause)
    if trouble is None:
        return None
    why = _in_terms_of_the_vmi(facts, trouble).rstrip(".")
    return Standing(f"It is {facts.phase or 'new'}: {why}.", pod_command(facts, "describe"))


def _in_terms_of_the_vmi(facts: Facts, trouble: Trouble) -> str:
    """virt-controller tells the same with the path of the field that the user wrote, if it has one."""
    note = last_warning(facts, "VirtualMachineInstance")
    return note.message if note is not None and trouble.cause in note.message else str(trouble)


def pending(facts: Facts) -> Standing | None:
    if facts.vmi is None or facts.pod is not None or facts.phase not in (names.PHASE_UNSET, names.PHASE_PENDING):
        return None
    if (waits := filling(facts)) is not None:
        return waits
    why = ""
    for kind in (names.CONDITION_SYNCHRONIZED, names.CONDITION_PROVISIONING, names.CONDITION_DATA_VOLUMES_READY):
        condition = get_condition(facts.vmi.status.conditions, kind)
        if condition is not None and condition.status == names.FALSE:
            why = why or text_of(condition)
    warning = last_warning(facts, "VirtualMachineInstance")
    if not why and warning is not None:
        why = f"{warning.reason}: {warning.message}"
    if why:
        return Standing(f"It is Pending without a Pod: {why.rstrip('.')}.", describe(facts))
    return waiting(facts)


def scheduling_without_pod(facts: Facts) -> Standing | None:
    if facts.phase not in (names.PHASE_SCHEDULING, names.PHASE_SCHEDULED) or facts.pod is not None:
        return None
    if "Pods" in facts.unread:
        return None
    return Standing(
        f"It is {facts.phase}, but its Pod has disappeared: virt-controller should notice and fail it.",
        logs(facts, "virt-controller"),
    )


def at_the_node(facts: Facts) -> Standing | None:
    """Scheduled: the node reports all of its steps together at the end, unless something goes wrong."""
    if facts.phase != names.PHASE_SCHEDULED or facts.vmi is None:
        return None
    node = facts.vmi.status.node_name or "its node"
    synchronized = get_condition(facts.vmi.status.conditions, names.CONDITION_SYNCHRONIZED)
    trouble = text_of(synchronized) if synchronized is not None and synchronized.status == names.FALSE else ""
    handed = [h.time for h in handoffs.of_start(facts.vmi.status.handoffs) if h.name == handoffs.HANDED_OVER.name]
    warning = warning_after(facts, parse_rfc3339(handed[0]) if handed else None, "VirtualMachineInstance")
    if not trouble and warning is not None:
        trouble = f"{warning.reason}: {warning.message}"
    if trouble:
        return Standing(
            f"It is Scheduled on {node}, and virt-handler reports: {trouble.rstrip('.')}.", logs(facts, "virt-handler")
        )
    if words := volumes_on_their_way(facts.vmi):
        look = f"kubectl get pvc,pod -n {facts.namespace}"
        return Standing(f"It is Scheduled on {node} and waits for its volumes.{words}", look)
    return waiting(facts)


def waiting(facts: Facts) -> Standing | None:
    """Nothing is wrong that we know of: which step is missing, whose it is, and how it stands with its limit."""
    if facts.vmi is None:
        return None
    step = waiting_step(timeline(facts.vmi, facts.now))
    if step is None:
        return None
    where = f" on {facts.vmi.status.node_name}" if facts.vmi.status.node_name else ""
    what = f"{kind_of(step).waiting_for}{_limit(step)}"
    sentence = f"It is {facts.phase or 'new'}{where} and has waited {_for(step)} for {what}."
    return Standing(sentence, _look_at(facts, step))


def _for(step: Step) -> str:
    return duration(step.took_s or 0.0)


def _limit(step: Step) -> str:
    over = (step.took_s or 0.0) - (step.limit_s or 0.0)
    if over > 0:
        return f", which is {duration(over)} over its limit of {step.limit_s:.0f} s"
    return f" (limit {step.limit_s:.0f} s)"


_COMPONENT = {
    handoffs.ACCEPTED.name: "virt-api",
    handoffs.POD_CREATED.name: "virt-controller",
    handoffs.HANDED_OVER.name: "virt-controller",
    handoffs.NETWORK_READY.name: "virt-handler",
    handoffs.RUNNING.name: "virt-handler",
}


def _look_at(facts: Facts, step: Step) -> str:
    if step.name in _COMPONENT:
        return logs(facts, _COMPONENT[step.name])
    if step.name == handoffs.POD_STARTED.name:
        return pod_command(facts, "describe")
    return f"kubectl logs {facts.pod.metadata.name} -n {facts.namespace}" if facts.pod else logs(facts, "virt-handler")
