"""On which nodes the machine can run: by the labels with which virt-handler and the kubelet say what a node can do.

Only what some node offers is asked for, as with devices: then the scheduler finds that node. What no node offers is
left to the launcher, which fails the VMI and names the field; a Pod that nobody can take would wait for ever instead.
CPUs of its own are the exception, and what Windows needs where the gate HypervStrictCheck is on: they are asked for in
any case.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from virt_controller.launcher_pod.contributions import Parts
from virt_controller.launcher_pod.sections import ANY_ARCHITECTURE, TemplateConfig
from virt_core.apis import launchsecurity, names
from virt_core.apis.meta import LabelSelector
from virt_core.apis.owncpus import is_dedicated, is_realtime
from virt_core.apis.scheduling import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodAffinityTerm,
    PodAntiAffinity,
    PreferredSchedulingTerm,
)
from virt_core.apis.selectors import DOES_NOT_EXIST, IN
from virt_core.apis.vmi import VirtualMachineInstance

#: Whatever the node has, it can give.
_ANY_MODEL = ("", "host-model", "host-passthrough")
_NEEDED = ("", "require")
_FORBIDDEN = "forbid"
#: What not every KVM has.
_HYPERV = ("vpindex", "runtime", "reset", "synic", "synictimer", "frequencies", "reenlightenment", "tlbflush", "ipi")
#: What a node says whose processor can hide a guest's memory.
_PROTECTION = {
    launchsecurity.SEV: names.LABEL_SEV,
    launchsecurity.SEV_ES: names.LABEL_SEV_ES,
    launchsecurity.SNP: names.LABEL_SEV_SNP,
    launchsecurity.TDX: names.LABEL_TDX,
    launchsecurity.PV: names.LABEL_S390_PV,
}


def placement(vmi: VirtualMachineInstance, config: TemplateConfig) -> Parts:
    """What the user says goes before what follows from the machine."""
    chosen = _chosen(vmi, config)
    machine = _architecture(vmi, config)
    wishes = (machine | dict(processor(vmi)), machine)
    offered = next((wish for wish in wishes if _nodes_with(wish | chosen, config)), {})
    return Parts(node_selector=offered | chosen | _never_without(vmi, config) | {names.LABEL_SCHEDULABLE: "true"})


def _architecture(vmi: VirtualMachineInstance, config: TemplateConfig) -> dict[str, str]:
    name = vmi.spec.architecture
    if not name:
        return {}
    if config.cluster.has(ANY_ARCHITECTURE):
        return {names.LABEL_PREFIX_VM_ARCH + name: "true"}
    return {names.LABEL_NODE_ARCH: name}


def _never_without(vmi: VirtualMachineInstance, config: TemplateConfig) -> dict[str, str]:
    """Asked for even if no node offers it: elsewhere the guest would start, and share its CPUs, or lose them for a part
    of each second; and what Windows finds of Hyper-V would be another thing, where the cluster is strict about that. A
    guest that moves would lose what it uses of its processor."""
    needed = {names.LABEL_CPU_MANAGER_NEW: "true"} if is_dedicated(vmi) else {}
    if is_realtime(vmi):
        needed |= {names.LABEL_REALTIME: ""}
    if kind := launchsecurity.protection(vmi.spec):
        needed |= {_PROTECTION[kind]: ""}
    if config.move is not None:
        needed |= dict(config.move.processor)
    return needed | (dict(_hyperv(vmi)) if config.cluster.has("HypervStrictCheck") else {})


def _hyperv(vmi: VirtualMachineInstance) -> Iterator[tuple[str, str]]:
    """Nested guests of Hyper-V are Intel's own; of the others each node says what it has."""
    features = vmi.spec.domain.features
    asked = features.hyperv if features is not None else None
    for name in _HYPERV:
        if asked is not None and _is_on(getattr(asked, name)):
            yield names.LABEL_PREFIX_HYPERV + name, "true"
    if asked is not None and _is_on(asked.evmcs):
        yield names.LABEL_PREFIX_CPU_VENDOR + "Intel", "true"


def _is_on(state: object) -> bool:
    """What is named is on unless it says otherwise."""
    return state is not None and getattr(state, "enabled", None) is not False


