"""Nodes that fall silent: a Lease that is not renewed makes the node's Ready condition Unknown and taints it.

Nothing is evicted here. The Pods of a silent node may well be running; who owns them decides.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from virt_core.apis.coordination import Lease
from virt_core.apis.nodes import Node, NodeCondition, Taint
from virt_core.kube.client import KubeClient
from virt_core.kube.controller import Controller, Result
from virt_core.kube.errors import NotFound
from virt_core.kube.informer import Informer
from virt_core.kube.patch import MergePatch
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import Clock, SystemClock
from virt_core.runtime.times import rfc3339

LEASE_NAMESPACE = "kube-node-lease"
GRACE = timedelta(seconds=40)
UNREACHABLE = "node.kubernetes.io/unreachable"
NOT_READY = "node.kubernetes.io/not-ready"
_OURS = (UNREACHABLE, NOT_READY)
_UNKNOWN_REASON = "NodeStatusUnknown"
_UNKNOWN_MESSAGE = "The node stopped renewing its Lease."


class NodeLifecycle:
    def __init__(
        self,
        client: KubeClient,
        nodes: Informer[Node],
        leases: Informer[Lease],
        recorder: EventRecorder,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._nodes = nodes
        self._leases = leases
        self._recorder = recorder
        self._clock = clock or SystemClock()
        self._started = self._clock.now()
        self.queue = WorkQueue(name="node-lifecycle", max_delay_s=10.0)
        nodes.add_handler(on_add=self._enqueue, on_update=lambda _, new: self._enqueue(new))
        leases.add_handler(on_update=lambda _, new: self.queue.add(new.metadata.name))

    def controller(self) -> Controller:
        informers = (self._nodes, self._leases)
        return Controller("node-lifecycle", self.queue, self.reconcile, workers=1, informers=informers)

    def reconcile(self, key: str) -> Result | None:
        node = self._nodes.get(key)
        if node is None or node.metadata.deletion_timestamp:
            return None
        silent_in = self._last_sign(node) + GRACE - self._clock.now()
        if silent_in <= timedelta():
            node = self._mark_unknown(node)
        self._taint(node, silent=silent_in <= timedelta())
        return Result(requeue_after_s=max(silent_in.total_seconds(), 5.0))

    def _last_sign(self, node: Node) -> datetime:
        """We may have been away ourselves: silence counts from our own start at the earliest."""
        lease = self._leases.get(f"{LEASE_NAMESPACE}/{node.metadata.name}")
        renewed = lease.spec.renew_time if lease else None
        return max(_parse(renewed), self._started) if renewed else self._started

    def _mark_unknown(self, node: Node) -> Node:
        """The node as it is then: the next patch is made for that version."""
        ready = next((each for each in node.status.conditions if each.type == "Ready"), None)
        if ready is not None and ready.status == "Unknown":
            return node
        now = rfc3339(self._clock.now())
        unknown = NodeCondition(
            type="Ready",
            status="Unknown",
            reason=_UNKNOWN_REASON,
            message=_UNKNOWN_MESSAGE,
            last_heartbeat_time=ready.last_heartbeat_time if ready else now,
            last_transition_time=now,
        )
        conditions = [each for each in node.status.conditions if each.type != "Ready"]
        marked = self._patch(node, {"status": {"conditions": [*conditions, unknown]}}, "status")
        self._recorder.event(node, "Normal", "NodeNotReady", f"Node {node.metadata.name} stopped renewing its Lease")
        return marked

    def _taint(self, node: Node, *, silent: bool) -> None:
        wanted = wanted_taints(node, silent=silent)
        current = [(taint.key, taint.effect) for taint in node.spec.taints if taint.key in _OURS]
        if sorted(current) == sorted(wanted):
            return
        now = rfc3339(self._clock.now())
        kept = [taint for taint in node.spec.taints if taint.key not in _OURS]
        ours = [Taint(key=key, effect=effect, time_added=now) for key, effect in wanted]
        self._patch(node, {"spec": {"taints": [*kept, *ours]}}, "")

    def _patch(self, node: Node, document: dict[str, object], subresource: str) -> Node:
        patch = MergePatch({"metadata": {"resourceVersion": node.metadata.resource_version}, **document})
        try:
            return self._client.patch(Node, node.metadata.name, "", patch, subresource=subresource)
        except NotFound:
            return node

    def _enqueue(self, node: Node) -> None:
        self.queue.add(node.metadata.name)


def wanted_taints(node: Node, *, silent: bool) -> list[tuple[str, str]]:
    ready = next((each.status for each in node.status.conditions if each.type == "Ready"), "False")
    if silent:
        return [(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]
    return [] if ready == "True" else [(NOT_READY, "NoSchedule")]


def _parse(text: str) -> datetime:
    return datetime.fromisoformat(text)
