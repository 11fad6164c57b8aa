"""The controllers of snapshots and restores against an API: the whole way, and with an accident at every write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, cast

import pytest
from framework.copies import SOURCE, claim, vm_with
from framework.fake_kube import FakeKube, failure, fake_kube
from framework.fake_kube_verbs import JSON_PATCH, Request, answer
from framework.vms import owned_vmi
from framework.waiting import eventually, running

from virt_controller import controllers
from virt_controller.caches import Caches
from virt_controller.controllers import Reconcile, Shared
from virt_controller.restore.volumes import Volumes
from virt_core.apis import snapshot as words
from virt_core.apis.base import from_plain
from virt_core.apis.datavolume import DataVolume
from virt_core.apis.registry import key_for, plain_object, resource_of
from virt_core.apis.snapshot import VirtualMachineRestore
from virt_core.apis.storage import PersistentVolumeClaim, StorageClass
from virt_core.apis.volumesnapshots import VolumeSnapshot
from virt_core.kube.errors import ApiError
from virt_core.kube.informer import Informer
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import FakeClock

SPACE = "namespaces/default"
VM = f"/apis/kubevirt.io/v1/{SPACE}/virtualmachines/vm"
VMI = f"/apis/kubevirt.io/v1/{SPACE}/virtualmachineinstances/vm"
COPIES = f"/apis/snapshot.kubevirt.io/v1beta1/{SPACE}"
SNAPSHOT, RESTORE = f"{COPIES}/virtualmachinesnapshots/snap", f"{COPIES}/virtualmachinerestores/back"
CONTENTS = f"{COPIES}/virtualmachinesnapshotcontents/"
SAVED = f"/apis/snapshot.storage.k8s.io/v1/{SPACE}/volumesnapshots/"
CLAIMS = f"/api/v1/{SPACE}/persistentvolumeclaims/"
VOLUMES = f"/apis/cdi.kubevirt.io/v1beta1/{SPACE}/datavolumes/"
REVISIONS = f"/apis/apps/v1/{SPACE}/controllerrevisions/"
CLASS = "/apis/storage.k8s.io/v1/storageclasses/fast"
SNAPSHOT_CLASS = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotclasses/fast"
ASKED = f"/apis/subresources.kubevirt.io/v1/{SPACE}/"
#: What a controller may see after a crash: the request did not arrive, or only its answer got lost.
BEFORE, AFTER = "before", "after"
_WRITES = ("POST", "PATCH", "DELETE", "PUT")
_ROWS = (
    ("virtualmachinesnapshots", controllers._snapshot),
    ("virtualmachinesnapshotcontents", controllers._snapshot_content),
    ("virtualmachinerestores", controllers._restore),
)


@dataclass
class Lab:
    kube: FakeKube
    caches: Caches
    shared: Shared
    clock: FakeClock
    #: Which write fails, counted from 0; -1: none.
    fails: int = -1
    mode: str = BEFORE
    writes: int = 0
    asked: list[str] = field(default_factory=list)
    deaf: bool = False
    reconciles: dict[str, Reconcile] = field(default_factory=dict)

    def restart(self) -> None:
        """New controllers, which know nothing of the old ones."""
        self.reconciles = {plural: build(self.shared, WorkQueue(self.clock)) for plural, build in _ROWS}

    def hook(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        if "/events" in path or method not in _WRITES:
            return None
        number, self.writes = self.writes, self.writes + 1
        if path.startswith(ASKED):
            self._obey(path.rsplit("/", 1)[1])
            return (200, {}, {}) if number != self.fails else failure(500, "InternalError", "crash")
        if number != self.fails:
            return None
        if self.mode == AFTER:
            kind = JSON_PATCH if isinstance(body, list) else "application/merge-patch+json"
            answer(self.kube, Request(method, path, query, body, kind))
        return failure(500, "InternalError", "crash")

    def _obey(self, wish: str) -> None:
        """As virt-api, virt-handler and the guest would."""
        self.asked.append(wish)
        vmi = self.kube.objects[VMI]
        state = {"fsFreezeStatus": "frozen"} if wish == "freeze" else {}
        others = {key: value for key, value in vmi["status"].items() if key != "fsFreezeStatus"}
        self.kube.put(VMI, {**vmi, "status": others | state})

    def settle(self) -> None:
        eventually(self._shown)

    def _shown(self) -> bool:
        with self.kube.changed:
            objects = dict(self.kube.objects)
        return all(_shows(cast(Informer[Any], cache), objects) for cache in self.caches.all)

    def storage(self) -> None:
        """What the cluster's storage and its garbage collector do."""
        uids = {each["metadata"]["uid"] for each in self.kube.objects.values()}
        for path, obj in list(self.kube.objects.items()):
            owners = obj["metadata"].get("ownerReferences") or []
            if owners and not any(each["uid"] in uids for each in owners):
                self.kube.remove(path)
            elif path.startswith(SAVED) and not obj.get("status") and not self.deaf:
                done = {"creationTime": "2026-01-01T00:00:00Z", "readyToUse": True, "restoreSize": "1Gi"}
                self.kube.put(path, {**obj, "status": done})
            elif path.startswith(VOLUMES) and not obj.get("status"):
                self.kube.put(path, {**obj, "status": {"phase": "Succeeded"}})
            elif path.startswith(CLAIMS) and not obj.get("status"):
                self.kube.put(path, {**obj, "status": {"phase": "Bound"}})

    def turn(self) -> None:
        self.settle()
        self.storage()
        self.settle()
        for plural, _ in _ROWS:
            for path in [each for each in self.kube.objects if f"/{plural}/" in each]:
                try:
                    self.reconciles[plural](key_for("default", path.rsplit("/", 1)[1]))
                except ApiError:
                    self.restart()
                self.settle()

    def until(self, done: Callable[[], bool], turns: int = 14) -> None:
        for _ in range(turns):
            if done():
                return
            self.turn()
        raise AssertionError({path: obj for path, obj in self.kube.objects.items() if COPIES in path or path == VM})

    def begin(self, *, online: bool = False) -> None:
        for path in list(self.kube.objects):
            self.kube.remove(path)
        self.fails, self.writes, self.asked, self.deaf = -1, 0, [], False
        self.kube.put(CLASS, {"provisioner": "csi"})
        self.kube.put(SNAPSHOT_CLASS, {"driver": "csi"})
        self.kube.put(f"{CLAIMS}disk", plain_object(claim()))
        self.kube.put(VM, plain_object(vm_with()))
        if online:
            agent = [{"type": "AgentConnected", "status": "True"}]
            self.kube.put(VMI, plain_object(owned_vmi(status={"conditions": agent})))
        self.settle()
        self.restart()

    def status(self, path: str) -> Any:
        return self.kube.objects.get(path, {}).get("status", {})

    def is_saved(self) -> bool:
        return self.status(SNAPSHOT).get("readyToUse") is True and self.is_free()

    def is_free(self) -> bool:
        vm = self.kube.objects[VM]
        held = {"snapshotInProgress", "restoreInProgress"} & set(vm.get("status", {}))
        return not held and "snapshot.kubevirt.io/snapshot-source-protection" not in vm["metadata"]["finalizers"]


