"""The controllers that the devices need, and no more: each one costs the guest time to find."""

from __future__ import annotations

from virt_launcher.convert.context import Context
from virt_launcher.domain.devices import Controller
from virt_launcher.domain.domain import Domain

#: Free ports for devices that are plugged in later. Seven boots each under emulation, on a busy machine: two ports cost
#: 0.03 s (median) to 0.06 s (best runs), a port for each of five devices 0.15 s to 0.44 s.
_SPARE_PORTS = 2


def configure_controllers(context: Context, domain: Domain) -> None:
    """After all devices."""
    controllers = domain.devices.controllers
    controllers.append(Controller(type="usb", index=0, model="qemu-xhci" if _needs_usb(domain) else "none"))
    if any(disk.bus == "scsi" for disk in domain.devices.disks):
        controllers.append(Controller(type="scsi", index=0, model=context.virtio_model))
    if domain.devices.channels:
        controllers.append(Controller(type="virtio-serial", index=0, model=context.virtio_model))
    if not context.vmi.spec.domain.devices.disable_hotplug:
        ports = range(1, _SPARE_PORTS + 1)
        controllers.extend(Controller(type="pci", index=index, model="pcie-root-port") for index in ports)


def _needs_usb(domain: Domain) -> bool:
    devices = domain.devices
    by_usb = [d.bus for d in devices.disks] + [i.bus for i in devices.inputs]
    return "usb" in by_usb or bool(devices.redirdevs)
