"""What to do about a VMI and its Pods. Pure: objects and the time in, a Decision out.

virt-controller owns a VMI until a node has it (Pending, Scheduling, Scheduled), and its removal. In between it only
watches over the Pod: the node tells what the guest does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from virt_controller.vmi import gate, networks, owned, resize, upkeep
from virt_controller.vmi import pods as facts
from virt_controller.vmi.owned import Surroundings
from virt_controller.vmi.readiness import follow
from virt_core.apis import handoffs, names, podroles
from virt_core.apis.facts import is_terminating
from virt_core.apis.podroles import Role
from virt_core.apis.pods import Pod
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import MemoryStatus, TopologyHints, VirtualMachineInstanceStatus
from virt_core.kube.conditions import get_condition
from virt_core.kube.vmistatus import with_condition, with_failure, with_handoff, with_phase, without_condition
from virt_core.runtime.times import parse_rfc3339

#: The node's handler sees the end of a launcher at once and knows more about it, so it gets to speak first.
HANDLER_FIRST_S = 3.0
#: A launcher whose VMI is over ends by itself; one that does not is stuck.
STUCK_AFTER_END_S = 20.0
#: A claim that does not exist is seen when it comes; this is for a change that was missed.
CLAIM_RECHECK_S = 60.0

#: While a guest moves away from a launcher that has ended.
MOVE_RECHECK_S = 5.0
#: Between a Pod that its node refused and the next one.
REFUSAL_PAUSE_S = 3.0

_ALONE = Surroundings()
#: virt-controller's own; from then on the node speaks.
BEFORE_HAND_OVER = frozenset({names.PHASE_UNSET, names.PHASE_PENDING, names.PHASE_SCHEDULING})
_HANDED_OVER = frozenset({names.PHASE_SCHEDULED, names.PHASE_RUNNING})


@dataclass(frozen=True, slots=True)
class Note:
    """An Event to record."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Decision:
    create_pod: bool = False
    #: The Pod is only to be the first user of the VMI's claims.
    provisioning: bool = False
    #: The claim with the state of firmware and TPM: to be made, or such as nobody needs any more.
    create_state: bool = False
    delete_states: tuple[PersistentVolumeClaim, ...] = ()
    delete_pods: tuple[Pod, ...] = ()
    #: Pods that look like launchers of the VMI and are none.
    strangers: tuple[Pod, ...] = ()
    #: Operations on the active Pod, and the Pod.
    patch_pod: tuple[Pod, list[dict[str, object]]] | None = None
    #: What the gate of the active Pod is to say, and the Pod.
    gate: tuple[Pod, str] | None = None
    #: The VMI as it should be written, if it differs.
    vmi: VirtualMachineInstance | None = None
    notes: tuple[Note, ...] = ()
    recheck_s: float = 0.0


def decide(vmi: VirtualMachineInstance, pods: Sequence[Pod], now: datetime, around: Surroundings = _ALONE) -> Decision:
    """`pods` are those that name the VMI as their controller, complete: nothing we created or deleted is still on its
    way. What they are is settled by `podroles`."""
    phase = vmi.status.phase
    if is_terminating(vmi):
        return _remove(vmi, pods, now, around)
    if phase in names.FINAL_PHASES:
        return _after_end(vmi, pods, now, around)
    strangers = tuple(pod for pod in pods if podroles.is_stranger(pod, vmi) and not is_terminating(pod))
    decision = _follow_active(vmi, pods, now, around)
    active = podroles.active_pod(vmi, pods)
    opened = gate.due(vmi, active) if active is not None else ""
    told = (active, opened) if active is not None and opened else None
    return dataclasses.replace(decision, strangers=strangers, gate=told)


def _follow_active(vmi: VirtualMachineInstance, pods: Sequence[Pod], now: datetime, around: Surroundings) -> Decision:
    active = podroles.active_pod(vmi, pods)
    if vmi.status.phase in _HANDED_OVER:
        return _watch_over(vmi, active, now, around)
    if podroles.active(vmi) is None:
        return _begin(vmi, podroles.having(Role.PROVISIONING, vmi, pods), now, around)
    if active is None:
        return failed(vmi, names.FAILED_POD_GONE, facts.end_words(None), now)
    if facts.was_refused(active):
        return _after_refusal(vmi, active, now)
    return _schedule(vmi, active, now, around)


