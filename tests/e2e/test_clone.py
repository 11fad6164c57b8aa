"""VMs made from VMs: the same bytes, another identity, and nothing left of the way there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import Space
from .engine import eventually
from .loopdisks import claim, skip_without_loop_devices
from .manifests import vmi, with_user_data
from .test_datavolumes import data_volume
from .test_storage import shell, start, stop, stored, sum_of, with_claim, write_blocks
from .vms import Machine, vm

pytestmark = [pytest.mark.e2e, pytest.mark.patient]

__all__ = ["stored"]

DONE_S = 180.0
_KINDS = {"vm": ("kubevirt.io", "VirtualMachine"), "vmsnapshot": ("snapshot.kubevirt.io", "VirtualMachineSnapshot")}


def clone(name: str, source: str, target: str, kind: str = "vm", **spec: Any) -> dict[str, Any]:
    group, of = _KINDS[kind]
    return {
        "apiVersion": "clone.kubevirt.io/v1beta1",
        "kind": "VirtualMachineClone",
        "metadata": {"name": name},
        "spec": {
            "source": {"apiGroup": group, "kind": of, "name": source},
            "target": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": target},
            **spec,
        },
    }


def snapshot(name: str, of: str) -> dict[str, Any]:
    return {
        "apiVersion": "snapshot.kubevirt.io/v1beta1",
        "kind": "VirtualMachineSnapshot",
        "metadata": {"name": name},
        "spec": {"source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": of}},
    }


def status(space: Space, name: str) -> Any:
    return space.engine.get("-n", space.namespace, "vmclone", name).get("status", {})


def phase(space: Space, name: str, wanted: str, *, within_s: float = DONE_S) -> Any:
    def check() -> Any:
        found = status(space, name)
        assert found.get("phase") == wanted, space.virtctl("explain", "vmclone", name)
        return found

    return eventually(check, within_s=within_s, what=f"clone {name} in phase {wanted}")


def settled(space: Space, name: str, *kept: str) -> Any:
    """Succeeded, its claims are bound, and of snapshots and restores only those are left that a user made."""
    phase(space, name, "Succeeded")
    eventually(lambda: not {"snapshotName", "restoreName"} & status(space, name).keys(), within_s=60, what="clean-up")
    eventually(lambda: names(space, "vmsnapshot") == sorted(kept), within_s=60, what="no snapshot of ours")
    space.gone("vmrestore")
    return status(space, name)


def names(space: Space, kind: str) -> list[str]:
    return sorted(each["metadata"]["name"] for each in space.engine.get("-n", space.namespace, kind)["items"])


def events(space: Space, name: str) -> list[str]:
    found = space.engine.get("-n", space.namespace, "events")["items"]
    return [each["reason"] for each in found if each["involvedObject"].get("name") == name]


def domain(space: Space, name: str) -> Any:
    return Machine(space, name).get()["spec"]["template"]["spec"]["domain"]


@pytest.mark.parametrize("mode", ["Filesystem", "Block"])
def test_a_running_vm_and_its_clone_have_the_same_bytes_and_nothing_else_in_common(stored: Space, mode: str) -> None:
    space = stored
    if mode == "Block":
        skip_without_loop_devices(space)
    claim(space, "origin", "32Mi", volumeMode=mode)
    space.apply(with_claim(vm("old", "Always"), "origin"))
    space.ready("old")
    wanted = write_blocks(space, "old")
    manifest = space.virtctl("create", "clone", "--name=copy", "--source-name=old", "--target-name=new")
    space.kubectl("apply", "-f", "-", stdin=manifest)
    assert "VirtualMachine new was made of VirtualMachine old" in space.virtctl(
        "explain", "vmclone", "copy", "--wait", timeout=DONE_S
    )
    found = settled(space, "copy")
    assert found["targetName"] == "new"
    assert {each["type"]: each["status"] for each in found["conditions"]} == {"Progressing": "False", "Ready": "True"}
    made = {"SnapshotCreated", "SnapshotReady", "RestoreCreated", "RestoreReady", "TargetVMCreated", "PVCBound"}
    eventually(lambda: made <= set(events(space, "copy")), within_s=30, what="Events")
    new = Machine(space, "new")
    assert new.get()["spec"]["runStrategy"] == "Halted"
    assert not new.has_vmi()
    old, other = domain(space, "old"), domain(space, "new")
    for key in ("uuid", "serial"):
        assert old["firmware"][key] != other["firmware"][key]
    start(new, space, "new")
    assert sum_of(space, "new") == wanted
    cards = [space.vmi(each)["status"]["interfaces"][0]["mac"] for each in ("old", "new")]
    assert cards[0] != cards[1]
    shell(space, "new", "dd if=/dev/zero of=/dev/vda bs=1M count=16 conv=notrunc 2>/dev/null; sync")
    assert sum_of(space, "old") == wanted
    space.kubectl("delete", "vm", "new", "--timeout=60s", timeout=90)
    space.gone("vmclone")
    # The user made the claim of the old one and keeps it beyond the VM, and so it is with the new one's.
    assert len(names(space, "pvc")) == 2


def test_from_a_snapshot_that_comes_later_with_filters_and_patches(stored: Space) -> None:
    """The snapshot is its user's and stays; a later change of the source is not in the clone."""
    space = stored
    claim(space, "origin", "32Mi")
    manifest = with_claim(vm("old", "Manual"), "origin")
    manifest["metadata"] |= {"labels": {"keep/me": "1", "drop": "2"}, "annotations": {"note": "x"}}
    manifest["spec"]["template"]["metadata"]["labels"] |= {"inner": "1"}
    manifest["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"][0]["macAddress"] = "02:00:00:00:00:0a"
    space.apply(manifest)
    machine = Machine(space, "old")
    start(machine, space, "old")
    wanted = write_blocks(space, "old")
    stop(machine)
    space.apply(
        clone(
            "copy",
            "saved",
            "new",
            "vmsnapshot",
            labelFilters=["*", "!drop"],
            annotationFilters=[],
            template={"labelFilters": ["inner"]},
            newMacAddresses={"default": "02:00:00:00:00:0b"},
            newSMBiosSerial="of-my-own",
            volumeNamePolicy="PrefixTargetName",
            patches=[json.dumps({"op": "add", "path": "/metadata/labels/added", "value": "a"})],
        )
    )
    said = "there is no VirtualMachineSnapshot saved yet"
    eventually(lambda: said in space.virtctl("explain", "vmclone", "copy"), within_s=30, what="it waits")
    space.apply(snapshot("saved", "old"))
    phase(space, "copy", "Succeeded")
    start(machine, space, "old")
    shell(space, "old", "dd if=/dev/zero of=/dev/vda bs=1M count=16 conv=notrunc 2>/dev/null; sync")
    settled(space, "copy", "saved")
    new = Machine(space, "new").get()
    assert new["metadata"]["labels"] == {"keep/me": "1", "added": "a"}
    assert "note" not in new["metadata"].get("annotations", {})
    assert new["spec"]["template"]["metadata"]["labels"] == {"inner": "1"}
    assert domain(space, "new")["devices"]["interfaces"][0]["macAddress"] == "02:00:00:00:00:0b"
    assert domain(space, "new")["firmware"]["serial"] == "of-my-own"
    assert "new-data" in names(space, "pvc")
    start(Machine(space, "new"), space, "new")
    assert sum_of(space, "new") == wanted
    assert space.vmi("new")["status"]["interfaces"][0]["mac"] == "02:00:00:00:00:0b"


