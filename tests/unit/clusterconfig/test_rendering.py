"""What the configuration does to a launcher Pod and to a node's labels."""

from __future__ import annotations

from typing import Any

import pytest
from framework.vmis import vmi

from virt_controller.launcher_pod import TemplateConfig, render
from virt_controller.vmi.controller import with_devices
from virt_core.apis.base import from_plain
from virt_core.apis.nodes import Node
from virt_core.apis.pods import Pod
from virt_core.apis.quantity import parse_bytes
from virt_core.kube.clusterconfig import UNCONFIGURED, effective
from virt_handler.node.labels import labels

KVM = from_plain({"status": {"allocatable": {"devices.kubevirt.io/kvm": "9"}}}, Node)


def pod(configuration: dict[str, Any], nodes: list[Node] | None = None, **changes: Any) -> Pod:
    config = with_devices(TemplateConfig("launcher:1"), nodes or [], effective(configuration))
    return render(vmi(**changes), config)


def requests(configuration: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return pod(configuration, **changes).spec.containers[0].resources.requests


@pytest.mark.parametrize(
    ("emulation", "nodes", "asked"), [(False, [], True), (True, [], False), (True, [KVM], True), (False, [KVM], True)]
)
def test_without_emulation_kvm_is_asked_for_even_if_nobody_has_it(
    emulation: bool, nodes: list[Node], asked: bool
) -> None:
    rendered = pod({"developerConfiguration": {"useEmulation": emulation}}, nodes)
    compute = rendered.spec.containers[0]
    assert ("devices.kubevirt.io/kvm" in compute.resources.limits) is asked
    assert ("--allow-emulation" in compute.args) is not asked


def test_without_a_kubevirt_object_the_machine_decides() -> None:
    assert not with_devices(TemplateConfig("launcher:1"), [], UNCONFIGURED).kvm


@pytest.mark.parametrize(("ratio", "expected"), [(10, "100m"), (1, "1000m"), (2000, "100m")])
def test_cpu_ratio(ratio: int, expected: str) -> None:
    assert requests({"developerConfiguration": {"cpuAllocationRatio": ratio}})["cpu"] == expected


def test_memory_overcommit_books_less() -> None:
    usual = parse_bytes(requests({})["memory"])
    less = parse_bytes(requests({"developerConfiguration": {"memoryOvercommit": 200}})["memory"])
    assert usual - less == (128 << 20) // 2


def test_the_overhead_can_be_multiplied() -> None:
    usual = parse_bytes(requests({})["memory"]) - (128 << 20)
    more = parse_bytes(requests({"additionalGuestMemoryOverheadRatio": "2"})["memory"]) - (128 << 20)
    assert abs(more - 2 * usual) <= 1 << 20


def test_pull_policy_selectors_and_verbosity() -> None:
    rendered = pod(
        {
            "imagePullPolicy": "Always",
            "developerConfiguration": {"nodeSelectors": {"zone": "a"}, "logVerbosity": {"virtLauncher": 6}},
        }
    )
    compute = rendered.spec.containers[0]
    assert compute.image_pull_policy == "Always"
    assert rendered.spec.node_selector["zone"] == "a"
    assert compute.args[compute.args.index("--log-level") + 1] == "debug"
    plain = pod({}).spec.containers[0]
    assert plain.image_pull_policy == "IfNotPresent"
    assert "--log-level" not in plain.args


def test_obsolete_models_are_not_offered() -> None:
    document = (
        "<domainCapabilities><cpu><mode name='custom'><model usable='yes'>Penryn</model>"
        "<model usable='yes'>kvm64</model></mode></cpu></domainCapabilities>"
    )
    config = effective({"obsoleteCPUModels": {"Penryn": True, "kvm64": False}})
    usual = labels("", document, kvm=True)
    changed = labels("", document, kvm=True, obsolete=config.obsolete_cpu_models)
    assert any(key.endswith("/Penryn") for key in usual)
    assert not any(key.endswith("/kvm64") for key in usual)
    assert not any(key.endswith("/Penryn") for key in changed)
    assert any(key.endswith("/kvm64") for key in changed)
