"""Whose changed blocks are tracked, and from when on."""

from __future__ import annotations

from typing import Any

import pytest

from virt_controller.launcher_pod.keptstate import kept_state
from virt_controller.launcher_pod.sections import TemplateConfig
from virt_controller.vm.tracking import Wish, at_start, state, wish
from virt_controller.vmi.keptstate import make_claim
from virt_core.apis.base import from_plain
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.configmerge import effective
from virt_core.kube.configvalues import ClusterConfig

ON, OFF, GATED = Wish(True, True), Wish(False, True), Wish(True, False)
GATE = {"featureGates": ["IncrementalBackup"]}


def vm(known: str = "", **labels: str) -> VirtualMachine:
    status = {"changedBlockTracking": {"state": known}} if known else {}
    body = {"metadata": {"name": "vm", "namespace": "ns", "labels": labels}, "spec": {}, "status": status}
    return from_plain(body, VirtualMachine)


def vmi(known: str = "") -> VirtualMachineInstance:
    status = {"changedBlockTracking": {"state": known}} if known else {}
    return from_plain({"metadata": {"name": "vm", "uid": "u"}, "spec": {}, "status": status}, VirtualMachineInstance)


def config(**selectors: Any) -> ClusterConfig:
    return effective({"developerConfiguration": GATE, "changedBlockTrackingLabelSelectors": selectors})


def test_labels_of_vm_or_namespace_choose() -> None:
    by_vm = config(virtualMachineLabelSelector={"matchLabels": {"a": "b"}})
    assert wish(vm(a="b"), {}, by_vm) == ON
    assert wish(vm(), {"a": "b"}, by_vm) == OFF
    by_namespace = config(namespaceLabelSelector={"matchLabels": {"a": "b"}})
    assert wish(vm(), {"a": "b"}, by_namespace) == ON
    assert wish(vm(a="b"), {}, by_namespace) == OFF
    assert wish(vm(), {}, config()) == OFF
    assert wish(vm(), {}, config(virtualMachineLabelSelector={})) == ON
    assert not wish(vm(), {}, ClusterConfig()).gate


@pytest.mark.parametrize(
    ("wished", "known", "theirs", "wanted"),
    [
        (ON, "", None, "Initializing"),
        (ON, "Enabled", None, "Enabled"),
        (ON, "", "", "PendingRestart"),
        (ON, "Disabled", "Disabled", "PendingRestart"),
        (ON, "PendingRestart", "Initializing", "Initializing"),
        (ON, "Initializing", "Enabled", "Enabled"),
        (OFF, "", None, ""),
        (OFF, "Enabled", None, "Disabled"),
        (OFF, "Enabled", "Enabled", "PendingRestart"),
        (OFF, "Disabled", "Disabled", "Disabled"),
        (GATED, "", None, "IncrementalBackupFeatureGateDisabled"),
        (GATED, "Enabled", "Enabled", "PendingRestart"),
        (Wish(), "Enabled", None, ""),
    ],
)
def test_the_state_of_a_vm(wished: Wish, known: str, theirs: str | None, wanted: str) -> None:
    found = state(vm(known), vmi(theirs) if theirs is not None else None, wished)
    assert (found.state if found is not None else "") == wanted


def test_how_a_machine_begins() -> None:
    assert at_start(vm(), ON).state == "Initializing"  # type: ignore[union-attr]
    assert at_start(vm("Enabled"), OFF).state == "Disabled"  # type: ignore[union-attr]
    assert at_start(vm(), OFF) is None


def test_a_tracked_machine_has_room_in_a_claim_of_its_own() -> None:
    template = TemplateConfig(launcher_image="i", state_claim="kept")
    mounts = {mount.sub_path for mount in kept_state(vmi("Initializing"), template).mounts}
    assert mounts == {"meta", "cbt"}
    assert kept_state(vmi("Disabled"), template).mounts == ()
    sized = make_claim(vmi("Enabled"), "c", "ReadWriteOnce").spec.resources
    assert sized is not None
    assert sized.requests == {"storage": "522Mi"}
