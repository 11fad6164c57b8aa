"""The test cluster's stand-in for Multus, on a namespace as a container runtime leaves it."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from functional.local.node.support import FakeObjects, FakePods, eventually
from functional.local.node.test_networks import SUBNET
from tests.cluster.networks import Agent

from virt_core.apis import names
from virt_core.apis.base import from_plain
from virt_core.apis.podnetworks import NetworkAttachmentDefinition, NetworkAttachmentDefinitionSpec
from virt_core.apis.pods import Pod
from virt_local.node import kernel
from virt_local.node.assemble import CNI_DIRS
from virt_local.node.cni import CniSettings, Plugins
from virt_local.node.layout import NodeLayout
from virt_local.node.networks.keeper import PodNetworks

pytestmark = pytest.mark.root


class Box:
    """A Pod's sandbox: a process in a network namespace of its own."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(["unshare", "-n", "sleep", "600"])
        own = os.stat("/proc/self/ns/net").st_ino
        eventually(lambda: os.stat(f"/proc/{self.pid}/ns/net").st_ino != own)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def open(self, _uid: str) -> int:
        if self.process is None:
            raise LookupError("no sandbox yet")
        return os.open(f"/proc/{self.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    def links(self) -> list[str]:
        shown = json.loads(subprocess.check_output(["nsenter", "-t", str(self.pid), "-n", "ip", "-j", "link"]))
        return [each["ifname"] for each in shown]

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)


@pytest.fixture
def box(node_netns: None) -> Iterator[Box]:
    made = Box()
    try:
        yield made
    finally:
        made.end()


def test_networks_come_go_and_leave_nothing(box: Box, tmp_path: Path) -> None:
    layout, pods, objects, uid = NodeLayout(tmp_path / "state"), FakePods(), FakeObjects(), str(uuid.uuid4())
    layout.make()
    config = json.dumps({"type": "bridge", "bridge": "br", "ipam": SUBNET})
    objects.networks["default/blue"] = NetworkAttachmentDefinition(spec=NetworkAttachmentDefinitionSpec(config=config))
    plugins = Plugins(CniSettings("pods", "", (), layout.ipam, CNI_DIRS))
    agent = Agent(layout, pods, PodNetworks(layout, plugins, objects), box.open)

    def put(asked: str, phase: str = "Running") -> None:
        old = pods.get(uid)
        kept = dict(old.metadata.annotations) if old is not None else {}
        metadata = {"name": "p", "namespace": "default", "uid": uid}
        plain = {"metadata": metadata | {"annotations": kept | {names.ANNOTATION_NETWORKS: asked}}}
        pods.put(from_plain(plain | {"status": {"phase": phase}}, Pod))

    def told() -> list[str]:
        pod = pods.get(uid)
        assert pod is not None
        said = json.loads(pod.metadata.annotations.get(names.ANNOTATION_NETWORK_STATUS, "[]"))
        return [each["interface"] for each in said]

    put("blue@blue0", "Pending")
    assert agent.reconcile(uid) is not None, "there is no sandbox yet: look again"
    box.start()
    put("blue@blue0")
    assert agent.reconcile(uid) is None
    assert told() == ["eth0", "blue0"]
    assert box.links() == ["lo", "blue0"]
    put("")
    assert agent.reconcile(uid) is None
    assert (told(), box.links()) == ([], ["lo"])
    put("blue@blue1")
    agent.reconcile(uid)
    assert agent.known() == [uid]
    box.end()
    pods.delete(from_plain({"metadata": {"uid": uid}}, Pod))
    assert agent.reconcile(uid) is None
    assert agent.known() == []
    assert kernel.mounts_below(layout.root) == []
    assert not [path for path in (layout.ipam / "default.blue").iterdir() if path.name[0].isdigit()]
