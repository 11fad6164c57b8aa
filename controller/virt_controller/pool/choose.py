"""Which VMs of a pool come first when some must go or be changed. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from virt_controller.pool.naming import number_of
from virt_controller.sets.selectors import all_hold, matches
from virt_core.apis.pool import VirtualMachinePoolSelectionPolicy, VirtualMachinePoolSelectors
from virt_core.apis.vm import VirtualMachine

#: The labels of the node that a VM runs on.
NodeLabels = Callable[[VirtualMachine], Mapping[str, str]]


def _no_node(_vm: VirtualMachine) -> Mapping[str, str]:
    return {}


def in_order(
    vms: Sequence[VirtualMachine],
    policy: VirtualMachinePoolSelectionPolicy | None,
    node_labels: NodeLabels = _no_node,
    shuffle: Callable[[list[VirtualMachine]], object] = random.shuffle,
) -> list[VirtualMachine]:
    """Selected ones first, each group in the order of the sort policy; Random is the default."""
    ordered = list(vms)
    sort = policy.sort_policy if policy is not None else None
    if sort in ("AscendingOrder", "DescendingOrder"):
        ordered.sort(key=lambda vm: number_of(vm.metadata.name) or 0, reverse=sort == "DescendingOrder")
    elif sort in ("Oldest", "Newest"):
        ordered.sort(
            key=lambda vm: (vm.metadata.creation_timestamp or "", number_of(vm.metadata.name) or 0),
            reverse=sort == "Newest",
        )
    else:
        shuffle(ordered)
    selectors = policy.selectors if policy is not None else None
    if selectors is not None:
        ordered.sort(key=lambda vm: not _selected(vm, selectors, node_labels))
    return ordered


def _selected(vm: VirtualMachine, selectors: VirtualMachinePoolSelectors, node_labels: NodeLabels) -> bool:
    by_label = selectors.label_selector is None or matches(selectors.label_selector, vm.metadata.labels)
    return by_label and all_hold(selectors.node_selector_requirement_matcher, node_labels(vm))
