"""The API side of the node: status writes, the Node object and its Lease, against a small API server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from framework.fake_kube import FakeKube

from virt_core.apis.base import from_plain
from virt_core.apis.nodes import NodeSystemInfo
from virt_core.apis.pods import Pod
from virt_core.kube.errors import Conflict
from virt_core.runtime.clock import FakeClock
from virt_local.node.api import ApiPods, _complete
from virt_local.node.capacity import Machine
from virt_local.node.registration import NodeFacts, Registration, node_status, says_the_same

MACHINE = Machine(cpus=2, memory=4 << 30, disk=1 << 30, devices={"devices.kubevirt.io/tun": "1000"})
FACTS = NodeFacts(
    "node1", "10.0.0.11", 10250, ("10.1.0.0/24", "fd00::/64"), MACHINE, NodeSystemInfo(architecture="amd64")
)
POD_PATH = "/api/v1/namespaces/default/pods/p"


@pytest.fixture
def kube() -> Iterator[FakeKube]:
    fake = FakeKube()
    yield fake
    fake.down()


def pod(**status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "uid": "u1"},
        "spec": {"nodeName": "node1", "containers": [{"name": "c"}]},
        "status": {"phase": "Pending", **status},
    }


def test_the_status_patch_guards_itself(kube: FakeKube) -> None:
    """It tests uid and version, touches only status fields that changed, and goes to the status subresource."""
    sent: list[Any] = []

    def hook(method: str, path: str, _query: dict[str, str], body: Any) -> tuple[int, Any, dict[str, str]] | None:
        if method == "PATCH":
            sent.append((path, body))
            return 200, stored, {}
        return None

    stored = kube.put(POD_PATH, pod(qosClass="BestEffort"))
    kube.on_request = hook
    before = from_plain(stored, Pod)
    status = msgspec.structs.replace(before.status, phase="Running", pod_ip="10.1.0.2")
    ApiPods(kube.client(), "node1").publish(before, status)
    ((path, operations),) = sent
    assert path == f"{POD_PATH}/status"
    assert operations == [
        {"op": "test", "path": "/metadata/uid", "value": "u1"},
        {"op": "test", "path": "/metadata/resourceVersion", "value": before.metadata.resource_version},
        {"op": "add", "path": "/status/phase", "value": "Running"},
        {"op": "add", "path": "/status/podIP", "value": "10.1.0.2"},
    ]


@pytest.mark.parametrize("code", [409, 422])
def test_a_failed_test_is_a_conflict(kube: FakeKube, code: int) -> None:
    stored = kube.put(POD_PATH, pod())
    answer = {"kind": "Status", "status": "Failure", "code": code, "message": "testing path failed"}
    kube.on_request = lambda method, *_: (code, answer, {}) if method == "PATCH" else None
    before = from_plain(stored, Pod)
    with pytest.raises(Conflict):
        ApiPods(kube.client(), "node1").publish(before, msgspec.structs.replace(before.status, phase="Running"))


def test_a_gone_pod_is_no_error(kube: FakeKube) -> None:
    missing = from_plain(pod(), Pod)
    pods = ApiPods(kube.client(), "node1")
    pods.publish(missing, msgspec.structs.replace(missing.status, phase="Failed"))
    pods.delete(missing)


def test_container_statuses_are_complete() -> None:
    operation = {"op": "add", "path": "/status/containerStatuses", "value": [{"name": "c", "image": "i"}]}
    (status,) = _complete(operation)["value"]
    assert status == {"name": "c", "image": "i", "ready": False, "restartCount": 0, "imageID": ""}


def test_only_pods_of_the_node_are_listed(kube: FakeKube) -> None:
    pods = ApiPods(kube.client(), "node1")
    stop = threading.Event()
    seen: list[str] = []
    got = threading.Event()

    def note(uid: str) -> None:
        seen.append(uid)
        got.set()

    pods.on_change(note)
    kube.put(POD_PATH, pod())
    thread = threading.Thread(target=pods.run, args=(stop,))
    thread.start()
    try:
        assert got.wait(5)
        assert seen == ["u1"]
        assert pods.get("u1") is not None
        assert pods.uids() == {"u1"}
        queries = [query for method, path, query, _ in kube.requests if path == "/api/v1/pods"]
        assert all(query["fieldSelector"] == "spec.nodeName=node1" for query in queries)
        assert queries
    finally:
        stop.set()
        kube.down()
        thread.join(10)
    assert not thread.is_alive()


def test_registration_makes_node_and_lease_and_then_only_renews(kube: FakeKube) -> None:
    registration = Registration(kube.client(), FACTS, FakeClock())
    registration.register()
    registration.heartbeat()
    node = kube.objects["/api/v1/nodes/node1"]
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "node1"
    assert node["spec"]["podCIDRs"] == ["10.1.0.0/24", "fd00::/64"]
    assert node["status"]["allocatable"]["devices.kubevirt.io/tun"] == "1000"
    assert node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] == 10250
    ready = next(c for c in node["status"]["conditions"] if c["type"] == "Ready")
    assert ready["status"] == "True"
    lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node1"
    assert kube.objects[lease]["spec"]["holderIdentity"] == "node1"
    before = len(kube.requests)
    registration.heartbeat()
    assert [(method, path) for method, path, *_ in kube.requests[before:]] == [("PUT", lease)]


def test_an_unchanged_node_is_not_written_again(kube: FakeKube) -> None:
    Registration(kube.client(), FACTS, FakeClock()).register()
    before = len(kube.requests)
    Registration(kube.client(), FACTS, FakeClock()).register()
    assert [method for method, *_ in kube.requests[before:]] == ["GET"]


def test_a_node_declared_dead_says_that_it_lives(kube: FakeKube) -> None:
    status = node_status(FACTS, [], "2026-01-01T00:00:00Z")
    dead = msgspec.convert(msgspec.to_builtins(status), type(status))
    next(c for c in dead.conditions if c.type == "Ready").status = "Unknown"
    fresh = node_status(FACTS, dead.conditions, "2026-01-02T00:00:00Z")
    assert not says_the_same(dead, fresh)
    times = {c.type: c.last_transition_time for c in fresh.conditions}
    assert times == {
        "MemoryPressure": "2026-01-01T00:00:00Z", "DiskPressure": "2026-01-01T00:00:00Z",
        "PIDPressure": "2026-01-01T00:00:00Z", "Ready": "2026-01-02T00:00:00Z",
    }  # fmt: skip
