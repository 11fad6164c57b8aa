"""Nodes as the kubelet and the scheduler see them: devices, labels, heartbeat, launchers that are nobody special."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import Cluster
from tests.e2e.conftest import Space
from tests.e2e.engine import Engine, eventually, process_table
from tests.e2e.manifests import kernel_boot
from virt_core.apis.quantity import parse_int

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

TUN, KVM = "devices.kubevirt.io/tun", "devices.kubevirt.io/kvm"
SCHEDULABLE = "kubevirt.io/schedulable"
RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"
#: The kubelet tells the API server of its devices every ten seconds.
TOLD_WITHIN_S = 40.0


def node(cluster: Cluster, name: str) -> Any:
    return cluster.get("node", name)


def allocatable(cluster: Cluster, name: str, resource: str = TUN) -> int:
    return parse_int(node(cluster, name)["status"]["allocatable"].get(resource, "0"))


def test_kubelet_offers_the_devices_of_its_node(cluster: Cluster, engine: Engine) -> None:
    for name in cluster.nodes:
        eventually(lambda name=name: allocatable(cluster, name) > 0, within_s=TOLD_WITHIN_S, what=f"{TUN} on {name}")
        virtualization = node(cluster, name)["metadata"]["labels"]["virtpod.io/virtualization"]
        assert (allocatable(cluster, name, KVM) > 0) == (virtualization == "kvm")


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(microsecond=0)


def beat(cluster: Cluster, name: str) -> datetime:
    return moment(node(cluster, name)["metadata"]["annotations"]["kubevirt.io/heartbeat"])


def handler_started(cluster: Cluster, name: str) -> datetime:
    """When the container of the node's virt-handler began: a heartbeat from before it is not its own."""
    pods = cluster.get("-n", "virtpod", "pods", "-l", "kubevirt.io=virt-handler")["items"]
    pod = next(pod for pod in pods if pod["spec"]["nodeName"] == name and "deletionTimestamp" not in pod["metadata"])
    return moment(pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"])


def test_node_says_what_it_can_do_and_that_it_lives(cluster: Cluster, engine: Engine) -> None:
    for name in cluster.nodes:
        meta = node(cluster, name)["metadata"]
        labels = meta["labels"]
        assert labels[SCHEDULABLE] == "true"
        assert labels["kubevirt.io/cpumanager"] in ("true", "false")
        for prefix in ("cpu-model", "cpu-feature", "cpu-vendor", "host-model-cpu", "machine-type"):
            assert any(key.startswith(f"{prefix}.node.kubevirt.io/") for key in labels), prefix
        assert labels["machine-type.node.kubevirt.io/q35"] == "true"
        eventually(
            lambda name=name: beat(cluster, name) >= handler_started(cluster, name), within_s=60, what="a heartbeat"
        )


def test_number_of_machines_follows_the_configuration(cluster: Cluster, engine: Engine) -> None:
    kubevirt = ("-n", "virtpod", "kubevirt", "kubevirt", "--type=merge", "-p")
    name = cluster.nodes[0]
    try:
        cluster.kubectl("patch", *kubevirt, '{"spec":{"configuration":{"virtualMachineInstancesPerNode":7}}}')
        eventually(lambda: allocatable(cluster, name) == 7, within_s=TOLD_WITHIN_S, what="seven machines")
    finally:
        cluster.kubectl("patch", *kubevirt, '{"spec":{"configuration":{"virtualMachineInstancesPerNode":null}}}')
    eventually(lambda: allocatable(cluster, name) == 1000, within_s=TOLD_WITHIN_S, what="a thousand again")


def test_kubelet_that_restarts_knows_the_devices_again(owned: Cluster, engine: Engine, space: Space) -> None:
    """It forgets its plugins and clears their sockets; a machine still starts there."""
    name = owned.nodes[-1]
    (old,) = owned.pids("kubelet", name)
    os.kill(old, signal.SIGKILL)
    eventually(lambda: owned.pids("kubelet", name) not in ([], [old]), within_s=60, what="another kubelet")
    sockets = "/var/lib/kubelet/device-plugins"
    eventually(lambda: "kubevirt-tun.sock" in owned.run_on(name, "ls", sockets), within_s=30, what="the socket")
    eventually(lambda: allocatable(owned, name) > 0, within_s=TOLD_WITHIN_S, what=f"{TUN} on {name}")
    machine = kernel_boot("after")
    machine["spec"]["nodeSelector"] = {"kubernetes.io/hostname": name}
    assert space.boot(machine)["status"]["nodeName"] == name


@contextmanager
def hidden(cluster: Cluster, name: str, directory: str) -> Iterator[None]:
    """Something is mounted over a directory of devices; an entry that comes and goes beside it makes others look."""
    nudge = f"touch /dev/virtpod-{os.getpid()}; rm -f /dev/virtpod-{os.getpid()}"
    cluster.run_on(name, "sh", "-ec", f"mount -t tmpfs none {directory}; {nudge}")
    try:
        yield
    finally:
        cluster.run_on(name, "sh", "-ec", f"umount {directory}; {nudge}")


def test_device_that_vanishes_is_not_given_to_anybody(owned: Cluster, engine: Engine) -> None:
    name = owned.nodes[-1]
    eventually(lambda: allocatable(owned, name) > 0, within_s=TOLD_WITHIN_S, what="devices")
    with hidden(owned, name, "/dev/net"):
        eventually(lambda: allocatable(owned, name) == 0, within_s=TOLD_WITHIN_S, what="no usable device")
        assert parse_int(node(owned, name)["status"]["capacity"][TUN]) > 0
    eventually(lambda: allocatable(owned, name) > 0, within_s=TOLD_WITHIN_S, what="devices again")


def test_launcher_is_admitted_where_only_restricted_pods_are(cluster: Cluster, engine: Engine, space: Space) -> None:
    engine.kubectl("label", "namespace", space.namespace, RESTRICTED)
    refused = engine.run(
        "kubectl", "-n", space.namespace, "run", "bold", "--image=virtpod.internal/busybox:v1", "--privileged"
    )
    assert refused.returncode != 0, "the namespace takes any Pod"
    assert "violates PodSecurity" in refused.stderr
    space.boot(kernel_boot("modest"))
    (pod,) = engine.get("-n", space.namespace, "pods")["items"]
    assert pod["spec"]["securityContext"]["runAsUser"] == 107
    (container,) = pod["spec"]["containers"]
    assert container["securityContext"]["capabilities"] == {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]}


