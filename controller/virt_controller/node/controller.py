"""Nodes whose virt-handler has gone silent take no new VMs: without it a Pod would start and nothing would follow."""

from __future__ import annotations

from datetime import datetime

from virt_core.apis import names
from virt_core.apis.nodes import Node
from virt_core.kube.client import KubeClient
from virt_core.kube.controller import Result
from virt_core.kube.errors import NotFound
from virt_core.kube.informer import Informer
from virt_core.kube.patch import JsonPatch, op, pointer
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import Clock, parse_rfc3339
from virt_core.runtime.logs import get_logger

log = get_logger(__name__)

HEARTBEAT_LIMIT_S = 300.0
RECHECK_S = 60.0


def is_offered(node: Node) -> bool:
    return node.metadata.labels.get(names.LABEL_SCHEDULABLE) == "true"


def heartbeat_age_s(node: Node, now: datetime) -> float:
    """Endless when there has never been one, or when it can not be read."""
    text = node.metadata.annotations.get(names.ANNOTATION_HEARTBEAT, "")
    try:
        return (now - parse_rfc3339(text)).total_seconds()
    except ValueError:
        return float("inf")


class NodeController:
    def __init__(
        self, client: KubeClient, *, queue: WorkQueue, nodes: Informer[Node], recorder: EventRecorder, clock: Clock
    ) -> None:
        self._client, self._nodes, self._recorder, self._clock = client, nodes, recorder, clock
        nodes.add_handler(
            lambda node: queue.add(node.metadata.name), lambda _old, new: self._labels_changed(queue, _old, new)
        )

    @staticmethod
    def _labels_changed(queue: WorkQueue, old: Node, new: Node) -> None:
        """Heartbeats themselves need no work: the recheck comes anyway."""
        if old.metadata.labels != new.metadata.labels:
            queue.add(new.metadata.name)

    def reconcile(self, name: str) -> Result | None:
        node = self._nodes.get(name)
        if node is None or not is_offered(node):
            return None
        age_s = heartbeat_age_s(node, self._clock.now())
        if age_s < HEARTBEAT_LIMIT_S:
            return Result(min(HEARTBEAT_LIMIT_S - age_s + 1.0, RECHECK_S))
        self._withdraw(node)
        return None

    def _withdraw(self, node: Node) -> None:
        path = pointer("metadata", "labels", names.LABEL_SCHEDULABLE)
        try:
            self._client.patch(
                Node, node.metadata.name, "", JsonPatch([op.test(path, "true"), op.replace(path, "false")])
            )
        except NotFound:
            return
        message = f"virt-handler has been silent for {HEARTBEAT_LIMIT_S:.0f} s: the node takes no new VMs"
        log.warning(message, node=node.metadata.name)
        self._recorder.event(node, names.EVENT_WARNING, names.FAILED_NODE_UNRESPONSIVE, message)