def test_without_a_volume_that_lasts_and_a_clone_of_a_clone(space: Space) -> None:
    """A disk from an image and cloud-init: nothing to save, and all to be made anew."""
    manifest = vm("first", "Manual")
    machine = with_user_data(vmi("first"), "#cloud-config\n")
    manifest["spec"]["template"]["spec"] |= {
        "domain": machine["spec"]["domain"],
        "volumes": machine["spec"]["volumes"],
    }
    space.apply(manifest)
    for source, target in (("first", "second"), ("second", "third")):
        space.apply(clone(f"to-{target}", source, target))
        settled(space, f"to-{target}")
    seen = {domain(space, each)["firmware"]["uuid"] for each in ("first", "second", "third")}
    assert len(seen) == 3
    start(Machine(space, "third"), space, "third")
    assert not names(space, "pvc")


def test_a_vm_with_a_template_of_a_datavolume(stored: Space) -> None:
    space = stored
    done = space.engine.run("kubectl", "get", "crd", "datavolumes.cdi.kubevirt.io", "-o", "jsonpath={.metadata.labels}")
    if "virtpod.io/importer" not in done.stdout:
        pytest.skip("the cluster has no DataVolumes of ours")
    manifest = vm("old", "Manual")
    template = data_volume("old-data", {"blank": {}}, "32Mi")
    manifest["spec"]["dataVolumeTemplates"] = [{"metadata": template["metadata"], "spec": template["spec"]}]
    inner = manifest["spec"]["template"]["spec"]
    inner["volumes"] = [{"name": "data", "dataVolume": {"name": "old-data"}}]
    inner["domain"]["devices"]["disks"] = [{"name": "data", "disk": {"bus": "virtio"}}]
    space.apply(manifest)
    machine = Machine(space, "old")
    start(machine, space, "old")
    wanted = write_blocks(space, "old")
    stop(machine)
    space.apply(clone("copy", "old", "new"))
    settled(space, "copy")
    start(Machine(space, "new"), space, "new")
    assert sum_of(space, "new") == wanted
    space.kubectl("delete", "vm", "new", "--timeout=60s", timeout=90)
    eventually(lambda: names(space, "pvc") == ["old-data"], within_s=60, what="only the claim of the old one")
    eventually(lambda: names(space, "datavolume") == ["old-data"], within_s=60, what="only its DataVolume")


