"""The VMI's status as it follows from what the node knows. Pure: the caller writes what differs.

One patch a transition: phase, times, conditions, interfaces and handoffs go together.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from virt_core.apis import handoffs, names, sizes, travel
from virt_core.apis.bindingplugins import NO_PLUGINS, Configured
from virt_core.apis.domain import Machine
from virt_core.apis.facts import is_final
from virt_core.apis.guestprobes import action
from virt_core.apis.quantity import format_bytes
from virt_core.apis.vmi import Probe, VirtualMachineInstance
from virt_core.apis.vmistatus import (
    CPUTopology,
    MemoryStatus,
    VirtualMachineInstanceGuestOSInfo,
    VirtualMachineInstanceStatus,
    VolumeStatus,
)
from virt_core.kube.conditions import get_condition
from virt_core.kube.configvalues import host_architecture
from virt_core.kube.vmistatus import (
    with_condition,
    with_failure,
    with_handoff,
    with_not_ready,
    with_phase,
    without_condition,
)
from virt_handler.decisions import backups, hotplug, interfaces, memorydumps, migratable, moving
from virt_handler.decisions.agents import unsupported
from virt_handler.decisions.domains import End, is_alive
from virt_handler.decisions.foretold import forecast_told
from virt_handler.decisions.synchronized import with_restart_required, with_synchronized
from virt_handler.decisions.vocabulary import Step, Task, View
from virt_protos.launcher.v1 import launcher_pb2 as pb

Status = VirtualMachineInstanceStatus

#: The agent is there a moment before it has told what it knows; both go into one write.
AGENT_SETTLE_S = 5.0

_NODE_HANDOFFS = (
    handoffs.NETWORK_READY,
    handoffs.LAUNCHER_READY,
    handoffs.DOMAIN_DEFINED,
    handoffs.GUEST_STARTED,
)
_PAUSE_REASONS = {
    "User": names.REASON_PAUSED_BY_USER,
    "IOError": names.REASON_PAUSED_IO_ERROR,
    "Migration": names.REASON_PAUSED_BY_MIGRATION,
    "PostcopyFailed": names.REASON_PAUSED_BY_MIGRATION,
}


def reported(
    vmi: VirtualMachineInstance,
    view: View,
    step: Step,
    now: datetime,
    agents: Sequence[str] = (),
    *,
    plugins: Configured = NO_PLUGINS,
) -> VirtualMachineInstance:
    """The VMI as it should stand. An ended VMI stays as it is: nothing comes after the end.

    `agents` are patterns of the versions of guest agents that the cluster supports, `plugins` its network bindings.
    """
    if is_final(vmi) or step.hold:
        return vmi
    status = vmi.status
    if step.end is not None:
        status = _ended(_stamped(status, view), step.end, now)
        if view.domain is not None:
            # How the dump went that it ended by.
            told = memorydumps.told(vmi, status.volume_status, view.domain, view.dumps_refused, now)
            status = replace(status, volume_status=told)
    elif view.domain is not None and is_alive(view.domain):
        status = _running(vmi, view, view.domain, now, agents)
        status = migratable.with_conditions(vmi, status, now, plugins)
        status = moving.departure_told(vmi, status, view, view.domain, now)
        status = forecast_told(vmi, status, view.foreseen, now)
    elif status.phase == names.PHASE_SCHEDULED:
        status = _starting(status, view, step, now)
        status = replace(status, volume_status=hotplug.told(vmi, status.volume_status, view.mounts))
    return vmi if status == vmi.status else replace(vmi, status=status)


def _stamped(status: Status, view: View) -> Status:
    """The node's own handoffs, in the order in which they belong."""
    for kind in _NODE_HANDOFFS:
        if moment := view.handoffs.get(kind.name):
            status = with_handoff(status, kind, moment)
    return status


def _ended(status: Status, end: End, now: datetime) -> Status:
    agent = (
        names.CONDITION_AGENT_CONNECTED,
        names.CONDITION_AGENT_VERSION_NOT_SUPPORTED,
        names.CONDITION_GUEST_SILENT,
    )
    status = without_condition(status, names.CONDITION_PAUSED, names.CONDITION_RESTART_REQUIRED, *agent)
    if end.failed:
        return with_failure(status, end.reason, end.message, now)
    status = without_condition(status, names.CONDITION_SYNCHRONIZED)
    return with_not_ready(with_phase(status, end.phase, now), now, "the guest has shut down")


