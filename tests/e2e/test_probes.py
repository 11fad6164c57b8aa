"""Probes of the guest: Ready follows what the guest says, and a guest that does not answer any more is started anew."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from virt_launcher.guestprobe.ask import NOT_ASKED
from virt_launcher.hypervisor.agent import MAX_OUTPUT

from .conftest import Space
from .console import Console
from .engine import eventually
from .manifests import vmi
from .test_lessons import pod_of
from .vms import Machine, conditions, vm

pytestmark = pytest.mark.e2e

OFTEN = {"periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 3}


def ready(space: Space, name: str) -> dict[str, Any]:
    given = space.vmi(name)["status"].get("conditions", [])
    return next((dict(one) for one in given if one["type"] == "Ready"), {})


def becomes(space: Space, name: str, status: str) -> None:
    eventually(lambda: ready(space, name).get("status") == status, within_s=60, what=f"{name} Ready {status}")


def follows(space: Space, probe: dict[str, Any], good: str, bad: str) -> None:
    """Ready by `good` and not by `bad`, both typed in the guest."""
    space.apply(vmi("asked", readinessProbe=probe | OFTEN))
    space.phase("asked", "Running", within_s=90)
    with space.console("asked") as console:
        console.prompt()
        told = ready(space, "asked")
        assert (told["status"], told["reason"]) == ("False", "PodNotReady")
        assert f"readinessProbe ({next(iter(probe))})" in told["message"]
        console.shell(good)
        becomes(space, "asked", "True")
        console.shell(bad)
        becomes(space, "asked", "False")


def test_ready_follows_a_command_in_the_guest(space: Space) -> None:
    command = ["/bin/sh", "-c", "test -e /run/good"]
    follows(space, {"exec": {"command": command}}, "touch /run/good", "rm /run/good")


def test_a_command_in_the_guest_gives_its_output_and_exit_code(space: Space) -> None:
    """By the program that the probes use, from the launcher's container: there is no shell in it."""
    space.apply(vmi("asked", readinessProbe={"guestAgentPing": {}} | OFTEN))
    space.ready("asked")
    pod = pod_of(space, "asked")

    def run(*command: str, timeout_s: int = 20) -> subprocess.CompletedProcess[str]:
        first, *rest = command
        words = ["virt-probe", "--timeoutSeconds", str(timeout_s), "--command", first, "--", *rest]
        return space.engine.run("kubectl", "-n", space.namespace, "exec", pod, "-c", "compute", "--", *words)

    done = run("/bin/sh", "-c", ". /etc/os-release; echo $ID; echo trouble >&2; exit 7")
    assert done.returncode == 7
    assert done.stdout.splitlines() == ["virtpod-guest", "trouble"]
    assert run("/bin/true").returncode == 0
    missing = run("/bin/no-such-program")
    assert missing.returncode == NOT_ASKED
    assert "no-such-program" in missing.stderr
    flood = run("/bin/sh", "-c", "head -c 400000 /dev/zero | tr '\\0' x; exit 3")
    assert flood.returncode == 3
    assert 0 < len(flood.stdout) <= MAX_OUTPUT
    late = run("/bin/sleep", "600", timeout_s=1)
    assert late.returncode == NOT_ASKED
    assert "did not end within 1 s" in late.stderr


def test_ready_follows_a_port_of_the_guest(space: Space) -> None:
    listen = "nc -ll -p 2222 -e /bin/cat </dev/null >/dev/null 2>&1 & echo $! > /run/pid"
    follows(space, {"tcpSocket": {"port": 2222}}, listen, "kill $(cat /run/pid)")


def test_ready_follows_a_page_of_the_guest(space: Space) -> None:
    """Somebody listens from the start and answers with what the file says."""
    script = "printf '%s\\n' '#!/bin/sh' 'cat /run/page; cat >/dev/null' > /run/serve; chmod +x /run/serve"
    page = "printf 'HTTP/1.0 %s x\\r\\nContent-Length: 0\\r\\n\\r\\n' {} > /run/page"
    good = f"{script}; {page.format(200)}; nc -ll -p 2222 -e /run/serve </dev/null >/dev/null 2>&1 & true"
    follows(space, {"httpGet": {"port": 2222, "path": "/up"}}, good, page.format(503))


def silence_agent(console: Console) -> None:
    console.shell("kill $(cat /run/qemu-ga.pid)")


def test_a_guest_whose_agent_is_silent_is_started_anew(space: Space) -> None:
    manifest = vm("silent", "Always")
    manifest["spec"]["template"]["spec"]["livenessProbe"] = {"guestAgentPing": {}} | OFTEN
    space.apply(manifest)
    machine = Machine(space, "silent")
    machine.printable("Running")
    first = machine.uid()
    eventually(lambda: "AgentConnected" in conditions(space.vmi("silent")["status"]), within_s=60)
    with space.console("silent") as console:
        console.prompt()
        silence_agent(console)
    eventually(lambda: machine.uid() not in ("", first), within_s=90, what="another VMI")
    machine.printable("Running")
