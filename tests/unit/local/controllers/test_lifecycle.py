"""Silent nodes, Pods nobody will finish, and volume claims."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from framework.fake_kube import FakeKube, fake_kube
from framework.waiting import eventually, running

from virt_core.apis import names
from virt_core.apis.base import from_plain
from virt_core.apis.coordination import Lease
from virt_core.apis.nodes import Node
from virt_core.apis.pods import Pod
from virt_core.apis.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from virt_core.kube.informer import Informer
from virt_core.kube.recorder import EventRecorder
from virt_core.runtime.clock import FakeClock
from virt_core.runtime.times import rfc3339
from virt_local.controllers.claim_rules import PROVISIONER, default_class, fits, why_pending
from virt_local.controllers.node_lifecycle import NodeLifecycle, wanted_taints
from virt_local.controllers.pod_gc import PodCollector
from virt_local.controllers.volume_claims import VolumeClaims, remove_tree

NODE = "/api/v1/nodes/node1"
PVC = "/api/v1/namespaces/default/persistentvolumeclaims/data"


@pytest.fixture
def kube() -> Iterator[FakeKube]:
    with fake_kube() as made:
        yield made


def ready_node(status: str = "True") -> dict[str, Any]:
    return {"metadata": {"name": "node1"}, "status": {"conditions": [{"type": "Ready", "status": status}]}}


def test_a_silent_node_becomes_unknown_and_tainted(kube: FakeKube) -> None:
    clock = FakeClock()
    kube.put(NODE, ready_node())
    lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node1"
    kube.put(lease, {"metadata": {"name": "node1", "namespace": "kube-node-lease"}, "spec": {}})
    client = kube.client()
    nodes, leases = Informer(client, Node), Informer(client, Lease, "kube-node-lease")
    recorder = EventRecorder(client, "node-controller")
    controller = NodeLifecycle(client, nodes, leases, recorder, clock)
    with running(nodes.run, leases.run, recorder.run):
        eventually(lambda: nodes.has_synced() and leases.has_synced())
        result = controller.reconcile("node1")
        assert result is not None
        assert result.requeue_after_s == pytest.approx(40.0)
        assert "taints" not in kube.objects[NODE].get("spec", {})
        clock.step(41)
        controller.reconcile("node1")
        (condition,) = kube.objects[NODE]["status"]["conditions"]
        assert (condition["status"], condition["reason"]) == ("Unknown", "NodeStatusUnknown")
        renewed = {"renewTime": rfc3339(clock.now() + timedelta(seconds=1))}
        kube.put(lease, {"metadata": {"name": "node1", "namespace": "kube-node-lease"}, "spec": renewed})
        kube.put(NODE, ready_node() | {"spec": {"taints": [{"key": "mine", "effect": "NoSchedule"}]}})
        eventually(lambda: (found := leases.get("kube-node-lease/node1")) and found.spec.renew_time)
        eventually(lambda: (node := nodes.get("node1")) and node.spec.taints)
        controller.reconcile("node1")
        assert [taint["key"] for taint in kube.objects[NODE]["spec"]["taints"]] == ["mine"]


def test_taints_follow_the_condition() -> None:
    ready, not_ready = from_plain(ready_node(), Node), from_plain(ready_node("False"), Node)
    assert wanted_taints(ready, silent=False) == []
    assert wanted_taints(not_ready, silent=False) == [("node.kubernetes.io/not-ready", "NoSchedule")]
    assert {effect for _, effect in wanted_taints(ready, silent=True)} == {"NoSchedule", "NoExecute"}


def test_pods_of_a_node_that_is_gone_are_removed_after_a_while(kube: FakeKube) -> None:
    clock = FakeClock()
    path = "/api/v1/namespaces/default/pods/p"
    kube.put(path, {"metadata": {"name": "p", "namespace": "default"}, "spec": {"nodeName": "lost"}})
    client = kube.client()
    pods, nodes = Informer(client, Pod), Informer(client, Node)
    collector = PodCollector(client, pods, nodes, clock)
    with running(pods.run, nodes.run):
        eventually(lambda: pods.has_synced() and nodes.has_synced())
        assert collector.reconcile("default/p") is not None
        assert path in kube.objects
        clock.step(41)
        collector.reconcile("default/p")
        assert path not in kube.objects


@pytest.fixture
def claims(kube: FakeKube, tmp_path: Path) -> Iterator[VolumeClaims]:
    client = kube.client()
    wanted = Informer(client, PersistentVolumeClaim)
    volumes, classes = Informer(client, PersistentVolume), Informer(client, StorageClass)
    recorder = EventRecorder(client, "claims")
    made = VolumeClaims(client, wanted, volumes, classes, tmp_path, recorder=recorder)
    with running(wanted.run, volumes.run, classes.run, recorder.run, made.controller().run):
        yield made


def claim(**spec: Any) -> dict[str, Any]:
    request = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    return {"metadata": {"name": "data", "namespace": "default", "uid": "u1"}, "spec": request, "status": {}}


def volume(size: str, **spec: Any) -> dict[str, Any]:
    offered = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce", "ReadOnlyMany"], **spec}
    return {"metadata": {"name": f"v-{size.lower()}"}, "spec": offered, "status": {"phase": "Available"}}


def test_the_default_class_makes_a_directory(kube: FakeKube, claims: VolumeClaims, tmp_path: Path) -> None:
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    meta = {"name": "hostpath", "annotations": default}
    kube.put("/apis/storage.k8s.io/v1/storageclasses/hostpath", {"metadata": meta, "provisioner": PROVISIONER})
    kube.put(PVC, claim())
    eventually(lambda: kube.objects[PVC]["status"].get("phase") == "Bound")
    name = kube.objects[PVC]["spec"]["volumeName"]
    made = kube.objects[f"/api/v1/persistentvolumes/{name}"]
    assert made["spec"]["hostPath"]["path"] == str(tmp_path / name)
    assert made["status"]["phase"] == "Bound"
    (tmp_path / name / "file").write_text("x")
    kube.remove(PVC)
    eventually(lambda: not (tmp_path / name).exists())


def test_a_claim_that_stays_pending_says_why_once(kube: FakeKube, claims: VolumeClaims) -> None:
    meta = {"name": "hostpath"}
    kube.put("/apis/storage.k8s.io/v1/storageclasses/hostpath", {"metadata": meta, "provisioner": PROVISIONER})
    eventually(lambda: claims._classes.get("hostpath"))
    kube.put(PVC, claim(storageClassName="hostpath", volumeMode="Block"))

    def events() -> list[dict[str, Any]]:
        return [obj for path, obj in kube.objects.items() if "/events/" in path]

    eventually(events)
    for size in ("2Gi", "3Gi"):
        made = volume(size)
        kube.put(f"/api/v1/persistentvolumes/{made['metadata']['name']}", made)
        claims.reconcile("default/data")
    (told,) = events()
    assert (told["type"], told["reason"], told.get("count", 1)) == ("Warning", "ProvisioningFailed", 1)
    assert "no block devices: set spec.volumeMode to Filesystem" in told["message"]
    block = volume("4Gi", volumeMode="Block", storageClassName="hostpath")
    kube.put("/api/v1/persistentvolumes/v-4gi", block)
    eventually(lambda: kube.objects[PVC]["status"].get("phase") == "Bound")


@pytest.mark.parametrize(
    ("spec", "provisioner", "reason", "words"),
    [
        ({"storageClassName": "fast"}, None, "ProvisioningFailed", 'storageclass.storage.k8s.io "fast" not found'),
        ({}, None, "FailedBinding", "no storage class is set"),
        ({"storageClassName": ""}, None, "FailedBinding", "no storage class is set"),
        ({"storageClassName": "fast"}, "ceph.example.org", "ExternalProvisioning", "ceph.example.org"),
    ],
)
def test_why_a_claim_is_pending(spec: dict[str, Any], provisioner: str | None, reason: str, words: str) -> None:
    plain = {"metadata": {"name": "fast"}, "provisioner": provisioner}
    chosen = from_plain(plain, StorageClass) if provisioner else None
    why = why_pending(from_plain(claim(**spec), PersistentVolumeClaim), chosen)
    assert why.reason == reason
    assert words in why.message


def test_of_several_default_classes_the_youngest_counts() -> None:
    def made(name: str, day: int, default: str = "true") -> StorageClass:
        meta = {
            "name": name,
            "creationTimestamp": f"2026-01-0{day}T00:00:00Z",
            "annotations": {names.ANNOTATION_DEFAULT_CLASS: default},
        }
        return from_plain({"metadata": meta, "provisioner": PROVISIONER}, StorageClass)

    chosen = default_class([made("a", 1), made("c", 2), made("b", 2), made("d", 3, "false")])
    assert chosen is not None
    assert chosen.metadata.name == "b"
    assert default_class([]) is None


def test_the_smallest_fitting_volume_is_taken(kube: FakeKube, claims: VolumeClaims) -> None:
    for size in ("10Gi", "2Gi", "512Mi"):
        made = volume(size)
        kube.put(f"/api/v1/persistentvolumes/{made['metadata']['name']}", made)
    kube.put(PVC, claim(storageClassName=""))
    eventually(lambda: kube.objects[PVC]["status"].get("phase") == "Bound")
    assert kube.objects[PVC]["spec"]["volumeName"] == "v-2gi"


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        (volume("1Gi"), True),
        (volume("1Mi"), False),
        (volume("1Gi", storageClassName="fast"), False),
        (volume("1Gi", accessModes=["ReadOnlyMany"]), False),
        (volume("1Gi", volumeMode="Block"), False),
        (volume("1Gi", claimRef={"name": "x"}), False),
    ],
)
def test_which_volumes_fit(offered: dict[str, Any], expected: bool) -> None:
    wanted = from_plain(claim(storageClassName=""), PersistentVolumeClaim)
    assert fits(from_plain(offered, PersistentVolume), wanted) is expected


def test_removing_a_directory_follows_no_link(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    (tmp_path / "volumes").mkdir()
    (tmp_path / "volumes" / "link").symlink_to(kept)
    inner = tmp_path / "volumes" / "vol"
    inner.mkdir()
    (inner / "link").symlink_to(kept)
    remove_tree(tmp_path / "volumes", "link")
    remove_tree(tmp_path / "volumes", "vol")
    assert (kept / "file").exists()
    assert not inner.exists()
    for bad in ("", "..", "a/b"):
        with pytest.raises(ValueError, match="not a directory's name"):
            remove_tree(tmp_path, bad)
