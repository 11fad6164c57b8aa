"""What to do about one migration job. Pure: job, VMI, Pods and the time in, a Decision out.

The VMI says who has the guest, and it changes hands there, in one write, by the node that it arrives at. The controller
finds it a Pod, tells the two nodes of each other, and says that a move has failed once the target cannot have the guest
any more: when its Pod is gone or over. Never earlier, since the side that the guest leaves lets it run again on that
word (docs/decisions/0033-never-twice.md).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from virt_controller.migration.target import Bringing, has_other_claims, is_outgrown, volume_going
from virt_controller.vmi import pods as facts
from virt_controller.vmi.decide import Note
from virt_core.apis import names
from virt_core.apis.facts import is_final, is_terminating
from virt_core.apis.migration import VirtualMachineInstanceMigration as Job
from virt_core.apis.migration import VirtualMachineInstanceMigrationPhaseTransitionTimestamp as Stamp
from virt_core.apis.migrationstate import MigrationConfiguration
from virt_core.apis.migrationstate import VirtualMachineInstanceMigrationState as MoveState
from virt_core.apis.podroles import active, owner_uid, recorded
from virt_core.apis.pods import Pod
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.volumemoves import unmeasured
from virt_core.kube.conditions import get_condition, set_condition
from virt_core.runtime.times import parse_rfc3339, rfc3339

#: A target Pod that no node takes, and one that does not come up for whatever reason.
UNSCHEDULABLE_S = 300.0
PENDING_S = 900.0
#: Volumes that hold a machine where it is, unless the settings say otherwise.
UTILITY_VOLUMES_S = 150.0
#: From the hand-over to the start of the move itself.
START_S = 300.0
#: A target Pod for which the namespace's quota has no room is asked for again.
QUOTA_S = 10.0
#: For a guest whose launcher has ended in the middle to be seen on the other side.
ARRIVAL_S = 60.0
#: For the node that a guest stays on to say why, once the target has ended by itself.
SOURCE_TELLS_S = 15.0

_NUMBERS = re.compile(r"\d+")
#: Conditions of a job that waits; they go when it goes on.
_WAITS = (names.CONDITION_MIGRATION_WAITING, names.CONDITION_MIGRATION_QUOTA)
_ORDER = (
    names.MIGRATION_PENDING,
    names.MIGRATION_SCHEDULING,
    names.MIGRATION_SCHEDULED,
    names.MIGRATION_PREPARING_TARGET,
    names.MIGRATION_TARGET_READY,
    names.MIGRATION_RUNNING,
)


@dataclass(frozen=True, slots=True)
class Chance:
    """Whether a job may begin now, and the settings that it would run with."""

    settings: MigrationConfiguration
    policy: str | None = None
    #: Why it must wait; empty: it need not.
    wait: str = ""
    #: Another job of the same VMI that came first.
    rival: str = ""
    retry_s: float = 3.0
    #: What is to be brought to the target beside its launcher; None: nothing.
    volumes: Bringing | None = None
    #: All of the VMI's.
    pods: tuple[Pod, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    job: Job | None = None
    #: Written before the job: it is what the nodes follow.
    vmi: VirtualMachineInstance | None = None
    #: The reason of the Event if the VMI cannot be written; empty: none.
    alarm: str = ""
    create_pod: bool = False
    #: The Pod that brings the hot-plugged volumes to the target's node.
    create_attachment: bool = False
    delete_pods: tuple[Pod, ...] = ()
    notes: tuple[Note, ...] = ()
    recheck_s: float = 0.0


def decide(
    job: Job, vmi: VirtualMachineInstance | None, pods: Sequence[Pod], now: datetime, chance: Chance
) -> Decision:
    """`pods` are those that the VMI controls."""
    target = target_pod(job, vmi, pods)
    if job.status.phase in names.FINAL_PHASES:
        return _after(job, vmi, target, pods)
    if vmi is None or is_final(vmi) or is_terminating(vmi):
        what = "does not exist" if vmi is None else "is over or being deleted"
        return failed(job, f"the VMI {what}", now, target=target)
    move = vmi.status.migration_state
    if move is not None and move.migration_uid == job.metadata.uid:
        return _accompany(job, vmi, target, pods, now)
    if job.status.phase in _ORDER[_ORDER.index(names.MIGRATION_PREPARING_TARGET) :]:
        return failed(job, "the VMI is being moved by another job", now, target=target)
    return _before(job, vmi, target, now, dataclasses.replace(chance, pods=tuple(pods)))


def target_pod(job: Job, vmi: VirtualMachineInstance | None, pods: Sequence[Pod]) -> Pod | None:
    """By its controller and the job; the VMI's own Pod is never one."""
    if vmi is None:
        return None
    own = {each.uid for each in recorded(vmi).values() if each.node == vmi.status.node_name}
    return next(
        (
            pod
            for pod in pods
            if pod.metadata.labels.get(names.LABEL_MIGRATION_JOB_UID) == job.metadata.uid
            and owner_uid(pod) == vmi.metadata.uid
            and pod.metadata.uid not in own
        ),
        None,
    )


