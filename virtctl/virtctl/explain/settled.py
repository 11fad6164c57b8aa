"""Situations in which nothing more happens by itself: it runs, it has ended, it goes, or nobody wants it yet."""

from __future__ import annotations

from virt_core.apis import names
from virt_core.apis.facts import grace_seconds, run_strategy
from virt_core.apis.hibernation import SAVED
from virt_core.apis.vm import VirtualMachine, VirtualMachineStartFailure
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.conditions import get_condition
from virt_core.runtime.times import parse_rfc3339
from virtctl.explain.evidence import last_warning, pod_end
from virtctl.explain.facts import Facts
from virtctl.explain.filling import filling
from virtctl.explain.leaving import leaving
from virtctl.explain.moves import of_machine
from virtctl.explain.pending import pending
from virtctl.explain.timeline import timeline
from virtctl.explain.whereabouts import whereabouts
from virtctl.explain.words import Standing, describe, duration, held_for, logs, text_of


def without_vmi(facts: Facts) -> Standing | None:
    if facts.vmi is not None or facts.vm is None:
        return None
    vm = facts.vm
    half = get_condition(vm.status.conditions, names.CONDITION_MANUAL_RECOVERY_REQUIRED)
    if half is not None and half.status == names.TRUE:
        return Standing(f"It may not start: {text_of(half)}.", describe(facts), final=True, failed=True)
    failure = get_condition(vm.status.conditions, "Failure")
    if failure is not None and failure.status == names.TRUE:
        return Standing(f"It has no running instance: {text_of(failure)}.", describe(facts), final=True, failed=True)
    if vm.status.start_failure is not None and vm.status.start_failure.consecutive_fail_count:
        return _starts_fail(facts, vm.status.start_failure)
    if (state := vm.status.hibernation) is not None and state.phase == SAVED:
        since = f" since {state.end_timestamp}" if state.end_timestamp else ""
        words = f"It is hibernated{since}: its next start goes on from the state in claim {state.claim_name}."
        return Standing(words, f"virtctl start {facts.name} -n {facts.namespace}", final=True)
    strategy = run_strategy(vm)
    if rests := _rests(vm, strategy):
        return Standing(f"It is stopped: {rests}.", f"virtctl start {facts.name} -n {facts.namespace}", final=True)
    if (waits := filling(facts)) is not None:
        return waits
    return Standing(
        f"It has no instance yet, and its runStrategy is {strategy}: virt-controller should make one.",
        logs(facts, "virt-controller"),
    )


def _rests(vm: VirtualMachine, strategy: str) -> str:
    """Why nobody will start it; empty when somebody should."""
    if any(request.action == names.ACTION_START for request in vm.status.state_change_requests):
        return ""
    if strategy == names.STRATEGY_RERUN_ON_FAILURE and vm.status.run_strategy == strategy:
        return f"its guest ended by itself, and with runStrategy {strategy} it is started again only after a failure"
    if strategy in (names.STRATEGY_HALTED, names.STRATEGY_MANUAL):
        return f"its runStrategy is {strategy}"
    return ""


def _starts_fail(facts: Facts, failure: VirtualMachineStartFailure) -> Standing:
    """CrashLoopBackOff: the VMI that failed is gone, its Events are not."""
    count = failure.consecutive_fail_count
    often = "once" if count == 1 else f"{count} times in a row"
    left = 0.0
    if failure.retry_after_timestamp:
        left = (parse_rfc3339(failure.retry_after_timestamp) - facts.now).total_seconds()
    again = f"the next try is due in {duration(left)}" if left > 0 else "the next try is due"
    warning = last_warning(facts)
    why = f"{warning.reason}: {warning.message}" if warning is not None else "its Events do not say why"
    return Standing(
        f"It failed to start {often}, and {again}: {why.rstrip('.')}.",
        f"kubectl get events -n {facts.namespace} --field-selector involvedObject.name={facts.name}",
        failed=True,
    )


def deleting(facts: Facts) -> Standing | None:
    vmi = facts.vmi
    if vmi is None or not vmi.metadata.deletion_timestamp:
        return None
    since = duration((facts.now - parse_rfc3339(vmi.metadata.deletion_timestamp)).total_seconds())
    if facts.pod is not None:
        why = f"the guest has {grace_seconds(vmi)} s to shut down, and its Pod {facts.pod.metadata.name} is still there"
    else:
        left = ", ".join(vmi.metadata.finalizers)
        why = f"its Pod is gone, and virt-controller has yet to remove its finalizers ({left or 'none is left'})"
    return Standing(f"Its deletion has taken {since} so far: {why}.", f"kubectl get vmi,pod -n {facts.namespace} -w")


