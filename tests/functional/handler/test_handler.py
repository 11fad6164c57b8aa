"""A VMI's life on its node, from the hand-over to the removal, and what a restart of the handler changes: nothing."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from framework import fake_netsetup
from framework.vmis import POD_UID, UID
from framework.waiting import eventually

from virt_core.rpc.status import failure_of, invalid_argument, unavailable
from virt_handler.loop import pulse, watchdog
from virt_handler.pods import notify_server
from virt_protos.launcher.v1 import launcher_pb2 as pb
from virt_protos.notify.v1 import notify_pb2

from .conftest import Node
from .fakelauncher import FakeLauncher

RUNNING = pb.Domain(state=pb.DOMAIN_STATE_RUNNING)
HAND_OVER_NOW = {"status": {"handoffs": []}}


def start(node: Node, launcher: FakeLauncher) -> None:
    node.put(**HAND_OVER_NOW)
    launcher.open()
    node.phase("Running")


def test_one_write_from_scheduled_to_running(node: Node, launcher: FakeLauncher) -> None:
    """The launcher comes late; nothing polls for it; all that is to say is said at once."""
    with node.handler():
        node.put(**HAND_OVER_NOW)
        eventually((node.sockets / "notify-sock").exists)
        eventually((node.root / "netsetup.plan").exists)
        assert not launcher.calls
        launcher.open()
        status = node.phase("Running")
        eventually(lambda: launcher.calls.count("SyncVMI") == 1)
    assert node.vmi_writes() == 1
    assert [h["name"] for h in status["handoffs"]] == [
        "network-ready",
        "launcher-ready",
        "domain-defined",
        "guest-started",
        "running",
    ]
    assert status["interfaces"][0]["ipAddress"] == "10.1.2.3"
    assert node.condition("Ready")["status"] == "True"
    (request,) = launcher.requests
    assert json.loads(request.vmi_json)["metadata"]["uid"] == UID
    assert [(i.name, i.tap, i.mtu) for i in request.options.interfaces] == [("default", "tap0", 1500)]
    plan = json.loads((node.root / "netsetup.plan").read_text())
    assert plan["interfaces"][0]["binding"] == "masquerade"


def test_events_of_the_machine_become_conditions(node: Node, launcher: FakeLauncher) -> None:
    with node.handler():
        start(node, launcher)
        launcher.tell(pb.Domain(state=pb.DOMAIN_STATE_PAUSED, reason="User"))
        eventually(lambda: node.condition("Paused").get("reason") == "PausedByUser")
        launcher.tell(RUNNING)
        eventually(lambda: not node.condition("Paused"))
        assert node.condition("Ready")["status"] == "True"


def test_sync_that_fails_is_told_and_tried_again(node: Node, launcher: FakeLauncher) -> None:
    launcher.sync_failures = [unavailable("libvirt is away")]
    with node.handler():
        node.put(**HAND_OVER_NOW)
        launcher.open()
        eventually(lambda: node.condition("Synchronized").get("message") == "libvirt is away")
        node.phase("Running")
        assert not node.condition("Synchronized")


def test_impossible_vmi_fails_with_the_launchers_words(node: Node, launcher: FakeLauncher) -> None:
    launcher.sync_failures = [invalid_argument("spec.domain.firmware: /boot/none is not in the image")]
    with node.handler():
        node.put(**HAND_OVER_NOW)
        launcher.open()
        assert node.phase("Failed")["reason"] == "InvalidSpec"
        assert "/boot/none" in node.condition("Synchronized")["message"]


def test_network_failure_fails_the_vmi(node: Node, launcher: FakeLauncher) -> None:
    node.netsetup.with_suffix(fake_netsetup.ANSWER).write_text(
        '{"error":{"step":"bridge","message":"no eth0","critical":true}}'
    )
    with node.handler():
        node.put(**HAND_OVER_NOW)
        status = node.phase("Failed")
        assert status["reason"] == "NetworkSetupFailed"
        assert node.condition("Synchronized")["message"] == "bridge: no eth0"


def test_delete_shuts_down_reports_and_forgets(node: Node, launcher: FakeLauncher) -> None:
    with node.handler():
        start(node, launcher)
        node.delete_vmi()
        node.phase("Succeeded")
        eventually(lambda: launcher.calls[-2:] == ["Shutdown", "Delete"])
        eventually(
            lambda: node.events("ShuttingDown", "Deleted") == [("ShuttingDown", "Normal"), ("Deleted", "Normal")]
        )
    assert node.ghosts() == [f"{POD_UID}.json"], "the launcher has not ended yet"


def test_guest_that_does_not_listen_is_killed_after_its_grace(node: Node, launcher: FakeLauncher) -> None:
    launcher.shuts_down = False
    with node.handler():
        node.put(status={"handoffs": []}, spec={"terminationGracePeriodSeconds": 1})
        launcher.open()
        node.phase("Running")
        node.delete_vmi()
        assert node.phase("Failed")["reason"] == "GuestKilled"
        assert "Kill" in launcher.calls
        # One when it was asked, one when it was ended.
        eventually(lambda: node.events("Deleted") == [("Deleted", "Normal")] * 2)


def test_new_handler_takes_over_without_touching_anything(node: Node, launcher: FakeLauncher) -> None:
    with node.handler():
        start(node, launcher)
    launcher.close()
    node.sockets.joinpath("launcher-sock").unlink(missing_ok=True)
    again = FakeLauncher(node.sockets, UID, launcher.domain)
    again.open()
    writes = node.vmi_writes()
    try:
        with node.handler() as handler:
            eventually(lambda: handler.sessions.active(UID) is not None and handler.sessions.active(UID).runs())  # type: ignore[union-attr]
            eventually((node.sockets / "notify-sock").exists)
            again.tell(pb.Domain(state=pb.DOMAIN_STATE_SHUTOFF, reason="Crashed", message="QEMU was killed"))
            assert node.phase("Failed")["reason"] == "LauncherFailed"
        assert node.vmi_writes() == writes + 1
        assert "SyncVMI" not in again.calls
    finally:
        again.close()


def test_interfaces_survive_a_restart(node: Node, launcher: FakeLauncher) -> None:
    """The network report is on disk: no second run of the program, and the address stays."""
    with node.handler():
        start(node, launcher)
        (node.root / "netsetup.plan").unlink()
    with node.handler() as handler:
        eventually(lambda: handler.sessions.active(UID) is not None and handler.sessions.active(UID).runs())  # type: ignore[union-attr]
        launcher._channel = None
        eventually((node.sockets / "notify-sock").exists)
        launcher.tell(pb.Domain(state=pb.DOMAIN_STATE_PAUSED, reason="User"))
        eventually(lambda: node.condition("Paused"))
    assert node.vmi()["status"]["interfaces"][0]["ipAddress"] == "10.1.2.3"
    assert not (node.root / "netsetup.plan").exists()


@pytest.fixture
def launcher_process(node: Node) -> subprocess.Popen[str]:
    program = [sys.executable, str(Path(__file__).parent / "fakelauncher.py"), str(node.sockets), UID]
    return subprocess.Popen(program, stdout=subprocess.PIPE, text=True)


def test_killed_launcher_is_noticed(node: Node, launcher_process: subprocess.Popen[str]) -> None:
    try:
        with node.handler():
            node.put(**HAND_OVER_NOW)
            node.phase("Running", within_s=20)
            launcher_process.send_signal(signal.SIGKILL)
            assert node.phase("Failed")["reason"] == "LauncherFailed"
            assert "launcher" in node.condition("Synchronized")["message"]
            eventually(lambda: not node.ghosts())
            assert not (node.sockets / "notify-sock").exists()
    finally:
        launcher_process.kill()
        launcher_process.wait(5)
        assert launcher_process.stdout is not None
        launcher_process.stdout.close()


def test_launcher_that_ended_during_our_absence_is_reported(node: Node, launcher: FakeLauncher) -> None:
    with node.handler():
        start(node, launcher)
    launcher.close()
    with node.handler():
        assert node.phase("Failed")["reason"] == "LauncherFailed"
        eventually(lambda: not node.ghosts())


def test_vmi_that_was_removed_during_our_absence_is_cleaned_up(node: Node, launcher: FakeLauncher) -> None:
    with node.handler():
        start(node, launcher)
    launcher.close()
    node.kube.remove("/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/vm")
    shutil.rmtree(node.pods / POD_UID)
    with node.handler() as handler:
        eventually(lambda: not node.ghosts())
        eventually(lambda: not list(handler.sessions))


def test_machine_of_a_removed_vmi_is_ended(node: Node, launcher: FakeLauncher) -> None:
    """The object was removed by force while we were away; its guest must not run on unseen."""
    with node.handler():
        start(node, launcher)
    node.kube.remove("/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/vm")
    launcher._channel = None
    with node.handler():
        eventually(lambda: "Shutdown" in launcher.calls)


# What a launcher that was taken over may try


def test_symlink_in_the_sockets_place_is_refused(node: Node, tmp_path: Path) -> None:
    """CVE-2025-64437: the link leads to a socket of the node."""
    with socket.socket(socket.AF_UNIX) as target:
        target.bind(str(tmp_path / "cri.sock"))
        target.listen()
        target.setblocking(False)
        (node.sockets / "launcher-sock").symlink_to(tmp_path / "cri.sock")
        with node.handler():
            node.put(**HAND_OVER_NOW)
            assert node.phase("Failed")["reason"] == "LauncherFailed"
            assert "link" in node.condition("Synchronized")["message"]
        with pytest.raises(BlockingIOError):
            target.accept()


def test_plain_file_in_the_sockets_place_is_refused(node: Node) -> None:
    (node.sockets / "launcher-sock").write_text("")
    with node.handler():
        node.put(**HAND_OVER_NOW)
        assert node.phase("Failed")["reason"] == "LauncherFailed"


def test_symlinked_volume_is_refused(node: Node, tmp_path: Path) -> None:
    """The directory itself is swapped for a link."""
    elsewhere = tmp_path / "elsewhere"
    node.sockets.rename(elsewhere)
    node.sockets.symlink_to(elsewhere)
    with node.handler():
        node.put(**HAND_OVER_NOW)
        assert node.phase("Failed")["reason"] == "LauncherFailed"
    assert not (elsewhere / "notify-sock").exists()


def test_listener_of_another_pod_is_refused(node: Node, launcher: FakeLauncher) -> None:
    launcher.open()
    with node.handler() as handler:
        handler.contacts._pod_of = lambda _pid: "another-pod"
        node.put(**HAND_OVER_NOW)
        assert node.phase("Failed")["reason"] == "LauncherFailed"
    assert not launcher.calls, "nothing was said to it"


def test_launcher_of_another_vmi_is_refused(node: Node) -> None:
    wrong = FakeLauncher(node.sockets, "another-uid")
    wrong.open()
    try:
        with node.handler():
            node.put(**HAND_OVER_NOW)
            node.phase("Failed")
        assert "SyncVMI" not in wrong.calls
    finally:
        wrong.close()


def test_something_else_in_the_listeners_place_is_replaced(node: Node, launcher: FakeLauncher, tmp_path: Path) -> None:
    """A link at notify-sock is removed itself; what it leads to stays."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (node.sockets / "notify-sock").symlink_to(victim)
    with node.handler():
        start(node, launcher)
    assert victim.read_text() == "precious"


