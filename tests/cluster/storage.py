"""Storage without a provisioner: directories of the nodes as volumes that wait for their first consumer.

Each can be claimed once; there are enough of them for a run of the tests.
"""

from __future__ import annotations

from typing import Any

from .layout import Layout, Node

CLASS = "local"
EACH_NODE = 64
_SIZE = "1Gi"


def storage_class() -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": CLASS, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def directories(layout: Layout, node: Node) -> list[str]:
    return [str(layout.node_dir(node) / "volumes" / str(number)) for number in range(EACH_NODE)]


def volume(node: Node, number: int, path: str) -> dict[str, Any]:
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node.name]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{CLASS}-{node.name}-{number}"},
        "spec": {
            "capacity": {"storage": _SIZE},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": CLASS,
            "local": {"path": path},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }


def objects(layout: Layout) -> list[dict[str, Any]]:
    volumes = [
        volume(node, number, path)
        for node in layout.nodes
        for number, path in enumerate(directories(layout, node))
    ]  # fmt: skip
    return [storage_class(), *volumes]