def scheduling(vmi: VirtualMachineInstance, pod_uid: str, now: datetime, tsc_hz: int = 0) -> VirtualMachineInstance:
    """The VMI once its Pod object exists. From here on this Pod is its own, and no other that says so."""
    status = with_phase(vmi.status, names.PHASE_SCHEDULING, now)
    status = replace(status, active_pods={pod_uid: ""}, provisioning_pod_uid="")
    status = with_handoff(status, handoffs.POD_CREATED, now)
    status = without_condition(status, names.CONDITION_SYNCHRONIZED, names.CONDITION_PROVISIONING)
    if get_condition(status.conditions, names.CONDITION_DATA_VOLUMES_READY) is not None:
        status = with_condition(status, names.CONDITION_DATA_VOLUMES_READY, names.TRUE, "AllDVsReady", now=now)
    status = with_condition(
        status,
        names.CONDITION_READY,
        names.FALSE,
        names.REASON_GUEST_NOT_RUNNING,
        "the guest is not running yet",
        now=now,
    )
    status = replace(status, virtual_machine_revision_name=owned.revision_name(vmi))
    if tsc_hz:
        status = replace(status, topology_hints=TopologyHints(tsc_frequency=tsc_hz))
    finalizers = vmi.metadata.finalizers
    if names.FINALIZER_VMI not in finalizers:
        finalizers = [*finalizers, names.FINALIZER_VMI]
    return replace(vmi, metadata=replace(vmi.metadata, finalizers=finalizers), status=status)


def provisioning(vmi: VirtualMachineInstance, pod_uid: str) -> VirtualMachineInstance:
    """The VMI once the first user of its claims exists. No other Pod that says it is one is listened to."""
    return replace(vmi, status=replace(vmi.status, provisioning_pod_uid=pod_uid))


def failed(vmi: VirtualMachineInstance, reason: str, message: str, now: datetime) -> Decision:
    status = with_failure(vmi.status, reason, message, now)
    return Decision(vmi=replace(vmi, status=status), notes=(Note(names.EVENT_WARNING, reason, message),))


def not_synchronized(vmi: VirtualMachineInstance, trouble: facts.Trouble, now: datetime) -> VirtualMachineInstance:
    status = with_condition(
        vmi.status, names.CONDITION_SYNCHRONIZED, names.FALSE, trouble.reason, trouble.message, now=now
    )
    return replace(vmi, status=status)


def _begin(vmi: VirtualMachineInstance, helpers: Sequence[Pod], now: datetime, around: Surroundings) -> Decision:
    if owned.is_receiver(vmi):
        return Decision(vmi=replace(vmi, status=with_phase(vmi.status, names.PHASE_WAITING_FOR_SYNC, now)))
    if around.missing_claims:
        claims = ", ".join(f'"{claim}"' for claim in around.missing_claims)
        trouble = facts.Trouble(names.REASON_PVC_NOT_FOUND, f"there is no PersistentVolumeClaim {claims}")
        return Decision(vmi=not_synchronized(vmi, trouble, now), recheck_s=CLAIM_RECHECK_S)
    if around.missing_networks:
        return _without_networks(vmi, around.missing_networks, now)
    if around.broken:
        words = f"DataVolume {', '.join(around.broken)} could not be filled"
        return failed(vmi, names.REASON_DATA_VOLUME_IMPORT, words, now)
    if around.unready:
        return Decision(vmi=_waiting_for_data(vmi, around.unready, now))
    if (waits := _without_state(vmi, around.state, now)) is not None:
        return waits
    if around.waiting:
        return _provision(vmi, helpers, around.waiting, now)
    done = tuple(pod for pod in helpers if not is_terminating(pod))
    return Decision(create_pod=True, delete_pods=done, delete_states=around.state.unused)


def _without_state(vmi: VirtualMachineInstance, state: owned.KeptState, now: datetime) -> Decision | None:
    """What to do while the claim for the state of firmware and TPM is not ready."""
    if state.missing:
        return Decision(create_state=True)
    if state.trouble is None:
        return None
    if state.quiet_s:
        return Decision(recheck_s=state.quiet_s)
    return Decision(vmi=not_synchronized(vmi, state.trouble, now), recheck_s=CLAIM_RECHECK_S)


