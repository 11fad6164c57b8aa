"""The agent may die at any moment; its Pods do not notice and nothing is lost or left over."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest
from functional.local.node.support import Node, eventually, shell, terminated

from virt_local.node import kernel
from virt_local.node.runtime import cgroups
from virt_local.node.runtime.records import ContainerRecord

pytestmark = pytest.mark.root


def record(node: Node, uid: str) -> ContainerRecord:
    assert node.runtime is not None
    worker = node.runtime.manager.worker
    eventually(lambda: worker.state(uid) is not None)
    state = worker.state(uid)
    assert state is not None
    found = state.current("c")
    assert found is not None
    return found


def test_a_running_pod_goes_on_and_its_end_is_seen(node: Node) -> None:
    uid = node.run({"containers": [shell("i=0; while [ $i -lt 15 ]; do echo $i; i=$((i+1)); sleep 0.1; done; exit 5")]})
    node.wait_phase(uid, "Running")
    before, writes = record(node, uid).pid, len(node.pods.writes)
    node.stop()
    node.start()
    assert record(node, uid).pid == before
    status = node.wait_phase(uid, "Failed")
    assert terminated(status).exit_code == 5
    assert node.log(uid).split() == [str(i) for i in range(15)]
    assert len(node.pods.writes) == writes + 1


def test_the_exit_code_of_a_pod_that_ended_meanwhile(node: Node) -> None:
    uid = node.run({"containers": [shell("sleep 0.3; exit 4")]})
    node.wait_phase(uid, "Running")
    pid = record(node, uid).monitor_pid
    node.stop()
    eventually(lambda: not os.path.exists(f"/proc/{pid}"))
    node.start()
    assert terminated(node.wait_phase(uid, "Failed")).exit_code == 4


def test_a_pod_deleted_meanwhile_is_torn_down(node: Node) -> None:
    uid = node.run({"containers": [shell("sleep 1000")]})
    node.wait_phase(uid, "Running")
    pod = node.pods.get(uid)
    assert pod is not None
    node.stop()
    node.pods.delete(pod)
    node.start()
    root = node.settings.root
    eventually(lambda: not (root / "sandboxes" / uid).exists())
    assert not (root / "pods" / uid).exists()
    assert not (root / "netns" / uid).exists()
    assert cgroups.processes(f"{node.settings.cgroup}/pod{uid}") == set()
    assert leases(node) == set()
    assert kernel.mounts_below(root / "sandboxes") == []


def test_a_deletion_that_began_before_is_finished(node: Node) -> None:
    uid = node.run({"containers": [shell("sleep 1000")]})
    node.wait_phase(uid, "Running")
    node.stop()
    node.pods.request_delete(uid, 0)
    node.start()
    node.wait_gone(uid)


def test_a_container_made_but_not_started_is_made_again(node: Node) -> None:
    """A crash between making and starting a container leaves a process that waits for ever."""
    uid = node.run({"restartPolicy": "Always", "containers": [shell("sleep 1000")]})
    node.wait_phase(uid, "Running")
    assert node.runtime is not None
    containers, current = node.runtime.containers, record(node, uid)
    half = ContainerRecord(id="half", name="c", attempt=7, created_at="2099-01-01T00:00:00Z")
    bundle = containers.prepare(uid, half)
    (bundle / "rootfs").mkdir()
    kernel.mount("tmpfs", str(bundle / "rootfs"), "tmpfs")
    node.stop()
    node.start()
    eventually(lambda: not bundle.exists())
    assert record(node, uid).pid == current.pid


def test_conmon_killed_the_container_goes_on_and_its_end_is_seen(node: Node) -> None:
    uid = node.run({"containers": [shell("sleep 1.5")]})
    node.wait_phase(uid, "Running")
    os.kill(record(node, uid).monitor_pid, signal.SIGKILL)
    status = node.wait_phase(uid, "Failed")
    assert (terminated(status).exit_code, terminated(status).reason) == (137, "ContainerStatusUnknown")


def test_a_lease_of_nobody_is_freed(node: Node) -> None:
    node.wait_phase(node.run({"containers": [shell("sleep 0.1")]}), "Succeeded")
    stray = node.settings.root / "ipam" / node.settings.network / "10.199.7.99"
    stray.write_text("gone-pod\r\neth0")
    node.stop()
    node.start()
    eventually(lambda: not stray.exists())


def test_nothing_stays_after_many_pods(node: Node) -> None:
    """Namespaces, veths, mounts, cgroups, addresses: all given back."""
    uids = [node.run({"containers": [shell("sleep 1000")]}) for _ in range(6)]
    for uid in uids:
        node.wait_phase(uid, "Running")
    addresses = {node.status(uid).pod_ip for uid in uids}
    assert len(addresses) == 6
    for uid in uids:
        node.pods.request_delete(uid, 0)
    for uid in uids:
        node.wait_gone(uid)
    root = node.settings.root
    eventually(lambda: not any((root / "sandboxes").iterdir()))
    assert list((root / "netns").iterdir()) == []
    assert list((root / "pods").iterdir()) == []
    assert list((root / "runc").iterdir()) == []
    assert leases(node) == set()
    assert kernel.mounts_below(root) == []
    assert {name for name in cgroups.children(node.settings.cgroup) if name.startswith("pod")} == set()
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    assert "veth" not in links


def leases(node: Node) -> set[str]:
    directory = node.settings.root / "ipam" / node.settings.network
    return {path.name for path in directory.iterdir() if path.name.startswith(("10.", "fd"))}


def test_a_reboot_loses_the_sandbox_but_not_the_pod(node: Node) -> None:
    """After a reboot nothing runs and no namespace is left; a Pod that should run always runs again."""
    uid = node.run({"restartPolicy": "Always", "containers": [shell("sleep 1000")]})
    node.wait_phase(uid, "Running")
    old = record(node, uid)
    node.stop()
    os.kill(old.monitor_pid, signal.SIGKILL)
    os.kill(old.pid, signal.SIGKILL)
    kernel.unmount(node.settings.root / "netns" / uid)
    deadline = time.monotonic() + 5
    while os.path.exists(f"/proc/{old.pid}") and time.monotonic() < deadline:
        time.sleep(0.01)
    node.start()
    eventually(lambda: record(node, uid).running and record(node, uid).id != old.id)
    eventually(lambda: node.status(uid).container_statuses[0].restart_count == 1)
    assert node.status(uid).pod_ip != ""
