"""What programs that know KubeVirt look for: words, Events, ends of streams, annotations."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from virt_core.kube.clusterconfig import host_architecture

from .conftest import Space
from .engine import Engine, eventually
from .manifests import kernel_boot
from .subresource import Subresources, receive
from .vms import Machine, make, vm

pytestmark = pytest.mark.e2e

KEEP = "kubevirt.io/keep-launcher-alive-after-failure"
FAIL = "kubevirt.io/func-test-virt-launcher-fail-fast"


def events_of(space: Space, name: str) -> list[tuple[str, str]]:
    found = space.engine.get("-n", space.namespace, "events")["items"]
    return [(event["type"], event["reason"]) for event in found if event["involvedObject"]["name"] == name]


def test_a_console_changes_hands_and_a_deleted_vmi_tells_so(space: Space) -> None:
    """Who is displaced sees the bare end of the connection. The range of the guest's network has a leading zero."""
    manifest = kernel_boot("told", networks=[{"name": "default", "pod": {"vmNetworkCIDR": "10.10.010.0/24"}}])
    space.boot(manifest)
    with space.console("told") as console:
        console.prompt()
        eventually(lambda: "10.10.10.2" in console.shell("ip -4 addr show eth0"), within_s=60, what="DHCP's address")
    calls, path = Subresources(space), "virtualmachineinstances/told/console"

    async def meet() -> None:
        async with calls.connected(path) as first:
            await first.send_bytes(b"\n")
            await receive(first, 1)
            async with calls.connected(path) as second:
                while (message := await first.receive(timeout=30)).type is aiohttp.WSMsgType.BINARY:
                    pass
                assert message.type is aiohttp.WSMsgType.CLOSED
                assert first.close_code == aiohttp.WSCloseCode.ABNORMAL_CLOSURE
                await second.send_bytes(b"\n")
                await receive(second, 1)

    asyncio.run(asyncio.wait_for(meet(), 60))
    space.kubectl("delete", "vmi", "told", "--wait=false")
    eventually(lambda: ("Normal", "Deleted") in events_of(space, "told"), within_s=60, what="the Event Deleted")
    space.gone("vmi")


def compute_state(space: Space, name: str) -> dict[str, Any]:
    """What the launcher's container does, and whether the Pod is on its way out."""
    pods = space.engine.get("-n", space.namespace, "pods")["items"]
    (pod,) = [pod for pod in pods if pod["metadata"]["labels"]["vm.kubevirt.io/name"] == name]
    assert "deletionTimestamp" not in pod["metadata"]
    return {"phase": pod["status"]["phase"], **pod["status"]["containerStatuses"][0]["state"]}


@pytest.mark.parametrize("keep", [False, True])
def test_a_launcher_that_fails_at_once_is_kept_if_asked(space: Space, keep: bool) -> None:
    manifest = vm("crash", "Once")
    marks = {FAIL: "", KEEP: str(keep).lower()}
    manifest["spec"]["template"]["metadata"]["annotations"] = marks
    space.apply(manifest)
    space.phase("crash", "Failed", within_s=90)
    if keep:
        assert "running" in compute_state(space, "crash")
    else:
        eventually(lambda: compute_state(space, "crash")["phase"] == "Failed", within_s=30, what="a failed Pod")
        assert "--fail-fast" in compute_state(space, "crash")["terminated"]["message"]
    space.kubectl("delete", "vm", "crash")
    space.gone("pods")


def test_a_crash_loop_ends_with_its_cause(space: Space) -> None:
    manifest = vm("loop", "Always")
    manifest["spec"]["template"]["metadata"]["annotations"] = {FAIL: ""}
    space.apply(manifest)
    machine = Machine(space, "loop")
    machine.printable("CrashLoopBackOff")
    space.virtctl("stop", "loop")
    machine.printable("Stopped")


def test_sizes_as_people_write_them(space: Space) -> None:
    """A bare fraction is a quantity; more than any node has is for the scheduler to refuse."""
    manifest = vm("fraction", "Halted")
    manifest["spec"]["template"]["spec"]["domain"]["resources"] = {"requests": {"cpu": 2.2}, "limits": {"cpu": 2.2}}
    space.apply(manifest)
    stored = space.engine.get("-n", space.namespace, "vm", "fraction")["spec"]["template"]["spec"]["domain"]
    assert stored["resources"] == {"requests": {"cpu": "2200m"}, "limits": {"cpu": "2200m"}}
    manifest = vm("huge", "Always")
    domain = manifest["spec"]["template"]["spec"]["domain"]
    del domain["memory"]
    domain["resources"] = {"requests": {"cpu": "1M", "memory": "1Ei"}}
    space.apply(manifest)
    Machine(space, "huge").printable("ErrorUnschedulable")


def test_dedicated_cpus_wait_for_a_node_that_gives_them(space: Space) -> None:
    """No node here has a kubelet that pins, so nothing may start, and the label is named."""
    manifest = vm("pinned", "Always")
    manifest["spec"]["template"]["spec"]["domain"]["cpu"] = {"cores": 1, "dedicatedCpuPlacement": True}
    space.apply(manifest)
    Machine(space, "pinned").printable("ErrorUnschedulable")
    (told,) = [c for c in space.vmi("pinned")["status"]["conditions"] if c["type"] == "PodScheduled"]
    assert "Dedicated CPUs need a node with the label kubevirt.io/cpumanager=true" in told["message"]


def test_a_new_label_of_the_template_waits_for_the_next_start(space: Space) -> None:
    machine = make(space, "labels", "Always")
    machine.printable("Running")
    before = machine.get()["metadata"]["generation"]
    patch = [{"op": "add", "path": "/spec/template/metadata/labels/new", "value": "label"}]
    space.kubectl("patch", "vm", "labels", "--type=json", "-p", json.dumps(patch))
    eventually(lambda: machine.status()["desiredGeneration"] == before + 1, within_s=30, what="the new generation")
    assert machine.status()["observedGeneration"] == before
    assert space.vmi("labels")["metadata"]["annotations"]["kubevirt.io/vm-generation"] == str(before)
    uid = machine.uid()
    space.virtctl("restart", "labels")
    machine.restarted(uid)
    assert space.vmi("labels")["metadata"]["labels"]["new"] == "label"
    assert machine.status()["observedGeneration"] == machine.get()["metadata"]["generation"]


def test_the_api_describes_itself(engine: Engine) -> None:
    path = "/apis/subresources.kubevirt.io/v1/namespaces/{namespace}/virtualmachineinstances/{name}/console"

    def described() -> bool:
        return path in json.loads(engine.kubectl("get", "--raw", "/openapi/v2"))["paths"]

    eventually(described, within_s=90, what="the subresources in /openapi/v2")
    found = engine.get("-n", "virtpod", "kubevirt", "kubevirt")
    assert found["status"]["defaultArchitecture"] == host_architecture()
