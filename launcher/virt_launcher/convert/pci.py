"""Where the PCI devices sit (decisions/0009): behind the ports of the root complex, or directly on it.

What is of conventional PCI sits on the root complex in any case: libvirt would build it a bridge, and that bridge would
take the port of the first network card. Transitional virtio devices are of that kind: they need IO ports, of which the
machine has too few for a port's window each.
"""

from __future__ import annotations

import re
from typing import Any

from virt_core.apis import names
from virt_launcher.convert.context import Context
from virt_launcher.convert.ports import bus_of, configure_ports, pci_express
from virt_launcher.domain.devices import Address, Controller
from virt_launcher.domain.domain import Domain
from virt_launcher.domain.machine import Amount
from virt_launcher.errors import InvalidVMIError

_ADDRESS = re.compile(r"([0-9a-fA-F]{4}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")
#: Slots of q35's root complex that are free: 0 is the host bridge, 1 the screen, 0x1b sound, 0x1f the chip set.
_SLOTS = (*range(0x02, 0x1B), *range(0x1C, 0x1F))
#: Where they begin beside the ports, of which eight sit in one slot.
_BESIDE_PORTS = 0x06
_TRANSITIONAL = "virtio-transitional"


def parse_address(text: str, path: str) -> Address:
    """`0000:81:01.0` as the user wrote it."""
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise InvalidVMIError(path, f"{text!r} is not a PCI address such as 0000:81:01.0")
    domain, bus, slot, function = match.groups()
    return Address(type="pci", domain=f"0x{domain}", bus=f"0x{bus}", slot=f"0x{slot}", function=f"0x{function}")


def configure_pci(context: Context, domain: Domain) -> None:
    """Last of all. Devices beyond the free slots are left to libvirt."""
    ports = context.architecture.with_ports
    if not ports or not (domain.os.machine or "").startswith(ports):
        return
    annotations = context.vmi.metadata.annotations
    if context.architecture.pc and annotations.get(names.ANNOTATION_NO_PCI_HOLE64, "").lower() == "true":
        hole = Amount(unit="KiB", value=0)
        domain.devices.controllers.append(Controller(type="pci", index=0, model="pcie-root", hole64=hole))
    if annotations.get(names.ANNOTATION_PCI_ON_ROOT_COMPLEX) == "true":
        _put_on_root(domain, [*pci_express(domain), *_conventional(domain)], first=0)
        return
    transitional = [device for device in pci_express(domain) if getattr(device, "model", None) == _TRANSITIONAL]
    _put_on_root(domain, [*transitional, *_conventional(domain)], first=_BESIDE_PORTS)
    configure_ports(context, domain)


def _conventional(domain: Domain) -> list[Any]:
    """Devices of models that only conventional PCI knows; ich9 sound and the first SATA controller are built in."""
    devices = domain.devices
    sata = [c for c in devices.controllers if c.type == "sata" and c.index]
    return [*(s for s in devices.sounds if s.model != "ich9"), *sata, *devices.watchdogs]


def _put_on_root(domain: Domain, devices: list[Any], first: int) -> None:
    placed = [device.address for device in pci_express(domain) if device.address is not None]
    taken = {int(address.slot or "0", 16) for address in placed if bus_of(address) == 0}
    free = (slot for slot in _SLOTS if slot >= first and slot not in taken)
    for device in devices:
        if device.address is None and (slot := next(free, None)) is not None:
            device.address = Address(type="pci", domain="0x0000", bus="0x00", slot=f"0x{slot:02x}", function="0x0")
