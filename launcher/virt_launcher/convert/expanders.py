"""Devices of the node in the memory cell of the guest that they are near to (the gate PCINUMAAwareTopology).

A device of a guest belongs to no cell, but the bus that it sits on does. So each cell that has devices gets an expander
bus of its own, and each device a port there. Devices of which the kernel knows no cell, or one that the guest has
nothing of, sit where all others do. Imported only for guests that see the cells of their node.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from virt_launcher.domain.devices import Address, Controller, HostAddress, HostDev
from virt_launcher.domain.domain import Domain

#: Numbers of buses as the guest counts them; expanders take theirs from the end.
_BUSES = 256
_SLOTS = 32


@dataclass(frozen=True, slots=True)
class Near:
    """The devices of one cell of the guest."""

    cell: int
    devices: tuple[HostDev, ...]


def near_cells(domain: Domain, sys: Path) -> list[Near]:
    """Of the devices that the user did not place himself. An expander has so many slots; more sit where others do."""
    cells = _guest_cells(domain)
    found: dict[int, list[HostDev]] = {}
    for device in domain.devices.hostdevs:
        node = _node_of(device, sys) if device.address is None and device.type in ("pci", "mdev") else None
        if node in cells:
            found.setdefault(cells[node], []).append(device)
    return [Near(cell, tuple(devices[:_SLOTS])) for cell, devices in sorted(found.items())]


def _guest_cells(domain: Domain) -> Mapping[int | None, int]:
    """Which cell of the guest is which of the node, by where its memory comes from."""
    nodes = domain.numa_tune.nodes if domain.numa_tune is not None else []
    known = ((node.nodeset or "", node.cell) for node in nodes)
    return {int(text): cell for text, cell in known if cell is not None and text.isdecimal()}


def _node_of(device: HostDev, sys: Path) -> int | None:
    """The kernel writes -1 for "of no cell in particular"."""
    source = device.source or HostAddress()
    if device.type == "pci":
        place = sys / "bus/pci/devices" / _name(source)
    else:
        # What it is a part of has the cell.
        place = Path(os.path.realpath(sys / "bus/mdev/devices" / (source.uuid or ""))).parent
    try:
        text = (place / "numa_node").read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def _name(source: HostAddress) -> str:
    """0000:3b:00.0"""
    domain, bus, slot, function = (
        int(part or "0", 16) for part in (source.domain, source.bus, source.slot, source.function)
    )
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"


def expand(near: Sequence[Near], first: int) -> Iterator[Controller]:
    """The buses and their ports, numbered from `first` on without a gap; gives each device its place."""
    index, end = first, _BUSES
    for each in near:
        # One number for the bus itself and one for what is behind each port.
        end -= len(each.devices) + 1
        yield Controller(type="pci", index=index, model="pcie-expander-bus", bus_number=end, cell=each.cell)
        for slot, device in enumerate(each.devices):
            port = index + 1 + slot
            yield Controller(type="pci", index=port, model="pcie-root-port", address=_place(index, slot))
            device.address = _place(port, 0)
        index += len(each.devices) + 1


def _place(bus: int, slot: int) -> Address:
    return Address(type="pci", domain="0x0000", bus=f"0x{bus:02x}", slot=f"0x{slot:02x}", function="0x0")
