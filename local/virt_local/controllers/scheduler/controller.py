"""The scheduler's loop: one Pod at a time, so that two decisions never count on the same room.

A Pod that fits nowhere waits until something changes that could help it; a node, or a Pod that went away.
"""

from __future__ import annotations

import threading

from virt_core.apis.meta import ObjectMeta
from virt_core.apis.names import ANNOTATION_SELECTED_NODE
from virt_core.apis.nodes import Node
from virt_core.apis.pods import Binding, Pod, PodCondition
from virt_core.apis.registry import encode_object, key_for, key_of, resource_of
from virt_core.apis.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from virt_core.kube.client import KubeClient
from virt_core.kube.controller import Controller, Result
from virt_core.kube.errors import Conflict, NotFound
from virt_core.kube.informer import Informer
from virt_core.kube.patch import MergePatch
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import Clock, SystemClock
from virt_core.runtime.logs import get_logger
from virt_core.runtime.times import rfc3339
from virt_local.controllers.scheduler.fit import Choice, NodeState, choose
from virt_local.controllers.scheduler.volumes import Volumes, look_at
from virt_local.storage.uses import claims_used

log = get_logger("virt-local.scheduler")

NAME = "default-scheduler"
_RETRY_S = 30.0
_ENDED = ("Succeeded", "Failed")


