"""After a restart: finds on disk what runs, what ended and what was half-made, and takes over where we left."""

from __future__ import annotations

from virt_core.apis.pods import Pod
from virt_core.runtime.clock import Clock
from virt_core.runtime.logs import get_logger
from virt_core.runtime.procs import ProcessId
from virt_core.runtime.times import rfc3339_micro
from virt_local.node.layout import NodeLayout
from virt_local.node.pods.following import Follower
from virt_local.node.pods.state import KEPT_RUNS, PodState
from virt_local.node.runtime.containers import Containers
from virt_local.node.runtime.records import ContainerRecord
from virt_local.node.sandbox import Sandboxes

log = get_logger(__name__)


class Adopter:
    def __init__(self, layout: NodeLayout, sandboxes: Sandboxes, containers: Containers, clock: Clock) -> None:
        self._layout = layout
        self._sandboxes = sandboxes
        self._containers = containers
        self._clock = clock

    def found(self) -> list[PodState]:
        """All Pods that have left a trace on this node."""
        uids = {path.name for place in (self._layout.sandboxes, self._layout.pods) for path in place.iterdir()}
        uids |= {path.name for path in (self._layout.root / "netns").iterdir()}
        return [self._adopt(uid) for uid in sorted(uids)]

    def _adopt(self, uid: str) -> PodState:
        state = PodState(uid, sandbox=self._sandboxes.load(uid))
        for record in self._containers.load_all(uid):
            if self._is_whole(uid, record):
                state.runs.setdefault(record.name, []).append(record)
            else:
                log.info("removed a container that was only half-made", uid=uid, container=record.name, id=record.id)
                self._containers.forget(uid, record)
        for runs in state.runs.values():
            while len(runs) > KEPT_RUNS:
                self._containers.forget(uid, runs.pop(0))
        log.info("adopted a Pod", uid=uid, running=[record.name for record in state.running()])
        return state

    def _is_whole(self, uid: str, record: ContainerRecord) -> bool:
        """Started, or ended. A crash right after the start may have lost only the note about it."""
        if record.started_at or record.exited:
            return True
        if not record.pid or self._containers.runc.is_created(record.id):
            return False
        if not ProcessId(record.pid, record.pid_started).alive():
            return False
        record.started_at = rfc3339_micro(self._clock.now())
        self._containers.save(uid, record)
        return True


def resume(pod: Pod, state: PodState, follower: Follower) -> None:
    """Watches and probes what runs, starting from what was reported before."""
    ready = {status.name: status.ready for status in pod.status.container_statuses}
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        record = state.current(container.name)
        if record is not None and record.running:
            follower.watch(state.uid, record)
            follower.probe(pod, state, container, record, ready=ready.get(container.name, False))