def _without_networks(vmi: VirtualMachineInstance, missing: Sequence[str], now: datetime) -> Decision:
    """No Pod is made that could not get its networks. One that comes is seen, unless the change was missed."""
    shown = ", ".join(f'"{each}"' for each in missing)
    trouble = facts.Trouble(names.REASON_NETWORK_NOT_FOUND, f"there is no NetworkAttachmentDefinition {shown}")
    return Decision(vmi=not_synchronized(vmi, trouble, now), recheck_s=CLAIM_RECHECK_S)


def _provision(vmi: VirtualMachineInstance, helpers: Sequence[Pod], waiting: Sequence[str], now: datetime) -> Decision:
    """The claims are bound for a Pod that ends at once; the launcher must not see them before they are filled."""
    if any(pod.status.phase == "Failed" for pod in helpers):
        words = f"the Pod that was to be the first user of {', '.join(waiting)} failed"
        return failed(vmi, names.REASON_FAILED_CREATE, words, now)
    if not helpers:
        return Decision(create_pod=True, provisioning=True)
    words = f"DataVolume {', '.join(waiting)} is being made for the node of its first user"
    status = with_condition(vmi.status, names.CONDITION_PROVISIONING, names.TRUE, "", words, now=now)
    return Decision(vmi=replace(vmi, status=status))


def _waiting_for_data(vmi: VirtualMachineInstance, unready: Sequence[str], now: datetime) -> VirtualMachineInstance:
    """A change of the DataVolume brings the VMI back here."""
    words = f"waiting for DataVolume {', '.join(unready)}"
    status = with_condition(
        vmi.status, names.CONDITION_DATA_VOLUMES_READY, names.FALSE, "NotAllDVsReady", words, now=now
    )
    return replace(vmi, status=status)


def _schedule(vmi: VirtualMachineInstance, pod: Pod, now: datetime, around: Surroundings) -> Decision:
    if facts.is_finished(pod) or is_terminating(pod):
        return failed(vmi, names.FAILED_LAUNCHER, facts.end_words(pod), now)
    if facts.is_ready_for_node(pod):
        return _hand_over(vmi, pod, now, around)
    return _wait_for_pod(vmi, pod, now)


def _after_refusal(vmi: VirtualMachineInstance, pod: Pod, now: datetime) -> Decision:
    """Nothing of the Pod ever ran, so another one may try its luck; for as long as any start may take. The refused one
    goes as a stranger when its successor is recorded."""
    first = next((h.time for h in vmi.status.handoffs if h.name == handoffs.POD_CREATED.name), None)
    left_s = handoffs.POD_STARTED.deadline_s - _age_s(first, now)
    pause_s = REFUSAL_PAUSE_S - _age_s(pod.metadata.creation_timestamp, now)
    message = f"node {pod.spec.node_name} refused the launcher Pod: {pod.status.message or pod.status.reason}"
    if left_s <= 0:
        return failed(vmi, names.FAILED_LAUNCHER, message, now)
    if pause_s > 0:
        return Decision(recheck_s=pause_s)
    return Decision(create_pod=True, notes=(Note(names.EVENT_WARNING, pod.status.reason, f"{message}; trying again"),))


def _age_s(created: str | None, now: datetime) -> float:
    return (now - parse_rfc3339(created)).total_seconds() if created else 0.0


def _hand_over(vmi: VirtualMachineInstance, pod: Pod, now: datetime, around: Surroundings) -> Decision:
    node = pod.spec.node_name
    status = with_phase(vmi.status, names.PHASE_SCHEDULED, now)
    status = with_handoff(status, handoffs.POD_STARTED, now)
    status = with_handoff(status, handoffs.HANDED_OVER, now)
    status = without_condition(status, names.CONDITION_SYNCHRONIZED, names.CONDITION_POD_SCHEDULED)
    status = replace(
        status,
        node_name=node,
        active_pods={pod.metadata.uid: node},
        qos_class=pod.status.qos_class or None,
        migration_transport="Unix",
        memory=_with_overhead(status, pod),
        volume_status=owned.volume_statuses(vmi, around),
        vsock_cid=around.vsock_cid or status.vsock_cid,
        interfaces=networks.follow(vmi, pod),
        launcher_container_image_version=upkeep.launcher_image(pod),
    )
    labels = vmi.metadata.labels | {names.LABEL_NODE_NAME: node}
    return Decision(vmi=replace(vmi, metadata=replace(vmi.metadata, labels=labels), status=status))


