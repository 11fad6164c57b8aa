"""Where a Pod may run: affinity, tolerations, spread. Shared by Pods and VMIs."""

from __future__ import annotations

from virt_core.apis.base import Struct
from virt_core.apis.meta import LabelSelector


class NodeSelectorRequirement(Struct):
    """A node label, an operator (In, NotIn, Exists, DoesNotExist, Gt, Lt) and its values."""

    key: str  #: The label key.
    operator: str  #: In, NotIn, Exists, DoesNotExist, Gt or Lt.
    values: list[str] = []  #: The values that the operator compares with.


class NodeSelectorTerm(Struct):
    """All requirements of a term must hold."""

    match_expressions: list[NodeSelectorRequirement] = []  #: Requirements on the node's labels.
    match_fields: list[NodeSelectorRequirement] = []  #: Requirements on the node's fields.


class NodeSelector(Struct):
    """At least one term must hold."""

    node_selector_terms: list[NodeSelectorTerm]  #: The terms; one of them must match.


class PreferredSchedulingTerm(Struct):
    """A node preference with its weight."""

    weight: int  #: 1 to 100.
    preference: NodeSelectorTerm  #: What is preferred.


class NodeAffinity(Struct):
    """Which nodes are allowed, and which are preferred."""

    #: Nodes that do not match are never used.
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    #: Nodes that match more of these weigh more.
    preferred_during_scheduling_ignored_during_execution: list[PreferredSchedulingTerm] = []


class PodAffinityTerm(Struct):
    """A set of Pods, and the topology within which to be near to or far from them."""

    topology_key: str  #: The node label that says what "together" means.
    label_selector: LabelSelector | None = None  #: Selects the other Pods.
    namespaces: list[str] = []  #: Where the other Pods are; empty means this namespace.
    namespace_selector: LabelSelector | None = None  #: Selects namespaces of the other Pods.
    match_label_keys: list[str] = []  #: Pod label keys whose values must be equal.
    mismatch_label_keys: list[str] = []  #: Pod label keys whose values must differ.


class WeightedPodAffinityTerm(Struct):
    """A Pod affinity with its weight."""

    weight: int  #: 1 to 100.
    pod_affinity_term: PodAffinityTerm  #: The term.


class PodAffinity(Struct):
    """Pods to be near to."""

    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] = []  #: Must hold.
    preferred_during_scheduling_ignored_during_execution: list[WeightedPodAffinityTerm] = []  #: Should hold.


class PodAntiAffinity(Struct):
    """Pods to stay away from."""

    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] = []  #: Must hold.
    preferred_during_scheduling_ignored_during_execution: list[WeightedPodAffinityTerm] = []  #: Should hold.


class Affinity(Struct):
    """Scheduling constraints by node labels and by other Pods."""

    node_affinity: NodeAffinity | None = None  #: By node labels.
    pod_affinity: PodAffinity | None = None  #: Near to these Pods.
    pod_anti_affinity: PodAntiAffinity | None = None  #: Away from these Pods.


class Toleration(Struct):
    """Lets a Pod onto nodes with a matching taint."""

    key: str = ""  #: The taint's key; empty with Exists matches all.
    operator: str = ""  #: Exists or Equal (default).
    value: str = ""  #: The taint's value.
    effect: str = ""  #: NoSchedule, PreferNoSchedule or NoExecute; empty matches all.
    toleration_seconds: int | None = None  #: How long a NoExecute taint is tolerated.


class TopologySpreadConstraint(Struct):
    """How evenly matching Pods are spread over a topology."""

    max_skew: int  #: The largest allowed difference between two topology domains.
    topology_key: str  #: The node label that names the domain.
    when_unsatisfiable: str  #: DoNotSchedule or ScheduleAnyway.
    label_selector: LabelSelector | None = None  #: Which Pods are counted.
    min_domains: int | None = None  #: The least number of domains.
    node_affinity_policy: str | None = None  #: Honor or Ignore.
    node_taints_policy: str | None = None  #: Honor or Ignore.
    match_label_keys: list[str] = []  #: Pod label keys whose values narrow the selection.
