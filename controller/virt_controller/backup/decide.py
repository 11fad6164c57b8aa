"""What becomes of a backup: when its machine is asked for it, how it went, and when it lets everything go. Pure.

What is asked of the machine, and what it answers, is in the VMI's status: there is one backup at a time. The directory
in the target claim, and the checkpoint, have the name of the backup and the time at which it was made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from msgspec.structs import replace

from virt_controller.notes import Note
from virt_core.apis import names
from virt_core.apis.backup import (
    COMPLETE,
    FAILED,
    FULL,
    INCREMENTAL,
    PROGRESSING,
    QUIESCED,
    BackupCheckpoint,
    BackupVolumeInfo,
    VirtualMachineBackup,
    VirtualMachineBackupStatus,
    VirtualMachineBackupTracker,
    is_over,
)
from virt_core.apis.exportplan import seconds_of
from virt_core.apis.facts import is_final, is_terminating
from virt_core.apis.keptstate import TRACKING_ON, tracked_volumes
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import BackupRequest, BackupStatus
from virt_core.kube.conditions import set_condition
from virt_core.runtime.times import parse_rfc3339

#: How long a backup may take from its creation, unless it says otherwise.
DEFAULT_TTL_S = 2 * 3600.0
#: What others do is looked at again then, lest a change was missed.
RETRY_S = 5.0
TARGET_SUFFIX = "backup-target-pvc"
_QUIESCE_SUCCEEDED, _QUIESCE_SKIPPED = "QuiesceSucceeded", "QuiesceSkipped"


@dataclass(frozen=True, slots=True)
class World:
    """What there is around a backup."""

    #: The name of the VM; empty when the tracker that names it is not there.
    vm_name: str = ""
    tracker: VirtualMachineBackupTracker | None = None
    vm: VirtualMachine | None = None
    vmi: VirtualMachineInstance | None = None
    claim: PersistentVolumeClaim | None = None
    #: Checkpoints that the trackers of the VM build on.
    kept: tuple[str, ...] = ()
    moving: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    status: VirtualMachineBackupStatus
    #: Brings the target claim to the machine.
    attach: bool = False
    #: What is written into the VMI's status.
    ask: BackupStatus | None = None
    #: Takes target and request away from the VMI.
    clean_up: bool = False
    #: What the tracker builds on from now on.
    checkpoint: BackupCheckpoint | None = None
    #: Why the tracker's chain was broken.
    broken: str = ""
    release: bool = False
    notes: tuple[Note, ...] = field(default=())
    recheck_s: float | None = None


def decide(backup: VirtualMachineBackup, world: World, now: datetime) -> Decision:
    if is_over(backup):
        return _leave(backup, world)
    if is_terminating(backup):
        return _deleted(backup, world, now)
    if backup.status.type or _asked(backup, world) is not None:
        return _follow(backup, world, now)
    if (left_s := time_left(backup, now)) <= 0:
        why = _waits(backup, world) or "the target claim did not get to the machine"
        return _ended(backup, FAILED, "Failed", f"it could not begin in time: {why}", now)
    if world.claim is not None and world.claim.spec.volume_mode == names.VOLUME_MODE_BLOCK:
        text = f"PVC {backup.spec.pvc_name} is a block device; the target of a backup must have a filesystem"
        return _ended(backup, FAILED, "Failed", text, now)
    if why := _waits(backup, world):
        return Decision(_progress(backup, "Initializing", why, now), recheck_s=min(left_s, RETRY_S))
    return _start(backup, world, now, left_s)


def time_left(backup: VirtualMachineBackup, now: datetime) -> float:
    try:
        limit = seconds_of(backup.spec.ttl_duration) if backup.spec.ttl_duration else DEFAULT_TTL_S
    except ValueError:
        limit = DEFAULT_TTL_S  # Stored by somebody who was not asked at the door.
    made = backup.metadata.creation_timestamp
    return (parse_rfc3339(made) + timedelta(seconds=limit) - now).total_seconds() if made else limit


def volume_name(backup: VirtualMachineBackup) -> str:
    """A Pod has a volume of that name, so it is a label."""
    return names.vmi_id(f"{backup.metadata.name.replace('.', '-')}-{TARGET_SUFFIX}")


def stamp(backup: VirtualMachineBackup) -> str:
    made = backup.metadata.creation_timestamp
    return f"{backup.metadata.name}-{parse_rfc3339(made):%Y%m%d-%H%M%S}" if made else backup.metadata.name


# -- before it begins --------------------------------------------------------------------------------------------------


def _waits(backup: VirtualMachineBackup, world: World) -> str:
    """Why it cannot begin yet; empty when it can."""
    rows: tuple[tuple[bool, Callable[[], str]], ...] = (
        (not world.vm_name, lambda: f"VirtualMachineBackupTracker {backup.spec.source.name} does not exist"),
        (world.vm is None, lambda: f"VirtualMachine {world.vm_name} does not exist"),
        (not _runs(world.vmi), lambda: f"VirtualMachine {world.vm_name} does not run"),
        (not _volumes(world.vmi), lambda: f"VirtualMachine {world.vm_name} has no volume that can be backed up"),
        (not _tracks(world.vmi), lambda: _untracked(world)),
        (world.moving, lambda: f"VirtualMachine {world.vm_name} is being moved to another node"),
        (_rival(backup, world) != "", lambda: f"VirtualMachineBackup {_rival(backup, world)} is under way"),
        (world.claim is None, lambda: f"PVC {backup.spec.pvc_name} does not exist"),
    )
    return next((words() for waits, words in rows if waits), "")


def _untracked(world: World) -> str:
    told = world.vm.status.changed_block_tracking if world.vm is not None else None
    state = f" (its changedBlockTracking is {told.state})" if told is not None and told.state else ""
    return f"the changed blocks of VirtualMachine {world.vm_name} are not tracked{state}"


def _runs(vmi: VirtualMachineInstance | None) -> bool:
    return vmi is not None and vmi.status.phase == names.PHASE_RUNNING and not is_terminating(vmi)


def _volumes(vmi: VirtualMachineInstance | None) -> list[str]:
    return [volume.name for volume in tracked_volumes(vmi.spec)] if vmi is not None else []


def _tracks(vmi: VirtualMachineInstance | None) -> bool:
    told = vmi.status.changed_block_tracking if vmi is not None else None
    return told is not None and told.state == TRACKING_ON


def _in_status(world: World) -> BackupStatus | None:
    told = world.vmi.status.changed_block_tracking if world.vmi is not None else None
    return told.backup_status if told is not None else None


def _asked(backup: VirtualMachineBackup, world: World) -> BackupStatus | None:
    """What was asked of the machine for this very backup."""
    found, meta = _in_status(world), backup.metadata
    is_it = found is not None and (found.backup_name, found.start_timestamp) == (meta.name, meta.creation_timestamp)
    return found if is_it else None


def _rival(backup: VirtualMachineBackup, world: World) -> str:
    found = _in_status(world)
    return found.backup_name if found is not None and _asked(backup, world) is None else ""


def _start(backup: VirtualMachineBackup, world: World, now: datetime, left_s: float) -> Decision:
    assert world.vmi is not None
    volume = volume_name(backup)
    if not any(each.name == volume for each in world.vmi.spec.utility_volumes):
        return Decision(
            _progress(backup, "Initializing", "the target claim is brought to the machine", now),
            attach=True,
            recheck_s=min(left_s, RETRY_S),
        )
    there = next((each for each in world.vmi.status.volume_status if each.name == volume), None)
    if there is None or there.phase not in names.VOLUME_IN_LAUNCHER:
        said = f": {there.message}" if there is not None and there.message else ""
        words = f"the target claim is brought to the machine{said}"
        return Decision(_progress(backup, "Initializing", words, now), recheck_s=min(left_s, RETRY_S))
    since = _since(backup, world)
    status = _progress(backup, "Initiated", "the machine is asked for it", now)
    status = replace(status, type=INCREMENTAL if since else FULL)
    request = BackupRequest(
        volume=volume,
        directory=f"{world.vm_name}/{stamp(backup)}",
        checkpoint=stamp(backup) if world.tracker is not None else "",
        since=since,
        skip_quiesce=backup.spec.skip_quiesce,
        keep=list(world.kept),
    )
    ask = BackupStatus(
        backup_name=backup.metadata.name, start_timestamp=backup.metadata.creation_timestamp, request=request
    )
    note = Note("VirtualMachineBackupInitiated", f"{status.type} backup of VirtualMachine {world.vm_name} has begun")
    return Decision(status, ask=ask, notes=(note,), recheck_s=left_s)


def _since(backup: VirtualMachineBackup, world: World) -> str:
    latest = world.tracker.status.latest_checkpoint if world.tracker is not None else None
    return latest.name if latest is not None and not backup.spec.force_full_backup else ""


# -- while it runs -----------------------------------------------------------------------------------------------------


def _follow(backup: VirtualMachineBackup, world: World, now: datetime) -> Decision:
    if world.vmi is None:
        return _ended(backup, FAILED, "SourceLost", "the machine is gone", now)
    if not _runs(world.vmi):
        ended = is_final(world.vmi) or is_terminating(world.vmi)
        phase = "is being stopped" if ended else f"is {world.vmi.status.phase}"
        return _ended(backup, FAILED, "SourceUnhealthy", f"the machine {phase}", now)
    found = _asked(backup, world)
    if found is None:
        return _ended(backup, FAILED, "SourceLost", "the machine knows nothing of it any more", now)
    backup = replace(backup, status=_told(backup, found, now))
    if found.completed:
        return _done(backup, world, found, now)
    left_s = time_left(backup, now)
    if left_s > 0:
        return Decision(backup.status, recheck_s=left_s + 0.1)
    status = _progress(backup, "Aborting", "it takes longer than its ttlDuration", now)
    return Decision(status, ask=_given_up(found), recheck_s=RETRY_S)


def _told(backup: VirtualMachineBackup, found: BackupStatus, now: datetime) -> VirtualMachineBackupStatus:
    conditions = [replace(each) for each in backup.status.conditions]
    if found.quiesce_status:
        held = names.TRUE if found.quiesce_status == _QUIESCE_SUCCEEDED else names.FALSE
        words = "" if found.completed and found.failed else found.backup_msg
        set_condition(conditions, QUIESCED, held, found.quiesce_status, words, now)
    return replace(
        backup.status,
        conditions=conditions,
        type=_type(backup, found),
        checkpoint_name=found.checkpoint_name or None,
        included_volumes=[BackupVolumeInfo(volume_name=each.volume_name) for each in found.volumes],
    )


def _type(backup: VirtualMachineBackup, found: BackupStatus) -> str:
    """As the machine says, once it does."""
    if not found.volumes:
        asked = INCREMENTAL if found.request is not None and found.request.since else FULL
        return backup.status.type or asked
    return INCREMENTAL if found.incremental else FULL


def _done(backup: VirtualMachineBackup, world: World, found: BackupStatus, now: datetime) -> Decision:
    if found.failed:
        late = time_left(backup, now) <= 0
        text = f"it took longer than its ttlDuration: {found.backup_msg}" if late else found.backup_msg
        return _ended(backup, FAILED, "Failed", text, now)
    warnings = [found.broken] if found.broken else []
    if found.quiesce_status not in ("", _QUIESCE_SUCCEEDED, _QUIESCE_SKIPPED):
        warnings.append(f"the guest's filesystems were not frozen: {found.backup_msg}")
    where = f"{found.request.directory} of PVC {backup.spec.pvc_name}" if found.request is not None else "its claim"
    text = f"the backup is in the directory {where}"
    reason = "CompletedWithWarning" if warnings else "Completed"
    decision = _ended(backup, COMPLETE, reason, "; ".join([text, *warnings]), now)
    made = None
    if world.tracker is not None and found.checkpoint_name:
        volumes = [BackupVolumeInfo(volume_name=each.volume_name) for each in found.volumes]
        moment = backup.metadata.creation_timestamp
        made = BackupCheckpoint(name=found.checkpoint_name, creation_time=moment, volumes=volumes)
    return dataclasses.replace(decision, checkpoint=made, broken=found.broken)


def _deleted(backup: VirtualMachineBackup, world: World, now: datetime) -> Decision:
    found = _asked(backup, world)
    if found is None or found.completed or not _runs(world.vmi):
        return _leave(backup, world)
    status = _progress(backup, "Aborting", "it was deleted", now)
    return Decision(status, ask=_given_up(found), recheck_s=RETRY_S)


def _given_up(found: BackupStatus) -> BackupStatus | None:
    """None: that was said already."""
    asked = found.request or BackupRequest()
    return None if asked.abort else replace(found, request=replace(asked, abort=True))


# -- its end -----------------------------------------------------------------------------------------------------------


def _leave(backup: VirtualMachineBackup, world: World) -> Decision:
    """Nothing of it is left in the VMI, and then it may go."""
    left = _asked(backup, world) is not None
    vmi = world.vmi
    left = left or (vmi is not None and any(each.name == volume_name(backup) for each in vmi.spec.utility_volumes))
    if left:
        return Decision(backup.status, clean_up=True, recheck_s=RETRY_S)
    return Decision(backup.status, release=True)


def _ended(backup: VirtualMachineBackup, kind: str, reason: str, message: str, now: datetime) -> Decision:
    conditions = [replace(each) for each in backup.status.conditions]
    set_condition(conditions, PROGRESSING, names.FALSE, reason, message, now)
    set_condition(conditions, kind, names.TRUE, reason, message, now)
    good = kind == COMPLETE
    note = Note(
        "VirtualMachineBackupCompleted" if good else "VirtualMachineBackupFailed",
        message,
        names.EVENT_NORMAL if reason == "Completed" else names.EVENT_WARNING,
    )
    return Decision(replace(backup.status, conditions=conditions), notes=(note,), recheck_s=0.1)


def _progress(backup: VirtualMachineBackup, reason: str, message: str, now: datetime) -> VirtualMachineBackupStatus:
    conditions = [replace(each) for each in backup.status.conditions]
    set_condition(conditions, PROGRESSING, names.TRUE, reason, message, now)
    return replace(backup.status, conditions=conditions)
