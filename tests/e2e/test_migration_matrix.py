"""Every accident of a move at every moment of it, and those that need a node, a network or a whole VM to go wrong.

Whatever happens: the job ends with a true reason or the move goes on, and the guest is alive on exactly one side.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.loading import GUEST_NAME, digests
from virt_core.apis import names
from virt_core.apis.quantity import parse_int

from .conftest import KUBEVIRT, Space, replace
from .engine import GUEST_LAYOUT, Engine, VirtLocal, eventually, process_table
from .kubernetes import Kubernetes
from .nodecut import cut
from .subresource import Subresources
from .test_migration_faults import (
    MOVE_S,
    NAMESPACE,
    SLOW,
    Guest,
    _kill_libvirt,
    _of,
    ended,
    failure,
    job,
    moves,
    policy,
)
from .vms import Machine, vm

__all__ = ["moves"]

pytestmark = [pytest.mark.e2e, pytest.mark.alone, pytest.mark.faults, pytest.mark.timeout(600)]

#: In their order; at the least this far is the job when the harm is done.
PHASES = ("Scheduling", "PreparingTarget", "TargetReady", "Running")
_LATER = {phase: (*PHASES[PHASES.index(phase) :], "Succeeded", "Failed") for phase in PHASES}


def _kill_handler_of_source(guest: Guest) -> None:
    os.kill(guest.space.engine.handler_pid(guest.space.vmi("mover")["status"]["nodeName"]), signal.SIGKILL)


def _kill_other_handler(guest: Guest) -> None:
    """That of the node to which it goes, also before the VMI says so: there are two."""
    home = guest.space.vmi("mover")["status"]["nodeName"]
    for node in guest.space.engine.get("nodes")["items"]:
        if node["metadata"]["name"] != home:
            os.kill(guest.space.engine.handler_pid(node["metadata"]["name"]), signal.SIGKILL)


def _kill_controller(guest: Guest) -> None:
    guest.space.engine.kill_component("virt-controller")


def _kill_target_launcher(guest: Guest) -> None:
    for pid in guest.launchers("target"):
        os.kill(pid, signal.SIGKILL)


HARMS: dict[str, Callable[[Guest], None]] = {
    "source's handler": _kill_handler_of_source,
    "target's handler": _kill_other_handler,
    "virt-controller": _kill_controller,
    "target's launcher": _kill_target_launcher,
    "source's libvirt": lambda guest: _kill_libvirt(guest, "source"),
    "target's libvirt": lambda guest: _kill_libvirt(guest, "target"),
}


def judged(guest: Guest, name: str, home: str) -> str:
    """How it ended: on the side that the job says, with a reason if that is the old one."""
    over = ended(guest.space, name)["status"]
    if over["phase"] == "Failed":
        assert over["migrationState"]["failureReason"], over
        guest.is_well(home)
    else:
        guest.is_well(over["migrationState"]["targetNode"])
    return str(over["phase"])


@pytest.mark.parametrize("phase", PHASES)
def test_any_of_them_dies(moves: Space, phase: str) -> None:
    """One guest for all of them, one after the other; and after each it can still be moved."""
    guest = Guest(moves)
    for number, (who, harm) in enumerate(HARMS.items()):
        policy(moves, bandwidthPerMigration="4Mi")
        name = f"harm{number}"
        home = guest.ask(name)
        eventually(lambda n=name: _phase(moves, n) in _LATER[phase], within_s=MOVE_S, what=f"{name} is {phase}")
        harm(guest)
        try:
            judged(guest, name, home)
        except BaseException as error:
            error.add_note(f"after {who} was killed in {phase}")
            raise
        if isinstance(moves.engine, VirtLocal):
            eventually(lambda: len(moves.engine.component_pids("virt-handler")) == 2, within_s=60, what="two handlers")
    policy(moves)
    moves.apply(job("well"))
    assert ended(moves, "well")["status"]["phase"] == "Succeeded", "nothing is left of the accidents"


def _phase(space: Space, name: str) -> str:
    return str(space.engine.get("-n", NAMESPACE, "vmim", name).get("status", {}).get("phase", ""))


def progress(space: Space) -> dict[str, Any]:
    answer = Subresources(space).get("virtualmachineinstances/mover/migrationprogress")
    return dict(answer.document) if answer.status == 200 else {}


def percent(space: Space) -> float:
    told = progress(space)
    done, left = told.get("processedBytes", 0), told.get("remainingBytes", 0)
    return 100.0 * done / (done + left) if done else 0.0


def test_given_up_at_any_percentage(moves: Space) -> None:
    guest = Guest(moves)
    with moves.console("mover") as console:
        console.prompt()
        # Empty memory is moved in no time, and would be most of it.
        console.shell("dd if=/dev/urandom of=/run/filling bs=1M count=12 2>/dev/null", within_s=120)
    policy(moves, bandwidthPerMigration="1Mi")
    for wanted in (10, 50, 90):
        home = guest.begin(f"until{wanted}")
        eventually(lambda least=wanted: percent(moves) >= least, within_s=MOVE_S, what=f"{wanted} % are moved")
        moves.kubectl("delete", "vmim", f"until{wanted}", "--timeout=60s", timeout=70)
        eventually(lambda: guest.move().get("completed"), within_s=30, what=f"the end at {wanted} %")
        over = guest.move()
        assert over.get("failed"), f"at {wanted} % there was time to give up: {over}"
        assert over["abortStatus"] == "Succeeded"
        assert "given up" in over["failureReason"]
        guest.is_well(home)


def test_given_up_too_late(moves: Space) -> None:
    """It arrives, or it stays: what the VMI says is where the guest is."""
    guest = Guest(moves)
    home = guest.ask("late")
    eventually(lambda: guest.move().get("startTimestamp"), within_s=60, what="the start of the move")
    moves.kubectl("delete", "vmim", "late", "--timeout=60s", timeout=70)
    eventually(lambda: guest.move().get("completed"), within_s=30, what="the end of the move")
    over = guest.move()
    assert over.get("abortStatus") in (("Succeeded",) if over.get("failed") else ("Failed", None)), over
    guest.is_well(home if over.get("failed") else over["targetNode"])


@pytest.fixture
def impatient(pair: Engine) -> Iterator[None]:
    """A move that makes no progress for five seconds is given up."""
    before = pair.get(*KUBEVIRT)["spec"].get("configuration", {})
    replace(pair, {**before, "migrations": {**before.get("migrations", {}), "progressTimeout": 5}})
    yield
    replace(pair, before)


@pytest.mark.usefixtures("impatient")
def test_a_way_on_which_nothing_comes_any_more(moves: Space) -> None:
    guest = Guest(moves)
    policy(moves, bandwidthPerMigration="2Mi")
    home = guest.begin("stuck")
    with cut(moves.engine, home):
        reason = failure(moves, "stuck")
        guest.is_well(home)
    assert "progress" in reason or "lost" in reason or "hung up" in reason, reason
    policy(moves)
    moves.apply(job("well"))
    assert ended(moves, "well")["status"]["phase"] == "Succeeded"


def test_the_target_node_dies(moves: Space) -> None:
    """All that serves it, at once: its agent, its virt-handler, its launcher with what runs in it."""
    guest = Guest(moves)
    policy(moves, bandwidthPerMigration="2Mi")
    home = guest.begin("lost")
    victims = [moves.engine.handler_pid(guest.move()["targetNode"]), *guest.launchers("target")]
    for pid in [*moves.engine.component_pids("node"), *victims]:
        os.kill(pid, signal.SIGKILL)
    assert failure(moves, "lost")
    guest.is_well(home)


def movable(manifest: dict[str, Any]) -> None:
    manifest["spec"]["evictionStrategy"] = "LiveMigrate"


def test_a_drained_target(moves: Space) -> None:
    """It stays where it was, or arrives and has to leave again; and the drain ends."""
    guest = Guest(moves, movable)
    policy(moves, bandwidthPerMigration="8Mi")
    home = guest.begin("drained")
    target = guest.move()["targetNode"]
    drain = ("drain", target, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=150s")
    try:
        moves.engine.kubectl(*drain, timeout=170)
        over = ended(moves, "drained")["status"]
        assert over["phase"] == "Succeeded" or over["migrationState"]["failureReason"], over
        eventually(lambda: moves.vmi("mover")["status"]["nodeName"] == home, within_s=MOVE_S, what="the other node")
        guest.is_well(home)
    finally:
        moves.engine.kubectl("uncordon", target)


def test_a_vm_that_is_stopped_in_the_middle(moves: Space) -> None:
    manifest = vm("mover", "Always")
    manifest["spec"]["template"]["metadata"]["labels"] |= SLOW
    moves.apply(manifest)
    moves.ready("mover")
    policy(moves, bandwidthPerMigration="2Mi")
    moves.apply(job("stopped"))
    started = lambda: moves.vmi("mover")["status"].get("migrationState", {}).get("startTimestamp")  # noqa: E731
    eventually(started, within_s=60, what="the start of the move")
    moves.virtctl("stop", "mover")
    assert "VMI" in failure(moves, "stopped")
    Machine(moves, "mover").printable("Stopped")
    qemus = [pid for pid, args in process_table() if any(a.startswith(f"guest={NAMESPACE}_mover,") for a in args)]
    assert not qemus


FEATURE = "e2e-made-up"


def test_a_processor_that_lacks_what_the_guest_has(moves: Space) -> None:
    """The node that it runs on has a feature that no other has, and the guest has seen it."""
    guest = Guest(moves)
    home = moves.vmi("mover")["status"]["nodeName"]
    labels = [f"{names.LABEL_PREFIX_HOST_MODEL_FEATURES}{FEATURE}", f"{names.LABEL_PREFIX_CPU_FEATURE}{FEATURE}"]
    patience = {"kubevirt.io/migrationUnschedulablePodTimeoutSeconds": "3"}
    try:
        moves.engine.kubectl("label", "node", home, *(f"{label}=true" for label in labels))
        moves.apply(job("unfit", patience))
        reason = failure(moves, "unfit")
        assert "no node takes it" in reason, reason
        guest.is_well(home)
    finally:
        moves.engine.run("kubectl", "label", "node", home, *(f"{label}-" for label in labels))


def test_an_image_that_the_target_has_not(moves: Space) -> None:
    """Its container disk was pinned to what the source has; the other node neither has it nor can fetch it."""
    if not isinstance(moves.engine, Kubernetes):
        pytest.skip("on virt-local all nodes have the same images")
    guest, cluster = Guest(moves), moves.engine.cluster
    home = moves.vmi("mover")["status"]["nodeName"]
    other = next(node for node in cluster.nodes if node != home)
    ctr = (str(cluster.programs / "ctr"), "-n", "k8s.io", "images")
    known = digests(cluster.run_on(other, *ctr, "ls"))
    try:
        cluster.run_on(other, *ctr, "rm", *(name for name in known if known[name] == known[GUEST_NAME]))
        moves.apply(job("unfetched", {"kubevirt.io/migrationPendingPodTimeoutSeconds": "10"}))
        reason = failure(moves, "unfetched")
        assert "image" in reason.lower(), reason
        guest.is_well(home)
    finally:
        moves.engine.take_image(GUEST_LAYOUT, GUEST_NAME)
    moves.apply(job("well"))
    assert ended(moves, "well")["status"]["phase"] == "Succeeded"


# -- post-copy ---------------------------------------------------------------------------------------------------------

POST_COPY = {"allowPostCopy": True, "completionTimeoutPerGiB": 1, "bandwidthPerMigration": "4Mi"}


def offers_user_faults(space: Space) -> bool:
    nodes = space.engine.get("nodes")["items"]
    return all(parse_int(node["status"]["allocatable"].get(names.RESOURCE_USERFAULTFD, 0)) for node in nodes)


def quiet(manifest: dict[str, Any]) -> None:
    """QEMU draws, and serves network cards, in the thread that also hears libvirt: there it can come to wait for memory
    that is not there, and then nobody can tell it where to get the rest (docs/guide/move-a-vm.md)."""
    manifest["spec"]["domain"]["devices"] |= {
        "autoattachGraphicsDevice": False,
        "autoattachMemBalloon": False,
        "autoattachPodInterface": False,
        "interfaces": [],
    }
    manifest["spec"].pop("networks", None)


def test_post_copy_where_no_node_can(moves: Space) -> None:
    if offers_user_faults(moves):
        pytest.skip("these nodes can")
    guest = Guest(moves)
    policy(moves, **POST_COPY)
    moves.apply(job("without"))
    over = ended(moves, "without")["status"]
    assert over["phase"] == "Succeeded", over["migrationState"].get("failureReason")
    assert over["migrationState"]["migrationConfiguration"]["allowPostCopy"] is False
    assert over["migrationState"]["mode"] != "PostCopy"
    guest.is_well(over["migrationState"]["targetNode"])
    events = moves.engine.get("-n", NAMESPACE, "events")["items"]
    [told] = [each["message"] for each in events if each["reason"] == "PostCopyNotPossible"]
    assert "does not offer devices.kubevirt.io/userfaultfd" in told


def test_post_copy_with_the_network_cut_in_the_middle(moves: Space) -> None:
    """The guest waits, says so, and goes on when the network is back."""
    if not offers_user_faults(moves):
        pytest.skip("no node here can: its QEMU or its kernel is older")
    guest = Guest(moves, quiet)
    policy(moves, **POST_COPY)
    home = guest.begin("split")
    eventually(lambda: progress(moves).get("mode") == "PostCopy", within_s=MOVE_S, what="post-copy")
    # A way that is lost at the very switch costs the guest: QEMU has nothing for that moment.
    eventually(lambda: runs_at_the_target(guest), within_s=MOVE_S, what="a guest that runs there")
    with cut(moves.engine, home):
        eventually(lambda: "lost in post-copy" in progress(moves).get("reason", ""), within_s=MOVE_S, what="a lost way")
        eventually(lambda: _condition(moves, "Paused") == "True", within_s=60, what="a guest that waits")
        assert "post-copy" in moves.virtctl("explain", "vmi", "mover")
        assert _phase(moves, "split") == "Running", guest.move()
    over = ended(moves, "split")["status"]
    assert over["phase"] == "Succeeded", over["migrationState"].get("failureReason")
    assert over["migrationState"]["mode"] == "PostCopy"
    guest.is_well(over["migrationState"]["targetNode"])
    assert _condition(moves, "Paused") == ""


def runs_at_the_target(guest: Guest) -> bool:
    """By the processor time of its vCPU there, which an empty machine does not use."""
    for launcher in guest.launchers("target"):
        for qemu in _of(launcher, "qemu-system-x86_64"):
            for task in Path(f"/proc/{qemu}/task").iterdir():
                name, _, rest = (task / "stat").read_text().partition(" (")[2].rpartition(") ")
                if name.startswith("CPU ") and int(rest.split()[11]) > 5:
                    return True
    return False


def _condition(space: Space, kind: str) -> str:
    found = space.vmi("mover")["status"].get("conditions", [])
    return next((str(each["status"]) for each in found if each["type"] == kind), "")


def test_a_move_in_post_copy_is_not_given_up(moves: Space) -> None:
    """Half of the guest is there: it only goes on, whoever asks for its end."""
    if not offers_user_faults(moves):
        pytest.skip("no node here can: its QEMU or its kernel is older")
    guest = Guest(moves, quiet)
    policy(moves, **POST_COPY)
    guest.begin("asked")
    target = guest.move()["targetNode"]
    eventually(lambda: progress(moves).get("mode") == "PostCopy", within_s=MOVE_S, what="post-copy")
    moves.kubectl("delete", "vmim", "asked", "--wait=false")
    eventually(lambda: guest.move().get("completed"), within_s=MOVE_S, what="the end of the move")
    assert not guest.move().get("failed")
    guest.is_well(target)
