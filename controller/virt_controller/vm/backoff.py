"""Starts that fail: each one in a row makes the next try wait longer. Pure, but for the share of luck."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta

from virt_controller.vm import facts
from virt_core.apis.facts import run_strategy
from virt_core.apis.vm import VirtualMachine, VirtualMachineStartFailure
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.runtime.times import parse_rfc3339, rfc3339

MAX_DELAY_S = 300.0
BASE_DELAY_S = 10.0

#: A number from 0 to its argument: VMs that failed together must not come back together.
Luck = Callable[[float], float]


def _luck(limit: float) -> float:
    return random.uniform(0, limit)  # noqa: S311 - spreads load, guards nothing


def delay_s(failures: int, luck: Luck = _luck) -> float:
    """Ten seconds times the square of the failures, half as much again at most, five minutes at the very most."""
    delay = BASE_DELAY_S * failures**2
    return min(delay + luck(delay / 2), MAX_DELAY_S)


def after(
    vm: VirtualMachine, vmi: VirtualMachineInstance | None, now: datetime, luck: Luck = _luck
) -> VirtualMachineStartFailure | None:
    """The record of failed starts as it should be."""
    record = vm.status.start_failure
    if run_strategy(vm) not in facts.BACKOFF_STRATEGIES:
        return None
    if vmi is None:
        return record
    if facts.has_run(vmi):
        return None
    if not facts.failed_to_start(vmi) or (record is not None and record.last_failed_vmi_uid == vmi.metadata.uid):
        return record
    count = (record.consecutive_fail_count if record is not None else 0) + 1
    return VirtualMachineStartFailure(
        consecutive_fail_count=count,
        last_failed_vmi_uid=vmi.metadata.uid,
        retry_after_timestamp=rfc3339(now + timedelta(seconds=delay_s(count, luck))),
    )


def left_s(vm: VirtualMachine, now: datetime) -> float:
    """Seconds until the next try; 0 when it is due."""
    record = vm.status.start_failure
    if record is None or not record.retry_after_timestamp:
        return 0.0
    return max((parse_rfc3339(record.retry_after_timestamp) - now).total_seconds(), 0.0)