def test_what_is_there_already_is_not_touched(space: Space) -> None:
    space.apply(vm("old", "Halted"))
    space.apply(vm("new", "Halted"))
    before = Machine(space, "new").get()["metadata"]["uid"]
    space.apply(clone("copy", "old", "new"))
    phase(space, "copy", "Failed")
    assert "there is a VirtualMachine new already" in space.virtctl("explain", "vmclone", "copy")
    assert Machine(space, "new").get()["metadata"]["uid"] == before
    assert "lastRestoreUID" not in json.dumps(Machine(space, "new").get())
    assert (names(space, "vmsnapshot"), names(space, "vmrestore")) == ([], [])


def test_what_cannot_be_cloned_says_why(space: Space) -> None:
    """A TPM's state is not copied; an interface is not there; a source is missing, and then comes."""
    manifest = vm("tpm", "Halted")
    manifest["spec"]["template"]["spec"]["domain"]["devices"]["tpm"] = {"persistent": True}
    space.apply(manifest)
    space.apply(clone("of-tpm", "tpm", "new"))
    phase(space, "of-tpm", "Failed")
    eventually(lambda: events(space, "of-tpm") == ["SourceVMWithBackendStorageInvalid"], within_s=30)
    space.apply(clone("of-late", "late", "later", newMacAddresses={"eth9": "02:00:00:00:00:01"}))
    said = "there is no VirtualMachine late yet"
    eventually(lambda: said in space.virtctl("explain", "vmclone", "of-late"), within_s=30, what="it waits")
    space.apply(vm("late", "Halted"))
    phase(space, "of-late", "Failed")
    assert "has no interface eth9" in space.virtctl("explain", "vmclone", "of-late")
    assert names(space, "vm") == ["late", "tpm"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"labelFilters": ["(a+)+$"]}, "spec.labels"),
        ({"patches": ['{"op":"copy","from":"/spec","path":"/spec/x","value":0}']}, "spec.patches[0]"),
        ({"patches": ['{"op":"add","path":"/metadata/finalizers/-","value":"x"}']}, "spec.patches"),
        ({"newMacAddresses": {"default": "x"}}, "spec.newMacAddresses.default"),
        ({"volumeNamePolicy": "InPlace"}, "spec.volumeNamePolicy"),
    ],
)
def test_a_mistake_is_named(space: Space, change: dict[str, Any], said: str) -> None:
    assert said in space.refuse(clone("copy", "old", "new", **change))
    assert not names(space, "vmclone")


def test_a_patch_does_not_say_what_a_user_may_not(space: Space) -> None:
    """virt-controller makes the VM, but a label that only our programs set does not come into it this way."""
    space.apply(vm("old", "Halted"))
    label = {"op": "add", "path": "/spec/template/metadata/labels/kubevirt.io~1nodeName", "value": "elsewhere"}
    space.apply(clone("copy", "old", "new", patches=[json.dumps(label)]))
    settled(space, "copy")
    assert "elsewhere" not in json.dumps(Machine(space, "new").get())


def test_what_was_made_for_a_clone_goes_with_it(stored: Space) -> None:
    """Patches that do not fit are found at once; what the door refuses later is gone with the clone, its claims too."""
    space = stored
    claim(space, "origin", "32Mi")
    space.apply(with_claim(vm("old", "Halted"), "origin"))
    space.apply(clone("bad", "old", "new", patches=['{"op":"remove","path":"/spec/nothing/here"}']))
    phase(space, "bad", "Failed")
    assert "spec.patches[0] cannot be applied" in space.virtctl("explain", "vmclone", "bad")
    assert not names(space, "vmsnapshot") + names(space, "vmrestore")
    nonsense = {"op": "add", "path": "/spec/template/spec/domain/memory", "value": {"guest": "-1Mi"}}
    space.apply(clone("worse", "old", "new", patches=[json.dumps(nonsense)]))
    said = "spec.template.spec.domain.memory.guest"
    eventually(lambda: said in space.virtctl("explain", "vmclone", "worse"), within_s=90, what="the door's reason")
    space.kubectl("delete", "vmclone", "worse", "--timeout=60s", timeout=90)
    eventually(lambda: not names(space, "vmsnapshot") + names(space, "vmrestore"), within_s=60, what="nothing left")
    eventually(lambda: names(space, "pvc") == ["origin"], within_s=60, what="no claim left")
    assert names(space, "vm") == ["old"]
