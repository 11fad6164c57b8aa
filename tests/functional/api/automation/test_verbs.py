"""Lifecycle verbs, console, guest information and waits."""

from __future__ import annotations

import pytest
from framework.waiting import eventually
from functional.api.automation.rig import COLLECTION, AutomationRig, document
from functional.api.rig import make_vmi

from virt_client import Client, Forbidden, Invalid, PreconditionFailed, Progress, Timeout

SUB = "/apis/subresources.kubevirt.io/v1/namespaces/default"


@pytest.mark.parametrize(
    ("call", "path", "body"),
    [
        (lambda c: c.start("m", paused=True), "virtualmachines/m/start", {"paused": True}),
        (lambda c: c.start("m"), "virtualmachines/m/start", {}),
        (lambda c: c.stop("m"), "virtualmachines/m/stop", {}),
        (lambda c: c.stop("m", grace_period_s=0), "virtualmachines/m/stop", {"gracePeriod": 0}),
        (lambda c: c.restart("m", force=True), "virtualmachines/m/restart", {"gracePeriodSeconds": 0}),
        (lambda c: c.pause("m"), "virtualmachineinstances/m/pause", {}),
        (lambda c: c.unpause("m"), "virtualmachineinstances/m/unpause", {}),
        (lambda c: c.soft_reboot("m"), "virtualmachineinstances/m/softreboot", {}),
        (lambda c: c.reset("m"), "virtualmachineinstances/m/reset", {}),
    ],
)
def test_each_verb_is_its_subresource(auto: AutomationRig, call, path: str, body: object) -> None:  # type: ignore[no-untyped-def]
    auto.answer("PUT", f"{SUB}/{path}", {})
    with auto.client() as client:
        call(client)
    (asked,) = auto.api.asked
    assert (asked.path, asked.body) == (f"{SUB}/{path}", body)
    assert asked.token.startswith("Bearer ")


def test_a_state_that_does_not_fit_is_a_failed_precondition(auto: AutomationRig) -> None:
    auto.fail("PUT", f"{SUB}/virtualmachineinstances/m/pause", 409, "Conflict", "VMI is already paused")
    with auto.client() as client, pytest.raises(PreconditionFailed, match="already paused"):
        client.pause("m")


def test_the_console_speaks_both_ways(auto: AutomationRig) -> None:
    auto.node.greeting = b"login: "
    with auto.client() as client, client.console("vm1") as console:
        console.expect("login: ", timeout_s=10)
        console.send("hello\n")
        console.expect("hello\n", timeout_s=10)
        console.send(b"x" * 100_000)
        console.expect("x" * 100_000, timeout_s=20)
    (review,) = auto.kube.access
    wanted = review.spec.resource_attributes
    assert wanted is not None
    assert (wanted.resource, wanted.subresource, wanted.verb) == ("virtualmachineinstances", "console", "get")


def test_the_console_ends_with_the_device(auto: AutomationRig) -> None:
    with auto.client() as client, client.console("vm1") as console:
        console.send(b"bye")
        eventually(lambda: console.read(0.1) == b"" and console.ended, within_s=10)


def test_a_device_that_breaks_is_told(auto: AutomationRig) -> None:
    with auto.client() as client, client.console("vm1") as console:
        console.send(b"fail")
        with pytest.raises(PreconditionFailed, match="the device broke"):
            console.expect("never", timeout_s=10)


def test_a_console_is_refused_before_it_opens(auto: AutomationRig) -> None:
    with auto.client() as client:
        auto.kube.allowed = False
        with pytest.raises(Forbidden, match="console"):
            client.console("vm1")
        auto.kube.allowed = True
        auto.kube.vmis["vm1"] = make_vmi(phase="Scheduling")
        with pytest.raises(Invalid, match="not running yet"):
            client.console("vm1")
    assert not auto.node.commands


def test_guest_info_needs_an_agent(auto: AutomationRig) -> None:
    with auto.client() as client, pytest.raises(PreconditionFailed, match="agent"):
        client.guest_info("vm1")


def test_guest_info(auto: AutomationRig) -> None:
    auto.kube.vmis["vm1"] = make_vmi(conditions=("AgentConnected",))
    disks = [{"diskName": "vda1", "mountPoint": "/", "fileSystemType": "ext4", "usedBytes": 1, "totalBytes": 2}]
    answer = {
        "guestAgentVersion": "7.2",
        "hostname": "guest",
        "os": {"id": "debian", "prettyName": "Debian 12", "kernelRelease": "6.1"},
        "userList": [{"userName": "root", "loginTime": 1.5}],
        "fsInfo": {"disks": disks},
    }
    auto.answer("GET", f"{SUB}/virtualmachineinstances/vm1/guestosinfo", answer)
    with auto.client() as client:
        info = client.guest_info("vm1")
    assert (info.hostname, info.os_id, info.os_name, info.kernel_release) == ("guest", "debian", "Debian 12", "6.1")
    assert (info.users, info.filesystems) == (("root",), {"/": (1, 2)})


def follow(auto: AutomationRig, *phases: str) -> None:
    """The object is there in the first phase, and the watch brings the others."""
    items = [document(phase=phases[0])] if phases else []
    auto.answer("GET", COLLECTION, {"items": items, "metadata": {"resourceVersion": "10"}})
    steps = [{"type": "MODIFIED", "object": document(phase=p, version=str(11 + i))} for i, p in enumerate(phases[1:])]
    auto.api.events = [steps] if steps else []


def wait(client: Client, told: list[Progress] | None = None, timeout_s: float = 10) -> object:
    told = [] if told is None else told
    return client.wait("vmi", "vm1", phases=["Running"], timeout_s=timeout_s, on_progress=told.append)


def test_wait_tells_of_each_step(auto: AutomationRig) -> None:
    follow(auto, "Pending", "Scheduling", "Running")
    told: list[Progress] = []
    with auto.client() as client:
        machine = wait(client, told)
    assert getattr(machine, "phase", "") == "Running"
    assert [step.message.split(",")[0] for step in told] == ["Pending", "Scheduling", "Running"]
    assert "waiting for virt-api to admit" in told[0].message
    assert auto.api.asked[0].query["fieldSelector"] == "metadata.name=vm1"


def test_wait_gives_up_when_it_can_not_come_any_more(auto: AutomationRig) -> None:
    follow(auto, "Pending", "Failed")
    with auto.client() as client, pytest.raises(PreconditionFailed, match="ended before it was Running"):
        wait(client)


def test_wait_says_how_far_it_came(auto: AutomationRig) -> None:
    follow(auto, "Scheduling")
    with auto.client() as client, pytest.raises(Timeout, match="not Running after 1 s: Scheduling"):
        wait(client, timeout_s=1)


def test_wait_for_the_end(auto: AutomationRig) -> None:
    follow(auto, "Running")
    auto.api.events = [[{"type": "DELETED", "object": document()}]]
    with auto.client() as client:
        assert client.wait("vmi", "vm1", gone=True, timeout_s=10) is None


def test_wait_needs_a_goal(auto: AutomationRig) -> None:
    with auto.client() as client, pytest.raises(Invalid, match="until"):
        client.wait("vmi", "vm1")
