"""On which nodes the machine can run: by the labels with which virt-handler and the kubelet say what a node can do.

Only what some node offers is asked for, as with devices: then the scheduler finds that node. What no node offers is
left to the launcher, which fails the VMI and names the field; a Pod that nobody can take would wait for ever instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from virt_controller.launcher_pod.parts import Parts
from virt_controller.launcher_pod.sections import TemplateConfig
from virt_core.apis import names
from virt_core.apis.scheduling import Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from virt_core.apis.vmi import VirtualMachineInstance

#: Whatever the node has, it can give.
_ANY_MODEL = ("", "host-model", "host-passthrough")
_NEEDED = ("", "require")
_FORBIDDEN = "forbid"


def placement(vmi: VirtualMachineInstance, config: TemplateConfig) -> Parts:
    """What the user says goes before what follows from the machine."""
    chosen = dict(config.cluster.node_selectors) | vmi.spec.node_selector
    machine = {names.LABEL_NODE_ARCH: vmi.spec.architecture} if vmi.spec.architecture else {}
    wishes = (machine | dict(_processor(vmi)), machine)
    offered = next((wish for wish in wishes if _is_offered(wish | chosen, config)), {})
    return Parts(node_selector=offered | chosen | {names.LABEL_SCHEDULABLE: "true"})


def affinity(vmi: VirtualMachineInstance, config: TemplateConfig) -> Affinity | None:
    """The VMI's own, without the nodes whose processor has what the guest must not see."""
    features = vmi.spec.domain.cpu.features if vmi.spec.domain.cpu is not None else []
    unwanted = [names.LABEL_PREFIX_CPU_FEATURE + each.name for each in features if each.policy == _FORBIDDEN]
    if not unwanted or all(any(key in labels for key in unwanted) for labels in config.node_labels):
        return vmi.spec.affinity
    return _without(vmi.spec.affinity or Affinity(), unwanted)


def _is_offered(wanted: dict[str, str], config: TemplateConfig) -> bool:
    """All of it by one node that the user lets it to: of two that have half each, neither will do."""
    return any(wanted.items() <= labels.items() for labels in config.node_labels)


def _processor(vmi: VirtualMachineInstance) -> Iterator[tuple[str, str]]:
    cpu = vmi.spec.domain.cpu
    if cpu is None:
        return
    if cpu.model not in _ANY_MODEL:
        yield names.LABEL_PREFIX_CPU_MODEL + cpu.model, "true"
    for feature in cpu.features:
        if feature.policy in _NEEDED:
            yield names.LABEL_PREFIX_CPU_FEATURE + feature.name, "true"


def _without(wanted: Affinity, keys: Iterable[str]) -> Affinity:
    """One of the terms must hold, so each gets the condition."""
    absent = [NodeSelectorRequirement(key=key, operator="DoesNotExist") for key in keys]
    node = wanted.node_affinity or NodeAffinity()
    required = node.required_during_scheduling_ignored_during_execution
    terms = required.node_selector_terms if required is not None else [NodeSelectorTerm()]
    terms = [replace(term, match_expressions=[*term.match_expressions, *absent]) for term in terms]
    selector = NodeSelector(node_selector_terms=terms)
    return replace(wanted, node_affinity=replace(node, required_during_scheduling_ignored_during_execution=selector))
