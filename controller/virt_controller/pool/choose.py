"""Which VMs of a pool may go or be changed, and which of them come first. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from virt_controller.pool.naming import number_of
from virt_core.apis.pool import VirtualMachinePoolSelectionPolicy, VirtualMachinePoolSelectors
from virt_core.apis.selectors import all_hold, chooses
from virt_core.apis.vm import VirtualMachine

#: The labels of the node that a VM runs on.
NodeLabels = Callable[[VirtualMachine], Mapping[str, str]]


def no_node(_vm: VirtualMachine) -> Mapping[str, str]:
    return {}


def in_order(
    vms: Sequence[VirtualMachine],
    policy: VirtualMachinePoolSelectionPolicy | None,
    node_labels: NodeLabels = no_node,
    shuffle: Callable[[list[VirtualMachine]], object] = random.shuffle,
) -> list[VirtualMachine]:
    """Those that the policy selects, in the order of its sort policy; Random is the default."""
    ordered = selected(vms, policy, node_labels)
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
    return ordered


def selected(
    vms: Sequence[VirtualMachine],
    policy: VirtualMachinePoolSelectionPolicy | None,
    node_labels: NodeLabels = no_node,
) -> list[VirtualMachine]:
    """All of them, where the policy has no selectors."""
    selectors = policy.selectors if policy is not None else None
    return [vm for vm in vms if selectors is None or _is_selected(vm, selectors, node_labels)]


def _is_selected(vm: VirtualMachine, selectors: VirtualMachinePoolSelectors, node_labels: NodeLabels) -> bool:
    """The template's labels and node selector count too, so that stopped VMs can be told apart as well."""
    template = vm.spec.template
    given = template.metadata.labels if template is not None and template.metadata is not None else {}
    bound = template.spec.node_selector if template is not None else {}
    by_label = selectors.label_selector is None or chooses(selectors.label_selector, given | vm.metadata.labels)
    return by_label and all_hold(selectors.node_selector_requirement_matcher, bound | dict(node_labels(vm)))
