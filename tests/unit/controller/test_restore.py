"""Restores: what is made of a snapshot, under which names, whose it is, and what the VM looks like afterwards."""

from __future__ import annotations

import json
from typing import Any

import pytest
from framework.copies import SAVED, at, claim, content, restore, saved, snapshot, vm_with
from framework.vms import VM_UID, owned_vmi, owner
from msgspec.structs import replace

from virt_controller.restore import claims, decide, target
from virt_controller.restore.claims import Around
from virt_controller.snapshot.revisions import renamed
from virt_core.apis import snapshot as words
from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.datavolume import DataVolume
from virt_core.apis.snapshot import VirtualMachineRestore, VolumeRestore
from virt_core.apis.vm import VirtualMachine

MARK = "back-7"
READY = {"creationTime": "2026-01-01T00:00:09Z", "readyToUse": True}
DONE = {"phase": "Succeeded", "readyToUse": True, "sourceUID": VM_UID}


def kept(vm: VirtualMachine | None = None, **changes: Any) -> claims.Kept:
    (found,) = claims.kept(content(vm=vm, held=claim(**changes)), vm or vm_with(), "vm")
    return found


def planned(
    asked: VirtualMachineRestore, vm: VirtualMachine | None = None, there: set[str] | None = None
) -> VolumeRestore:
    (found,) = claims.planned(asked, [kept(vm)], vm or vm_with(), there or ())
    return found


# Names


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({}, "restore-7-data"),
        ({"volumeRestorePolicy": "InPlace"}, "disk"),
        ({"volumeRestorePolicy": "PrefixTargetName"}, "vm-data"),
        ({"volumeRestoreOverrides": [{"volumeName": "data", "restoreName": "mine"}]}, "mine"),
        (
            {
                "volumeRestorePolicy": "InPlace",
                "volumeRestoreOverrides": [{"volumeName": "data", "restoreName": "mine"}],
            },
            "mine",
        ),
        ({"volumeRestoreOverrides": [{"volumeName": "other", "restoreName": "mine"}]}, "restore-7-data"),
    ],
)
def test_how_a_claim_is_called(spec: dict[str, Any], wanted: str) -> None:
    assert planned(restore(**spec)).persistent_volume_claim == wanted


def test_dumps_of_memory_and_the_state_of_another_machine_are_not_restored() -> None:
    dump = vm_with({"memoryDump": {"claimName": "disk"}})
    assert claims.kept(content(vm=dump), dump, "vm") == []
    state = content()
    state.spec.volume_backups[0].volume_name = "persistent-state-for-vm"
    assert len(claims.kept(state, vm_with(), "vm")) == 1
    assert claims.kept(state, vm_with(), "other") == []


def test_a_volume_of_a_template_gets_a_data_volume() -> None:
    templates = [{"metadata": {"name": "disk"}, "spec": {}}]
    vm = vm_with({"dataVolume": {"name": "disk"}})
    assert planned(restore(), vm).data_volume_name is None
    vm = replace(vm, spec=replace(vm.spec, data_volume_templates=from_plain(templates, list[Any])))
    vm = from_plain(to_plain(vm), VirtualMachine)
    assert planned(restore(), vm).data_volume_name == "restore-7-data"
    loose = vm_with({"dataVolume": {"name": "disk"}})
    assert planned(restore(volumeRestorePolicy="InPlace"), loose, {"disk"}).data_volume_name == "disk"


# Claims


def made(asked: VirtualMachineRestore | None = None, **changes: Any) -> Any:
    asked = asked or restore()
    one = kept(**changes.pop("kept", {}))
    around = changes.pop("around", Around(vm_with(), vm_with()))
    return claims.claim_for(asked, one, planned(asked), saved(**changes), around)


def test_a_claim_is_as_its_source_was_with_the_bytes_of_the_snapshot() -> None:
    notes = {"pv.kubernetes.io/bind-completed": "yes", "mine": "x", "cdi.kubevirt.io/storage.contentType": "kubevirt",
             "cdi.kubevirt.io/storage.pod.phase": "Succeeded", "volume.kubernetes.io/selected-node": "n"}  # fmt: skip
    labels = {"app": "db", "persistent-state-for": "vm"}
    found = made(restoreSize="2Gi", kept={"annotations": notes, "labels": labels})
    assert found.metadata.annotations == {
        "mine": "x", "cdi.kubevirt.io/storage.contentType": "kubevirt",
        "restore.kubevirt.io/name": "back", "restore.kubevirt.io/lastRestoreUID": MARK,
    }  # fmt: skip
    assert found.metadata.labels == {
        "app": "db", "restore.kubevirt.io/source-vm-name": "vm", "restore.kubevirt.io/source-vm-namespace": "default",
    }  # fmt: skip
    assert (found.spec.storage_class_name, found.spec.access_modes) == ("fast", ["ReadWriteOnce"])
    assert found.spec.resources.requests == {"storage": "2Gi"}, "raised to what is in it"
    assert made(restoreSize="1Mi").spec.resources.requests == {"storage": "1Gi"}
    assert (found.spec.data_source.kind, found.spec.data_source.name) == ("VolumeSnapshot", SAVED)
    assert found.spec.data_source_ref.name == SAVED
    assert found.spec.volume_name == ""


