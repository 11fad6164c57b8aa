"""`virtctl explain vmclone`: where a clone stands, and why."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result
from framework.fake_kube import FakeKube, failure

CLONE = "/apis/clone.kubevirt.io/v1beta1/namespaces/default/virtualmachineclones/copy"
SNAPSHOT = "/apis/snapshot.kubevirt.io/v1beta1/namespaces/default/virtualmachinesnapshots/tmp-snapshot-u1"
RESTORE = "/apis/snapshot.kubevirt.io/v1beta1/namespaces/default/virtualmachinerestores/tmp-restore-u1"
SOURCE = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "old"}

Run = Callable[..., Result]


def put(kube: FakeKube, status: dict[str, Any] | None = None, *said: str) -> None:
    status = status or {}
    if said:
        reason, message = said
        flag = "True" if reason == "Still processing" else "False"
        moment = "2026-01-01T00:00:00Z"
        told = {"type": "Progressing", "status": flag, "reason": reason, "message": message}
        status = {**status, "conditions": [{**told, "lastTransitionTime": moment}]}
    kube.put(CLONE, {"metadata": {"uid": "u1"}, "spec": {"source": SOURCE}, "status": status})


def happened(kube: FakeKube, second: int, reason: str, message: str, kind: str = "Normal") -> None:
    about = {"kind": "VirtualMachineClone", "name": "copy", "uid": "u1"}
    note = {"involvedObject": about, "type": kind, "reason": reason, "message": message}
    note["lastTimestamp"] = f"2026-01-01T00:00:{second:02}Z"
    kube.put(f"/api/v1/namespaces/default/events/e{second}", note)


def test_one_that_nobody_looked_at(kube: FakeKube, run: Run) -> None:
    put(kube)
    output = run("explain", "vmclone", "copy").output
    assert output.startswith("VirtualMachineClone default/copy: New\n")
    assert "Nobody has looked at it yet.\nNext: kubectl logs" in output


def test_one_that_waits(kube: FakeKube, run: Run) -> None:
    put(kube, {}, "Pending", "there is no VirtualMachine old yet")
    output = run("explain", "vmclone/copy").output
    assert "It is pending: there is no VirtualMachine old yet and has waited " in output
    assert output.endswith("Next: kubectl get vmclone copy -n default -w\n")


def test_one_whose_snapshot_has_trouble(kube: FakeKube, run: Run) -> None:
    words = "waiting for VirtualMachineSnapshot tmp-snapshot-u1"
    put(kube, {"phase": "SnapshotInProgress", "snapshotName": "tmp-snapshot-u1"}, "Still processing", words)
    kube.put(SNAPSHOT, {"status": {"error": {"message": "the guest does not freeze"}}})
    output = run("explain", "vmclone", "copy").output
    assert f"It is under way: {words} and has waited " in output
    assert "The snapshot says: the guest does not freeze." in output
    assert output.endswith("Next: kubectl describe vmsnapshot tmp-snapshot-u1 -n default\n")


def test_one_whose_restore_is_under_way(kube: FakeKube, run: Run) -> None:
    status = {"phase": "RestoreInProgress", "snapshotName": "tmp-snapshot-u1", "restoreName": "tmp-restore-u1"}
    put(kube, status, "Still processing", "waiting for VirtualMachineRestore tmp-restore-u1")
    kube.put(RESTORE, {"status": {}})
    assert run("explain", "vmclone", "copy").output.endswith(
        "Next: kubectl describe vmrestore tmp-restore-u1 -n default\n"
    )
    kube.on_request = lambda _m, path, *_: failure(403, "Forbidden", "no") if "/snapshot.k" in path else None
    assert "Snapshots and restores: you may not read them" in run("explain", "vmclone", "copy").output


def test_one_that_failed(kube: FakeKube, run: Run) -> None:
    put(kube, {"phase": "Failed"}, "Failed", "there is a VirtualMachine new already")
    result = run("explain", "vmclone", "copy", "--wait")
    assert result.exit_code == 1
    assert (
        "It Failed: there is a VirtualMachine new already.\nNext: kubectl delete vmclone copy -n default"
        in result.output
    )


def test_one_that_is_done(kube: FakeKube, run: Run) -> None:
    """With a row for each thing that was done, and what its claims wait for."""
    put(kube, {"phase": "Succeeded", "targetName": "new", "restoreName": "tmp-restore-u1"}, "Ready", "")
    happened(kube, 1, "SnapshotCreated", "made a snapshot")
    happened(kube, 5, "TargetVMCreated", "VirtualMachine new is there")
    happened(kube, 0, "SourceDoesNotExist", "there was none", "Warning")
    result = run("explain", "vmclone", "copy", "--wait")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert [line.split()[0] for line in lines if "virt-controller" in line] == ["SnapshotCreated", "TargetVMCreated"]
    assert "4.000 s" in result.output
    assert "VirtualMachine new was made of VirtualMachine old. Not all of its claims are bound yet" in result.output
    assert "there was none" not in result.output
    put(kube, {"phase": "Succeeded", "targetName": "new"}, "Ready", "")
    document = json.loads(run("explain", "vmclone", "copy", "-o", "json").output)
    assert document["standing"] == {
        "sentence": "VirtualMachine new was made of VirtualMachine old.",
        "next": "virtctl start new -n default",
        "final": True,
        "failed": False,
    }


def test_what_was_done_within_one_second_is_in_its_order(kube: FakeKube, run: Run) -> None:
    put(kube, {"phase": "Succeeded", "targetName": "new"}, "Ready", "")
    for number, reason in enumerate(("RestoreReady", "SnapshotReady", "TargetVMCreated", "RestoreCreated")):
        happened(kube, number, reason, "x")
        path = f"/api/v1/namespaces/default/events/e{number}"
        kube.put(path, {**kube.objects[path], "lastTimestamp": "2026-01-01T00:00:07Z"})
    lines = run("explain", "vmclone", "copy").output.splitlines()
    assert [line.split()[0] for line in lines if "virt-controller" in line] == [
        "SnapshotReady", "RestoreCreated", "RestoreReady", "TargetVMCreated",
    ]  # fmt: skip


@pytest.mark.parametrize("words", [("vmclone", "ghost"), ("virtualmachineclones/ghost",)])
def test_one_that_does_not_exist(run: Run, words: tuple[str, ...]) -> None:
    result = run("explain", *words)
    assert result.exit_code == 1
    assert "vmclone default/ghost does not exist; see `kubectl get vmclone -n default`" in result.output
