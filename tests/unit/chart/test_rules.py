"""What Prometheus is asked to record: KubeVirt's names, from metrics and labels that somebody tells."""

from __future__ import annotations

import re

import pytest
from framework.chart import Object, all_of, one
from framework.reference_metrics import OF_DISKS, OF_KUBE_STATE, RULES_OF_STORAGE

from virt_core.apis import snapshot as words

ON = "prometheusRule: {enabled: true, labels: {release: prometheus}}"
KNOWN = {*OF_DISKS, *OF_KUBE_STATE, *RULES_OF_STORAGE}
#: Both sides of a join have them.
JOINED = {"namespace", "persistentvolumeclaim"}


def rules() -> dict[str, str]:
    (group,) = one("PrometheusRule", "virtpod", ON)["spec"]["groups"]
    return {rule["record"]: rule["expr"] for rule in group["rules"]}


def metrics(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:[a-z]+:)?kube(?:virt)?_\w+(?::\w+)?", expression))


def test_they_are_there_when_asked_for() -> None:
    assert not all_of("PrometheusRule")
    rule: Object = one("PrometheusRule", "virtpod", ON)
    assert rule["metadata"]["labels"]["release"] == "prometheus"


def test_the_rules_are_those_of_the_reference() -> None:
    assert tuple(rules()) == RULES_OF_STORAGE


@pytest.mark.parametrize("name", RULES_OF_STORAGE)
def test_a_rule_is_made_of_metrics_that_somebody_tells(name: str) -> None:
    used = metrics(rules()[name])
    assert used
    assert used <= KNOWN - {name}


def test_what_is_joined_has_the_labels_of_the_join() -> None:
    for expression in rules().values():
        for found in re.findall(r"\bon \(([^)]*)\)", expression):
            assert set(found.split(", ")) == JOINED
    told = {name: labels for name, (_, labels) in OF_DISKS.items()} | OF_KUBE_STATE
    assert all(set(labels) >= JOINED for labels in told.values())


def test_claims_are_found_by_the_labels_that_a_restore_gives_them() -> None:
    """As kube-state-metrics writes them."""
    expression = rules()["pvc:kubevirt_vmsnapshot_labels:info"]
    for label in (words.LABEL_RESTORED_NAME, words.LABEL_RESTORED_NAMESPACE):
        assert "label_" + re.sub(r"\W", "_", label) in expression


def test_the_namespace_of_a_machine_is_not_replaced_by_that_of_who_tells_of_it() -> None:
    (endpoint,) = one("ServiceMonitor", "virtpod", "serviceMonitor: {enabled: true}")["spec"]["endpoints"]
    assert endpoint["honorLabels"] is True
