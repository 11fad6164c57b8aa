"""The controller of clones against an API on which somebody plays the controllers of snapshots and restores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from framework.fake_kube import FakeKube, failure, fake_kube
from framework.waiting import eventually, running

from virt_controller.clone.controller import ABOUT_INDEX, CloneController, about
from virt_controller.vmi.keptstate import STATE_INDEX, state_indexer
from virt_core.apis.clone import FINALIZER_CLONE, VirtualMachineClone
from virt_core.apis.snapshot import (
    FINALIZER_RESTORE,
    VirtualMachineRestore,
    VirtualMachineSnapshot,
    VirtualMachineSnapshotContent,
)
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine
from virt_core.kube.controller import Controller
from virt_core.kube.informer import Informer
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import SystemClock

SNAPSHOTS = "/apis/snapshot.kubevirt.io/v1beta1/namespaces/default"
CLONE = "/apis/clone.kubevirt.io/v1beta1/namespaces/default/virtualmachineclones/copy"
SNAPSHOT = f"{SNAPSHOTS}/virtualmachinesnapshots/tmp-snapshot-u1"
CONTENT = f"{SNAPSHOTS}/virtualmachinesnapshotcontents/held"
RESTORE = f"{SNAPSHOTS}/virtualmachinerestores/tmp-restore-u1"
VMS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines"
OLD, NEW = f"{VMS}/old", f"{VMS}/new"
CLAIM = "/api/v1/namespaces/default/persistentvolumeclaims/restored"
SOURCE = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "old"}


@pytest.fixture
def kube() -> Iterator[FakeKube]:
    with fake_kube() as fake:
        yield fake


@contextmanager
def working(kube: FakeKube) -> Iterator[None]:
    """The whole loop: whatever must be noticed has to wake it."""
    client, clock = kube.client(), SystemClock()
    clones = Informer(client, VirtualMachineClone, indexers={ABOUT_INDEX: about})
    vms, snapshots = Informer(client, VirtualMachine), Informer(client, VirtualMachineSnapshot)
    contents, restores = Informer(client, VirtualMachineSnapshotContent), Informer(client, VirtualMachineRestore)
    claims = Informer(client, PersistentVolumeClaim, indexers={STATE_INDEX: state_indexer})
    recorder, queue = EventRecorder(client, "virt-controller"), WorkQueue(clock)
    made = CloneController(
        client, queue=queue, clones=clones, vms=vms, snapshots=snapshots, contents=contents, restores=restores,
        claims=claims, recorder=recorder, clock=clock,
    )  # fmt: skip
    watched = (clones, vms, snapshots, contents, restores, claims)
    loop = Controller("clone", queue, made.reconcile, 1, watched)
    with running(*(each.run for each in watched), recorder.run, loop.run):
        yield


def asked(kube: FakeKube, source: dict[str, Any] = SOURCE, **spec: Any) -> None:
    target = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "new"}
    kube.put(CLONE, {"metadata": {"uid": "u1"}, "spec": {"source": source, "target": target, **spec}})


def machine(name: str, claim: str) -> dict[str, Any]:
    volumes = [{"name": "root", "persistentVolumeClaim": {"claimName": claim}}]
    firmware = {"uuid": "one", "serial": "two"}
    return {
        "metadata": {"name": name, "labels": {"a": "b"}},
        "spec": {"template": {"spec": {"domain": {"firmware": firmware}, "volumes": volumes}}},
        "status": {"volumeSnapshotStatuses": [{"name": "root", "enabled": True}]},
    }


def change(kube: FakeKube, path: str, **changes: Any) -> None:
    kube.put(path, {**kube.objects[path], **changes})


def phase(kube: FakeKube, wanted: str) -> Any:
    def check() -> Any:
        found = kube.objects[CLONE].get("status", {})
        assert found.get("phase", "") == wanted, found
        return found

    return eventually(check)


def said(kube: FakeKube) -> str:
    conditions = kube.objects[CLONE].get("status", {}).get("conditions", [])
    return next((str(each["message"]) for each in conditions if each["type"] == "Progressing"), "")


def events(kube: FakeKube) -> list[str]:
    found = [obj for path, obj in kube.objects.items() if "/events/" in path]
    return [each["reason"] for each in sorted(found, key=lambda each: int(each["metadata"]["resourceVersion"]))]


def snapshot_is_ready(kube: FakeKube, path: str = SNAPSHOT, **content: Any) -> None:
    """As its controller would have it."""
    backups = [{"volumeName": "root", "persistentVolumeClaim": {}, "volumeSnapshotName": "v"}]
    spec = {"source": {"virtualMachine": machine("old", "old-root")}, "volumeBackups": backups, **content}
    spec["virtualMachineSnapshotName"] = path.rsplit("/", 1)[1]
    kube.put(CONTENT, {"spec": spec, "status": {"readyToUse": True}})
    ready = {"phase": "Succeeded", "readyToUse": True, "virtualMachineSnapshotContentName": "held"}
    change(kube, path, status=ready)


def restore_is_complete(kube: FakeKube, claim: str = "Pending") -> None:
    kube.put(
        CLAIM, {"metadata": {"annotations": {"restore.kubevirt.io/name": "tmp-restore-u1"}}, "status": {"phase": claim}}
    )
    kube.put(NEW, machine("new", "restored"))
    restored = {"volumeName": "root", "persistentVolumeClaim": "restored", "volumeSnapshotName": "v"}
    change(kube, RESTORE, status={"complete": True, "restores": [restored]})


def test_from_a_vm_to_a_vm_and_nothing_left(kube: FakeKube) -> None:
    asked(kube, labelFilters=[])
    with working(kube):
        eventually(lambda: said(kube) == "there is no VirtualMachine old yet")
        kube.put(OLD, machine("old", "old-root"))
        phase(kube, "SnapshotInProgress")
        assert kube.objects[SNAPSHOT]["spec"]["source"] == SOURCE
        assert kube.objects[SNAPSHOT]["metadata"]["ownerReferences"][0]["uid"] == "u1"
        snapshot_is_ready(kube)
        phase(kube, "RestoreInProgress")
        spec = kube.objects[RESTORE]["spec"]
        assert (spec["virtualMachineSnapshotName"], spec["target"]["name"]) == ("tmp-snapshot-u1", "new")
        assert [each.split('"path":')[1] for each in spec["patches"]] == [
            '"/spec/template/spec/domain/firmware/serial"}',
            '"/metadata/labels/a"}',
            '"/spec/template/spec/domain/firmware/uuid"}',
        ]
        restore_is_complete(kube)
        assert phase(kube, "Succeeded")["targetName"] == "new"
        assert {SNAPSHOT, RESTORE} <= kube.objects.keys()
        change(kube, CLAIM, status={"phase": "Bound"})
        eventually(lambda: not {SNAPSHOT, RESTORE} & kube.objects.keys())
        eventually(lambda: "restoreName" not in kube.objects[CLONE]["status"])
        assert "snapshotName" not in kube.objects[CLONE]["status"]
        eventually(lambda: events(kube)[-1:] == ["PVCBound"])
        assert events(kube) == [
            "SourceDoesNotExist", "SnapshotCreated", "SnapshotReady", "RestoreCreated", "RestoreReady",
            "TargetVMCreated", "PVCBound",
        ]  # fmt: skip
        kube.remove(NEW)
        eventually(lambda: CLONE not in kube.objects)
    assert OLD in kube.objects


def test_the_users_own_snapshot_stays(kube: FakeKube) -> None:
    own = f"{SNAPSHOTS}/virtualmachinesnapshots/saved"
    asked(kube, {"apiGroup": "snapshot.kubevirt.io", "kind": "VirtualMachineSnapshot", "name": "saved"})
    with working(kube):
        eventually(lambda: said(kube) == "there is no VirtualMachineSnapshot saved yet")
        kube.put(own, {"spec": {"source": SOURCE}})
        phase(kube, "SnapshotInProgress")
        snapshot_is_ready(kube, own)
        phase(kube, "RestoreInProgress")
        restore_is_complete(kube, "Bound")
        phase(kube, "Succeeded")
        eventually(lambda: RESTORE not in kube.objects)
        eventually(lambda: "snapshotName" not in kube.objects[CLONE]["status"])
    assert own in kube.objects
    assert SNAPSHOT not in kube.objects


def test_a_restore_that_the_door_refuses_ends_it_and_leaves_nothing(kube: FakeKube) -> None:
    def refuse(method: str, path: str, _query: Any, _body: Any) -> Any:
        wanted = method == "POST" and path.endswith("/virtualmachinerestores")
        return failure(422, "Invalid", "spec.target: taken") if wanted else None

    asked(kube)
    kube.put(OLD, machine("old", "old-root"))
    with working(kube):
        phase(kube, "SnapshotInProgress")
        kube.on_request = refuse
        snapshot_is_ready(kube)
        phase(kube, "Failed")
        assert said(kube) == "spec.target: taken"
        eventually(lambda: SNAPSHOT not in kube.objects)
        eventually(lambda: "RestoreCreationFailed" in events(kube))


def hold(kube: FakeKube) -> None:
    """As the controller of restores does before it makes claims."""
    change(kube, RESTORE, metadata={**kube.objects[RESTORE]["metadata"], "finalizers": [FINALIZER_RESTORE]})


def let_go(kube: FakeKube) -> None:
    """As it does when its claims are gone."""
    eventually(lambda: kube.objects[RESTORE]["metadata"].get("deletionTimestamp"))
    kube.remove(RESTORE)


def test_a_restore_that_fails_is_removed_and_its_claims_are_left_to_it(kube: FakeKube) -> None:
    asked(kube)
    kube.put(OLD, machine("old", "old-root"))
    marks = {"restore.kubevirt.io/name": "tmp-restore-u1", "restore.kubevirt.io/lastRestoreUID": "tmp-restore-u1-u7"}
    with working(kube):
        phase(kube, "SnapshotInProgress")
        snapshot_is_ready(kube)
        phase(kube, "RestoreInProgress")
        hold(kube)
        kube.put(CLAIM, {"metadata": {"annotations": marks}, "status": {"phase": "Bound"}})
        failed = {"type": "Failure", "status": "True", "reason": "no VM comes of it"}
        change(kube, RESTORE, status={"conditions": [failed]})
        phase(kube, "Failed")
        assert said(kube) == "VirtualMachineRestore tmp-restore-u1 failed: no VM comes of it"
        let_go(kube)
        eventually(lambda: SNAPSHOT not in kube.objects)
        eventually(lambda: not kube.objects[CLONE]["metadata"].get("finalizers"))
    assert not [path for method, path in kube.methods("DELETE") if "persistentvolumeclaims" in path]


def test_one_that_is_deleted_on_its_way_waits_for_its_restore(kube: FakeKube) -> None:
    """Which removes its claims before it goes."""
    asked(kube)
    kube.put(OLD, machine("old", "old-root"))
    with working(kube):
        phase(kube, "SnapshotInProgress")
        assert "finalizers" not in kube.objects[CLONE]["metadata"]
        snapshot_is_ready(kube)
        phase(kube, "RestoreInProgress")
        hold(kube)
        meta = kube.objects[CLONE]["metadata"]
        assert meta["finalizers"] == [FINALIZER_CLONE]
        change(kube, CLONE, metadata={**meta, "deletionTimestamp": "2026-01-01T00:00:00Z"})
        eventually(lambda: SNAPSHOT not in kube.objects)
        assert kube.objects[CLONE]["metadata"]["finalizers"] == [FINALIZER_CLONE]
        let_go(kube)
        eventually(lambda: not kube.objects.get(CLONE, {"metadata": {}})["metadata"].get("finalizers"))


def test_one_that_has_its_vm_does_not_hold_up_its_deletion(kube: FakeKube) -> None:
    asked(kube)
    kube.put(OLD, machine("old", "old-root"))
    with working(kube):
        phase(kube, "SnapshotInProgress")
        snapshot_is_ready(kube)
        phase(kube, "RestoreInProgress")
        restore_is_complete(kube)
        phase(kube, "Succeeded")
        eventually(lambda: not kube.objects[CLONE]["metadata"].get("finalizers"))
        assert {CLAIM, SNAPSHOT, RESTORE} <= kube.objects.keys()


def test_a_failure_of_the_api_is_tried_again(kube: FakeKube) -> None:
    tries: list[str] = []

    def busy(method: str, path: str, _query: Any, _body: Any) -> Any:
        if method != "POST" or not path.endswith(("/virtualmachinesnapshots", "/virtualmachinerestores")):
            return None
        tries.append(path)
        return failure(500, "InternalError", "later") if tries.count(path) == 1 else None

    kube.on_request = busy
    asked(kube)
    kube.put(OLD, machine("old", "old-root"))
    with working(kube):
        phase(kube, "SnapshotInProgress")
        snapshot_is_ready(kube)
        phase(kube, "RestoreInProgress")
    assert len(tries) == 4


def test_a_snapshot_taken_away_ends_it(kube: FakeKube) -> None:
    asked(kube)
    kube.put(OLD, machine("old", "old-root"))
    with working(kube):
        phase(kube, "SnapshotInProgress")
        kube.remove(SNAPSHOT)
        phase(kube, "Failed")
        eventually(lambda: events(kube)[-1:] == ["SnapshotDeleted"])
        assert SNAPSHOT not in kube.objects


def test_one_that_came_back_to_life_goes_on_where_it_was(kube: FakeKube) -> None:
    """The controller dies after it made the snapshot and before it said so: no second one, no failure."""
    asked(kube)
    kube.put(OLD, machine("old", "old-root"))
    owner = {"apiVersion": "clone.kubevirt.io/v1beta1", "kind": "VirtualMachineClone", "name": "copy", "uid": "u1"}
    kube.put(SNAPSHOT, {"metadata": {"ownerReferences": [owner]}, "spec": {"source": SOURCE}})
    with working(kube):
        assert phase(kube, "SnapshotInProgress")["snapshotName"] == "tmp-snapshot-u1"
    assert not [path for method, path in kube.methods("POST") if path.endswith("virtualmachinesnapshots")]


def test_a_source_that_keeps_state_is_known_by_its_claim(kube: FakeKube) -> None:
    """Its preference may ask for it, which the VM itself does not show."""
    asked(kube)
    kube.put(
        "/api/v1/namespaces/default/persistentvolumeclaims/persistent-state-for-x",
        {"metadata": {"labels": {"persistent-state-for": "old"}}},
    )
    kube.put(OLD, machine("old", "old-root"))
    with working(kube):
        phase(kube, "Failed")
        eventually(lambda: events(kube) == ["SourceVMWithBackendStorageInvalid"])
    assert SNAPSHOT not in kube.objects


def test_a_clone_that_is_over_asks_for_nothing(kube: FakeKube) -> None:
    """Every change of its VM wakes it, for as long as that lives."""
    asked(kube)
    change(kube, CLONE, status={"phase": "Succeeded", "targetName": "new"})
    kube.put(NEW, machine("new", "restored"))
    with working(kube):
        eventually(lambda: kube.methods("GET"))
        for i in range(3):
            change(kube, NEW, spec={**kube.objects[NEW]["spec"], "running": bool(i % 2)})
        other = "/apis/clone.kubevirt.io/v1beta1/namespaces/default/virtualmachineclones/other"
        kube.put(other, {"metadata": {"uid": "u2"}, "spec": {"source": {**SOURCE, "name": "none"}}})
        eventually(lambda: kube.objects[other].get("status"))
    assert not [path for _, path in kube.methods("GET", "DELETE", "PATCH") if "u1" in path or path.startswith(CLONE)]