def _with_overhead(status: VirtualMachineInstanceStatus, pod: Pod) -> MemoryStatus | None:
    overhead = facts.memory_overhead(pod)
    return status.memory if overhead is None else replace(status.memory or MemoryStatus(), memory_overhead=overhead)


def _wait_for_pod(vmi: VirtualMachineInstance, pod: Pod, now: datetime) -> Decision:
    """Nothing is written while all goes its way; what holds it up is told once."""
    left_s = handoffs.POD_STARTED.deadline_s - _age_s(pod.metadata.creation_timestamp, now)
    trouble = facts.waiting_trouble(pod, vmi)
    if unschedulable := facts.unschedulable(pod):
        status = with_condition(
            vmi.status,
            names.CONDITION_POD_SCHEDULED,
            names.FALSE,
            unschedulable.reason,
            unschedulable.message,
            now=now,
        )
        return Decision(vmi=replace(vmi, status=status))
    if trouble is None and left_s <= 0:
        message = f"waiting for {handoffs.POD_STARTED.waiting_for} ({pod.metadata.name} is {pod.status.phase or 'new'})"
        trouble = facts.Trouble("PodNotStarted", message)
    if trouble is None or _already_told(vmi, trouble):
        return Decision(vmi=vmi, recheck_s=max(left_s, 0.0))
    note = Note(names.EVENT_WARNING, trouble.reason, trouble.message)
    return Decision(vmi=not_synchronized(vmi, trouble, now), notes=(note,), recheck_s=max(left_s, 0.0))


def _already_told(vmi: VirtualMachineInstance, trouble: facts.Trouble) -> bool:
    """A node that retries goes back and forth between two reasons for one trouble; the first telling is enough."""
    told = get_condition(vmi.status.conditions, names.CONDITION_SYNCHRONIZED)
    if told is None:
        return False
    pulls = {names.REASON_ERR_IMAGE_PULL, names.REASON_IMAGE_PULL_BACKOFF}
    return told.reason == trouble.reason or {told.reason, trouble.reason} == pulls


def _watch_over(vmi: VirtualMachineInstance, pod: Pod | None, now: datetime, around: Surroundings) -> Decision:
    if pod is None and not move_under_way(vmi):
        return failed(vmi, names.FAILED_LAUNCHER, facts.end_words(None), now)
    if pod is None:
        return Decision(recheck_s=MOVE_RECHECK_S)
    if facts.is_finished(pod):
        return _launcher_ended(vmi, pod, now)
    if (trouble := facts.lost_share(pod)) is not None and not is_terminating(pod):
        return _share_lost(vmi, pod, trouble, now)
    status = follow(vmi.status, pod, now, vmi.spec.readiness_probe)
    followed = replace(vmi, status=replace(status, interfaces=networks.follow(vmi, pod)))
    followed = networks.with_migration_required(followed, pod, now)
    kept = upkeep.follow(owned.with_grown_claims(followed, around.claims), pod, around.launcher_image, now)
    sized = resize.follow(kept, around.resizing, now)
    notes = (Note(names.EVENT_WARNING, each.reason, each.message) for each in resize.new_trouble(vmi, sized))
    asks = networks.operations(vmi, pod) if not is_terminating(pod) else []
    return Decision(vmi=sized, notes=tuple(notes), patch_pod=(pod, asks) if asks else None)


def _share_lost(vmi: VirtualMachineInstance, pod: Pod, trouble: facts.Trouble, now: datetime) -> Decision:
    """A guest that runs goes on without its files; one that does not yet will never get them."""
    if vmi.status.phase != names.PHASE_RUNNING:
        return failed(vmi, trouble.reason, trouble.message, now)
    told = _already_told(vmi, trouble)
    vmi = replace(vmi, status=follow(vmi.status, pod, now, vmi.spec.readiness_probe))
    if told:
        return Decision(vmi=vmi)
    note = Note(names.EVENT_WARNING, trouble.reason, trouble.message)
    return Decision(vmi=not_synchronized(vmi, trouble, now), notes=(note,))


