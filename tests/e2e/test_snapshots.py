"""Machines that are saved and brought back: running and stopped, in place and as another VM, byte by byte."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from . import test_instancetype as instancetype
from .conftest import Space
from .engine import VirtLocal, eventually
from .loopdisks import claim, skip_without_loop_devices
from .manifests import with_volume
from .test_persistent_state import SECRET, VARIABLE, guest, keeping, prepare
from .test_storage import shell, start, stop, stored, sum_of, with_claim, write_blocks  # noqa: F401
from .vms import Machine, vm

pytestmark = [pytest.mark.e2e, pytest.mark.patient]

GROUP = "snapshot.kubevirt.io/v1beta1"
#: The part of virt-local that has its storage in it.
STORAGE = "controllers"
SOURCE_FINALIZER = "snapshot.kubevirt.io/snapshot-source-protection"


def of_vm(name: str) -> dict[str, Any]:
    return {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": name}


def snapshot(space: Space, name: str, machine: str, **spec: Any) -> None:
    manifest = {"apiVersion": GROUP, "kind": "VirtualMachineSnapshot", "metadata": {"name": name}}
    space.apply({**manifest, "spec": {"source": of_vm(machine), **spec}})


def restore(space: Space, name: str, machine: str, source: str, **spec: Any) -> None:
    manifest = {"apiVersion": GROUP, "kind": "VirtualMachineRestore", "metadata": {"name": name}}
    space.apply({**manifest, "spec": {"target": of_vm(machine), "virtualMachineSnapshotName": source, **spec}})


def status(space: Space, kind: str, name: str) -> Any:
    return space.engine.get("-n", space.namespace, kind, name).get("status", {})


def reaches(space: Space, kind: str, name: str, check: Callable[[Any], bool], *, within_s: float = 90) -> Any:
    def look() -> Any:
        found = status(space, kind, name)
        assert check(found), json.dumps(found)
        return found

    return eventually(look, within_s=within_s, what=f"{kind} {name}")


def saved(space: Space, name: str) -> Any:
    return reaches(space, "vmsnapshot", name, lambda s: s.get("phase") == "Succeeded" and s.get("readyToUse") is True)


def restored(space: Space, name: str) -> Any:
    return reaches(space, "vmrestore", name, lambda s: s.get("complete") is True)


def conditions(found: Any) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in found["conditions"]}


def is_free(space: Space, machine: str) -> bool:
    found = space.engine.get("-n", space.namespace, "vm", machine)
    held = found["status"].get("snapshotInProgress") or found["status"].get("restoreInProgress")
    return not held and SOURCE_FINALIZER not in found["metadata"]["finalizers"]


def has_agent(space: Space, name: str) -> None:
    def look() -> bool:
        found = space.vmi(name)["status"]["conditions"]
        return any(c["type"] == "AgentConnected" and c["status"] == "True" for c in found)

    eventually(look, within_s=90, what="the agent is connected")


def is_frozen(space: Space, name: str) -> bool:
    return bool(space.vmi(name)["status"].get("fsFreezeStatus") == "frozen")


def disk_of(space: Space, machine: str) -> str:
    """The claim or DataVolume behind the volume `data`."""
    spec = space.engine.get("-n", space.namespace, "vm", machine)["spec"]["template"]["spec"]
    (volume,) = [each for each in spec["volumes"] if each["name"] == "data"]
    return str(volume.get("persistentVolumeClaim", {}).get("claimName") or volume["dataVolume"]["name"])


def file_sum(space: Space, name: str) -> str:
    found = shell(space, name, "md5sum /mnt/kept")
    return next(word for word in found.split() if len(word) == 32)


def mount(space: Space, name: str) -> None:
    shell(space, name, "mount -t ext2 /dev/vda /mnt || mount -t ext4 /dev/vda /mnt")
    assert "/mnt" in shell(space, name, "grep /mnt /proc/mounts")


@pytest.mark.parametrize("mode", ["Filesystem", "Block"])
def test_a_running_machine_is_saved_and_brought_back(stored: Space, mode: str) -> None:  # noqa: F811
    """A guest that never rests is frozen for a moment; its file is back in place, and in another VM."""
    space = stored
    if mode == "Block":
        skip_without_loop_devices(space)
    claim(space, "origin", "32Mi", volumeMode=mode)
    space.apply(with_claim(vm("keeper", "Manual"), "origin"))
    machine = Machine(space, "keeper")
    start(machine, space, "keeper")
    has_agent(space, "keeper")
    shell(space, "keeper", "mke2fs /dev/vda >/dev/null 2>&1")
    mount(space, "keeper")
    shell(space, "keeper", "dd if=/dev/urandom of=/mnt/kept bs=1M count=8 2>/dev/null; sync")
    wanted = file_sum(space, "keeper")
    shell(space, "keeper", "(while :; do date > /mnt/tick; sync; done) & echo busy")
    snapshot(space, "first", "keeper")
    found = saved(space, "first")
    assert conditions(found) == {"Progressing": ("False", "Operation complete"), "Ready": ("True", "Ready")}
    assert found["indications"] == ["GuestAgent", "Online"]
    assert [each["indication"] for each in found["sourceIndications"]] == found["indications"]
    assert found["snapshotVolumes"] == {"includedVolumes": ["data"]}
    assert found["sourceUID"] == machine.get()["metadata"]["uid"]
    eventually(lambda: is_free(space, "keeper"), within_s=30, what="the VM is let go")
    eventually(lambda: not is_frozen(space, "keeper"), within_s=30, what="the guest goes on")
    (each,) = machine.status()["volumeSnapshotStatuses"]
    assert (each["name"], each["enabled"]) == ("data", True)
    shell(space, "keeper", "rm /mnt/kept; echo other > /mnt/kept; sync")
    stop(machine)

    restore(space, "back", "keeper", "first")
    done = restored(space, "back")
    assert conditions(done) == {"Progressing": ("False", "Operation complete"), "Ready": ("True", "Operation complete")}
    assert is_free(space, "keeper")
    (one,) = done["restores"]
    assert disk_of(space, "keeper") == one["persistentVolumeClaim"] != "origin"
    made = space.engine.get("-n", space.namespace, "pvc", one["persistentVolumeClaim"])["metadata"]
    assert made["annotations"]["restore.kubevirt.io/name"] == "back"
    assert made["ownerReferences"][0]["name"] == "keeper"
    start(machine, space, "keeper")
    mount(space, "keeper")
    assert file_sum(space, "keeper") == wanted

    patch = json.dumps({"op": "add", "path": "/metadata/labels/made", "value": "anew"})
    restore(space, "copied", "copy", "first", volumeRestorePolicy="PrefixTargetName", patches=[patch])
    restored(space, "copied")
    copy = Machine(space, "copy")
    assert copy.get()["metadata"]["labels"]["made"] == "anew"
    assert copy.get()["spec"]["runStrategy"] == "Halted"
    assert disk_of(space, "copy") == "copy-data"
    start(copy, space, "copy")
    mount(space, "copy")
    assert file_sum(space, "copy") == wanted


def with_template(name: str, strategy: str) -> dict[str, Any]:
    """A VM whose one disk is a DataVolume that is made with it."""
    manifest = vm(name, strategy)
    with_volume(manifest["spec"]["template"], "data", {"dataVolume": {"name": f"{name}-data"}})
    spec = {"source": {"blank": {}}, "storage": {"resources": {"requests": {"storage": "32Mi"}}}}
    manifest["spec"]["dataVolumeTemplates"] = [{"metadata": {"name": f"{name}-data"}, "spec": spec}]
    return manifest


def test_a_stopped_machine_with_a_template_is_saved_and_brought_back(stored: Space) -> None:  # noqa: F811
    """Twice: under a new name, for which a running target is stopped; and in place, as the same claim."""
    space = stored
    space.apply(with_template("steady", "Always"))
    machine = Machine(space, "steady")
    machine.printable("Running")
    space.ready("steady")
    wanted = write_blocks(space, "steady")
    stop(machine)
    snapshot(space, "quiet", "steady")
    found = saved(space, "quiet")
    assert "indications" not in found
    machine.virtctl("start")
    space.ready("steady")
    shell(space, "steady", "dd if=/dev/zero of=/dev/vda bs=1M count=16 conv=notrunc 2>/dev/null; sync")

    restore(space, "hasty", "steady", "quiet", targetReadinessPolicy="FailImmediate")
    failed = reaches(space, "vmrestore", "hasty", lambda s: "Failure" in conditions(s) if s else False)
    assert "running" in conditions(failed)["Failure"][1]
    restore(space, "renamed", "steady", "quiet", targetReadinessPolicy="StopTarget")
    done = restored(space, "renamed")
    assert done["deletedDataVolumes"] == ["steady-data"]
    assert not machine.has_vmi()
    spec = machine.get()["spec"]
    assert spec["runStrategy"] == "Halted"
    assert spec["dataVolumeTemplates"][0]["metadata"]["name"] == done["restores"][0]["dataVolumeName"]
    space.kubectl("wait", "--for=delete", "pvc/steady-data", "--timeout=60s", timeout=90)
    machine.virtctl("start")
    space.ready("steady")
    assert sum_of(space, "steady") == wanted
    shell(space, "steady", "dd if=/dev/zero of=/dev/vda bs=1M count=16 conv=notrunc 2>/dev/null; sync")
    stop(machine)

    snapshot(space, "zeros", "steady")
    saved(space, "zeros")
    machine.virtctl("start")
    space.ready("steady")
    write_blocks(space, "steady")
    stop(machine)
    before = disk_of(space, "steady")
    uid = space.engine.get("-n", space.namespace, "pvc", before)["metadata"]["uid"]
    restore(space, "in-place", "steady", "zeros", volumeRestorePolicy="InPlace")
    restored(space, "in-place")
    assert disk_of(space, "steady") == before
    claim_now = space.engine.get("-n", space.namespace, "pvc", before)["metadata"]
    assert claim_now["uid"] != uid
    assert claim_now["ownerReferences"][0]["kind"] == "DataVolume"
    machine.virtctl("start")
    space.ready("steady")
    assert "00000000" in shell(space, "steady", "dd if=/dev/vda bs=16 count=1 2>/dev/null | od -An -tx4 | tr -d ' '")
    stop(machine)
    space.kubectl("delete", "vm", "steady", "--timeout=60s", timeout=90)
    space.gone("pvc")


def test_what_firmware_has_stored_comes_back(stored: Space) -> None:  # noqa: F811
    """A variable of UEFI as it was when the machine was saved; the claim that kept the later one is gone."""
    space = stored
    space.apply(keeping(vm("firm", "Always")))
    machine = Machine(space, "firm")
    for name, value in (("good", SECRET), ("", "changed!")):
        machine.strategy("Always")
        with guest(space, "firm") as console:
            prepare(console)
            console.shell(f"chattr -i {VARIABLE} 2>/dev/null; printf '\\007\\000\\000\\000{value}' >{VARIABLE}; sync")
            assert value in console.shell(f"tail -c 8 {VARIABLE}; echo")
        stop(machine)
        if name:
            snapshot(space, name, "firm")
            assert saved(space, name)["snapshotVolumes"]["includedVolumes"] == ["persistent-state-for-firm"]
    (before,) = kept_claims(space)
    other = {"apiVersion": GROUP, "kind": "VirtualMachineRestore", "metadata": {"name": "other"}}
    spec = {"target": of_vm("else"), "virtualMachineSnapshotName": "good"}
    assert "cannot be restored to another VM" in space.refuse({**other, "spec": spec})
    restore(space, "back", "firm", "good")
    restored(space, "back")
    (now,) = kept_claims(space)
    assert now != before
    machine.strategy("Always")
    with guest(space, "firm") as console:
        prepare(console)
        assert SECRET in console.shell(f"tail -c 8 {VARIABLE}; echo")


def test_an_instance_type_is_kept_as_it_was(space: Space) -> None:
    """It is gone by the time of the restore, and the new VM has its size."""
    space.apply(instancetype.size("small", memory="160Mi"))
    space.apply(instancetype.vm("sized", "small", strategy="Halted"))
    captured = lambda: Machine(space, "sized").status().get("instancetypeRef", {}).get("controllerRevisionRef")  # noqa: E731
    eventually(captured, within_s=30, what="the VM has its revision")
    snapshot(space, "of-sized", "sized")
    saved(space, "of-sized")
    space.kubectl("delete", "vm", "sized", "--timeout=60s", timeout=90)
    space.kubectl("delete", "virtualmachineinstancetype", "small")
    restore(space, "anew", "other", "of-sized")
    restored(space, "anew")
    other = Machine(space, "other")
    name = other.get()["spec"]["instancetype"]["revisionName"]
    revision = space.engine.get("-n", space.namespace, "controllerrevision", name)
    assert revision["metadata"]["ownerReferences"][0]["uid"] == other.get()["metadata"]["uid"]
    other.virtctl("start")
    assert instancetype.booted(space, "other")["spec"]["domain"]["memory"]["guest"] == "160Mi"


def kept_claims(space: Space) -> list[str]:
    found = space.engine.get("-n", space.namespace, "pvc", "-l", "persistent-state-for")["items"]
    return [each["metadata"]["name"] for each in found if "deletionTimestamp" not in each["metadata"]]


@pytest.mark.alone
def test_a_controller_that_is_killed_goes_on(stored: Space) -> None:  # noqa: F811
    """While it saves and while it restores, several times; the VM that was saved is gone by then."""
    space = stored
    claim(space, "origin", "32Mi")
    space.apply(with_claim(vm("lasting", "Manual"), "origin"))
    machine = Machine(space, "lasting")
    start(machine, space, "lasting")
    has_agent(space, "lasting")
    wanted = write_blocks(space, "lasting")
    snapshot(space, "kept", "lasting")
    for _ in range(2):
        space.engine.kill_component("virt-controller")
    saved(space, "kept")
    eventually(lambda: is_free(space, "lasting"), within_s=60, what="the VM is let go")
    eventually(lambda: not is_frozen(space, "lasting"), within_s=30, what="the guest goes on")
    space.kubectl("delete", "vm", "lasting", "--timeout=60s", timeout=90)
    space.kubectl("delete", "pvc", "origin", "--timeout=60s", timeout=90)
    restore(space, "again", "lasting", "kept")
    for _ in range(2):
        space.engine.kill_component("virt-controller")
    restored(space, "again")
    start(machine, space, "lasting")
    assert sum_of(space, "lasting") == wanted


@pytest.mark.alone
def test_a_deadline_ends_what_nobody_saves(stored: Space) -> None:  # noqa: F811
    """The storage does not answer: the guest stands still no longer than until then, and the VM is free again."""
    space = stored
    if not isinstance(space.engine, VirtLocal):
        pytest.skip("stops virt-local's own storage")
    claim(space, "origin", "32Mi")
    space.apply(with_claim(vm("patient", "Manual"), "origin"))
    machine = Machine(space, "patient")
    start(machine, space, "patient")
    has_agent(space, "patient")
    pids = space.engine.component_pids(STORAGE)
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        snapshot(space, "late", "patient", failureDeadline="20s")
        eventually(lambda: is_frozen(space, "patient"), within_s=15, what="the guest is frozen")
        refused = space.engine.run("kubectl", "-n", space.namespace, "patch", "vm", "patient", "--type=merge", "-p",
                                   json.dumps({"spec": {"runStrategy": "Always"}}))  # fmt: skip
        assert "while a snapshot is being taken" in refused.stderr
        told = space.virtctl("explain", "vmsnapshot", "late")
        assert "VolumeSnapshot" in told, told
        found = reaches(space, "vmsnapshot", "late", lambda s: s.get("phase") == "Failed", within_s=60)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    assert conditions(found)["Failure"] == ("True", "snapshot deadline exceeded")
    assert "creationTime" not in found
    eventually(lambda: is_free(space, "patient"), within_s=30, what="the VM is let go")
    eventually(lambda: not is_frozen(space, "patient"), within_s=30, what="the guest goes on")
    space.gone("vmsnapshotcontent")
    assert machine.get()["metadata"]["finalizers"] == ["kubevirt.io/virtualMachineControllerFinalize"]
    restore(space, "never", "patient", "late", targetReadinessPolicy="WaitEventually")
    stop(machine)
    failed = reaches(space, "vmrestore", "never", lambda s: "Failure" in conditions(s) if s else False)
    assert "has failed" in conditions(failed)["Failure"][1]
    assert "has failed" in space.virtctl("explain", "vmrestore", "never")


def test_a_snapshot_may_come_before_its_machine_and_outlive_its_content(stored: Space) -> None:  # noqa: F811
    """It waits for the VM; a VolumeSnapshot that somebody deletes is told of; what is retained stays."""
    space = stored
    snapshot(space, "early", "coming", deletionPolicy="Retain")
    waits = lambda s: s.get("conditions") and conditions(s)["Progressing"][1] == "Source does not exist"  # noqa: E731
    reaches(space, "vmsnapshot", "early", waits)
    claim(space, "origin", "32Mi")
    space.apply(with_claim(vm("coming", "Halted"), "origin"))
    content = saved(space, "early")["virtualMachineSnapshotContentName"]
    space.kubectl("delete", "vmsnapshot", "early", "--timeout=60s", timeout=90)
    assert status(space, "vmsnapshotcontent", content)["readyToUse"] is True
    snapshot(space, "robbed", "coming")
    saved(space, "robbed")
    uid = space.engine.get("-n", space.namespace, "vmsnapshot", "robbed")["metadata"]["uid"]
    space.kubectl("delete", "volumesnapshot", f"vmsnapshot-{uid}-volume-data", "--timeout=60s", timeout=90)
    found = reaches(space, "vmsnapshot", "robbed", lambda s: s.get("readyToUse") is False)
    assert "missing" in found["error"]["message"]
    space.kubectl("delete", "vmsnapshot", "robbed", "--timeout=60s", timeout=90)
    space.kubectl("delete", "vmsnapshotcontent", content, "--timeout=60s", timeout=90)
    space.gone("volumesnapshot")


def test_doors(stored: Space) -> None:  # noqa: F811
    space = stored
    manifest = {"apiVersion": GROUP, "kind": "VirtualMachineSnapshot", "metadata": {"name": "x"}}
    said = space.refuse({**manifest, "spec": {"source": of_vm("x"), "failureDeadline": "soon"}})
    assert "spec.failureDeadline" in said
    manifest = {"apiVersion": GROUP, "kind": "VirtualMachineRestore", "metadata": {"name": "x"}}
    spec = {"target": of_vm("x"), "virtualMachineSnapshotName": "s"}
    patch = json.dumps({"op": "add", "path": "/status/ready", "value": True})
    assert "spec.patches" in space.refuse({**manifest, "spec": {**spec, "patches": [patch]}})
    space.apply({**manifest, "spec": spec})
    again = {**manifest, "metadata": {"name": "y"}}
    assert "already restoring" in space.refuse({**again, "spec": spec})
