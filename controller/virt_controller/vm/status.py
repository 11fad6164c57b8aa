"""The status of a VM, from what is seen of it and its VMI. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from virt_controller.vm import volumemoves, volumerequests
from virt_controller.vm.printable import View, word
from virt_core.apis import hibernation as words
from virt_core.apis import names
from virt_core.apis.facts import is_final, is_terminating, run_strategy
from virt_core.apis.meta import Condition
from virt_core.apis.vm import VirtualMachine, VirtualMachineStateChangeRequest, VirtualMachineStatus
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.conditions import get_condition, is_true, remove_condition, set_condition

#: The VM's own; all others are the VMI's and follow it.
_OWN = frozenset(
    {
        names.CONDITION_READY,
        names.CONDITION_FAILURE,
        names.CONDITION_RESTART_REQUIRED,
        names.CONDITION_MANUAL_RECOVERY_REQUIRED,
        names.CONDITION_HIBERNATED,
    }
)
#: What was known of the last VMI and may be of use for the next.
_KEPT = frozenset({names.CONDITION_LIVE_MIGRATABLE, names.CONDITION_STORAGE_LIVE_MIGRATABLE})


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why something could not be done: a CamelCase word and a sentence."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one round of the controller came to, beyond what the objects show."""

    trouble: Trouble | None = None
    #: Why the VM must be restarted for its spec to take effect; empty when it need not.
    restart_required: str = ""
    ask_start: bool = False


def updated(view: View, outcome: Outcome, now: datetime) -> VirtualMachineStatus:
    vm, vmi = view.vm, view.vmi
    return replace(
        vm.status,
        created=vmi is not None,
        ready=vmi is not None and is_true(vmi.status.conditions, names.CONDITION_READY),
        printable_status=word(view),
        conditions=_conditions(view, outcome, now),
        state_change_requests=_requests(vm, vmi, outcome),
        volume_requests=volumerequests.left(vm),
        volume_update_state=volumemoves.remembered(vm, vmi),
        observed_generation=_observed_generation(vm, vmi),
        desired_generation=vm.metadata.generation,
        run_strategy=_strategy(vm, vmi),
        instancetype_ref=vm.status.instancetype_ref if vm.spec.instancetype is not None else None,
        preference_ref=vm.status.preference_ref if vm.spec.preference is not None else None,
    )


def _strategy(vm: VirtualMachine, vmi: VirtualMachineInstance | None) -> str:
    """The one last acted on: RerunOnFailure starts by itself when it is new here."""
    strategy = run_strategy(vm)
    return strategy if vmi is not None or strategy == names.STRATEGY_HALTED else vm.status.run_strategy


def _observed_generation(vm: VirtualMachine, vmi: VirtualMachineInstance | None) -> int:
    if vmi is None:
        return vm.status.observed_generation
    text = vmi.metadata.annotations.get(names.ANNOTATION_VM_GENERATION, "")
    return int(text) if text.isdecimal() else vm.status.observed_generation


def _requests(
    vm: VirtualMachine, vmi: VirtualMachineInstance | None, outcome: Outcome
) -> list[VirtualMachineStateChangeRequest]:
    """The first request leaves the queue once it is seen to be fulfilled."""
    queue = list(vm.status.state_change_requests)
    if queue and _fulfilled(queue[0], vmi):
        queue.pop(0)
    if outcome.ask_start and not queue:
        queue.append(VirtualMachineStateChangeRequest(action=names.ACTION_START))
    return queue


def _fulfilled(request: VirtualMachineStateChangeRequest, vmi: VirtualMachineInstance | None) -> bool:
    if request.action == names.ACTION_STOP:
        return vmi is None or vmi.metadata.uid != request.uid
    # One that is on its way out is not what was asked for.
    return vmi is not None and not is_final(vmi) and not is_terminating(vmi)