class Scheduler:
    def __init__(
        self,
        client: KubeClient,
        pods: Informer[Pod],
        nodes: Informer[Node],
        recorder: EventRecorder,
        clock: Clock | None = None,
        *,
        claims: Informer[PersistentVolumeClaim],
        volumes: Informer[PersistentVolume],
        classes: Informer[StorageClass],
    ) -> None:
        self._client = client
        self._claims, self._volumes, self._classes = claims, volumes, classes
        self._pods = pods
        self._nodes = nodes
        self._recorder = recorder
        self._clock = clock or SystemClock()
        self._assumed: dict[str, tuple[str, str]] = {}  # key → (uid, node)
        self._lock = threading.Lock()
        self.queue = WorkQueue(name="scheduler", max_delay_s=10.0)
        pods.add_handler(on_add=self._on_pod, on_update=lambda _, new: self._on_pod(new), on_delete=self._on_gone)
        nodes.add_handler(on_add=self._on_node, on_update=self._on_node_update, on_delete=self._on_node)
        claims.add_handler(on_add=self._on_claim, on_update=lambda _, new: self._on_claim(new))

    def controller(self) -> Controller:
        informers = (self._pods, self._nodes, self._claims, self._volumes, self._classes)
        return Controller("scheduler", self.queue, self.reconcile, workers=1, informers=informers)

    def reconcile(self, key: str) -> Result | None:
        pod = self._pods.get(key)
        if pod is None or not waits(pod) or self._is_assumed(pod):
            return None
        volumes = look_at(pod, self._claims.get, self._volumes.get, self._classes.get, self._pods.list())
        nodes = self.snapshot()
        choice = Choice(message=volumes.problem(len(nodes))) if volumes.problems else choose(pod, nodes, volumes.fit)
        if choice.node and volumes.unbound:
            self._place_claims(volumes, choice.node)
            return Result(requeue_after_s=_RETRY_S)
        if choice.node:
            self._bind(pod, choice.node)
            return None
        self._report(pod, choice)
        return Result(requeue_after_s=_RETRY_S)

    def _place_claims(self, volumes: Volumes, node: str) -> None:
        """Claims that waited for their first consumer learn where it will be; the Pod waits until they are bound."""
        for claim in volumes.unbound:
            if ANNOTATION_SELECTED_NODE not in claim.metadata.annotations:
                patch = MergePatch({"metadata": {"annotations": {ANNOTATION_SELECTED_NODE: node}}})
                try:
                    self._client.patch(PersistentVolumeClaim, claim.metadata.name, claim.metadata.namespace, patch)
                except NotFound:
                    continue

    def snapshot(self) -> list[NodeState]:
        """The nodes as they will be when every decision taken so far has come true."""
        states = {node.metadata.name: NodeState(node) for node in self._nodes.list()}
        with self._lock:
            assumed = dict(self._assumed)
        for pod in self._pods.list():
            if pod.status.phase in _ENDED:
                continue
            uid, assumed_node = assumed.get(key_of(pod), ("", ""))
            node = pod.spec.node_name or (assumed_node if uid == pod.metadata.uid else "")
            if node in states:
                states[node].add(pod)
        return list(states.values())

    def _bind(self, pod: Pod, node: str) -> None:
        meta = pod.metadata
        binding = Binding(
            metadata=ObjectMeta(name=meta.name, namespace=meta.namespace, uid=meta.uid),
            target={"apiVersion": "v1", "kind": "Node", "name": node},
        )
        path = resource_of(Pod).path(meta.namespace, meta.name, "binding")
        with self._lock:
            self._assumed[key_of(pod)] = (meta.uid, node)
        try:
            self._client.raw("POST", path, body=encode_object(binding))
        except NotFound:
            self._forget(key_of(pod))
            return
        except Conflict:
            # Bound already, or another Pod has the name now: the informer will tell.
            self._forget(key_of(pod))
            return
        except BaseException:
            self._forget(key_of(pod))
            raise
        self._recorder.event(pod, "Normal", "Scheduled", f"Successfully assigned {key_of(pod)} to {node}")

    def _report(self, pod: Pod, choice: Choice) -> None:
        known = next((each for each in pod.status.conditions if each.type == "PodScheduled"), None)
        if known is not None and known.status == "False" and known.message == choice.message:
            return
        condition = PodCondition(
            type="PodScheduled",
            status="False",
            reason="Unschedulable",
            message=choice.message,
            last_transition_time=rfc3339(self._clock.now()),
        )
        rest = [each for each in pod.status.conditions if each.type != "PodScheduled"]
        document = {
            "metadata": {"resourceVersion": pod.metadata.resource_version},
            "status": {"conditions": [*rest, condition]},
        }
        try:
            patch = MergePatch(document)
            self._client.patch(Pod, pod.metadata.name, pod.metadata.namespace, patch, subresource="status")
        except NotFound:
            return
        self._recorder.event(pod, "Warning", "FailedScheduling", choice.message)

    # What wakes the loop.

    def _on_pod(self, pod: Pod) -> None:
        if pod.spec.node_name:
            self._forget(key_of(pod))
        if waits(pod):
            self.queue.add(key_of(pod))
        elif pod.status.phase in _ENDED:
            self._retry_waiting()

    def _on_gone(self, pod: Pod) -> None:
        self._forget(key_of(pod))
        self._retry_waiting()

    def _on_claim(self, claim: PersistentVolumeClaim) -> None:
        for pod in self._pods.list():
            if (
                pod.metadata.namespace == claim.metadata.namespace
                and waits(pod)
                and claim.metadata.name in claims_used(pod)
            ):
                self.queue.add(key_for(pod.metadata.namespace, pod.metadata.name))

    def _on_node(self, _node: Node) -> None:
        self._retry_waiting()

    def _on_node_update(self, old: Node, new: Node) -> None:
        if _offer(old) != _offer(new):
            self._retry_waiting()

    def _retry_waiting(self) -> None:
        for pod in self._pods.list():
            if waits(pod):
                self.queue.add(key_of(pod))

    def _is_assumed(self, pod: Pod) -> bool:
        with self._lock:
            return self._assumed.get(key_of(pod), ("", ""))[0] == pod.metadata.uid

    def _forget(self, key: str) -> None:
        with self._lock:
            self._assumed.pop(key, None)


def waits(pod: Pod) -> bool:
    """A Pod that wants a node, from us, now."""
    return (
        not pod.spec.node_name
        and not pod.metadata.deletion_timestamp
        and pod.status.phase not in _ENDED
        and pod.spec.scheduler_name in ("", NAME)
        and not pod.spec.scheduling_gates
    )


def _offer(node: Node) -> tuple[object, ...]:
    """What of a node matters to the scheduler. A heartbeat does not."""
    return node.metadata.labels, node.spec.unschedulable, node.spec.taints, node.status.allocatable
