"""Where a launcher Pod may go: to nodes that can run the machine, as long as there is one."""

from __future__ import annotations

from typing import Any

import pytest
from framework.vmis import vmi

from virt_controller.launcher_pod import TemplateConfig, memory, render
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


def foreign(*nodes: dict[str, str], **spec: Any) -> dict[str, Any]:
    """A machine of arm64, where the cluster lets nodes emulate other architectures."""
    machine = vmi(spec={"architecture": "arm64", "domain": {"devices": {}}, **spec})
    cluster = ClusterConfig(feature_gates=frozenset({"CrossArchitectureVirtualization"}))
    config = TemplateConfig("launcher:v1", node_labels=nodes, cluster=cluster)
    plain: dict[str, Any] = to_plain(render(machine, config).spec)
    return plain


def test_a_foreign_architecture_goes_where_it_is_emulated_and_rather_to_its_own() -> None:
    emulates = {"kubevirt.io/vm-arch-arm64": "true"}
    found = foreign(AMD64, AMD64 | emulates)
    assert found["nodeSelector"] == READY | emulates
    (term,) = found["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    own = {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}
    assert term == {"weight": 100, "preference": {"matchExpressions": [own]}}
    assert "--any-architecture" in found["containers"][0]["args"]


def test_without_the_gate_it_goes_to_its_own_only() -> None:
    arm64 = {"kubernetes.io/arch": "arm64"}
    found = spec_of({}, AMD64 | {"kubevirt.io/vm-arch-arm64": "true"}, arm64, architecture="arm64")
    assert found["nodeSelector"].items() >= arm64.items()
    assert "affinity" not in found
    assert "--any-architecture" not in found["containers"][0]["args"]


def windows(*gates: str) -> dict[str, str]:
    """The selector of a machine with enlightenments, on a cluster with these gates whose node has none of them."""
    hyperv = {"relaxed": {}, "vpindex": {}, "synictimer": {"direct": {}}, "ipi": {"enabled": False}, "evmcs": {}}
    machine = vmi(spec={"architecture": "amd64", "domain": {"devices": {}, "features": {"hyperv": hyperv}}})
    config = TemplateConfig("launcher:v1", node_labels=[AMD64], cluster=ClusterConfig(feature_gates=frozenset(gates)))
    return dict(render(machine, config).spec.node_selector)


def test_a_cluster_that_is_strict_about_hyperv_asks_for_it_in_any_case() -> None:
    assert windows() == AMD64 | READY
    assert windows("HypervStrictCheck") == AMD64 | READY | {
        "hyperv.node.kubevirt.io/vpindex": "true",
        "hyperv.node.kubevirt.io/synictimer": "true",
        "cpu-vendor.node.kubevirt.io/Intel": "true",
    }


@pytest.mark.parametrize("nodes", [(), (AMD64,), (AMD64 | {names.LABEL_CPU_MANAGER_NEW: "false"},)])
def test_cpus_of_its_own_are_asked_for_even_if_no_node_has_them(nodes: tuple[dict[str, str], ...]) -> None:
    chosen = selector({"dedicatedCpuPlacement": True}, *nodes, nodeSelector={names.LABEL_CPU_MANAGER_NEW: "false"})
    assert chosen[names.LABEL_CPU_MANAGER_NEW] == "true"


def test_real_time_is_asked_for_even_if_no_node_has_it() -> None:
    assert selector({"realtime": {}}, AMD64)[names.LABEL_REALTIME] == ""
    assert names.LABEL_REALTIME not in selector({}, AMD64)


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


@pytest.mark.parametrize(
    ("security", "label", "resource"),
    [
        ({"sev": {}}, "kubevirt.io/sev", "devices.kubevirt.io/sev"),
        ({"sev": {"policy": {"encryptedState": True}}}, "kubevirt.io/sev-es", "devices.kubevirt.io/sev"),
        ({"snp": {}}, "kubevirt.io/sev-snp", "devices.kubevirt.io/sev"),
        ({"tdx": {}}, "kubevirt.io/tdx", "devices.kubevirt.io/tdx"),
    ],
)
def test_a_machine_with_hidden_memory_waits_for_a_node_that_can_hide_it(
    security: dict[str, Any], label: str, resource: str
) -> None:
    """Though none can: elsewhere the guest would run, and the node read it."""
    domain = {"devices": {}, "launchSecurity": security}
    noted = {"annotations": {names.ANNOTATION_QUOTE_SOCKET: "/run/tdx/quotes.sock"}}
    found = to_plain(render(vmi(spec={"domain": domain}, metadata=noted), TemplateConfig("launcher:v1")).spec)
    assert found["nodeSelector"][label] == ""
    (compute,) = found["containers"]
    assert compute["resources"]["limits"][resource] == compute["resources"]["requests"][resource] == "1"


def test_a_protected_guest_of_s390x_waits_for_a_node_that_has_such() -> None:
    machine = vmi(spec={"architecture": "s390x", "domain": {"devices": {}, "launchSecurity": {}}})
    found = to_plain(render(machine, TemplateConfig("launcher:v1")).spec)
    assert found["nodeSelector"]["kubevirt.io/s390-pv"] == ""
    assert "devices.kubevirt.io" not in str(found["containers"][0]["resources"])


def test_memory_is_booked_for_hidden_memory() -> None:
    plain = vmi(spec={"domain": {"devices": {}}})
    hidden = vmi(spec={"domain": {"devices": {}, "launchSecurity": {"snp": {}}}})
    assert memory.overhead(hidden, emulated=False) == memory.overhead(plain, emulated=False) + memory.SEV
