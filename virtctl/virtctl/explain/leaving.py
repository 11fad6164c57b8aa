"""A machine that was asked to leave its node, and what hinders it. Pure."""

from __future__ import annotations

from virt_core.apis import names
from virt_core.apis.eviction import EXTERNAL, NONE, is_movable, why_tied
from virt_core.apis.vmi import VirtualMachineInstance
from virtctl.explain.facts import Facts


def leaving(facts: Facts) -> str:
    """A sentence to go before what is said of its moves, with a space before it; empty when it may stay."""
    vmi = facts.vmi
    if vmi is None or not vmi.status.evacuation_node_name:
        return ""
    return f" It was asked to leave node {vmi.status.evacuation_node_name}{_hindrance(facts, vmi)}."


def _hindrance(facts: Facts, vmi: VirtualMachineInstance) -> str:
    """Nothing of a move that is under way: that speaks for itself."""
    job = facts.job
    if job is not None and job.status.phase not in names.FINAL_PHASES:
        return ""
    if not is_movable(vmi):
        return f", and cannot be moved: {why_tied(vmi).rstrip('.')}"
    if vmi.spec.eviction_strategy == EXTERNAL:
        return f"; by its evictionStrategy ({EXTERNAL}) that is for somebody else to do"
    if vmi.spec.eviction_strategy == NONE:
        return f"; by its evictionStrategy ({NONE}) nobody moves it"
    if "Migrations" in facts.unread:
        return ""
    if job is not None and job.status.phase == names.MIGRATION_FAILED:
        return "; virt-controller tries again, each time after a longer while"
    return "; virt-controller has not made a migration for that yet"
