"""What a machine's state means for its VMI. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

from virt_core.apis import names
from virt_core.apis.facts import grace_seconds
from virt_core.apis.vmi import VirtualMachineInstance
from virt_handler.decisions.limits import (
    MAX_ADDRESSES,
    MAX_COMMANDS,
    MAX_DISKS,
    MAX_INTERFACES,
    MAX_NEEDS,
    MAX_WORD,
    clip,
)
from virt_protos.launcher.v1 import launcher_pb2 as pb

ALIVE = frozenset(
    {
        pb.DOMAIN_STATE_RUNNING,
        pb.DOMAIN_STATE_BLOCKED,
        pb.DOMAIN_STATE_PAUSED,
        pb.DOMAIN_STATE_SHUTTING_DOWN,
        pb.DOMAIN_STATE_PM_SUSPENDED,
    }
)
#: Of a guest that has all that it needs to run.
RUNS = ALIVE - {pb.DOMAIN_STATE_PAUSED, pb.DOMAIN_STATE_SHUTTING_DOWN}
ENDED = frozenset({pb.DOMAIN_STATE_SHUTOFF, pb.DOMAIN_STATE_CRASHED})

#: The year 9000; a date cannot be much later.
_LAST_US = 221_845_392_000 * 1_000_000

_CLEAN_ENDS = frozenset({"Shutdown", "Saved", "FromSnapshot"})


@dataclass(frozen=True, slots=True)
class End:
    """How a VMI ends: its phase, a CamelCase reason and a sentence."""

    phase: str
    reason: str = ""
    message: str = ""

    @property
    def failed(self) -> bool:
        return self.phase == names.PHASE_FAILED


def failed(reason: str, message: str) -> End:
    return End(names.PHASE_FAILED, reason, message)


def is_alive(domain: pb.Domain | None) -> bool:
    return domain is not None and domain.state in ALIVE


def has_ended(domain: pb.Domain | None) -> bool:
    return domain is not None and domain.state in ENDED


def newest(current: pb.Domain | None, incoming: pb.Domain | None) -> pb.Domain | None:
    """A launcher runs one machine once, so an end is final: nothing that was under way before it may undo it."""
    if current is None or not has_ended(current):
        return incoming
    if incoming is None or not incoming.move.uid or incoming.move.uid != current.move.uid:
        return current
    # How the move went that it left by is told a moment after its own end.
    both = pb.Domain()
    both.CopyFrom(current)
    both.move.CopyFrom(incoming.move)
    return both


def bounded(domain: pb.Domain) -> pb.Domain:
    """A copy in which nothing that a guest can make up is longer or more than it may be."""
    copy = pb.Domain()
    copy.CopyFrom(domain)
    del copy.interfaces[MAX_INTERFACES:]
    for nic in copy.interfaces:
        del nic.ip_addresses[MAX_ADDRESSES:]
        _clip_words(nic)
    if copy.HasField("os_info"):
        _clip_words(copy.os_info)
    message = clip(copy.message)
    if copy.HasField("access_credentials"):
        copy.access_credentials.message = clip(copy.access_credentials.message)
    if copy.HasField("silence"):
        copy.silence.reason, copy.silence.message = clip(copy.silence.reason, MAX_WORD), clip(copy.silence.message)
    if copy.HasField("memory_dump"):
        failure = clip(copy.memory_dump.failure)
        _clip_words(copy.memory_dump)
        copy.memory_dump.failure = failure
    if copy.HasField("move"):
        copy.move.CopyFrom(bounded_move(copy.move))
    del copy.agent_commands[MAX_COMMANDS:]
    _clip_words(copy)
    copy.message = message
    targets = [
        (clip(name, MAX_WORD), clip(at, MAX_WORD)) for name, at in islice(domain.disk_targets.items(), MAX_DISKS)
    ]
    copy.disk_targets.clear()
    copy.disk_targets.update(targets)
    return copy


def bounded_move(move: pb.Move) -> pb.Move:
    """Its words become parts of the VMI's status, its times are turned into dates."""
    copy, reason = pb.Move(), clip(move.reason)
    copy.CopyFrom(move)
    _clip_words(copy)
    copy.reason = reason
    copy.started_us, copy.ended_us = (min(max(time, 0), _LAST_US) for time in (move.started_us, move.ended_us))
    return copy


def bounded_info(info: pb.GetGuestInfoResponse) -> pb.GetGuestInfoResponse:
    """Likewise of what the guest agent says about the guest."""
    same = bounded(pb.Domain(interfaces=info.interfaces[:MAX_INTERFACES], os_info=info.os_info))
    copy = pb.GetGuestInfoResponse(
        agent_version=info.agent_version, hostname=info.hostname, timezone=info.timezone, interfaces=same.interfaces
    )
    if info.HasField("os_info"):
        copy.os_info.CopyFrom(same.os_info)
    _clip_words(copy)
    return copy


def _clip_words(message: Any) -> None:
    """Every text of a message, and every text of its lists."""
    for field, value in message.ListFields():
        if field.type != field.TYPE_STRING:
            continue
        if isinstance(value, str):
            setattr(message, field.name, clip(value, MAX_WORD))
        else:
            value[:] = [clip(text, MAX_WORD) for text in value]


def bounded_needs(synced: pb.Synced) -> pb.Synced:
    """Likewise of what a launcher says about itself."""
    needs = [
        pb.RestartNeed(field=clip(need.field, MAX_WORD), reason=clip(need.reason, MAX_WORD))
        for need in synced.needs_restart[:MAX_NEEDS]
    ]
    return pb.Synced(digest=clip(synced.digest, MAX_WORD), needs_restart=needs)


def has_acpi(vmi: VirtualMachineInstance) -> bool:
    features = vmi.spec.domain.features
    if features is None or features.acpi is None:
        return True
    return features.acpi.enabled is not False


def end_of(vmi: VirtualMachineInstance, domain: pb.Domain) -> End | None:
    """The end that a machine's state means; None while it runs, or when it moves to another node."""
    if not has_ended(domain):
        return None
    if domain.reason == "Migrated":
        return _lost_on_the_way(vmi)
    if domain.reason == "Panicked" or domain.state == pb.DOMAIN_STATE_CRASHED:
        return failed(names.FAILED_GUEST_CRASHED, domain.message or "the guest crashed")
    if domain.reason in _CLEAN_ENDS:
        return End(names.PHASE_SUCCEEDED)
    if domain.reason == "Destroyed":
        return _destroyed(vmi, domain)
    return failed(
        names.FAILED_LAUNCHER, domain.message or f"QEMU ended unexpectedly ({domain.reason or 'no reason known'})"
    )


def _lost_on_the_way(vmi: VirtualMachineInstance) -> End | None:
    """It has left, and the VMI still says that it is here: nobody has it once the move counts as failed."""
    move = vmi.status.migration_state
    if move is None or not move.failed:
        return None
    where = f"the guest had left for node {move.target_node} and is lost there"
    return failed(names.FAILED_LAUNCHER, f"{where}: {move.failure_reason or 'the move failed'}")


def _destroyed(vmi: VirtualMachineInstance, domain: pb.Domain) -> End:
    grace = grace_seconds(vmi)
    if not has_acpi(vmi) or grace == 0:
        return End(names.PHASE_SUCCEEDED)
    return failed("GuestKilled", domain.message or f"the guest did not shut down within {grace} s and was stopped")
