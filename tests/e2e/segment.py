"""A network that all nodes share, with a place on it outside of them: a wire from each node's bridge of a
NetworkAttachmentDefinition to one bridge in a namespace of the test's own, as a switch in a rack would join them.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import pytest

from virt_local.node.networks.definition import link_name
from virt_local.up.links import in_namespace

from .engine import Engine, VirtLocal
from .kubernetes import Kubernetes

T = TypeVar("T")
SUBNET = "10.66.9."
OUTSIDE = f"{SUBNET}1"
_LOOK_S = 0.1


def node_namespaces(engine: Engine) -> dict[str, str]:
    """The network namespace of each node."""
    if isinstance(engine, VirtLocal):
        names = [node["metadata"]["name"] for node in engine.get("nodes")["items"]]
        return {name: f"{engine.instance}-{name}" for name in names}
    if isinstance(engine, Kubernetes) and engine.cluster.owned:
        return {node.name: node.netns for node in engine.cluster.layout.nodes}
    pytest.skip("needs nodes on this machine, to join their networks")


class Segment:
    """`name` is that of the definition and of its bridge."""

    def __init__(self, nodes: Mapping[str, str], namespace: str, name: str) -> None:
        self._nodes, self._bridge = dict(nodes), link_name(namespace, name)
        self.definition = {
            "apiVersion": "k8s.cni.cncf.io/v1",
            "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": name},
            "spec": {"config": json.dumps({"cniVersion": "0.3.1", "type": "bridge", "bridge": name})},
        }
        self._netns = f"e2e-{os.getpid()}-{name}"
        self._wires = {netns: f"w{os.getpid() % 100000}-{number}" for number, netns in enumerate(nodes.values())}
        self._stop = threading.Event()
        self._keeper = threading.Thread(target=self._keep, daemon=True)

    def __enter__(self) -> Segment:
        _ip("netns", "add", self._netns)
        _ip("-n", self._netns, "link", "add", "outside", "type", "bridge")
        _ip("-n", self._netns, "addr", "add", f"{OUTSIDE}/24", "dev", "outside")
        _ip("-n", self._netns, "link", "set", "outside", "up")
        for netns, wire in self._wires.items():
            _ip("link", "add", wire, "netns", self._netns, "type", "veth", "peer", "name", wire, "netns", netns)
            _ip("-n", self._netns, "link", "set", wire, "master", "outside", "up")
            _ip("-n", netns, "link", "set", wire, "up")
        self._keeper.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._keeper.join(20)
        for wire in self._wires.values():
            _ip("-n", self._netns, "link", "del", wire)
        _ip("netns", "del", self._netns)

    def inside(self, body: Callable[[], T]) -> T:
        """Runs it on this network; sockets that it makes stay there."""
        return in_namespace(self._netns, body)

    def listen(self, port: int) -> socket.socket:
        return self.inside(lambda: socket.create_server((OUTSIDE, port)))

    def dial(self, address: str, port: int) -> socket.socket:
        return self.inside(lambda: socket.create_connection((address, port), 10))

    def _keep(self) -> None:
        """A node has the bridge once it has a Pod on that network."""
        while not self._stop.wait(_LOOK_S):
            for netns, wire in self._wires.items():
                if not _master(netns, wire):
                    _try("-n", netns, "link", "set", wire, "master", self._bridge)


def _master(netns: str, link: str) -> str:
    shown: list[dict[str, Any]] = json.loads(_try("-n", netns, "-j", "link", "show", link) or "[]")
    return str(shown[0].get("master", "")) if shown else ""


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=20)


def _try(*words: str) -> str:
    return subprocess.run(["ip", *words], check=False, capture_output=True, text=True, timeout=20).stdout
