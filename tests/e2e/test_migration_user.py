"""What people see of a move: before it, while it goes, when it is given up, and when it is done."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from virt_client import Client, Forbidden

from . import figures
from .conftest import Space
from .engine import BIN, Engine, eventually
from .manifests import vmi

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

NAMESPACE = f"e2e-{os.getpid()}-shown"
POLICY = f"slow-{os.getpid()}"
LABEL = {"e2e.virtpod.io/shown": NAMESPACE}
MOVE_S = 120.0


@pytest.fixture(scope="module")
def mover(pair: Engine) -> Iterator[Space]:
    """One guest for all tests here: each leaves it running."""
    pair.kubectl("create", "namespace", NAMESPACE)
    space = Space(pair, NAMESPACE)
    try:
        space.apply(a_vm())
        space.ready("mover")
        yield space
    finally:
        pair.kubectl("delete", "migrationpolicy", POLICY, "--ignore-not-found")
        pair.kubectl("delete", "namespace", NAMESPACE, "--wait=true", "--timeout=120s", timeout=130)


def a_vm() -> dict[str, Any]:
    template = {"metadata": {"labels": LABEL}, "spec": vmi("mover")["spec"]}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "mover"},
        "spec": {"runStrategy": "Always", "template": template},
    }


def slow_down(space: Space, bandwidth: str) -> None:
    spec = {"selectors": {"virtualMachineInstanceSelector": LABEL}, "bandwidthPerMigration": bandwidth}
    kind = {"apiVersion": "migrations.kubevirt.io/v1alpha1", "kind": "MigrationPolicy"}
    space.engine.kubectl("apply", "-f", "-", stdin=json.dumps({**kind, "metadata": {"name": POLICY}, "spec": spec}))


def node_of(space: Space) -> str:
    return str(space.vmi("mover")["status"]["nodeName"])


def jobs(space: Space) -> list[Any]:
    return list(space.engine.get("-n", space.namespace, "vmim")["items"])


def figure(space: Space, node: str, name: str, labels: dict[str, str]) -> float:
    return figures.values(figures.of_handler(space.engine, node), f"kubevirt_vmi_migration_{name}", **labels)[0]


def said(space: Space, *command: str, words: str) -> str:
    """The answer of a virtctl, once it has the words."""

    def look() -> str:
        told = space.virtctl(*command)
        return told if words in told else ""

    return str(eventually(look, within_s=MOVE_S, what=f"{' '.join(command)} says {words!r}"))


def test_a_guest_that_writes_too_fast_is_foreseen_followed_and_given_up(mover: Space) -> None:
    """With a way so slow that it never ends by itself."""
    slow_down(mover, "1Mi")
    with mover.console("mover") as console:
        console.prompt()
        console.shell("mkdir -p /t; mount -t tmpfs none /t")
        console.shell("echo 'while :; do dd if=/dev/urandom of=/t/x bs=1M count=24 conv=notrunc; done' > /t/writer")
        console.shell("{ sh /t/writer >/dev/null 2>&1 & echo $! > /t/pid; }")
    forecast = said(mover, "migrate", "mover", "--dry-run", words="will not converge")
    written, moved = re.findall(
        r"will not converge: ([\d.]+) MiB/s are written, ([\d.]+) MiB/s can be moved", forecast
    )[0]
    assert float(written) > float(moved) == 1.0
    assert "allow post-copy, auto-converge or a pause" in forecast
    assert not jobs(mover), "a dry run moves nothing"

    home = node_of(mover)
    command = [str(BIN / "virtctl"), "-n", mover.namespace, "migrate", "mover", "--wait"]
    looker = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=mover.engine.env()
    )
    try:
        told = said(mover, "explain", "vmi", "mover", words="/s moved")
        assert re.search(rf"from {home} to \S+: \d+ %, .* left, .*/s moved, .*/s written", told), told
        (job,) = jobs(mover)
        labels = {"namespace": mover.namespace, "name": "mover", "node": home}
        for metric in ("data_remaining_bytes", "data_bytes_total"):  # Nothing is left between its disk and its memory.
            eventually(lambda name=metric: figure(mover, home, name, labels) > 0, within_s=MOVE_S, what=metric)
        assert sum(figures.values(figures.of_controller(mover.engine), "kubevirt_vmi_migrations_in_running_phase")) >= 1
        told = said(mover, "explain", "vmim", job["metadata"]["name"], words="Forecast: will not converge")
        assert "Running" in told
        assert "PreparingTarget" in told
        assert mover.virtctl("migrate-cancel", "mover") == "VM mover was canceled migration\n"
        output, _ = looker.communicate(timeout=MOVE_S)
    finally:
        looker.kill()
        looker.wait()
    assert looker.returncode == 1, output
    assert "VM mover was scheduled to migrate" in output
    assert "given up" in output, output
    assert "\x1b" not in output, "a file gets clean lines"
    assert node_of(mover) == home
    with mover.console("mover") as console:
        console.prompt()
        assert "alive" in console.shell("kill $(cat /t/pid); echo al''ive")


def test_a_program_moves_it_and_follows_its_stream(mover: Space) -> None:
    mover.engine.kubectl("delete", "migrationpolicy", POLICY, "--ignore-not-found")
    mover.kubectl("create", "serviceaccount", "robot")
    token = mover.kubectl("create", "token", "robot").strip()
    home = node_of(mover)
    with Client.from_kubeconfig(mover.engine.automation(), token=token, namespace=mover.namespace) as client:
        with pytest.raises(Forbidden):
            next(client.migrate("mover"))
        subject = f"--serviceaccount={mover.namespace}:robot"
        mover.kubectl("create", "rolebinding", "robot", "--clusterrole=kubevirt.io:migrate", subject)
        steps = list(client.migrate("mover", timeout_s=MOVE_S))
    last = steps[-1]
    assert last.done
    assert last.succeeded, last.message
    assert (last.source_node, last.target_node) == (home, node_of(mover))
    assert home != node_of(mover)
    assert last.downtime_ms > 0
    assert last.message.endswith(f"; the guest stood still for {last.downtime_ms} ms")


def test_a_person_moves_it_back_and_the_node_has_learnt(mover: Space) -> None:
    output = mover.virtctl("migrate", "mover", "--wait", timeout=MOVE_S)
    assert re.search(r"VM mover: it was migrated from \S+ to \S+ in [\d.]+ s; the guest stood still for \d+ ms", output)
    (name,) = [
        each["metadata"]["name"]
        for each in jobs(mover)
        if each["status"]["migrationState"]["targetNode"] == node_of(mover)
    ]
    told = mover.virtctl("explain", "vmim", name)
    assert "VMI mover was migrated from" in told
    outcome = {"vmi": "mover", "vmim": name, "namespace": mover.namespace}
    assert figures.values(figures.of_controller(mover.engine), "kubevirt_vmi_migration_succeeded", **outcome) == [1.0]
    with mover.console("mover") as console:
        console.prompt()
        console.shell("dd if=/dev/urandom of=/dev/vda bs=1M count=4 seek=1 conv=notrunc; sync")
    # A move has left this node before, so it knows how fast the way is.
    forecast = said(mover, "migrate", "mover", "--dry-run", words="measured in former moves")
    assert "expected:" in forecast
    assert "guest stands still for" in forecast
    assert float(re.findall(r"([\d.]+) MiB of disks in the Pod", forecast)[0]) >= 4
