"""Accidents in the middle of a move: each ends in the right phase with a true reason, and the guest is alive somewhere.

The moves are slow by a policy, so that there is time to do them harm. The most telling accidents share one guest in the
ordinary run; all of them are marked `faults` (`make test-faults`).
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from .conftest import Space
from .engine import Engine, eventually, process_table
from .manifests import vmi, with_volume

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

NAMESPACE = f"e2e-{os.getpid()}-accidents"
MOVE_S = 120.0
SLOW = {"accidents": NAMESPACE}
_BOOT_ID = r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"


@pytest.fixture
def moves(pair: Engine) -> Iterator[Space]:
    pair.kubectl("create", "namespace", NAMESPACE)
    try:
        yield Space(pair, NAMESPACE)
    finally:
        pair.run("kubectl", "delete", "migrationpolicy", NAMESPACE, "--ignore-not-found")
        pair.kubectl("delete", "namespace", NAMESPACE, "--wait=true", "--timeout=120s", timeout=130)


def policy(space: Space, **spec: Any) -> None:
    space.apply(
        {
            "apiVersion": "migrations.kubevirt.io/v1alpha1",
            "kind": "MigrationPolicy",
            "metadata": {"name": NAMESPACE},
            "spec": {"selectors": {"virtualMachineInstanceSelector": SLOW}, **spec},
        }
    )


def job(name: str, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {"vmiName": "mover", **spec},
    }


class Guest:
    """A machine that can be told apart from one that was started again."""

    def __init__(self, space: Space, change: Callable[[dict[str, Any]], None] = lambda _: None) -> None:
        self.space = space
        manifest = with_volume(vmi("mover"), "scratch", {"emptyDisk": {"capacity": "16Mi"}})
        change(manifest)
        manifest["metadata"]["labels"] = SLOW
        self.uid = space.boot(manifest)["metadata"]["uid"]
        self.boot_id = self._boot_id()
        #: Launchers that were there before the last move was asked for.
        self._old: list[int] = []

    def _boot_id(self) -> str:
        with self.space.console("mover") as console:
            console.prompt()
            said = re.search(_BOOT_ID, console.shell("cat /proc/sys/kernel/random/boot_id"))
        assert said is not None, "the guest does not say which boot this is"
        return said.group()

    def move(self) -> dict[str, Any]:
        found: dict[str, Any] = self.space.vmi("mover")["status"].get("migrationState", {})
        return found

    def ask(self, name: str) -> str:
        """A move that is asked for; the node that it leaves."""
        eventually(lambda: len(self._launchers()) == 1, within_s=60, what="one launcher")
        self._old = self._launchers()
        self.space.apply(job(name))
        return str(self.space.vmi("mover")["status"]["nodeName"])

    def begin(self, name: str) -> str:
        """A move that is under way; the node that it leaves."""
        before = self.ask(name)
        uid = self.space.engine.get("-n", NAMESPACE, "vmim", name)["metadata"]["uid"]
        eventually(
            lambda: (now := self.move()).get("migrationUid") == uid and now.get("startTimestamp"),
            within_s=60,
            what=f"the start of {name}",
        )
        return before

    def launchers(self, role: str) -> list[int]:
        """Those of this machine: `target` waits for it, or it has moved in since it was last asked."""
        found = self._launchers()
        return [pid for pid in found if (pid in self._old) == (role == "source")]

    def _launchers(self) -> list[int]:
        ours = (
            (pid, args) for pid, args in process_table() if any(each.endswith("virt-launcher") for each in args[:3])
        )
        return [pid for pid, args in ours if any(self.uid in a for a in args)]

    def machines(self) -> int:
        name = f"guest={NAMESPACE}_mover,"
        return sum("qemu-system" in args[0] and any(a.startswith(name) for a in args) for _, args in process_table())

    def is_well(self, node: str) -> None:
        """The same guest, on this node, and nowhere else."""
        eventually(lambda: self.machines() == 1, within_s=60, what="one QEMU")
        now = self.space.vmi("mover")["status"]
        assert (now["phase"], now["nodeName"]) == ("Running", node)
        eventually(self._is_the_same, within_s=60, what="the same guest on its console")

    def _is_the_same(self) -> bool:
        now = self._boot_id()
        assert now == self.boot_id, f"the guest has booted again: {self.boot_id} is now {now}"
        return True


def ended(space: Space, name: str) -> Any:
    def check() -> Any:
        found = space.engine.get("-n", NAMESPACE, "vmim", name)
        return found if found.get("status", {}).get("phase") in ("Succeeded", "Failed") else None

    return eventually(check, within_s=MOVE_S, what=f"the end of {name}")


def failure(space: Space, name: str) -> str:
    over = ended(space, name)["status"]
    assert over["phase"] == "Failed"
    reason: str = over["migrationState"]["failureReason"]
    assert reason
    return reason


@pytest.mark.patient
def test_accidents_in_the_middle(moves: Space) -> None:
    guest = Guest(moves)
    policy(moves, bandwidthPerMigration="2Mi")

    node = guest.begin("two")
    assert "two" in moves.refuse(job("second")), "one at a time"
    moves.kubectl("delete", "vmim", "two", "--timeout=60s", timeout=70)
    eventually(lambda: guest.move().get("abortStatus") == "Succeeded" and guest.move().get("failed"), within_s=30)
    guest.is_well(node)

    guest.begin("orphan")
    for pid in guest.launchers("target"):
        os.kill(pid, signal.SIGKILL)
    assert failure(moves, "orphan")
    guest.is_well(node)

    guest.begin("cut")
    os.kill(moves.engine.handler_pid(node), signal.SIGKILL)
    assert failure(moves, "cut")
    guest.is_well(node)

    policy(moves, completionTimeoutPerGiB=1, bandwidthPerMigration="2Mi")
    guest.begin("late")
    assert "did not end within" in failure(moves, "late")
    guest.is_well(node)

    policy(moves)
    moves.apply(job("well"))
    assert ended(moves, "well")["status"]["phase"] == "Succeeded"
    guest.is_well(moves.vmi("mover")["status"]["migrationState"]["targetNode"])


# -- all of them -------------------------------------------------------------------------------------------------------


def _of(parent: int, *programs: str) -> list[int]:
    """The descendants of a process that are one of these programs."""
    parents = {}
    for pid, _ in process_table():
        try:
            with open(f"/proc/{pid}/stat") as file:
                parents[pid] = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            continue

    def is_below(pid: int) -> bool:
        while pid in parents:
            pid = parents[pid]
            if pid == parent:
                return True
        return False

    return [pid for pid, args in process_table() if args[0].rpartition("/")[2] in programs and is_below(pid)]


def _kill_libvirt(guest: Guest, role: str) -> None:
    for launcher in guest.launchers(role):
        for pid in _of(launcher, "virtqemud", "libvirtd"):
            os.kill(pid, signal.SIGKILL)


def _kill_handler_of_target(guest: Guest) -> None:
    os.kill(guest.space.engine.handler_pid(guest.move()["targetNode"]), signal.SIGKILL)


def _delete_target_pod(guest: Guest) -> None:
    guest.space.kubectl("delete", "pod", guest.move()["targetPod"], "--wait=false")


@pytest.mark.faults
@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(_kill_handler_of_target, id="target's handler"),
        pytest.param(lambda guest: _kill_libvirt(guest, "source"), id="source's libvirt"),
        pytest.param(lambda guest: _kill_libvirt(guest, "target"), id="target's libvirt"),
        pytest.param(_delete_target_pod, id="target's Pod is deleted"),
    ],
)
def test_the_guest_stays(moves: Space, harm: Callable[[Guest], None]) -> None:
    guest = Guest(moves)
    policy(moves, bandwidthPerMigration="2Mi")
    node = guest.begin("harmed")
    harm(guest)
    assert failure(moves, "harmed")
    guest.is_well(node)
    policy(moves)
    moves.apply(job("well"))
    assert ended(moves, "well")["status"]["phase"] == "Succeeded", "nothing is left of the accident"


@pytest.mark.faults
@pytest.mark.parametrize("component", ["virt-controller", "virt-api", "apiserver"])
def test_the_move_goes_on_without(moves: Space, component: str) -> None:
    guest = Guest(moves)
    policy(moves, bandwidthPerMigration="8Mi")
    guest.begin("steady")
    moves.engine.kill_component(component)
    assert ended(moves, "steady")["status"]["phase"] == "Succeeded"
    guest.is_well(guest.move()["targetNode"])


@pytest.mark.faults
def test_a_vmi_that_is_deleted_in_the_middle_is_gone(moves: Space) -> None:
    guest = Guest(moves)
    policy(moves, bandwidthPerMigration="2Mi")
    guest.begin("deleted")
    moves.kubectl("delete", "vmi", "mover", "--timeout=90s", timeout=100)
    assert "VMI" in failure(moves, "deleted")
    eventually(lambda: guest.machines() == 0, within_s=60, what="no QEMU")


@pytest.mark.faults
def test_no_node_fits(moves: Space) -> None:
    guest = Guest(moves)
    node = moves.vmi("mover")["status"]["nodeName"]
    patience = {"kubevirt.io/migrationUnschedulablePodTimeoutSeconds": "3"}
    moves.apply(job("nowhere", patience, addedNodeSelector={"nowhere": "yes"}))
    assert "no node takes it" in failure(moves, "nowhere")
    guest.is_well(node)


@pytest.mark.faults
def test_a_target_that_is_cordoned_in_the_middle(moves: Space) -> None:
    """Who has begun goes on: the node takes no new Pods, and this one it has."""
    guest = Guest(moves)
    policy(moves, bandwidthPerMigration="8Mi")
    guest.begin("cordoned")
    target = guest.move()["targetNode"]
    moves.engine.kubectl("cordon", target)
    try:
        assert ended(moves, "cordoned")["status"]["phase"] == "Succeeded"
        guest.is_well(target)
    finally:
        moves.engine.kubectl("uncordon", target)
