"""Which nodes fit a Pod, and why the others do not. Pure: nodes and Pods in, a node's name or a sentence out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from virt_core.apis.nodes import Node, Taint
from virt_core.apis.pods import Pod
from virt_core.apis.scheduling import NodeSelectorTerm, PodAffinityTerm, Toleration
from virt_core.apis.selectors import all_hold, is_empty, matches
from virt_local.controllers.scheduler.resources import Amounts, amounts, requests

_DEFAULT_PODS = 110
_BLOCKING = ("NoSchedule", "NoExecute")


@dataclass(slots=True)
class NodeState:
    """A node with the Pods that are on it or on their way to it."""

    node: Node
    pods: list[Pod] = field(default_factory=list)
    used: Amounts = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.node.metadata.name

    @property
    def labels(self) -> dict[str, str]:
        return self.node.metadata.labels

    def add(self, pod: Pod) -> None:
        self.pods.append(pod)
        for resource, value in requests(pod).items():
            self.used[resource] = self.used.get(resource, 0) + value


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen node, or the sentence that goes into the Pod's condition."""

    node: str = ""
    message: str = ""


Check = Callable[[Pod, NodeState, Sequence[NodeState]], list[str]]


def choose(pod: Pod, nodes: Sequence[NodeState], volumes_fit: Callable[[NodeState], bool] = lambda _: True) -> Choice:
    """The fitting node that is preferred most and, of those, has the fewest Pods. `volumes_fit`: whether a node reaches
    the Pod's volumes."""
    if not nodes:
        return Choice(message="no nodes available to schedule pods")
    fitting: list[NodeState] = []
    reasons: Counter[str] = Counter()
    for state in nodes:
        problems = problems_of(pod, state, nodes)
        if not problems and not volumes_fit(state):
            problems = ["node(s) had volume node affinity conflict"]
        reasons.update(problems)
        if not problems:
            fitting.append(state)
    if not fitting:
        told = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
        return Choice(message=f"0/{len(nodes)} nodes are available: {told}.")
    best = min(fitting, key=lambda state: (-preference(pod, state), len(state.pods), state.name))
    return Choice(node=best.name)


def problems_of(pod: Pod, state: NodeState, nodes: Sequence[NodeState]) -> list[str]:
    """What the first failing check says: the cheap and telling checks come first."""
    for check in _CHECKS:
        problems = check(pod, state, nodes)
        if problems:
            return problems
    return []


def preference(pod: Pod, state: NodeState) -> int:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    if affinity is None:
        return 0
    preferred = affinity.preferred_during_scheduling_ignored_during_execution
    return sum(term.weight for term in preferred if term_matches(term.preference, state))


def _unschedulable(pod: Pod, state: NodeState, _nodes: Sequence[NodeState]) -> list[str]:
    if not state.node.spec.unschedulable:
        return []
    cordon = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
    return [] if _tolerated(pod.spec.tolerations, cordon) else ["node(s) were unschedulable"]


def _taints(pod: Pod, state: NodeState, _nodes: Sequence[NodeState]) -> list[str]:
    for taint in state.node.spec.taints:
        if taint.effect in _BLOCKING and not _tolerated(pod.spec.tolerations, taint):
            return [f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"]
    return []


def _tolerated(tolerations: Sequence[Toleration], taint: Taint) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value


def _labels(pod: Pod, state: NodeState, _nodes: Sequence[NodeState]) -> list[str]:
    problem = ["node(s) didn't match Pod's node affinity/selector"]
    if any(state.labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return problem
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if required is None or any(term_matches(term, state) for term in required.node_selector_terms):
        return []
    return problem


def term_matches(term: NodeSelectorTerm, state: NodeState) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": state.name}
    return all_hold(term.match_expressions, state.labels) and all_hold(term.match_fields, fields)


def _resources(pod: Pod, state: NodeState, _nodes: Sequence[NodeState]) -> list[str]:
    offered = amounts(state.node.status.allocatable or state.node.status.capacity)
    problems = ["Too many pods"] if len(state.pods) + 1 > offered.get("pods", _DEFAULT_PODS) else []
    for resource, wanted in sorted(requests(pod).items()):
        if wanted > 0 and wanted > offered.get(resource, 0) - state.used.get(resource, 0):
            problems.append(f"Insufficient {resource}")
    return problems


def _affinity(pod: Pod, state: NodeState, nodes: Sequence[NodeState]) -> list[str]:
    affinity = pod.spec.affinity.pod_affinity if pod.spec.affinity else None
    for term in affinity.required_during_scheduling_ignored_during_execution if affinity else ():
        near = any(_term_selects(term, pod, other) for other in _neighbours(term.topology_key, state, nodes))
        # The first of a group that wants to be together has nobody to join yet.
        first = _term_selects(term, pod, pod) and not any(
            _term_selects(term, pod, other) for each in nodes for other in each.pods
        )
        if not near and not (first and term.topology_key in state.labels):
            return ["node(s) didn't match pod affinity rules"]
    return []


def _anti_affinity(pod: Pod, state: NodeState, nodes: Sequence[NodeState]) -> list[str]:
    for term in _anti_terms(pod):
        if any(_term_selects(term, pod, other) for other in _neighbours(term.topology_key, state, nodes)):
            return ["node(s) didn't match pod anti-affinity rules"]
    for each in nodes:
        for other in each.pods:
            for term in _anti_terms(other):
                if _same_topology(term.topology_key, each, state) and _term_selects(term, other, pod):
                    return ["node(s) didn't satisfy existing pods anti-affinity rules"]
    return []


def _anti_terms(pod: Pod) -> list[PodAffinityTerm]:
    anti = pod.spec.affinity.pod_anti_affinity if pod.spec.affinity else None
    return anti.required_during_scheduling_ignored_during_execution if anti else []


def _neighbours(topology_key: str, state: NodeState, nodes: Sequence[NodeState]) -> list[Pod]:
    return [pod for other in nodes if _same_topology(topology_key, other, state) for pod in other.pods]


def _same_topology(key: str, one: NodeState, other: NodeState) -> bool:
    return key in one.labels and one.labels[key] == other.labels.get(key)


def _term_selects(term: PodAffinityTerm, owner: Pod, other: Pod) -> bool:
    """`owner` is the Pod whose term it is. A namespace selector can only say "all" here: an empty one. A term without a
    label selector selects no Pod."""
    everywhere = term.namespace_selector is not None and is_empty(term.namespace_selector)
    namespaces = term.namespaces or [owner.metadata.namespace]
    if not everywhere and other.metadata.namespace not in namespaces:
        return False
    return term.label_selector is not None and matches(term.label_selector, other.metadata.labels)


_CHECKS: tuple[Check, ...] = (_unschedulable, _taints, _labels, _resources, _affinity, _anti_affinity)
