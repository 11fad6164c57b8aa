"""What becomes of a machine whose launcher Pod shall be evicted. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from virt_core.apis import names

if TYPE_CHECKING:
    from virt_core.apis.meta import Condition
    from virt_core.apis.vmi import VirtualMachineInstance

#: It goes with its Pod.
NONE = "None"
#: It moves, and stays where it is if it cannot.
LIVE_MIGRATE = "LiveMigrate"
#: It moves if it can, and else goes.
IF_POSSIBLE = "LiveMigrateIfPossible"
#: Somebody else moves it.
EXTERNAL = "External"
STRATEGIES = (NONE, LIVE_MIGRATE, IF_POSSIBLE, EXTERNAL)


def strategy_of(vmi: VirtualMachineInstance, default: str | None) -> str:
    """Its own, or the cluster's."""
    return vmi.spec.eviction_strategy or default or NONE


def is_movable(vmi: VirtualMachineInstance) -> bool:
    condition = _migratable(vmi)
    return vmi.status.phase == names.PHASE_RUNNING and condition is not None and condition.status == names.TRUE


def why_tied(vmi: VirtualMachineInstance) -> str:
    """Of a machine that is not movable."""
    if vmi.status.phase != names.PHASE_RUNNING:
        return f"it is {vmi.status.phase or names.PHASE_PENDING}, not Running"
    condition = _migratable(vmi)
    if condition is None:
        return "its node has not said yet whether it could"
    return condition.message or condition.reason or "its node says so"


def is_ours_to_move(vmi: VirtualMachineInstance, default: str | None) -> bool:
    """Whether we move it when it must leave its node, if it can be moved."""
    return strategy_of(vmi, default) in (LIVE_MIGRATE, IF_POSSIBLE)


def is_kept(vmi: VirtualMachineInstance, default: str | None) -> bool:
    """Whether its Pod must not be evicted."""
    strategy = strategy_of(vmi, default)
    return strategy in (LIVE_MIGRATE, EXTERNAL) or (strategy == IF_POSSIBLE and is_movable(vmi))


def _migratable(vmi: VirtualMachineInstance) -> Condition | None:
    return next((each for each in vmi.status.conditions if each.type == names.CONDITION_LIVE_MIGRATABLE), None)
