"""A program that speaks nothing but gRPC drives real guests, with exactly the rights that its account has."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from virt_client import Client, Console, Forbidden, Invalid, PreconditionFailed, Progress, Timeout, Unauthenticated

from .conftest import Space
from .engine import ROOT, eventually
from .manifests import kernel_boot, vmi

pytestmark = pytest.mark.e2e

VERBS = {
    "virtualmachineinstances": ["console", "guestosinfo", "pause", "unpause", "softreboot", "reset"],
    "virtualmachines": ["start", "stop", "restart"],
}


def grant(space: Space, account: str) -> None:
    """Everything that the service can do, in this namespace."""
    subresources = [f"{kind}/{name}" for kind, names in VERBS.items() for name in names]
    rules = [
        {"apiGroups": ["kubevirt.io"], "resources": list(VERBS), "verbs": ["*"]},
        {"apiGroups": ["subresources.kubevirt.io"], "resources": subresources, "verbs": ["get", "update"]},
    ]
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": account}, "rules": rules}
    space.apply(role)
    subject = f"--serviceaccount={space.namespace}:{account}"
    space.kubectl("create", "rolebinding", account, f"--role={account}", subject)


def client_of(space: Space, account: str) -> Client:
    space.kubectl("create", "serviceaccount", account)
    token = space.kubectl("create", "token", account).strip()
    return Client.from_kubeconfig(space.engine.automation(), token=token, namespace=space.namespace)


@pytest.fixture
def robot(space: Space) -> Iterator[Client]:
    with client_of(space, "robot") as client:
        grant(space, "robot")
        yield client


@pytest.fixture
def nobody(space: Space) -> Iterator[Client]:
    with client_of(space, "nobody") as client:
        yield client


def prompt(console: Console, within_s: float = 60) -> None:
    """Presses Enter until the guest's shell answers."""
    mark, deadline = len(console.seen), time.monotonic() + within_s
    while "guest# " not in console.seen[mark:]:
        assert time.monotonic() < deadline, console.seen[-500:]
        console.send("\r")
        console.read(0.5)


def shell(console: Console, command: str) -> str:
    mark = len(console.seen)
    console.send(f"{command}; echo done-$((40+2))\r")
    end = console.expect("done-42", after=mark)
    return console.seen[mark:end]


def test_a_vmi_through_its_whole_life(robot: Client) -> None:
    told: list[Progress] = []
    assert robot.create(vmi("life")).phase == "Pending"
    running = robot.wait("vmi", "life", phases=["Running"], timeout_s=120, on_progress=told.append)
    assert running is not None
    assert running.node_name
    assert running.ip_addresses
    assert any("waiting for" in step.message for step in told), told
    with robot.console("life") as console:
        prompt(console)
        assert "Linux" in shell(console, "uname -a")
    robot.wait("vmi", "life", condition="AgentConnected", timeout_s=60)
    assert robot.guest_info("life").kernel_release
    robot.pause("life")
    paused = robot.wait("vmi", "life", condition="Paused", timeout_s=20)
    assert paused is not None
    assert paused.paused
    with pytest.raises(PreconditionFailed, match="paused"):
        robot.pause("life")
    robot.unpause("life")
    assert robot.patch("vmi", "life", {"metadata": {"labels": {"tier": "gold"}}}).labels["tier"] == "gold"
    assert [each.name for each in robot.list("vmi", label_selector="tier=gold").items] == ["life"]
    with robot.watch("vmi") as changes:
        robot.delete("vmi", "life")
        last = next(change for change in changes if change.type == "deleted")
    assert last.machine is not None
    assert last.machine.uid == running.uid
    assert robot.wait("vmi", "life", gone=True, timeout_s=60) is None


def machine(name: str, strategy: str) -> dict[str, Any]:
    template = kernel_boot(name)
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name},
        "spec": {"runStrategy": strategy, "template": {"metadata": {}, "spec": template["spec"]}},
    }


def boot_id(client: Client, name: str) -> str:
    with client.console(name) as console:
        prompt(console)
        return shell(console, "cat /proc/sys/kernel/random/boot_id").splitlines()[1]


