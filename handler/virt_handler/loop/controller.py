"""The loop of virt-handler: looks at a VMI that has Pods on this node, lets `next_step` decide for each, does it, and
reports for the one that has the guest.

A kill -9 at any moment costs nothing: the next process reads the ghost records, meets the launchers again by their
sockets and asks each for its machine. It never starts or stops anything before it has the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import grpc

from virt_core.apis import names
from virt_core.apis.owncpus import is_realtime
from virt_core.apis.podroles import Role
from virt_core.apis.registry import encode_object
from virt_core.apis.sizes import usable
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.client import KubeClient
from virt_core.kube.configvalues import ClusterConfig
from virt_core.kube.controller import Result
from virt_core.kube.errors import NotFound
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.store import key_of
from virt_core.kube.workqueue import WorkQueue
from virt_core.kube.writes import OwnWrites, write_difference
from virt_core.rpc.status import RpcFailure, failure_of
from virt_core.runtime.clock import Clock
from virt_core.runtime.logs import get_logger
from virt_handler.decisions import hotplug, moving, status
from virt_handler.decisions.domains import is_alive
from virt_handler.decisions.steps import SYNC_DEADLINE_S, next_step
from virt_handler.decisions.vocabulary import Action, Step, View
from virt_handler.decisions.wanted import digest
from virt_handler.loop.errands import Errands
from virt_handler.loop.forecasting import Forecaster
from virt_handler.loop.moves import Moves
from virt_handler.loop.options import sync_options
from virt_handler.loop.roster import Roster, Sessions
from virt_handler.loop.sessions import Session
from virt_handler.loop.vmis import NodeVmis
from virt_handler.loop.volumes import Volumes
from virt_handler.loop.watchdog import Watchdog
from virt_handler.moves.journal import Journal
from virt_handler.node.capabilities import NodeCapabilities
from virt_handler.node.devices.units import Host
from virt_handler.pods import device_nodes, memlock, realtime
from virt_handler.pods.contacts import Contacts
from virt_handler.pods.launchers import Launcher, is_fatal
from virt_handler.pods.network import NetworkWiring
from virt_protos.launcher.v1 import launcher_pb2 as pb

log = get_logger(__name__)

#: SyncVMI waits this much longer than its handoffs may take, so that the overdue condition is told first.
_SYNC_SLACK_S = 15.0
#: Changes that a guest can cause by itself are written at most this often.
_TELL_EVERY_S = 5.0
#: How often a VMI is asked for that no label of this node shows, while it still has a launcher here.
_UNSEEN_RECHECK_S = 30.0


_OF_A_MOVE = (
    Action.PREPARE_TARGET,
    Action.DISK_FACTS,
    Action.MIGRATE,
    Action.CANCEL_MOVE,
    Action.SETTLE_STAYS,
    Action.SETTLE_GONE,
)


@dataclass(frozen=True, slots=True)
class Parts:
    """What the controller works with."""

    client: KubeClient
    vmis: NodeVmis
    queue: WorkQueue
    recorder: EventRecorder
    clock: Clock
    sessions: Sessions
    roster: Roster
    contacts: Contacts
    network: NetworkWiring
    capabilities: NodeCapabilities
    host: Host
    errands: Errands
    volumes: Volumes
    config: Callable[[], ClusterConfig] = ClusterConfig
    #: None: no machine moves from or to this node.
    moves: Moves | None = None
    journal: Journal = field(default_factory=Journal)
    #: None: nobody foresees anything.
    forecaster: Forecaster | None = None


class HandlerController:
    def __init__(self, parts: Parts) -> None:
        self._p = parts
        self._watchdog = Watchdog(parts.queue)
        self._writes: OwnWrites[VirtualMachineInstance] = OwnWrites()
        self._actions: dict[Action, Callable[[Session, VirtualMachineInstance | None], None]] = {
            Action.WIRE_NETWORK: self._wire,
            Action.SYNC: self._sync,
            Action.SHUTDOWN: self._shutdown,
            Action.KILL: self._kill,
            Action.DELETE: self._delete,
            Action.END_LAUNCHER: self._end_launcher,
        }
        for action in _OF_A_MOVE:
            self._actions[action] = partial(self._move, action)
        parts.vmis.on_change(self._enqueue)

    def restore(self) -> None:
        """Takes up what a former process of ours left. Called once, before the workers start."""
        for key in self._p.roster.restore():
            self._p.queue.add(key)

    def _enqueue(self, vmi: VirtualMachineInstance) -> None:
        self._p.queue.add(key_of(vmi))

    def reconcile(self, key: str) -> Result | None:
        known = seen = self._p.vmis.get(key)
        if seen is None and self._p.sessions.of_key(key):
            known = self._p.vmis.ask(key)
        vmi = self._writes.freshest(known) if known is not None else None
        sessions = self._p.roster.due(key, vmi)
        rechecks = [self._advance(session, vmi) for session in sessions]
        if sessions and seen is None and vmi is not None:
            rechecks.append(_UNSEEN_RECHECK_S)
        soonest = _soonest(*rechecks)
        return Result(soonest) if soonest else None

    def _advance(self, session: Session, vmi: VirtualMachineInstance | None) -> float | None:
        """One step for one session; seconds until the next look, if one is needed."""
        if vmi is not None and vmi.metadata.uid != session.vmi_uid:
            vmi = None
        prepared = self._p.contacts.observe(session, vmi)
        if vmi is not None and session.role is Role.ACTIVE:
            self._p.volumes.follow(session, vmi)
            if self._p.forecaster is not None:
                self._p.forecaster.follow(session, vmi)
        if vmi is not None and session.role is Role.TARGET and moving.under_way(vmi) is not None:
            self._p.volumes.follow(session, hotplug.at_target(vmi))
        view = session.view(self._p.contacts.pod_exists(session))
        if view.domain is not None:
            self._p.journal.note(session.vmi_uid, view.domain.move)
        now = self._p.clock.now()
        step = next_step(vmi, view, now, session.role)
        later_s = self._report(session, vmi, view, step) if vmi is not None else None
        if vmi is not None and session.role is Role.ACTIVE:
            self._p.volumes.dump(session, vmi)
            self._p.volumes.back_up(session, vmi)
        if vmi is not None and session.role is Role.TARGET:
            self._tell_arrival(session, vmi, view)
        if step.action is Action.CLEAN_UP:
            self._clean_up(session)
            return None
        if step.action is not Action.NOTHING:
            self._actions[step.action](session, vmi)
        agent_s, pulse_s = status.agent_wait_s(view, now), self._watchdog.look(session)
        return _soonest(step.recheck_s, None if prepared else 1.0, agent_s, later_s, pulse_s)

    def _report(self, session: Session, vmi: VirtualMachineInstance, view: View, step: Step) -> float | None:
        """Writes what changed. Seconds to wait if that must not be told yet."""
        now = self._p.clock.now()
        wanted = self._reported(vmi, view, step)
        if wanted is vmi:
            return None
        if not status.is_urgent(vmi, wanted):
            if session.told_at is not None and (now - session.told_at).total_seconds() < _TELL_EVERY_S:
                return _TELL_EVERY_S
            session.told_at = now
        self._write(vmi, wanted)
        return None

    def _reported(self, vmi: VirtualMachineInstance, view: View, step: Step) -> VirtualMachineInstance:
        now, config = self._p.clock.now(), self._p.config()
        return status.reported(vmi, view, step, now, config.supported_agent_versions, plugins=config.network_bindings)

    def _write(self, vmi: VirtualMachineInstance, wanted: VirtualMachineInstance) -> None:
        try:
            written = write_difference(self._p.client, vmi, wanted)
        except NotFound:
            return  # Removed for good meanwhile.
        if written is None:
            return
        self._writes.remember(written)
        for kind, reason, message in status.notes(vmi, wanted):
            self._p.recorder.event(vmi, kind, reason, message)
        if written.status.phase != vmi.status.phase:
            log.info("VMI changed phase", vmi=key_of(vmi), phase=written.status.phase, reason=written.status.reason)
            # What follows from the new phase needs no news from outside.
            self._p.queue.add(key_of(vmi))

    def _command(self, session: Session, action: Action, call: Callable[[Launcher], None]) -> None:
        """Beside the loop: a launcher that hangs answers no command either."""
        launcher = session.launcher
        if launcher is not None:
            self._p.errands.start(session, action.value, lambda: self._say(session, launcher, action, call))

    def _say(self, session: Session, launcher: Launcher, action: Action, call: Callable[[Launcher], None]) -> None:
        try:
            call(launcher)
        except RpcFailure as failure:
            if action is Action.DELETE and failure.transient:
                return  # It has ended already, and forgot all by that.
            # The step is due again in a moment; if the launcher has died, its end is an event.
            log.warning("the launcher refused", vmi=session.key, action=action.value, error=str(failure))

    def _wire(self, session: Session, vmi: VirtualMachineInstance | None) -> None:
        if vmi is not None:
            self._p.network.start(session, vmi)

    def _sync(self, session: Session, vmi: VirtualMachineInstance | None) -> None:
        if vmi is None or session.launcher is None:
            return
        version, asked = session.version(), digest(vmi, session.view().report)
        session.sync_started(asked)
        try:
            launcher, blocks = session.launcher, device_nodes.block_volumes(vmi)
            device_nodes.hand_over(launcher.pid, launcher.pidfd, self._p.host, volumes=blocks)
            if memlock.needs_locked_memory(vmi):
                memlock.lift(launcher.pid, launcher.pidfd)
        except OSError as error:
            session.sync_failed(device_nodes.explain(error), fatal=False)
            self._p.queue.add(session.key)
            return
        body = encode_object(usable(vmi))
        options = sync_options(session, vmi, self._p.capabilities, self._p.config())
        request = pb.SyncVMIRequest(vmi_json=body, options=options, digest=asked)
        future = session.launcher.sync(request, SYNC_DEADLINE_S + _SYNC_SLACK_S)
        future.add_done_callback(lambda done: self._synced(session, vmi, version, done))

    def _synced(self, session: Session, vmi: VirtualMachineInstance, version: int, done: Any) -> None:
        """In a thread of gRPC."""
        try:
            answer = done.result()
            if is_realtime(vmi) and is_alive(answer.domain):
                self._give_priority(session, vmi)
            session.sync_done(answer, version)
        except OSError as error:
            log.warning("vCPUs are not scheduled in real time", vmi=session.key, error=str(error))
            session.sync_failed(f"vCPUs are not scheduled in real time: {error.strerror}", fatal=False)
        except grpc.FutureCancelledError:
            session.sync_failed("the call was cancelled", fatal=False)
        except grpc.RpcError as error:
            failure = failure_of(error)
            log.warning("SyncVMI failed", vmi=session.key, error=str(failure))
            session.sync_failed(failure.message or str(failure), fatal=is_fatal(failure))
        self._p.queue.add(session.key)

    def _give_priority(self, session: Session, vmi: VirtualMachineInstance) -> None:
        """Under the lock, so that nobody closes the launcher's descriptor meanwhile. Raises OSError."""
        with session.lock:
            if session.launcher is not None and not session.closed:
                realtime.give_priority(session.launcher.pid, session.launcher.pidfd, vmi)

    def _move(self, action: Action, session: Session, vmi: VirtualMachineInstance | None) -> None:
        if self._p.moves is not None:
            self._p.moves.act(action, session, vmi)

    def _tell_arrival(self, session: Session, vmi: VirtualMachineInstance, view: View) -> None:
        now = self._p.clock.now()
        told = moving.arrival_told(vmi, view, self._p.roster.node_name, now)
        if told is vmi:
            return
        taken_over = told.status.node_name != vmi.status.node_name
        if taken_over:
            # The same write says how the guest is here, such as its new addresses.
            told = self._reported(told, view, next_step(told, view, now, Role.ACTIVE))
        self._write(vmi, told)
        if taken_over:
            log.info("took the guest over", vmi=session.key, source=vmi.status.node_name)
            self._p.queue.add(session.key)

    def _shutdown(self, session: Session, vmi: VirtualMachineInstance | None) -> None:
        first = session.shutdown_sent()
        self._command(session, Action.SHUTDOWN, Launcher.shutdown)
        if first and vmi is not None and session.role is Role.ACTIVE:
            message = "the guest was asked to shut down"
            self._p.recorder.event(vmi, names.EVENT_NORMAL, names.EVENT_SHUTTING_DOWN, message)
            if vmi.metadata.deletion_timestamp is not None:
                message = "the VMI is being deleted, so its guest was told to shut down"
                self._p.recorder.event(vmi, names.EVENT_NORMAL, names.EVENT_DELETED, message)

    def _kill(self, session: Session, vmi: VirtualMachineInstance | None) -> None:
        asked = session.view().stop_sent is not None
        if session.kill_sent() and vmi is not None and session.role is Role.ACTIVE:
            message = (
                "the guest was ended without being asked to shut down: its grace period is 0, or its VMI has failed"
            )
            if asked:
                message = "the guest did not shut down within its grace period, so it was ended"
            self._p.recorder.event(vmi, names.EVENT_NORMAL, names.EVENT_DELETED, message)
        log.info("ending the machine without asking the guest", vmi=session.key)
        self._command(session, Action.KILL, Launcher.kill)

    def _delete(self, session: Session, _vmi: VirtualMachineInstance | None) -> None:
        session.delete_sent()
        self._command(session, Action.DELETE, Launcher.delete)

    def _end_launcher(self, session: Session, _vmi: VirtualMachineInstance | None) -> None:
        if session.launcher is not None:
            log.error("ending a launcher that does not answer", vmi=session.key, pid=session.launcher.pid)
            session.launcher.end()

    def _clean_up(self, session: Session) -> None:
        if self._p.moves is not None:
            self._p.moves.close(session)
        self._p.roster.close(session)
        if not self._p.sessions.of_vmi(session.vmi_uid):
            self._writes.forget(session.vmi_uid)


def _soonest(*seconds: float | None) -> float | None:
    return min((value for value in seconds if value is not None), default=None)