def _shows(cache: Informer[Any], objects: dict[str, Any]) -> bool:
    resource = resource_of(cache._cls)
    if cache._labels:
        return True  # Nothing here has those.
    mine = {
        p: o for p, o in objects.items() if p.startswith(f"{resource.root}/") and p.split("/")[-2] == resource.plural
    }
    known = {key_for(o["metadata"].get("namespace", ""), o["metadata"]["name"]): o for o in mine.values()}
    shown = {key_for(o.metadata.namespace, o.metadata.name): o.metadata.resource_version for o in cache.list()}
    return shown == {key: o["metadata"]["resourceVersion"] for key, o in known.items()}


@contextmanager
def lab() -> Iterator[Lab]:
    with fake_kube() as kube:
        client, clock = kube.client(), FakeClock()
        caches = Caches(client)
        recorder = EventRecorder(client, "virt-controller", clock=clock)
        used = {"client": client, "clock": clock, "recorder": recorder, "caches": caches}
        unused = {each.name: None for each in fields(Shared) if each.name not in used}
        shared = Shared(**cast(Any, {**used, **unused}))
        found = Lab(kube, caches, shared, clock)
        kube.on_request = found.hook
        with running(*(each.run for each in caches.all)):
            eventually(lambda: all(each.has_synced() for each in caches.all))
            yield found


