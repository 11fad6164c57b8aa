"""The ports of the root complex: which device sits behind which, and how many are free for devices that come later.

Seats are given in the order in which KubeVirt's launcher and libvirt give them, so that a guest from there finds its
first network card as enp1s0 and its other devices where they were. Network cards come first and have ports kept for
more of them, and so has the SCSI controller for hot-plugged disks: what joins the machine later moves nobody.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from virt_core.apis import names
from virt_core.apis.interfaces import MOST_PCI_PORTS, interface_slots
from virt_launcher.convert.context import Context
from virt_launcher.convert.memory import boot_memory
from virt_launcher.domain.devices import Address, Controller
from virt_launcher.domain.domain import Domain
from virt_launcher.errors import InvalidVMIError

if TYPE_CHECKING:
    from virt_launcher.convert.expanders import Near

#: Ports for network cards, once there is one.
_CARDS = 4
#: How many ports there are at least, and how many of them free: in a guest of at most 2 GiB, and in a larger one.
_SMALL_BYTES, _SMALL, _LARGE = 2 << 30, (8, 3), (16, 6)


def configure_ports(context: Context, domain: Domain) -> None:
    """After all devices. Those that have an address keep it."""
    hotplug = not context.vmi.spec.domain.devices.disable_hotplug
    near = _near_cells(context, domain)
    apart = {id(device) for each in near for device in each.devices}
    placed = {bus_of(device.address) for device in pci_express(domain) if device.address is not None}
    kept = _kept_for_cards(context, domain) if hotplug else 0
    seats = [seat for seat in _seats(domain, kept, hotplug) if id(seat) not in apart]
    free = [bus for bus in range(1, len(seats) + len(placed) + 1) if bus not in placed]
    for bus, device in zip(free, seats, strict=False):
        if device is not None:
            device.address = Address(type="pci", domain="0x0000", bus=f"0x{bus:02x}", slot="0x00", function="0x0")
    last = max([0, *free[: len(seats)], *(bus for bus in placed if bus <= MOST_PCI_PORTS)])
    count = _count(boot_memory(context), len(seats) - kept + len(placed - {0}), last) if hotplug else last
    ports = (Controller(type="pci", index=index, model="pcie-root-port") for index in range(1, count + 1))
    domain.devices.controllers.extend(ports)
    if near:
        from virt_launcher.convert.expanders import expand

        domain.devices.controllers.extend(expand(near, count + 1))


def _near_cells(context: Context, domain: Domain) -> list[Near]:
    """Devices of the node that sit near the memory of the guest that they are near to. Few machines have any."""
    if context.sys is None or domain.numa_tune is None:
        return []
    from virt_launcher.convert.expanders import near_cells

    return near_cells(domain, context.sys)


def bus_of(address: Address) -> int:
    return int(address.bus or "0", 16)


def pci_express(domain: Domain) -> list[Any]:
    """Everything that can sit behind a port, in the order of the seats."""
    cards = [*domain.devices.filesystems, *domain.devices.interfaces]
    return [*cards, *_controllers(domain, "usb"), *_controllers(domain, "scsi"), *_others(domain)]


def _seats(domain: Domain, kept_for_cards: int, hotplug: bool) -> Iterator[Any]:
    """The devices that need a port; None for a port that is kept."""
    yield from _homeless(domain.devices.filesystems)
    yield from _homeless(domain.devices.interfaces)
    yield from [None] * kept_for_cards
    yield from _homeless(_controllers(domain, "usb"))
    scsi = _controllers(domain, "scsi")
    yield from _homeless(scsi) if scsi or not hotplug else [None]
    yield from _homeless(_others(domain))


def _homeless(devices: list[Any]) -> list[Any]:
    return [device for device in devices if device.address is None]


def _controllers(domain: Domain, kind: str) -> list[Any]:
    return [c for c in domain.devices.controllers if c.type == kind and c.model != "none"]


def _others(domain: Domain) -> list[Any]:
    devices = domain.devices
    found = _controllers(domain, "virtio-serial")
    found += [disk for disk in devices.disks if disk.bus == "virtio"]
    found += [device for device in devices.hostdevs if device.type != "usb"]
    if devices.memballoon is not None and devices.memballoon.model != "none":
        found.append(devices.memballoon)
    found += [*devices.rngs, *(i for i in devices.inputs if i.bus == "virtio"), *_screens(domain)]
    found += [] if devices.vsock is None else [devices.vsock]
    return [*found, *devices.memories]


def _screens(domain: Domain) -> list[Any]:
    """A PC's has a slot of its own on the root complex, and one that is only a frame buffer needs none."""
    return [] if domain.os.arch == "x86_64" else [video for video in domain.devices.videos if video.type != "ramfb"]


def _kept_for_cards(context: Context, domain: Domain) -> int:
    """Ports beside those of the network cards that are there."""
    cards = len(domain.devices.interfaces)
    text = context.vmi.metadata.annotations.get(names.ANNOTATION_PCI_INTERFACE_SLOTS)
    if text is None:
        return max(_CARDS - cards, 0) if cards else 0
    if (slots := interface_slots(text)) is None:
        path = f"metadata.annotations[{names.ANNOTATION_PCI_INTERFACE_SLOTS}]"
        raise InvalidVMIError(path, f"{text!r} is not a number of ports between 0 and {MOST_PCI_PORTS}")
    return max(slots - cards, 0)


def _count(memory: int, used: int, last: int) -> int:
    """How many ports: room for what is there, and free ones behind it up to a limit."""
    least, free = _SMALL if memory <= _SMALL_BYTES else _LARGE
    return max(min(max(least, used + free, last + 1), MOST_PCI_PORTS), last)
