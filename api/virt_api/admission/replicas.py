"""Admission of what makes many machines of one template: replica sets and pools."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from virt_api.admission.causes import Cause, Refused, invalid, one_of
from virt_api.admission.defaults import apply_defaults
from virt_api.admission.metadata import template_metadata
from virt_api.admission.objects import document_of, is_terminating, read_member, user_of
from virt_api.admission.review import Accepted
from virt_api.admission.rules import SPEC_RULES, broken_rules
from virt_api.admission.rules.base import Check
from virt_api.admission.vm.validate import RUNNING_WARNING, broken_spec
from virt_core.apis import selectors
from virt_core.apis.admission import AdmissionRequest
from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.meta import LabelSelector, ObjectMeta
from virt_core.apis.pool import (
    VirtualMachinePoolAutohealingStrategy,
    VirtualMachinePoolSelectors,
    VirtualMachinePoolSpec,
)
from virt_core.apis.replicaset import VirtualMachineInstanceReplicaSetSpec
from virt_core.apis.vm import VirtualMachineInstanceTemplateSpec
from virt_core.apis.vmi import VirtualMachineInstanceSpec
from virt_core.kube.configvalues import ClusterConfig

STATE_PRESERVATION = ("Disabled", "Offline", "Online")
SORT_POLICIES = ("AscendingOrder", "DescendingOrder", "Newest", "Oldest", "Random")
_TEMPLATE = "spec.virtualMachineTemplate"
_PERCENT = re.compile(r"0*[0-9]{1,3}", re.ASCII)


class ReplicaSetValidator:
    def __init__(self, config: Callable[[], ClusterConfig], trusted: frozenset[str]) -> None:
        self._config, self._trusted = config, trusted

    def __call__(self, request: AdmissionRequest) -> None:
        """Raises Refused with every cause."""
        document = document_of(request.object)
        if is_terminating(document):
            return
        spec = read_member(document, VirtualMachineInstanceReplicaSetSpec)
        if causes := list(self._causes(spec, trusted=user_of(request) in self._trusted)):
            raise Refused(causes)

    def _causes(self, spec: VirtualMachineInstanceReplicaSetSpec, *, trusted: bool) -> Iterator[Cause]:
        config = self._config()
        yield from _count(spec.replicas)
        yield from _selector(spec.selector, spec.template.metadata)
        machine = spec.template.spec
        apply_defaults(machine, config)
        yield from broken_rules(Check(machine, config, "spec.template.spec"), SPEC_RULES)
        if spec.template.metadata is not None:
            yield from template_metadata("spec.template.metadata", spec.template.metadata, config, trusted=trusted)


class PoolValidator:
    def __init__(self, config: Callable[[], ClusterConfig], trusted: frozenset[str]) -> None:
        self._config, self._trusted = config, trusted

    def __call__(self, request: AdmissionRequest) -> Accepted:
        """Raises Refused with every cause."""
        document, old = document_of(request.object), document_of(request.old_object)
        if is_terminating(document):
            return Accepted()
        spec = read_member(document, VirtualMachinePoolSpec)
        causes = list(self._causes(spec, trusted=user_of(request) in self._trusted))
        if request.operation == "UPDATE" and _plain_selector(document) != _plain_selector(old):
            causes.append(invalid("spec.selector", "cannot be changed"))
        if causes:
            raise Refused(causes)
        warn = spec.virtual_machine_template.spec.running is not None
        return Accepted(warnings=[RUNNING_WARNING.replace("spec.", f"{_TEMPLATE}.spec.")] if warn else [])

    def _causes(self, spec: VirtualMachinePoolSpec, *, trusted: bool) -> Iterator[Cause]:
        vm = spec.virtual_machine_template.spec
        yield from _count(spec.replicas)
        yield from _selector(spec.selector, spec.virtual_machine_template.metadata)
        template = vm.template or VirtualMachineInstanceTemplateSpec()
        machine = from_plain(to_plain(template.spec), VirtualMachineInstanceSpec)
        yield from broken_spec(vm, machine, self._config(), f"{_TEMPLATE}.spec", trusted=trusted)
        yield from _max_unavailable(spec.max_unavailable)
        yield from _strategies(spec)
        yield from _healing(spec.autohealing)


def _plain_selector(document: dict[str, Any]) -> Any:
    return (document.get("spec") or {}).get("selector")


def _count(replicas: int | None) -> Iterator[Cause]:
    if replicas is not None and replicas < 0:
        yield invalid("spec.replicas", "must not be negative")


def _selector(selector: LabelSelector, metadata: ObjectMeta | None) -> Iterator[Cause]:
    if problem := selectors.flaw(selector):
        yield invalid("spec.selector", problem)
    elif not selectors.matches(selector, metadata.labels if metadata else {}):
        yield invalid("spec.selector", "does not match the labels of the template")


def _max_unavailable(value: int | str | None) -> Iterator[Cause]:
    field = "spec.maxUnavailable"
    if isinstance(value, str):
        number = value.removesuffix("%")
        if not value.endswith("%") or not (_PERCENT.fullmatch(number) and 0 < int(number) <= 100):
            yield invalid(field, f"{value!r} is not a percentage from 1% to 100%")
    elif value is not None and value <= 0:
        yield invalid(field, "must be more than 0")


def _strategies(spec: VirtualMachinePoolSpec) -> Iterator[Cause]:
    scale, update = spec.scale_in_strategy, spec.update_strategy
    for field, strategy in (("scaleInStrategy", scale), ("updateStrategy", update)):
        if strategy is None:
            continue
        if sum(s is not None for s in (strategy.unmanaged, strategy.opportunistic, strategy.proactive)) > 1:
            yield invalid(f"spec.{field}", "only one of unmanaged, opportunistic and proactive can be given")
        policy = strategy.proactive.selection_policy if strategy.proactive else None
        if policy is not None and policy.sort_policy not in (None, *SORT_POLICIES):
            at = f"spec.{field}.proactive.selectionPolicy.sortPolicy"
            yield invalid(at, one_of(policy.sort_policy or "", SORT_POLICIES))
        chosen = policy.selectors if policy is not None else None
        yield from _chosen(f"spec.{field}.proactive.selectionPolicy.selectors", chosen)
    for name, kept in (("opportunistic", scale and scale.opportunistic), ("proactive", scale and scale.proactive)):
        if kept and kept.state_preservation not in (None, *STATE_PRESERVATION):
            at = f"spec.scaleInStrategy.{name}.statePreservation"
            yield invalid(at, one_of(kept.state_preservation or "", STATE_PRESERVATION))


def _chosen(at: str, chosen: VirtualMachinePoolSelectors | None) -> Iterator[Cause]:
    """What cannot be understood would choose the wrong VMs."""
    if chosen is None:
        return
    if chosen.label_selector is not None and (problem := selectors.flaw(chosen.label_selector)):
        yield invalid(f"{at}.labelSelector", problem)
    for index, term in enumerate(chosen.node_selector_requirement_matcher):
        if term.operator not in selectors.NODE_OPERATORS:
            where = f"{at}.nodeSelectorRequirementMatcher[{index}].operator"
            yield invalid(where, one_of(term.operator, selectors.NODE_OPERATORS))


def _healing(strategy: VirtualMachinePoolAutohealingStrategy | None) -> Iterator[Cause]:
    threshold = strategy.start_up_failure_threshold if strategy is not None else None
    if threshold is not None and threshold < 1:
        yield invalid("spec.autohealing.startUpFailureThreshold", "must be at least 1")
