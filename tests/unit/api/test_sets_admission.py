"""Replica sets, pools and presets."""

from __future__ import annotations

from typing import Any

import pytest
from unit.api.fakecluster import FakeCluster, meta
from unit.api.reviews import create, hooks, update, vm, vmi

from virt_core.apis.base import from_plain
from virt_core.apis.preset import VirtualMachineInstancePreset, VirtualMachineInstancePresetSpec

INVALID, REQUIRED = "FieldValueInvalid", "FieldValueRequired"
NOT_SUPPORTED, FORBIDDEN = "FieldValueNotSupported", "FieldValueForbidden"


def thing(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": kind,
        "metadata": {"name": "t", "namespace": "default"},
        "spec": spec,
    }


def replica_set(**spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": vmi()["spec"]}
    base = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    return thing("VirtualMachineInstanceReplicaSet", {**base, **spec})


def pool(**spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": vm()["spec"]}
    base = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "virtualMachineTemplate": template}
    return thing("VirtualMachinePool", {**base, **spec})


BOTH = [replica_set, pool]


@pytest.mark.parametrize("make", BOTH)
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"replicas": -1}, "spec.replicas"),
        ({"selector": {"matchLabels": {"z": "z"}}}, "spec.selector"),
        ({"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}, "spec.selector"),
        ({"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}, "spec.selector"),
        ({"selector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}}, "spec.selector"),
        ({"selector": {"matchExpressions": [{"key": "", "operator": "Exists"}]}}, "spec.selector"),
        ({"selector": {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]}}, "spec.selector"),
        ({"surprise": 1}, "spec.surprise"),
    ],
)
def test_sets_refuse(make: Any, change: dict[str, Any], field: str) -> None:
    assert create(make(**change)).causes == [(field, INVALID)]


@pytest.mark.parametrize("make", BOTH)
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"replicas": 0},
        {"paused": True},
        {"selector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "c"]}]}},
        {"selector": {"matchExpressions": [{"key": "z", "operator": "DoesNotExist"}]}},
    ],
)
def test_sets_accept(make: Any, change: dict[str, Any]) -> None:
    verdict = create(make(**change))
    assert verdict.code == 201, verdict.message
    assert verdict.admitted == make(**change)


def selecting(strategy: str, **selectors: Any) -> dict[str, Any]:
    return {strategy: {"proactive": {"selectionPolicy": {"selectors": selectors}}}}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"maxUnavailable": 0}, "spec.maxUnavailable"),
        ({"maxUnavailable": "0%"}, "spec.maxUnavailable"),
        ({"maxUnavailable": "101%"}, "spec.maxUnavailable"),
        ({"maxUnavailable": "many"}, "spec.maxUnavailable"),
        ({"scaleInStrategy": {"unmanaged": {}, "proactive": {}}}, "spec.scaleInStrategy"),
        ({"updateStrategy": {"opportunistic": {}, "proactive": {}}}, "spec.updateStrategy"),
        (
            {"updateStrategy": {"proactive": {"selectionPolicy": {"sortPolicy": "Best"}}}},
            "spec.updateStrategy.proactive.selectionPolicy.sortPolicy",
        ),
        (
            {"scaleInStrategy": {"opportunistic": {"statePreservation": "Maybe"}}},
            "spec.scaleInStrategy.opportunistic.statePreservation",
        ),
        (
            selecting("scaleInStrategy", labelSelector={"matchExpressions": [{"key": "a", "operator": "Is"}]}),
            "spec.scaleInStrategy.proactive.selectionPolicy.selectors.labelSelector",
        ),
        (
            selecting("updateStrategy", nodeSelectorRequirementMatcher=[{"key": "a", "operator": "Is"}]),
            "spec.updateStrategy.proactive.selectionPolicy.selectors.nodeSelectorRequirementMatcher[0].operator",
        ),
        ({"autohealing": {"startUpFailureThreshold": 0}}, "spec.autohealing.startUpFailureThreshold"),
    ],
)
def test_pools_refuse(change: dict[str, Any], field: str) -> None:
    assert create(pool(**change)).causes == [(field, INVALID)]


@pytest.mark.parametrize("value", [1, "1%", "100%"])
def test_how_many_of_a_pool_may_be_away(value: Any) -> None:
    assert create(pool(maxUnavailable=value)).code == 201


def test_the_selector_of_a_pool_stays() -> None:
    new = pool(selector={"matchExpressions": [{"key": "a", "operator": "Exists"}]})
    assert update(new, pool(), "/virtualmachinepool-validate").causes == [("spec.selector", INVALID)]
    assert update(pool(replicas=3), pool(), "/virtualmachinepool-validate").code == 200


