"""SCSI persistent reservations: which disks of a machine pass them on. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from virt_core.apis.vmi import VirtualMachineInstanceSpec


def reserving(spec: VirtualMachineInstanceSpec) -> list[str]:
    """Names of the disks whose guest may reserve them, against machines on other nodes."""
    return [disk.name for disk in spec.domain.devices.disks if disk.lun is not None and disk.lun.reservation]
