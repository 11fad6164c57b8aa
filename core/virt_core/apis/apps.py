"""Kinds of several small groups: ControllerRevision, PodDisruptionBudget, PriorityClass."""

from __future__ import annotations

from typing import Any

from msgspec import field

from virt_core.apis.base import Struct
from virt_core.apis.meta import Condition, LabelSelector, ObjectMeta, Time
from virt_core.apis.quantity import IntOrString


class ControllerRevision(Struct):
    """A remembered state of an object."""

    api_version: str = "apps/v1"
    kind: str = "ControllerRevision"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    data: dict[str, Any] | None = None
    revision: int = 0


class PodDisruptionBudgetSpec(Struct):
    """How many Pods may be taken away at once."""

    min_available: IntOrString | None = None
    selector: LabelSelector | None = None
    max_unavailable: IntOrString | None = None
    unhealthy_pod_eviction_policy: str | None = None


class PodDisruptionBudgetStatus(Struct):
    """How many may go right now."""

    observed_generation: int = 0
    disrupted_pods: dict[str, Time] = {}
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    conditions: list[Condition] = []


class PodDisruptionBudget(Struct):
    """Limits voluntary disruptions."""

    api_version: str = "policy/v1"
    kind: str = "PodDisruptionBudget"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PodDisruptionBudgetSpec = field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = field(default_factory=PodDisruptionBudgetStatus)


class PriorityClass(Struct):
    """A named priority of Pods."""

    api_version: str = "scheduling.k8s.io/v1"
    kind: str = "PriorityClass"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    value: int = 0
    global_default: bool = False
    description: str = ""
    preemption_policy: str | None = None