def test_a_vm_through_its_whole_life(robot: Client) -> None:
    """Stopped, started, reset, restarted, stopped, deleted."""
    robot.create(machine("vm", "Halted"))
    robot.wait("vm", "vm", phases=["Stopped"], timeout_s=30)
    with pytest.raises(PreconditionFailed):
        robot.stop("vm")
    robot.start("vm")
    robot.wait("vm", "vm", phases=["Running"], timeout_s=120)
    first, boot = robot.get("vmi", "vm"), boot_id(robot, "vm")
    robot.reset("vm")
    eventually(lambda: boot_id(robot, "vm") != boot, within_s=90, what="another boot after the reset")
    assert robot.get("vmi", "vm").uid == first.uid
    robot.restart("vm")
    eventually(lambda: {each.uid for each in robot.list("vmi").items} - {first.uid}, within_s=90, what="a new instance")
    robot.wait("vmi", "vm", phases=["Running"], timeout_s=120)
    robot.stop("vm", grace_period_s=5)
    robot.wait("vm", "vm", phases=["Stopped"], timeout_s=90)
    robot.delete("vm", "vm")
    robot.wait("vm", "vm", gone=True, timeout_s=60)


def test_without_a_right_nothing_is_done(space: Space, robot: Client, nobody: Client) -> None:
    """Each call of somebody who has none; the guest notices nothing."""
    robot.create(kernel_boot("mine"))
    robot.wait("vmi", "mine", phases=["Running"], timeout_s=120)
    calls = {
        "create": lambda: nobody.create(kernel_boot("theirs")),
        "get": lambda: nobody.get("vmi", "mine"),
        "list": lambda: nobody.list("vmi"),
        "list all": lambda: nobody.list("vmi", all_namespaces=True),
        "watch": lambda: next(iter(nobody.watch("vmi"))),
        "watch from a version": lambda: next(iter(nobody.watch("vmi", resource_version="1"))),
        "update": lambda: nobody.update({**kernel_boot("mine"), "kind": "VirtualMachineInstance"}),
        "patch": lambda: nobody.patch("vmi", "mine", {"metadata": {"labels": {"a": "b"}}}),
        "delete": lambda: nobody.delete("vmi", "mine"),
        "start": lambda: nobody.start("mine"),
        "stop": lambda: nobody.stop("mine"),
        "restart": lambda: nobody.restart("mine"),
        "pause": lambda: nobody.pause("mine"),
        "unpause": lambda: nobody.unpause("mine"),
        "soft reboot": lambda: nobody.soft_reboot("mine"),
        "reset": lambda: nobody.reset("mine"),
        "console": lambda: nobody.console("mine"),
        "guest info": lambda: nobody.guest_info("mine"),
        "wait": lambda: nobody.wait("vmi", "mine", phases=["Running"], timeout_s=10),
    }
    for name, call in calls.items():
        with pytest.raises(Forbidden):
            pytest.fail(f"{name} was allowed: {call()}")
    with Client.from_kubeconfig(space.engine.automation(), token="forged") as forged, pytest.raises(Unauthenticated):
        forged.list("vmi")
    mine = robot.get("vmi", "mine")
    assert (mine.phase, mine.paused, mine.deleting, mine.labels.get("a")) == ("Running", False, False, None)


def test_admission_holds_and_says_why(robot: Client) -> None:
    manifest = kernel_boot("bad")
    manifest["spec"]["domain"]["devices"]["disks"] = [{"name": "nowhere", "disk": {"bus": "virtio"}}]
    with pytest.raises(Invalid) as refused:
        robot.create(manifest)
    assert any("disks[0]" in cause.field for cause in refused.value.causes), refused.value.causes
    assert not robot.list("vmi").items


def test_a_wait_that_is_too_short_says_how_far_it_came(robot: Client) -> None:
    with pytest.raises(Timeout, match="there is no VirtualMachineInstance"):
        robot.wait("vmi", "never", phases=["Running"], timeout_s=2)


def test_the_example_runs(space: Space, robot: Client) -> None:
    token = space.kubectl("create", "token", "robot").strip()
    manifest = ROOT / "examples" / "vmi-guest.yaml"
    script = str(ROOT / "examples" / "automation.py")
    done = space.engine.run(
        sys.executable, script, str(manifest), "--token", token, "--namespace", space.namespace, timeout=240
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert "Linux" in done.stdout
    assert not json.loads(space.kubectl("get", "vmi", "-o", "json"))["items"]
