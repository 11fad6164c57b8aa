"""What the node remembers of one Pod. Everything that matters is on disk as well; this is the working copy."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from virt_core.apis.pods import Pod
from virt_local.node.pods.resize import Held
from virt_local.node.pods.view import ContainerView, Views, Waiting
from virt_local.node.probes.state import ProbeBoard
from virt_local.node.runtime.records import ContainerRecord, SandboxRecord
from virt_local.node.volumes.manager import VolumeSet

#: The current run and the one before it are kept, for `lastState` and `logs --previous`.
KEPT_RUNS = 2


@dataclass
class PodState:
    uid: str
    sandbox: SandboxRecord | None = None
    volumes: VolumeSet | None = None
    runs: dict[str, list[ContainerRecord]] = field(default_factory=dict)
    waiting: dict[str, Waiting] = field(default_factory=dict)
    refresh_at: datetime | None = None
    measure_at: datetime | None = None
    #: What the Pod asked for beside its own network when that was last seen to, and when to try again what failed.
    networks_asked: str | None = None
    networks_at: datetime | None = None
    failure: tuple[str, str] | None = None
    #: Why its containers do not have the resources that are asked for now.
    resize: Held | None = None
    kill_at: datetime | None = None
    released: bool = False
    delete_sent: bool = False

    def records(self) -> list[ContainerRecord]:
        return [record for runs in self.runs.values() for record in runs]

    def current(self, name: str) -> ContainerRecord | None:
        runs = self.runs.get(name)
        return runs[-1] if runs else None

    def running(self) -> list[ContainerRecord]:
        return [runs[-1] for runs in self.runs.values() if runs and runs[-1].running]

    def find(self, container_id: str) -> ContainerRecord | None:
        return next((record for record in self.records() if record.id == container_id), None)

    def views(self, pod: Pod, board: ProbeBoard) -> Views:
        views: Views = {}
        for container in (*pod.spec.init_containers, *pod.spec.containers):
            runs = self.runs.get(container.name, [])
            current = runs[-1] if runs else None
            probed = board.get(current.id if current else "", container)
            views[container.name] = ContainerView(
                current=current,
                previous=runs[-2] if len(runs) > 1 else None,
                waiting=self.waiting.get(container.name),
                started=probed.started,
                ready=probed.ready,
            )
        return views
