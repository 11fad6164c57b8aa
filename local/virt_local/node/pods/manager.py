"""All Pods of the node: takes over what it finds, then works off whatever changes, several Pods at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from virt_core.kube.controller import Controller, Result
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.logs import get_logger
from virt_local.node.cni import Cni
from virt_local.node.pods.adopt import Adopter, resume
from virt_local.node.pods.bundles import Parts
from virt_local.node.pods.following import Follower
from virt_local.node.pods.ports import PodSource, StatusSink
from virt_local.node.pods.worker import PodWorker
from virt_local.node.probes.prober import Prober
from virt_local.node.probes.state import ProbeBoard
from virt_local.node.runtime import cgroups
from virt_local.node.runtime.exits import ExitWatcher

log = get_logger(__name__)

WORKERS = 8
_SYNC_DEADLINE_S = 600.0
_SYNC_POLL_S = 0.02


@dataclass(frozen=True)
class Threads:
    """What must run beside the workers, by name."""

    bodies: dict[str, Callable[[threading.Event], object]]


class PodManager:
    def __init__(self, parts: Parts, source: PodSource, sink: StatusSink, cni: Cni, *, workers: int = WORKERS) -> None:
        self._parts = parts
        self._source = source
        self._cni = cni
        self.queue = WorkQueue(name="pods")
        self._exits = ExitWatcher()
        board = ProbeBoard()
        self._prober = Prober(board, parts.executor, parts.clock)
        self._follower = Follower(parts.containers, self._exits, self._prober, board, self.queue.add)
        self.worker = PodWorker(parts, source, sink, self._follower, self.queue.add)
        self._controller = Controller("pods", self.queue, self._reconcile, workers=workers)

    def enqueue(self, uid: str) -> None:
        self.queue.add(uid)

    def adopt(self) -> None:
        """Reads the disk. Before the first list of Pods nothing is touched: an empty answer may be a lie."""
        adopter = Adopter(self._parts.layout, self._parts.sandboxes, self._parts.containers, self._parts.clock)
        for state in adopter.found():
            self.worker.put(state)

    def after_first_list(self) -> None:
        """Now it is known which Pods exist: go on with those, and remove what is left of the others."""
        present = self._source.uids()
        for uid in self.worker.known():
            pod, state = self._source.get(uid), self.worker.state(uid)
            if pod is not None and state is not None:
                resume(pod, state, self._follower)
        self._drop_strays(present)
        for uid in present | self.worker.known():
            self.queue.add(uid)

    def run(self, stop: threading.Event, synced: Callable[[], bool]) -> None:
        self.adopt()
        waited = 0.0
        while not synced():
            if stop.wait(_SYNC_POLL_S):
                return
            waited += _SYNC_POLL_S
            if waited > _SYNC_DEADLINE_S:
                raise TimeoutError("the API server has not answered the first list of Pods")
        self.after_first_list()
        self._controller.run(stop)

    def threads(self) -> Threads:
        return Threads({"exits": self._exits.run, "probes": self._prober.run})

    def wake(self) -> None:
        """Lets the threads look at their stop."""
        self._exits.wake()
        self._prober.wake()
        self.queue.shutdown()

    def _reconcile(self, uid: str) -> Result | None:
        return self.worker.sync(uid)

    def _drop_strays(self, present: set[str]) -> None:
        """Addresses, containers and cgroups of Pods that left no other trace."""
        known = present | self.worker.known()
        for uid in self._cni.leases() - known:
            log.info("freed the addresses of a Pod that is gone", uid=uid)
            self._cni.delete(uid, None)
        runc = self._parts.containers.runc
        for container_id in set(runc.known()) - self.worker.container_ids():
            log.info("removed a container that no Pod knows", id=container_id)
            runc.delete(container_id)
        for name in cgroups.children(self._parts.cgroup):
            if name.startswith("pod") and name.removeprefix("pod") not in known:
                cgroups.remove(f"{self._parts.cgroup}/{name}")
