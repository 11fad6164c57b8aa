"""A handler that is newer than the launchers it finds: their guests go on, and what only it knows is refused kindly."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from framework.vmis import UID
from framework.waiting import eventually

from virt_core.rpc import handshake
from virt_core.rpc.status import RpcFailure
from virt_handler.pods import launchers

from .conftest import Node
from .oldlauncher import OldLauncher

HAND_OVER_NOW: dict[str, Any] = {"status": {"handoffs": []}}


@pytest.fixture
def launcher(node: Node) -> Iterator[OldLauncher]:
    old = OldLauncher(node.sockets, UID)
    yield old
    old.close()


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that speaks one version more than there is today."""
    monkeypatch.setattr(launchers, "PROTOCOL_VERSIONS", [*handshake.PROTOCOL_VERSIONS, 2])


@pytest.mark.usefixtures("newer")
def test_machine_of_an_older_launcher_lives_its_whole_life(node: Node, launcher: OldLauncher) -> None:
    with node.handler():
        node.put(**HAND_OVER_NOW)
        launcher.open()
        node.phase("Running")
        assert json.loads(launcher.vmi_json)["metadata"]["uid"] == UID
        launcher.tell("DOMAIN_STATE_PAUSED", "User")
        eventually(lambda: node.condition("Paused").get("reason") == "PausedByUser")
        launcher.tell("DOMAIN_STATE_RUNNING")
        eventually(lambda: not node.condition("Paused"))
        node.delete_vmi()
        node.phase("Succeeded")
        eventually(lambda: "Delete" in launcher.calls)
    assert launcher.calls[0] == "Hello"


@pytest.mark.usefixtures("newer")
def test_new_handler_adopts_the_guest_of_an_older_launcher(node: Node, launcher: OldLauncher) -> None:
    """The upgrade of virt-handler: nothing is started again, nothing is written but what changed."""
    with node.handler():
        node.put(**HAND_OVER_NOW)
        launcher.open()
        node.phase("Running")
    launcher.calls.clear()
    launcher._channel = None
    with node.handler() as handler:
        eventually(lambda: "GetDomain" in launcher.calls)
        launcher.tell("DOMAIN_STATE_PAUSED", "User")
        eventually(lambda: node.condition("Paused").get("status") == "True")
        session = handler.sessions.active(UID)
        assert session is not None
        assert session.launcher is not None
        session.launcher.pause()
    assert "SyncVMI" not in launcher.calls
    assert node.vmi()["status"]["phase"] == "Running"


def test_call_that_the_launcher_does_not_know_is_refused_and_harms_nothing(node: Node, launcher: OldLauncher) -> None:
    with node.handler() as handler:
        node.put(**HAND_OVER_NOW)
        launcher.open()
        node.phase("Running")
        session = handler.sessions.active(UID)
        assert session is not None
        assert session.launcher is not None
        call = session.launcher._channel.unary_unary("/virtpod.launcher.v1.Launcher/OfTomorrow")
        with pytest.raises(RpcFailure) as refused:
            session.launcher._call(call, b"")
        assert refused.value.code is grpc.StatusCode.UNIMPLEMENTED
        launcher.tell("DOMAIN_STATE_PAUSED", "User")
        eventually(lambda: node.condition("Paused").get("status") == "True")


def test_launcher_without_a_common_version_is_left_alone(node: Node, launcher: OldLauncher) -> None:
    """Its guest runs; a handler that cannot talk to it neither ends it nor declares it dead."""
    launcher.versions = (7,)
    launcher.open()
    with node.handler():
        node.put(phase="Running", **HAND_OVER_NOW)
        eventually(lambda: launcher.calls.count("Hello") >= 2)
    assert node.vmi()["status"]["phase"] == "Running"
    assert set(launcher.calls) == {"Hello"}
