"""Volume claims: which volume they are bound to, whom they ask for one, and why they wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from framework.fake_kube import FakeKube, fake_kube
from framework.waiting import eventually, running

from virt_core.apis import names
from virt_core.apis.base import from_plain
from virt_core.apis.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from virt_core.kube.informer import Informer
from virt_core.kube.recorder import EventRecorder
from virt_local.controllers.claim_rules import default_class, fits, may_bind, why_pending
from virt_local.controllers.volume_claims import VolumeClaims
from virt_local.storage.vocabulary import ASKED, PROVISIONER

PVC = "/api/v1/namespaces/default/persistentvolumeclaims/data"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"


@pytest.fixture
def kube() -> Iterator[FakeKube]:
    with fake_kube() as made:
        yield made


@pytest.fixture
def claims(kube: FakeKube) -> Iterator[VolumeClaims]:
    client = kube.client()
    wanted = Informer(client, PersistentVolumeClaim)
    volumes, classes = Informer(client, PersistentVolume), Informer(client, StorageClass)
    recorder = EventRecorder(client, "claims")
    made = VolumeClaims(client, wanted, volumes, classes, recorder=recorder)
    with running(wanted.run, volumes.run, classes.run, recorder.run, made.controller().run):
        yield made


def claim(**spec: Any) -> dict[str, Any]:
    request = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    return {"metadata": {"name": "data", "namespace": "default", "uid": "u1"}, "spec": request, "status": {}}


def volume(size: str, **spec: Any) -> dict[str, Any]:
    offered = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce", "ReadOnlyMany"], **spec}
    return {"metadata": {"name": f"v-{size.lower()}"}, "spec": offered, "status": {"phase": "Available"}}


def test_the_provisioner_of_the_default_class_is_asked(kube: FakeKube, claims: VolumeClaims) -> None:
    meta = {"name": "hostpath", "annotations": {names.ANNOTATION_DEFAULT_CLASS: "true"}}
    kube.put(f"{CLASSES}/hostpath", {"metadata": meta, "provisioner": PROVISIONER})
    kube.put(PVC, claim())
    eventually(lambda: kube.objects[PVC]["metadata"].get("annotations", {}).get(ASKED) == PROVISIONER)
    assert kube.objects[PVC]["spec"]["storageClassName"] == "hostpath"
    reference = {"namespace": "default", "name": "data", "uid": "u1"}
    made = volume("1Gi", storageClassName="hostpath", claimRef=reference)
    kube.put("/api/v1/persistentvolumes/v-1gi", made)
    eventually(lambda: kube.objects[PVC]["status"].get("phase") == "Bound")
    assert kube.objects["/api/v1/persistentvolumes/v-1gi"]["status"]["phase"] == "Bound"
    kube.remove(PVC)
    eventually(lambda: kube.objects["/api/v1/persistentvolumes/v-1gi"]["status"]["phase"] == "Released")


def test_a_volume_for_a_claim_that_is_gone_is_released(kube: FakeKube, claims: VolumeClaims) -> None:
    """Made in the moment in which its claim was deleted."""
    made = volume("1Gi", claimRef={"namespace": "default", "name": "data", "uid": "gone"})
    kube.put("/api/v1/persistentvolumes/v-1gi", made)
    eventually(lambda: kube.objects["/api/v1/persistentvolumes/v-1gi"]["status"]["phase"] == "Released")


def test_a_claim_that_waits_for_its_consumer_says_so_once(kube: FakeKube, claims: VolumeClaims) -> None:
    late = {"metadata": {"name": "late"}, "provisioner": PROVISIONER, "volumeBindingMode": "WaitForFirstConsumer"}
    kube.put(f"{CLASSES}/late", late)
    eventually(lambda: claims._classes.get("late"))
    kube.put(PVC, claim(storageClassName="late"))

    def events() -> list[dict[str, Any]]:
        return [obj for path, obj in kube.objects.items() if "/events/" in path]

    eventually(events)
    for size in ("2Gi", "3Gi"):
        made = volume(size, storageClassName="late")
        kube.put(f"/api/v1/persistentvolumes/{made['metadata']['name']}", made)
        claims.reconcile("default/data")
    (told,) = events()
    assert (told["reason"], told.get("count", 1)) == ("WaitForFirstConsumer", 1)
    assert "annotations" not in kube.objects[PVC]["metadata"]
    placed = claim(storageClassName="late")
    placed["metadata"]["annotations"] = {names.ANNOTATION_SELECTED_NODE: "node1"}
    kube.put(PVC, placed)
    eventually(lambda: kube.objects[PVC]["spec"].get("volumeName") == "v-2gi")


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        (volume("1Gi"), True),
        (volume("1Gi", claimRef={"namespace": "default", "name": "data", "uid": "u1"}), True),
        (volume("1Gi", claimRef={"namespace": "default", "name": "data", "uid": "u0"}), False),
        (volume("1Gi", claimRef={"namespace": "other", "name": "data", "uid": "u1"}), False),
        (volume("1Gi", volumeMode="Block"), False),
        (volume("1Mi"), False),
        (volume("1Gi", storageClassName="fast"), False),
    ],
)
def test_a_claim_gets_the_volume_that_it_names_only_if_nobody_has_it(offered: dict[str, Any], expected: bool) -> None:
    wanted = from_plain(claim(storageClassName="", volumeName="v-1gi"), PersistentVolumeClaim)
    assert may_bind(from_plain(offered, PersistentVolume), wanted) is expected


def test_a_volume_that_is_there_is_no_copy_of_a_source() -> None:
    source = {"kind": "PersistentVolumeClaim", "name": "other"}
    wanted = from_plain(claim(storageClassName="", dataSourceRef=source), PersistentVolumeClaim)
    assert not fits(from_plain(volume("1Gi"), PersistentVolume), wanted)


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
    assert why is not None
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
