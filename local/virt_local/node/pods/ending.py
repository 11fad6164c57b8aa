"""The end of Pods: ask containers to stop, kill those that do not, and give back everything the Pod held."""

from __future__ import annotations

import shutil
import signal
import time
from datetime import datetime, timedelta

from virt_core.apis.pods import Pod
from virt_core.runtime.logs import get_logger
from virt_core.runtime.procs import ProcessId
from virt_core.runtime.times import parse_rfc3339
from virt_local.node import kernel
from virt_local.node.layout import NodeLayout, remove_tree
from virt_local.node.pods.state import PodState
from virt_local.node.pods.view import is_sidecar
from virt_local.node.runtime import cgroups
from virt_local.node.runtime.containers import Containers
from virt_local.node.sandbox import Sandboxes

log = get_logger(__name__)

DEFAULT_GRACE_S = 30
_KILL_DEADLINE_S = 10.0


class Ender:
    def __init__(self, layout: NodeLayout, sandboxes: Sandboxes, containers: Containers, cgroup: str) -> None:
        self._layout = layout
        self._sandboxes = sandboxes
        self._containers = containers
        self._cgroup = cgroup

    def stop(self, pod: Pod, state: PodState, now: datetime) -> datetime | None:
        """One step towards no running containers; returns when to look again, or None when all have ended."""
        running = state.running()
        if not running:
            return None
        kill_at = _kill_at(pod, state, now)
        if now >= kill_at:
            for record in running:
                self._containers.signal(record, signal.SIGKILL)
            return now + timedelta(seconds=1)
        sidecars = {c.name for c in pod.spec.init_containers if is_sidecar(c)}
        first = [record for record in running if record.name not in sidecars] or running
        for record in first:
            self._containers.request_stop(state.uid, record)
        return kill_at

    def release(self, state: PodState) -> None:
        """After the last container: processes that others put into the Pod's cgroup, the network, the namespace."""
        if state.released:
            return
        uid = state.uid
        cgroups.remove(f"{self._cgroup}/pod{uid}")
        if self._layout.netns(uid).exists() or (state.sandbox is not None and state.sandbox.attached):
            self._sandboxes.detach(uid)
            if state.sandbox is not None:
                state.sandbox.attached = False
        state.released = True

    def purge(self, state: PodState) -> None:
        """Removes every trace of a Pod from the node, whatever state it is in. Safe to repeat."""
        uid = state.uid
        self._kill(state)
        for record in self._containers.load_all(uid):
            self._containers.release(uid, record)
        state.released = False
        sandbox = self._sandboxes.load(uid)
        self.release(state)
        kernel.unmount_below(self._layout.pod(uid))
        remove_tree(self._layout.pod(uid))
        if sandbox is not None:
            shutil.rmtree(self._layout.logs(sandbox.namespace, sandbox.name, uid), ignore_errors=True)
        self._sandboxes.forget(uid)

    def _kill(self, state: PodState) -> None:
        running = state.running()
        for record in running:
            self._containers.signal(record, signal.SIGKILL)
        deadline = time.monotonic() + _KILL_DEADLINE_S
        for record in running:
            # conmon ends last: after it, nobody writes into the container's directory any more.
            process = ProcessId(record.monitor_pid, record.monitor_started)
            if not process.wait(max(deadline - time.monotonic(), 0.0)):
                log.warning("a container does not die", uid=state.uid, container=record.name)


def _kill_at(pod: Pod, state: PodState, now: datetime) -> datetime:
    """A deletion names its own end; otherwise the Pod's grace period counts from when we first wanted the stop."""
    if pod.metadata.deletion_timestamp:
        # The API has whole seconds, cut off: without the second a Pod would lose up to one of its grace period.
        slack = timedelta(seconds=1 if pod.metadata.deletion_grace_period_seconds else 0)
        return parse_rfc3339(pod.metadata.deletion_timestamp) + slack
    if state.kill_at is None:
        grace = pod.spec.termination_grace_period_seconds
        state.kill_at = now + timedelta(seconds=DEFAULT_GRACE_S if grace is None else grace)
    return state.kill_at