def save(it: Lab, **spec: Any) -> None:
    it.kube.put(SNAPSHOT, {"spec": {"source": SOURCE, **spec}})


def bring_back(it: Lab, **spec: Any) -> None:
    it.kube.put(RESTORE, {"spec": {"target": SOURCE, "virtualMachineSnapshotName": "snap", **spec}})


def disk_of(it: Lab) -> str:
    volumes = it.kube.objects[VM]["spec"]["template"]["spec"]["volumes"]
    return str(volumes[1]["persistentVolumeClaim"]["claimName"])


def test_a_running_vm_is_frozen_saved_and_let_go() -> None:
    with lab() as it:
        it.begin(online=True)
        save(it)
        it.until(it.is_saved)
        assert it.asked == ["freeze", "unfreeze"]
        assert it.status(SNAPSHOT)["indications"] == ["GuestAgent", "Online"]
        (content,) = [obj for path, obj in it.kube.objects.items() if path.startswith(CONTENTS)]
        assert content["spec"]["volumeBackups"][0]["persistentVolumeClaim"]["metadata"]["name"] == "disk"
        assert "virtpod.io/frozen-until" in content["metadata"]["annotations"]
        before = it.writes
        it.turn()
        assert it.writes == before, "nothing is left to do"


@pytest.mark.parametrize("mode", [BEFORE, AFTER])
def test_a_snapshot_survives_an_accident_at_every_write(mode: str) -> None:
    """The guest is let go as often as it is frozen, and the VM is free."""
    with lab() as it:
        accident, wanted = 0, 1
        while accident < wanted:
            it.begin(online=True)
            it.fails, it.mode = accident, mode
            save(it)
            it.until(it.is_saved)
            assert it.asked[-1] == "unfreeze"
            accident, wanted = accident + 1, it.writes
        assert accident > 8


@pytest.mark.parametrize("policy", [None, "InPlace"])
@pytest.mark.parametrize("mode", [BEFORE, AFTER])
def test_a_restore_survives_an_accident_at_every_write(mode: str, policy: str | None) -> None:
    """One claim is made, with our mark, and the VM is on it."""
    with lab() as it:
        accident, wanted = 0, 1
        while accident < wanted:
            it.begin()
            save(it)
            it.until(it.is_saved)
            it.writes, it.fails, it.mode = 0, accident, mode
            bring_back(it, **({"volumeRestorePolicy": policy} if policy else {}))
            it.until(lambda: it.status(RESTORE).get("complete") is True and it.is_free())
            made = [path for path in it.kube.objects if path.startswith(CLAIMS)]
            marks = it.kube.objects[f"{CLAIMS}{disk_of(it)}"]["metadata"]["annotations"]
            assert marks["restore.kubevirt.io/name"] == "back"
            assert len(made) == (1 if policy else 2)
            assert (disk_of(it) == "disk") is bool(policy)
            accident, wanted = accident + 1, it.writes
        assert accident > 6


@pytest.mark.parametrize("mode", [BEFORE, AFTER])
def test_a_new_vm_survives_an_accident_at_every_write(mode: str) -> None:
    """The VM that was saved is gone."""
    with lab() as it:
        accident, wanted = 0, 1
        while accident < wanted:
            it.begin()
            save(it)
            it.until(it.is_saved)
            it.kube.remove(VM)
            it.writes, it.fails, it.mode = 0, accident, mode
            bring_back(it)
            it.until(lambda: it.status(RESTORE).get("complete") is True)
            assert disk_of(it).startswith("restore-")
            assert it.kube.objects[VM]["spec"]["runStrategy"] == "Halted"
            accident, wanted = accident + 1, it.writes
        assert accident > 4


def test_a_deadline_thaws_unlocks_and_takes_the_content_away() -> None:
    with lab() as it:
        it.begin(online=True)
        it.deaf = True
        save(it, failureDeadline="20s")
        for _ in range(4):
            it.turn()
        assert it.asked == ["freeze"]
        assert it.status(VM)["snapshotInProgress"] == "snap"
        it.clock.step(20)
        it.until(lambda: it.status(SNAPSHOT).get("phase") == "Failed" and it.is_free() and it.asked[-1] == "unfreeze")
        it.turn()
        assert [path for path in it.kube.objects if path.startswith(CONTENTS)] == []
        it.clock.step(-20)