def failed(facts: Facts) -> Standing | None:
    if facts.phase != names.PHASE_FAILED or facts.vmi is None:
        return None
    message = failure_message(facts.vmi)
    if not message and (warning := last_warning(facts)) is not None:
        message = warning.message
    if not message and facts.pod is not None:
        message = pod_end(facts.pod)
    reason = facts.vmi.status.reason or "no reason given"
    tail = f": {message.rstrip('.')}" if message else ""
    return Standing(f"It Failed ({reason}){tail}.", _after_failure(facts, reason), final=True, failed=True)


def _after_failure(facts: Facts, reason: str) -> str:
    if reason == names.FAILED_INVALID_SPEC:
        return f"kubectl delete vmi {facts.name} -n {facts.namespace}  # then apply the corrected manifest"
    return f"kubectl logs {facts.pod.metadata.name} -n {facts.namespace}" if facts.pod else describe(facts)


def failure_message(vmi: VirtualMachineInstance) -> str:
    """The sentence that goes with status.reason: the condition with that reason first, then the usual bearers."""
    conditions = vmi.status.conditions
    for condition in conditions:
        if vmi.status.reason and condition.reason == vmi.status.reason and condition.message:
            return condition.message
    for kind in ("Failed", names.CONDITION_SYNCHRONIZED, names.CONDITION_READY):
        bearer = get_condition(conditions, kind)
        if bearer is not None and bearer.message and (bearer.status == names.FALSE or kind == "Failed"):
            return bearer.message
    return ""


def succeeded(facts: Facts) -> Standing | None:
    if facts.phase != names.PHASE_SUCCEEDED:
        return None
    return Standing(
        "The guest has shut down by itself (phase Succeeded).",
        f"kubectl delete vmi {facts.name} -n {facts.namespace}",
        final=True,
    )


def paused(facts: Facts) -> Standing | None:
    if facts.vmi is None or facts.phase != names.PHASE_RUNNING:
        return None
    paused = get_condition(facts.vmi.status.conditions, names.CONDITION_PAUSED)
    if paused is None or paused.status != names.TRUE:
        return None
    since = held_for(paused.last_transition_time, facts.now)
    why = paused.message or paused.reason
    return Standing(
        f"It runs on {facts.vmi.status.node_name} but has been paused{since}{': ' + why.rstrip('.') if why else ''}."
        f"{leaving(facts)}{of_machine(facts)}",
        f"virtctl unpause vmi {facts.name} -n {facts.namespace}",
        final=True,
    )


def running(facts: Facts) -> Standing | None:
    vmi = facts.vmi
    if vmi is None or facts.phase != names.PHASE_RUNNING:
        return None
    steps = timeline(vmi, facts.now)
    took = max((step.at_s for step in steps if step.at_s is not None), default=None)
    since = held_for(_phase_time(vmi, names.PHASE_RUNNING), facts.now)
    after = f" (its start took {duration(took)})" if took else ""
    where, unseen = whereabouts(facts)
    ready = get_condition(vmi.status.conditions, names.CONDITION_READY)
    doubt = f", but it is not Ready: {text_of(ready)}" if ready is not None and ready.status != names.TRUE else ""
    begun = "has been" if since else "is"
    silent = get_condition(vmi.status.conditions, names.CONDITION_GUEST_SILENT)
    if silent is not None and silent.status == names.TRUE:
        doubt += f", but {text_of(silent).rstrip('.')}"
    return Standing(
        f"It {begun} Running on {vmi.status.node_name}{since}{after}{where}{doubt}."
        f"{volumes_on_their_way(vmi)}{pending(facts)}{leaving(facts)}{of_machine(facts)}",
        f"virtctl {'explain network vmi' if unseen else 'console'} {facts.name} -n {facts.namespace}",
        final=True,
    )


def volumes_on_their_way(vmi: VirtualMachineInstance) -> str:
    """A sentence for each hot-plugged volume that the guest does not have, or still has."""
    asked = {volume.name for volume in vmi.spec.volumes}
    told = []
    for status in vmi.status.volume_status:
        if status.hotplug_volume is None or (status.name in asked and status.phase == names.VOLUME_READY):
            continue
        where = "is not in the guest yet" if status.name in asked else "is on its way out"
        told.append(f' Volume "{status.name}" {where} ({status.phase}): {status.message.rstrip(".")}.')
    return "".join(told)


def _phase_time(vmi: VirtualMachineInstance, phase: str) -> str | None:
    stamps = vmi.status.phase_transition_timestamps
    return next((s.phase_transition_timestamp for s in reversed(stamps) if s.phase == phase), None)


def unknown(facts: Facts) -> Standing | None:
    if facts.phase != names.PHASE_UNKNOWN or facts.vmi is None:
        return None
    node = facts.vmi.status.node_name
    return Standing(f"Its state is not known: its node {node} does not answer.", f"kubectl describe node {node}")
