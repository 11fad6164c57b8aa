"""Replica sets and pools with real guests: up, down, replaced, renewed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import Space
from .engine import eventually
from .sets import BOOT_S, change, items, names, pool, ready, replica_set
from .vms import Machine, conditions

pytestmark = pytest.mark.e2e

CHASSIS = "virtualMachineTemplate/spec/template/spec/domain/chassis"


def test_replica_set_scales_and_replaces(space: Space) -> None:
    space.apply(replica_set("rs", 2))
    ready(space, "vmirs", "rs", 2)
    lost = items(space, "vmi")[0]["metadata"]["name"]
    space.kubectl("delete", "vmi", lost, "--timeout=60s", timeout=80)
    ready(space, "vmirs", "rs", 2)
    assert lost not in names(space, "vmi")
    space.kubectl("scale", "vmirs", "rs", "--replicas=1")
    ready(space, "vmirs", "rs", 1)
    eventually(lambda: len(items(space, "vmi")) == 1, within_s=60)
    assert "set=rs" in json.dumps(space.engine.get("-n", space.namespace, "vmirs", "rs")["status"])
    space.kubectl("delete", "vmirs", "rs", "--timeout=60s", timeout=80)
    space.gone("vmi")


def test_pool_scales_renews_and_goes(space: Space) -> None:
    order = {"proactive": {"selectionPolicy": {"sortPolicy": "DescendingOrder"}}}
    space.apply(pool("pool", 2, scaleInStrategy=order))
    ready(space, "vmpool", "pool", 2)
    assert names(space, "vm") == {"pool-0", "pool-1"}
    space.kubectl("scale", "vmpool", "pool", "--replicas=1")
    ready(space, "vmpool", "pool", 1)
    eventually(lambda: names(space, "vm") == {"pool-0"}, within_s=60)
    before = space.vmi("pool-0")["metadata"]["uid"]
    change(space, "pool", CHASSIS, {"asset": "77"})
    eventually(
        lambda: (vmi := space.vmi("pool-0"))["metadata"]["uid"] != before and "chassis" in vmi["spec"]["domain"],
        within_s=BOOT_S,
        what="pool-0 restarted from the new template",
    )
    ready(space, "vmpool", "pool", 1)
    space.kubectl("delete", "vmpool", "pool", "--timeout=90s", timeout=110)
    space.gone("vm", within_s=90)
    space.gone("vmi", within_s=90)


def halted(name: str, replicas: int, **spec: Any) -> dict[str, Any]:
    """A pool whose VMs cost nothing."""
    manifest = pool(name, replicas, **spec)
    manifest["spec"]["virtualMachineTemplate"]["spec"]["runStrategy"] = "Halted"
    return manifest


def counts(space: Space, name: str, replicas: int) -> bool:
    status = space.engine.get("-n", space.namespace, "vmpool", name).get("status", {})
    return int(status.get("replicas", 0)) == replicas


def test_a_lazy_pool_changes_its_vms_and_leaves_restarts_to_the_user(space: Space) -> None:
    space.apply(pool("lazy", 1, updateStrategy={"opportunistic": {}}))
    ready(space, "vmpool", "lazy", 1)
    before = space.vmi("lazy-0")["metadata"]["uid"]
    change(space, "lazy", CHASSIS, {"asset": "77"})
    machine = Machine(space, "lazy-0")
    eventually(lambda: conditions(machine.status()).get("RestartRequired") == "True", within_s=30)
    assert machine.get()["spec"]["template"]["spec"]["domain"]["chassis"] == {"asset": "77"}
    assert machine.uid() == before
    machine.virtctl("restart")
    machine.restarted(before)
    assert space.vmi("lazy-0")["spec"]["domain"]["chassis"] == {"asset": "77"}


def test_a_pool_replaces_vms_that_do_not_start(space: Space) -> None:
    """The kernel is not in the image; once the template is right, the VMs come up."""
    sick = pool("sick", 1, autohealing={"startUpFailureThreshold": 1})
    firmware = sick["spec"]["virtualMachineTemplate"]["spec"]["template"]["spec"]["domain"]["firmware"]
    firmware["kernelBoot"]["container"]["kernelPath"] = "/boot/nothing"
    space.apply(sick)
    first = eventually(lambda: items(space, "vm"), within_s=30)[0]["metadata"]["uid"]
    eventually(
        lambda: [v for v in items(space, "vm") if v["metadata"]["uid"] != first], within_s=BOOT_S, what="another sick-0"
    )
    assert names(space, "vm") == {"sick-0"}
    where = "virtualMachineTemplate/spec/template/spec/domain/firmware/kernelBoot/container/kernelPath"
    change(space, "sick", where, "/boot/vmlinuz")
    ready(space, "vmpool", "sick", 1)


def test_only_selected_vms_are_taken_away(space: Space) -> None:
    choice = {"selectors": {"labelSelector": {"matchLabels": {"retire": "yes"}}}}
    space.apply(halted("choosy", 3, scaleInStrategy={"proactive": {"selectionPolicy": choice}}))
    eventually(lambda: counts(space, "choosy", 3), within_s=30)
    space.kubectl("label", "vm", "choosy-1", "retire=yes")
    space.kubectl("scale", "vmpool", "choosy", "--replicas=1")
    eventually(lambda: names(space, "vm") == {"choosy-0", "choosy-2"}, within_s=30)
    space.kubectl("label", "vm", "choosy-0", "retire=yes")
    eventually(lambda: names(space, "vm") == {"choosy-2"}, within_s=30)


@pytest.mark.parametrize("strategy", ["opportunistic", "unmanaged"])
def test_a_pool_that_takes_nobody_away_waits_for_the_user(space: Space, strategy: str) -> None:
    space.apply(halted("calm", 2, scaleInStrategy={strategy: {}}, updateStrategy={"unmanaged": {}}))
    eventually(lambda: counts(space, "calm", 2), within_s=30)
    space.kubectl("scale", "vmpool", "calm", "--replicas=1")
    change(space, "calm", CHASSIS, {"asset": "77"})
    space.kubectl("delete", "vm", "calm-0", "--timeout=30s")
    eventually(lambda: counts(space, "calm", 1), within_s=30)
    assert names(space, "vm") == {"calm-1"}
    assert "chassis" not in items(space, "vm")[0]["spec"]["template"]["spec"]["domain"]


def test_volumes_outlive_their_vm_and_a_vm_can_leave(space: Space) -> None:
    """Offline: the claim that belongs to the VM stays. A VM without its owner is left alone, and replaced."""
    space.apply(halted("keeper", 1, scaleInStrategy={"proactive": {"statePreservation": "Offline"}}))
    eventually(lambda: counts(space, "keeper", 1), within_s=30)
    first = items(space, "vm")[0]["metadata"]
    space.kubectl("patch", "vmpool", "keeper", "--type=json", "-p", json.dumps(with_claim()))
    eventually(lambda: "data" in json.dumps(items(space, "vm")[0]["spec"]), within_s=30)
    space.apply(claim_of(first))
    space.kubectl("scale", "vmpool", "keeper", "--replicas=0")
    eventually(lambda: not items(space, "vm"), within_s=60)
    claim = space.engine.get("-n", space.namespace, "pvc", "data")["metadata"]
    assert not claim.get("ownerReferences")
    assert "deletionTimestamp" not in claim
    space.kubectl("scale", "vmpool", "keeper", "--replicas=1")
    eventually(lambda: counts(space, "keeper", 1), within_s=30)
    space.kubectl("patch", "vm", "keeper-0", "--type=merge", "-p", '{"metadata":{"ownerReferences":null}}')
    eventually(lambda: names(space, "vm") == {"keeper-0", "keeper-1"}, within_s=30)
    space.kubectl("delete", "vmpool", "keeper", "--timeout=60s", timeout=80)
    eventually(lambda: names(space, "vm") == {"keeper-0"}, within_s=60)
    space.kubectl("delete", "vm", "keeper-0", "--timeout=30s")


def with_claim() -> list[dict[str, Any]]:
    where = "/spec/virtualMachineTemplate/spec/template/spec"
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    disk = {"name": "data", "disk": {"bus": "virtio"}}
    return [
        {"op": "add", "path": f"{where}/volumes", "value": [volume]},
        {"op": "add", "path": f"{where}/domain/devices/disks", "value": [disk]},
    ]


def claim_of(vm: dict[str, Any]) -> dict[str, Any]:
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": vm["name"], "uid": vm["uid"]}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "16Mi"}}}
    metadata = {"name": "data", "ownerReferences": [owner | {"controller": True}]}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