def _starting(status: Status, view: View, step: Step, now: datetime) -> Status:
    """Nothing is written while all is in time."""
    errors = [work.error for work in (view.network, view.sync) if work.task is Task.FAILED and work.error]
    if errors:
        reason, message = names.EVENT_SYNC_FAILED, errors[-1]
    elif step.overdue is not None:
        reason = "HandoffOverdue"
        message = f"waiting for {step.overdue.waiting_for}: the handoff {step.overdue.name} is overdue"
    else:
        return status
    # As there is a write anyway, it also tells how far things have come.
    status = _stamped(status, view)
    return with_condition(status, names.CONDITION_SYNCHRONIZED, names.FALSE, reason, message, now=now)


def _running(
    vmi: VirtualMachineInstance, view: View, domain: pb.Domain, now: datetime, agents: Sequence[str]
) -> Status:
    first = vmi.status.phase != names.PHASE_RUNNING
    status = with_phase(_stamped(vmi.status, view), names.PHASE_RUNNING, now)
    if first:
        status = with_handoff(status, handoffs.RUNNING, now)
    status = with_restart_required(with_synchronized(status, view, now, first=first), view, now)
    status = _paused(status, domain, first, now, probe=vmi.spec.readiness_probe)
    if agent_settled(view, domain, now):
        status = _agent(status, domain, now, unsupported(vmi, domain, agents))
    elif domain.agent_connected:
        domain = _without_agent(domain)
    status = _silent(_credentials(status, domain, now), domain, now)
    status = _foreign(vmi, status, now)
    return replace(
        status,
        interfaces=interfaces.merged(vmi, domain, view.report),
        volume_status=memorydumps.told(
            vmi, hotplug.told(vmi, _volumes(vmi, status, domain), view.mounts), domain, view.dumps_refused, now
        ),
        machine=Machine(type=domain.machine_type) if domain.machine_type else status.machine,
        memory=_memory(vmi, status, domain),
        current_cpu_topology=_topology(vmi, status, domain),
        fs_freeze_status="frozen" if domain.filesystems_frozen else "",
        selinux_context=status.selinux_context or "none",
        changed_block_tracking=backups.told(vmi, domain, view.backups_refused, now),
    )


def _foreign(vmi: VirtualMachineInstance, status: Status, now: datetime) -> Status:
    """A guest of another architecture than its node's is slow, and nothing else shows why."""
    wanted, here = vmi.spec.architecture, host_architecture()
    if wanted in ("", here):
        return without_condition(status, names.CONDITION_EMULATION)
    words = f"the guest is of the architecture {wanted} and its node of {here}, so its processor is emulated"
    reason = names.REASON_FOREIGN_ARCHITECTURE
    return with_condition(status, names.CONDITION_EMULATION, names.TRUE, reason, words, now=now)


def agent_settled(view: View, domain: pb.Domain, now: datetime) -> bool:
    """Whether what the guest agent says (or its silence) may be shown."""
    if not domain.agent_connected or domain.os_info.id or domain.os_info.name or view.agent_since is None:
        return True
    return (now - view.agent_since).total_seconds() >= AGENT_SETTLE_S


def agent_wait_s(view: View, now: datetime) -> float | None:
    """While the agent settles: when to look again."""
    if view.domain is None or view.agent_since is None or agent_settled(view, view.domain, now):
        return None
    return AGENT_SETTLE_S - (now - view.agent_since).total_seconds() + 0.05


def is_urgent(old: VirtualMachineInstance, new: VirtualMachineInstance) -> bool:
    """Whether people wait for it. What a guest can change at will is written at most now and then."""
    paused = names.CONDITION_PAUSED
    if hotplug.notes(old.status.volume_status, new.status.volume_status):
        return True
    if _milestones(old.status) != _milestones(new.status) or travel.untold(old) != travel.untold(new):
        return True
    if old.status.changed_block_tracking != new.status.changed_block_tracking:
        return True
    return old.status.phase != new.status.phase or _message(old.status, paused) != _message(new.status, paused)


