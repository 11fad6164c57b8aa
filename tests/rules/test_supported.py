"""The table of supported features is what happens: each row that is not built is refused, no other is."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from framework.samples import put
from unit.api.reviews import ON_CREATE, TODAY_HOOKS, Verdict, create, vm, vmi

from virt_core.apis.registry import resource_by_kind
from virt_core.apis.support.feature import ABSENT, GATED, NEVER, NOT_YET, WORKS, Feature
from virt_core.apis.support.paths import Paths
from virt_core.apis.support.table import FEATURES, TODAY
from virt_core.apis.vm import VirtualMachineSpec
from virt_core.apis.vmi import VirtualMachineInstanceSpec
from virt_launcher.convert.not_built import NOT_BUILT

NOT_SUPPORTED = "FieldValueNotSupported"


def places(place: str, *states: str) -> list[Any]:
    found = ((feature, text) for feature in FEATURES if feature.state in states for text in getattr(feature, place))
    return [pytest.param(feature, text, id=text) for feature, text in found]


def replica_set() -> dict[str, Any]:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": vmi()["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    return {**vmi(), "kind": "VirtualMachineInstanceReplicaSet", "spec": spec}


def pool() -> dict[str, Any]:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": vm()["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "virtualMachineTemplate": template}
    return {**vmi(), "kind": "VirtualMachinePool", "spec": spec}


#: what holds a machine, and the names that lead to the machine's spec
HOLDERS = {
    "VMI": (vmi, "spec"),
    "VM": (vm, "spec.template.spec"),
    "replica set": (replica_set, "spec.template.spec"),
    "pool": (pool, "spec.virtualMachineTemplate.spec.template.spec"),
}


def at(document: dict[str, Any], path: str) -> dict[str, Any]:
    for name in path.split(".") if path else ():
        document = document.setdefault(name, {})
    return document


def refused(verdict: Verdict, path: str, feature: Feature) -> None:
    assert verdict.code == 422
    assert (path, NOT_SUPPORTED) in verdict.causes
    assert f"{path}: {feature.refusal}" in verdict.message


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize(("feature", "path"), places("fields", *ABSENT))
def test_a_field_that_is_not_built_is_refused_by_its_path(feature: Feature, path: str, holder: str) -> None:
    make, spec = HOLDERS[holder]
    document = copy.deepcopy(make())
    exact = put(at(document, spec), path, VirtualMachineInstanceSpec)
    refused(create(document, using=TODAY_HOOKS), f"{spec}.{exact}", feature)


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize(("feature", "text"), places("annotations", *ABSENT))
def test_an_annotation_that_is_not_built_is_refused(feature: Feature, text: str, holder: str) -> None:
    make, spec = HOLDERS[holder]
    document, (name, _, value) = copy.deepcopy(make()), text.partition("=")
    metadata = f"{spec.rpartition('.')[0]}.metadata".removeprefix(".")
    at(document, metadata)["annotations"] = {name: value or "x"}
    refused(create(document, using=TODAY_HOOKS), f"{metadata}.annotations[{name}]", feature)


@pytest.mark.parametrize("holder", ["VM", "pool"])
@pytest.mark.parametrize(("feature", "path"), places("vm_fields", *ABSENT))
def test_a_field_of_a_vm_that_is_not_built_is_refused(feature: Feature, path: str, holder: str) -> None:
    document, spec = {"VM": (vm(), "spec"), "pool": (pool(), "spec.virtualMachineTemplate.spec")}[holder]
    exact = put(at(document, spec), path, VirtualMachineSpec)
    refused(create(document, using=TODAY_HOOKS), f"{spec}.{exact}", feature)


@pytest.mark.parametrize(("feature", "kind"), places("kinds", *ABSENT))
def test_a_kind_that_is_not_built_is_refused(feature: Feature, kind: str) -> None:
    document = {"apiVersion": resource_by_kind(kind).api_version, "kind": kind, "metadata": {"name": "x"}, "spec": {}}
    verdict = create(document, using=TODAY_HOOKS)
    assert (verdict.code, verdict.message) == (422, f"{kind}: {feature.refusal}")


@pytest.mark.parametrize(("feature", "path"), places("fields", WORKS, GATED))
def test_a_field_that_works_is_refused_neither_at_the_door_nor_by_the_launcher(feature: Feature, path: str) -> None:
    spec: dict[str, Any] = {}
    put(spec, path, VirtualMachineInstanceSpec)
    assert TODAY.of_machine(spec) == []
    assert Paths(NOT_BUILT).asked(spec, "spec") == []


@pytest.mark.parametrize(("feature", "path"), places("fields", *ABSENT))
def test_the_launcher_refuses_what_it_cannot_make(feature: Feature, path: str) -> None:
    spec: dict[str, Any] = {}
    exact = put(spec, path, VirtualMachineInstanceSpec)
    expected = [(f"spec.{exact}", feature.refusal)] if feature.in_launcher else []
    assert Paths(NOT_BUILT).asked(spec, "spec") == expected


def test_rows_have_names_of_their_own_and_each_kind_has_a_webhook() -> None:
    assert len({feature.what for feature in FEATURES}) == len(FEATURES)
    for feature in FEATURES:
        assert feature.state in (WORKS, GATED, NOT_YET, NEVER)
        assert feature.state != NEVER or feature.note, f"{feature.what}: a decision has a reason or another way"
        assert feature.state != GATED or len(feature.gates) == 1
        assert set(feature.kinds) <= set(ON_CREATE)
        for path in feature.vm_fields:
            put({}, path, VirtualMachineSpec)
