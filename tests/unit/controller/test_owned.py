"""A VMI that a VM owns, that waits for a claim or for a migration, or whose size is to change."""

from __future__ import annotations

from typing import Any

import pytest
from framework.vmis import POD_UID, handed_over, running_pod, vmi
from framework.vms import VM_UID, owned_vmi, owner

from virt_controller.vmi.decide import Surroundings, decide, scheduling
from virt_controller.vmi.owned import with_grown_claims
from virt_core.apis import names
from virt_core.apis.base import from_plain
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vmi import VirtualMachineInstance as Vmi
from virt_core.kube.conditions import get_condition
from virt_core.runtime.clock import FakeClock

NOW = FakeClock().now()
GONE = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
BOTH = [names.FINALIZER_VMI, names.FINALIZER_VM_CONTROLLER]


def test_the_first_write_names_the_revision() -> None:
    meta = {"ownerReferences": [owner()], "annotations": {names.ANNOTATION_VM_GENERATION: "4"}}
    written = scheduling(vmi(metadata=meta), POD_UID, NOW)
    assert written.status.virtual_machine_revision_name == f"revision-start-vm-{VM_UID}-4"
    again = scheduling(
        owned_vmi("Pending", metadata={"annotations": {names.ANNOTATION_VM_GENERATION: "9"}}), POD_UID, NOW
    )
    assert again.status.virtual_machine_revision_name == f"revision-start-vm-{VM_UID}-1"
    assert scheduling(vmi(), POD_UID, NOW).status.virtual_machine_revision_name == ""


@pytest.mark.parametrize(("orphan", "left"), [(False, [names.FINALIZER_VM_CONTROLLER]), (True, [])])
def test_the_vms_finalizer_is_the_vms_unless_there_is_none(orphan: bool, left: list[str]) -> None:
    gone = vmi(phase="Failed", metadata=GONE | {"finalizers": BOTH})
    decision = decide(gone, [], NOW, Surroundings(orphan=orphan))
    assert decision.vmi is not None
    assert decision.vmi.metadata.finalizers == left


def test_a_missing_claim_is_waited_for() -> None:
    decision = decide(vmi(), [], NOW, Surroundings(missing_claims=("disk",)))
    assert not decision.create_pod
    assert decision.vmi is not None
    told = get_condition(decision.vmi.status.conditions, "Synchronized")
    assert told is not None
    assert (told.reason, '"disk"' in told.message) == ("FailedPvcNotFound", True)
    assert decision.recheck_s > 0
    assert decide(vmi(), [], NOW).create_pod


def test_a_receiver_waits_for_its_migration() -> None:
    waits = {"annotations": {names.ANNOTATION_CREATE_MIGRATION_TARGET: "true"}}
    decision = decide(vmi(metadata=waits), [], NOW)
    assert decision.vmi is not None
    assert decision.vmi.status.phase == "WaitingForSync"
    comes = waits | {"labels": {names.LABEL_MIGRATION_TARGET_NODE: "node2"}}
    assert decide(vmi(phase="WaitingForSync", metadata=comes), [], NOW).create_pod


@pytest.mark.parametrize(
    ("domain", "status", "expected"),
    [
        ({"cpu": {"sockets": 2, "maxSockets": 4}}, {"currentCPUTopology": {"sockets": 1}}, {"HotVCPUChange"}),
        ({"cpu": {"sockets": 1, "maxSockets": 4}}, {"currentCPUTopology": {"sockets": 1}}, set()),
        (
            {"memory": {"guest": "256Mi", "maxGuest": "1Gi"}},
            {"memory": {"guestCurrent": "128Mi"}},
            {"HotMemoryChange"},
        ),
        ({"memory": {"guest": "128Mi", "maxGuest": "1Gi"}}, {"memory": {"guestCurrent": "128Mi"}}, set()),
    ],
)
def test_a_size_that_is_asked_for_and_not_there_yet_is_a_condition(
    domain: dict[str, Any], status: dict[str, Any], expected: set[str]
) -> None:
    running = handed_over("Running", status=status, spec={"domain": domain})
    decision = decide(running, [running_pod()], NOW)
    assert decision.vmi is not None
    types = {c.type for c in decision.vmi.status.conditions}
    assert types & {"HotVCPUChange", "HotMemoryChange"} == expected


def test_a_claim_that_grows_is_told_to_the_node() -> None:
    """What may come and go is the hot-plug controller's to tell."""
    volumes = [{"name": "root", "persistentVolumeClaim": {"claimName": "disk"}}]
    small = {"claimName": "disk", "volumeMode": "Filesystem", "capacity": {"storage": "1Gi"}}
    known = [{"name": "root", "target": "vda", "persistentVolumeClaimInfo": small}, {"name": "other"}]
    machine = from_plain({"spec": {"domain": {}, "volumes": volumes}, "status": {"volumeStatus": known}}, Vmi)
    claim = {
        "metadata": {"name": "disk"},
        "spec": {"volumeMode": "Filesystem"},
        "status": {"capacity": {"storage": "2Gi"}},
    }
    grown = with_grown_claims(machine, {"disk": from_plain(claim, PersistentVolumeClaim)})
    [root, other] = grown.status.volume_status
    assert root.persistent_volume_claim_info is not None
    assert (root.target, root.persistent_volume_claim_info.capacity) == ("vda", {"storage": "2Gi"})
    assert other == machine.status.volume_status[1]
    assert with_grown_claims(grown, {"disk": from_plain(claim, PersistentVolumeClaim)}) is grown
    assert with_grown_claims(machine, {}) is machine
