"""The controllers that the devices need, and no more: each one costs the guest time to find. Ports are in ports.py."""

from __future__ import annotations

from virt_launcher.convert.context import Context
from virt_launcher.domain.devices import Controller
from virt_launcher.domain.domain import Domain


def configure_controllers(context: Context, domain: Domain) -> None:
    """After all devices."""
    controllers = domain.devices.controllers
    usb = context.architecture.usb or _needs_usb(domain)
    controllers.append(Controller(type="usb", index=0, model="qemu-xhci" if usb else "none"))
    if any(disk.bus == "scsi" for disk in domain.devices.disks):
        # Where there is but one kind of virtio, its SCSI controller has a name of its own.
        model = "virtio-scsi" if context.architecture.virtio else context.virtio_model
        controllers.append(Controller(type="scsi", index=0, model=model))
    if domain.devices.channels:
        controllers.append(Controller(type="virtio-serial", index=0, model=context.virtio_model))
    sata = {disk.address.controller or 0 for disk in domain.devices.disks if disk.bus == "sata" and disk.address}
    controllers.extend(Controller(type="sata", index=index) for index in range(1, max(sata, default=0) + 1))


def _needs_usb(domain: Domain) -> bool:
    devices = domain.devices
    by_usb = [d.bus for d in devices.disks] + [i.bus for i in devices.inputs] + [h.type for h in devices.hostdevs]
    return "usb" in by_usb or bool(devices.redirdevs)
