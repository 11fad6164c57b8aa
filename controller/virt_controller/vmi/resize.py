"""A running machine that shall have another size: what its Pod needs, how far that is, what people are told. Pure.

The Pod is changed where it is (decisions/0029). The node may put it off, and then the guest stays as it is. For
what can never be had there the machine may move, into a Pod that was made for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from msgspec.structs import replace

from virt_controller.vmi import pods as facts
from virt_core.apis import names, sizes
from virt_core.apis.base import UNREADABLE, decode
from virt_core.apis.podparts import ResourceRequirements
from virt_core.apis.pods import ContainerStatus, Pod
from virt_core.apis.quantity import Quantity, parse_bytes, parse_quantity
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import PodRoom, VirtualMachineInstanceStatus
from virt_core.kube.conditions import get_condition
from virt_core.kube.vmistatus import with_condition, without_condition

_Status = VirtualMachineInstanceStatus
#: What a running Pod can have more or less of.
RESOURCES = ("cpu", "memory")
_INFEASIBLE, _DEFERRED = "Infeasible", "Deferred"
_TROUBLES = (
    names.REASON_POD_RESIZE_REFUSED,
    names.REASON_POD_RESIZE_INFEASIBLE,
    names.REASON_POD_RESIZE_DEFERRED,
    names.REASON_MEMORY_HOTPLUG_FAILED,
)
#: A Pod that has this never gets what it needs where it is.
_IN_VAIN = (names.REASON_POD_RESIZE_REFUSED, names.REASON_POD_RESIZE_INFEASIBLE)
CONDITIONS = (names.CONDITION_HOT_VCPU_CHANGE, names.CONDITION_HOT_MEMORY_CHANGE)


@dataclass(frozen=True, slots=True)
class Resizing:
    """The Pod as it is after we asked for the change, if that was needed, and what it is to have."""

    pod: Pod
    wanted: ResourceRequirements = field(default_factory=ResourceRequirements)
    #: Why the API server did not take the change.
    refusal: str = ""


def target(vmi: VirtualMachineInstance) -> sizes.Size:
    """What the Pod must have room for: what is asked for, and what the guest has not given back yet."""
    return sizes.asked(vmi).both(sizes.current(vmi))


def is_in_vain(vmi: VirtualMachineInstance) -> bool:
    """Whether the machine cannot have its size in the Pod that it has, but perhaps in another one."""
    found = (get_condition(vmi.status.conditions, type) for type in CONDITIONS)
    return any(each is not None and each.status == names.FALSE and each.reason in _IN_VAIN for each in found)


def made_for(pod: Pod) -> sizes.Size | None:
    """For which size it was made, if a machine moved into it."""
    note = pod.metadata.annotations.get(names.ANNOTATION_TARGET_ROOM, "")
    try:
        made = decode(note, PodRoom) if note else None
    except UNREADABLE:
        return None
    return sizes.Size(made.sockets or 0, parse_bytes(made.guest or 0)) if made is not None else None


def is_due(vmi: VirtualMachineInstance, pod: Pod) -> bool:
    """Whether the Pod is to be looked at. Not because its resources differ from those of a new one: what the cluster's
    configuration says today is of no interest to a Pod that nobody asked to change."""
    if vmi.status.phase != names.PHASE_RUNNING or facts.is_finished(pod):
        return False
    return sizes.room(vmi) != target(vmi) or _pending(pod) is not None


def resources(pod: Pod) -> ResourceRequirements:
    found = next((c.resources for c in pod.spec.containers if c.name == names.CONTAINER_COMPUTE), None)
    return found or ResourceRequirements()


def wanted(pod: Pod, fresh: ResourceRequirements) -> ResourceRequirements:
    """What a new Pod would have, of what this one has: no limit comes or goes, as its class of service must stay."""
    have = resources(pod)
    return ResourceRequirements(
        requests=have.requests | _among(fresh.requests, have.requests),
        limits=have.limits | _among(fresh.limits, have.limits),
    )


def _among(fresh: dict[str, Quantity], have: dict[str, Quantity]) -> dict[str, Quantity]:
    return {name: fresh[name] for name in RESOURCES if name in fresh and name in have}


def is_changed(pod: Pod, want: ResourceRequirements) -> bool:
    have = resources(pod)
    return not (_same(want.requests, have.requests) and _same(want.limits, have.limits))


def _same(want: dict[str, Quantity], have: dict[str, Quantity]) -> bool:
    return all(_amount(want, name) == _amount(have, name) for name in RESOURCES)


def _amount(amounts: dict[str, Quantity], name: str) -> Decimal:
    return parse_quantity(amounts.get(name, 0))


def follow(vmi: VirtualMachineInstance, resizing: Resizing | None, now: datetime) -> VirtualMachineInstance:
    """With the room that the Pod has by now, and a condition for each part of the size that is not there yet."""
    if vmi.status.phase != names.PHASE_RUNNING:
        return vmi
    status = vmi.status
    if resizing is not None and not resizing.refusal and _is_done(resizing, target(vmi)):
        status = replace(status, pod_room=sizes.room_for(target(vmi)))
        vmi = replace(vmi, status=status)
    want, have = sizes.asked(vmi), sizes.current(vmi)
    cpu, memory = vmi.spec.domain.cpu, sizes.can_grow(vmi)
    parts = (
        (CONDITIONS[0], cpu is not None and cpu.max_sockets > 0 and want.sockets != have.sockets),
        (CONDITIONS[1], memory and want.guest != have.guest),
    )
    for type, differs in parts:
        status = _told(status, type, _state(vmi, type, resizing), now) if differs else without_condition(status, type)
    return vmi if status is vmi.status else replace(vmi, status=status)


def new_trouble(old: VirtualMachineInstance, new: VirtualMachineInstance) -> list[facts.Trouble]:
    """What people are told of at once: why a change does not go on."""
    found = []
    for type in CONDITIONS:
        before, after = (get_condition(vmi.status.conditions, type) for vmi in (old, new))
        if after is not None and after.reason in _TROUBLES and (before is None or before.reason != after.reason):
            found.append(facts.Trouble(after.reason, after.message))
    # One Pod, one reason, however many parts of the size wait for it.
    return list(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class _State:
    status: str
    reason: str
    message: str


def _told(status: _Status, type: str, state: _State, now: datetime) -> _Status:
    return with_condition(status, type, state.status, state.reason, state.message, now=now)


def _state(vmi: VirtualMachineInstance, type: str, resizing: Resizing | None) -> _State:
    if resizing is not None and (held := _held_up(resizing)) is not None:
        return held
    want, room = sizes.asked(vmi), sizes.room(vmi)
    if want.within(room) != want:
        return _State(names.TRUE, "", "the launcher Pod is given the resources for it")
    failed = get_condition(vmi.status.conditions, names.CONDITION_SYNCHRONIZED)
    if failed is not None and failed.reason == names.EVENT_SYNC_FAILED and type == CONDITIONS[1]:
        return _State(names.FALSE, names.REASON_MEMORY_HOTPLUG_FAILED, failed.message)
    text = "the launcher Pod has room for it, and the guest has not taken it yet"
    return _State(names.TRUE, names.REASON_WAITING_FOR_GUEST, text)


def _held_up(resizing: Resizing) -> _State | None:
    """Why the Pod does not get what it needs."""
    if resizing.refusal:
        text = f"the launcher Pod was not changed: {resizing.refusal}"
        return _State(names.FALSE, names.REASON_POD_RESIZE_REFUSED, text)
    pending = _pending(resizing.pod)
    if pending is None:
        return None
    node = resizing.pod.spec.node_name
    if pending.reason == _INFEASIBLE:
        text = f"node {node} cannot give the launcher Pod what it needs for that: {pending.message}"
        return _State(names.FALSE, names.REASON_POD_RESIZE_INFEASIBLE, text)
    text = f"node {node} has no room for that now, and will try again: {pending.message}"
    return _State(names.TRUE, names.REASON_POD_RESIZE_DEFERRED, text)


def _pending(pod: Pod) -> facts.Trouble | None:
    found = facts.condition(pod, names.CONDITION_POD_RESIZE_PENDING)
    if found is None or found.status != names.TRUE:
        return None
    if 0 < found.observed_generation < pod.metadata.generation:
        return None  # About what was asked for before.
    return facts.Trouble(found.reason or _DEFERRED, found.message)


def _is_done(resizing: Resizing, size: sizes.Size) -> bool:
    """The node has booked the requests, and the limits are in force. A node that does not say what it has booked cannot
    change it either: then the Pod has what it was made for."""
    if _pending(resizing.pod) is not None or is_changed(resizing.pod, resizing.wanted):
        return False
    shown = next((s for s in resizing.pod.status.container_statuses if s.name == names.CONTAINER_COMPUTE), None)
    if shown is not None and shown.resources is None and not shown.allocated_resources:
        made = made_for(resizing.pod)
        return made is not None and size.within(made) == size
    return shown is not None and _covers(shown, resizing.wanted)


def _covers(shown: ContainerStatus, want: ResourceRequirements) -> bool:
    in_force = shown.resources.limits if shown.resources is not None else {}
    return _reaches(shown.allocated_resources, want.requests) and _reaches(in_force, want.limits)


def _reaches(have: dict[str, Quantity], want: dict[str, Quantity]) -> bool:
    return all(_amount(have, name) >= _amount(want, name) for name in RESOURCES)
