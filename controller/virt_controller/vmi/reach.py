"""Which nodes reach the volumes that are brought to a machine after its Pod was placed."""

from __future__ import annotations

from collections.abc import Iterable

from virt_core.apis.scheduling import NodeSelector
from virt_core.apis.storage import PersistentVolume
from virt_core.kube.client import KubeClient
from virt_core.kube.errors import NotFound


def reach(client: KubeClient, volumes: Iterable[str]) -> tuple[NodeSelector, ...]:
    """What each of them asks of a node; storage that every node reaches asks nothing. Asked only when a Pod is made."""
    found = (_asked(client, name) for name in volumes)
    return tuple(selector for selector in found if selector is not None)


def _asked(client: KubeClient, name: str) -> NodeSelector | None:
    try:
        affinity = client.get(PersistentVolume, name).spec.node_affinity
    except NotFound:
        return None  # Its claim will say so.
    return affinity.required if affinity is not None else None
