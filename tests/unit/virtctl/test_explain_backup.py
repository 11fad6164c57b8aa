"""`virtctl explain vmbackup`: where a backup stands, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result
from framework.fake_kube import FakeKube

BACKUP = "/apis/backup.kubevirt.io/v1alpha1/namespaces/default/virtualmachinebackups/b1"
SOURCE = {"apiGroup": "backup.kubevirt.io", "kind": "VirtualMachineBackupTracker", "name": "nightly"}

Run = Callable[..., Result]


def put(kube: FakeKube, *told: tuple[str, str, str, str], **status: Any) -> None:
    conditions = [dict(zip(("type", "status", "reason", "message"), each, strict=True)) for each in told]
    body = {"metadata": {"uid": "u1"}, "spec": {"source": SOURCE, "pvcName": "p"}}
    kube.put(BACKUP, {**body, "status": {"conditions": conditions, **status}})


@pytest.mark.parametrize(
    ("told", "phase", "words"),
    [
        ((), "New", "was not looked at by virt-controller yet."),
        (
            ("Progressing", "True", "Initializing", "PVC p does not exist"),
            "Initializing",
            "waits: PVC p does not exist.",
        ),
        (("Progressing", "True", "Aborting", "it was deleted"), "Aborting", "is Aborting: it was deleted."),
        (("Failed", "True", "Failed", "no space"), "Failed", "failed: no space."),
        (("Complete", "True", "Completed", "it is there"), "Complete", "is complete: it is there."),
    ],
)
def test_where_it_stands(kube: FakeKube, run: Run, told: tuple[str, str, str, str], phase: str, words: str) -> None:
    put(kube, *([told] if told else []))
    output = run("explain", "vmbackup", "b1").output
    assert output.startswith(f"VirtualMachineBackup default/b1: {phase}\n")
    assert f"backup of VirtualMachineBackupTracker nightly {words}" in output


def test_what_is_in_it(kube: FakeKube, run: Run) -> None:
    quiesced = ("Quiesced", "False", "QuiesceFailed", "no agent")
    put(
        kube,
        ("Complete", "True", "Completed", "it is there"),
        quiesced,
        type="Incremental",
        checkpointName="c1",
        includedVolumes=[{"volumeName": "data"}],
    )
    output = run("explain", "vmbackup", "b1", "--wait").output
    assert "The incremental backup of" in output
    for words in ("volume data", "checkpoint c1", "filesystems: QuiesceFailed (no agent)"):
        assert words in output
