"""One tenant's launchers that hang, and flood, cost other tenants nothing."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from framework.fake_kube import fake_kube
from framework.waiting import eventually

from .realnode import RealNode

pytestmark = pytest.mark.root

#: More than virt-handler has workers.
STOPPED = 9
#: A bucket of the histogram; a call to a launcher that hangs takes twice as long.
LONG = "2.5"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RealNode]:
    with fake_kube() as kube:
        made = RealNode(tmp_path, kube)
        try:
            yield made
        finally:
            made.close()


def test_stopped_launchers_that_flood_take_no_time_of_others(node: RealNode) -> None:
    """Their Pods talk on while their launchers stand still: virt-handler asks them, and no worker waits for it."""
    node.serve(files=1000)
    bad, other = [node.pod(f"bad{number}") for number in range(STOPPED)], node.pod("other")
    for pod in bad:
        pod.start()
    other.launch()
    for pod in bad:
        pod.phase("Running")
        assert pod.launcher is not None
        pod.launcher.send_signal(signal.SIGSTOP)
    for pod in bad:
        assert pod.says("flood") == "refused"
    other.hand_over()
    other.phase("Running")
    for pod in bad:
        eventually(lambda pod=pod: pod.asked_in_vain(), within_s=60)  # type: ignore[misc]
    assert node.reconciles_longer_than(LONG) == 0
