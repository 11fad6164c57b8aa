"""The VM controller and a VM whose disk is to be on another claim, against an API server's answers."""

from __future__ import annotations

from typing import Any

from framework.vms import VM_UID, plain_vm
from framework.waiting import eventually
from unit.controller.test_vm_controller import VM, VMI, Rig, rig

__all__ = ["rig"]

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"


def machine(claim: str) -> dict[str, Any]:
    obj = plain_vm(spec={"updateVolumesStrategy": "Migration"})
    spec = obj["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    spec["domain"]["devices"] = {"disks": [{"name": "data", "disk": {"bus": "virtio"}}]}
    return obj


def claim(rig: Rig, name: str) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    rig.kube.put(
        f"{CLAIMS}/{name}",
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": spec,
            "status": {"phase": "Bound"},
        },
    )


def put_on(rig: Rig, name: str, generation: int) -> None:
    rig.change(VM, spec={"template": machine(name)["spec"]["template"]}, metadata={"generation": generation})


def named(rig: Rig) -> str:
    return str(rig.kube.objects[VMI]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"])


def condition(rig: Rig, kind: str) -> dict[str, Any] | None:
    return next((each for each in rig.status().get("conditions", []) if each["type"] == kind), None)


def running(rig: Rig) -> None:
    claim(rig, "a")
    rig.kube.put(VM, machine("a"))
    eventually(lambda: rig.has(VMI))
    info = {"claimName": "a", "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem"}
    rig.phase(
        "Running",
        virtualMachineRevisionName=f"revision-start-vm-{VM_UID}-1",
        volumeStatus=[{"name": "data", "persistentVolumeClaimInfo": info}],
    )
    rig.printable("Running")


def test_a_change_waits_for_its_claim_begins_and_ends(rig: Rig) -> None:
    running(rig)
    put_on(rig, "b", 2)
    eventually(lambda: (condition(rig, "VolumesChange") or {}).get("reason") == "DestinationNotReady")
    assert named(rig) == "a"
    claim(rig, "b")
    eventually(lambda: "volumeUpdateState" in rig.status())
    assert named(rig) == "b"
    [moved] = rig.kube.objects[VMI]["status"]["migratedVolumes"]
    assert (moved["sourcePVCInfo"]["claimName"], moved["destinationPVCInfo"]["claimName"]) == ("a", "b")
    assert condition(rig, "RestartRequired") is None
    # The node where it arrives takes it away.
    done = dict(rig.kube.objects[VMI]["status"])
    done["conditions"] = [each for each in done["conditions"] if each["type"] != "VolumesChange"]
    del done["migratedVolumes"]
    rig.kube.put(VMI, {**rig.kube.objects[VMI], "status": done})
    eventually(lambda: "volumeUpdateState" not in rig.status() and rig.status()["observedGeneration"] == 2)
    assert condition(rig, "RestartRequired") is None


def test_a_machine_that_is_lost_in_the_middle_is_not_started_from_half_a_copy(rig: Rig) -> None:
    running(rig)
    claim(rig, "b")
    put_on(rig, "b", 2)
    eventually(lambda: "volumeUpdateState" in rig.status())
    first = rig.kube.objects[VMI]["metadata"]["uid"]
    rig.change(VMI, status={"phase": "Failed"})
    eventually(lambda: not rig.has(VMI))
    eventually(lambda: (condition(rig, "ManualRecoveryRequired") or {}).get("status") == "True")
    assert not rig.has(VMI)
    put_on(rig, "a", 3)
    eventually(lambda: rig.has(VMI) and rig.kube.objects[VMI]["metadata"]["uid"] != first)
    assert named(rig) == "a"
    eventually(lambda: condition(rig, "ManualRecoveryRequired") is None)
