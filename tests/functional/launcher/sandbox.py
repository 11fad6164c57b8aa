"""A launcher in a box like its Pod's: process 1 of its own process namespace, uid 107, no capabilities, no KVM.

The test is virt-handler: it serves the notify socket and calls the command socket.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import grpc

from tests.framework import waiting
from virt_core.apis.names import LAUNCHER_UID
from virt_core.rpc.channel import unix_channel
from virt_core.rpc.server import RpcServer, serve_unix
from virt_protos.launcher.v1 import launcher_pb2 as pb
from virt_protos.launcher.v1.launcher_pb2_grpc import LauncherStub
from virt_protos.notify.v1 import notify_pb2
from virt_protos.notify.v1.notify_pb2_grpc import NotifyServicer, add_NotifyServicer_to_server

BOX = Path(__file__).parent / "box.sh"
UID = "7043063b-e1c9-464f-9ce7-9189037edf72"
DEADLINE_S = 60.0


def eventually(check: Callable[[], Any], *, within_s: float = DEADLINE_S, every_s: float = 0.02) -> Any:
    return waiting.eventually(check, within_s, every_s)


def _comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""  # It has just ended.


class Handler(NotifyServicer):
    """What virt-handler would have been told."""

    def __init__(self) -> None:
        self.requests: list[notify_pb2.DomainChangedRequest] = []
        self.remarks: list[notify_pb2.RecordEventRequest] = []
        self._changed = threading.Condition()

    @property
    def domains(self) -> list[pb.Domain]:
        with self._changed:
            return [request.domain for request in self.requests]

    def wait_for(self, check: Callable[[pb.Domain], bool], within_s: float = DEADLINE_S) -> pb.Domain:
        with self._changed:
            found = self._changed.wait_for(lambda: any(check(r.domain) for r in self.requests), within_s)
            assert found, f"no such state was told within {within_s} s; last: {self.requests[-1:]}"
            return next(r.domain for r in self.requests if check(r.domain))

    def hears(self, check: Callable[[pb.Domain], bool], within_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: any(check(r.domain) for r in self.requests), within_s)

    def Hello(self, request: Any, context: Any) -> notify_pb2.HelloResponse:
        return notify_pb2.HelloResponse(version=max(request.versions))

    def DomainChanged(self, request: Any, context: Any) -> notify_pb2.DomainChangedResponse:
        with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
        return notify_pb2.DomainChangedResponse()

    def RecordEvent(self, request: Any, context: Any) -> notify_pb2.RecordEventResponse:
        self.remarks.append(request)
        return notify_pb2.RecordEventResponse()


class Sandbox:
    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="vl-", dir="/tmp"))  # Short: sockets have 107 bytes.
        self.root.chmod(0o755)
        for name in ("share/sockets", "private", "ephemeral", "libvirt", "images", "kernel", "cache"):
            (self.root / name).mkdir(parents=True)
        subprocess.run(["chown", "-R", f"{LAUNCHER_UID}:{LAUNCHER_UID}", str(self.root)], check=True)
        self.handler = Handler()
        self.process: subprocess.Popen[bytes] | None = None
        self._server: RpcServer | None = None
        self._channel: grpc.Channel | None = None

    # -- virt-handler's side ---------------------------------------------------------------------------------------

    @property
    def sockets(self) -> Path:
        return self.root / "share/sockets"

    def serve_notify(self) -> None:
        before = os.umask(0)
        register = [lambda server: add_NotifyServicer_to_server(self.handler, server)]
        self._server = serve_unix(str(self.sockets / "notify-sock"), register)
        os.umask(before)

    def stop_notify(self) -> None:
        if self._server is not None:
            self._server.stop(0.1)
            (self.sockets / "notify-sock").unlink(missing_ok=True)
            self._server = None

    @property
    def stub(self) -> LauncherStub:
        if self._channel is None:
            self._channel = unix_channel(str(self.sockets / "launcher-sock"))
        return LauncherStub(self._channel)

    # -- the launcher ----------------------------------------------------------------------------------------------

    def start(
        self,
        *extra: str,
        arguments: list[str] | None = None,
        tap: str = "",
        cpus: Collection[int] = (),
        huge_pages: bool = False,
        at: str = "",
        disk: tuple[str, int] = ("", 0),
    ) -> None:
        """With `tap` the box has a network namespace with such a device, as virt-netsetup would leave it; with `cpus`
        it runs on these only, as the kubelet would have it; `huge_pages` is the mount of the Pod. `at` is the directory
        as which the box sees itself: two launchers between which a machine moves have the same paths. `disk` is the
        name and the number of a block device that is the launcher's own, as that of a claim."""
        r = at or str(self.root)
        if arguments is None:
            arguments = [
                *("--name", "vm1", "--namespace", "ns", "--uid", UID, "--allow-emulation"),
                *("--share-dir", f"{r}/share", "--private-dir", f"{r}/private", "--libvirt-dir", f"{r}/libvirt"),
                *("--ephemeral-disk-dir", f"{r}/ephemeral", "--image-volume-dir", f"{r}/images"),
                *("--kernel-boot-dir", f"{r}/kernel", "--termination-log", f"{r}/dev/termination-log"),
                *extra,
            ]
        command = [sys.executable, "-m", "virt_launcher.main", *arguments]
        namespaces = ["--mount", "--pid", *(["--net"] if tap else [])]
        unshare = ["unshare", *namespaces, "--fork", "--kill-child", "sh", str(BOX), str(self.root)]
        env = {"PATH": os.environ["PATH"], "MALLOC_ARENA_MAX": "2", "PYTHONDONTWRITEBYTECODE": "1", "BOX_TAP": tap}
        env["BOX_HUGE_PAGES"] = "1" if huge_pages else ""
        env["BOX_AT"] = at
        env["BOX_DISK"] = f"{disk[0]} {os.major(disk[1])} {os.minor(disk[1])}" if disk[0] else ""
        confined = ["taskset", "-c", ",".join(map(str, cpus))] if cpus else []
        self.log = self.root / "launcher.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([*confined, *unshare, *command], env=env, stdout=log, stderr=log)

    def wait_ready(self) -> None:
        """Until the command socket is there."""
        eventually(lambda: (self.sockets / "launcher-sock").exists() or self._died(), every_s=0.002)

    def _died(self) -> bool:
        if self.process is not None and self.process.poll() is not None:
            raise AssertionError(f"the launcher ended: {self.log.read_text()}")
        return False

    @property
    def pid(self) -> int:
        """The launcher's pid on the host."""
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0])

    def descendants(self, name: str) -> list[int]:
        """The pids on the host of the launcher's children with this command name."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
        return [child for child in children if _comm(child).startswith(name)]

    @property
    def qemu_pid(self) -> int:
        return int(eventually(lambda: self.descendants("qemu-system"), within_s=5)[0])

    def virsh(self, *words: str) -> str:
        """What the launcher's own libvirt says."""
        uri = f"qemu+unix:///session?socket={self.root}/libvirt/libvirt-sock"
        done = subprocess.run(["virsh", "-c", uri, *words], capture_output=True, text=True, check=True, timeout=60)
        return done.stdout

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait_exit(self, within_s: float = DEADLINE_S) -> int:
        """With the launcher's own words where it did not end well: they are gone with the box."""
        assert self.process is not None
        code = self.process.wait(within_s)
        if code:
            print(self.log.read_text())
        return code

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self.stop_notify()
        if self.process is not None and self.process.poll() is None:
            os.kill(self.pid, signal.SIGKILL)  # Process 1 of the box: everything in it goes too.
            self.process.wait(10)
        shutil.rmtree(self.root, ignore_errors=True)

    # -- memory ----------------------------------------------------------------------------------------------------

    @staticmethod
    def memory(pid: int) -> dict[str, int]:
        """Pss and private memory in KiB."""
        values = {}
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            parts = line.split()
            if len(parts) == 3:
                values[parts[0].rstrip(":")] = int(parts[1])
        values["Private"] = values["Private_Clean"] + values["Private_Dirty"]
        return values
