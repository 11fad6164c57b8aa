"""A running machine's disk goes to another claim: every block of it, also of what the guest writes meanwhile."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest

from . import witness
from .conftest import KUBEVIRT, Space
from .engine import Engine, eventually
from .loopdisks import claim, skip_without_loop_devices
from .manifests import with_user_data, with_volume
from .vms import Machine, conditions, vm

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

NAMESPACE = f"e2e-{os.getpid()}-volumes"
MOVE_S = 150.0
MIB = 1 << 20
DISK = "/dev/vda"
SLOW = {"pace": NAMESPACE}


@pytest.fixture
def moves(pair: Engine) -> Iterator[Space]:
    """A namespace where machines move by themselves when their volumes do."""
    before = pair.get(*KUBEVIRT)["spec"].get("workloadUpdateStrategy")
    _update_strategy(pair, {"workloadUpdateMethods": ["LiveMigrate"]})
    pair.kubectl("create", "namespace", NAMESPACE)
    try:
        yield Space(pair, NAMESPACE)
    finally:
        _update_strategy(pair, before)
        pair.run("kubectl", "delete", "migrationpolicy", NAMESPACE, "--ignore-not-found")
        pair.kubectl("delete", "namespace", NAMESPACE, "--wait=true", "--timeout=120s", timeout=130)


def _update_strategy(engine: Engine, strategy: Any) -> None:
    patch = json.dumps({"spec": {"workloadUpdateStrategy": strategy}})
    engine.kubectl("patch", *KUBEVIRT, "--type=merge", "-p", patch)


@pytest.fixture
def other_class(moves: Space) -> str:
    """A class beside the default one, whose volumes all nodes of this machine can have."""
    for each in moves.engine.get("storageclass")["items"]:
        if each.get("volumeBindingMode") == "WaitForFirstConsumer" and each["provisioner"] == "virt-local/hostpath":
            return str(each["metadata"]["name"])
    pytest.skip("there is no second StorageClass of ours")


def machine_on(space: Space, claim_name: str) -> Machine:
    manifest = vm("mover", "Always", updateVolumesStrategy="Migration")
    template = manifest["spec"]["template"]
    template["metadata"]["labels"].update(SLOW)
    with_volume(template, "data", {"persistentVolumeClaim": {"claimName": claim_name}})
    with_user_data(template, witness.USER_DATA)
    space.apply(manifest)
    machine = Machine(space, "mover")
    machine.printable("Running")
    space.ready("mover")
    return machine


def put_on(space: Space, claim_name: str) -> None:
    """What its owner does."""
    path = "/spec/template/spec/volumes/0/persistentVolumeClaim/claimName"
    patch = json.dumps([{"op": "replace", "path": path, "value": claim_name}])
    space.kubectl("patch", "vm", "mover", "--type=json", "-p", patch)


def pace(space: Space, bandwidth: str) -> None:
    kind = {"apiVersion": "migrations.kubevirt.io/v1alpha1", "kind": "MigrationPolicy"}
    spec = {"selectors": {"virtualMachineInstanceSelector": SLOW}, "bandwidthPerMigration": bandwidth}
    space.apply({**kind, "metadata": {"name": NAMESPACE}, "spec": spec})


def claim_of(space: Space) -> str:
    """The claim that the machine has, as its VMI says."""
    known = space.vmi("mover")["status"]["volumeStatus"]
    return str(next(each["persistentVolumeClaimInfo"]["claimName"] for each in known if each["name"] == "data"))


def is_copying(space: Space) -> bool:
    move = space.vmi("mover")["status"].get("migrationState", {})
    return bool(move.get("startTimestamp")) and not move.get("endTimestamp")


def settled(space: Space, claim_name: str) -> dict[str, Any]:
    """The change is over: VM and VMI agree, and nothing waits."""

    def check() -> Any:
        vmi, told = space.vmi("mover"), Machine(space, "mover").status()
        named = vmi["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"]
        over = "migratedVolumes" not in vmi["status"] and "volumeUpdateState" not in told
        there = named == claim_of(space) == claim_name
        return vmi if over and there and told.get("observedGeneration") == told.get("desiredGeneration") else None

    try:
        found: dict[str, Any] = eventually(check, within_s=MOVE_S, what=f"its disk on {claim_name}")
    except AssertionError as error:
        told = space.engine.run("virtctl", "-n", space.namespace, "explain", "vm", "mover").stdout
        jobs = space.kubectl("get", "vmim", "-o", "yaml")
        raise AssertionError(f"{error}\n{told}\n{jobs[-3000:]}") from None
    assert "RestartRequired" not in conditions(Machine(space, "mover").status())
    return found


class Guest:
    """The machine from inside: what lies on its disk, and whether it was ever started again."""

    def __init__(self, space: Space) -> None:
        self.space = space
        with space.console("mover") as console:
            console.prompt()
            self.boot_id = console.boot_id()
            console.shell(
                f"dd if=/dev/urandom of={DISK} bs=1M seek=16 count=12 conv=notrunc 2>/dev/null; sync", within_s=90
            )
        self.random = self._random()

    def _random(self) -> str:
        with self.space.console("mover") as console:
            console.prompt()
            console.shell("echo 3 >/proc/sys/vm/drop_caches")
            said = console.shell(f"dd if={DISK} bs=1M skip=16 count=12 2>/dev/null | md5sum", within_s=90)
        found = re.search(r"\b[0-9a-f]{32}\b", said)
        assert found is not None, said
        return found.group()

    def begin_writing(self) -> None:
        with self.space.console("mover") as console:
            console.prompt()
            eventually(lambda: "there-42" in console.shell("[ -e /run/gaps ] && echo there-$((6*7))"), within_s=60)
            console.shell(f"rm -f /run/stop /run/stopped; (sh /run/blocks.sh {DISK} >/dev/null 2>&1 &)")

    def is_whole(self) -> None:
        """Ends the writing, and compares all that was ever written with what is there."""
        with self.space.console("mover") as console:
            console.prompt()
            assert console.boot_id() == self.boot_id
            assert witness.blocks(console, DISK) > 0
        assert self._random() == self.random

    def starts_again(self, machine: Machine) -> None:
        """What the next start finds on the claim: nobody remembers anything but the bytes."""
        assert self._random() == self.random
        assert machine.has_vmi()

    def size(self) -> int:
        with self.space.console("mover") as console:
            console.prompt()
            said = re.search(r"size-(\d+)", console.shell("echo size-$(cat /sys/block/vda/size)"))
        return 512 * int(said[1]) if said else 0


def test_a_disk_goes_to_another_class_while_its_guest_writes(moves: Space, other_class: str) -> None:
    """To a larger claim of another class, and after a restart the same bytes are there."""
    claim(moves, "origin", "32Mi")
    claim(moves, "larger", "48Mi", storageClassName=other_class)
    machine = machine_on(moves, "origin")
    guest, node = Guest(moves), moves.vmi("mover")["status"]["nodeName"]
    guest.begin_writing()
    put_on(moves, "larger")
    now = settled(moves, "larger")
    assert now["status"]["nodeName"] != node
    guest.is_whole()
    eventually(lambda: guest.size() == 48 * MIB, within_s=60, what="a disk as large as its new claim")
    uid = machine.uid()
    machine.virtctl("restart")
    machine.restarted(uid)
    moves.ready("mover")
    guest.starts_again(machine)


def test_a_disk_goes_to_a_block_device_and_back(moves: Space) -> None:
    skip_without_loop_devices(moves)
    claim(moves, "origin", "32Mi")
    claim(moves, "device", "32Mi", volumeMode="Block")
    claim(moves, "home", "32Mi")
    machine_on(moves, "origin")
    guest = Guest(moves)
    for there in ("device", "home"):
        guest.begin_writing()
        put_on(moves, there)
        settled(moves, there)
        guest.is_whole()


def test_a_change_that_is_given_up_or_disturbed_costs_no_block(moves: Space, other_class: str) -> None:
    """Given up in the middle, in the middle without a controller, and ended in the middle."""
    claim(moves, "origin", "32Mi")
    claim(moves, "other", "32Mi", storageClassName=other_class)
    claim(moves, "third", "32Mi")
    machine = machine_on(moves, "origin")
    guest = Guest(moves)
    pace(moves, "2Mi")
    guest.begin_writing()
    put_on(moves, "other")
    eventually(lambda: is_copying(moves), within_s=MOVE_S, what="its disk is being copied")
    assert "on their way" in moves.virtctl("explain", "vm", "mover")
    assert machine.status()["volumeUpdateState"]["volumeMigrationState"]["migratedVolumes"][0]["volumeName"] == "data"
    put_on(moves, "origin")
    kept = settled(moves, "origin")
    told = next(each for each in kept["status"]["conditions"] if each["type"] == "VolumesChange")
    assert (told["status"], told["reason"]) == ("False", "VolumesChangeCancellation")
    guest.is_whole()

    guest.begin_writing()
    put_on(moves, "other")
    eventually(lambda: is_copying(moves), within_s=MOVE_S, what="its disk is being copied")
    moves.engine.kill_component("virt-controller")
    settled(moves, "other")
    guest.is_whole()

    put_on(moves, "third")
    eventually(lambda: is_copying(moves), within_s=MOVE_S, what="its disk is being copied")
    moves.kubectl("delete", "vmi", "mover", "--timeout=60s", timeout=90)
    eventually(lambda: conditions(machine.status()).get("ManualRecoveryRequired") == "True", within_s=60)
    assert not machine.has_vmi()
    refused = moves.engine.run("virtctl", "-n", NAMESPACE, "start", "mover")
    assert refused.returncode != 0, refused.stdout
    put_on(moves, "other")
    machine.printable("Running")
    moves.ready("mover")
    guest.starts_again(machine)
    assert "ManualRecoveryRequired" not in conditions(machine.status())


def test_what_cannot_move_waits_for_a_restart(moves: Space) -> None:
    """A claim that is too small is refused by the other side, with its size; one that another VM has, at once."""
    claim(moves, "origin", "32Mi")
    claim(moves, "small", "16Mi")
    claim(moves, "taken", "32Mi")
    other = vm("other", "Halted")
    with_volume(other["spec"]["template"], "data", {"persistentVolumeClaim": {"claimName": "taken"}})
    moves.apply(other)
    machine = machine_on(moves, "origin")
    guest = Guest(moves)
    put_on(moves, "taken")

    def restart() -> str:
        found = machine.status().get("conditions", [])
        return next((each["message"] for each in found if each["type"] == "RestartRequired"), "")

    eventually(lambda: "which VM other uses" in restart(), within_s=30, what="a reason")
    put_on(moves, "small")

    def failed() -> bool:
        jobs = moves.engine.get("-n", NAMESPACE, "vmim")["items"]
        reasons = (each.get("status", {}).get("migrationState", {}).get("failureReason", "") for each in jobs)
        return any("has 16777216 bytes" in each for each in reasons)

    eventually(failed, within_s=MOVE_S, what="a migration that says why")
    put_on(moves, "origin")
    settled(moves, "origin")
    assert guest._random() == guest.random
