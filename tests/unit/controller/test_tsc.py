"""Guests that rely on their time stamp counter: which frequency they are promised, and where they can have it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from framework.vmis import vmi

from virt_controller.launcher_pod import TemplateConfig, render, tsc
from virt_controller.vmi.decide import scheduling
from virt_core.apis import names
from virt_core.apis.selectors import all_hold
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.configvalues import ClusterConfig

HZ = 2_000_000_000
INVTSC = {"cpu": {"features": [{"name": "aes"}, {"name": "invtsc", "policy": "require"}]}}
WINDOWS = {"features": {"hyperv": {"reenlightenment": {}}}}


def machine(domain: dict[str, Any], **more: Any) -> VirtualMachineInstance:
    return vmi(spec={"domain": {"memory": {"guest": "64Mi"}, "devices": {}, **domain}}, **more)


def node(hz: int, *, scalable: bool = False) -> dict[str, str]:
    prefix = names.LABEL_PREFIX_CPU_TIMER
    return {f"{prefix}tsc-frequency": str(hz), f"{prefix}tsc-scalable": "true" if scalable else "false"}


def config(*nodes: dict[str, str], minimum: int = 0) -> TemplateConfig:
    cluster = replace(ClusterConfig(), minimum_tsc_hz=minimum)
    return TemplateConfig("launcher:v1", node_labels=nodes, cluster=cluster)


@pytest.mark.parametrize("domain", [INVTSC, WINDOWS])
def test_the_lowest_of_all_nodes_is_promised(domain: dict[str, Any]) -> None:
    found = config(node(HZ + 5), node(HZ), {}, {"tsc-frequency": "7"})
    pod = render(machine(domain), found)
    assert pod.metadata.annotations[names.ANNOTATION_TSC_FREQUENCY] == str(HZ)
    promised = scheduling(machine(domain), "uid", datetime(2026, 1, 1, tzinfo=UTC), HZ).status.topology_hints
    assert promised is not None
    assert promised.tsc_frequency == HZ


def test_what_the_cluster_says_goes_first_and_what_was_promised_before_it() -> None:
    found = config(node(HZ), minimum=5)
    assert tsc.frequency(machine(INVTSC), found) == 5
    promised = machine(INVTSC, status={"topologyHints": {"tscFrequency": 7}})
    assert tsc.frequency(promised, found) == 7


@pytest.mark.parametrize(
    ("labels", "can"),
    [
        (node(HZ), True),
        (node(HZ + HZ // 4000), True),
        (node(HZ - HZ // 4000), True),
        (node(HZ + HZ // 4000 + 1), False),
        (node(HZ - HZ // 4000 - 1, scalable=True), False),
        (node(2 * HZ), False),
        (node(2 * HZ, scalable=True), True),
        ({}, False),
    ],
)
def test_it_goes_where_it_can_have_it(labels: dict[str, str], can: bool) -> None:
    """Within 250 parts of a million, or on a quicker node whose processor can be slowed down."""
    affinity = render(machine(WINDOWS), config(minimum=HZ)).spec.affinity
    assert affinity is not None
    assert affinity.node_affinity is not None
    required = affinity.node_affinity.required_during_scheduling_ignored_during_execution
    assert required is not None
    terms = required.node_selector_terms
    assert any(all_hold(term.match_expressions, labels) for term in terms) is can


def test_a_guest_that_cannot_do_without_waits_for_a_node_that_knows() -> None:
    """Windows only needs it to move, so it starts."""
    with pytest.raises(tsc.NoFrequencyError, match=r"^spec\.domain\.cpu\.features\[1\]: no node says") as refused:
        render(machine(INVTSC), config({}))
    assert refused.value.reason == "FailedGatherhingClusterTopologyHints"
    assert names.ANNOTATION_TSC_FREQUENCY not in render(machine(WINDOWS), config({})).metadata.annotations


@pytest.mark.parametrize(
    "domain",
    [
        {},
        {"cpu": {"features": [{"name": "invtsc", "policy": "disable"}]}},
        {"features": {"hyperv": {"reenlightenment": {"enabled": False}}}},
    ],
)
def test_others_are_promised_nothing(domain: dict[str, Any]) -> None:
    pod = render(machine(domain), config(node(HZ)))
    assert names.ANNOTATION_TSC_FREQUENCY not in pod.metadata.annotations
    assert pod.spec.affinity is None
