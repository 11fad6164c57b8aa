"""Where the PCI devices sit: directly on the root complex, one slot each.

By itself libvirt gives every virtio device a root port of its own. A guest then has to walk twice as many devices,
which delays its boot under emulation (figures in controllers.py). What is plugged in later goes to the spare ports.
"""

from __future__ import annotations

import re
from typing import Any

from virt_launcher.convert.context import Context
from virt_launcher.domain.devices import Address
from virt_launcher.domain.domain import Domain
from virt_launcher.errors import InvalidVMIError

_ADDRESS = re.compile(r"([0-9a-fA-F]{4}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")
#: Slots of q35's root complex that are free for us: 0 is the host bridge, 1 the screen, 2 the spare ports, and those
#: from 0x1a on belong to the chip set.
_SLOTS = range(0x03, 0x1A)
#: PCI devices of models that only conventional PCI knows are fine here too; libvirt would build them a bridge.
_ROOT = "0x00"


def parse_address(text: str, path: str) -> Address:
    """`0000:81:01.0` as the user wrote it."""
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise InvalidVMIError(path, f"{text!r} is not a PCI address such as 0000:81:01.0")
    domain, bus, slot, function = match.groups()
    return Address(type="pci", domain=f"0x{domain}", bus=f"0x{bus}", slot=f"0x{slot}", function=f"0x{function}")


def configure_pci(context: Context, domain: Domain) -> None:
    """Last of all. Devices beyond the free slots are left to libvirt, which adds ports for them."""
    if not (domain.os.machine or "").startswith(("q35", "pc-q35")):
        return
    del context
    devices = _devices(domain)
    taken = {d.address.slot for d in devices if d.address is not None and d.address.bus in ("0x00", "0x0")}
    free = (f"0x{slot:02x}" for slot in _SLOTS if f"0x{slot:02x}" not in taken)
    for device in devices:
        if device.address is None and (slot := next(free, None)) is not None:
            device.address = Address(type="pci", domain="0x0000", bus=_ROOT, slot=slot, function="0x0")


def _devices(domain: Domain) -> list[Any]:
    """Everything that takes a PCI slot. The screen and ich9 sound have theirs by convention."""
    devices = domain.devices
    found: list[Any] = [*devices.interfaces]
    found += [c for c in devices.controllers if c.type in ("scsi", "virtio-serial") or c.model == "qemu-xhci"]
    found += [disk for disk in devices.disks if disk.bus == "virtio"]
    found += [i for i in devices.inputs if i.bus == "virtio"]
    found += [s for s in devices.sounds if s.model != "ich9"]
    found += [*devices.watchdogs, *devices.rngs]
    if devices.memballoon is not None and devices.memballoon.model != "none":
        found.append(devices.memballoon)
    return found if devices.vsock is None else [*found, devices.vsock]
