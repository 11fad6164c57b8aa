"""What to do next about one launcher Pod on this node. Pure: a View of the world comes in, a Step goes out.

Only the side that has the guest starts it and tells how it is. A side that waits for the guest to move in gets its
network and its launcher ready; one that the guest has left, or that the VMI does not know, is accompanied to its end.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from virt_core.apis import handoffs, names
from virt_core.apis.facts import grace_seconds, is_final, is_terminating
from virt_core.apis.handoffs import HandoffKind
from virt_core.apis.launchsecurity import waits_for_session
from virt_core.apis.podroles import PodRole, Role, launchers_on
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.runtime.times import parse_rfc3339
from virt_handler.decisions import hotplug, moving
from virt_handler.decisions.domains import End, end_of, failed, has_ended, is_alive
from virt_handler.decisions.silence import Verdict
from virt_handler.decisions.synchronized import converge
from virt_handler.decisions.vocabulary import Action, Launcher, Step, Task, View

#: As the launcher's own --qemu-timeout: who has no machine by then never gets one.
START_LIMIT_S = 240.0
#: A guest that is still booting may miss the power button, so it is pressed again.
RESEND_S = 5.0
#: How often the end of a launcher that we never met is looked for; everything else comes as an event.
ORPHAN_RECHECK_S = 5.0
#: Who waits for the end of a move looks again; its change is an event.
MOVE_RECHECK_S = 5.0
#: How long the report of a running machine waits for the answer to the call that started it.
HOLD_S = 3.0
#: Both of the launcher's handoffs happen within one SyncVMI call.
SYNC_DEADLINE_S = handoffs.DOMAIN_DEFINED.deadline_s + handoffs.GUEST_STARTED.deadline_s

ACTIVE_PHASES = frozenset({names.PHASE_SCHEDULED, names.PHASE_RUNNING})


def due_here(vmi: VirtualMachineInstance, node: str) -> list[PodRole]:
    """The launchers that a node looks after: the guest's own from the hand-over on, others once they are recorded."""
    handed_over, over = vmi.status.phase in ACTIVE_PHASES, is_final(vmi)
    found = launchers_on(vmi, node)
    return [pod for pod in found if (handed_over if pod.role is Role.ACTIVE else not over)]


def next_step(vmi: VirtualMachineInstance | None, view: View, now: datetime, role: Role | None) -> Step:
    """`role` is what the Pod is to the VMI, None if it is nothing to it (any more)."""
    if vmi is None or role is Role.ACTIVE:
        return _unless_it_left(vmi, _active(vmi, view, now))
    return replace(_beside(vmi, view, now, role), hold=True, end=None)


def _unless_it_left(vmi: VirtualMachineInstance | None, step: Step) -> Step:
    """A machine that fails in the middle of a move may be whole on the other side: the move is settled first."""
    if vmi is None or is_terminating(vmi) or step.end is None or not step.end.failed:
        return step
    if not moving.may_have_left(vmi):
        return step
    return replace(step, end=None, hold=True, recheck_s=MOVE_RECHECK_S)


def _active(vmi: VirtualMachineInstance | None, view: View, now: datetime) -> Step:
    if view.launcher is Launcher.GONE:
        return _after_launcher(vmi, view)
    if view.pulse is Verdict.LOST:
        return _after_silence(vmi, view)
    if _must_stop(vmi, view):
        return _stop(vmi, view, now)
    if vmi is None or vmi.status.phase not in ACTIVE_PHASES:
        return Step()
    if view.domain is not None and (is_alive(view.domain) or has_ended(view.domain)):
        end = Step(end=end_of(vmi, view.domain))
        return _hold_for_sync(vmi, view, now) or moving.depart(vmi, view) or converge(vmi, view, now) or end
    if vmi.status.phase == names.PHASE_RUNNING:
        return _lost_machine(view)
    return _start(vmi, view, now)


def _beside(vmi: VirtualMachineInstance, view: View, now: datetime, role: Role | None) -> Step:
    """A side that does not have the guest. Its end is its own: the VMI goes on."""
    if view.launcher is Launcher.GONE:
        return Step(Action.CLEAN_UP)
    if view.pulse is Verdict.LOST:
        return _after_silence(vmi, view)
    if _must_stop(vmi, view):
        return _stop(vmi, view, now)
    if role is Role.TARGET:
        return _make_ready(vmi, view, now)
    if view.domain is not None and view.domain.move.held and is_alive(view.domain):
        return Step(Action.SETTLE_GONE, recheck_s=RESEND_S)
    if view.launcher is Launcher.WAITING:
        return Step(recheck_s=ORPHAN_RECHECK_S) if view.pod_exists else Step(Action.CLEAN_UP)
    return Step()


