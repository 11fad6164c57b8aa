"""Tags of devices, by which a config drive tells the guest which is which."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from virt_core.apis.devices import GPU, Disk, HostDevice
from virt_core.apis.interfaces import Interface
from virt_core.apis.vmi import VirtualMachineInstanceSpec


def tag_paths(spec: VirtualMachineInstanceSpec) -> Iterator[str]:
    """Below the spec, of each tag that is set."""
    devices = spec.domain.devices
    lists: dict[str, Sequence[Disk | Interface | GPU | HostDevice]] = {
        "disks": devices.disks,
        "interfaces": devices.interfaces,
        "gpus": devices.gpus,
        "hostDevices": devices.host_devices,
    }
    for name, listed in lists.items():
        yield from (f"domain.devices.{name}[{index}].tag" for index, device in enumerate(listed) if device.tag)


def untold_tags(spec: VirtualMachineInstanceSpec) -> Iterator[str]:
    """Those of which the guest never hears: nothing brings them there."""
    if not any(volume.cloud_init_config_drive is not None for volume in spec.volumes):
        yield from tag_paths(spec)
