"""A node in a temporary directory: real sockets, real inotify, real gRPC; the API server and the launcher are fakes."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from framework import fake_netsetup
from framework.fake_kube import FakeKube, fake_kube
from framework.vmis import NODE, POD_UID, UID, handed_over
from framework.waiting import eventually, running

from virt_core.apis import names
from virt_core.apis.base import to_plain
from virt_core.kube.controller import Controller
from virt_handler.loop.controller import HandlerController
from virt_handler.main import Handler
from virt_handler.pods import isolation
from virt_handler.pods.peers import PodOf

from .fakelauncher import FakeLauncher

VMI = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/vm"


class Node:
    """One node with one Pod (and more if a test adds them), whose processes are whatever the test says they are."""

    def __init__(self, root: Path, kube: FakeKube) -> None:
        self.root, self.kube = root, kube
        self.pods = root / "pods"
        self.sockets, self.private = self.add_pod(POD_UID)
        (self.private / UID).mkdir()
        #: Whose a process is.
        self.pod_of: PodOf = lambda _pid: POD_UID
        self.netsetup = root / "netsetup"

    def add_pod(self, uid: str) -> tuple[Path, Path]:
        """Its volumes for the sockets and for the machine."""
        volumes = self.pods / uid / "volumes" / "kubernetes.io~empty-dir"
        made = volumes / "sockets", volumes / "private"
        for volume in made:
            volume.mkdir(parents=True)
        return made

    @contextmanager
    def handler(self) -> Iterator[Handler]:
        """A virt-handler process, but for its process."""
        handler = Handler(self.kube.client(), NODE, str(self.pods), str(self.root / "info"), str(self.root / "state"))
        handler.contacts._pod_of = self.pod_of
        controller: HandlerController = handler.controller(shlex.join(fake_netsetup.command(self.netsetup)))
        controller.restore()
        loop = Controller("vmi", handler.queue, controller.reconcile, 2, [handler.vmis])
        with running(
            *(each.run for each in handler.vmis.informers),
            handler.watcher.run,
            handler.gate.run,
            handler.network.run,
            handler.recorder.run,
            loop.run,
        ):
            try:
                yield handler
            finally:
                handler.queue.shutdown()
                handler.close()
        handler.watcher.close()
        handler.files.close()

    def put(self, **changes: Any) -> None:
        phase = changes.pop("phase", "Scheduled")
        self.kube.put(VMI, to_plain(handed_over(phase, **changes)))

    def vmi(self) -> dict[str, Any]:
        return self.kube.objects[VMI]

    def delete_vmi(self) -> None:
        vmi = dict(self.vmi())
        vmi["metadata"] = vmi["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:09Z"}
        self.kube.put(VMI, vmi)

    def phase(self, wanted: str, within_s: float = 10.0) -> dict[str, Any]:
        eventually(lambda: self.vmi()["status"]["phase"] == wanted, within_s)
        return self.vmi()["status"]

    def condition(self, type: str) -> dict[str, Any]:
        conditions = {c["type"]: c for c in self.vmi()["status"].get("conditions", [])}
        found: dict[str, Any] = conditions.get(type, {})
        return found

    def events(self, *reasons: str) -> list[tuple[str, str]]:
        """Reason and type of each Event with one of these reasons, in order; one that came twice is there twice."""
        found = [o for o in list(self.kube.objects.values()) if o.get("kind") == "Event" and o["reason"] in reasons]
        return [(event["reason"], event["type"]) for event in found for _ in range(event.get("count", 1))]

    def vmi_writes(self) -> int:
        return len([1 for method, path in self.kube.methods("PATCH", "PUT") if path == VMI])

    def ghosts(self) -> list[str]:
        return self.kept("ghosts")

    def kept(self, purpose: str) -> list[str]:
        """The names of what the handler keeps: ghosts, network, netsetup."""
        return sorted(os.listdir(self.root / "state" / purpose))


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    def ours(_pod: str) -> isolation.PodNetns:
        fd = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        return isolation.PodNetns(os.getpid(), fd, names.LAUNCHER_UID)

    def our_process(_pod: str, pid: int) -> isolation.PodProcess:
        return isolation.PodProcess(os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC), os.pidfd_open(pid))

    monkeypatch.setattr(isolation, "open_netns", ours)
    monkeypatch.setattr(isolation, "open_process", our_process)
    monkeypatch.setattr(isolation, "pod_pids", lambda *_: [])
    with ExitStack() as stack:
        yield Node(tmp_path, stack.enter_context(fake_kube()))


@pytest.fixture
def launcher(node: Node) -> Iterator[FakeLauncher]:
    fake = FakeLauncher(node.sockets, UID)
    yield fake
    fake.close()
