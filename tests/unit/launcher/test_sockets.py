"""The two sockets with real gRPC: commands become manager calls and status codes, states reach virt-handler."""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.unit.launcher.cases import UID
from tests.unit.launcher.parts import Parts, make_parts
from virt_core.rpc.channel import unix_channel
from virt_core.rpc.server import RpcServer, serve_unix
from virt_launcher.hypervisor.ports import AgentFilesystem, AgentReport, AgentUser, State
from virt_launcher.machine.state import MachineView
from virt_launcher.service.cmd_server import LauncherService, options_from, serve
from virt_launcher.service.notify_client import NotifyClient
from virt_protos.launcher.v1 import launcher_pb2 as pb
from virt_protos.launcher.v1.launcher_pb2_grpc import LauncherStub
from virt_protos.notify.v1 import notify_pb2
from virt_protos.notify.v1.notify_pb2_grpc import NotifyServicer, add_NotifyServicer_to_server

VMI = {"metadata": {"name": "vm1", "namespace": "ns", "uid": UID}, "spec": {"domain": {"memory": {"guest": "64Mi"}}}}


@pytest.fixture
def short_dir() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="vl-") as path:  # Sockets have 107 bytes.
        yield Path(path)


@pytest.fixture
def parts(short_dir: Path) -> Parts:
    return make_parts(short_dir)


@pytest.fixture
def stub(parts: Parts) -> Iterator[LauncherStub]:
    changes: list[int] = []
    server = serve(parts.settings, LauncherService(parts.settings, parts.manager, lambda: changes.append(1)))
    parts.settings.paths.init_socket.rename(parts.settings.paths.command_socket)
    with unix_channel(str(parts.settings.paths.command_socket)) as channel:
        yield LauncherStub(channel)
    server.stop(0)


def sync(stub: LauncherStub, body: Any = VMI) -> pb.SyncVMIResponse:
    return stub.SyncVMI(pb.SyncVMIRequest(vmi_json=json.dumps(body).encode()))