def must_look(job: Job, vmi: VirtualMachineInstance | None, pods: Sequence[Pod]) -> bool:
    """Whether a Pod that is not among `pods` must be asked for anew: a cache may not have it yet, and the guest goes on
    at the source on the word that the target is gone."""
    if vmi is None or job.status.phase in names.FINAL_PHASES:
        return False
    move = _unsettled(vmi)
    if move is None:
        return job.status.phase == names.MIGRATION_SCHEDULING and target_pod(job, vmi, pods) is None
    return not {move.target_pod, move.source_pod} <= {pod.metadata.name for pod in pods}


def _unsettled(vmi: VirtualMachineInstance) -> MoveState | None:
    """The move of which it is not written down yet how it ended."""
    move = vmi.status.migration_state
    return move if move is not None and move.migration_uid and not (move.completed or move.failed) else None


# -- before the hand-over ----------------------------------------------------------------------------------------------


def _before(job: Job, vmi: VirtualMachineInstance, target: Pod | None, now: datetime, chance: Chance) -> Decision:
    if is_terminating(job):
        return failed(job, "the migration was deleted before it began", now, target=target)
    if chance.rival:
        return failed(job, f"the VMI is already being moved by {chance.rival}", now, target=target)
    if (stray := _unsettled(vmi)) is not None:
        return _end_stray(job, vmi, stray, now, chance)
    if (obstacle := _obstacle(vmi)) and target is None:
        return failed(job, obstacle, now)
    if leaving := volume_going(vmi):
        return failed(
            job, f'volume "{leaving}" is being unplugged; the machine can move when it is gone', now, target=target
        )
    if target is None and job.status.phase == names.MIGRATION_SCHEDULING:
        return failed(job, f"the target {facts.end_words(None).removeprefix('the ')}", now)
    if target is None:
        return _utility_volumes(job, vmi, now, chance) or _begin(_unblocked(job), now, chance)
    if facts.is_finished(target) or is_terminating(target):
        return failed(job, f"the target {facts.end_words(target).removeprefix('the ')}", now, target=target)
    if is_outgrown(target, vmi):
        return failed(
            job, "the machine has been given more CPUs or memory since its target was made", now, target=target
        )
    if has_other_claims(target, vmi):
        return failed(
            job, "the machine's volumes are to be on other claims since its target was made", now, target=target
        )
    if facts.is_ready_for_node(target):
        return _bring(job, target, now, chance) or _hand_over(job, vmi, target, now, chance)
    return _wait_for_pod(job, vmi, target, now)


