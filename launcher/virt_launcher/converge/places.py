"""Where a new device sits in a running machine: behind a port that is free. Pure.

It gets the port that it would have after a restart, if nobody is there, so that the guest calls it the same then. Else
a network card takes the first free port and all others the last: the first ones are those of network cards.
"""

from __future__ import annotations

from typing import Any

from virt_launcher.converge.kinds import KINDS, devices_of
from virt_launcher.convert.ports import bus_of
from virt_launcher.domain.devices import Address, Interface
from virt_launcher.domain.domain import Domain


def has_ports(live: Domain) -> bool:
    """Whether its devices sit behind ports at all."""
    machine = live.os.machine or ""
    return "q35" in machine or machine.startswith("virt")


def free_ports(live: Domain) -> list[int]:
    """A device that is about to go still has its port: the guest may not let it go."""
    taken = {
        bus_of(address) for kind in KINDS for device in devices_of(live, kind).values() if (address := _pci(device))
    }
    # Ports of an expander bus are those of devices that sit near their memory.
    on_root = (c for c in live.devices.controllers if c.address is None or not bus_of(c.address))
    ports = {c.index or 0 for c in on_root if c.model == "pcie-root-port"}
    return sorted(ports - taken)


def give_ports(new: list[Any], live: Domain) -> None:
    """To devices that the converter put somewhere. One for which there is none gets no address."""
    free = free_ports(live)
    for device in new:
        if (address := _pci(device)) is None:
            continue
        if not has_ports(live) or not free:
            device.address = None
            continue
        wish, else_ = bus_of(address), free[0] if isinstance(device, Interface) else free[-1]
        bus = wish if wish in free else else_
        free.remove(bus)
        device.address = Address(type="pci", domain="0x0000", bus=f"0x{bus:02x}", slot="0x00", function="0x0")


def _pci(device: Any) -> Address | None:
    address: Address | None = getattr(device, "address", None)
    return address if address is not None and address.type == "pci" else None
