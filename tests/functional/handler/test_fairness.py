"""One tenant's launchers that hang, and flood, cost other tenants nothing."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from framework.fake_kube import fake_kube

from .realnode import Pod, RealNode

pytestmark = pytest.mark.root

#: More than virt-handler has workers.
STOPPED = 9
#: A call to a launcher that hangs takes a hundred times as long as a start.
TIMES = 10.0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RealNode]:
    with fake_kube() as kube:
        made = RealNode(tmp_path, kube)
        try:
            yield made
        finally:
            made.close()


def launched(node: RealNode, prefix: str, count: int) -> list[Pod]:
    """Pods whose launchers serve already, so that what is measured is virt-handler's part."""
    pods = [node.pod(f"{prefix}{number}") for number in range(count)]
    for pod in pods:
        pod.launch()
    return pods


def slowest(pods: list[Pod]) -> float:
    """Seconds from the hand-over to Running, one after the other."""
    longest = 0.0
    for pod in pods:
        began = time.monotonic()
        pod.hand_over()
        pod.phase("Running", within_s=60)
        longest = max(longest, time.monotonic() - began)
    return longest


def test_stopped_launchers_that_flood_delay_nobody_else(node: RealNode) -> None:
    """Their Pods talk on while their launchers stand still: no worker of virt-handler waits for them."""
    node.serve(files=1000)
    bad, before, during = launched(node, "bad", STOPPED), launched(node, "before", 3), launched(node, "during", 3)
    usual = slowest(before)
    slowest(bad)
    for pod in bad:
        assert pod.launcher is not None
        pod.launcher.send_signal(signal.SIGSTOP)
    for pod in bad:
        assert pod.says("flood") == "refused"
    assert slowest(during) < TIMES * usual
