"""Nodes whose virt-handler has gone silent take no new VMs, and VMIs there that have lost their Pods are over.

Without its handler a Pod on the node would start and nothing would follow; and nobody there would notice that a guest
is gone. A VMI whose launcher Pod still lives is left alone: the guest runs on without its handler.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from msgspec.structs import replace

from virt_controller.node.listening import HEARTBEAT_LIMIT_S, RECHECK_S, Listening
from virt_controller.vmi import pods as facts
from virt_core.apis import names
from virt_core.apis.facts import is_final
from virt_core.apis.nodes import Node
from virt_core.apis.pods import Pod
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.client import KubeClient
from virt_core.kube.controller import Result
from virt_core.kube.errors import NotFound
from virt_core.kube.informer import Informer
from virt_core.kube.patch import JsonPatch, op, pointer
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.vmistatus import with_failure
from virt_core.kube.workqueue import WorkQueue
from virt_core.kube.writes import write_difference
from virt_core.runtime.clock import Clock
from virt_core.runtime.logs import get_logger
from virt_core.runtime.times import parse_rfc3339

log = get_logger(__name__)

NODE_INDEX = "node"
_OWNER_INDEX = "owner"


def is_offered(node: Node) -> bool:
    return node.metadata.labels.get(names.LABEL_SCHEDULABLE) == "true"


def heartbeat_age_s(node: Node, now: datetime) -> float:
    """Endless when there has never been one, or when it cannot be read."""
    text = node.metadata.annotations.get(names.ANNOTATION_HEARTBEAT, "")
    try:
        return (now - parse_rfc3339(text)).total_seconds()
    except ValueError:
        return float("inf")


def node_indexer(vmi: VirtualMachineInstance) -> list[str]:
    return [vmi.status.node_name] if vmi.status.node_name else []


def is_dead(pod: Pod) -> bool:
    """Over, or with no container that still runs: a node that is gone cannot say so any more."""
    states = [status.state for status in pod.status.container_statuses if status.state is not None]
    ended = bool(states) and all(state.terminated is not None for state in states)
    return ended or facts.is_finished(pod)


def is_lost(vmi: VirtualMachineInstance, pods: Iterable[Pod]) -> bool:
    """The VMI counts as running on a node, and no launcher Pod of it does."""
    return not is_final(vmi) and all(is_dead(pod) for pod in pods)


class NodeController:
    def __init__(
        self,
        client: KubeClient,
        *,
        queue: WorkQueue,
        nodes: Informer[Node],
        vmis: Informer[VirtualMachineInstance],
        pods: Informer[Pod],
        recorder: EventRecorder,
        clock: Clock,
    ) -> None:
        self._client, self._nodes, self._recorder, self._clock = client, nodes, recorder, clock
        self._vmis, self._pods = vmis, pods
        self._listening = Listening()
        nodes.add_handler(
            lambda node: queue.add(node.metadata.name),
            lambda old, new: self._labels_changed(queue, old, new),
            lambda node: queue.add(node.metadata.name),
        )
        # A VMI of a node that went while nobody watched must be looked at too.
        vmis.add_handler(lambda vmi: self._node_missing(queue, vmi))

    @staticmethod
    def _labels_changed(queue: WorkQueue, old: Node, new: Node) -> None:
        """Heartbeats themselves need no work: the recheck comes anyway."""
        if old.metadata.labels != new.metadata.labels:
            queue.add(new.metadata.name)

    def _node_missing(self, queue: WorkQueue, vmi: VirtualMachineInstance) -> None:
        for name in node_indexer(vmi):
            if self._nodes.get(name) is None:
                queue.add(name)

    def reconcile(self, name: str) -> Result | None:
        node = self._nodes.get(name)
        if patience_s := self._patience_s(name, node):
            return Result(min(patience_s + 1.0, RECHECK_S))
        if node is not None and is_offered(node):
            self._withdraw(node)
        here = self._vmis.by_index(NODE_INDEX, name)
        for vmi in here:
            if is_lost(vmi, self._pods.by_index(_OWNER_INDEX, vmi.metadata.uid)):
                self._give_up(vmi, name)
        return Result(RECHECK_S) if here else None

    def _patience_s(self, name: str, node: Node | None) -> float:
        """None with a node that was removed: nothing will be heard of it."""
        if node is None:
            self._listening.forget(name)
            return 0.0
        now = self._clock.now()
        return self._listening.patience_s(name, heartbeat_age_s(node, now), now)

    def _withdraw(self, node: Node) -> None:
        path = pointer("metadata", "labels", names.LABEL_SCHEDULABLE)
        try:
            self._client.patch(
                Node, node.metadata.name, "", JsonPatch([op.test(path, "true"), op.replace(path, "false")])
            )
        except NotFound:
            return
        message = f"virt-handler has been silent for {HEARTBEAT_LIMIT_S:.0f} s: the node gets no new VMIs"
        log.warning(message, node=node.metadata.name)
        self._recorder.event(node, names.EVENT_WARNING, names.FAILED_NODE_UNRESPONSIVE, message)

    def _give_up(self, vmi: VirtualMachineInstance, node: str) -> None:
        message = f"node {node} does not answer and the launcher Pod is gone"
        status = with_failure(vmi.status, names.FAILED_NODE_UNRESPONSIVE, message, self._clock.now())
        try:
            write_difference(self._client, vmi, replace(vmi, status=status))
        except NotFound:
            return
        log.warning(message, vmi=f"{vmi.metadata.namespace}/{vmi.metadata.name}")
        self._recorder.event(vmi, names.EVENT_WARNING, names.FAILED_NODE_UNRESPONSIVE, message)