def test_deleting_what_is_under_way_thaws_and_unlocks() -> None:
    with lab() as it:
        it.begin(online=True)
        it.deaf = True
        save(it)
        for _ in range(4):
            it.turn()
        meta = it.kube.objects[SNAPSHOT]["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:00Z"}
        it.kube.put(SNAPSHOT, {**it.kube.objects[SNAPSHOT], "metadata": meta})
        it.until(lambda: SNAPSHOT not in it.kube.objects)
        assert it.is_free()
        assert it.asked == ["freeze", "unfreeze"]


def test_a_volume_snapshot_that_only_has_the_name_is_not_believed() -> None:
    """Somebody of the namespace was there first, with the bytes of another claim."""
    with lab() as it:
        it.begin()
        save(it)
        uid = it.kube.objects[SNAPSHOT]["metadata"]["uid"]
        forged = {"creationTime": "2026-01-01T00:00:00Z", "readyToUse": True}
        it.kube.put(f"{SAVED}vmsnapshot-{uid}-volume-data", {"spec": {}, "status": forged})
        for _ in range(5):
            it.turn()
        assert it.status(SNAPSHOT)["phase"] == "InProgress"
        assert "somebody else's" in it.status(SNAPSHOT)["error"]["message"]


def test_a_claim_that_only_has_the_name_is_not_taken() -> None:
    with lab() as it:
        it.begin()
        save(it)
        it.until(it.is_saved)
        it.kube.put(f"{CLAIMS}vm-data", {"metadata": {"annotations": {"restore.kubevirt.io/name": "back"}}, "spec": {}})
        bring_back(it, volumeRestorePolicy="PrefixTargetName")
        for _ in range(4):
            it.turn()
        (told,) = [each["reason"] for each in it.status(RESTORE)["conditions"] if each["type"] == "Progressing"]
        assert told == "there is a claim vm-data already, and it is not this restore's"
        assert disk_of(it) == "disk"
        meta = it.kube.objects[RESTORE]["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:00Z"}
        it.kube.put(RESTORE, {**it.kube.objects[RESTORE], "metadata": meta})
        it.until(lambda: RESTORE not in it.kube.objects)
        assert it.is_free(), "deleting the restore lets the VM go"


def test_a_restore_that_is_given_up_leaves_no_claims() -> None:
    """But in place it leaves what there is."""
    for policy, left in (("RandomizeNames", ["disk"]), ("InPlace", ["disk"])):
        with lab() as it:
            it.begin()
            save(it)
            it.until(it.is_saved)
            it.kube.put(f"{CLAIMS}taken", {"spec": {}})
            overrides = [{"volumeName": "persistent-state-for-vm", "restoreName": "taken"}]
            state = plain_object(claim("state", labels={"persistent-state-for": "vm"}, ownerReferences=[of_vm(it)]))
            it.kube.remove(SNAPSHOT)
            it.turn()
            it.kube.put(f"{CLAIMS}state", state)
            save(it)
            it.until(it.is_saved)
            bring_back(it, volumeRestorePolicy=policy, volumeRestoreOverrides=overrides)
            for _ in range(4):
                it.turn()
            assert "already" in it.status(RESTORE)["conditions"][0]["reason"], "one claim is in the way, one is made"
            meta = it.kube.objects[RESTORE]["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:00Z"}
            it.kube.put(RESTORE, {**it.kube.objects[RESTORE], "metadata": meta})
            it.until(lambda: RESTORE not in it.kube.objects)
            found = sorted(path.removeprefix(CLAIMS) for path in it.kube.objects if path.startswith(CLAIMS))
            assert found == [*left, "state", "taken"]
            assert disk_of(it) == "disk"
            assert it.is_free()


