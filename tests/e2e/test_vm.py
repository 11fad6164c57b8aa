"""VMs with real guests: each run strategy through start, stop, restart, a guest that shuts down and one that crashes.

The words that a watcher sees are compared with those recorded from the real system: their order, not their timing.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from .conftest import Space
from .engine import eventually
from .vms import Machine, Watcher, conditions, make, vm

pytestmark = pytest.mark.e2e


def recorded() -> tuple[list[str], ...]:
    """What the real system printed for the strategy Always, step by step.

    Start, restart, crash of the emulator, stop; each step without the word that the one before it ended with.
    """
    start = ["Starting", "Running"]
    restart = ["Stopping", "Stopped", "Starting", "Running"]
    crash = ["Stopped", "Starting", "Running"]
    stop = ["Stopping", "Stopped"]
    return start, restart, crash, stop


def test_always_comes_back(space: Space) -> None:
    """Restart, crash and deletion of the VMI all end in a new VMI; Halted ends it."""
    machine = make(space, "always", "Always")
    with Watcher(space, "always").watching() as seen:
        status = machine.printable("Running")
        assert status["created"]
        assert status["ready"]
        assert conditions(status)["Ready"] == "True"
        assert status["observedGeneration"] == status["desiredGeneration"] == machine.get()["metadata"]["generation"]
        first = machine.uid()
        machine.virtctl("restart")
        machine.restarted(first)
        assert not machine.status().get("stateChangeRequests")
        second = machine.uid()
        machine.kill_emulator()
        machine.restarted(second)
        machine.virtctl("stop")
        machine.printable("Stopped")
        assert machine.get()["spec"]["runStrategy"] == "Halted"
        eventually(lambda: not machine.has_vmi(), within_s=30)
    start, restart, crash, stop = recorded()
    words = seen.words[1:] if seen.words[0] == "Stopped" else seen.words
    assert words == [*start, *restart, *crash, *stop], words


def test_halted_starts_when_asked_and_goes_when_deleted(space: Space) -> None:
    machine = make(space, "halted", "Halted")
    status = machine.printable("Stopped", within_s=20)
    assert not machine.has_vmi()
    assert conditions(status)["Ready"] == "False"
    machine.virtctl("start", "--paused")
    status = machine.printable("Paused")
    assert machine.get()["spec"]["runStrategy"] == "Always"
    assert conditions(status)["Paused"] == "True"
    with Watcher(space, "halted").watching() as seen:
        space.kubectl("delete", "vm", "halted", "--timeout=60s", timeout=80)
    assert "Terminating" in seen.words
    assert not machine.has_vmi()


def test_manual_does_only_what_it_is_told(space: Space) -> None:
    machine = make(space, "manual", "Manual")
    machine.printable("Stopped", within_s=20)
    machine.virtctl("start")
    machine.printable("Running")
    machine.kill_emulator()
    machine.printable("Stopped")
    assert space.vmi("manual")["status"]["phase"] == "Failed"
    machine.virtctl("start")
    machine.printable("Running")
    machine.virtctl("stop")
    machine.printable("Stopped")
    eventually(lambda: not machine.has_vmi(), within_s=30)


def test_rerun_on_failure_comes_back_from_a_crash_but_not_from_a_shutdown(space: Space) -> None:
    machine = make(space, "rerun", "RerunOnFailure")
    machine.printable("Running")
    first = machine.uid()
    machine.kill_emulator()
    machine.restarted(first)
    with space.console("rerun") as console:
        console.prompt()
        console.send("poweroff")
        machine.printable("Stopped")
    eventually(lambda: not machine.has_vmi(), within_s=30)
    assert machine.status()["printableStatus"] == "Stopped"


def test_once_stays_down_after_the_guest_shut_down(space: Space) -> None:
    machine = make(space, "once", "Once")
    machine.printable("Running")
    with space.console("once") as console:
        console.prompt()
        console.send("poweroff")
        machine.printable("Stopped")
    assert space.vmi("once")["status"]["phase"] == "Succeeded"


def test_a_start_that_fails_is_tried_again_more_and_more_slowly(space: Space) -> None:
    """The guest's kernel is not in the image: the launcher ends before the guest has run."""
    broken = vm("broken", "Always")
    broken["spec"]["template"]["spec"]["domain"]["firmware"]["kernelBoot"]["container"]["kernelPath"] = "/boot/nothing"
    space.apply(broken)
    machine = Machine(space, "broken")
    status = machine.printable("CrashLoopBackOff")
    assert status["startFailure"]["consecutiveFailCount"] >= 1
    assert status["startFailure"]["retryAfterTimestamp"]
    eventually(lambda: "/boot/nothing" in explained(space, "broken")["sentence"], within_s=30)
    assert "/boot/nothing" in type_next(space, "broken"), "the command that explain proposes shows the cause"
    eventually(lambda: machine.status()["startFailure"]["consecutiveFailCount"] >= 2, within_s=60)
    machine.strategy("Halted")
    machine.printable("Stopped")
    assert "startFailure" not in machine.status()