def _milestones(status: Status) -> tuple[bool, bool]:
    """Of a move: others wait for its start and for its failure, and each comes once."""
    move = status.migration_state
    return (move is not None and move.start_timestamp is not None, move is not None and move.failed)


def _without_agent(domain: pb.Domain) -> pb.Domain:
    copy = pb.Domain()
    copy.CopyFrom(domain)
    known = [nic for nic in copy.interfaces if nic.name]
    for nic in known:
        nic.from_agent, nic.guest_name = False, ""
    del copy.interfaces[:]
    copy.interfaces.extend(known)
    return copy


def _paused(status: Status, domain: pb.Domain, first: bool, now: datetime, probe: Probe | None) -> Status:
    reason = _PAUSE_REASONS.get(domain.reason) if domain.state == pb.DOMAIN_STATE_PAUSED else None
    if domain.reason == "Migration" and not domain.move.held and domain.move.mode != "Paused":
        return status  # For the moment of the switch: people would be told of it when it is over.
    if reason is not None:
        message = domain.message or domain.move.reason or f"the guest is paused ({domain.reason})"
        status = with_condition(status, names.CONDITION_PAUSED, names.TRUE, reason, message, now=now)
        return with_condition(status, names.CONDITION_READY, names.FALSE, reason, "the guest is paused", now=now)
    resumed = any(condition.type == names.CONDITION_PAUSED for condition in status.conditions)
    if first or resumed:
        status = _ready(status, now, probe)
    return without_condition(status, names.CONDITION_PAUSED)


def _ready(status: Status, now: datetime, probe: Probe | None) -> Status:
    """A machine that runs is ready, unless its owner said how to find that out: then the Pod's own readiness tells."""
    if probe is None:
        return with_condition(status, names.CONDITION_READY, names.TRUE, now=now)
    words = f"the guest's readinessProbe ({action(probe)}) has not succeeded yet"
    return with_condition(status, names.CONDITION_READY, names.FALSE, names.REASON_POD_NOT_READY, words, now=now)


def _agent(status: Status, domain: pb.Domain, now: datetime, lacks: str) -> Status:
    unsupported_agent = names.CONDITION_AGENT_VERSION_NOT_SUPPORTED
    if not domain.agent_connected:
        status = without_condition(status, names.CONDITION_AGENT_CONNECTED, unsupported_agent)
        return replace(status, guest_os_info=None)
    status = with_condition(status, names.CONDITION_AGENT_CONNECTED, names.TRUE, now=now)
    if lacks:
        status = with_condition(status, unsupported_agent, names.TRUE, "AgentNotSupported", lacks, now=now)
    else:
        status = without_condition(status, unsupported_agent)
    info = VirtualMachineInstanceGuestOSInfo(
        **{field.name: getattr(domain.os_info, field.name) for field in domain.os_info.DESCRIPTOR.fields}
    )
    return replace(status, guest_os_info=info if info != VirtualMachineInstanceGuestOSInfo() else None)


def _credentials(status: Status, domain: pb.Domain, now: datetime) -> Status:
    """Whether the guest has the keys and passwords that its owner wants it to have."""
    if not domain.HasField("access_credentials"):
        return without_condition(status, names.CONDITION_ACCESS_CREDENTIALS)
    told, kind = domain.access_credentials, names.CONDITION_ACCESS_CREDENTIALS
    if told.synced:
        return with_condition(status, kind, names.TRUE, now=now)
    return with_condition(status, kind, names.FALSE, names.EVENT_CREDENTIALS_FAILED, told.message, now=now)


_SILENCES = frozenset({"NothingSent", "NoLease", "Panicked"})


def _silent(status: Status, domain: pb.Domain, now: datetime) -> Status:
    """What was never seen of the guest, though it runs: it may be well, so this is a remark and no verdict."""
    if domain.silence.reason not in _SILENCES:
        return without_condition(status, names.CONDITION_GUEST_SILENT)
    told = domain.silence
    return with_condition(status, names.CONDITION_GUEST_SILENT, names.TRUE, told.reason, told.message, now=now)


