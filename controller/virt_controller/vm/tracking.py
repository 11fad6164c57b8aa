"""Whether it is tracked which blocks of a VM's disks change, for its backups. Pure.

The configuration chooses VMs by labels. A machine is made to track or not when it starts, so a change of mind waits for
a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from virt_core.apis.keptstate import (
    TRACKING_BEGINS,
    TRACKING_GATED,
    TRACKING_OFF,
    TRACKING_ON,
    TRACKING_PENDING,
    tracks_blocks,
)
from virt_core.apis.selectors import matches
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import ChangedBlockTrackingStatus
from virt_core.kube.configvalues import ClusterConfig

GATE = "IncrementalBackup"


@dataclass(frozen=True, slots=True)
class Wish:
    """What the configuration says of a VM."""

    selected: bool = False
    gate: bool = False

    @property
    def wanted(self) -> bool:
        return self.selected and self.gate


def wish(vm: VirtualMachine, namespace: Mapping[str, str], config: ClusterConfig) -> Wish:
    """`namespace`: its labels."""
    rows = ((config.tracked_namespaces, namespace), (config.tracked_vms, vm.metadata.labels))
    selected = any(selector is not None and matches(selector, labels) for selector, labels in rows)
    return Wish(selected, config.has(GATE))


def at_start(vm: VirtualMachine, wished: Wish) -> ChangedBlockTrackingStatus | None:
    """With what a new VMI begins."""
    if wished.wanted:
        return ChangedBlockTrackingStatus(state=TRACKING_BEGINS)
    return ChangedBlockTrackingStatus(state=TRACKING_OFF) if _known(vm) else None


def state(vm: VirtualMachine, vmi: VirtualMachineInstance | None, wished: Wish) -> ChangedBlockTrackingStatus | None:
    found = _state(vm, vmi, wished)
    if not found:
        return None
    return replace(vm.status.changed_block_tracking or ChangedBlockTrackingStatus(), state=found)


def _state(vm: VirtualMachine, vmi: VirtualMachineInstance | None, wished: Wish) -> str:
    if vmi is None:
        if wished.wanted:
            return TRACKING_ON if _known(vm) == TRACKING_ON else TRACKING_BEGINS
        if not wished.gate:
            return TRACKING_GATED if wished.selected else ""
        return TRACKING_OFF if _known(vm) else ""
    theirs = vmi.status.changed_block_tracking.state if vmi.status.changed_block_tracking is not None else ""
    if wished.wanted:
        return theirs if tracks_blocks(vmi) else TRACKING_PENDING
    if tracks_blocks(vmi):
        return TRACKING_PENDING
    if not wished.gate:
        return TRACKING_GATED if wished.selected else ""
    return TRACKING_OFF if _known(vm) else ""


def _known(vm: VirtualMachine) -> str:
    told = vm.status.changed_block_tracking
    return told.state if told is not None else ""
