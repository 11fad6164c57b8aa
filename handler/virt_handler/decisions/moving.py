"""A machine on its way to another node: what each side does next, and what it tells. Pure.

The VMI is the one place where it is written down who has the guest, and every write of it is made on its newest
version. The side that the guest arrives at takes it over with one write, unless the move counts as failed by then; the
side that it leaves never lets it run again unless the move counts as failed (docs/decisions/0033-never-twice.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from msgspec.structs import replace

from virt_core.apis import names, sizes, topology, travel, volumemoves
from virt_core.apis.arrival import is_whole
from virt_core.apis.facts import is_final, is_terminating
from virt_core.apis.migrationstate import VirtualMachineInstanceMigrationState as MoveState
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import ContainerDiskInfo, MemoryStatus, VirtualMachineInstanceStatus, VolumeStatus
from virt_core.kube.conditions import get_condition
from virt_core.kube.vmistatus import without_condition
from virt_core.runtime.times import parse_rfc3339, rfc3339
from virt_handler.decisions import hotplug
from virt_handler.decisions.domains import RUNS, is_alive
from virt_handler.decisions.nics import changed_address
from virt_handler.decisions.vocabulary import Action, Launcher, Step, Task, View
from virt_protos.launcher.v1 import launcher_pb2 as pb

Status = VirtualMachineInstanceStatus

#: The number by which KubeVirt's status names each channel of a move.
CHANNELS = {names.SOCKET_MOVE_LIBVIRT: 0, names.SOCKET_MOVE_MEMORY: 49152, names.SOCKET_MOVE_DISKS: 49153}
#: A source that has begun comes through the way at once.
_COMES_WITHIN_S = 30.0


def under_way(vmi: VirtualMachineInstance) -> MoveState | None:
    move = vmi.status.migration_state
    if move is None or not move.migration_uid or move.completed or move.failed or move.end_timestamp is not None:
        return None
    return move


def may_have_left(vmi: VirtualMachineInstance) -> bool:
    """From the moment in which the source could begin: the end of its machine is then not yet the end of the guest."""
    move = under_way(vmi)
    return move is not None and bool(move.target_node_address)


def has_arrived(domain: pb.Domain | None) -> bool:
    if domain is None:
        return False
    paused = domain.state == pb.DOMAIN_STATE_PAUSED
    return is_whole(runs=domain.state in RUNS, paused=paused, reason=domain.reason)


def ports_of(move: MoveState) -> dict[str, int]:
    """The announced ports by channel; a channel that the other side does not offer is not in it."""
    by_number = {number: port for port, number in move.target_direct_migration_node_ports.items()}
    return {channel: int(by_number[number]) for channel, number in CHANNELS.items() if number in by_number}


def figures_of(told: pb.Move) -> dict[str, int] | None:
    """The numbers of a move that is under way; None: there is none."""
    if not told.uid or told.ended_us:
        return None
    values = {field.name: getattr(told, field.name) for field in told.DESCRIPTOR.fields}
    return {name: value for name, value in values.items() if type(value) is int}


def job_of(action: Action, vmi: VirtualMachineInstance | None, domain: pb.Domain | None) -> str:
    """The job that an errand to the source's launcher is about."""
    if action in (Action.SETTLE_STAYS, Action.SETTLE_GONE):
        return domain.move.uid if domain is not None else ""
    move = under_way(vmi) if vmi is not None else None
    return move.migration_uid if move is not None else ""


# -- the side that the guest leaves ------------------------------------------------------------------------------------


def depart(vmi: VirtualMachineInstance, view: View) -> Step | None:
    """None: there is nothing to do about a move."""
    move, told = under_way(vmi), view.domain.move if view.domain is not None else pb.Move()
    if told.held and not told.ended_us:
        return _held(vmi, told)
    if move is None or view.launcher is not Launcher.READY:
        return None
    ours = told.uid == move.migration_uid
    if move.abort_requested:
        # Also of one that has not begun: a call that is on its way must not begin it any more.
        settled = ours and (told.ended_us or told.abort)
        return Step() if settled else Step(Action.CANCEL_MOVE, recheck_s=1.0)
    if ours:
        return Step()
    if travel.untold(vmi):
        return _look_at_disks(view, move.migration_uid)
    return Step(Action.MIGRATE, recheck_s=1.0) if move.target_node_address else Step()


