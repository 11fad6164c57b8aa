"""The Ready condition of a VMI that runs. Pure."""

from __future__ import annotations

from datetime import datetime

from virt_controller.vmi import gate
from virt_controller.vmi import pods as facts
from virt_core.apis import names
from virt_core.apis.facts import is_terminating
from virt_core.apis.guestprobes import action
from virt_core.apis.pods import Pod, PodCondition
from virt_core.apis.vmi import Probe
from virt_core.apis.vmistatus import VirtualMachineInstanceStatus
from virt_core.kube.conditions import get_condition, is_true
from virt_core.kube.vmistatus import with_condition

#: Ours to take back, also where the node wrote it: a guest with a readinessProbe is ready when its Pod says so.
#: Other reasons for not being ready are the node's.
_POD_NOT_READY = names.REASON_POD_NOT_READY
#: The launcher has ended, or its gate is closed: we do that ourselves, for what the VMI says already.
_NOT_OF_THE_POD = frozenset({"PodCompleted", gate.REASON_CLOSED})


def follow(
    status: VirtualMachineInstanceStatus, pod: Pod, now: datetime, probe: Probe | None = None
) -> VirtualMachineInstanceStatus:
    """The node sets Ready with Running; from then on the Pod may take it away and give it back. `probe` is the guest's
    readinessProbe."""
    if status.phase != names.PHASE_RUNNING:
        return status
    ready = get_condition(status.conditions, names.CONDITION_READY)
    if is_terminating(pod):
        return _unready(status, names.REASON_POD_TERMINATING, "the launcher Pod is being deleted", now)
    of_pod = facts.condition(pod, "Ready")
    if of_pod is not None and of_pod.status == names.FALSE and of_pod.reason not in _NOT_OF_THE_POD:
        return _unready(status, _POD_NOT_READY, _words(of_pod, probe), now)
    paused = is_true(status.conditions, names.CONDITION_PAUSED)
    if ready is not None and ready.status == names.FALSE and ready.reason == _POD_NOT_READY and not paused:
        return with_condition(status, names.CONDITION_READY, names.TRUE, now=now)
    return status


def _words(of_pod: PodCondition, probe: Probe | None) -> str:
    words = of_pod.message or of_pod.reason or "the launcher Pod is not ready"
    return words if probe is None else f"the guest's readinessProbe ({action(probe)}) does not succeed: {words}"


def _unready(
    status: VirtualMachineInstanceStatus, reason: str, message: str, now: datetime
) -> VirtualMachineInstanceStatus:
    return with_condition(status, names.CONDITION_READY, names.FALSE, reason, message, now=now)
