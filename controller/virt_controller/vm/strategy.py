"""What each run strategy does next. Pure: VM and VMI in, a Plan out.

One function for each strategy, in a table. A start is a Plan too: whether it can be made (volumes, instance type) is
found out by whoever carries it out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from virt_controller.vm import backoff, facts
from virt_core.apis import names
from virt_core.apis.facts import is_final, is_terminating, run_strategy
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance


@dataclass(frozen=True, slots=True)
class Plan:
    start: bool = False
    #: The VMI waits for a migration from elsewhere instead of booting.
    receive: bool = False
    #: Delete the VMI.
    stop: bool = False
    #: Queue a start: a strategy that restarts on request alone shall do so now.
    ask_start: bool = False
    #: Change the spec to this strategy.
    switch_to: str = ""
    #: The next try is due in so many seconds.
    wait_s: float = 0.0


NOTHING = Plan()

_Vmi = VirtualMachineInstance | None


def plan(vm: VirtualMachine, vmi: _Vmi, now: datetime) -> Plan:
    """`vm.status.start_failure` must be up to date."""
    if is_terminating(vm):
        return _stop(vmi)
    if vmi is not None and is_terminating(vmi):
        # On its way out; a failure of its own accord was dealt with before.
        return NOTHING
    return _STRATEGIES.get(run_strategy(vm), _manual)(vm, vmi, now)


def _stop(vmi: _Vmi) -> Plan:
    return Plan(stop=True) if vmi is not None and not is_terminating(vmi) else NOTHING


def _start(vm: VirtualMachine, now: datetime) -> Plan:
    if left := backoff.left_s(vm, now):
        return Plan(wait_s=left)
    return Plan(start=True)


def _always(vm: VirtualMachine, vmi: _Vmi, now: datetime) -> Plan:
    if vmi is None:
        return _start(vm, now)
    return _stop(vmi) if facts.stop_requested(vm, vmi) or is_final(vmi) else NOTHING


def _rerun_on_failure(vm: VirtualMachine, vmi: _Vmi, now: datetime) -> Plan:
    if vmi is None:
        fresh = vm.status.run_strategy != names.STRATEGY_RERUN_ON_FAILURE
        return _start(vm, now) if fresh or facts.start_requested(vm) else NOTHING
    if vmi.status.phase == names.PHASE_FAILED:
        return Plan(stop=True, ask_start=not vm.status.state_change_requests)
    return _stop(vmi) if facts.stop_requested(vm, vmi) or is_final(vmi) else NOTHING


def _manual(vm: VirtualMachine, vmi: _Vmi, now: datetime) -> Plan:
    if vmi is None:
        return _start(vm, now) if facts.start_requested(vm) else NOTHING
    return _stop(vmi) if facts.stop_requested(vm, vmi) else NOTHING


def _halted(vm: VirtualMachine, vmi: _Vmi, _now: datetime) -> Plan:
    if vmi is None:
        return Plan(switch_to=names.STRATEGY_ALWAYS) if facts.start_requested(vm) else NOTHING
    return _stop(vmi)


def _once(vm: VirtualMachine, vmi: _Vmi, now: datetime) -> Plan:
    return _start(vm, now) if vmi is None else NOTHING


def _wait_as_receiver(vm: VirtualMachine, vmi: _Vmi, _now: datetime) -> Plan:
    if vmi is None:
        return Plan(start=True, receive=True)
    state = vmi.status.migration_state
    if state is None or not state.completed or state.failed or vmi.status.phase != names.PHASE_RUNNING:
        return NOTHING
    return Plan(switch_to=vm.metadata.annotations.get(names.ANNOTATION_RESTORE_RUN_STRATEGY) or names.STRATEGY_ALWAYS)


_STRATEGIES: dict[str, Callable[[VirtualMachine, _Vmi, datetime], Plan]] = {
    names.STRATEGY_ALWAYS: _always,
    names.STRATEGY_RERUN_ON_FAILURE: _rerun_on_failure,
    names.STRATEGY_MANUAL: _manual,
    names.STRATEGY_HALTED: _halted,
    names.STRATEGY_ONCE: _once,
    names.STRATEGY_WAIT_AS_RECEIVER: _wait_as_receiver,
}
