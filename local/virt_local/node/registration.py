"""The Node object and its Lease: says that the node is there, what it has, and that it still lives."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from virt_core.apis import names
from virt_core.apis.coordination import Lease, LeaseSpec
from virt_core.apis.meta import ObjectMeta, OwnerReference
from virt_core.apis.nodes import (
    DaemonEndpoint,
    Node,
    NodeAddress,
    NodeCondition,
    NodeDaemonEndpoints,
    NodeSpec,
    NodeStatus,
    NodeSystemInfo,
)
from virt_core.kube.client import KubeClient
from virt_core.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from virt_core.kube.patch import MergePatch
from virt_core.runtime.clock import Clock
from virt_core.runtime.logs import get_logger
from virt_core.runtime.times import rfc3339, rfc3339_micro
from virt_local.node.capacity import Machine

log = get_logger(__name__)

LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40
RENEW_EVERY_S = 10.0
RETRY_S = 1.0
#: Every so many renewals the Node object itself is looked at.
VERIFY_EVERY = 6
_HEALTHY = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID"),
    ("Ready", "True", "KubeletReady"),
)


@dataclass(frozen=True)
class NodeFacts:
    name: str
    address: str
    port: int
    pod_cidrs: tuple[str, ...]
    machine: Machine
    info: NodeSystemInfo


def node_labels(facts: NodeFacts) -> dict[str, str]:
    architecture = facts.machine.architecture
    return {
        names.LABEL_NODE_HOSTNAME: facts.name,
        names.LABEL_NODE_ARCH: architecture,
        "kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": architecture,
        "beta.kubernetes.io/os": "linux",
    }


def node_status(facts: NodeFacts, existing: list[NodeCondition], now: str) -> NodeStatus:
    """Our part of the status. A condition keeps its transition time while its status stays."""
    return NodeStatus(
        capacity=facts.machine.capacity(),
        allocatable=facts.machine.allocatable(),
        conditions=_conditions(existing, now),
        addresses=[
            NodeAddress(type="InternalIP", address=facts.address),
            NodeAddress(type="Hostname", address=facts.name),
        ],
        daemon_endpoints=NodeDaemonEndpoints(kubelet_endpoint=DaemonEndpoint(port=facts.port)),
        node_info=facts.info,
    )


def _conditions(existing: list[NodeCondition], now: str) -> list[NodeCondition]:
    before = {condition.type: condition for condition in existing}
    ours = []
    for kind, status, reason in _HEALTHY:
        old = before.pop(kind, None)
        since = old.last_transition_time if old is not None and old.status == status else now
        ours.append(
            NodeCondition(type=kind, status=status, reason=reason, last_heartbeat_time=now, last_transition_time=since)
        )
    return [*before.values(), *ours]


def says_the_same(old: NodeStatus, new: NodeStatus) -> bool:
    """Whether a write would change more than the time of the last heartbeat; others may have added resources."""
    states = [{c.type: (c.status, c.reason) for c in status.conditions} for status in (old, new)]
    return (
        states[0] == states[1]
        and old.capacity.items() >= new.capacity.items()
        and old.allocatable.items() >= new.allocatable.items()
        and (old.addresses, old.daemon_endpoints, old.node_info) == (new.addresses, new.daemon_endpoints, new.node_info)
    )


class Registration:
    def __init__(self, client: KubeClient, facts: NodeFacts, clock: Clock) -> None:
        self._client = client
        self._facts = facts
        self._clock = clock
        self._uid = ""
        self._lease: Lease | None = None

    def run(self, stop: threading.Event) -> None:
        """Registers, then renews the Lease until the stop. The API may be away for as long as it likes."""
        beats = 0
        while not stop.is_set():
            try:
                if beats % VERIFY_EVERY == 0:
                    self.register()
                self.heartbeat()
                beats, wait_s = beats + 1, RENEW_EVERY_S
            except ApiError as err:
                # While we were away, others may have declared us dead: say anew that we are not.
                log.warning("the node could not report to the API", error=str(err))
                beats, wait_s = 0, RETRY_S
            self._clock.wait(stop, wait_s)

    def register(self) -> Node:
        """Makes the Node, or brings the existing one up to date, with as few writes as that takes."""
        node = self._find_or_create()
        self._uid = node.metadata.uid
        status = node_status(self._facts, node.status.conditions, rfc3339(self._clock.now()))
        if says_the_same(node.status, status):
            return node
        node = self._client.patch(Node, node.metadata.name, "", MergePatch({"status": status}), subresource="status")
        log.info("the node is registered", node=self._facts.name, address=self._facts.address)
        return node

    def _find_or_create(self) -> Node:
        facts = self._facts
        spec = NodeSpec(pod_cidr=facts.pod_cidrs[0], pod_cidrs=list(facts.pod_cidrs))
        try:
            node = self._client.get(Node, facts.name)
        except NotFound:
            meta = ObjectMeta(name=facts.name, labels=node_labels(facts))
            return self._client.create(Node(metadata=meta, spec=spec))
        labels = {key: value for key, value in node_labels(facts).items() if node.metadata.labels.get(key) != value}
        if labels:
            return self._client.patch(Node, facts.name, "", MergePatch({"metadata": {"labels": labels}}))
        return node

    def heartbeat(self) -> None:
        now = rfc3339_micro(self._clock.now())
        if self._lease is None:
            self._lease = self._take_lease(now)
            return
        self._lease.spec.renew_time = now
        try:
            self._lease = self._client.replace(self._lease)
        except (Conflict, NotFound):
            self._lease = None
            self._lease = self._take_lease(now)

    def _take_lease(self, now: str) -> Lease:
        name = self._facts.name
        owner = OwnerReference(api_version="v1", kind="Node", name=name, uid=self._uid)
        lease = Lease(
            metadata=ObjectMeta(name=name, namespace=LEASE_NAMESPACE, owner_references=[owner]),
            spec=LeaseSpec(holder_identity=name, lease_duration_seconds=LEASE_SECONDS, renew_time=now),
        )
        try:
            return self._client.create(lease)
        except AlreadyExists:
            found = self._client.get(Lease, name, LEASE_NAMESPACE)
            found.spec = lease.spec
            return self._client.replace(found)
