"""Each run strategy against each thing that can happen to a VM, as far as test_vm.py has not had it yet."""

from __future__ import annotations

import pytest

from .conftest import Space
from .engine import eventually
from .vms import Machine, conditions, make, vm

pytestmark = pytest.mark.e2e


def power_off(machine: Machine) -> None:
    """The guest shuts itself down. The console stays until it has: what was typed would be lost with it."""
    first = machine.uid()
    with machine.space.console(machine.name) as console:
        console.prompt()
        console.send("poweroff")
        eventually(lambda: not runs(machine, first), within_s=60, what="the guest is down")


def runs(machine: Machine, uid: str) -> bool:
    vmis = machine.space.engine.get("-n", machine.space.namespace, "vmi")["items"]
    return any(v["metadata"]["uid"] == uid and v["status"]["phase"] == "Running" for v in vmis)


def refused(space: Space, verb: str, name: str) -> str:
    """A verb that the strategy does not allow: a sentence, and exit code 1."""
    done = space.engine.run("virtctl", "-n", space.namespace, verb, name)
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


def phase(space: Space, name: str) -> str:
    return str(space.vmi(name)["status"]["phase"])


def test_always_comes_back_from_a_shutdown(space: Space) -> None:
    machine = make(space, "always", "Always")
    machine.printable("Running")
    first = machine.uid()
    assert "already running" in refused(space, "start", "always")
    power_off(machine)
    machine.restarted(first)


def test_halted_has_nothing_to_stop(space: Space) -> None:
    machine = make(space, "halted", "Halted")
    machine.printable("Stopped", within_s=20)
    assert "not running" in refused(space, "stop", "halted")
    assert "halted" in refused(space, "restart", "halted").lower()
    machine.virtctl("start")
    machine.printable("Running")
    assert machine.get()["spec"]["runStrategy"] == "Always"
    machine.strategy("Halted")
    machine.printable("Stopped")
    eventually(lambda: not machine.has_vmi(), within_s=30)


def test_manual_restarts_when_told_and_stays_down_after_a_shutdown(space: Space) -> None:
    machine = make(space, "manual", "Manual")
    machine.printable("Stopped", within_s=20)
    refused(space, "restart", "manual")
    refused(space, "stop", "manual")
    machine.virtctl("start")
    machine.printable("Running")
    first = machine.uid()
    machine.virtctl("restart")
    machine.restarted(first)
    second = machine.uid()
    power_off(machine)
    machine.printable("Stopped")
    assert (phase(space, "manual"), machine.uid()) == ("Succeeded", second)
    machine.virtctl("start")
    machine.restarted(second)


def test_rerun_on_failure_stops_starts_and_restarts_when_told(space: Space) -> None:
    machine = make(space, "rerun", "RerunOnFailure")
    machine.printable("Running")
    machine.virtctl("stop")
    machine.printable("Stopped")
    eventually(lambda: not machine.has_vmi(), within_s=30)
    refused(space, "restart", "rerun")
    refused(space, "stop", "rerun")
    machine.virtctl("start")
    machine.printable("Running")
    first = machine.uid()
    machine.virtctl("restart")
    machine.restarted(first)
    assert machine.get()["spec"]["runStrategy"] == "RerunOnFailure"


def test_once_runs_once_whatever_happens(space: Space) -> None:
    machine = make(space, "once", "Once")
    machine.printable("Running")
    first = machine.uid()
    refused(space, "start", "once")
    refused(space, "restart", "once")
    machine.kill_emulator()
    machine.printable("Stopped")
    assert (phase(space, "once"), machine.uid()) == ("Failed", first)
    refused(space, "start", "once")
    machine.virtctl("stop")
    eventually(lambda: not machine.has_vmi(), within_s=30)
    assert machine.get()["spec"]["runStrategy"] == "Halted"


@pytest.mark.parametrize("strategy", ["RerunOnFailure", "Once", "Manual"])
def test_a_start_that_fails(space: Space, strategy: str) -> None:
    """Tried again more and more slowly, once only, or not counted at all."""
    broken = vm("broken", strategy)
    broken["spec"]["template"]["spec"]["domain"]["firmware"]["kernelBoot"]["container"]["kernelPath"] = "/boot/nothing"
    space.apply(broken)
    machine = Machine(space, "broken")
    if strategy == "Manual":
        machine.virtctl("start")
        eventually(lambda: machine.has_vmi() and phase(space, "broken") == "Failed", within_s=60)
        assert "startFailure" not in machine.printable("Stopped", within_s=20)
        return
    status = machine.printable("CrashLoopBackOff")
    assert status["startFailure"]["consecutiveFailCount"] >= 1
    if strategy == "Once":
        assert phase(space, "broken") == "Failed"
    else:
        eventually(lambda: machine.status()["startFailure"]["consecutiveFailCount"] >= 2, within_s=60)


def test_more_memory_needs_a_restart(space: Space) -> None:
    """A guest of less than 1Gi is not made to grow (test_grow.py has one that is), and the VM says so."""
    machine = make(space, "grows", "Always")
    machine.printable("Running")
    first = machine.uid()
    more = '{"spec":{"template":{"spec":{"domain":{"memory":{"guest":"160Mi"}}}}}}'
    space.kubectl("patch", "vm", "grows", "--type=merge", "-p", more)
    eventually(lambda: conditions(machine.status()).get("RestartRequired") == "True", within_s=20)
    assert "memory" in {c["type"]: c for c in machine.status()["conditions"]}["RestartRequired"]["message"]
    assert space.vmi("grows")["spec"]["domain"]["memory"]["guest"] == "128Mi"
    machine.virtctl("restart")
    machine.restarted(first)
    assert space.vmi("grows")["spec"]["domain"]["memory"]["guest"] == "160Mi"
    assert "RestartRequired" not in conditions(machine.status())