def _make_ready(vmi: VirtualMachineInstance, view: View, now: datetime) -> Step:
    """The guest finds its network when it moves in; what it needs beyond that comes with it."""
    if view.network.task is Task.DONE or moving.under_way(vmi) is None:
        return moving.receive(vmi, view, now)
    if view.network.fatal:
        return Step()
    if view.network.due(now):
        return Step(Action.WIRE_NETWORK)
    retry_at = view.network.retry_at
    return Step(recheck_s=(retry_at - now).total_seconds() if retry_at is not None else None)


def _hold_for_sync(vmi: VirtualMachineInstance, view: View, now: datetime) -> Step | None:
    """The machine's first event overtakes the answer that carries its handoffs; one write is to tell both."""
    if vmi.status.phase == names.PHASE_RUNNING or view.sync.task is not Task.RUNNING or view.alive_since is None:
        return None
    left_s = HOLD_S - (now - view.alive_since).total_seconds()
    return Step(hold=True, recheck_s=left_s) if left_s > 0 else None


def _must_stop(vmi: VirtualMachineInstance | None, view: View) -> bool:
    if vmi is None or is_terminating(vmi) or is_final(vmi):
        return True
    return view.domain is not None and view.domain.graceful_shutdown_requested


def _after_launcher(vmi: VirtualMachineInstance | None, view: View) -> Step:
    if vmi is None or is_final(vmi):
        return Step(Action.CLEAN_UP)
    if view.domain is not None and has_ended(view.domain):
        return Step(end=end_of(vmi, view.domain))
    if is_terminating(vmi) and not is_alive(view.domain):
        return Step(Action.CLEAN_UP)
    if view.pulse is Verdict.LOST:
        return Step(end=_unresponsive(view))
    return Step(end=failed(names.FAILED_LAUNCHER, "the launcher process ended unexpectedly, and the guest with it"))


def _after_silence(vmi: VirtualMachineInstance | None, view: View) -> Step:
    """Ended before it is told: a VMI that counts as over must not have a guest that still writes to its disks."""
    if view.launcher is Launcher.READY:
        return Step(Action.END_LAUNCHER, hold=True, recheck_s=RESEND_S)
    # Never met since our start; the end of the VMI makes the node end its Pod.
    return Step(end=None if vmi is None or is_final(vmi) else _unresponsive(view), recheck_s=RESEND_S)


def _unresponsive(view: View) -> End:
    message = f"the launcher was alive but did not answer for {view.silent_s:.0f} s, so it was ended with its guest"
    return failed(names.FAILED_LAUNCHER_UNRESPONSIVE, message)


def _lost_machine(view: View) -> Step:
    if view.refused:
        return Step(end=failed(names.FAILED_LAUNCHER, view.refused))
    if view.launcher is Launcher.WAITING:
        # After a restart of this handler: the socket's return or the Pod's end will wake us.
        if view.pod_exists:
            return Step(recheck_s=ORPHAN_RECHECK_S)
        return Step(end=failed(names.FAILED_LAUNCHER, "the launcher Pod is gone from the node"))
    if view.domain is None:
        return Step(recheck_s=1.0)
    return Step(end=failed(names.FAILED_LAUNCHER, "the launcher has no machine any more"))


def _stop(vmi: VirtualMachineInstance | None, view: View, now: datetime) -> Step:
    if is_alive(view.domain):
        return _stop_machine(vmi, view, now)
    end = None if vmi is None or is_final(vmi) or view.domain is None else end_of(vmi, view.domain)
    over = vmi is not None and is_final(vmi) and view.launcher is Launcher.READY
    if (has_ended(view.domain) or over) and not view.delete_sent:
        return Step(Action.DELETE, end=end)
    if view.launcher is Launcher.WAITING and not view.pod_exists:
        return Step(Action.CLEAN_UP)
    # The node ends the launcher, whose end is an event once we have met it.
    return Step(end=end, recheck_s=ORPHAN_RECHECK_S if view.launcher is Launcher.WAITING else None)


def _stop_machine(vmi: VirtualMachineInstance | None, view: View, now: datetime) -> Step:
    over = vmi is not None and is_final(vmi)
    grace = 0 if over else view.grace_s if vmi is None else grace_seconds(vmi)
    started = view.stop_started or now
    left = grace - (now - started).total_seconds()
    if left <= 0:
        return _every_resend(Action.KILL, view.kill_sent, RESEND_S, now)
    step = _every_resend(Action.SHUTDOWN, view.stop_sent, RESEND_S, now)
    return Step(step.action, recheck_s=min(step.recheck_s or RESEND_S, left))