def test_what_the_user_adds_does_not_replace_our_mark() -> None:
    notes = {"mine": "y", "restore.kubevirt.io/lastRestoreUID": "forged"}
    overrides = [{"volumeName": "data", "labels": {"a": "b"}, "annotations": notes}]
    found = made(restore(volumeRestoreOverrides=overrides))
    assert found.metadata.labels["a"] == "b"
    assert found.metadata.annotations["mine"] == "y"
    assert found.metadata.annotations["restore.kubevirt.io/lastRestoreUID"] == MARK


def test_whose_a_claim_is() -> None:
    assert made().metadata.owner_references[0].uid == VM_UID
    assert made(restore(volumeOwnershipPolicy="None")).metadata.owner_references == []
    new = Around(vm_with(), None)
    free = made(around=new)
    assert free.metadata.owner_references == []
    assert words.ANNOTATION_OWNED_BY_VM not in free.metadata.annotations
    owned = made(around=new, kept={"ownerReferences": [owner()]})
    assert owned.metadata.annotations[words.ANNOTATION_OWNED_BY_VM] == "back"
    stays = from_plain({"metadata": {"name": "disk", "uid": "dv"}}, DataVolume)
    adopted = made(around=Around(vm_with(), vm_with(), stays))
    assert adopted.metadata.owner_references[0].kind == "DataVolume"
    assert adopted.metadata.annotations["cdi.kubevirt.io/storage.populatedFor"] == "disk"


