"""Replica sets and pools with real guests: up, down, replaced, renewed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import Space
from .engine import eventually
from .manifests import kernel_boot

pytestmark = pytest.mark.e2e

BOOT_S = 120.0


def machine_spec() -> dict[str, Any]:
    spec: dict[str, Any] = kernel_boot("member")["spec"]
    spec["terminationGracePeriodSeconds"] = 2
    return spec


def replica_set(name: str, replicas: int) -> dict[str, Any]:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceReplicaSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"set": name}},
            "template": {"metadata": {"labels": {"set": name}}, "spec": machine_spec()},
        },
    }


def pool(name: str, replicas: int, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "pool.kubevirt.io/v1beta1",
        "kind": "VirtualMachinePool",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"pool": name}},
            "virtualMachineTemplate": {
                "metadata": {"labels": {"pool": name}},
                "spec": {
                    "runStrategy": "Always",
                    "template": {"metadata": {"labels": {"pool": name}}, "spec": machine_spec()},
                },
            },
            **spec,
        },
    }


def items(space: Space, kind: str) -> list[Any]:
    return list(space.engine.get("-n", space.namespace, kind)["items"])


def ready(space: Space, kind: str, name: str, count: int) -> None:
    def check() -> bool:
        status = space.engine.get("-n", space.namespace, kind, name).get("status", {})
        return (status.get("replicas", 0), status.get("readyReplicas", 0)) == (count, count)

    eventually(check, within_s=BOOT_S, what=f"{kind} {name} with {count} ready")


def test_replica_set_scales_and_replaces(space: Space) -> None:
    space.apply(replica_set("rs", 2))
    ready(space, "vmirs", "rs", 2)
    lost = items(space, "vmi")[0]["metadata"]["name"]
    space.kubectl("delete", "vmi", lost, "--timeout=60s", timeout=80)
    ready(space, "vmirs", "rs", 2)
    assert lost not in {v["metadata"]["name"] for v in items(space, "vmi")}
    space.kubectl("scale", "vmirs", "rs", "--replicas=1")
    ready(space, "vmirs", "rs", 1)
    eventually(lambda: len(items(space, "vmi")) == 1, within_s=60)
    assert "set=rs" in json.dumps(space.engine.get("-n", space.namespace, "vmirs", "rs")["status"])
    space.kubectl("delete", "vmirs", "rs", "--timeout=60s", timeout=80)
    space.gone("vmi")


def test_pool_scales_renews_and_goes(space: Space) -> None:
    order = {"proactive": {"selectionPolicy": {"sortPolicy": "DescendingOrder"}}}
    space.apply(pool("pool", 2, scaleInStrategy=order))
    ready(space, "vmpool", "pool", 2)
    assert {v["metadata"]["name"] for v in items(space, "vm")} == {"pool-0", "pool-1"}
    space.kubectl("scale", "vmpool", "pool", "--replicas=1")
    ready(space, "vmpool", "pool", 1)
    eventually(lambda: [v["metadata"]["name"] for v in items(space, "vm")] == ["pool-0"], within_s=60)
    before = space.vmi("pool-0")["metadata"]["uid"]
    patch = [
        {
            "op": "add",
            "path": "/spec/virtualMachineTemplate/spec/template/spec/domain/chassis",
            "value": {"asset": "77"},
        }
    ]
    space.kubectl("patch", "vmpool", "pool", "--type=json", "-p", json.dumps(patch))
    eventually(
        lambda: (vmi := space.vmi("pool-0"))["metadata"]["uid"] != before and "chassis" in vmi["spec"]["domain"],
        within_s=BOOT_S,
        what="pool-0 restarted from the new template",
    )
    ready(space, "vmpool", "pool", 1)
    space.kubectl("delete", "vmpool", "pool", "--timeout=90s", timeout=110)
    space.gone("vm", within_s=90)
    space.gone("vmi", within_s=90)