def failure(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    error: Any = caught.value
    return error.code(), error.details()


def test_a_machines_life(stub: LauncherStub) -> None:
    assert not stub.GetDomain(pb.GetDomainRequest()).HasField("domain")
    answer = sync(stub)
    assert answer.domain.state == pb.DOMAIN_STATE_RUNNING
    assert [h.name for h in answer.handoffs] == ["domain-defined", "guest-started"]
    stub.Pause(pb.PauseRequest())
    assert stub.GetDomain(pb.GetDomainRequest()).domain.state == pb.DOMAIN_STATE_PAUSED
    stub.Unpause(pb.UnpauseRequest())
    stub.Shutdown(pb.ShutdownRequest())
    stub.Kill(pb.KillRequest())
    stub.Delete(pb.DeleteRequest())
    stub.Ping(pb.PingRequest())
    assert stub.GetDomain(pb.GetDomainRequest()).domain.reason == "Destroyed"


def test_status_codes(stub: LauncherStub, parts: Parts) -> None:
    assert failure(lambda: stub.Pause(pb.PauseRequest()))[0] is grpc.StatusCode.NOT_FOUND
    code, text = failure(lambda: sync(stub, VMI | {"spec": {"domain": {}}}))
    assert (code, text) == (grpc.StatusCode.INVALID_ARGUMENT, "spec.domain.memory.guest: is required")
    code, text = failure(lambda: stub.SyncVMI(pb.SyncVMIRequest(vmi_json=b'{"spec": 3}')))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "$.spec" in text
    parts.hypervisor.refuses = "no"
    assert failure(lambda: sync(stub)) == (grpc.StatusCode.INTERNAL, "QEMU did not start: no")
    parts.hypervisor.refuses = ""
    sync(stub)
    assert failure(lambda: stub.Delete(pb.DeleteRequest()))[0] is grpc.StatusCode.FAILED_PRECONDITION
    assert failure(lambda: stub.GetGuestInfo(pb.GetGuestInfoRequest()))[0] is grpc.StatusCode.FAILED_PRECONDITION
    parts.hypervisor.broken = True
    assert failure(lambda: stub.Pause(pb.PauseRequest()))[0] is grpc.StatusCode.UNAVAILABLE


def test_hello(stub: LauncherStub) -> None:
    assert stub.Hello(pb.HelloRequest(versions=[1])).vmi_uid == UID
    assert failure(lambda: stub.Hello(pb.HelloRequest(versions=[7])))[0] is grpc.StatusCode.FAILED_PRECONDITION


def test_options_keep_defaults_where_nothing_is_said() -> None:
    options = options_from(pb.SyncOptions(smbios=pb.SMBios(family="f"), memballoon_stats_period_seconds=0))
    assert (options.smbios.family, options.smbios.manufacturer) == ("f", "Virtpod")
    assert options.memballoon_stats_period_s == 0  # Off: the node always says what it wants.
    attachment = pb.InterfaceAttachment(name="n", tap="tap0", mac="m", mtu=1, queues=2)
    assert options_from(pb.SyncOptions(interfaces=[attachment])).attachments["n"].queues == 2


class Handler(NotifyServicer):
    def __init__(self) -> None:
        self.seen: list[tuple[int, str]] = []
        self.remarks: list[str] = []
        self.changed = threading.Condition()

    def Hello(self, request: Any, context: Any) -> Any:
        return notify_pb2.HelloResponse(version=1)

    def DomainChanged(self, request: Any, context: Any) -> Any:
        with self.changed:
            self.seen.append((request.sequence, request.domain.reason))
            self.changed.notify_all()
        return notify_pb2.DomainChangedResponse()

    def RecordEvent(self, request: Any, context: Any) -> Any:
        with self.changed:
            self.remarks.append(request.message)
            self.changed.notify_all()
        return notify_pb2.RecordEventResponse()

    def wait(self, check: Any) -> None:
        with self.changed:
            assert self.changed.wait_for(check, 10)


class TestNotify:
    @pytest.fixture
    def socket(self, short_dir: Path) -> Path:
        return short_dir / "notify-sock"

    @pytest.fixture
    def client(self, socket: Path) -> Iterator[NotifyClient]:
        client, stop = NotifyClient(socket), threading.Event()
        thread = threading.Thread(target=client.run, args=(stop,))
        thread.start()
        yield client
        stop.set()
        client.wake()
        thread.join(10)
        assert not thread.is_alive()

    def serve(self, handler: Handler, socket: Path) -> RpcServer:
        return serve_unix(str(socket), [lambda server: add_NotifyServicer_to_server(handler, server)])

    def view(self, reason: str) -> MachineView:
        return MachineView(name="n", state=State.PAUSED, reason=reason)

    def test_only_the_newest_state_waits_for_virt_handler(self, client: NotifyClient, socket: Path) -> None:
        for reason in ("one", "two", "three"):
            client.publish(self.view(reason))
        assert not client.flush(0.01)
        handler = Handler()
        server = self.serve(handler, socket)
        assert client.flush(10)
        assert handler.seen[-1][1] == "three"
        assert [reason for _, reason in handler.seen] == ["three"]
        server.stop(0)

    def test_remarks_are_sent_once_and_bounded(self, client: NotifyClient, socket: Path) -> None:
        for number in range(100):
            client.record("Warning", "R", str(number))
        handler = Handler()
        server = self.serve(handler, socket)
        handler.wait(lambda: handler.remarks[-1:] == ["99"])
        assert len(handler.remarks) == 16
        server.stop(0)

    def test_a_new_virt_handler_gets_the_state_again(self, client: NotifyClient, socket: Path) -> None:
        first = Handler()
        server = self.serve(first, socket)
        client.publish(self.view("one"))
        assert client.flush(10)
        server.stop(0)
        socket.unlink(missing_ok=True)
        second = Handler()
        server = self.serve(second, socket)
        second.wait(lambda: second.seen)
        assert second.seen[0][1] == "one"
        assert second.seen[0][0] > first.seen[-1][0]
        server.stop(0)


def test_controls_over_the_socket(stub: LauncherStub, parts: Parts) -> None:
    assert failure(lambda: stub.Reset(pb.ResetRequest()))[0] is grpc.StatusCode.NOT_FOUND
    sync(stub)
    stub.SoftReboot(pb.SoftRebootRequest())
    stub.Reset(pb.ResetRequest())
    assert stub.Screenshot(pb.ScreenshotRequest()).image.startswith(b"\x89PNG")
    freeze = pb.FreezeRequest(unfreeze_timeout_seconds=60)
    assert failure(lambda: stub.Freeze(freeze))[0] is grpc.StatusCode.FAILED_PRECONDITION
    too_long = pb.FreezeRequest(unfreeze_timeout_seconds=100_000)
    assert failure(lambda: stub.Freeze(too_long))[0] is grpc.StatusCode.INVALID_ARGUMENT
    parts.hypervisor.report = AgentReport()
    parts.hypervisor.users = (AgentUser("root", login_time=1.5),)
    parts.hypervisor.filesystems = (AgentFilesystem("vda1", "/"),)
    stub.Freeze(freeze)
    stub.Unfreeze(pb.UnfreezeRequest())
    assert stub.GetUsers(pb.GetUsersRequest()).users[0].login_time == 1.5
    assert stub.GetFilesystems(pb.GetFilesystemsRequest()).filesystems[0].mount_point == "/"
    done = [call for call in parts.hypervisor.calls if call in ("reboot", "reset", "freeze", "thaw")]
    assert done == ["reboot", "reset", "freeze", "thaw"], "without an agent nothing is frozen"
