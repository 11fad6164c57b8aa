"""Pause, delete, and what kubectl and virtctl show of it."""

from __future__ import annotations

import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from .conftest import Space
from .engine import eventually, process_table
from .manifests import kernel_boot, vmi
from .vms import conditions

pytestmark = pytest.mark.e2e


def ticks(text: str) -> list[int]:
    """Whole lines only: the last one may still be arriving."""
    return [int(n) for n in re.findall(r"tick (\d+)\r?\n", text)]


def test_pause_stops_the_guest_and_unpause_resumes_it(space: Space) -> None:
    """The guest's own ticks stop while it is paused, and go on from where they were."""
    space.boot(kernel_boot("paused"))
    with space.console("paused") as console:
        console.prompt()
        console.send("ticks on")
        eventually(lambda: len(ticks(console.seen)) > 1 or console.read(0.5) is None, within_s=30)
        space.virtctl("pause", "vmi", "paused")
        eventually(lambda: "Paused" in {c["type"] for c in space.vmi("paused")["status"]["conditions"]}, within_s=10)
        console.read(2)
        mark, before = len(console.seen), ticks(console.seen)[-1]
        assert not ticks(console.read(6)), "the guest ticks although it is paused"
        space.virtctl("unpause", "vmi", "paused")
        eventually(lambda: ticks(console.seen[mark:]) or console.read(0.5) is None, within_s=30)
        assert 1 <= ticks(console.seen[mark:])[0] - before <= 3, "the guest's clock ran on while it was paused"


def test_the_guests_clock_is_right_again_after_a_pause(space: Space) -> None:
    """The guest's own clock is put back by years: what a pause costs is the same in small."""
    space.boot(kernel_boot("late"))
    eventually(lambda: "AgentConnected" in conditions(space.vmi("late")["status"]), within_s=60)
    with space.console("late") as console:
        console.prompt()
        assert "2001" in console.shell("date -s '2001-01-01 00:00' && date +%Y")
        space.virtctl("pause", "vmi", "late")
        eventually(lambda: "Paused" in conditions(space.vmi("late")["status"]), within_s=10)
        space.virtctl("unpause", "vmi", "late")
        year = str(datetime.now(UTC).year)
        eventually(lambda: year in console.shell("date +%Y"), within_s=60, what=f"the guest's year is {year}")


def test_delete_shuts_the_guest_down_and_leaves_nothing(space: Space) -> None:
    """The guest sees the power button, and Pod, processes and volumes are gone afterwards."""
    running = space.boot(kernel_boot("gone"))
    uid = running["metadata"]["uid"]
    pod = space.engine.get("-n", space.namespace, "pods")["items"][0]["metadata"]["uid"]
    with space.console("gone") as console:
        console.prompt()
        space.kubectl("delete", "vmi", "gone", "--wait=false")
        console.expect("ACPI power button", within_s=30)
    space.gone("vmi")
    space.gone("pods")
    left = [args for _, args in process_table() if uid in " ".join(args) or pod in " ".join(args)]
    assert not left
    eventually(lambda: not list(Path("/sys/fs/cgroup").glob(f"**/pod{pod}")), within_s=10)


def test_guest_that_powers_off_succeeds(space: Space) -> None:
    """A guest that ends by itself makes its VMI Succeeded, and the Pod does not come back."""
    space.boot(kernel_boot("off"))
    with space.console("off") as console:
        console.prompt()
        console.send("poweroff")
        space.phase("off", "Succeeded", within_s=60)


def test_kubectl_speaks_to_it(space: Space) -> None:
    """The everyday kubectl verbs, with a real kubectl."""
    watch = subprocess.Popen(
        ["kubectl", "-n", space.namespace, "get", "vmi", "-w"],
        env=space.engine.env(),
        stdout=subprocess.PIPE,
        text=True,
    )
    space.boot(kernel_boot("kube"))
    watch.terminate()
    rows, _ = watch.communicate(timeout=10)
    assert re.search(r"NAME +AGE +PHASE +IP +NODENAME +READY", rows)
    assert re.search(r"kube +\d+s +Running +\d+\.\d+\.\d+\.\d+ +\S+ +True", rows)
    described = space.kubectl("describe", "vmi", "kube")
    assert "Phase:" in described
    assert "SuccessfulCreate" in described
    assert "FIELDS" in space.kubectl("explain", "vmi.spec")
    assert "masquerade" in space.kubectl("explain", "vmi.spec.domain.devices.interfaces")
    pods = space.kubectl("get", "pods", "-o", "wide")
    assert re.search(r"virt-launcher-kube-\w+ +1/1 +Running +0 +\d+s +\d+\.\d+\.\d+\.\d+ +\S+", pods)
    assert "SuccessfulCreate" in space.kubectl("get", "events")
    name = pods.splitlines()[1].split()[0]
    assert '"component"' in space.kubectl("logs", name)
    assert "pod/" in space.kubectl("get", "all")


def test_the_same_manifest_may_be_applied_again(space: Space) -> None:
    """`kubectl apply` of an unchanged file changes nothing; of a changed one is refused with the way out."""
    space.boot(vmi("again"))
    spec = space.vmi("again")["spec"]
    space.apply(vmi("again"))
    assert space.vmi("again")["spec"] == spec
    changed = vmi("again")
    changed["spec"]["domain"]["memory"]["guest"] = "256Mi"
    assert "delete it and create it anew" in space.refuse(changed)


def test_explain_tells_the_timeline(space: Space) -> None:
    """Each handoff with its owner and duration, and one sentence."""
    space.boot(kernel_boot("told"))
    text = space.virtctl("explain", "vmi", "told")
    for owner in ("virt-api", "virt-controller", "virt-netsetup", "virt-launcher", "virt-handler"):
        assert owner in text, text
    assert "Running" in text


def test_ssh_reaches_the_guest(space: Space) -> None:
    """The guest's ssh server greets through the Pod's address."""
    import socket

    address = space.boot(vmi("ssh"))["status"]["interfaces"][0]["ipAddress"]

    def banner() -> bytes:
        with socket.create_connection((address, 22), timeout=5) as sock:
            return sock.recv(64)

    assert b"SSH-2.0" in eventually(banner, within_s=60)