def _look_at_disks(view: View, job: str) -> Step:
    """Once for a job. What comes of it is written before the other side makes itself ready."""
    return Step(Action.DISK_FACTS) if view.looking.task is Task.IDLE or view.looking.asked != job else Step()


def _held(vmi: VirtualMachineInstance, told: pb.Move) -> Step:
    """Only a move that is written down as failed gives the guest back: its target can then not have it any more. Where
    another move is written down and the guest is still ours, this one failed: none begins before the last is over."""
    known = vmi.status.migration_state
    lost = known is not None and (known.failed or known.migration_uid != told.uid)
    return Step(Action.SETTLE_STAYS, recheck_s=1.0) if lost else Step()


def departure_told(vmi: VirtualMachineInstance, status: Status, view: View, domain: pb.Domain, now: datetime) -> Status:
    move, told = under_way(vmi), domain.move
    if move is None:
        return status
    # Nothing has begun before the way is told.
    untold = not move.target_node_address and view.looking.asked == move.migration_uid
    if untold and view.looking.task is Task.FAILED:
        reason = f"the machine's disks cannot be looked at: {view.looking.error}"
        return replace(status, migration_state=_failed(move, reason, rfc3339(now)))
    if view.looking.task is Task.DONE and view.looking.asked == move.migration_uid:
        status = replace(status, volume_status=_with_facts(status.volume_status, view.disk_facts or {}))
    if told.uid != move.migration_uid:
        return status
    changed = replace(
        move,
        start_timestamp=move.start_timestamp or _moment(told.started_us),
        mode=told.mode or move.mode,
        abort_status=told.abort or move.abort_status,
    )
    if told.ended_us and told.failed:
        changed = _failed(changed, told.reason, _moment(told.ended_us))
    return replace(status, migration_state=changed)


def _with_facts(statuses: list[VolumeStatus], facts: Mapping[str, tuple[int, int]]) -> list[VolumeStatus]:
    """Sorted by name, as all writers keep them."""
    known = {status.name: status for status in statuses}
    for name, (checksum, size) in facts.items():
        status = known.get(name) or VolumeStatus(name=name)
        image = ContainerDiskInfo(checksum=checksum) if checksum else status.container_disk_volume
        known[name] = replace(status, container_disk_volume=image, size=size or status.size)
    return [known[name] for name in sorted(known)]


def _failed(move: MoveState, reason: str, when: str) -> MoveState:
    """Who asked for its end may have said why."""
    reason = move.failure_reason or reason
    return replace(move, failed=True, completed=True, failure_reason=reason, end_timestamp=when)


# -- the side that it moves to -----------------------------------------------------------------------------------------


def receive(vmi: VirtualMachineInstance, view: View, now: datetime) -> Step:
    """After the network: the launcher makes ready what the machine finds, and the way is opened."""
    move = under_way(vmi)
    if move is None:
        return _not_needed(view)
    if view.launcher is not Launcher.READY or is_alive(view.domain):
        return Step()
    if _is_over_for(view, move, now):
        return _not_needed(view)
    if hotplug.awaited(vmi, view.mounts) or travel.untold(vmi):
        return Step()  # What comes of it wakes the loop.
    if view.prepared.due(now):
        return Step(Action.PREPARE_TARGET)
    retry_at = view.prepared.retry_at
    waits = view.prepared.task is Task.FAILED and retry_at is not None
    return Step(recheck_s=(retry_at - now).total_seconds() if waits and retry_at is not None else None)


def _is_over_for(view: View, move: MoveState, now: datetime) -> bool:
    """Whether no machine comes any more, though the move is not over: a source tries once. It may hold the guest until
    our launcher has ended, which refuses to end if there is a machine all the same."""
    if view.way is not None and view.way.over:
        return True
    if move.start_timestamp is None:
        return False
    # The way was lost with a former process of ours; or opened too late, by one that did not know of the start.
    return view.way is None or (now - parse_rfc3339(move.start_timestamp)).total_seconds() > _COMES_WITHIN_S


def _not_needed(view: View) -> Step:
    """Nobody will come any more. What has arrived all the same was never taken over, so it ends."""
    if is_alive(view.domain):
        return Step(Action.KILL, recheck_s=1.0)
    # Again until it has ended: one that has a machine after all refuses.
    return Step(Action.DELETE, recheck_s=1.0) if view.launcher is Launcher.READY else Step()