def test_launcher_owns_its_devices_and_the_node_keeps_its_own(owned: Cluster, engine: Engine, space: Space) -> None:
    before = os.stat("/dev/net/tun")
    space.boot(kernel_boot("owner"))
    (pod,) = engine.get("-n", space.namespace, "pods")["items"]
    look = "import os; s = os.stat('/dev/net/tun'); print(s.st_uid, os.access('/dev/net/tun', os.R_OK | os.W_OK))"
    told = space.kubectl("exec", pod["metadata"]["name"], "-c", "compute", "--", "python3", "-c", look)
    assert told.split() == ["107", "True"]
    assert os.stat("/dev/net/tun").st_uid == before.st_uid


def servers_of(pod_uid: str) -> list[int]:
    """The DHCP servers in a Pod's cgroups."""
    found = [pid for pid, args in process_table() if Path(args[0]).name == "dnsmasq"]
    return [pid for pid in found if pod_uid in Path(f"/proc/{pid}/cgroup").read_text().replace("_", "-")]


def test_restart_of_the_handler_leaves_the_guests_dhcp_alone(owned: Cluster, engine: Engine, space: Space) -> None:
    """Whatever is in the container's cgroup ends with the container; the servers of a Pod are in the Pod's."""
    space.boot(kernel_boot("served"))
    (pod,) = engine.get("-n", space.namespace, "pods")["items"]
    uid = pod["metadata"]["uid"]
    (server,) = servers_of(uid)
    hierarchies = Path(f"/proc/{server}/cgroup").read_text().splitlines()
    beside = [line for line in hierarchies if "kubepods" in line and uid not in line.replace("_", "-")]
    assert not beside, "in a cgroup of another Pod"
    name = pod["spec"]["nodeName"]
    select = ("-l", "kubevirt.io=virt-handler", "--field-selector", f"spec.nodeName={name}")
    owned.kubectl("-n", "virtpod", "delete", "pod", *select, "--timeout=60s", timeout=80)
    owned.kubectl("-n", "virtpod", "rollout", "status", "daemonset/virt-handler", "--timeout=120s", timeout=140)
    assert servers_of(uid) == [server]
    eventually(
        lambda: node(owned, name)["metadata"]["labels"][SCHEDULABLE] == "true", within_s=30, what="schedulable again"
    )
    assert space.vmi("served")["status"]["phase"] == "Running"