def _bring(job: Job, target: Pod, now: datetime, chance: Chance) -> Decision | None:
    """None: all volumes that the launcher cannot have by itself are on its node."""
    volumes = chance.volumes
    if volumes is None or volumes.is_ready:
        return None
    waiting = _in_phase(job, names.MIGRATION_SCHEDULING, now)
    if volumes.pod is None:
        return Decision(job=waiting, create_attachment=True, delete_pods=volumes.unfit)
    limit_s = _limit(job, names.ANNOTATION_MIGRATION_PENDING, PENDING_S)
    age_s = _age_s(volumes.pod, now)
    if age_s < limit_s and not facts.is_finished(volumes.pod):
        return Decision(job=waiting, recheck_s=limit_s - age_s + 0.1)
    unschedulable = facts.unschedulable(volumes.pod)
    why = f": {unschedulable.message}" if unschedulable is not None else ""
    words = f"its hot-plugged volumes cannot be brought to node {target.spec.node_name}"
    return failed(
        job, f"{words}: Pod {volumes.pod.metadata.name} is {volumes.pod.status.phase}{why}", now, target=target
    )


def _end_stray(job: Job, vmi: VirtualMachineInstance, stray: MoveState, now: datetime, chance: Chance) -> Decision:
    """Somebody removed another job by force in the middle of its move. None begins before that one is settled."""
    pending = _in_phase(job, names.MIGRATION_PENDING, now)
    pod = next((each for each in chance.pods if each.metadata.name == stray.target_pod), None)
    if pod is None or facts.is_finished(pod):
        return dataclasses.replace(_target_lost(vmi, stray, pod, now), job=pending)
    wish = None if stray.abort_requested else _with_wish(vmi, stray, "its job was removed in the middle of it")
    return Decision(job=pending, vmi=wish, recheck_s=chance.retry_s)


def _obstacle(vmi: VirtualMachineInstance) -> str:
    if vmi.status.phase != names.PHASE_RUNNING:
        return f"the VMI is {vmi.status.phase or 'new'}, not Running"
    told = get_condition(vmi.status.conditions, names.CONDITION_LIVE_MIGRATABLE)
    if told is not None and told.status == names.FALSE:
        return f"the VMI cannot be moved: {told.message or told.reason}"
    return ""


def _utility_volumes(job: Job, vmi: VirtualMachineInstance, now: datetime, chance: Chance) -> Decision | None:
    """Something of ours writes there, a backup mostly: the machine stays until that is done, and no longer than so."""
    listed = ", ".join(each.name for each in vmi.spec.utility_volumes)
    if not listed:
        return None
    default_s = float(chance.settings.utility_volumes_timeout or UTILITY_VOLUMES_S)
    limit_s = _limit(job, names.ANNOTATION_MIGRATION_UTILITY_VOLUMES, default_s)
    pending = _in_phase(job, names.MIGRATION_PENDING, now)
    left_s = limit_s - _age_of(pending, names.MIGRATION_PENDING, now)
    words = f"the machine has utility volumes: {listed}"
    if left_s <= 0:
        return failed(job, f"{words}; they were still there after {limit_s:.0f} s", now)
    kind, reason = names.CONDITION_MIGRATION_UTILITY_VOLUMES, names.REASON_UTILITY_VOLUMES
    known = get_condition(job.status.conditions, kind) is not None
    note = Note(names.EVENT_WARNING, names.EVENT_UTILITY_VOLUMES, words)
    conditions = list(pending.status.conditions)
    set_condition(conditions, kind, names.TRUE, reason, words, now=now)
    blocked = replace(pending, status=replace(pending.status, conditions=conditions))
    return Decision(job=blocked, notes=() if known else (note,), recheck_s=left_s + 0.1)


def _unblocked(job: Job) -> Job:
    kind = names.CONDITION_MIGRATION_UTILITY_VOLUMES
    kept = [each for each in job.status.conditions if each.type != kind]
    return job if kept == job.status.conditions else replace(job, status=replace(job.status, conditions=kept))


