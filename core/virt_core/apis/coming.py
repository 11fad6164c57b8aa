"""A VMI without the volumes that are still on their way to its Pod. Pure.

virt-handler asks for no more than what is there, and virt-launcher makes no more of it.
"""

from __future__ import annotations

from msgspec.structs import replace

from virt_core.apis import names
from virt_core.apis.vmi import VirtualMachineInstanceSpec
from virt_core.apis.vmistatus import VirtualMachineInstanceStatus
from virt_core.apis.volumes import is_hotplug


def coming(spec: VirtualMachineInstanceSpec, status: VirtualMachineInstanceStatus) -> set[str]:
    """The names of volumes that are not in the Pod yet: their status says so, or nobody has spoken of them so far."""
    known = {each.name: each for each in status.volume_status}
    away = {
        each.name
        for each in status.volume_status
        if each.hotplug_volume is not None and each.phase not in names.VOLUME_IN_LAUNCHER
    }
    unheard = {volume.name for volume in spec.volumes if is_hotplug(volume) and volume.name not in known}
    return (away | unheard) & {volume.name for volume in spec.volumes}


def without_coming(
    spec: VirtualMachineInstanceSpec, status: VirtualMachineInstanceStatus
) -> VirtualMachineInstanceSpec:
    """Their disks are left out with them; but a CD-ROM drive is there also without its medium."""
    if not (names_ := coming(spec, status)):
        return spec
    devices = spec.domain.devices
    disks = [disk for disk in devices.disks if disk.name not in names_ or disk.cdrom is not None]
    domain = replace(spec.domain, devices=replace(devices, disks=disks))
    return replace(spec, domain=domain, volumes=[each for each in spec.volumes if each.name not in names_])
