"""Which VMs may be hibernated, and what is told to who asks for others."""

from __future__ import annotations

from typing import Any

import pytest

from virt_api.problems import Problem
from virt_api.subresources.hibernate import check
from virt_api.subresources.strategies import starts_anyway
from virt_core.apis.base import from_plain
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance

DISK = {"name": "root", "persistentVolumeClaim": {"claimName": "disk"}}


def vm(strategy: str = "Always", **status: Any) -> VirtualMachine:
    return from_plain({"metadata": {"name": "vm"}, "spec": {"runStrategy": strategy}, "status": status}, VirtualMachine)


def vmi(phase: str = "Running", *volumes: dict[str, Any], **more: Any) -> VirtualMachineInstance:
    body = {
        "metadata": {"name": "vm", "annotations": more.pop("annotations", {})},
        "spec": {"domain": {"devices": {}}, "volumes": list(volumes) or [DISK]},
        "status": {"phase": phase, **more},
    }
    return from_plain(body, VirtualMachineInstance)


@pytest.mark.parametrize("strategy", ["Always", "Manual", "RerunOnFailure"])
def test_a_machine_on_claims_may(strategy: str) -> None:
    check(vm(strategy), vmi(), "")
    check(vm(strategy, hibernation={"phase": "Resumed"}), vmi(), "mine")


RESTART = [{"type": "RestartRequired", "status": "True"}]
RESUMED = {"virtpod.io/resume-from": '{"claim":"mine","file":"a.machine.state"}'}


@pytest.mark.parametrize(
    ("machine", "seen", "words"),
    [
        (vm("Once"), vmi(), "runStrategy Once"),
        (vm(), vmi("Scheduling"), "is not running"),
        (vm(hibernation={"phase": "Saving"}), vmi(), "already"),
        (vm(snapshotInProgress="snap"), vmi(), "snapshot snap"),
        (vm(stateChangeRequests=[{"action": "Stop"}]), vmi(), "being stopped"),
        (vm(), vmi(migrationState={"startTimestamp": "2026-01-01T00:00:00Z"}), "migrated"),
        (vm(conditions=RESTART), vmi(), "wait for a restart"),
        (vm(), vmi("Running", {"name": "s", "emptyDisk": {"capacity": "1Gi"}}), "spec.volumes[s]"),
        (vm(), vmi(annotations=RESUMED), "name another"),
        (vm(), vmi(changedBlockTracking={"state": "Enabled"}), "status.changedBlockTracking"),
        (vm(), vmi(migratedVolumes=[{"volumeName": "root"}]), "status.migratedVolumes"),
    ],
)
def test_others_are_told_why_not(machine: VirtualMachine, seen: VirtualMachineInstance, words: str) -> None:
    with pytest.raises(Problem, match=words.replace("[", r"\[")) as refused:
        check(machine, seen, "mine")
    assert refused.value.code == 409


def test_who_starts_anyway() -> None:
    assert starts_anyway(vm("Always"))
    assert starts_anyway(vm("Manual", stateChangeRequests=[{"action": "Start"}]))
    assert not starts_anyway(vm("Manual"))
