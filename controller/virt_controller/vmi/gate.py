"""The readiness gate of launcher Pods: open at the Pod that has the guest while the guest goes on. Pure.

A Service sends nobody to a Pod whose gate is closed: to that of a paused guest, and to the one that a guest is still on
its way to.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from virt_controller.vmi import pods as facts
from virt_core.apis import names
from virt_core.apis.facts import is_terminating
from virt_core.apis.pods import Pod
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.conditions import is_true
from virt_core.runtime.times import rfc3339

#: What a node says of a Pod whose containers are ready and whose gates are not open.
REASON_CLOSED = "ReadinessGatesNotReady"


def due(vmi: VirtualMachineInstance, pod: Pod) -> str:
    """What the condition of the Pod that has the guest is to be; empty: what it is."""
    if is_terminating(pod) or facts.is_finished(pod) or not _has_gate(pod):
        return ""
    paused = is_true(vmi.status.conditions, names.CONDITION_PAUSED)
    wanted = names.FALSE if paused else names.TRUE
    told = facts.condition(pod, names.CONDITION_POD_UNPAUSED)
    return "" if told is not None and told.status == wanted else wanted


def document(status: str, now: datetime) -> dict[str, Any]:
    """The patch of the Pod's status."""
    condition = {"type": names.CONDITION_POD_UNPAUSED, "status": status, "lastTransitionTime": rfc3339(now)}
    if status == names.FALSE:
        condition |= {"reason": "Paused", "message": "the guest is paused"}
    else:
        condition |= {"reason": "NotPaused", "message": "the guest is not paused"}
    return {"status": {"conditions": [condition]}}


def _has_gate(pod: Pod) -> bool:
    return any(gate.condition_type == names.CONDITION_POD_UNPAUSED for gate in pod.spec.readiness_gates)
