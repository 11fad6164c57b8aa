"""Devices of block volumes: taken away only when the API server itself knows of no Pod that could have found them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from framework.fake_kube import FakeKube, fake_kube
from framework.waiting import eventually, running

from virt_core.apis.pods import Pod
from virt_core.apis.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from virt_core.apis.volumesnapshots import VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent
from virt_core.kube.informer import Informer
from virt_core.kube.recorder import EventRecorder
from virt_local.storage import loops
from virt_local.storage import vocabulary as words
from virt_local.storage.devices import Devices
from virt_local.storage.store import VolumeStore
from virt_local.storage.world import World

POD = "/api/v1/namespaces/default/pods/p"


class FakeStore(VolumeStore):
    """A store whose devices are names in a list."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.done: list[str] = []
        self.refuses = False

    def attach(self, name: str) -> None:
        if self.refuses:
            raise loops.NoLoopDevices("this machine has no loop devices")
        self.done.append("attach")

    def hide(self, name: str) -> None:
        self.done.append("hide")

    def detach(self, name: str) -> None:
        self.done.append("detach")

    def is_attached(self, name: str) -> bool:
        return "attach" in self.done


@pytest.fixture
def kube() -> Iterator[FakeKube]:
    with fake_kube() as made:
        yield made


@pytest.fixture
def world(kube: FakeKube, tmp_path: Path) -> Iterator[World]:
    client = kube.client()
    store = FakeStore(tmp_path / "volumes")
    store.make("pvc-u1", block=True, size=4096)
    recorder = EventRecorder(client, "storage")
    kinds: tuple[Any, ...] = (Pod, PersistentVolumeClaim, PersistentVolume, StorageClass)
    kinds += (VolumeSnapshot, VolumeSnapshotContent, VolumeSnapshotClass)
    informers = [Informer(client, kind) for kind in kinds]
    claim = {"metadata": {"name": "data", "namespace": "default", "uid": "u1"}, "spec": {"volumeName": "pvc-u1"}}
    kube.put("/api/v1/namespaces/default/persistentvolumeclaims/data", {**claim, "status": {"phase": "Bound"}})
    meta = {"name": "pvc-u1", "annotations": {words.PROVISIONED_BY: words.PROVISIONER}}
    spec = {"volumeMode": "Block", "claimRef": {"namespace": "default", "name": "data", "uid": "u1"}}
    kube.put("/api/v1/persistentvolumes/pvc-u1", {"metadata": meta, "spec": spec})
    with running(*(each.run for each in informers), recorder.run):
        eventually(lambda: all(each.has_synced() for each in informers[:4]))
        yield World(client, recorder, store, *informers)


def pod(phase: str = "Running") -> dict[str, Any]:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    meta = {"name": "p", "namespace": "default", "uid": "p"}
    return {"metadata": meta, "spec": {"volumes": volumes, "containers": []}, "status": {"phase": phase}}


def test_a_device_is_there_while_a_pod_uses_it(kube: FakeKube, world: World) -> None:
    devices, store = Devices(world), world.store
    assert isinstance(store, FakeStore)
    devices.reconcile("pvc-u1")
    assert store.done == []
    kube.put(POD, pod())
    eventually(lambda: world.pods.get("default/p"))
    devices.reconcile("pvc-u1")
    assert store.done == ["attach"]
    kube.put(POD, pod("Succeeded"))
    eventually(lambda: (found := world.pods.get("default/p")) and found.status.phase == "Succeeded")
    devices.reconcile("pvc-u1")
    assert store.done == ["attach", "hide", "detach"]


def test_a_pod_that_we_have_not_heard_of_yet_keeps_its_device(kube: FakeKube, world: World) -> None:
    """It may have found the device already: only the API server knows, and it is asked after nobody can find it."""
    store = world.store
    assert isinstance(store, FakeStore)
    store.done = ["attach"]

    def late(method: str, path: str, query: dict[str, str], _body: Any) -> tuple[int, Any, dict[str, str]] | None:
        if method == "GET" and path.endswith("/namespaces/default/pods") and "watch" not in query:
            assert store.done[-1] == "hide", "asked before the node was hidden"
            listed = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [pod()]}
            return 200, listed, {}
        return None

    kube.on_request = late
    Devices(world).reconcile("pvc-u1")
    assert store.done == ["attach", "hide", "attach"]


def test_a_machine_without_loop_devices_says_so(kube: FakeKube, world: World) -> None:
    assert isinstance(world.store, FakeStore)
    world.store.refuses = True
    kube.put(POD, pod())
    eventually(lambda: world.pods.get("default/p"))
    result = Devices(world).reconcile("pvc-u1")
    assert result is not None
    assert result.requeue_after_s > 0

    def told() -> list[str]:
        return [obj["message"] for path, obj in kube.objects.items() if "/events/" in path]

    eventually(told)
    assert "this machine has no loop devices" in told()[0]
