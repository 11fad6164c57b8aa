"""Keeps an eye on running containers: notices their end, and has them probed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from virt_core.apis.pods import Container, Pod
from virt_core.runtime.logs import get_logger
from virt_core.runtime.procs import ProcessId
from virt_local.node.pods.state import PodState
from virt_local.node.probes.actions import Target
from virt_local.node.probes.prober import Prober
from virt_local.node.probes.state import ProbeBoard
from virt_local.node.runtime.containers import Containers, last_log_lines
from virt_local.node.runtime.exits import ExitWatcher
from virt_local.node.runtime.records import ContainerRecord

log = get_logger(__name__)


class Follower:
    def __init__(
        self,
        containers: Containers,
        exits: ExitWatcher,
        prober: Prober,
        board: ProbeBoard,
        enqueue: Callable[[str], None],
    ) -> None:
        self._containers = containers
        self._exits = exits
        self._prober = prober
        self.board = board
        self._enqueue = enqueue

    def leave(self, state: PodState) -> None:
        for record in state.records():
            self._prober.untrack(record.id)

    def look(self, pod: Pod, state: PodState) -> None:
        """Takes in what has ended since."""
        for container in (*pod.spec.init_containers, *pod.spec.containers):
            record = state.current(container.name)
            if record is not None and self._containers.refresh(state.uid, record):
                self._ended(pod, state, container, record)
            elif record is not None and record.running:
                self.watch(state.uid, record)

    def _ended(self, pod: Pod, state: PodState, container: Container, record: ContainerRecord) -> None:
        self._prober.untrack(record.id)
        self._explain_exit(state, container, record)
        log.info(
            "a container ended",
            pod=pod.metadata.name,
            container=container.name,
            exit_code=record.exit_code,
            reason=record.reason,
        )

    def _explain_exit(self, state: PodState, container: Container, record: ContainerRecord) -> None:
        if container.termination_message_policy == "FallbackToLogsOnError" and record.exit_code and not record.message:
            record.message = last_log_lines(Path(record.log_path))
            self._containers.save(state.uid, record)

    def follow(self, pod: Pod, state: PodState) -> None:
        """Has the watcher and the prober look after what runs now."""
        for container in (*pod.spec.init_containers, *pod.spec.containers):
            record = state.current(container.name)
            if record is not None and record.running:
                self.watch(state.uid, record)
                self.probe(pod, state, container, record, ready=False)

    def watch(self, uid: str, record: ContainerRecord) -> None:
        """conmon ends right after its container and with the exit code written; without it, the container must do."""
        monitor = ProcessId(record.monitor_pid, record.monitor_started)
        process = monitor if monitor.alive() else ProcessId(record.pid, record.pid_started)
        self._exits.watch(process, lambda: self._enqueue(uid))

    def probe(self, pod: Pod, state: PodState, container: Container, record: ContainerRecord, *, ready: bool) -> None:
        ips = state.sandbox.ips if state.sandbox else []
        runc = self._containers.runc
        target = Target(
            container,
            record.id,
            ips[0] if ips else "127.0.0.1",
            lambda command: runc.exec_command(record.id, command),
        )
        self._prober.track(target, lambda: self._enqueue(pod.metadata.uid), ready=ready)
