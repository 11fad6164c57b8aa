"""What start, stop and restart mean for a VM, by its run strategy. Pure: a wish in, what is to be written out."""

from __future__ import annotations

from dataclasses import dataclass

from virt_api.problems import Problem
from virt_core.apis import names
from virt_core.apis.facts import grace_seconds, is_final, run_strategy
from virt_core.apis.vm import VirtualMachine, VirtualMachineStateChangeRequest
from virt_core.apis.vmi import VirtualMachineInstance

#: A machine in one of these does not count as running.
_NOT_LIVE = frozenset({*names.FINAL_PHASES, names.PHASE_UNSET, names.PHASE_UNKNOWN})

Request = VirtualMachineStateChangeRequest


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be written: the run strategy, the queue of requests, the VMI's grace period. None: as it is."""

    strategy: str | None = None
    requests: list[Request] | None = None
    grace_s: int | None = None


def is_live(vmi: VirtualMachineInstance | None) -> bool:
    return vmi is not None and vmi.status.phase not in _NOT_LIVE


def start(vm: VirtualMachine, vmi: VirtualMachineInstance | None, *, paused: bool = False) -> Wish:
    """Raises Problem 409."""
    name, strategy = vm.metadata.name, run_strategy(vm)
    if is_live(vmi):
        raise _conflict(vm, "VM is already running")
    if _is_true(vm, names.CONDITION_MANUAL_RECOVERY_REQUIRED):
        raise _conflict(vm, "a restore left its volumes in a state that needs manual recovery first")
    if strategy == names.STRATEGY_WAIT_AS_RECEIVER:
        return Wish()
    if strategy == names.STRATEGY_HALTED and not paused:
        return Wish(strategy=names.STRATEGY_ALWAYS)
    if strategy in (names.STRATEGY_ALWAYS, names.STRATEGY_ONCE):
        raise _conflict(vm, f"runStrategy {strategy} does not allow start requests")
    _nothing_queued(vm)
    if strategy == names.STRATEGY_RERUN_ON_FAILURE and vmi is not None and vmi.status.phase == names.PHASE_FAILED:
        raise _conflict(vm, f"VM {name} is already being started again, because its VMI failed")
    begin = Request(action=names.ACTION_START, data={names.REQUEST_PAUSED: "true"} if paused else {})
    if vmi is not None and is_final(vmi) and strategy != names.STRATEGY_HALTED:
        return Wish(requests=[_stop_of(vmi), begin])
    return Wish(requests=[begin])


def starts_anyway(vm: VirtualMachine) -> bool:
    """Once nothing holds it up any more: nobody needs to ask again."""
    asked = any(request.action == names.ACTION_START for request in vm.status.state_change_requests)
    return asked or run_strategy(vm) == names.STRATEGY_ALWAYS


def stop(vm: VirtualMachine, vmi: VirtualMachineInstance | None, *, grace_s: int | None = None) -> Wish:
    """Raises Problem 409, 400."""
    strategy = run_strategy(vm)
    if grace_s is not None and grace_s < 0:
        raise Problem(400, "gracePeriod must not be negative")
    if strategy == names.STRATEGY_WAIT_AS_RECEIVER:
        return Wish()
    live = is_live(vmi)
    if not live and strategy in (names.STRATEGY_HALTED, names.STRATEGY_MANUAL, names.STRATEGY_RERUN_ON_FAILURE):
        raise _conflict(vm, "VM is not running")
    grace = grace_s if live else None
    if strategy == names.STRATEGY_HALTED:
        if vmi is None or grace is None or grace >= grace_seconds(vmi):
            raise _conflict(vm, "VM is already stopping; only a shorter gracePeriod would change anything")
        return Wish(grace_s=grace)
    if strategy in (names.STRATEGY_ALWAYS, names.STRATEGY_ONCE):
        return Wish(strategy=names.STRATEGY_HALTED, grace_s=grace)
    assert vmi is not None
    if grace is None and vm.status.state_change_requests == [_stop_of(vmi)]:
        return Wish()
    return Wish(requests=[_stop_of(vmi)], grace_s=grace)


def restart(vm: VirtualMachine, vmi: VirtualMachineInstance | None, *, grace_s: int | None = None) -> Wish:
    """Raises Problem 409, 400."""
    strategy = run_strategy(vm)
    if grace_s is not None and grace_s != 0:
        raise Problem(400, "gracePeriodSeconds can only be 0, which means at once")
    if _is_true(vm, names.CONDITION_VOLUMES_CHANGE):
        raise _conflict(vm, "the volumes of the VM are being changed")
    if strategy in (names.STRATEGY_HALTED, names.STRATEGY_ONCE):
        raise _conflict(vm, f"runStrategy {strategy} does not allow restarts")
    if vmi is None or not is_live(vmi):
        raise _conflict(vm, "VM is not running")
    _nothing_queued(vm)
    requests = [_stop_of(vmi), Request(action=names.ACTION_START)]
    return Wish(requests=requests, grace_s=None if grace_s is None else 1)


def _stop_of(vmi: VirtualMachineInstance) -> Request:
    return Request(action=names.ACTION_STOP, uid=vmi.metadata.uid)


def _nothing_queued(vm: VirtualMachine) -> None:
    if vm.status.state_change_requests:
        raise _conflict(vm, "unable to complete request: stop/start already underway")


def _is_true(vm: VirtualMachine, type_: str) -> bool:
    return any(c.type == type_ and c.status == names.TRUE for c in vm.status.conditions)


def _conflict(vm: VirtualMachine, message: str) -> Problem:
    name = vm.metadata.name
    text = f'Operation cannot be fulfilled on virtualmachine.kubevirt.io "{name}": {message}'
    return Problem(409, text, name=name, kind="virtualmachine")