def test_floods_are_refused_and_the_state_is_still_learnt(node: Node, launcher: FakeLauncher) -> None:
    with node.handler():
        start(node, launcher)
        codes = set()
        for number in range(100, 200):
            try:
                launcher.stub().DomainChanged(notify_pb2.DomainChangedRequest(domain=RUNNING, sequence=number))
            except grpc.RpcError as error:
                codes.add(failure_of(error).code)
        assert codes == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        launcher.domain = pb.Domain(state=pb.DOMAIN_STATE_PAUSED, reason="User")
        eventually(lambda: node.condition("Paused"))


def test_launcher_that_was_let_go_for_its_silence_speaks_again(
    node: Node, launcher: FakeLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its channel connects anew by itself; no message is lost over it."""
    monkeypatch.setattr(notify_server, "_IDLE_S", 0.2)
    with node.handler() as handler:
        start(node, launcher)
        eventually(lambda: not handler.gate._sides)
        request = notify_pb2.DomainChangedRequest(
            domain=pb.Domain(state=pb.DOMAIN_STATE_PAUSED, reason="User"), sequence=100
        )
        launcher.stub().DomainChanged(request)
        eventually(lambda: node.condition("Paused").get("reason") == "PausedByUser")


def test_oversized_messages_are_refused(node: Node, launcher: FakeLauncher) -> None:
    with node.handler():
        start(node, launcher)
        huge = notify_pb2.DomainChangedRequest(domain=pb.Domain(message="x" * (1 << 20)), sequence=99)
        with pytest.raises(grpc.RpcError) as caught:
            launcher.stub().DomainChanged(huge)
        assert failure_of(caught.value).code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert node.vmi()["status"]["phase"] == "Running"


@pytest.mark.parametrize("reason", ["lower", "Has Space", "", "X" * 100])
def test_events_must_look_like_events(node: Node, launcher: FakeLauncher, reason: str) -> None:
    with node.handler():
        start(node, launcher)
        with pytest.raises(grpc.RpcError) as caught:
            launcher.stub().RecordEvent(notify_pb2.RecordEventRequest(type="Warning", reason=reason, message="m"))
        assert failure_of(caught.value).code is grpc.StatusCode.INVALID_ARGUMENT


def test_event_of_a_launcher_is_recorded_on_its_own_vmi(node: Node, launcher: FakeLauncher) -> None:
    with node.handler():
        start(node, launcher)
        launcher.stub().RecordEvent(
            notify_pb2.RecordEventRequest(type="Warning", reason="IOerror", message="disk full")
        )
        event = eventually(lambda: [o for o in list(node.kube.objects.values()) if o.get("reason") == "IOerror"])[0]
        assert event["involvedObject"]["uid"] == UID


def test_launcher_that_hangs_is_doubted_and_comes_back(
    node: Node, launcher_process: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGSTOP: alive, but silent. Once it answers again, nothing has happened."""
    hasten(monkeypatch, doubt_s=1.0, lost_s=600.0)
    with ended_afterwards(launcher_process), node.handler():
        node.put(**HAND_OVER_NOW)
        node.phase("Running", within_s=20)
        launcher_process.send_signal(signal.SIGSTOP)
        eventually(lambda: node.condition("Synchronized").get("reason") == "LauncherUnresponsive")
        assert node.vmi()["status"]["phase"] == "Running"
        launcher_process.send_signal(signal.SIGCONT)
        eventually(lambda: not node.condition("Synchronized"), within_s=10)
        assert node.vmi()["status"]["phase"] == "Running"


def test_launcher_that_hangs_for_good_is_ended_and_told(
    node: Node, launcher_process: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hasten(monkeypatch, doubt_s=0.5, lost_s=1.0)
    with ended_afterwards(launcher_process), node.handler():
        node.put(**HAND_OVER_NOW)
        node.phase("Running", within_s=20)
        launcher_process.send_signal(signal.SIGSTOP)
        assert node.phase("Failed", within_s=30)["reason"] == "LauncherUnresponsive"
        assert launcher_process.wait(5) == -signal.SIGKILL
        eventually(lambda: not node.ghosts())


def test_messages_of_its_pod_do_not_speak_for_a_launcher_that_hangs(
    node: Node, launcher: FakeLauncher, launcher_process: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody in the Pod talks on while the launcher itself stands still: it is found out all the same."""
    hasten(monkeypatch, doubt_s=0.5, lost_s=1.0)
    with ended_afterwards(launcher_process), node.handler():
        node.put(**HAND_OVER_NOW)
        node.phase("Running", within_s=20)
        launcher_process.send_signal(signal.SIGSTOP)
        numbers = itertools.count(1000)

        def talked_on() -> bool:
            request = notify_pb2.DomainChangedRequest(domain=RUNNING, sequence=next(numbers))
            with contextlib.suppress(grpc.RpcError):
                launcher.stub().DomainChanged(request, timeout=1)
            return str(node.vmi()["status"].get("reason", "")) == "LauncherUnresponsive"

        eventually(talked_on, within_s=30, every_s=0.05)
        assert launcher_process.wait(5) == -signal.SIGKILL


def hasten(monkeypatch: pytest.MonkeyPatch, *, doubt_s: float, lost_s: float) -> None:
    for name, value in (
        ("PING_EVERY_S", 0.3),
        ("PING_DEADLINE_S", 0.2),
        ("DOUBT_AFTER_S", doubt_s),
        ("LOST_AFTER_S", lost_s),
        # The real share belongs to a real deadline; a test machine is never this idle.
        ("_STARVED_SHARE", 5.0),
    ):
        monkeypatch.setattr(pulse, name, value)
    monkeypatch.setattr(watchdog, "PING_DEADLINE_S", 0.2)


@contextlib.contextmanager
def ended_afterwards(process: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()
        process.wait(5)
        assert process.stdout is not None
        process.stdout.close()
