"""What a Pod, and a user of the machine, may do to virt-handler through a notify socket: as good as nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from framework.fake_kube import fake_kube
from framework.waiting import eventually

from virt_core.apis import names

from .realnode import NOBODY, RealNode

pytestmark = pytest.mark.root

#: Room for the handler's own work, and a tenth of what the attacker takes.
FILES = 400


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RealNode]:
    with fake_kube() as kube:
        made = RealNode(tmp_path, kube)
        try:
            yield made
        finally:
            made.close()


def test_launcher_that_opens_connections_without_end_takes_nobody_down(node: RealNode) -> None:
    """Ten times as many as virt-handler can have files: it stays, and so does its work for others."""
    node.serve(files=FILES)
    greedy, other = node.pod("greedy"), node.pod("other")
    greedy.start()
    greedy.phase("Running")
    before = node.open_files()
    assert int(greedy.says("hold", str(FILES * 10))) > 0
    other.start()
    other.phase("Running")
    assert node.alive
    assert node.open_files() < before + 40
    assert "Too many open files" not in node.log()


@pytest.mark.parametrize("uid", [0, NOBODY, names.LAUNCHER_UID])
def test_only_a_process_of_the_pod_speaks_for_its_guest(node: RealNode, uid: int) -> None:
    """Somebody on the node, even with the launcher's own uid (as another VM's launcher has), cannot end a guest."""
    node.serve(files=FILES)
    pod = node.pod("vm")
    pod.start()
    pod.phase("Running")
    assert pod.says("end", uid=uid, inside=False) == "UNAVAILABLE"
    assert pod.status["phase"] == "Running"
    assert pod.says("end") == "OK"
    pod.phase("Succeeded")


def test_notify_socket_is_for_the_launchers_user_alone(node: RealNode) -> None:
    node.serve(files=FILES)
    pod = node.pod("vm")
    pod.start()
    pod.phase("Running")
    found = (pod.sockets / names.SOCKET_NOTIFY).stat()
    assert (found.st_uid, found.st_mode & 0o777) == (names.LAUNCHER_UID, 0o660)


def test_lack_of_files_is_survived(node: RealNode) -> None:
    """Whoever took them: while there are none nobody new is served, and afterwards everybody is."""
    node.serve(files=FILES)
    pod = node.pod("vm")
    pod.start()
    pod.phase("Running")
    node.allow_files(3)
    assert pod.says("end") != "OK"
    assert node.alive
    node.allow_files(FILES)
    eventually(lambda: pod.says("end") == "OK", within_s=30)
    pod.phase("Succeeded")
