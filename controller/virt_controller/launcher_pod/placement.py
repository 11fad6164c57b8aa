"""On which nodes the machine can run: by the labels with which virt-handler and the kubelet say what a node can do.

Only what some node offers is asked for, as with devices: then the scheduler finds that node. What no node offers is
left to the launcher, which fails the VMI and names the field; a Pod that nobody can take would wait for ever instead.
CPUs of its own are the exception: they are asked for in any case.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from virt_controller.launcher_pod.contributions import Parts
from virt_controller.launcher_pod.sections import TemplateConfig
from virt_core.apis import names
from virt_core.apis.meta import LabelSelector
from virt_core.apis.owncpus import is_dedicated
from virt_core.apis.scheduling import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodAffinityTerm,
    PodAntiAffinity,
)
from virt_core.apis.selectors import DOES_NOT_EXIST
from virt_core.apis.vmi import VirtualMachineInstance

#: Whatever the node has, it can give.
_ANY_MODEL = ("", "host-model", "host-passthrough")
_NEEDED = ("", "require")
_FORBIDDEN = "forbid"


def placement(vmi: VirtualMachineInstance, config: TemplateConfig) -> Parts:
    """What the user says goes before what follows from the machine."""
    chosen = _chosen(vmi, config)
    machine = {names.LABEL_NODE_ARCH: vmi.spec.architecture} if vmi.spec.architecture else {}
    wishes = (machine | dict(_processor(vmi)), machine)
    offered = next((wish for wish in wishes if _nodes_with(wish | chosen, config)), {})
    return Parts(node_selector=offered | chosen | _never_without(vmi) | {names.LABEL_SCHEDULABLE: "true"})


def _never_without(vmi: VirtualMachineInstance) -> dict[str, str]:
    """Asked for even if no node offers it: elsewhere the guest would start, and share its CPUs."""
    return {names.LABEL_CPU_MANAGER_NEW: "true"} if is_dedicated(vmi) else {}


def affinity(vmi: VirtualMachineInstance, config: TemplateConfig) -> Affinity | None:
    """The VMI's own, without the nodes whose processor has what the guest must not see; and a Pod that the guest is to
    move to stays away from the node of the one that it leaves."""
    allowed = _without_forbidden(vmi, config)
    return allowed if config.move is None else _elsewhere(allowed or Affinity(), vmi)


def _elsewhere(wanted: Affinity, vmi: VirtualMachineInstance) -> Affinity:
    own = LabelSelector(match_labels={names.LABEL_CREATED_BY: vmi.metadata.uid})
    apart = PodAffinityTerm(topology_key=names.LABEL_NODE_HOSTNAME, label_selector=own)
    others = wanted.pod_anti_affinity or PodAntiAffinity()
    required = [*others.required_during_scheduling_ignored_during_execution, apart]
    return replace(
        wanted, pod_anti_affinity=replace(others, required_during_scheduling_ignored_during_execution=required)
    )


def _without_forbidden(vmi: VirtualMachineInstance, config: TemplateConfig) -> Affinity | None:
    features = vmi.spec.domain.cpu.features if vmi.spec.domain.cpu is not None else []
    unwanted = [names.LABEL_PREFIX_CPU_FEATURE + each.name for each in features if each.policy == _FORBIDDEN]
    if not unwanted or all(labels.keys() & unwanted for labels in _nodes_with(_chosen(vmi, config), config)):
        return vmi.spec.affinity
    return _without(vmi.spec.affinity or Affinity(), unwanted)


def _chosen(vmi: VirtualMachineInstance, config: TemplateConfig) -> dict[str, str]:
    return dict(config.cluster.node_selectors) | vmi.spec.node_selector


def _nodes_with(wanted: dict[str, str], config: TemplateConfig) -> list[Mapping[str, str]]:
    """Those that have all of it: of two that have half each, neither will do."""
    return [labels for labels in config.node_labels if wanted.items() <= labels.items()]


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
    absent = [NodeSelectorRequirement(key=key, operator=DOES_NOT_EXIST) for key in keys]
    node = wanted.node_affinity or NodeAffinity()
    required = node.required_during_scheduling_ignored_during_execution
    terms = required.node_selector_terms if required is not None else [NodeSelectorTerm()]
    terms = [replace(term, match_expressions=[*term.match_expressions, *absent]) for term in terms]
    selector = NodeSelector(node_selector_terms=terms)
    return replace(wanted, node_affinity=replace(node, required_during_scheduling_ignored_during_execution=selector))