def affinity(
    vmi: VirtualMachineInstance, config: TemplateConfig, needed: Iterable[NodeSelector] = ()
) -> Affinity | None:
    """The VMI's own, without the nodes whose processor has what the guest must not see, and with what is `needed`; and
    a Pod that the guest is to move to stays away from the node of the one that it leaves."""
    allowed = _near_its_volumes(_near_its_kind(_without_forbidden(vmi, config), vmi, config), config)
    for selector in needed:
        allowed = _only(allowed or Affinity(), selector)
    return allowed if config.move is None else _elsewhere(allowed or Affinity(), vmi)


def _near_its_kind(wanted: Affinity | None, vmi: VirtualMachineInstance, config: TemplateConfig) -> Affinity | None:
    """Where a node may emulate a foreign architecture, one of the machine's own goes first."""
    if not vmi.spec.architecture or not config.cluster.has(ANY_ARCHITECTURE):
        return wanted
    return _rather(wanted, names.LABEL_NODE_ARCH, [vmi.spec.architecture])


def _near_its_volumes(wanted: Affinity | None, config: TemplateConfig) -> Affinity | None:
    """The scheduler knows nothing of volumes that are brought later, and their storage may be one node's alone. Those
    that are bound say so themselves; of the others only the node for which they are being made is known."""
    for selector in config.reach:
        wanted = _only(wanted or Affinity(), selector)
    return _rather(wanted, names.LABEL_NODE_HOSTNAME, list(config.near)) if config.near else wanted


def _rather(wanted: Affinity | None, key: str, values: list[str]) -> Affinity:
    own = NodeSelectorRequirement(key=key, operator=IN, values=values)
    term = PreferredSchedulingTerm(weight=100, preference=NodeSelectorTerm(match_expressions=[own]))
    wanted = wanted or Affinity()
    node = wanted.node_affinity or NodeAffinity()
    preferred = [*node.preferred_during_scheduling_ignored_during_execution, term]
    node = replace(node, preferred_during_scheduling_ignored_during_execution=preferred)
    return replace(wanted, node_affinity=node)


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
    added = dict(config.move.node_selector) if config.move is not None else {}
    return added | dict(config.cluster.node_selectors) | vmi.spec.node_selector


def _nodes_with(wanted: dict[str, str], config: TemplateConfig) -> list[Mapping[str, str]]:
    """Those that have all of it: of two that have half each, neither will do."""
    return [labels for labels in config.node_labels if wanted.items() <= labels.items()]


def processor(vmi: VirtualMachineInstance) -> Iterator[tuple[str, str]]:
    """What the VMI names of it, as labels."""
    cpu = vmi.spec.domain.cpu
    if cpu is None:
        return
    if cpu.model not in _ANY_MODEL:
        yield names.LABEL_PREFIX_CPU_MODEL + cpu.model, "true"
    for feature in cpu.features:
        if feature.policy in _NEEDED:
            yield names.LABEL_PREFIX_CPU_FEATURE + feature.name, "true"


def _without(wanted: Affinity, keys: Iterable[str]) -> Affinity:
    absent = [NodeSelectorRequirement(key=key, operator=DOES_NOT_EXIST) for key in keys]
    return _only(wanted, NodeSelector(node_selector_terms=[NodeSelectorTerm(match_expressions=absent)]))


def _only(wanted: Affinity, selector: NodeSelector) -> Affinity:
    """One of the terms must hold, so each of them is joined with each of the others."""
    node = wanted.node_affinity or NodeAffinity()
    required = node.required_during_scheduling_ignored_during_execution
    terms = required.node_selector_terms if required is not None else [NodeSelectorTerm()]
    joined = [_both(term, other) for term in terms for other in selector.node_selector_terms]
    both = NodeSelector(node_selector_terms=joined)
    return replace(wanted, node_affinity=replace(node, required_during_scheduling_ignored_during_execution=both))


def _both(one: NodeSelectorTerm, other: NodeSelectorTerm) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        match_expressions=[*one.match_expressions, *other.match_expressions],
        match_fields=[*one.match_fields, *other.match_fields],
    )