def _begin(job: Job, now: datetime, chance: Chance) -> Decision:
    pending = _in_phase(job, names.MIGRATION_PENDING, now)
    if chance.wait:
        return Decision(job=_waiting(pending, chance.wait, now), recheck_s=chance.retry_s)
    return Decision(job=_going_on(_in_phase(pending, names.MIGRATION_SCHEDULING, now)), create_pod=True)


def over_quota(job: Job, why: str, now: datetime) -> Decision:
    """The API server did not take the target Pod. Others may end and make room for it, or the quota may change."""
    kind = names.CONDITION_MIGRATION_QUOTA
    pending = _waiting(_in_phase(_going_on(job, kept=kind), names.MIGRATION_PENDING, now), why, now, kind)
    note = Note(names.EVENT_WARNING, names.EVENT_FAILED_CREATE, f"the target Pod was not created: {why}")
    return Decision(job=pending, notes=() if is_over_quota(job) else (note,), recheck_s=QUOTA_S)


def is_over_quota(job: Job) -> bool:
    return get_condition(job.status.conditions, names.CONDITION_MIGRATION_QUOTA) is not None


def _going_on(job: Job, kept: str = "") -> Job:
    """It does not wait any more for what it waited for."""
    left = [each for each in job.status.conditions if each.type not in _WAITS or each.type == kept]
    return job if left == job.status.conditions else replace(job, status=replace(job.status, conditions=left))


def _waiting(job: Job, why: str, now: datetime, kind: str = names.CONDITION_MIGRATION_WAITING) -> Job:
    """A reason that differs only in its numbers is no news: it would be written at every look."""
    told = get_condition(job.status.conditions, kind)
    if told is not None and _NUMBERS.sub("", told.message) == _NUMBERS.sub("", why):
        return job
    conditions = [replace(each) for each in job.status.conditions]
    set_condition(conditions, kind, names.TRUE, "Waiting", why, now=now)
    return replace(job, status=replace(job.status, conditions=conditions))


def _wait_for_pod(job: Job, vmi: VirtualMachineInstance, target: Pod, now: datetime) -> Decision:
    waiting = _in_phase(job, names.MIGRATION_SCHEDULING, now)
    age_s = _age_s(target, now)
    unschedulable = facts.unschedulable(target)
    limit_s = _limit(job, names.ANNOTATION_MIGRATION_PENDING, PENDING_S)
    why = "it did not start"
    if unschedulable is not None:
        limit_s = min(limit_s, _limit(job, names.ANNOTATION_MIGRATION_UNSCHEDULABLE, UNSCHEDULABLE_S))
        why = f"no node takes it: {unschedulable.message}"
    elif trouble := facts.waiting_trouble(target, vmi):
        why = trouble.message
    if age_s < limit_s:
        known = get_condition(job.status.conditions, names.CONDITION_MIGRATION_WAITING) is not None
        note = Note(
            names.EVENT_WARNING, names.EVENT_TARGET_UNSCHEDULABLE, f"the target Pod {target.metadata.name}: {why}"
        )
        told = _waiting(waiting, why, now) if unschedulable is not None else _going_on(waiting)
        notes = (note,) if unschedulable is not None and not known else ()
        return Decision(job=told, notes=notes, recheck_s=limit_s - age_s + 0.1)
    return failed(job, f"the target Pod was not there after {limit_s:.0f} s: {why}", now, target=target)


def _age_s(pod: Pod, now: datetime) -> float:
    created = pod.metadata.creation_timestamp
    return (now - parse_rfc3339(created)).total_seconds() if created else 0.0


def _limit(job: Job, annotation: str, default_s: float) -> float:
    text = job.metadata.annotations.get(annotation, "")
    return float(text) if text.isdecimal() else default_s


