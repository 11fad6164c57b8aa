"""Tells the cluster once a minute, in one patch: the handler is alive, where it is, and what its node can do.

A node that was offered stays offered, whether the handler stops, starts or has lost its kubelet. Every launcher Pod
asks for the label, and a kubelet that starts compares it again for the Pods that run: if it finds another value it ends
their guests (docs/decisions/0016). Only virt-controller takes the label away, from a node that has long been silent.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

from virt_core.apis import names
from virt_core.apis.nodes import Node
from virt_core.kube.client import KubeClient
from virt_core.kube.configvalues import ClusterConfig
from virt_core.kube.errors import ApiError
from virt_core.kube.patch import MergePatch
from virt_core.runtime.clock import Clock
from virt_core.runtime.health import split_address
from virt_core.runtime.logs import get_logger
from virt_core.runtime.times import rfc3339
from virt_handler.node.capabilities import DOMAIN_FILE, FEATURES_FILE, HOST_FILE, NodeCapabilities
from virt_handler.node.hostfacts import cpu_manager_labels, kernel_labels
from virt_handler.node.labels import OWNED_PREFIXES, labels

log = get_logger(__name__)

PERIOD_S = 60.0
#: Spreads the nodes of a cluster over the minute.
JITTER = 0.2
_RETRY_S = 3.0
_ANY = ("", "0.0.0.0", "::")


class Heartbeat:
    def __init__(  # noqa: PLR0917 - what it tells, and to whom
        self,
        client: KubeClient,
        node_name: str,
        address: str,
        capabilities: NodeCapabilities,
        clock: Clock,
        config: Callable[[], ClusterConfig] = ClusterConfig,
        *,
        kubelet_root: str = "",
        ready: Callable[[], bool] = lambda: True,
    ) -> None:
        self._config = config
        self._client, self._node_name, self._clock = client, node_name, clock
        self._address, self._capabilities = address, capabilities
        self._kubelet_root, self._ready = kubelet_root, ready
        self._wake = threading.Event()
        #: The node as it was when we last wrote to it, which saves reading it each time.
        self._node: Node | None = None

    def labels(self) -> dict[str, str] | None:
        """Those of the node, as they were at the last beat. From any thread."""
        node = self._node
        return node.metadata.labels if node is not None else None

    def run(self, stop: threading.Event) -> None:
        waker = threading.Thread(target=self._nudge_on, args=(stop,), name="heartbeat-stop", daemon=True)
        waker.start()
        while not stop.is_set():
            self._wake.clear()
            pause = PERIOD_S * random.uniform(1.0, 1.0 + JITTER)  # noqa: S311 - spreads load, guards nothing
            try:
                self.beat()
            except ApiError as error:
                log.warning("the heartbeat did not get through", error=str(error))
                pause = _RETRY_S
            if not stop.is_set():
                self._clock.wait(self._wake, pause)
        waker.join()

    def nudge(self) -> None:
        """There is news that should not wait for the next beat. From any thread."""
        self._wake.set()

    def _nudge_on(self, stop: threading.Event) -> None:
        stop.wait()
        self.nudge()

    def beat(self) -> None:
        if self._node is None:
            self._node = self._client.get(Node, self._node_name)
            self._learn_address(self._node)
        self._node = self._patch(self._label_changes(self._node))

    def _label_changes(self, node: Node) -> dict[str, str | None]:
        """Only what changed goes over the wire; schedulable each time: the controller may have taken it away."""
        before = node.metadata.labels
        wanted = self._state_labels(before)
        if node.metadata.annotations.get(names.ANNOTATION_SKIP_NODE_LABELLER) != "true":
            wanted |= self._capability_labels()
            # Nodes that were not probed yet, or whose record is lost, can still do what they could.
            known = all(self._capabilities.text(name) for name in (HOST_FILE, DOMAIN_FILE))
            gone = {key for key in before if known and key.startswith(OWNED_PREFIXES) and key not in wanted}
        else:
            gone = set()
        changes: dict[str, str | None] = {key: value for key, value in wanted.items() if before.get(key) != value}
        changes |= dict.fromkeys(gone)
        if names.LABEL_SCHEDULABLE in wanted:
            changes[names.LABEL_SCHEDULABLE] = wanted[names.LABEL_SCHEDULABLE]
        return changes

    def _state_labels(self, before: dict[str, str]) -> dict[str, str]:
        labels: dict[str, str] = {}
        if self._ready():
            labels[names.LABEL_SCHEDULABLE] = "true"
        elif names.LABEL_SCHEDULABLE not in before:
            # Its devices are not known yet, so it would only turn launchers away.
            labels[names.LABEL_SCHEDULABLE] = "false"
        if self._kubelet_root:
            labels |= cpu_manager_labels(self._kubelet_root, self._config().feature_gates)
        return labels

    def _capability_labels(self) -> dict[str, str]:
        texts = [self._capabilities.text(name) for name in (HOST_FILE, DOMAIN_FILE, FEATURES_FILE)]
        obsolete = self._config().obsolete_cpu_models
        return labels(*texts, kvm=self._capabilities.kvm, obsolete=obsolete) | kernel_labels()

    def _learn_address(self, node: Node) -> None:
        """Who listens everywhere is reached at the node's own address."""
        host, port = split_address(self._address)
        if host not in _ANY:
            return
        inner = next((a.address for a in node.status.addresses if a.type == "InternalIP"), "")
        if inner:
            self._address = f"[{inner}]:{port}" if ":" in inner else f"{inner}:{port}"

    def _patch(self, label_changes: dict[str, Any]) -> Node:
        annotations = {
            names.ANNOTATION_HEARTBEAT: rfc3339(self._clock.now()),
            names.ANNOTATION_HANDLER_ADDRESS: self._address,
        }
        patch = MergePatch({"metadata": {"labels": label_changes, "annotations": annotations}})
        return self._client.patch(Node, self._node_name, "", patch)