def test_only_the_saved_claim_of_the_saved_vm_is_replaced_and_only_in_place() -> None:
    there = claim()
    assert claims.may_replace(restore(volumeRestorePolicy="InPlace"), there, kept(), vm_with())
    assert not claims.may_replace(restore(), there, kept(), vm_with())
    assert not claims.may_replace(restore(volumeRestorePolicy="InPlace"), claim("other"), kept(), vm_with())
    other = restore(
        volumeRestorePolicy="InPlace", target={"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "copy"}
    )
    assert not claims.may_replace(other, there, kept(), vm_with()), "the source may be using it"
    assert claims.is_ours(restore(), made())
    assert not claims.is_ours(restore(), there)


def test_the_state_changes_places() -> None:
    old = claims.relabelled(claim(labels={"persistent-state-for": "vm"}), "vm")
    assert old.metadata.labels == {}
    assert old.metadata.annotations == {"restore.kubevirt.io/cleanup-backend-pvc": "persistent-state-for-vm"}
    assert claims.labelled(claim(), "vm").metadata.labels == {"persistent-state-for": "vm"}


# The VM


def spec_on(vm: VirtualMachine, **one: Any) -> Any:
    restored = VolumeRestore(volume_name="data", persistent_volume_claim="new", volume_snapshot_name=SAVED, **one)
    return target.spec_with(vm.spec, [restored])


def test_volumes_are_on_their_new_claims() -> None:
    data = spec_on(vm_with()).template.spec.volumes[1]
    assert data.persistent_volume_claim.claim_name == "new"
    data = spec_on(vm_with({"dataVolume": {"name": "disk"}})).template.spec.volumes[1]
    assert (data.data_volume, data.persistent_volume_claim.claim_name) == (None, "new")
    plain = to_plain(vm_with({"dataVolume": {"name": "disk"}}))
    plain["spec"]["dataVolumeTemplates"] = [{"metadata": {"name": "disk"}, "spec": {}}]
    vm = from_plain(plain, VirtualMachine)
    spec = spec_on(vm, data_volume_name="new")
    assert spec.template.spec.volumes[1].data_volume.name == "new"
    assert spec.data_volume_templates[0].metadata.name == "new"
    assert target.replaced_data_volumes(vm, spec) == ["disk"]
    assert target.replaced_data_volumes(vm, spec_on(vm, data_volume_name="disk")) == []


def test_a_dump_of_memory_is_left_out() -> None:
    spec = spec_on(vm_with({"memoryDump": {"claimName": "disk"}}))
    assert [each.name for each in spec.template.spec.volumes] == ["root"]
    assert [each.name for each in spec.template.spec.domain.devices.disks] == ["root"]


def test_in_place_the_vm_keeps_its_metadata_and_its_strategy() -> None:
    vm = vm_with(metadata={"annotations": {"mine": "x"}})
    (notes, spec) = target.in_place(restore(), vm, from_plain({"runStrategy": "Always", "template": {}}, type(vm.spec)))
    assert notes["value"] == {"mine": "x", "restore.kubevirt.io/lastRestoreUID": MARK}
    assert spec["value"]["runStrategy"] == "Halted"
    old = vm_with()
    old = replace(old, spec=replace(old.spec, run_strategy=None, running=True))
    (_, spec) = target.in_place(restore(), old, old.spec)
    assert spec["value"]["running"] is False
    assert "runStrategy" not in spec["value"]


def patched(*patches: dict[str, Any]) -> VirtualMachine:
    vm = vm_with(metadata={"labels": {"a": "b"}, "annotations": {"n": "o"}})
    return target.new_vm(restore(patches=[json.dumps(each) for each in patches]), vm, vm.spec)


def test_a_new_vm_is_off_and_patched() -> None:
    mac = "/spec/template/spec/domain/devices/interfaces/0/macAddress"
    found = patched(
        {"op": "replace", "path": mac, "value": "02:00:00:00:00:01"},
        {"op": "remove", "path": "/metadata/labels/a"},
        {"op": "add", "path": "/spec/template/metadata/labels/kubevirt.io~1created-by", "value": "forged"},
    )
    assert found.spec.run_strategy == "Halted"
    assert found.spec.template is not None
    assert found.spec.template.spec.domain.devices.interfaces[0].mac_address == "02:00:00:00:00:01"
    assert found.metadata.labels == {}
    assert found.metadata.annotations == {"n": "o", "restore.kubevirt.io/lastRestoreUID": MARK}
    assert found.spec.template.metadata is not None
    assert found.spec.template.metadata.labels == {"app": "x"}, "what only we may set is not set for others"
    assert found.metadata.uid == ""


@pytest.mark.parametrize(
    "patch",
    [
        {"op": "remove", "path": "/metadata/labels/none"},
        {"op": "replace", "path": "/spec", "value": 5},
        {"op": "nothing", "path": "/spec/x"},
    ],
)
def test_a_patch_that_does_not_fit_ends_the_restore(patch: dict[str, Any]) -> None:
    with pytest.raises(target.PatchFailedError, match=r"spec\.patches"):
        patched(patch)


# How far it is


@pytest.mark.parametrize(
    ("policy", "after_s", "stop", "error"),
    [
        (None, 1, False, decide.NotReady),
        (None, 301, False, decide.Hopeless),
        ("WaitEventually", 10**6, False, decide.NotReady),
        ("StopTarget", 1, True, decide.NotReady),
        ("FailImmediate", 0, False, decide.Hopeless),
    ],
)
def test_a_target_that_runs(policy: str | None, after_s: float, stop: bool, error: type[decide.HoldUp]) -> None:
    with pytest.raises(error) as found:
        decide.check_target(restore(targetReadinessPolicy=policy), owned_vmi(), at(after_s))
    assert getattr(found.value, "stop", False) == stop


def test_a_target_that_has_ended_is_ready() -> None:
    decide.check_target(restore(), None, at(1))
    decide.check_target(restore(), owned_vmi("Succeeded"), at(1))


@pytest.mark.parametrize(
    ("found", "held", "vm", "error", "said"),
    [
        (None, None, None, decide.Trouble, "there is no VirtualMachineSnapshot snap"),
        (snapshot({"phase": "Failed"}), None, None, decide.Hopeless, "has failed"),
        (snapshot({"phase": "InProgress"}), content(), None, decide.Trouble, "not ready"),
        (snapshot(DONE), content({}), None, decide.Trouble, "not ready"),
        (snapshot({**DONE, "sourceUID": "x"}), content(READY), vm_with(), decide.Trouble, "not the one that was saved"),
        (snapshot(DONE), content(READY), vm_with(status={"restoreInProgress": "o"}), decide.Trouble, "restore o"),
        (snapshot(DONE), content(READY), vm_with(status={"snapshotInProgress": "o"}), decide.Waiting, "snapshot o"),
    ],
)
def test_what_nothing_can_be_restored_from(found: Any, held: Any, vm: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        decide.check_snapshot(restore(), found, held, vm)


def test_what_the_conditions_say() -> None:
    def told(status: Any) -> dict[str, tuple[str, str]]:
        return {each.type: (each.status, each.reason) for each in status.conditions}

    status = decide.begun(restore(), at(1))
    begun = "Initializing VirtualMachineRestore"
    assert told(status) == {"Progressing": ("True", begun), "Ready": ("False", begun)}
    assert status.complete is False
    assert told(decide.troubled(status, "no room", at(2)))["Ready"] == ("False", "no room")
    assert told(decide.failed(status, "never", at(2)))["Failure"] == ("True", "never")
    done = decide.completed(status, at(3))
    assert told(done) == {"Progressing": ("False", "Operation complete"), "Ready": ("True", "Operation complete")}
    assert (done.complete, done.restore_time) == (True, "2026-01-01T00:00:03Z")
    assert words.is_over(replace(restore(), status=done))
    assert words.is_over(replace(restore(), status=decide.failed(status, "never", at(2))))
    assert not words.is_over(replace(restore(), status=status))


def test_revisions_follow_the_name() -> None:
    assert renamed("vm-small-v1beta1-u-1", "vm", "snap") == "snap-small-v1beta1-u-1"
    assert renamed("snap-small-v1beta1-u-1", "snap", "vm") == "vm-small-v1beta1-u-1"
    assert renamed("else", "vm", "snap") == "snap-else"
