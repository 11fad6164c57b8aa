"""Pods that nobody will ever finish: their node is gone, or they were deleted before they got one."""

from __future__ import annotations

from virt_core.apis.nodes import Node
from virt_core.apis.pods import Pod
from virt_core.apis.registry import key_of
from virt_core.kube.client import KubeClient
from virt_core.kube.controller import Controller, Result
from virt_core.kube.errors import Conflict, NotFound
from virt_core.kube.informer import Informer
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import Clock, SystemClock
from virt_core.runtime.logs import get_logger

log = get_logger("virt-local.pod-gc")

#: A node that is missing may just be registering: Pods wait this long before they are given up.
_PATIENCE_S = 40.0


class PodCollector:
    def __init__(
        self, client: KubeClient, pods: Informer[Pod], nodes: Informer[Node], clock: Clock | None = None
    ) -> None:
        self._client = client
        self._pods = pods
        self._nodes = nodes
        self._clock = clock or SystemClock()
        self._missing_since: dict[str, float] = {}
        self.queue = WorkQueue(name="pod-gc")
        pods.add_handler(on_add=self._enqueue, on_update=lambda _, new: self._enqueue(new))
        nodes.add_handler(on_delete=self._on_node_gone)

    def controller(self) -> Controller:
        return Controller("pod-gc", self.queue, self.reconcile, workers=1, informers=(self._pods, self._nodes))

    def reconcile(self, key: str) -> Result | None:
        pod = self._pods.get(key)
        if pod is None:
            self._missing_since.pop(key, None)
            return None
        if not pod.spec.node_name:
            if pod.metadata.deletion_timestamp:
                self._delete(pod, "it was deleted before it had a node")
            return None
        if self._nodes.get(pod.spec.node_name) is not None:
            self._missing_since.pop(key, None)
            return None
        left = self._missing_since.setdefault(key, self._clock.monotonic()) + _PATIENCE_S - self._clock.monotonic()
        if left > 0:
            return Result(requeue_after_s=left)
        self._delete(pod, f"its node {pod.spec.node_name} is gone")
        return None

    def _delete(self, pod: Pod, why: str) -> None:
        log.info("removing a Pod that nobody can finish", pod=key_of(pod), why=why)
        meta = pod.metadata
        try:
            self._client.delete(Pod, meta.name, meta.namespace, uid=meta.uid, grace_period_s=0)
        except (NotFound, Conflict):
            return

    def _enqueue(self, pod: Pod) -> None:
        if pod.metadata.deletion_timestamp or self._nodes.get(pod.spec.node_name) is None:
            self.queue.add(key_of(pod))

    def _on_node_gone(self, node: Node) -> None:
        for pod in self._pods.list():
            if pod.spec.node_name == node.metadata.name:
                self.queue.add(key_of(pod))
