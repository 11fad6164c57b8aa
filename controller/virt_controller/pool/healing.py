"""VMs of a pool that do not come up: when they are given up and made anew. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from virt_core.apis import names
from virt_core.apis.pool import VirtualMachinePool, VirtualMachinePoolAutohealingStrategy
from virt_core.apis.vm import VirtualMachine
from virt_core.kube.conditions import get_condition
from virt_core.runtime.times import parse_rfc3339

_THRESHOLD = 3
_DURATION_S = 300.0
_RECHECK_S = 30.0
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"([0-9.]+)(ms|s|m|h)")
_BAD = frozenset(
    {
        names.PRINT_CRASH_LOOP,
        names.PRINT_UNSCHEDULABLE,
        names.PRINT_ERR_IMAGE_PULL,
        names.PRINT_IMAGE_PULL_BACKOFF,
        names.PRINT_PVC_NOT_FOUND,
        names.PRINT_DATA_VOLUME_ERROR,
    }
)


def seconds(duration: str) -> float:
    """`1h30m` → 5400. What cannot be read counts as the default."""
    parts = _DURATION.findall(duration)
    return sum(float(number) * _UNITS[unit] for number, unit in parts) if parts else _DURATION_S


def sick(pool: VirtualMachinePool, vms: Sequence[VirtualMachine], now: datetime) -> list[VirtualMachine]:
    strategy = pool.spec.autohealing
    return [vm for vm in vms if _is_sick(vm, strategy, now)] if strategy is not None else []


def recheck_s(pool: VirtualMachinePool, vms: Sequence[VirtualMachine]) -> float:
    """A VM that is not well may become sick by the mere passing of time."""
    unwell = any(vm.status.printable_status in _BAD for vm in vms)
    return _RECHECK_S if pool.spec.autohealing is not None and unwell else 0.0


def _is_sick(vm: VirtualMachine, strategy: VirtualMachinePoolAutohealingStrategy, now: datetime) -> bool:
    failure = vm.status.start_failure
    threshold = strategy.start_up_failure_threshold or _THRESHOLD
    if failure is not None and failure.consecutive_fail_count >= threshold:
        return True
    if vm.status.printable_status not in _BAD:
        return False
    ready = get_condition(vm.status.conditions, names.CONDITION_READY)
    if ready is None or ready.status == names.TRUE or not ready.last_transition_time:
        return False
    limit = strategy.min_failing_to_start_duration
    away = (now - parse_rfc3339(ready.last_transition_time)).total_seconds()
    return away >= (seconds(limit) if limit else _DURATION_S)