def test_a_restore_takes_along_what_is_its_own_however_new() -> None:
    """The live copy shows none of the claims yet. What somebody has taken over stays, and so does what is not ours."""
    with fake_kube() as kube:
        client = kube.client()
        unseen = Volumes(
            client,
            Informer(client, PersistentVolumeClaim),
            Informer(client, DataVolume),
            Informer(client, VolumeSnapshot),
            Informer(client, StorageClass),
        )
        planned = [
            {"volumeName": name, "persistentVolumeClaim": name, "volumeSnapshotName": name}
            for name in ("made", "given", "never", "taken", "foreign")
        ]
        meta = {"name": "back", "namespace": "default", "uid": "u"}
        given = from_plain({"metadata": meta, "status": {"restores": planned}}, VirtualMachineRestore)
        ours, owner = (
            {words.ANNOTATION_LAST_RESTORE: words.mark_of(given)},
            {"apiVersion": "v1", "name": "x", "uid": "x"},
        )
        kube.put(f"{CLAIMS}made", {"metadata": {"annotations": ours}})
        kube.put(
            f"{CLAIMS}given", {"metadata": {"annotations": ours, "ownerReferences": [owner | {"kind": "DataVolume"}]}}
        )
        kube.put(f"{CLAIMS}taken", {"metadata": {"annotations": ours, "ownerReferences": [owner | {"kind": "Pod"}]}})
        kube.put(f"{CLAIMS}foreign", {"metadata": {"annotations": {words.ANNOTATION_LAST_RESTORE: "other"}}})
        unseen.drop(given)
        assert sorted(path.removeprefix(CLAIMS) for path in kube.objects) == ["foreign", "taken"]


def test_a_patch_that_does_not_fit_makes_no_claims() -> None:
    with lab() as it:
        it.begin()
        save(it)
        it.until(it.is_saved)
        it.kube.remove(VM)
        bring_back(it, patches=['{"op":"remove","path":"/spec/none"}'])
        it.until(lambda: any(each["type"] == "Failure" for each in it.status(RESTORE).get("conditions", [])))
        assert [path for path in it.kube.objects if path.startswith(f"{CLAIMS}restore-")] == []


def test_a_cluster_without_volume_snapshots_says_so() -> None:
    with lab() as it:
        it.begin()
        it.kube.remove(SNAPSHOT_CLASS)
        inner, absent = it.hook, "/apis/snapshot.storage.k8s.io/"

        def hook(method: str, path: str, query: dict[str, str], body: Any) -> Any:
            if path.startswith(absent) and query.get("watch") != "true":
                return failure(404, "NotFound", "the server could not find the requested resource")
            return inner(method, path, query, body)

        it.kube.on_request = hook
        save(it)
        it.until(lambda: it.status(SNAPSHOT).get("phase") == "Failed")
        (told,) = [each["reason"] for each in it.status(SNAPSHOT)["conditions"] if each["type"] == "Failure"]
        assert "the cluster has no VolumeSnapshots" in told
        assert "data" in told
        assert it.is_free()


def of_vm(it: Lab) -> dict[str, Any]:
    uid = it.kube.objects[VM]["metadata"]["uid"]
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm", "uid": uid, "controller": True}


def test_what_firmware_has_stored_comes_back_too() -> None:
    """The claim that kept it goes when the restored one has its place."""
    with lab() as it:
        it.begin()
        state = plain_object(claim("state", labels={"persistent-state-for": "vm"}, ownerReferences=[of_vm(it)]))
        it.kube.put(f"{CLAIMS}state", state)
        save(it)
        it.until(it.is_saved)
        assert it.status(SNAPSHOT)["snapshotVolumes"]["includedVolumes"] == ["data", "persistent-state-for-vm"]
        told = controllers._snapshot_storage(it.shared).statuses(it.caches.vms.list()[0])
        assert [(each.name, each.enabled) for each in told] == [
            ("root", False), ("data", True), ("persistent-state-for-vm", True),
        ]  # fmt: skip
        bring_back(it)
        it.until(lambda: it.status(RESTORE).get("complete") is True)
        assert f"{CLAIMS}state" not in it.kube.objects
        labelled = [
            obj["metadata"]
            for path, obj in it.kube.objects.items()
            if path.startswith(CLAIMS) and "persistent-state-for" in obj["metadata"].get("labels", {})
        ]
        (now,) = labelled
        assert now["annotations"]["restore.kubevirt.io/name"] == "back"
        assert now["ownerReferences"][0]["name"] == "vm"


