"""Storage for claims. The default class is virt-local's own provisioner, run as a program of the control plane: CSI's
sidecars cannot be had here, and all nodes are on this machine, so that each reaches each volume.

Beside it there is a class without a provisioner: directories of the nodes as volumes that wait for their first
consumer. Each can be claimed once; there are enough of them for a run of the tests.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from virt_local.storage import objects as provisioned

from .layout import Layout, Node

CLASS = "local"
EACH_NODE = 64
USER = "virtpod:storage"
#: What the provisioner may do, as CSI's provisioner, resizer and snapshotter may together.
ROLE = f"""
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: "{USER}"}}
rules:
- {{apiGroups: [""], resources: [pods], verbs: [get, list, watch]}}
- {{apiGroups: [""], resources: [persistentvolumeclaims], verbs: [get, list, watch, patch]}}
- {{apiGroups: [""], resources: [persistentvolumeclaims/status], verbs: [patch]}}
- {{apiGroups: [""], resources: [persistentvolumes], verbs: [get, list, watch, create, delete, patch]}}
- {{apiGroups: [""], resources: [events], verbs: [create, patch]}}
- {{apiGroups: [storage.k8s.io], resources: [storageclasses], verbs: [get, list, watch]}}
- apiGroups: [snapshot.storage.k8s.io]
  resources: [volumesnapshots, volumesnapshotcontents, volumesnapshotclasses]
  verbs: [get, list, watch, create, delete, patch]
- apiGroups: [snapshot.storage.k8s.io]
  resources: [volumesnapshots/status, volumesnapshotcontents/status]
  verbs: [patch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: "{USER}"}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "{USER}"}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: "{USER}"}}]
"""
_SIZE = "1Gi"


def storage_class() -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": CLASS},
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
    own = (provisioned.storage_class(), provisioned.late_storage_class(), *provisioned.snapshot_definitions())
    return [storage_class(), *own, *volumes]


def volume_dir(layout: Layout) -> Path:
    """At the same path in every node."""
    return layout.state / "volumes"
