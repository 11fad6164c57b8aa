"""Where a launcher Pod may go: to nodes that can run the machine, as long as there is one."""

from __future__ import annotations

from typing import Any

import pytest
from framework.vmis import vmi

from virt_controller.launcher_pod import TemplateConfig, render
from virt_core.apis import names
from virt_core.apis.base import to_plain
from virt_core.kube.configvalues import ClusterConfig

AMD64 = {"kubernetes.io/arch": "amd64"}
NEHALEM = {"cpu-model.node.kubevirt.io/Nehalem": "true"}
AES = {"cpu-feature.node.kubevirt.io/aes": "true"}
AVX = {"cpu-feature.node.kubevirt.io/avx": "true"}
READY = {names.LABEL_SCHEDULABLE: "true"}


def spec_of(cpu: dict[str, Any], *nodes: dict[str, str], **spec: Any) -> dict[str, Any]:
    machine = vmi(spec={"architecture": "amd64", "domain": {"devices": {}, "cpu": cpu}, **spec})
    # All are in the pool to which the cluster's configuration sends machines.
    labels = [node | {"pool": "vms"} for node in nodes]
    config = TemplateConfig("launcher:v1", node_labels=labels, cluster=ClusterConfig(node_selectors={"pool": "vms"}))
    plain: dict[str, Any] = to_plain(render(machine, config).spec)
    return plain


def selector(cpu: dict[str, Any], *nodes: dict[str, str], **spec: Any) -> dict[str, str]:
    chosen: dict[str, str] = spec_of(cpu, *nodes, **spec)["nodeSelector"]
    assert chosen.items() >= (READY | {"pool": "vms"}).items()
    return {key: value for key, value in chosen.items() if key not in READY | {"pool": "vms"}}


@pytest.mark.parametrize("model", ["", "host-model", "host-passthrough"])
def test_any_node_of_the_architecture_has_the_hosts_processor(model: str) -> None:
    assert selector({"model": model}, AMD64 | NEHALEM) == AMD64


def test_named_model_goes_to_a_node_that_offers_it() -> None:
    assert selector({"model": "Nehalem"}, AMD64, AMD64 | NEHALEM) == AMD64 | NEHALEM


@pytest.mark.parametrize(("policy", "asked"), [("", True), ("require", True), ("force", False), ("optional", False)])
def test_features_that_the_guest_needs_are_looked_for(policy: str, asked: bool) -> None:
    cpu = {"features": [{"name": "aes", "policy": policy}]}
    assert selector(cpu, AMD64 | AES) == AMD64 | (AES if asked else {})


def test_what_no_node_offers_is_left_to_the_launcher() -> None:
    """It says which field is wrong; a Pod that waits for ever would not. The architecture still holds."""
    assert selector({"model": "nosuchmodel"}, AMD64 | NEHALEM) == AMD64
    assert selector({"model": "no such model!"}, {"kubernetes.io/arch": "arm64"}) == {}
    assert selector({"model": "Nehalem"}) == {}


@pytest.mark.parametrize("nodes", [(), (AMD64,), (AMD64 | {names.LABEL_CPU_MANAGER_NEW: "false"},)])
def test_cpus_of_its_own_are_asked_for_even_if_no_node_has_them(nodes: tuple[dict[str, str], ...]) -> None:
    chosen = selector({"dedicatedCpuPlacement": True}, *nodes, nodeSelector={names.LABEL_CPU_MANAGER_NEW: "false"})
    assert chosen[names.LABEL_CPU_MANAGER_NEW] == "true"


def test_one_node_must_offer_all_of_it() -> None:
    cpu = {"model": "Nehalem", "features": [{"name": "aes"}]}
    assert selector(cpu, AMD64 | NEHALEM, AMD64 | AES) == AMD64
    assert selector(cpu, AMD64 | NEHALEM, AMD64 | NEHALEM | AES) == AMD64 | NEHALEM | AES


def test_nodes_that_the_user_does_not_want_do_not_count() -> None:
    cpu = {"model": "Nehalem"}
    assert selector(cpu, AMD64 | NEHALEM, {"disk": "ssd"}, nodeSelector={"disk": "ssd"}) == {"disk": "ssd"}
    assert selector(cpu, {"disk": "ssd"} | NEHALEM, AMD64 | {"disk": "ssd"}, nodeSelector={"disk": "ssd"}) == (
        AMD64 | {"disk": "ssd"}
    )


def test_the_users_own_words_win() -> None:
    own = {"kubernetes.io/arch": "arm64", "disk": "ssd"}
    assert selector({}, AMD64, nodeSelector=own) == own


def terms(spec: dict[str, Any]) -> list[list[tuple[str, str]]]:
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return [[(e["key"], e["operator"]) for e in term["matchExpressions"]] for term in required["nodeSelectorTerms"]]


FORBID_AVX = {"features": [{"name": "avx", "policy": "forbid"}]}
WITHOUT_AVX = ("cpu-feature.node.kubevirt.io/avx", "DoesNotExist")


def test_forbidden_features_keep_it_from_nodes_that_have_them() -> None:
    assert terms(spec_of(FORBID_AVX, AMD64 | AVX, AMD64)) == [[WITHOUT_AVX]]


def test_forbidden_features_are_added_to_each_alternative() -> None:
    zones = [{"matchExpressions": [{"key": key, "operator": "Exists"}]} for key in ("a", "b")]
    own = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": zones}}}
    found = terms(spec_of(FORBID_AVX, AMD64, affinity=own))
    assert found == [[("a", "Exists"), WITHOUT_AVX], [("b", "Exists"), WITHOUT_AVX]]


def test_feature_that_every_allowed_node_has_is_left_to_the_launcher() -> None:
    assert "affinity" not in spec_of(FORBID_AVX, AMD64 | AVX)
    assert "affinity" not in spec_of(FORBID_AVX, AMD64 | AVX | {"disk": "ssd"}, AMD64, nodeSelector={"disk": "ssd"})
