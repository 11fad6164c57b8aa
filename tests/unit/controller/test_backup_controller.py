"""The controller of backups against an API on which somebody plays the node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from framework.fake_kube import FakeKube, fake_kube
from framework.waiting import eventually, running

from virt_controller.backup.controller import NAMESPACE_INDEX, BackupController, namespace_indexer
from virt_core.apis.backup import FINALIZER_BACKUP, VirtualMachineBackup, VirtualMachineBackupTracker
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.controller import Controller
from virt_core.kube.informer import Informer
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import SystemClock

BACKUPS = "/apis/backup.kubevirt.io/v1alpha1/namespaces/default"
BACKUP, TRACKER = f"{BACKUPS}/virtualmachinebackups/b1", f"{BACKUPS}/virtualmachinebackuptrackers/nightly"
KUBEVIRT = "/apis/kubevirt.io/v1/namespaces/default"
VM, VMI = f"{KUBEVIRT}/virtualmachines/vm", f"{KUBEVIRT}/virtualmachineinstances/vm"
CLAIM = "/api/v1/namespaces/default/persistentvolumeclaims/shelf"
VOLUME = "b1-backup-target-pvc"
MADE = "2099-01-01T10:00:00Z"
SOURCE = {"apiGroup": "backup.kubevirt.io", "kind": "VirtualMachineBackupTracker", "name": "nightly"}
OF_VM = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "vm"}


@pytest.fixture
def kube() -> Iterator[FakeKube]:
    with fake_kube() as fake:
        yield fake


@contextmanager
def working(kube: FakeKube) -> Iterator[None]:
    client, clock = kube.client(), SystemClock()
    index: Any = {NAMESPACE_INDEX: namespace_indexer}
    backups, trackers = (
        Informer(client, VirtualMachineBackup, indexers=index),
        Informer(client, VirtualMachineBackupTracker, indexers=index),
    )
    vms, vmis = Informer(client, VirtualMachine), Informer(client, VirtualMachineInstance)
    claims = Informer(client, PersistentVolumeClaim)
    recorder, queue = EventRecorder(client, "virt-controller"), WorkQueue(clock)
    made = BackupController(
        client, queue=queue, backups=backups, trackers=trackers, vms=vms, vmis=vmis, claims=claims, recorder=recorder,
        clock=clock,
    )  # fmt: skip
    watched = (backups, trackers, vms, vmis, claims)
    loop = Controller("backup", queue, made.reconcile, 1, watched)
    with running(*(each.run for each in watched), recorder.run, loop.run):
        yield


def asked(kube: FakeKube, source: dict[str, Any] = SOURCE, **spec: Any) -> None:
    meta = {"uid": "u1", "creationTimestamp": MADE}
    kube.put(BACKUP, {"metadata": meta, "spec": {"source": source, "pvcName": "shelf", **spec}})


def cluster(kube: FakeKube, checkpoint: str = "") -> None:
    latest = {"latestCheckpoint": {"name": checkpoint}} if checkpoint else {}
    kube.put(TRACKER, {"metadata": {"uid": "t1"}, "spec": {"source": OF_VM}, "status": latest})
    kube.put(VM, {"metadata": {"uid": "v1"}, "spec": {}})
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm", "uid": "v1", "controller": True}
    spec = {
        "domain": {"devices": {"disks": [{"name": "data"}]}},
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}],
    }
    status = {"phase": "Running", "changedBlockTracking": {"state": "Enabled"}}
    kube.put(VMI, {"metadata": {"uid": "i1", "ownerReferences": [owner]}, "spec": spec, "status": status})
    kube.put(CLAIM, {"metadata": {"uid": "c1"}, "spec": {}, "status": {"phase": "Bound"}})


def told(kube: FakeKube, kind: str = "Progressing") -> dict[str, Any]:
    found = kube.objects[BACKUP].get("status", {}).get("conditions", [])
    return next((each for each in found if each["type"] == kind), {})


def change(kube: FakeKube, path: str, **changes: Any) -> None:
    kube.put(path, {**kube.objects[path], **changes})


def mounted(kube: FakeKube) -> None:
    """As hotplug and virt-handler would have it."""
    eventually(lambda: kube.objects[VMI]["spec"].get("utilityVolumes"))
    status = kube.objects[VMI]["status"]
    change(kube, VMI, status={**status, "volumeStatus": [{"name": VOLUME, "target": "", "phase": "MountedToPod"}]})


def request(kube: FakeKube) -> Any:
    def look() -> Any:
        return kube.objects[VMI]["status"]["changedBlockTracking"].get("backupStatus")

    return eventually(look)


def answered(kube: FakeKube, **answer: Any) -> None:
    status = kube.objects[VMI]["status"]
    tracking = status["changedBlockTracking"]
    known = {**tracking["backupStatus"], **answer}
    change(kube, VMI, status={**status, "changedBlockTracking": {**tracking, "backupStatus": known}})


def events(kube: FakeKube) -> set[str]:
    return {obj["reason"] for path, obj in kube.objects.items() if "/events/" in path}


def cleaned(kube: FakeKube) -> None:
    eventually(lambda: FINALIZER_BACKUP not in kube.objects[BACKUP]["metadata"].get("finalizers", []))
    assert "utilityVolumes" not in kube.objects[VMI]["spec"]
    assert "backupStatus" not in kube.objects[VMI]["status"]["changedBlockTracking"]


DONE = {
    "completed": True,
    "checkpointName": "b1-20990101-100000",
    "volumes": [{"volumeName": "data"}],
    "quiesceStatus": "QuiesceSucceeded",
}


def test_from_the_request_to_the_end_and_nothing_left(kube: FakeKube) -> None:
    asked(kube)
    with working(kube):
        eventually(lambda: "nightly does not exist" in told(kube).get("message", ""))
        cluster(kube)
        mounted(kube)
        (volume,) = kube.objects[VMI]["spec"]["utilityVolumes"]
        assert volume == {"name": VOLUME, "claimName": "shelf", "type": "Backup"}
        found = request(kube)
        assert (found["backupName"], found["startTimestamp"]) == ("b1", MADE)
        wish = found["request"]
        assert wish["directory"] == "vm/b1-20990101-100000"
        assert (wish["checkpoint"], wish.get("since", ""), wish["volume"]) == ("b1-20990101-100000", "", VOLUME)
        eventually(lambda: told(kube).get("reason") == "Initiated")
        assert FINALIZER_BACKUP in kube.objects[BACKUP]["metadata"]["finalizers"]
        answered(kube, **DONE)
        cleaned(kube)
    assert told(kube, "Complete")["reason"] == "Completed"
    assert told(kube, "Quiesced")["status"] == "True"
    status = kube.objects[BACKUP]["status"]
    assert (status["type"], status["checkpointName"]) == ("Full", "b1-20990101-100000")
    assert kube.objects[TRACKER]["status"]["latestCheckpoint"]["name"] == "b1-20990101-100000"
    assert {"VirtualMachineBackupInitiated", "VirtualMachineBackupCompleted"} <= events(kube)


def test_an_increment_and_a_chain_that_is_broken(kube: FakeKube) -> None:
    cluster(kube, "monday")
    asked(kube)
    with working(kube):
        mounted(kube)
        wish = request(kube)["request"]
        assert (wish["since"], wish["keep"]) == ("monday", ["monday"])
        eventually(lambda: kube.objects[BACKUP].get("status", {}).get("type") == "Incremental")
        answered(kube, **DONE, broken="the checkpoint monday cannot be built on: it is gone")
        cleaned(kube)
        eventually(lambda: "CheckpointRedefinitionFailed" in events(kube))
    assert kube.objects[BACKUP]["status"]["type"] == "Full"
    assert told(kube, "Complete")["reason"] == "CompletedWithWarning"
    assert "monday cannot be built on" in told(kube, "Complete")["message"]


def test_a_failure_leaves_the_tracker_as_it_was(kube: FakeKube) -> None:
    cluster(kube, "monday")
    asked(kube, forceFullBackup=True)
    with working(kube):
        mounted(kube)
        assert "since" not in request(kube)["request"]
        answered(kube, completed=True, failed=True, backupMsg="No space left on device")
        cleaned(kube)
    assert told(kube, "Failed")["message"] == "No space left on device"
    assert kube.objects[TRACKER]["status"]["latestCheckpoint"]["name"] == "monday"


def test_deleted_while_it_runs(kube: FakeKube) -> None:
    cluster(kube)
    asked(kube)
    with working(kube):
        mounted(kube)
        request(kube)
        eventually(lambda: told(kube).get("reason") == "Initiated")
        meta = kube.objects[BACKUP]["metadata"]
        change(kube, BACKUP, metadata={**meta, "deletionTimestamp": MADE})
        eventually(lambda: request(kube)["request"].get("abort"))
        eventually(lambda: told(kube).get("reason") == "Aborting")
        answered(kube, completed=True, failed=True, backupMsg="the backup was aborted")
        eventually(lambda: "utilityVolumes" not in kube.objects[VMI]["spec"])


def test_a_machine_that_goes_takes_its_backup_along(kube: FakeKube) -> None:
    cluster(kube)
    asked(kube)
    with working(kube):
        mounted(kube)
        request(kube)
        eventually(lambda: told(kube).get("reason") == "Initiated")
        kube.remove(VMI)
        eventually(lambda: told(kube, "Failed").get("reason") == "SourceLost")
        eventually(lambda: FINALIZER_BACKUP not in kube.objects[BACKUP]["metadata"].get("finalizers", []))
