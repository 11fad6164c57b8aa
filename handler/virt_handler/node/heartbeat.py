"""Tells the cluster once a minute, in one patch: the handler is alive, where it is, and what its node can do."""

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
from virt_core.runtime.clock import Clock, rfc3339
from virt_core.runtime.health import split_address
from virt_core.runtime.logs import get_logger
from virt_handler.node.capabilities import DOMAIN_FILE, HOST_FILE, NodeCapabilities
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
    ) -> None:
        self._config = config
        self._client, self._node_name, self._clock = client, node_name, clock
        self._address, self._capabilities = address, capabilities
        self._told: dict[str, str] | None = None

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            pause = PERIOD_S * random.uniform(1.0, 1.0 + JITTER)  # noqa: S311 - spreads load, guards nothing
            try:
                self.beat()
            except ApiError as error:
                log.warning("the heartbeat did not get through", error=str(error))
                pause = _RETRY_S
            self._clock.wait(stop, pause)
        self.withdraw()

    def beat(self) -> None:
        wanted = self._labels()
        changes = self._label_changes(wanted)
        self._patch(changes)
        self._told = wanted

    def withdraw(self) -> None:
        """No new VMs while we are away; those that run do not care."""
        try:
            self._patch({names.LABEL_SCHEDULABLE: "false"})
        except ApiError as error:
            log.warning("could not withdraw the node; the controller will, in a while", error=str(error))

    def _labels(self) -> dict[str, str]:
        texts = self._capabilities.text(HOST_FILE), self._capabilities.text(DOMAIN_FILE)
        obsolete = self._config().obsolete_cpu_models
        return labels(*texts, kvm=self._capabilities.kvm, obsolete=obsolete) | {names.LABEL_SCHEDULABLE: "true"}

    def _label_changes(self, wanted: dict[str, str]) -> dict[str, str | None]:
        """Only what changed goes over the wire; schedulable always: the controller may have taken it away."""
        before = self._told
        if before is None:
            node = self._client.get(Node, self._node_name)
            self._learn_address(node)
            before = {key: value for key, value in node.metadata.labels.items() if _is_owned(key, wanted)}
        changes: dict[str, str | None] = {key: value for key, value in wanted.items() if before.get(key) != value}
        changes |= {key: None for key in before if key not in wanted}
        changes[names.LABEL_SCHEDULABLE] = "true"
        return changes

    def _learn_address(self, node: Node) -> None:
        """Who listens everywhere is reached at the node's own address."""
        host, port = split_address(self._address)
        if host not in _ANY:
            return
        inner = next((a.address for a in node.status.addresses if a.type == "InternalIP"), "")
        if inner:
            self._address = f"[{inner}]:{port}" if ":" in inner else f"{inner}:{port}"

    def _patch(self, label_changes: dict[str, Any]) -> None:
        annotations = {
            names.ANNOTATION_HEARTBEAT: rfc3339(self._clock.now()),
            names.ANNOTATION_HANDLER_ADDRESS: self._address,
        }
        patch = MergePatch({"metadata": {"labels": label_changes, "annotations": annotations}})
        self._client.patch(Node, self._node_name, "", patch)


def _is_owned(key: str, wanted: dict[str, str]) -> bool:
    return key in wanted or key.startswith(OWNED_PREFIXES)