def test_a_template_gets_a_new_data_volume_and_the_old_one_goes() -> None:
    with lab() as it:
        it.begin()
        vm = plain_object(vm_with({"dataVolume": {"name": "disk"}}))
        vm["spec"]["dataVolumeTemplates"] = [{"metadata": {"name": "disk"}, "spec": {"source": {"blank": {}}}}]
        it.kube.put(VM, vm)
        it.kube.put(f"{VOLUMES}disk", {"metadata": {"ownerReferences": [of_vm(it)]}, "status": {"phase": "Succeeded"}})
        save(it)
        it.until(it.is_saved)
        bring_back(it, volumeRestorePolicy="PrefixTargetName")
        it.until(lambda: it.status(RESTORE).get("complete") is True)
        assert f"{VOLUMES}disk" not in it.kube.objects
        made = it.kube.objects[f"{VOLUMES}vm-data"]["metadata"]
        assert made["annotations"]["cdi.kubevirt.io/storage.prePopulated"] == "vm-data"
        assert made["ownerReferences"][0]["kind"] == "VirtualMachine"
        claim_of = it.kube.objects[f"{CLAIMS}vm-data"]["metadata"]
        assert claim_of["annotations"]["cdi.kubevirt.io/storage.populatedFor"] == "vm-data"
        assert not claim_of.get("ownerReferences")
        spec = it.kube.objects[VM]["spec"]
        assert spec["dataVolumeTemplates"][0]["metadata"]["name"] == "vm-data"
        assert spec["template"]["spec"]["volumes"][1]["dataVolume"]["name"] == "vm-data"


def test_a_data_volume_that_cannot_be_made_is_told_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """And made when it can be."""
    with lab() as it:
        it.begin()
        told: list[tuple[str, str]] = []
        monkeypatch.setattr(it.shared.recorder, "event", lambda _obj, _kind, *said: told.append(said))
        vm = plain_object(vm_with({"dataVolume": {"name": "disk"}}))
        vm["spec"]["dataVolumeTemplates"] = [{"metadata": {"name": "disk"}, "spec": {"source": {"blank": {}}}}]
        it.kube.put(VM, vm)
        save(it)
        it.until(it.is_saved)
        inner = it.hook

        def full(method: str, path: str, query: dict[str, str], body: Any) -> Any:
            refused = method == "POST" and path.endswith("/datavolumes")
            return failure(403, "Forbidden", "quota") if refused else inner(method, path, query, body)

        it.kube.on_request = full
        bring_back(it, volumeRestorePolicy="PrefixTargetName")
        it.until(lambda: any(reason == "RestoreDataVolumeCreateError" for reason, _ in told))
        assert "DataVolume vm-data cannot be made: quota" in told[-1][1]
        assert "quota" in it.status(RESTORE)["conditions"][0]["reason"]
        it.kube.on_request = inner
        it.until(lambda: it.status(RESTORE).get("complete") is True)


@pytest.mark.parametrize("gone", [False, True])
def test_an_instance_type_is_kept_as_it_was(gone: bool) -> None:
    with lab() as it:
        it.begin()
        vm = plain_object(vm_with())
        vm["spec"]["instancetype"] = {"name": "small", "kind": "VirtualMachineInstancetype"}
        ref = {"name": "small", "kind": "VirtualMachineInstancetype", "controllerRevisionRef": {"name": "vm-small-1"}}
        vm["status"] = {"instancetypeRef": ref}
        it.kube.put(VM, vm)
        data = {"spec": {"cpu": {"guest": 2}}}
        it.kube.put(
            f"{REVISIONS}vm-small-1", {"metadata": {"ownerReferences": [of_vm(it)]}, "data": data, "revision": 1}
        )
        save(it)
        it.until(it.is_saved)
        kept = it.kube.objects[f"{REVISIONS}snap-small-1"]
        assert kept["data"] == data
        assert kept["metadata"]["ownerReferences"][0]["kind"] == "VirtualMachineSnapshot"
        if gone:
            it.kube.remove(VM)
            it.kube.remove(f"{REVISIONS}vm-small-1")
        bring_back(it)
        it.until(lambda: it.status(RESTORE).get("complete") is True)
        assert it.kube.objects[VM]["spec"]["instancetype"]["revisionName"] == "vm-small-1"
        back = it.kube.objects[f"{REVISIONS}vm-small-1"]
        assert back["data"] == data
        assert back["metadata"]["ownerReferences"][0]["uid"] == it.kube.objects[VM]["metadata"]["uid"]
