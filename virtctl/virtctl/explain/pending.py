"""What was changed and has not come into force: a size, volumes on their way, what waits for a restart. Pure."""

from __future__ import annotations

from virt_core.apis import names
from virt_core.kube.conditions import get_condition
from virtctl.explain.facts import Facts
from virtctl.explain.words import text_of

_SIZES = {names.CONDITION_HOT_VCPU_CHANGE: "CPU sockets", names.CONDITION_HOT_MEMORY_CHANGE: "memory"}


def pending(facts: Facts) -> str:
    """Sentences to go behind one that says where the machine is, each with a space before it; mostly none."""
    found = dict.fromkeys([*_sizes(facts), *_volumes(facts)])
    restart = get_condition(facts.vm.status.conditions, names.CONDITION_RESTART_REQUIRED) if facts.vm else None
    if restart is not None and not found:
        found[f"Part of what its VM says is not in force: {text_of(restart)}."] = None
    return "".join(f" {sentence}" for sentence in found)


def _volumes(facts: Facts) -> list[str]:
    conditions = facts.vmi.status.conditions if facts.vmi is not None else []
    told = get_condition(conditions, names.CONDITION_VOLUMES_CHANGE)
    if told is None or facts.vmi is None:
        return []
    if told.status == names.TRUE:
        return [f"Volumes are on their way to other claims: {text_of(told)}."]
    if told.reason != names.REASON_VOLUMES_CANCELLED:
        return [f"Volumes are to be on other claims, and wait: {text_of(told)}."]
    return [f"A change of volumes is being given up: {text_of(told)}."] if facts.vmi.status.migrated_volumes else []


def _sizes(facts: Facts) -> list[str]:
    conditions = facts.vmi.status.conditions if facts.vmi is not None else []
    waiting = [(what, told) for type, what in _SIZES.items() if (told := get_condition(conditions, type)) is not None]
    return [f"A change of its {what} is pending: {text_of(told)}." for what, told in waiting]
