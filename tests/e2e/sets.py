"""Replica sets and pools of the end-to-end tests."""

from __future__ import annotations

import json
from typing import Any

from .conftest import Space
from .engine import eventually
from .manifests import kernel_boot

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


def change(space: Space, name: str, path: str, value: Any) -> None:
    """Changes one thing in a pool's spec."""
    patch = json.dumps([{"op": "add", "path": f"/spec/{path}", "value": value}])
    space.kubectl("patch", "vmpool", name, "--type=json", "-p", patch)


def names(space: Space, kind: str) -> set[str]:
    return {item["metadata"]["name"] for item in items(space, kind)}
