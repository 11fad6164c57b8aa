"""Every kind can be applied, shown, explained and, where it counts something, scaled; mistakes are named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from virt_core.apis.crdkinds import KINDS
from virt_core.apis.registry import resource_by_kind

from .conftest import Space
from .manifests import vmi

LABELS = {"matchLabels": {"set": "x"}}


def template(name: str) -> dict[str, Any]:
    return {"metadata": {"labels": {"set": "x"}}, "spec": vmi(name)["spec"]}


def machine(name: str) -> dict[str, Any]:
    return {"runStrategy": "Halted", "template": template(name)}


def specs() -> dict[str, dict[str, Any]]:
    """Kind → a spec that does nothing."""
    return {
        "VirtualMachine": machine("machine"),
        "VirtualMachineInstanceReplicaSet": {"replicas": 0, "selector": LABELS, "template": template("t")},
        "VirtualMachineInstancePreset": {"selector": {"matchLabels": {"p": "p"}}, "domain": {"devices": {}}},
        "VirtualMachinePool": {
            "replicas": 0,
            "selector": LABELS,
            "virtualMachineTemplate": {"metadata": {"labels": {"set": "x"}}, "spec": machine("t")},
        },
        "VirtualMachineInstancetype": {"cpu": {"guest": 1}, "memory": {"guest": "64Mi"}},
        "VirtualMachinePreference": {"devices": {"preferredDiskBus": "virtio"}},
    }


def manifest(kind: str, spec: dict[str, Any], name: str = "machine") -> dict[str, Any]:
    api_version = resource_by_kind(kind).api_version
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def test_every_kind_is_applied_and_shown(space: Space) -> None:
    for kind, spec in specs().items():
        space.apply(manifest(kind, spec))
        space.apply(manifest(kind, spec))
        kept = json.loads(space.kubectl("get", resource_by_kind(kind).plural, "machine", "-o", "json"))
        assert spec.items() <= kept["spec"].items() or kind == "VirtualMachine", kind


def test_the_tables_have_their_columns(space: Space) -> None:
    for kind in (
        "VirtualMachine",
        "VirtualMachineInstanceReplicaSet",
        "VirtualMachinePool",
        "VirtualMachineInstancetype",
    ):
        space.apply(manifest(kind, specs()[kind]))
    shown = space.kubectl("get", "vm,vmi,vmirs,vmpool,vmf")
    headers = [line.split() for line in shown.splitlines() if line.startswith("NAME")]
    counted = ["NAME", "DESIRED", "CURRENT", "READY", "AGE"]
    assert headers == [["NAME", "AGE", "STATUS", "READY"], counted, counted, ["NAME", "AGE"]]


@pytest.mark.parametrize("kind", [kind.kind for kind in KINDS])
def test_every_kind_is_explained(space: Space, kind: str) -> None:
    text = space.kubectl("explain", f"{resource_by_kind(kind).plural}.spec")
    assert kind in text
    assert "FIELDS:" in text


@pytest.mark.parametrize("kind", ["VirtualMachineInstanceReplicaSet", "VirtualMachinePool"])
def test_what_counts_is_scaled(space: Space, kind: str) -> None:
    plural = resource_by_kind(kind).plural
    space.apply(manifest(kind, {**specs()[kind], "paused": True}))
    space.kubectl("scale", plural, "machine", "--replicas=2")
    assert space.kubectl("get", plural, "machine", "-o", "jsonpath={.spec.replicas}") == "2"


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        ("VirtualMachine", {"runStrategy": "Never"}, "spec.runStrategy"),
        ("VirtualMachineInstanceReplicaSet", {"selector": {"matchLabels": {"z": "z"}}}, "spec.selector"),
        ("VirtualMachinePool", {"maxUnavailable": "101%"}, "spec.maxUnavailable"),
        ("VirtualMachineInstancetype", {"memory": {"guest": "1Gi", "overcommitPercent": 101}}, "overcommitPercent"),
        ("VirtualMachinePreference", {"cpu": {"preferredCPUTopology": "x"}}, "spec.cpu.preferredCPUTopology"),
    ],
)
def test_a_mistake_is_named(space: Space, kind: str, change: dict[str, Any], said: str) -> None:
    assert said in space.refuse(manifest(kind, {**specs()[kind], **change}))


def test_an_old_way_is_warned_about(space: Space) -> None:
    spec = machine("machine")
    del spec["runStrategy"]
    text = json.dumps(manifest("VirtualMachine", {**spec, "running": False}))
    done = space.engine.run("kubectl", "-n", space.namespace, "apply", "-f", "-", stdin=text)
    assert done.returncode == 0, done.stderr
    assert "spec.running is deprecated" in done.stderr
