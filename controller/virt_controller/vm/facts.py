"""What a VM and its VMI say, in the words that the run strategies are written in. Pure."""

from __future__ import annotations

from virt_core.apis import names
from virt_core.apis.facts import is_final
from virt_core.apis.meta import OwnerReference
from virt_core.apis.vm import VirtualMachine, VirtualMachineStateChangeRequest
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.conditions import get_condition, is_true

#: Strategies that start again by themselves, so that a start which fails must slow them down.
BACKOFF_STRATEGIES = frozenset({names.STRATEGY_ALWAYS, names.STRATEGY_RERUN_ON_FAILURE, names.STRATEGY_ONCE})


def request(vm: VirtualMachine) -> VirtualMachineStateChangeRequest | None:
    """The wish that is acted on: the first. The others wait."""
    return next(iter(vm.status.state_change_requests), None)


def start_requested(vm: VirtualMachine) -> bool:
    head = request(vm)
    return head is not None and head.action == names.ACTION_START


def start_paused_requested(vm: VirtualMachine) -> bool:
    head = request(vm)
    return start_requested(vm) and head is not None and head.data.get(names.REQUEST_PAUSED) == "true"


def stop_requested(vm: VirtualMachine, vmi: VirtualMachineInstance) -> bool:
    """A stop is meant for one VMI: the next one must not be hit by it."""
    head = request(vm)
    return head is not None and head.action == names.ACTION_STOP and head.uid == vmi.metadata.uid


def has_run(vmi: VirtualMachineInstance) -> bool:
    stamps = vmi.status.phase_transition_timestamps
    return vmi.status.phase == names.PHASE_RUNNING or any(s.phase == names.PHASE_RUNNING for s in stamps)


def failed_to_start(vmi: VirtualMachineInstance) -> bool:
    """It ended without ever having run."""
    return is_final(vmi) and not has_run(vmi)


def is_paused(vmi: VirtualMachineInstance) -> bool:
    return is_true(vmi.status.conditions, names.CONDITION_PAUSED)


def is_migrating(vmi: VirtualMachineInstance) -> bool:
    state = vmi.status.migration_state
    return state is not None and bool(state.start_timestamp) and not state.end_timestamp


def has_trouble(vmi: VirtualMachineInstance, type: str, reason: str) -> bool:
    """A condition that is False for this reason."""
    condition = get_condition(vmi.status.conditions, type)
    return condition is not None and condition.status == names.FALSE and condition.reason == reason


def controller_ref(vmi: VirtualMachineInstance) -> OwnerReference | None:
    return next((ref for ref in vmi.metadata.owner_references if ref.controller), None)


def of_a_vm(vmi: VirtualMachineInstance) -> bool:
    ref = controller_ref(vmi)
    return ref is not None and ref.kind == "VirtualMachine"


def owns(vm: VirtualMachine, vmi: VirtualMachineInstance) -> bool:
    ref = controller_ref(vmi)
    return ref is not None and ref.uid == vm.metadata.uid


def revision_name(vm_uid: str, generation: int | str) -> str:
    return f"revision-start-vm-{vm_uid}-{generation}"
