"""A launcher without libvirt: the real sockets and contracts, a machine that only pretends.

As a module it serves in the test's own process; as a program (`python fakelauncher.py SOCKETS_DIR VMI_UID`) it is a
process that can be killed.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from virt_core.rpc.channel import unix_channel
from virt_core.rpc.server import serve_unix
from virt_core.rpc.status import RpcFailure
from virt_protos.launcher.v1 import launcher_pb2 as pb
from virt_protos.launcher.v1 import launcher_pb2_grpc
from virt_protos.notify.v1 import notify_pb2
from virt_protos.notify.v1.notify_pb2_grpc import NotifyStub

STARTED = pb.Domain(
    state=pb.DOMAIN_STATE_RUNNING,
    machine_type="pc-q35-7.2",
    interfaces=[pb.GuestInterface(name="default", mac="02:00:00:00:00:01", from_domain=True)],
)


class FakeLauncher(launcher_pb2_grpc.LauncherServicer):
    def __init__(self, sockets: Path, vmi_uid: str, domain: pb.Domain | None = None) -> None:
        self.sockets, self.vmi_uid = sockets, vmi_uid
        self.domain = domain or pb.Domain(state=pb.DOMAIN_STATE_ABSENT)
        self.calls: list[str] = []
        self.requests: list[pb.SyncVMIRequest] = []
        self.sync_failures: list[RpcFailure] = []
        self.synced: pb.Synced | None = None
        self.needs: list[pb.RestartNeed] = []
        self.shuts_down = True
        self._sequence = 0
        self._lock = threading.Lock()
        self._server: Any = None
        self._channel: Any = None

    def open(self) -> None:
        """Serves on the init socket, then becomes ready by renaming it."""
        register = [lambda server: launcher_pb2_grpc.add_LauncherServicer_to_server(self, server)]
        directory = os.open(self.sockets, os.O_RDONLY | os.O_DIRECTORY)
        self._server = serve_unix("launcher-init-sock", register, dir_fd=directory)
        self.sockets.joinpath("launcher-init-sock").rename(self.sockets / "launcher-sock")
        os.close(directory)

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
        if self._server is not None:
            self._server.stop(0)

    def tell(self, domain: pb.Domain) -> None:
        """A message to the handler, as it would come after a libvirt event."""
        with self._lock:
            self.domain = domain
            self._sequence += 1
            self.stub().DomainChanged(
                notify_pb2.DomainChangedRequest(domain=domain, sequence=self._sequence), wait_for_ready=True
            )

    def stub(self) -> Any:
        if self._channel is None:
            self._fd = os.open(self.sockets / "notify-sock", os.O_PATH)
            self._channel = unix_channel(self._fd)
        return NotifyStub(self._channel)

    def Hello(self, request: pb.HelloRequest, context: Any) -> pb.HelloResponse:
        self.calls.append("Hello")
        return pb.HelloResponse(version=1, vmi_uid=self.vmi_uid)

    def GetDomain(self, request: pb.GetDomainRequest, context: Any) -> pb.GetDomainResponse:
        self.calls.append("GetDomain")
        domain = self.domain if self.domain.state != pb.DOMAIN_STATE_ABSENT else None
        return pb.GetDomainResponse(domain=domain, synced=self.synced)

    def SyncVMI(self, request: pb.SyncVMIRequest, context: Any) -> pb.SyncVMIResponse:
        self.calls.append("SyncVMI")
        self.requests.append(request)
        if self.sync_failures:
            raise self.sync_failures.pop(0)
        self.synced = pb.Synced(digest=request.digest, needs_restart=self.needs)
        now = time.time_ns() // 1000
        self.tell(self.domain if self.domain.state == pb.DOMAIN_STATE_PAUSED else STARTED)
        handoffs = [pb.Handoff(name=name, time_us=now) for name in ("domain-defined", "guest-started")]
        return pb.SyncVMIResponse(domain=self.domain, handoffs=handoffs, synced=self.synced)

    def Ping(self, request: pb.PingRequest, context: Any) -> pb.PingResponse:
        return pb.PingResponse()

    def Pause(self, request: pb.PauseRequest, context: Any) -> pb.PauseResponse:
        self.calls.append("Pause")
        self.tell(pb.Domain(state=pb.DOMAIN_STATE_PAUSED, reason="User"))
        return pb.PauseResponse()

    def Shutdown(self, request: pb.ShutdownRequest, context: Any) -> pb.ShutdownResponse:
        self.calls.append("Shutdown")
        if self.shuts_down:
            self.tell(pb.Domain(state=pb.DOMAIN_STATE_SHUTOFF, reason="Shutdown"))
        return pb.ShutdownResponse()

    def Kill(self, request: pb.KillRequest, context: Any) -> pb.KillResponse:
        self.calls.append("Kill")
        self.tell(pb.Domain(state=pb.DOMAIN_STATE_SHUTOFF, reason="Destroyed"))
        return pb.KillResponse()

    def Delete(self, request: pb.DeleteRequest, context: Any) -> pb.DeleteResponse:
        self.calls.append("Delete")
        return pb.DeleteResponse()


if __name__ == "__main__":
    FakeLauncher(Path(sys.argv[1]), sys.argv[2]).open()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    threading.Event().wait()
