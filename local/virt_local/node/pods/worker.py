"""Brings one Pod from what it is to what it should be, one step at a time. Called whenever something may have changed.

The Pod object, the records on disk and the processes are read anew each time; nothing depends on having seen an event.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from virt_core.apis.pods import Pod
from virt_core.kube.controller import Result
from virt_core.runtime.logs import get_logger
from virt_core.runtime.times import parse_rfc3339
from virt_local.node.pods import decide
from virt_local.node.pods import status as pod_status
from virt_local.node.pods.bundles import BundleMaker, Parts
from virt_local.node.pods.decide import Plan
from virt_local.node.pods.ending import Ender
from virt_local.node.pods.following import Follower
from virt_local.node.pods.networks import NetworkFollower
from virt_local.node.pods.ports import PodSource, StatusSink
from virt_local.node.pods.resizer import Resizer
from virt_local.node.pods.starter import Starter
from virt_local.node.pods.state import PodState
from virt_local.node.pods.view import POD_PHASES_ENDED, has_ended
from virt_local.node.volumes.base import VolumeError
from virt_local.node.volumes.usage import EVICTED, beyond_limit, is_limited

log = get_logger(__name__)

#: How often configMap, secret and token volumes are looked at.
VOLUME_REFRESH = timedelta(seconds=60)
#: How often a Pod with limits for its disk space is measured, as often as by the kubelet.
MEASURE = timedelta(seconds=10)


class PodWorker:
    def __init__(
        self,
        parts: Parts,
        source: PodSource,
        sink: StatusSink,
        follower: Follower,
        enqueue: Callable[[str], None],
    ) -> None:
        self._parts = parts
        self._source = source
        self._sink = sink
        self._follower = follower
        self._board = follower.board
        self._enqueue = enqueue
        self._starter = Starter(parts)
        self._bundles = BundleMaker(parts)
        self._networks = NetworkFollower(parts)
        self._ender = Ender(parts.layout, parts.sandboxes, parts.containers, parts.cgroup)
        self._resizer = Resizer(parts, source)
        self._states: dict[str, PodState] = {}
        self._lock = threading.Lock()

    # What the server and the manager ask.

    def state(self, uid: str) -> PodState | None:
        with self._lock:
            return self._states.get(uid)

    def known(self) -> set[str]:
        with self._lock:
            return set(self._states)

    def container_ids(self) -> set[str]:
        with self._lock:
            return {record.id for state in self._states.values() for record in state.records()}

    def put(self, state: PodState) -> None:
        """Takes over a Pod that was found on disk."""
        with self._lock:
            self._states[state.uid] = state

    # The loop's one entry.

    def sync(self, uid: str) -> Result | None:
        pod = self._source.get(uid)
        if pod is None:
            self._forget(uid)
            return None
        with self._lock:
            state = self._states.setdefault(uid, PodState(uid))
        self._follower.look(pod, state)
        wake_at = self._advance(pod, state)
        return Result(max((wake_at - self._now()).total_seconds(), 0.001)) if wake_at else None

    def _advance(self, pod: Pod, state: PodState) -> datetime | None:
        if pod.metadata.deletion_timestamp:
            return self._end(pod, state)
        if has_ended(pod) or self._fails(pod, state):
            return self._finish(pod, state)
        return self._run(pod, state)

    def _run(self, pod: Pod, state: PodState) -> datetime | None:
        now = self._now()
        self._stop_unhealthy(pod, state, now)
        plan = decide.plan(pod, state.views(pod, self._board), now)
        if plan.start:
            self._starter.start(pod, state, plan.start, lambda: self._wake(state))
            self._follower.follow(pod, state)
            now = self._now()
            plan = decide.plan(pod, state.views(pod, self._board), now)
        if plan.phase in POD_PHASES_ENDED:
            self._ender.release(state)
        elif state.sandbox is not None and state.sandbox.attached:
            self._networks.follow(pod, state, now)
        resize_again = self._resizer.look(pod, state, now)
        stop_again = self._stop_sidecars(pod, state, plan, now)
        self._publish(pod, state, plan, now)
        refresh_at = self._refresh_volumes(pod, state, now)
        times = (plan.wake_at, stop_again, resize_again, refresh_at, state.measure_at, state.networks_at)
        return min((t for t in (*times, _deadline(pod, state)) if t), default=None)

    # The ways a Pod ends.

    def _fails(self, pod: Pod, state: PodState) -> bool:
        """Whether the Pod must not run any longer, for a reason of its own."""
        deadline = _deadline(pod, state)
        if state.failure is None and deadline is not None and self._now() >= deadline:
            state.failure = ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
        if state.failure is None and pod.spec.share_process_namespace:
            state.failure = ("Unsupported", "virt-local gives each container its own process namespace")
        if state.failure is None and (why := self._too_large(pod, state)):
            state.failure, state.kill_at = (EVICTED, why), self._now()
            self._parts.events.event(pod, "Warning", EVICTED, why)
        return state.failure is not None

    def _too_large(self, pod: Pod, state: PodState) -> str:
        """Measured now and then: what the Pod has put on the node's disk."""
        now = self._now()
        if not is_limited(pod) or (state.measure_at is not None and now < state.measure_at):
            return ""
        state.measure_at = now + MEASURE
        return beyond_limit(pod, self._parts.layout) if state.running() else ""

    def _finish(self, pod: Pod, state: PodState) -> datetime | None:
        """Ended, or to be ended, while its object stays."""
        now = self._now()
        again = self._ender.stop(pod, state, now)
        if again is not None:
            return again
        self._ender.release(state)
        if not has_ended(pod):
            self._publish(pod, state, Plan(initialized=True, phase="Failed"), now)
        return None

    def _end(self, pod: Pod, state: PodState) -> datetime | None:
        """Deleted: stop, report how it ended, leave nothing behind, and let the object go."""
        now = self._now()
        again = self._ender.stop(pod, state, now)
        if again is not None:
            return again
        if state.delete_sent:
            return None
        self._ender.release(state)
        if state.runs and not has_ended(pod):
            self._publish(pod, state, _final_plan(pod, state), now)
        self._ender.purge(state)
        self._sink.delete(pod)
        state.delete_sent = True
        return None

    def _forget(self, uid: str) -> None:
        state = self.state(uid)
        if state is None:
            return
        self._follower.leave(state)
        self._ender.purge(state)
        with self._lock:
            self._states.pop(uid, None)

    # Small steps.

    def _stop_unhealthy(self, pod: Pod, state: PodState, now: datetime) -> None:
        if not any(record.stop_requested for record in state.running()):
            state.kill_at = None
        for record in state.running():
            why = self._board.unhealthy(record.id)
            if why and not record.stop_requested:
                self._parts.events.event(pod, "Warning", "Unhealthy", f"container {record.name}: {why}")
                self._parts.containers.request_stop(state.uid, record)
                grace = pod.spec.termination_grace_period_seconds
                state.kill_at = now + timedelta(seconds=30 if grace is None else grace)
            elif why and state.kill_at is not None and now >= state.kill_at:
                self._parts.containers.signal(record, 9)

    def _stop_sidecars(self, pod: Pod, state: PodState, plan: Plan, now: datetime) -> datetime | None:
        if plan.stop:
            return self._ender.stop(pod, state, now)
        unhealthy = [record for record in state.running() if record.stop_requested]
        return state.kill_at if unhealthy and state.kill_at and state.kill_at > now else None

    def _wake(self, state: PodState) -> None:
        """A pull has ended: whoever waited for it may try now."""
        for name, waiting in list(state.waiting.items()):
            if waiting.reason == "ContainerCreating":
                state.waiting[name] = replace(waiting, until=self._now())
        self._enqueue(state.uid)

    def _refresh_volumes(self, pod: Pod, state: PodState, now: datetime) -> datetime | None:
        if state.volumes is None or not state.volumes.refreshable:
            return None
        if state.refresh_at is None:
            state.refresh_at = now + VOLUME_REFRESH
        if now >= state.refresh_at:
            try:
                fresh = self._parts.volumes.refresh(pod, self._bundles.facts(pod, state))
                state.volumes.renew_at = fresh.renew_at
            except VolumeError as err:
                self._parts.events.event(pod, "Warning", "FailedMount", str(err))
            state.refresh_at = now + VOLUME_REFRESH
        return min(t for t in (state.refresh_at, state.volumes.renew_at) if t)

    # The report.

    def _publish(self, pod: Pod, state: PodState, plan: Plan, now: datetime) -> None:
        sandbox = state.sandbox
        facts = pod_status.Facts(
            node_ips=self._parts.facts.host_ips,
            pod_ips=tuple(sandbox.ips) if sandbox else (),
            sandbox_ready=sandbox is not None and sandbox.attached,
            start_time=sandbox.start_time if sandbox else "",
            failure=state.failure,
            ending=bool(pod.metadata.deletion_timestamp),
            resize=state.resize,
        )
        status = pod_status.compute(pod, state.views(pod, self._board), plan, facts, now)
        annotations = self._networks.annotations(pod, state)
        if annotations is not None:
            self._sink.publish(pod, status, annotations)
        elif status != pod.status:
            self._sink.publish(pod, status)

    def _now(self) -> datetime:
        return self._parts.clock.now()


def _deadline(pod: Pod, state: PodState) -> datetime | None:
    begun = pod.status.start_time or (state.sandbox.start_time if state.sandbox else "")
    if pod.spec.active_deadline_seconds is None or not begun or state.failure:
        return None
    return parse_rfc3339(begun) + timedelta(seconds=pod.spec.active_deadline_seconds)


def _final_plan(pod: Pod, state: PodState) -> Plan:
    """How a deleted Pod ended: well only if every container ran and ended well."""
    codes = [record.exit_code if record else None for record in (state.current(c.name) for c in pod.spec.containers)]
    return Plan(initialized=True, phase="Succeeded" if all(code == 0 for code in codes) else "Failed")
