"""Backups and checkpoints in libvirt's own words. Imported when a machine has a backup."""

from __future__ import annotations

from typing import Any

import libvirt

from virt_launcher.hypervisor.ports import BackupEnd

REDEFINE = libvirt.VIR_DOMAIN_CHECKPOINT_CREATE_REDEFINE | libvirt.VIR_DOMAIN_CHECKPOINT_CREATE_REDEFINE_VALIDATE
FORGET = libvirt.VIR_DOMAIN_CHECKPOINT_DELETE_METADATA_ONLY
REUSE = libvirt.VIR_DOMAIN_BACKUP_BEGIN_REUSE_EXTERNAL
_LAST = libvirt.VIR_DOMAIN_JOB_STATS_COMPLETED | libvirt.VIR_DOMAIN_JOB_STATS_KEEP_COMPLETED


def end_of(domain: Any) -> BackupEnd | None:
    """None while it is written. The job that is over is asked for only when none runs: that of an earlier backup looks
    the same."""
    if domain.jobStats()["type"] != libvirt.VIR_DOMAIN_JOB_NONE:
        return None
    found = domain.jobStats(_LAST)
    if found.get("operation") != libvirt.VIR_DOMAIN_JOB_OPERATION_BACKUP:
        return BackupEnd("libvirt does not say how the backup went")
    if found["type"] == libvirt.VIR_DOMAIN_JOB_COMPLETED and found.get("success", True):
        return BackupEnd()
    if found["type"] == libvirt.VIR_DOMAIN_JOB_CANCELLED:
        return BackupEnd("the backup was aborted", aborted=True)
    return BackupEnd(str(found.get("errmsg") or "QEMU could not write all of it"))
