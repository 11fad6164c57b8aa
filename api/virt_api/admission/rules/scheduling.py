"""Rules about where a VMI may run: what the Pod's own validation would refuse later, said now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from virt_api.admission.causes import Cause, duplicate, invalid, not_supported, one_of, required
from virt_api.admission.rules.base import Check
from virt_core.apis import selectors
from virt_core.apis.scheduling import (
    NodeAffinity,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    PodAntiAffinity,
)

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def affinity(check: Check) -> Iterator[Cause]:
    wanted = check.spec.affinity
    if wanted is None:
        return
    field = f"{check.path}.affinity"
    if wanted.node_affinity is not None:
        yield from _node_affinity(f"{field}.nodeAffinity", wanted.node_affinity)
    if wanted.pod_affinity is not None:
        yield from _pod_affinity(f"{field}.podAffinity", wanted.pod_affinity)
    if wanted.pod_anti_affinity is not None:
        yield from _pod_affinity(f"{field}.podAntiAffinity", wanted.pod_anti_affinity)


def _node_affinity(field: str, node: NodeAffinity) -> Iterator[Cause]:
    needed = node.required_during_scheduling_ignored_during_execution
    if needed is not None:
        if not needed.node_selector_terms:
            yield required(f"{field}.{_REQUIRED}.nodeSelectorTerms", "at least one term is needed")
        for i, term in enumerate(needed.node_selector_terms):
            yield from _node_term(f"{field}.{_REQUIRED}.nodeSelectorTerms[{i}]", term)
    for i, preferred in enumerate(node.preferred_during_scheduling_ignored_during_execution):
        at = f"{field}.{_PREFERRED}[{i}]"
        yield from _weight(at, preferred.weight)
        yield from _node_term(f"{at}.preference", preferred.preference)


def _node_term(field: str, term: NodeSelectorTerm) -> Iterator[Cause]:
    for i, expression in enumerate(term.match_expressions):
        at = f"{field}.matchExpressions[{i}]"
        if not expression.key:
            yield required(f"{at}.key", "must be given")
        if expression.operator not in selectors.NODE_OPERATORS:
            yield invalid(f"{at}.operator", one_of(expression.operator, selectors.NODE_OPERATORS))
        elif expression.operator in selectors.WITH_VALUES and not expression.values:
            yield required(f"{at}.values", f"{expression.operator} needs values")
        elif expression.operator in selectors.WITHOUT_VALUES and expression.values:
            yield invalid(f"{at}.values", f"{expression.operator} takes no values")
        elif expression.operator in selectors.ONE_NUMBER and len(expression.values) != 1:
            yield required(f"{at}.values", f"{expression.operator} takes exactly one number")


def _pod_affinity(field: str, pods: PodAffinity | PodAntiAffinity) -> Iterator[Cause]:
    yield from _pod_terms(f"{field}.{_REQUIRED}", pods.required_during_scheduling_ignored_during_execution, suffix="")
    preferred = pods.preferred_during_scheduling_ignored_during_execution
    for i, weighted in enumerate(preferred):
        yield from _weight(f"{field}.{_PREFERRED}[{i}]", weighted.weight)
    yield from _pod_terms(f"{field}.{_PREFERRED}", [w.pod_affinity_term for w in preferred], suffix=".podAffinityTerm")


def _pod_terms(field: str, terms: Sequence[PodAffinityTerm], *, suffix: str) -> Iterator[Cause]:
    for i, term in enumerate(terms):
        if not term.topology_key:
            yield required(f"{field}[{i}]{suffix}.topologyKey", "must be given")


def _weight(field: str, weight: int) -> Iterator[Cause]:
    if not 1 <= weight <= 100:
        yield invalid(f"{field}.weight", "must be from 1 to 100")


def topology_spread(check: Check) -> Iterator[Cause]:
    seen: set[tuple[str, str]] = set()
    for i, constraint in enumerate(check.spec.topology_spread_constraints):
        field = f"{check.path}.topologySpreadConstraints[{i}]"
        if constraint.max_skew <= 0:
            yield invalid(f"{field}.maxSkew", "must be more than 0")
        if not constraint.topology_key:
            yield required(f"{field}.topologyKey", "must be given")
        if constraint.when_unsatisfiable not in ("DoNotSchedule", "ScheduleAnyway"):
            yield not_supported(
                f"{field}.whenUnsatisfiable", one_of(constraint.when_unsatisfiable, ("DoNotSchedule", "ScheduleAnyway"))
            )
        pair = (constraint.topology_key, constraint.when_unsatisfiable)
        if pair in seen:
            yield duplicate(f"{field}", "the same constraint is given twice")
        seen.add(pair)