def _hand_over(job: Job, vmi: VirtualMachineInstance, target: Pod, now: datetime, chance: Chance) -> Decision:
    """From here on both nodes know of the move. Pods that the guest left in earlier moves are forgotten."""
    node = target.spec.node_name
    source = active(vmi)
    if source is None:
        return failed(job, "the VMI has no Pod that its guest could leave", now, target=target)
    settings, notes = _possible(chance.settings, target)
    move = MoveState(
        migration_uid=job.metadata.uid,
        source_node=vmi.status.node_name,
        source_pod=next((pod.metadata.name for pod in chance.pods if pod.metadata.uid == source.uid), ""),
        target_node=node,
        target_pod=target.metadata.name,
        target_attachment_pod_uid=chance.volumes.pod.metadata.uid if chance.volumes and chance.volumes.pod else "",
        migration_policy_name=chance.policy,
        migration_configuration=settings,
        target_memory_overhead=facts.memory_overhead(target),
    )
    pods = {source.uid: vmi.status.node_name, target.metadata.uid: node}
    labels = vmi.metadata.labels | {names.LABEL_MIGRATION_TARGET_NODE: node}
    changed = replace(
        vmi,
        metadata=replace(vmi.metadata, labels=labels),
        status=replace(unmeasured(vmi.status), migration_state=move, active_pods=pods),
    )
    told = replace(job, status=replace(job.status, migration_state=move))
    handed = _in_phase(_in_phase(told, names.MIGRATION_SCHEDULED, now), names.MIGRATION_PREPARING_TARGET, now)
    # Once that is written, none of them has the guest: what a vanished job made, or one that failed.
    left = tuple(pod for pod in chance.pods if _is_left_over(pod, vmi, pods, job.metadata.uid))
    alarm = names.EVENT_FAILED_HAND_OVER
    going = _going_on(handed)
    return Decision(job=going, vmi=changed, alarm=alarm, delete_pods=left, notes=notes, recheck_s=START_S)


def _possible(settings: MigrationConfiguration, target: Pod) -> tuple[MigrationConfiguration, tuple[Note, ...]]:
    """Post-copy where the target can have it: QEMU refuses a move with it anywhere else. Whoever allows that allows the
    guest to be disturbed, so it may be paused instead."""
    if not settings.allow_post_copy or facts.has_device(target, names.RESOURCE_USERFAULTFD):
        return settings, ()
    disruption = True if settings.allow_workload_disruption is None else settings.allow_workload_disruption
    words = (
        f"post-copy is allowed, but not possible on node {target.spec.node_name}, which does not offer "
        f"{names.RESOURCE_USERFAULTFD}: the guest moves without it"
    )
    note = Note(names.EVENT_WARNING, names.EVENT_NO_POST_COPY, words)
    return replace(settings, allow_post_copy=False, allow_workload_disruption=disruption), (note,)


def _is_left_over(pod: Pod, vmi: VirtualMachineInstance, pods: Mapping[str, str], job: str) -> bool:
    others = pod.metadata.labels.get(names.LABEL_MIGRATION_JOB_UID, job) != job and owner_uid(pod) == vmi.metadata.uid
    return others and pod.metadata.uid not in pods and not is_terminating(pod)


# -- after the hand-over -----------------------------------------------------------------------------------------------


def _accompany(
    job: Job, vmi: VirtualMachineInstance, target: Pod | None, pods: Sequence[Pod], now: datetime
) -> Decision:
    move = vmi.status.migration_state
    assert move is not None
    if move.failed:
        return failed(job, move.failure_reason or "the move failed", now, target=target, move=move)
    if move.completed:
        return _succeeded(job, vmi, move, now)
    if target is None or facts.is_finished(target):
        return _target_lost(vmi, move, target, now)
    told = replace(job, status=replace(job.status, migration_state=move))
    reached = _foreseen(_in_phase(told, _phase_of(move), now), vmi, now)
    source = next((pod for pod in pods if pod.metadata.name == move.source_pod), None)
    if source is None or facts.is_finished(source):
        return _source_lost(reached, vmi, move, source, now)
    if is_terminating(job) and not move.abort_requested:
        note = Note(
            names.EVENT_NORMAL, names.EVENT_SUCCESSFUL_ABORT, "the node that the guest leaves is asked to give up"
        )
        wish, alarm = _with_wish(vmi, move), names.EVENT_FAILED_ABORT
        return Decision(job=_with_abort(reached, now), vmi=wish, alarm=alarm, notes=(note,))
    if is_terminating(target) and not move.abort_requested:
        return Decision(job=reached, vmi=_with_wish(vmi, move, "the target launcher Pod is being deleted"))
    late_s = START_S - _age_of(reached, names.MIGRATION_PREPARING_TARGET, now)
    if move.start_timestamp is None and late_s <= 0 and not move.abort_requested:
        # Only the side that it leaves can say that it has not begun.
        return Decision(job=reached, vmi=_with_wish(vmi, move, f"the target was not ready within {START_S:.0f} s"))
    return Decision(job=reached, recheck_s=max(late_s, 0.0) if move.start_timestamp is None else 0.0)