def _every_resend(action: Action, sent: datetime | None, every_s: float, now: datetime) -> Step:
    passed = every_s if sent is None else (now - sent).total_seconds()
    if passed >= every_s:
        return Step(action, recheck_s=every_s)
    return Step(recheck_s=every_s - passed)


def handed_over_at(vmi: VirtualMachineInstance, view: View) -> datetime:
    for handoff in handoffs.of_start(vmi.status.handoffs):
        if handoff.name == handoffs.HANDED_OVER.name:
            return parse_rfc3339(handoff.time)
    return view.since


def _start(vmi: VirtualMachineInstance, view: View, now: datetime) -> Step:
    age_s = (now - handed_over_at(vmi, view)).total_seconds()
    late, keyless = bool(hotplug.missing(vmi)), waits_for_session(vmi.spec)
    if end := _hopeless(view, 0.0 if late else age_s, keyless):
        return Step(end=end)
    if view.network.task is not Task.DONE and view.network.due(now):
        return Step(Action.WIRE_NETWORK, recheck_s=_next_look(view, age_s, now))
    ready = view.network.task is Task.DONE and view.launcher is Launcher.READY and view.domain is not None
    # A machine is made with the keys of its owner; the change of the VMI that brings them wakes us.
    if ready and not late and not keyless and view.sync.due(now):
        return Step(Action.SYNC, overdue=missing(view, age_s, now), recheck_s=_next_look(view, age_s, now))
    return Step(overdue=missing(view, age_s, now), recheck_s=_next_look(view, age_s, now))


def _hopeless(view: View, age_s: float, needs_session: bool) -> End | None:
    if view.refused:
        return failed(names.FAILED_LAUNCHER, view.refused)
    if view.network.fatal:
        return failed(names.FAILED_NETWORK_SETUP, view.network.error)
    if view.sync.fatal:
        return failed(names.FAILED_INVALID_SPEC, view.sync.error)
    if age_s < START_LIMIT_S:
        return None
    waited = f"after {START_LIMIT_S:.0f} s there is still no guest"
    if view.network.task is not Task.DONE:
        return failed(
            names.FAILED_NETWORK_SETUP, f"{waited}: {view.network.error or handoffs.NETWORK_READY.waiting_for}"
        )
    if view.launcher is not Launcher.READY:
        return failed("LauncherNotReady", f"{waited}: waiting for {handoffs.LAUNCHER_READY.waiting_for}")
    if needs_session:
        return failed(names.FAILED_SYNC, f"{waited}: nobody has set up its SEV session (sev/setupsession)")
    why = view.sync.error or f"waiting for {handoffs.GUEST_STARTED.waiting_for}"
    return failed(names.FAILED_SYNC, f"{waited}: {why}")


def missing(view: View, age_s: float, now: datetime) -> HandoffKind | None:
    """The handoff that should have happened by now."""
    if view.network.task is not Task.DONE and age_s >= handoffs.NETWORK_READY.deadline_s:
        return handoffs.NETWORK_READY
    if view.launcher is not Launcher.READY and age_s >= handoffs.LAUNCHER_READY.deadline_s:
        return handoffs.LAUNCHER_READY
    if view.sync.started is None or view.sync.task is Task.DONE:
        return None
    syncing_s = (now - view.sync.started).total_seconds()
    if syncing_s >= SYNC_DEADLINE_S:
        return handoffs.GUEST_STARTED
    return handoffs.DOMAIN_DEFINED if syncing_s >= handoffs.DOMAIN_DEFINED.deadline_s else None


def _next_look(view: View, age_s: float, now: datetime) -> float:
    """Seconds to the next deadline or retry: nothing else needs the loop to run by itself."""
    deadlines = (START_LIMIT_S, handoffs.NETWORK_READY.deadline_s, handoffs.LAUNCHER_READY.deadline_s)
    moments = [deadline - age_s for deadline in deadlines]
    if view.sync.started is not None:
        syncing_s = (now - view.sync.started).total_seconds()
        moments += [handoffs.DOMAIN_DEFINED.deadline_s - syncing_s, SYNC_DEADLINE_S - syncing_s]
    for work in (view.network, view.sync):
        if work.task is Task.FAILED and work.retry_at is not None:
            moments.append((work.retry_at - now).total_seconds())
    ahead = [moment for moment in moments if moment > 0]
    return min(ahead) + 0.01 if ahead else 1.0
