"""Several Pods of one VMI: those that wait for its guest, those that it has left, and those of an older handler."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from framework.vmis import NODE, POD_UID, UID
from framework.waiting import eventually

from virt_core.apis import names
from virt_core.apis.podroles import Role
from virt_core.rpc.status import RpcFailure
from virt_handler.main import Handler
from virt_handler.service.node_service import NodeServicer
from virt_protos.launcher.v1 import launcher_pb2 as pb
from virt_protos.node.v1 import node_pb2

from .conftest import VMI, Node
from .fakelauncher import FakeLauncher

RUNNING = pb.Domain(state=pb.DOMAIN_STATE_RUNNING)
PAUSED = pb.Domain(state=pb.DOMAIN_STATE_PAUSED, reason="User")
ELSEWHERE = "node2"
REMOTE_POD = "eeeeeeee-0000-0000-0000-000000000000"
SECOND_POD = "bbbbbbbb-0000-0000-0000-000000000000"


def put(node: Node, runs_on: str, pods: dict[str, str], target: str = "") -> None:
    """The VMI with these Pods, its guest on one node and perhaps on its way to another; labels as virt-controller's."""
    labels = {names.LABEL_NODE_NAME: runs_on} | ({names.LABEL_MIGRATION_TARGET_NODE: target} if target else {})
    status: dict[str, Any] = {"nodeName": runs_on, "activePods": pods}
    if target:
        status["migrationState"] = {"migrationUid": "job", "targetNode": target}
    node.put(phase="Running", status=status, metadata={"labels": labels})


def role_here(handler: Handler, pod_uid: str = POD_UID) -> Role | None:
    session = handler.sessions.get(pod_uid)
    return session.role if session is not None else None


def met(handler: Handler, pod_uid: str, role: Role | None) -> bool:
    session = handler.sessions.get(pod_uid)
    return session is not None and session.launcher is not None and session.role is role


def pause(handler: Handler, node: Node) -> None:
    """As virt-api would, for its user."""
    servicer = NodeServicer(NODE, handler.sessions, handler.files)
    ref = node_pb2.VMIRef(namespace="default", name="vm", uid=UID)
    servicer.Pause(node_pb2.VMIRequest(vmi=ref), None)  # type: ignore[arg-type]


def test_guest_moves_in(node: Node, launcher: FakeLauncher) -> None:
    """While it arrives the node gets ready and says nothing; once it is whole the node takes it over, and speaks."""
    launcher.open()
    with node.handler() as handler:
        put(node, ELSEWHERE, {REMOTE_POD: ELSEWHERE, POD_UID: NODE}, target=NODE)
        eventually(lambda: met(handler, POD_UID, Role.TARGET))
        eventually(lambda: node.kept("network") == [f"{POD_UID}.json"])
        assert json.loads((node.root / "netsetup.plan").read_text())["podUid"] == POD_UID
        launcher.tell(pb.Domain(state=pb.DOMAIN_STATE_PAUSED, reason="Migration"))
        with pytest.raises(RpcFailure, match="has no guest on node node1") as refused:
            pause(handler, node)
        assert refused.value.code is grpc.StatusCode.FAILED_PRECONDITION
        assert node.vmi_writes() == 0
        # The label of the target goes and that of the node comes: the VMI leaves one watch and enters the other.
        launcher.tell(PAUSED)
        eventually(lambda: node.condition("Paused").get("reason") == "PausedByUser")
        eventually(lambda: met(handler, POD_UID, Role.ACTIVE))
        pause(handler, node)
    assert launcher.calls.count("Pause") == 1
    assert not {"Shutdown", "Kill", "Delete"} & set(launcher.calls)


def test_guest_that_moved_in_becomes_what_its_vmi_asks_for(node: Node, launcher: FakeLauncher) -> None:
    """What was wished while it was under way is done when it is here, and what is wished later like anywhere."""
    launcher.open()
    with node.handler() as handler:
        put(node, ELSEWHERE, {REMOTE_POD: ELSEWHERE, POD_UID: NODE}, target=NODE)
        eventually(lambda: met(handler, POD_UID, Role.TARGET))
        eventually(lambda: node.kept("network"))
        launcher.tell(pb.Domain(state=pb.DOMAIN_STATE_PAUSED, reason="Migration"))
        assert "SyncVMI" not in launcher.calls
        launcher.tell(RUNNING)
        eventually(lambda: launcher.calls.count("SyncVMI") == 1)
        assert node.vmi()["status"]["nodeName"] == NODE
        vmi = copy.deepcopy(node.vmi())
        vmi["spec"]["domain"]["devices"]["interfaces"][0]["state"] = "down"
        node.kube.put(VMI, vmi)
        eventually(lambda: launcher.calls.count("SyncVMI") == 2)
    asked = [json.loads(each.vmi_json)["spec"]["domain"]["devices"]["interfaces"][0] for each in launcher.requests]
    assert [each.get("state") for each in asked] == [None, "down"]


def test_guest_moves_away(node: Node, launcher: FakeLauncher) -> None:
    """No label names this node any more, but its launcher is still here: the VMI is not gone, its guest is."""
    launcher.domain = RUNNING
    launcher.open()
    with node.handler() as handler:
        put(node, NODE, {POD_UID: NODE})
        eventually(lambda: node.vmi_writes() == 1)
        put(node, ELSEWHERE, {POD_UID: NODE, REMOTE_POD: ELSEWHERE})
        eventually(lambda: role_here(handler) is Role.SOURCE)
        launcher.tell(pb.Domain(state=pb.DOMAIN_STATE_SHUTOFF, reason="Crashed"))
        put(node, ELSEWHERE, {REMOTE_POD: ELSEWHERE})
        handler.queue.add("default/vm")
        eventually(lambda: role_here(handler) is None)
        assert node.vmi_writes() == 1
        assert not {"Shutdown", "Kill", "Delete"} & set(launcher.calls)
        assert node.vmi()["status"]["phase"] == "Running"