def _with_wish(vmi: VirtualMachineInstance, move: MoveState, why: str = "") -> VirtualMachineInstance:
    """The wish that the move be given up; the side that the guest leaves says whether it was."""
    wish = replace(move, abort_requested=True, failure_reason=why)
    return replace(vmi, status=replace(vmi.status, migration_state=wish))


def _source_lost(job: Job, vmi: VirtualMachineInstance, move: MoveState, source: Pod | None, now: datetime) -> Decision:
    """The guest has left it, or ended with it. If it has arrived, its node says so soon; nobody else can have it."""
    ended = facts.compute_state(source).terminated if source is not None else None
    since = ended.finished_at if ended is not None else None
    age_s = (now - parse_rfc3339(since)).total_seconds() if since else _age_of(job, job.status.phase, now)
    if age_s < ARRIVAL_S:
        return Decision(job=job, recheck_s=ARRIVAL_S - age_s + 0.1)
    words = f"the guest did not arrive within {ARRIVAL_S:.0f} s: {facts.end_words(source)}"
    return Decision(job=job, vmi=_with_end(vmi, move, words, now))


def _foreseen(job: Job, vmi: VirtualMachineInstance, now: datetime) -> Job:
    """What the machine's node says that the move takes."""
    told = get_condition(vmi.status.conditions, names.CONDITION_FORECAST)
    if told is None:
        return job
    conditions, kind = [replace(each) for each in job.status.conditions], names.CONDITION_MIGRATION_FORECAST
    if not set_condition(conditions, kind, told.status, told.reason, told.message, now=now):
        return job
    return replace(job, status=replace(job.status, conditions=conditions))


def _phase_of(move: MoveState) -> str:
    if move.start_timestamp is not None:
        return names.MIGRATION_RUNNING
    return names.MIGRATION_TARGET_READY if move.target_node_address else names.MIGRATION_PREPARING_TARGET


def _target_lost(vmi: VirtualMachineInstance, move: MoveState, target: Pod | None, now: datetime) -> Decision:
    """It cannot have the guest any more. The guest goes on where it is, if it is there; its node will say. Why a move
    that had begun is over, that node knows better than a target that nobody killed."""
    ended = facts.compute_state(target).terminated if target is not None else None
    if ended is not None and ended.exit_code == 0 and ended.finished_at and move.start_timestamp is not None:
        left_s = SOURCE_TELLS_S - (now - parse_rfc3339(ended.finished_at)).total_seconds()
        if left_s > 0:
            return Decision(recheck_s=left_s + 0.1)
    words = f"the target {facts.end_words(target).removeprefix('the ')}"
    return Decision(vmi=_with_end(vmi, move, words, now))


def _with_end(vmi: VirtualMachineInstance, move: MoveState, why: str, now: datetime) -> VirtualMachineInstance:
    over = replace(move, failed=True, completed=True, failure_reason=why, end_timestamp=rfc3339(now))
    return replace(_unmarked(vmi), status=replace(vmi.status, migration_state=over))


