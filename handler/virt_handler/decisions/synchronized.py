"""Whether a running machine is what its VMI asks for: when to sync it again, and what people are told. Pure."""

from __future__ import annotations

from datetime import datetime

from virt_core.apis import names
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import VirtualMachineInstanceStatus
from virt_core.kube.vmistatus import with_condition, without_condition
from virt_handler.decisions.domains import is_alive
from virt_handler.decisions.silence import DOUBT_AFTER_S, LOST_AFTER_S, Verdict
from virt_handler.decisions.vocabulary import Action, Launcher, Step, Task, View
from virt_handler.decisions.wanted import digest
from virt_protos.launcher.v1 import launcher_pb2 as pb

Status = VirtualMachineInstanceStatus


def converge(vmi: VirtualMachineInstance, view: View, now: datetime) -> Step | None:
    """A step towards what the VMI asks for; None: the machine is that, or cannot be asked."""
    if vmi.status.phase != names.PHASE_RUNNING or view.launcher is not Launcher.READY or view.synced is None:
        return None
    if view.domain is None or not is_alive(view.domain) or view.domain.state == pb.DOMAIN_STATE_SHUTTING_DOWN:
        return None
    wanted, sync = digest(vmi), view.sync
    if sync.task is Task.RUNNING or view.synced.digest == wanted:
        return None
    if sync.task is Task.FAILED and sync.asked == wanted and sync.retry_at is not None and now < sync.retry_at:
        return Step(recheck_s=(sync.retry_at - now).total_seconds())
    return Step(Action.SYNC)


def with_synchronized(status: Status, view: View, now: datetime, *, first: bool) -> Status:
    """`first`: the guest runs since just now."""
    if view.pulse is not Verdict.FINE:
        return _doubtful(status, now)
    # The error stays while the next attempt is under way; one from before the guest ran is of no interest now.
    if first or view.sync.task is Task.DONE or not view.sync.error:
        return without_condition(status, names.CONDITION_SYNCHRONIZED)
    told = (names.EVENT_SYNC_FAILED, view.sync.error)
    return with_condition(status, names.CONDITION_SYNCHRONIZED, names.FALSE, *told, now=now)


def _doubtful(status: Status, now: datetime) -> Status:
    # No number that grows: the condition is written once.
    message = (
        f"the launcher has not answered for more than {DOUBT_AFTER_S:.0f} s; "
        f"the guest may still run, and the VMI fails if the launcher stays silent for {LOST_AFTER_S:.0f} s"
    )
    reason = names.FAILED_LAUNCHER_UNRESPONSIVE
    return with_condition(status, names.CONDITION_SYNCHRONIZED, names.FALSE, reason, message, now=now)


def with_restart_required(status: Status, view: View, now: datetime) -> Status:
    """What the running machine cannot become. virt-controller tells it on the VM too."""
    if view.synced is None:
        return status
    needs = [f"{need.field}: {need.reason}" for need in view.synced.needs_restart]
    if not needs:
        return without_condition(status, names.CONDITION_RESTART_REQUIRED)
    message = f"a restart is needed: {'; '.join(needs)}"
    reason = names.CONDITION_RESTART_REQUIRED
    return with_condition(status, names.CONDITION_RESTART_REQUIRED, names.TRUE, reason, message, now=now)