def test_launcher_of_a_vmi_that_moved_away_and_was_removed_is_stopped(node: Node, launcher: FakeLauncher) -> None:
    launcher.domain = RUNNING
    launcher.open()
    with node.handler() as handler:
        put(node, NODE, {POD_UID: NODE})
        eventually(lambda: met(handler, POD_UID, Role.ACTIVE))
        put(node, ELSEWHERE, {POD_UID: NODE, REMOTE_POD: ELSEWHERE})
        eventually(lambda: role_here(handler) is Role.SOURCE)
        node.kube.remove(VMI)
        handler.queue.add("default/vm")
        eventually(lambda: "Shutdown" in launcher.calls)


@pytest.fixture
def process(node: Node) -> Iterator[subprocess.Popen[str]]:
    """A launcher of the first Pod that can be killed."""
    program = [sys.executable, str(Path(__file__).parent / "fakelauncher.py"), str(node.sockets), UID]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as started:
        node.pod_of = lambda pid: POD_UID if pid == started.pid else SECOND_POD
        yield started
        started.kill()


@pytest.fixture
def second(node: Node) -> Iterator[FakeLauncher]:
    fake = FakeLauncher(node.add_pod(SECOND_POD)[0], UID)
    yield fake
    fake.close()


def test_target_that_ends_is_forgotten_and_the_vmi_goes_on(node: Node, process: subprocess.Popen[str]) -> None:
    with node.handler() as handler:
        put(node, ELSEWHERE, {REMOTE_POD: ELSEWHERE, POD_UID: NODE}, target=NODE)
        eventually(lambda: met(handler, POD_UID, Role.TARGET), within_s=20)
        eventually(lambda: node.kept("network"))
        process.kill()
        eventually(lambda: not list(handler.sessions))
        assert node.ghosts() == node.kept("network") == []
        # It stays recorded for a while; that opens no new session for a launcher that has ended.
        put(node, ELSEWHERE, {REMOTE_POD: ELSEWHERE, POD_UID: NODE}, target=NODE)
        put(node, ELSEWHERE, {REMOTE_POD: ELSEWHERE, POD_UID: NODE, SECOND_POD: NODE}, target=NODE)
        eventually(lambda: handler.sessions.get(SECOND_POD) is not None)
        assert handler.sessions.get(POD_UID) is None
        assert node.vmi_writes() == 0


def test_two_pods_of_one_vmi_on_one_node(node: Node, process: subprocess.Popen[str], second: FakeLauncher) -> None:
    """The guest went away and comes back while its first Pod is still here."""
    second.domain = pb.Domain(state=pb.DOMAIN_STATE_PAUSED, reason="Migration")
    second.open()
    with node.handler() as handler:
        node.put(status={"handoffs": []})
        node.phase("Running", within_s=20)
        put(node, ELSEWHERE, {REMOTE_POD: ELSEWHERE, SECOND_POD: NODE}, target=NODE)
        eventually(lambda: met(handler, SECOND_POD, Role.TARGET))
        eventually(lambda: f"{SECOND_POD}.json" in node.kept("network"))
        put(node, NODE, {SECOND_POD: NODE})
        eventually(lambda: met(handler, SECOND_POD, Role.ACTIVE))
        assert {each.pod_uid for each in handler.sessions.of_vmi(UID)} == {POD_UID, SECOND_POD}
        process.kill()
        eventually(lambda: node.ghosts() == [f"{SECOND_POD}.json"])
        second.tell(PAUSED)
        eventually(lambda: node.condition("Paused").get("reason") == "PausedByUser")
        pause(handler, node)
        assert node.vmi()["status"]["phase"] == "Running"
    assert "Pause" in second.calls
    assert not {"SyncVMI", "Shutdown", "Kill", "Delete"} & set(second.calls)


def test_guest_survives_the_upgrade_from_a_handler_that_kept_all_by_vmi(
    node: Node, process: subprocess.Popen[str]
) -> None:
    with node.handler():
        node.put(status={"handoffs": []})
        node.phase("Running", within_s=20)
        (node.root / "netsetup.plan").unlink()
    state = node.root / "state"
    for purpose in ("ghosts", "network"):
        os.rename(state / purpose / f"{POD_UID}.json", state / purpose / f"{UID}.json")
    (state / "netsetup" / UID).mkdir(parents=True)
    writes = node.vmi_writes()
    with node.handler() as handler:
        eventually(lambda: met(handler, POD_UID, Role.ACTIVE))
        assert node.ghosts() == node.kept("network") == [f"{POD_UID}.json"]
        assert node.kept("netsetup") == [POD_UID]
        session = handler.sessions.active(UID)
        assert session is not None
        eventually(session.runs)
        assert node.vmi_writes() == writes
        assert not (node.root / "netsetup.plan").exists(), "its network is not wired again"
        assert node.vmi()["status"]["interfaces"][0]["ipAddress"] == "10.1.2.3"
        process.kill()
        node.phase("Failed")
        eventually(lambda: not node.ghosts())
        assert node.kept("network") == node.kept("netsetup") == []
