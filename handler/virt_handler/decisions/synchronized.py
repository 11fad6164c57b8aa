"""Whether a running machine is what its VMI asks for: when to sync it again, and what people are told. Pure."""

from __future__ import annotations

from datetime import datetime

from virt_core.apis import names
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import VirtualMachineInstanceStatus
from virt_core.kube.conditions import get_condition
from virt_core.kube.vmistatus import with_condition, without_condition
from virt_handler.decisions import nics
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
    if (step := _rewire(vmi, view, view.domain, now)) is not None and step.action is Action.WIRE_NETWORK:
        return step
    wanted, sync = digest(vmi, view.report), view.sync
    if sync.task is Task.RUNNING or view.synced.digest == wanted:
        return step
    if sync.task is Task.FAILED and sync.asked == wanted and sync.retry_at is not None and now < sync.retry_at:
        return Step(recheck_s=(sync.retry_at - now).total_seconds())
    return Step(Action.SYNC)


def _rewire(vmi: VirtualMachineInstance, view: View, domain: pb.Domain, now: datetime) -> Step | None:
    """A step if the Pod has other NICs by now than are wired, or lost what serves one of them. While a machine is
    changed nobody pulls at its wires."""
    if view.sync.task is Task.RUNNING or view.network.task is Task.RUNNING:
        return None
    network = view.network
    if network.task is not Task.FAILED and not nics.differs(vmi, domain, view.report):
        return None
    if network.task is Task.FAILED and network.retry_at is not None and now < network.retry_at:
        return Step(recheck_s=(network.retry_at - now).total_seconds())
    return Step(Action.WIRE_NETWORK)


def with_synchronized(status: Status, view: View, now: datetime, *, first: bool) -> Status:
    """`first`: the guest runs since just now."""
    if view.pulse is not Verdict.FINE:
        return _doubtful(status, now)
    if not first and view.network.task is Task.FAILED:
        told = (names.EVENT_SYNC_FAILED, view.network.error)
        return with_condition(status, names.CONDITION_SYNCHRONIZED, names.FALSE, *told, now=now)
    # The error stays while the next attempt is under way; one from before the guest ran is of no interest now.
    if first or view.sync.task is Task.DONE or not view.sync.error:
        if _told_by_others(status):
            return status
        return without_condition(status, names.CONDITION_SYNCHRONIZED)
    told = (names.EVENT_SYNC_FAILED, view.sync.error)
    return with_condition(status, names.CONDITION_SYNCHRONIZED, names.FALSE, *told, now=now)


def _told_by_others(status: Status) -> bool:
    """virt-controller sees the end of what serves the guest's filesystems."""
    condition = get_condition(status.conditions, names.CONDITION_SYNCHRONIZED)
    return condition is not None and condition.reason == names.FAILED_SHARE


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
    if view.synced is None or not (view.synced.digest or view.synced.needs_restart):
        return status  # Nobody has looked yet; where the machine comes from, somebody has.
    needs = [f"{need.field}: {need.reason}" for need in view.synced.needs_restart]
    if not needs:
        return without_condition(status, names.CONDITION_RESTART_REQUIRED)
    message = f"a restart is needed: {'; '.join(needs)}"
    reason = names.CONDITION_RESTART_REQUIRED
    return with_condition(status, names.CONDITION_RESTART_REQUIRED, names.TRUE, reason, message, now=now)
