"""What a claim is given, and the sentence when it is not."""

from __future__ import annotations

from typing import Any

import pytest

from virt_core.apis import names
from virt_core.apis.base import from_plain
from virt_core.apis.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from virt_core.apis.volumesnapshots import VolumeSnapshot, VolumeSnapshotContent
from virt_local.storage import rules, snapshot_rules
from virt_local.storage import vocabulary as words
from virt_local.storage.rules import Refused

GIB = 1 << 30
SNAPSHOT = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"}
CLONE = {"kind": "PersistentVolumeClaim", "name": "source"}


def claim(marks: dict[str, str] | None = None, **spec: Any) -> PersistentVolumeClaim:
    request = {"resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "c", **spec}
    meta = {"name": "data", "namespace": "ns", "uid": "u", "annotations": marks or {}}
    return from_plain({"metadata": meta, "spec": request}, PersistentVolumeClaim)


def storage_class(**more: Any) -> StorageClass:
    return from_plain({"metadata": {"name": "c"}, "provisioner": words.PROVISIONER, **more}, StorageClass)


ASKED = {words.ASKED: words.PROVISIONER}


@pytest.mark.parametrize(
    ("found", "chosen", "expected"),
    [
        (claim(ASKED), storage_class(), True),
        (claim(), storage_class(), False),
        (claim(ASKED), None, False),
        (claim(ASKED, volumeName="v"), storage_class(), False),
        (claim(ASKED), storage_class(provisioner="other"), False),
        (claim(ASKED), storage_class(volumeBindingMode="WaitForFirstConsumer"), False),
        (
            claim(ASKED | {names.ANNOTATION_SELECTED_NODE: "n"}),
            storage_class(volumeBindingMode="WaitForFirstConsumer"),
            True,
        ),
    ],
)
def test_whom_we_make_a_volume_for(found: PersistentVolumeClaim, chosen: StorageClass | None, expected: bool) -> None:
    assert rules.is_asked(found, chosen) is expected


@pytest.mark.parametrize(("text", "expected"), [("1", 4096), ("1Mi", 1 << 20), ("1500M", 1500000256)])
def test_sizes_are_whole_pieces_of_a_disk(text: str, expected: int) -> None:
    assert rules.wanted_size(claim(resources={"requests": {"storage": text}})) == expected


@pytest.mark.parametrize("text", ["0", "-1Gi", "2Ei"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(Refused, match="no size for a volume"):
        rules.wanted_size(claim(resources={"requests": {"storage": text}}))


def test_room_is_what_is_free_and_not_promised() -> None:
    rules.check_room(GIB, GIB, 2 * GIB, 1.0)
    with pytest.raises(Refused, match="no room for 1Gi: 2Gi are free, and other claims were promised"):
        rules.check_room(GIB, GIB + 1, 2 * GIB, 1.0)
    rules.check_room(GIB, 3 * GIB, 2 * GIB, 2.0)
    assert rules.overcommit(storage_class(parameters={"overcommit": "2.5"})) == 2.5
    for bad in ("0.5", "x", "1e9"):
        with pytest.raises(Refused, match=r"parameters\.overcommit"):
            rules.overcommit(storage_class(parameters={"overcommit": bad}))


def test_what_a_class_asks_for_and_cannot_have_is_said() -> None:
    with pytest.raises(Refused, match=r"parameters\.fsType"):
        rules.check_parameters(storage_class(parameters={"fsType": "xfs"}))
    with pytest.raises(Refused, match="mountOptions"):
        rules.check_parameters(storage_class(mountOptions=["ro"]))


def test_a_source_of_another_namespace_or_kind_is_not_given_away() -> None:
    with pytest.raises(Refused, match="another namespace"):
        rules.source_of(claim(dataSourceRef={**CLONE, "namespace": "theirs"}))
    with pytest.raises(Refused, match="its own populator"):
        rules.source_of(claim(dataSourceRef={"apiGroup": "cdi.kubevirt.io", "kind": "VolumeImportSource", "name": "x"}))
    own = rules.source_of(claim(dataSource=CLONE))
    assert own is not None
    assert own.name == "source"


def volume(size: str = "1Gi", ours: bool = True, uid: str = "source-uid", **spec: Any) -> PersistentVolume:
    marks = {words.PROVISIONED_BY: words.PROVISIONER} if ours else {}
    made = {"capacity": {"storage": size}, "claimRef": {"uid": uid}, **spec}
    return from_plain({"metadata": {"name": "pvc-1", "annotations": marks}, "spec": made}, PersistentVolume)


def source(phase: str = "Bound", **meta: Any) -> PersistentVolumeClaim:
    plain = {"metadata": {"name": "source", "namespace": "ns", "uid": "source-uid", **meta}, "status": {"phase": phase}}
    return from_plain(plain, PersistentVolumeClaim)


@pytest.mark.parametrize(
    ("found", "bound", "text"),
    [
        (None, None, "ns/source is not there"),
        (source("Pending"), None, "not bound"),
        (source(deletionTimestamp="2026-01-01T00:00:00Z"), volume(), "being deleted"),
        (source(), volume(ours=False), "did not make"),
        (source(), volume(uid="another"), "not bound to each other"),
        (source(), volume(volumeMode="Block"), "another volumeMode"),
        (source(), volume("2Gi"), "less than the size 2147483648"),
    ],
)
def test_what_is_not_cloned(found: PersistentVolumeClaim | None, bound: PersistentVolume | None, text: str) -> None:
    with pytest.raises(Refused, match=text):
        rules.clone_origin(claim(dataSource=CLONE), found, bound, GIB)
    assert rules.clone_origin(claim(dataSource=CLONE), source(), volume(), GIB).name == "pvc-1"


def snapshot(*, ready: bool = True, uid: str = "s-uid") -> VolumeSnapshot:
    status = {"readyToUse": ready, "boundVolumeSnapshotContentName": "content"}
    plain = {"metadata": {"name": "s", "namespace": "ns", "uid": uid}, "status": status}
    return from_plain(plain, VolumeSnapshot)


def content(size: int = GIB, driver: str = words.PROVISIONER, **spec: Any) -> VolumeSnapshotContent:
    reference = {"name": "s", "namespace": "ns", "uid": "s-uid"}
    status = {"snapshotHandle": "snap-s-uid", "restoreSize": size, "readyToUse": True}
    plain = {"metadata": {"name": "content"}, "spec": {"driver": driver, "volumeSnapshotRef": reference, **spec}}
    return from_plain({**plain, "status": status}, VolumeSnapshotContent)


@pytest.mark.parametrize(
    ("found", "kept", "text"),
    [
        (None, None, "ns/s is not there"),
        (snapshot(ready=False), content(), "not ready"),
        (snapshot(uid="a-new-one"), content(), "not bound to each other"),
        (snapshot(), content(driver="other"), "belongs to the driver other"),
        (snapshot(), content(sourceVolumeMode="Block"), "another volumeMode"),
        (snapshot(), content(2 * GIB), "at least 2Gi"),
    ],
)
def test_what_is_not_restored(found: VolumeSnapshot | None, kept: VolumeSnapshotContent | None, text: str) -> None:
    with pytest.raises(Refused, match=text):
        rules.snapshot_origin(claim(dataSource=SNAPSHOT), found, kept, GIB)
    origin = rules.snapshot_origin(claim(dataSource=SNAPSHOT), snapshot(), content(), GIB)
    assert (origin.name, origin.is_snapshot) == ("snap-s-uid", True)


def test_content_of_another_snapshot_is_not_taken() -> None:
    with pytest.raises(Refused, match="belongs to another snapshot"):
        snapshot_rules.check_bound(snapshot(uid="a-new-one"), content())
    assert snapshot_rules.check_bound(snapshot(), content()).metadata.name == "content"


def test_a_status_that_says_the_same_is_not_written_again() -> None:
    told = snapshot_rules.status_from(content())
    assert (told["readyToUse"], told["restoreSize"]) == (True, "1Gi")
    found = snapshot()
    assert snapshot_rules.differs(found, told)
    found.status.restore_size = "1024Mi"
    assert not snapshot_rules.differs(found, told)
