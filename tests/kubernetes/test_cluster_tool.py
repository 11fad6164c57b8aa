"""The tool that makes the cluster, on a small cluster of its own: what dies comes back, what is made is removed.

The tests share one cluster of one node and break it further and further, so their order matters.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import Cluster, supervise
from tests.cluster.commands import CONTROL_PLANE, NODE
from tests.cluster.images import write_single
from tests.cluster.layout import OTHER_OCTETS, Layout
from tests.e2e.engine import eventually

pytestmark = pytest.mark.own_cluster

ROOT = Path(__file__).resolve().parents[2]
#: Nobody else's: these tests take it down whatever state it is in.
NAME = f"t{os.getpid()}"
IMAGE = "virtpod.internal/sleeper:v1"
IP_FREEBIND = 15


def tool(*args: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.cluster", args[0], "--cluster", NAME, *args[1:]]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)


@pytest.fixture(scope="module")
def own() -> Iterator[Cluster]:
    if os.geteuid() != 0:
        pytest.fail("the cluster needs root")
    started = tool("up", "--nodes", "1", "--no-images")
    assert started.returncode == 0, started.stderr
    assert started.stdout == f"export KUBECONFIG=/var/lib/virtpod-cluster/{NAME}/admin.kubeconfig\n"
    yield Cluster.attach(NAME)
    ended = tool("down")
    assert ended.returncode == 0, ended.stderr


@pytest.fixture(scope="module")
def sleeper(own: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Pod whose image is named by digest; its container must outlive everything but the node."""
    archive = tmp_path_factory.mktemp("image") / "sleeper.tar"
    write_single(archive, IMAGE, {"pause": (own.programs / "pause").read_bytes()}, ["/pause"])
    (by_digest,) = own.load(archive)
    container = {"name": "sleeper", "image": by_digest}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "sleeper"}, "spec": spec}
    eventually(lambda: own.try_kubectl("get", "serviceaccount", "default").returncode == 0, within_s=30)
    own.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    own.kubectl("wait", "--for=condition=Ready", "pod/sleeper", "--timeout=60s", timeout=70)
    return container_id(own)


def container_id(cluster: Cluster) -> str:
    (status,) = cluster.get("pod", "sleeper")["status"]["containerStatuses"]
    assert status["ready"]
    return str(status["containerID"])


def test_a_second_start_says_so_and_succeeds(own: Cluster) -> None:
    again = tool("up")
    assert again.returncode == 0
    assert "runs already, with 1 node." in again.stderr
    assert tool("status").returncode == 0


def test_another_number_of_nodes_needs_a_new_cluster(own: Cluster) -> None:
    refused = tool("up", "--nodes", "2")
    assert refused.returncode == 1
    assert "with 1 node and not 2: `make cluster-down` first" in refused.stderr


def test_certificates_verify_and_the_kubelet_answers(own: Cluster, sleeper: str) -> None:
    assert own.kubectl("logs", "sleeper") == ""
    assert own.kubectl("version", "-o", "json")
    refused = own.try_kubectl("exec", "sleeper", "--", "/nothing")
    assert "no such file" in refused.stderr


@pytest.mark.parametrize("component", [*CONTROL_PLANE, *NODE])
def test_a_killed_component_is_back_within_seconds_and_no_container_notices(
    own: Cluster, sleeper: str, component: str
) -> None:
    (old,) = own.pids(component)
    os.kill(old, signal.SIGKILL)
    eventually(lambda: own.pids(component) not in ([], [old]), within_s=5, what=f"{component} is back")
    eventually(lambda: own.try_kubectl("get", "--raw", "/readyz").returncode == 0, within_s=60)
    assert container_id(own) == sleeper


def test_a_node_dies_stays_dead_and_comes_back(own: Cluster, sleeper: str) -> None:
    own.kill_node("node1")
    assert not own.alive("node1")
    assert own.pids("kubelet") == []
    own.start_node("node1")
    eventually(lambda: container_id(own) != sleeper, within_s=120, what="the Pod runs again on the rebooted node")


def test_a_half_dead_cluster_is_one_sentence(own: Cluster) -> None:
    """The supervisors are killed; what they started runs on, ownerless."""
    keepers = supervise.supervisors(own.layout).living().values()
    for keeper in keepers:
        keeper.signal(signal.SIGKILL)
    assert all(keeper.wait(10) for keeper in keepers)
    assert own.pids("apiserver")
    assert own.pids("kubelet")
    refused = tool("up")
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"error: An earlier cluster '{NAME}' is half dead")
    assert refused.stderr.count("\n") == 1


def test_down_leaves_nothing_even_then(own: Cluster) -> None:
    assert own.leftovers()
    ended = tool("down")
    assert ended.returncode == 0, ended.stderr
    assert own.leftovers() == []
    again = tool("down")
    assert (again.returncode, again.stderr) == (0, f"There is no cluster '{NAME}' here.\n")


def test_a_taken_port_is_one_sentence_and_nothing_is_made(own: Cluster) -> None:
    """Whichever network the cluster would choose: somebody listens there already."""
    with contextlib.ExitStack() as stack:
        for octet in OTHER_OCTETS:
            with contextlib.suppress(OSError):  # Another cluster is there and listens itself.
                stack.enter_context(listening(Layout(NAME, octet).bridge_address))
        refused = tool("up", "--nodes", "1")
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: Port 6443 on 10.")
    assert "which apiserver needs, is taken by another program" in refused.stderr
    assert own.leftovers() == []


def listening(address: str) -> socket.socket:
    """Also on an address that does not exist yet."""
    server = socket.socket()
    server.setsockopt(socket.IPPROTO_IP, IP_FREEBIND, 1)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server.bind((address, 6443))
        server.listen()
    except OSError:
        server.close()
        raise
    return server


def test_down_after_a_start_that_was_killed_half_way(own: Cluster) -> None:
    starting = subprocess.Popen(
        [sys.executable, "-m", "tests.cluster", "up", "--cluster", NAME, "--nodes", "1", "--no-images"],
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
    )
    eventually(lambda: own.pids("apiserver"), within_s=60, what="the API server started")
    starting.kill()
    starting.wait(timeout=10)
    assert own.leftovers()
    ended = tool("down")
    assert ended.returncode == 0, ended.stderr
    assert own.leftovers() == []


def test_down_finds_processes_whose_records_are_gone(own: Cluster) -> None:
    started = tool("up", "--nodes", "1", "--no-images")
    assert started.returncode == 0, started.stderr
    for record in own.layout.run.rglob("*.pid"):
        record.unlink()
    (own.layout.state / "settings.json").unlink()
    ended = tool("down")
    assert ended.returncode == 0, ended.stderr
    assert own.leftovers() == []