def test_a_pool_names_the_field_of_its_machine() -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": vm(runStrategy="Never")["spec"]}
    verdict = create(pool(virtualMachineTemplate=template))
    assert verdict.causes == [("spec.virtualMachineTemplate.spec.runStrategy", INVALID)]


# Presets


def preset(name: str, **domain: Any) -> VirtualMachineInstancePreset:
    spec = {"selector": {"matchLabels": {"p": "1"}}, "domain": domain}
    return VirtualMachineInstancePreset(metadata=meta(name), spec=from_plain(spec, VirtualMachineInstancePresetSpec))


def labelled(**annotations: str) -> dict[str, Any]:
    obj = vmi()
    obj["metadata"].update(labels={"p": "1"}, annotations=annotations)
    return obj


def test_a_preset_fills_in_what_is_not_said() -> None:
    cluster = FakeCluster(preset("one", cpu={"cores": 3}, resources={"requests": {"memory": "1Gi"}}))
    admitted = create(labelled(), using=hooks(cluster)).admitted
    assert admitted["spec"]["domain"]["cpu"]["cores"] == 3
    assert admitted["spec"]["domain"]["memory"]["guest"] == "128Mi"
    assert admitted["metadata"]["annotations"]["virtualmachinepreset.kubevirt.io/one"] == "kubevirt.io/v1"


def test_what_the_vmi_says_wins() -> None:
    obj = labelled()
    obj["spec"]["domain"]["cpu"] = {"cores": 1}
    admitted = create(obj, using=hooks(FakeCluster(preset("one", cpu={"cores": 3})))).admitted
    assert admitted["spec"]["domain"]["cpu"]["cores"] == 1
    assert "virtualmachinepreset.kubevirt.io/one" not in admitted["metadata"]["annotations"]


def test_a_vmi_can_want_no_presets_and_others_are_not_meant() -> None:
    using = hooks(FakeCluster(preset("one", cpu={"cores": 3})))
    excluded = labelled(**{"virtualmachineinstancepresets.admission.kubevirt.io/exclude": "true"})
    for obj in (excluded, vmi()):
        assert create(obj, using=using).admitted["spec"]["domain"]["cpu"]["cores"] == 1


def test_presets_that_disagree_are_refused() -> None:
    cluster = FakeCluster(preset("one", cpu={"cores": 3}), preset("two", cpu={"cores": 2}))
    assert create(labelled(), using=hooks(cluster)).causes == [("spec.domain.cpu", INVALID)]


def test_a_manifest_that_a_preset_filled_in_can_be_sent_again() -> None:
    using = hooks(FakeCluster(preset("one", cpu={"cores": 3})))
    path = "/virtualmachineinstances-mutate"
    old = create(labelled(), using=using).admitted
    assert update(labelled(), old, path, using=using).admitted["spec"] == old["spec"]
    other = hooks(FakeCluster(preset("one", cpu={"cores": 4})))
    assert update(labelled(), old, path, using=other).admitted["spec"] != old["spec"]
    at_odds = hooks(FakeCluster(preset("one", cpu={"cores": 3}), preset("two", cpu={"cores": 2})))
    assert update(labelled(), old, path, using=at_odds).code == 200


def test_the_cached_preset_is_never_changed() -> None:
    found = preset("one", features={"smm": {}})
    using = hooks(FakeCluster(found))
    create(labelled(), using=using)
    assert found.spec.domain is not None
    assert found.spec.domain.features is not None
    assert found.spec.domain.features.smm is not None
    assert found.spec.domain.features.smm.enabled is None


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        ({"selector": {}, "domain": {"devices": {}}}, []),
        ({"selector": {}}, [("spec.domain", REQUIRED)]),
        (
            {"selector": {}, "domain": {"devices": {}, "firmware": {"bootloader": {"bios": {}, "efi": {}}}}},
            [("spec.domain.firmware.bootloader", INVALID)],
        ),
        (
            {"selector": {}, "domain": {"devices": {"disks": [{"name": "d", "disk": {"bus": "ide"}}]}}},
            [("spec.domain.devices.disks[0].disk.bus", INVALID)],
        ),
    ],
)
def test_presets_are_checked_and_warned_about(spec: dict[str, Any], causes: list[tuple[str, str]]) -> None:
    verdict = create(thing("VirtualMachineInstancePreset", spec))
    assert verdict.causes == causes
    assert bool(verdict.warnings) is not bool(causes)