def _conditions(view: View, outcome: Outcome, now: datetime) -> list[Condition]:
    vm, vmi = view.vm, view.vmi
    conditions = [replace(c) for c in vm.status.conditions if c.type in _OWN or c.type in _mirrored(vmi)]
    if vmi is None:
        text = "the VMI does not exist"
        set_condition(conditions, names.CONDITION_READY, names.FALSE, names.REASON_VMI_NOT_EXISTS, text, now)
    else:
        _mirror(conditions, vmi, now)
    _tell(conditions, names.CONDITION_FAILURE, outcome.trouble, now)
    half = volumemoves.lost(vm, vmi)
    _tell(
        conditions, names.CONDITION_MANUAL_RECOVERY_REQUIRED, Trouble("VolumesNotCopied", half) if half else None, now
    )
    text = outcome.restart_required or _needs_restart(vmi)
    _tell(conditions, names.CONDITION_RESTART_REQUIRED, Trouble("", text) if text else None, now)
    _tell_hibernated(conditions, vm, now)
    return conditions


def _tell_hibernated(conditions: list[Condition], vm: VirtualMachine, now: datetime) -> None:
    """As long as there is something to say: True once the state is whole, False while it is not, or if it never was."""
    state = vm.status.hibernation
    told = {
        words.SAVED: (names.TRUE, names.REASON_STATE_SAVED),
        words.REQUESTED: (names.FALSE, names.REASON_STATE_BEING_SAVED),
        words.SAVING: (names.FALSE, names.REASON_STATE_BEING_SAVED),
        words.FAILED: (names.FALSE, names.REASON_STATE_NOT_SAVED),
    }
    if state is None or state.phase not in told:
        remove_condition(conditions, names.CONDITION_HIBERNATED)
        return
    value, reason = told[state.phase]
    text = state.message
    if state.phase == words.SAVED:
        text = f"the machine's state is in claim {state.claim_name}; the next start goes on from it"
    set_condition(conditions, names.CONDITION_HIBERNATED, value, reason, text, now)


def _needs_restart(vmi: VirtualMachineInstance | None) -> str:
    """What the node found that the running machine cannot become, and what cannot be had where it runs."""
    if vmi is None:
        return ""
    told = get_condition(vmi.status.conditions, names.CONDITION_RESTART_REQUIRED)
    if told is not None:
        return told.message
    sizes = (names.CONDITION_HOT_VCPU_CHANGE, names.CONDITION_HOT_MEMORY_CHANGE)
    found = [get_condition(vmi.status.conditions, type) for type in sizes]
    words = dict.fromkeys(c.message for c in found if c is not None and c.status == names.FALSE)
    return f"a restart is needed: {'; '.join(words)}" if words else ""


def _mirrored(vmi: VirtualMachineInstance | None) -> frozenset[str]:
    return _KEPT if vmi is None else frozenset(c.type for c in vmi.status.conditions)


def _mirror(conditions: list[Condition], vmi: VirtualMachineInstance, now: datetime) -> None:
    for theirs in vmi.status.conditions:
        at = next((i for i, ours in enumerate(conditions) if ours.type == theirs.type), None)
        if at is None:
            conditions.append(replace(theirs))
        else:
            conditions[at] = replace(theirs)
    if get_condition(vmi.status.conditions, names.CONDITION_READY) is None:
        # It will say so itself in a moment; to say it now saves a write.
        early = vmi.status.phase != names.PHASE_RUNNING
        reason = names.REASON_GUEST_NOT_RUNNING if early else names.REASON_VMI_CONDITION_MISSING
        text = "the guest is not running yet" if early else "the VMI does not say whether it is ready"
        set_condition(conditions, names.CONDITION_READY, names.FALSE, reason, text, now)


def _tell(conditions: list[Condition], type: str, trouble: Trouble | None, now: datetime) -> None:
    if trouble is None:
        remove_condition(conditions, type)
    else:
        set_condition(conditions, type, names.TRUE, trouble.reason, trouble.message, now)