def test_explain_tells_how_to_start_a_stopped_vm(space: Space) -> None:
    machine = make(space, "rests", "Manual")
    machine.printable("Stopped")
    type_next(space, "rests")
    machine.printable("Running")


def explained(space: Space, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(space.virtctl("explain", "vm", name, "-o", "json"))["standing"]
    return found


def type_next(space: Space, name: str) -> str:
    """Does what explain says, as a person would: word for word, in a shell."""
    command = explained(space, name)["next"]
    done = space.engine.run("sh", "-c", command)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def test_a_change_that_needs_a_restart_says_so(space: Space) -> None:
    machine = make(space, "changed", "Always")
    machine.printable("Running")
    patch = [{"op": "add", "path": "/spec/template/spec/domain/chassis", "value": {"asset": "77"}}]
    space.kubectl("patch", "vm", "changed", "--type=json", "-p", json.dumps(patch))
    eventually(lambda: conditions(machine.status()).get("RestartRequired") == "True", within_s=20)
    message = {c["type"]: c for c in machine.status()["conditions"]}["RestartRequired"]["message"]
    assert "chassis" in message
    first = machine.uid()
    machine.ask({"action": "Stop", "uid": first})
    machine.restarted(first)
    assert "RestartRequired" not in conditions(machine.status())
    assert space.vmi("changed")["spec"]["domain"]["chassis"] == {"asset": "77"}


def test_an_orphaned_vmi_runs_on_and_is_adopted_again(space: Space) -> None:
    machine = make(space, "orphan", "Always")
    machine.printable("Running")
    first = machine.uid()
    space.kubectl("delete", "vm", "orphan", "--cascade=orphan", "--timeout=60s", timeout=80)
    vmi = space.vmi("orphan")
    assert vmi["status"]["phase"] == "Running"
    assert "deletionTimestamp" not in vmi["metadata"]
    eventually(lambda: not space.vmi("orphan")["metadata"].get("ownerReferences"), within_s=20)
    make(space, "orphan", "Always").printable("Running")
    assert machine.uid() == first
    assert space.vmi("orphan")["metadata"]["ownerReferences"][0]["kind"] == "VirtualMachine"


def test_a_missing_claim_is_named(space: Space) -> None:
    lost = vm("lost", "Always")
    spec = lost["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "nowhere"}}]
    spec["domain"]["devices"]["disks"] = [{"name": "data", "disk": {"bus": "virtio"}}]
    space.apply(lost)
    machine = Machine(space, "lost")
    machine.printable("ErrorPvcNotFound", within_s=30)
    told = {c["type"]: c for c in space.vmi("lost")["status"]["conditions"]}["Synchronized"]
    assert "nowhere" in told["message"]


def test_instance_type_and_preference_shape_the_domain(space: Space) -> None:
    space.apply(
        {
            "apiVersion": "instancetype.kubevirt.io/v1beta1",
            "kind": "VirtualMachineInstancetype",
            "metadata": {"name": "small"},
            "spec": {"cpu": {"guest": 2}, "memory": {"guest": "160Mi"}},
        }
    )
    space.apply(
        {
            "apiVersion": "instancetype.kubevirt.io/v1beta1",
            "kind": "VirtualMachinePreference",
            "metadata": {"name": "cores"},
            "spec": {"cpu": {"preferredCPUTopology": "cores"}},
        }
    )
    typed = vm(
        "typed",
        "Always",
        instancetype={"kind": "VirtualMachineInstancetype", "name": "small"},
        preference={"kind": "VirtualMachinePreference", "name": "cores"},
    )
    del typed["spec"]["template"]["spec"]["domain"]["memory"]
    space.apply(typed)
    status = Machine(space, "typed").printable("Running")
    assert status["instancetypeRef"]["controllerRevisionRef"]["name"]
    assert status["preferenceRef"]["controllerRevisionRef"]["name"]
    domain = space.vmi("typed")["spec"]["domain"]
    assert (domain["cpu"]["cores"], domain["cpu"]["sockets"]) == (2, 1)
    with space.console("typed") as console:
        console.prompt()
        assert "\n2" in console.shell("grep -c ^processor /proc/cpuinfo").replace("\r", "")
        kilobytes = int(console.shell("grep MemTotal /proc/meminfo").split("MemTotal:")[1].split()[0])
    assert 110_000 < kilobytes < 164_000


_OURS = ("virtualmachines", "virtualmachineinstances", "pods", "events", "controllerrevisions")


def writes(space: Space) -> dict[str, int]:
    return {kind: count for kind, count in space.engine.writes().items() if kind in _OURS}


@pytest.mark.alone
def test_a_start_costs_at_most_fifteen_writes(space: Space) -> None:
    """From the user's create to a VM that prints Running, the Pod's own status included; Events beside that."""
    before = writes(space)
    make(space, "thrifty", "Always").printable("Running")
    after = writes(space)
    spent = {kind: after[kind] - before.get(kind, 0) for kind in after}
    spent.pop("events", None)
    assert sum(spent.values()) <= 15, spent
    # What scheduler and kubelet tell of the Pod is theirs, as with any Pod.
    told = space.engine.get("-n", space.namespace, "events")["items"]
    ours = [event["reason"] for event in told if event["involvedObject"]["kind"] != "Pod"]
    assert len(ours) <= 4, ours


def cpus(space: Space, name: str) -> int:
    """As many as the guest sees."""
    with space.console(name) as console:
        console.prompt()
        text = console.shell("grep -c ^processor /proc/cpuinfo")
    return int(re.findall(r"(?m)^(\d+)\r?$", text)[-1])


def test_more_cores_need_a_restart_and_then_the_guest_has_them(space: Space) -> None:
    """The VM says at once which field waits; the running VMI stays as it is; taken back, nothing waits any more."""
    machine = make(space, "grows", "Always")
    machine.printable("Running")
    first = machine.uid()

    def ask(cores: int) -> None:
        patch = json.dumps({"spec": {"template": {"spec": {"domain": {"cpu": {"cores": cores}}}}}})
        space.kubectl("patch", "vm", "grows", "--type=merge", "-p", patch)

    def told() -> str:
        found = {c["type"]: c for c in machine.status()["conditions"]}
        return str(found.get("RestartRequired", {}).get("message", ""))

    for _ in range(2):
        ask(2)
        eventually(lambda: "spec.template.spec.domain.cpu.cores" in told(), within_s=20, what="RestartRequired")
        assert space.vmi("grows")["spec"]["domain"]["cpu"]["cores"] == 1
        assert cpus(space, "grows") == 1
        ask(1)
        eventually(lambda: not told(), within_s=20, what="no RestartRequired")
    ask(2)
    eventually(told, within_s=20, what="RestartRequired")
    machine.virtctl("restart")
    machine.restarted(first)
    space.ready("grows")
    assert cpus(space, "grows") == 2
    eventually(lambda: not told(), within_s=20, what="no RestartRequired")


def test_a_vm_that_nothing_would_ever_move_here_is_refused(space: Space) -> None:
    assert "spec.runStrategy" in space.refuse(vm("receiver", "WaitAsReceiver"))
    assert not space.engine.get("-n", space.namespace, "vm")["items"]