def _launcher_ended(vmi: VirtualMachineInstance, pod: Pod, now: datetime) -> Decision:
    terminated = facts.compute_state(pod).terminated
    if terminated is not None and terminated.finished_at:
        left_s = HANDLER_FIRST_S - (now - parse_rfc3339(terminated.finished_at)).total_seconds()
        if 0 < left_s <= HANDLER_FIRST_S:
            return Decision(recheck_s=left_s)
    if move_under_way(vmi):
        return Decision(recheck_s=MOVE_RECHECK_S)  # The guest may have left it; the move's own controller finds out.
    if lost := _lost_on_the_way(vmi, terminated.finished_at if terminated is not None else None):
        return failed(vmi, names.FAILED_LAUNCHER, lost, now)
    if pod.status.phase == "Succeeded":
        return Decision(vmi=replace(vmi, status=with_phase(vmi.status, names.PHASE_SUCCEEDED, now)))
    return failed(vmi, names.FAILED_LAUNCHER, facts.end_words(pod), now)


def move_under_way(vmi: VirtualMachineInstance) -> bool:
    """From the moment in which the guest may have left: its node begins when it reads where to."""
    move = vmi.status.migration_state
    return move is not None and bool(move.target_node_address) and not (move.completed or move.failed)


def _lost_on_the_way(vmi: VirtualMachineInstance, finished_at: str | None) -> str:
    """A launcher that ends well in the middle of a move has given the guest away; if the move failed, nobody has it."""
    move = vmi.status.migration_state
    if move is None or not move.failed or not move.end_timestamp or not finished_at:
        return ""
    if parse_rfc3339(finished_at) > parse_rfc3339(move.end_timestamp):
        return ""
    return f"the guest had left for node {move.target_node} and is lost there: {move.failure_reason}"


def _remove(vmi: VirtualMachineInstance, pods: Sequence[Pod], now: datetime, around: Surroundings) -> Decision:
    """Deleted: its Pods go first, then the finalizer. A finished Pod is deleted too: nobody will read its logs."""
    alive = tuple(pod for pod in pods if not is_terminating(pod))
    if all(podroles.role_of(pod, vmi) is None for pod in pods):
        # Nobody keeps a VMI alive with a Pod that is not its own.
        return Decision(delete_pods=alive, vmi=_finalized(vmi, now, around))
    active = podroles.active_pod(vmi, pods)
    status = vmi.status if active is None else follow(vmi.status, active, now, vmi.spec.readiness_probe)
    return Decision(delete_pods=alive, vmi=replace(vmi, status=status))


def _after_end(vmi: VirtualMachineInstance, pods: Sequence[Pod], now: datetime, around: Surroundings) -> Decision:
    """Over but not deleted: the finished Pod stays for its logs; one that still runs long after is stuck."""
    if all(podroles.role_of(pod, vmi) is None for pod in pods):
        return Decision(vmi=_finalized(vmi, now, around))
    running = tuple(pod for pod in pods if facts.still_runs(pod) and not is_terminating(pod))
    if not running or names.keeps_launcher(vmi.metadata.annotations):
        return Decision()
    left_s = STUCK_AFTER_END_S - (now - _ended_at(vmi, now)).total_seconds()
    if left_s > 0:
        return Decision(recheck_s=left_s)
    return Decision(delete_pods=running)


def _ended_at(vmi: VirtualMachineInstance, now: datetime) -> datetime:
    for stamp in vmi.status.phase_transition_timestamps:
        if stamp.phase == vmi.status.phase and stamp.phase_transition_timestamp:
            return parse_rfc3339(stamp.phase_transition_timestamp)
    return now


def _finalized(vmi: VirtualMachineInstance, now: datetime, around: Surroundings) -> VirtualMachineInstance:
    metadata = replace(vmi.metadata, finalizers=owned.kept_finalizers(vmi, around.orphan))
    status = vmi.status
    if status.phase not in names.FINAL_PHASES:
        status = with_phase(status, names.PHASE_FAILED, now)
    return replace(vmi, metadata=metadata, status=status)