def arrival_told(vmi: VirtualMachineInstance, view: View, node: str, now: datetime) -> VirtualMachineInstance:
    """What the target writes; the VMI itself when there is nothing to write."""
    move = under_way(vmi)
    if move is None or move.target_node != node or is_final(vmi) or is_terminating(vmi):
        return vmi
    if has_arrived(view.domain):
        return _taken_over(vmi, move, node, now)
    return _with_move(vmi, _way_told(vmi, move, view, now))


def _way_told(vmi: VirtualMachineInstance, move: MoveState, view: View, now: datetime) -> MoveState:
    if move.start_timestamp is not None:
        return move
    if error := _hopeless(vmi, view):
        # Once the way is told the other side may have begun; then only the end of our Pod is a word.
        return move if move.target_node_address else _failed(move, error, rfc3339(now))
    way = view.way
    if way is None or way.job != move.migration_uid:
        return move
    ports = {str(port): CHANNELS[channel] for channel, port in way.ports.items()}
    return replace(
        move,
        target_node_address=way.address,
        target_direct_migration_node_ports=ports,
        target_cpu_set=sorted(cpu.number for cpu in way.cpus),
        target_node_topology=topology.text_of(list(way.cpus)) if way.cpus else "",
    )


def _hopeless(vmi: VirtualMachineInstance, view: View) -> str:
    if view.refused:
        return f"the target launcher cannot be used: {view.refused}"
    if view.network.fatal:
        return f"the network of the target cannot be set up: {view.network.error}"
    if view.network.task is Task.DONE and (why := changed_address(vmi, view.report)):
        return why
    if why := hotplug.refused(vmi, view.mounts):
        return f"the target cannot have the machine's volumes: {why}"
    return f"the target cannot be made ready: {view.prepared.error}" if view.prepared.fatal else ""


def _taken_over(vmi: VirtualMachineInstance, move: MoveState, node: str, now: datetime) -> VirtualMachineInstance:
    """In one write: from here on this side speaks for the VMI, and the other one is what the guest has left."""
    when = rfc3339(now)
    done = replace(
        move,
        target_node_domain_detected=True,
        target_node_domain_ready_timestamp=move.target_node_domain_ready_timestamp or when,
        start_timestamp=move.start_timestamp or when,
        end_timestamp=when,
        completed=True,
        # Whoever asked for it to be given up came too late.
        abort_status="Failed" if move.abort_requested else move.abort_status,
    )
    # The Pod here was made for all that the machine has. Whether it has room for what was asked for meanwhile, its
    # resources will tell.
    room = sizes.room_for(sizes.current(vmi)) if vmi.status.pod_room is not None else None
    status = replace(vmi.status, node_name=node, migration_state=done, evacuation_node_name="", pod_room=room)
    if move.target_memory_overhead is not None:
        memory = replace(status.memory or MemoryStatus(), memory_overhead=move.target_memory_overhead)
        status = replace(status, memory=memory)
    status = _without_refusals(without_condition(status, names.CONDITION_FORECAST))
    if status.migrated_volumes:
        status = without_condition(volumemoves.arrived(status), names.CONDITION_VOLUMES_CHANGE)
    labels = {key: value for key, value in vmi.metadata.labels.items() if key != names.LABEL_MIGRATION_TARGET_NODE}
    labels[names.LABEL_NODE_NAME] = node
    return replace(vmi, status=status, metadata=replace(vmi.metadata, labels=labels))


def _without_refusals(status: VirtualMachineInstanceStatus) -> VirtualMachineInstanceStatus:
    """The other Pod could not be given what the machine is to have; of the one here nobody knows that."""
    for type in (names.CONDITION_HOT_VCPU_CHANGE, names.CONDITION_HOT_MEMORY_CHANGE):
        told = get_condition(status.conditions, type)
        if told is not None and told.status == names.FALSE:
            status = without_condition(status, type)
    return status


def _with_move(vmi: VirtualMachineInstance, move: MoveState) -> VirtualMachineInstance:
    if move == vmi.status.migration_state:
        return vmi
    return replace(vmi, status=replace(vmi.status, migration_state=move))


def _moment(time_us: int) -> str:
    return rfc3339(datetime.fromtimestamp(time_us / 1e6, UTC))