def _unmarked(vmi: VirtualMachineInstance) -> VirtualMachineInstance:
    labels = {key: value for key, value in vmi.metadata.labels.items() if key != names.LABEL_MIGRATION_TARGET_NODE}
    return replace(vmi, metadata=replace(vmi.metadata, labels=labels))


def _succeeded(job: Job, vmi: VirtualMachineInstance, move: MoveState, now: datetime) -> Decision:
    done = _finished(_in_phase(job, names.MIGRATION_SUCCEEDED, now), move)
    text = f"the guest runs on node {vmi.status.node_name}"
    return Decision(job=done, notes=(Note(names.EVENT_NORMAL, names.EVENT_SUCCESSFUL_MIGRATION, text),))


def failed(
    job: Job, reason: str, now: datetime, *, target: Pod | None = None, move: MoveState | None = None
) -> Decision:
    told = move or MoveState(migration_uid=job.metadata.uid, failed=True, completed=True, failure_reason=reason)
    over = _finished(_in_phase(job, names.MIGRATION_FAILED, now), told)
    unwanted = (target,) if target is not None and not is_terminating(target) else ()
    note = Note(names.EVENT_WARNING, names.EVENT_FAILED_MIGRATION, reason)
    return Decision(job=over, delete_pods=unwanted, notes=(note,))


def _after(job: Job, vmi: VirtualMachineInstance | None, target: Pod | None, pods: Sequence[Pod]) -> Decision:
    """Over: what is left of it goes, and so does what keeps the job itself."""
    left = _left_by(job, vmi, pods) if job.status.phase == names.MIGRATION_SUCCEEDED else target
    state = vmi.status.migration_state if vmi is not None else None
    marked = vmi is not None and names.LABEL_MIGRATION_TARGET_NODE in vmi.metadata.labels
    ours = state is not None and state.migration_uid == job.metadata.uid
    return Decision(
        job=_unbound(job),
        vmi=_unmarked(vmi) if vmi is not None and marked and ours else None,
        delete_pods=() if left is None or is_terminating(left) else (left,),
    )


def _left_by(job: Job, vmi: VirtualMachineInstance | None, pods: Sequence[Pod]) -> Pod | None:
    """The Pod that the guest has left, once it has ended: what is over has no guest, however old our news are."""
    move = vmi.status.migration_state if vmi is not None else None
    if (
        move is None
        or move.migration_uid != job.metadata.uid
        or vmi is None
        or vmi.status.node_name != move.target_node
    ):
        return None
    return next((pod for pod in pods if pod.metadata.name == move.source_pod and facts.is_finished(pod)), None)


def _finished(job: Job, move: MoveState) -> Job:
    return _unbound(replace(job, status=replace(job.status, migration_state=move)))


def _unbound(job: Job) -> Job:
    kept = [each for each in job.metadata.finalizers if each != names.FINALIZER_MIGRATION]
    return replace(job, metadata=replace(job.metadata, finalizers=kept))


def _with_abort(job: Job, now: datetime) -> Job:
    conditions = list(job.status.conditions)
    set_condition(conditions, names.CONDITION_MIGRATION_ABORT, names.TRUE, "", "the migration was deleted", now=now)
    return replace(job, status=replace(job.status, conditions=conditions))


def _in_phase(job: Job, phase: str, now: datetime) -> Job:
    """Never back."""
    if job.status.phase == phase or (
        job.status.phase in _ORDER and phase in _ORDER and _ORDER.index(phase) <= _ORDER.index(job.status.phase)
    ):
        return job
    stamps = [*job.status.phase_transition_timestamps, Stamp(phase=phase, phase_transition_timestamp=rfc3339(now))]
    return replace(job, status=replace(job.status, phase=phase, phase_transition_timestamps=stamps))


def _age_of(job: Job, phase: str, now: datetime) -> float:
    times = (each.phase_transition_timestamp for each in job.status.phase_transition_timestamps if each.phase == phase)
    since = next(times, None)
    return (now - parse_rfc3339(since)).total_seconds() if since else 0.0
