"""A running machine whose VMI changes: synced when there is something to do, and only then."""

from __future__ import annotations

import copy
import json
from typing import Any

from framework.waiting import eventually

from virt_core.rpc.status import internal, invalid_argument
from virt_protos.launcher.v1 import launcher_pb2 as pb

from .conftest import VMI, Node
from .fakelauncher import FakeLauncher
from .test_handler import HAND_OVER_NOW, start


def link(node: Node, state: str) -> None:
    """As virt-controller would write it."""
    vmi = copy.deepcopy(node.vmi())
    vmi["spec"]["domain"]["devices"]["interfaces"][0]["state"] = state
    node.kube.put(VMI, vmi)


def syncs(launcher: FakeLauncher) -> int:
    return launcher.calls.count("SyncVMI")


def asked(request: pb.SyncVMIRequest) -> Any:
    return json.loads(request.vmi_json)["spec"]["domain"]["devices"]["interfaces"][0].get("state")


def test_each_change_is_synced_once(node: Node, launcher: FakeLauncher) -> None:
    with node.handler():
        start(node, launcher)
        for number, state in enumerate(("down", "up"), start=2):
            link(node, state)
            eventually(lambda number=number: syncs(launcher) == number)
            assert asked(launcher.requests[-1]) == state
    assert len({request.digest for request in launcher.requests}) == 3


def test_a_life_without_changes_has_one_sync(node: Node, launcher: FakeLauncher) -> None:
    """Whatever is written about it: by us, by virt-controller, by users."""
    with node.handler():
        start(node, launcher)
        eventually(lambda: syncs(launcher) == 1)
        for number in range(3):
            launcher.tell(pb.Domain(state=pb.DOMAIN_STATE_PAUSED, reason="User"))
            eventually(lambda: node.condition("Paused"))
            launcher.tell(pb.Domain(state=pb.DOMAIN_STATE_RUNNING, disk_targets={"root": "vda"}))
            eventually(lambda: not node.condition("Paused"))
            vmi = copy.deepcopy(node.vmi())
            vmi["metadata"]["labels"] |= {"number": str(number)}
            vmi["spec"]["nodeSelector"] = {"zone": str(number)}
            node.kube.put(VMI, vmi)
        node.delete_vmi()
        node.phase("Succeeded")
    assert syncs(launcher) == 1


def test_a_later_failure_is_told_and_tried_again(node: Node, launcher: FakeLauncher) -> None:
    with node.handler():
        start(node, launcher)
        launcher.sync_failures = [internal('disk "d" was not attached: no room'), invalid_argument("spec: is wrong")]
        link(node, "down")
        eventually(lambda: node.condition("Synchronized").get("message") == 'disk "d" was not attached: no room')
        assert node.condition("Synchronized")["reason"] == "SyncFailed"
        assert node.vmi()["status"]["phase"] == "Running"
        eventually(lambda: syncs(launcher) == 4)
        eventually(lambda: not node.condition("Synchronized"), 15.0)
    assert node.vmi()["status"]["phase"] == "Running"


def test_what_waits_for_a_restart_is_shown_and_goes(node: Node, launcher: FakeLauncher) -> None:
    with node.handler():
        start(node, launcher)
        launcher.needs = [pb.RestartNeed(field="spec.domain.cpu.sockets", reason="not while it runs")]
        link(node, "down")
        message = "a restart is needed: spec.domain.cpu.sockets: not while it runs"
        eventually(lambda: node.condition("RestartRequired").get("message") == message)
        launcher.needs = []
        link(node, "up")
        eventually(lambda: not node.condition("RestartRequired"), 15.0)


def test_a_change_during_our_absence_is_found_out(node: Node, launcher: FakeLauncher) -> None:
    with node.handler():
        start(node, launcher)
    launcher._channel = None
    link(node, "down")
    with node.handler():
        eventually(lambda: syncs(launcher) == 2)
    assert asked(launcher.requests[-1]) == "down"


def test_a_restart_without_a_change_asks_and_syncs_nothing(node: Node, launcher: FakeLauncher) -> None:
    with node.handler():
        start(node, launcher)
    launcher._channel = None
    with node.handler():
        eventually(lambda: launcher.calls.count("GetDomain") == 2)
        eventually((node.sockets / "notify-sock").exists)
        launcher.tell(pb.Domain(state=pb.DOMAIN_STATE_PAUSED, reason="User"))
        eventually(lambda: node.condition("Paused"))
    assert syncs(launcher) == 1


def test_a_launcher_that_was_asked_half_way_is_asked_again(node: Node, launcher: FakeLauncher) -> None:
    """The process before us died between the change and the answer."""
    with node.handler():
        node.put(**HAND_OVER_NOW)
        launcher.open()
        node.phase("Running")
    launcher._channel, launcher.synced = None, pb.Synced()
    with node.handler():
        eventually(lambda: syncs(launcher) == 2)
