"""Backups of a machine's disks: when one begins, when it is given up, and how it went. Pure.

virt-controller writes into the VMI's status what it asks for; the launcher does it, once for each name and start.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from msgspec.structs import replace

from virt_core.apis.keptstate import TRACKING_BEGINS, TRACKING_ON, tracked_volumes, tracks_blocks
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import BackupStatus, BackupVolume, ChangedBlockTrackingStatus
from virt_core.runtime.times import rfc3339
from virt_protos.launcher.v1 import launcher_pb2 as pb


def told(
    vmi: VirtualMachineInstance, domain: pb.Domain, refused: Mapping[str, str], now: datetime
) -> ChangedBlockTrackingStatus | None:
    """`refused` says by `key` why a launcher did not even begin."""
    known = vmi.status.changed_block_tracking
    if known is None or not tracks_blocks(vmi):
        return known
    wanted = {volume.name for volume in tracked_volumes(vmi.spec)} & set(domain.disk_targets)
    state = TRACKING_ON if wanted <= set(domain.tracked_volumes) else TRACKING_BEGINS
    return replace(known, state=state, backup_status=_next(known.backup_status, domain.backup, refused, now))


def key(name: str, started: str | None) -> str:
    return f"{name} {started}"


def due(vmi: VirtualMachineInstance, domain: pb.Domain, refused: Mapping[str, str]) -> pb.BeginBackupRequest | None:
    """A backup that the launcher has not begun."""
    wanted = _wanted(vmi)
    if wanted is None or wanted.request is None or wanted.request.abort or _is_it(wanted, domain.backup):
        return None
    if key(wanted.backup_name, wanted.start_timestamp) in refused:
        return None
    asked = wanted.request
    return pb.BeginBackupRequest(
        name=wanted.backup_name,
        started=wanted.start_timestamp or "",
        volume=asked.volume,
        directory=asked.directory,
        checkpoint=asked.checkpoint,
        since=asked.since,
        skip_quiesce=asked.skip_quiesce,
        keep=asked.keep,
    )


def to_abort(vmi: VirtualMachineInstance, domain: pb.Domain) -> str:
    """The name of a backup that is under way and that nobody wants, any more or at all."""
    if not domain.backup.name or domain.backup.ended_us:
        return ""
    wanted = _wanted(vmi)
    asked = wanted.request if wanted is not None and _is_it(wanted, domain.backup) else None
    return "" if asked is not None and not asked.abort else domain.backup.name


def _wanted(vmi: VirtualMachineInstance) -> BackupStatus | None:
    known = vmi.status.changed_block_tracking
    found = known.backup_status if known is not None else None
    return found if found is not None and not found.completed else None


def _is_it(wanted: BackupStatus, backup: pb.Backup) -> bool:
    return (backup.name, backup.started) == (wanted.backup_name, wanted.start_timestamp or "")


def _next(
    known: BackupStatus | None, backup: pb.Backup, refused: Mapping[str, str], now: datetime
) -> BackupStatus | None:
    if known is None or known.completed or known.request is None:
        return known
    if why := refused.get(key(known.backup_name, known.start_timestamp)):
        return _ended(known, why, now)
    if not _is_it(known, backup):
        return _ended(known, "it was given up before it began", now) if known.request.abort else known
    known = replace(
        known,
        checkpoint_name=backup.checkpoint,
        quiesce_status=backup.quiesce,
        backup_msg=backup.quiesce_message,
        volumes=[BackupVolume(volume_name=name) for name in backup.volumes],
        incremental=backup.incremental,
        broken=backup.broken,
    )
    return _ended(known, backup.failure, now) if backup.ended_us else known


def _ended(known: BackupStatus, failure: str, now: datetime) -> BackupStatus:
    message = failure or known.backup_msg
    return replace(known, completed=True, failed=bool(failure), backup_msg=message, end_timestamp=rfc3339(now))
