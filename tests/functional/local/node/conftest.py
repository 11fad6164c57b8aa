"""A network namespace of its own for the node, and a check that nothing stays behind."""

from __future__ import annotations

import ctypes
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from functional.local.node.support import Node

from virt_local.node import kernel
from virt_local.node.cleanup import purge
from virt_local.node.cni import pod_bridge, pod_bridge_mac
from virt_local.node.runtime import cgroups
from virt_local.up.links import Bridge, Layout, establish

_libc = ctypes.CDLL(None, use_errno=True)


@pytest.fixture
def node_netns() -> Iterator[None]:
    """Threads and programs that the test starts live in a new network namespace."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    assert _libc.unshare(kernel.CLONE_NEWNET) == 0
    try:
        establish(Layout(up=("lo",)))
        yield
    finally:
        assert _libc.setns(before, kernel.CLONE_NEWNET) == 0
        os.close(before)


@pytest.fixture
def node(node_netns: None) -> Iterator[Node]:
    root = Path(tempfile.mkdtemp(prefix="vpnode-"))
    made = Node(root, "t" + uuid.uuid4().hex[:5])
    bridge = pod_bridge(made.instance)
    establish(Layout(bridges=(Bridge(bridge, pod_bridge_mac(bridge)),), up=(bridge,)))
    made.start()
    try:
        yield made
    finally:
        made.stop()
        purge(made.settings)
        left = kernel.mounts_below(root), cgroups.processes(f"/virtpod-{made.instance}")
        cgroups.remove(f"/virtpod-{made.instance}")
        kernel.unmount_below(root)
        shutil.rmtree(root)
        assert left == ([], set())