def _volumes(vmi: VirtualMachineInstance, status: Status, domain: pb.Domain) -> list[VolumeStatus]:
    """A launcher says where the VMI's volumes are, not which ones it has."""
    known = {volume.name: volume for volume in status.volume_status}
    asked = {volume.name for volume in vmi.spec.volumes} | known.keys()
    for name, target in domain.disk_targets.items():
        if name not in asked:
            continue
        known[name] = replace(known.get(name) or VolumeStatus(name=name), target=target)
    for volume in list(known.values()):
        if volume.hotplug_volume is not None and volume.name not in domain.disk_targets:
            known[volume.name] = replace(volume, target="")
    return [known[name] for name in sorted(known)]


def _memory(vmi: VirtualMachineInstance, status: Status, domain: pb.Domain) -> MemoryStatus | None:
    if not domain.memory_bytes:
        return status.memory
    known = replace(status.memory or MemoryStatus(), guest_current=format_bytes(domain.memory_bytes))
    if not sizes.can_grow(vmi):
        return known
    return replace(known, guest_requested=format_bytes(sizes.asked(sizes.usable(vmi)).guest))


def _topology(vmi: VirtualMachineInstance, status: Status, domain: pb.Domain) -> CPUTopology | None:
    """Whole sockets come; a launcher of an older release does not say how many there are."""
    known, cpu = status.current_cpu_topology, vmi.spec.domain.cpu
    if known is None or cpu is None or not domain.processors:
        return known
    return replace(known, sockets=max(domain.processors // (max(cpu.cores, 1) * max(cpu.threads, 1)), 1))


def notes(old: VirtualMachineInstance, new: VirtualMachineInstance) -> list[tuple[str, str, str]]:
    """The Events (type, reason, message) that a written change is worth. Transitions only."""
    before, after = old.status, new.status
    return _main_notes(before, after) + hotplug.notes(before.volume_status, after.volume_status)


def _main_notes(before: Status, after: Status) -> list[tuple[str, str, str]]:
    if before.phase != after.phase:
        return _phase_notes(after)
    sync_before = _message(before, names.CONDITION_SYNCHRONIZED)
    sync_after = _message(after, names.CONDITION_SYNCHRONIZED)
    if sync_after and sync_after != sync_before:
        return [(names.EVENT_WARNING, names.EVENT_SYNC_FAILED, sync_after)]
    return _credential_notes(before, after) + _silence_notes(before, after)


def _silence_notes(before: Status, after: Status) -> list[tuple[str, str, str]]:
    now = get_condition(after.conditions, names.CONDITION_GUEST_SILENT)
    if now is None or now.message == _message(before, names.CONDITION_GUEST_SILENT):
        return []
    return [(names.EVENT_WARNING, names.CONDITION_GUEST_SILENT, now.message)]


def _credential_notes(before: Status, after: Status) -> list[tuple[str, str, str]]:
    known, now = (get_condition(each.conditions, names.CONDITION_ACCESS_CREDENTIALS) for each in (before, after))
    if now is None or (known is not None and (known.status, known.message) == (now.status, now.message)):
        return []
    if now.status == names.TRUE:
        return [(names.EVENT_NORMAL, names.EVENT_CREDENTIALS_SET, "the guest has its access credentials")]
    return [(names.EVENT_WARNING, names.EVENT_CREDENTIALS_FAILED, now.message)]


def _phase_notes(status: Status) -> list[tuple[str, str, str]]:
    if status.phase == names.PHASE_RUNNING:
        return [(names.EVENT_NORMAL, names.EVENT_STARTED, "the guest runs")]
    if status.phase == names.PHASE_SUCCEEDED:
        return [(names.EVENT_NORMAL, names.EVENT_STOPPED, "the guest has shut down")]
    message = _message(status, names.CONDITION_SYNCHRONIZED)
    return [(names.EVENT_WARNING, status.reason or names.EVENT_STOPPED, message or "the VMI failed")]


def _message(status: Status, condition_type: str) -> str:
    return next((c.message for c in status.conditions if c.type == condition_type), "")
