"""The host devices that the kernel knows, as sysfs tells: PCI functions, mediated devices, USB devices.

Devices come and go while we read, so an entry that cannot be read is left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

VFIO_DRIVER = "vfio-pci"


@dataclass(frozen=True, slots=True)
class PciFunction:
    address: str
    #: `vendor:product` in lower case hexadecimal digits.
    selector: str
    driver: str
    iommu_group: str
    numa: int | None


@dataclass(frozen=True, slots=True)
class MediatedDevice:
    uuid: str
    type_name: str
    iommu_group: str
    numa: int | None


@dataclass(frozen=True, slots=True)
class CardType:
    """A type of mediated devices that a card knows: how many more of it fit, and which there are."""

    id: str
    #: As people say it, or else the identifier.
    name: str
    available: int
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Card:
    name: str
    types: tuple[CardType, ...]


@dataclass(frozen=True, slots=True)
class UsbDevice:
    name: str
    selector: str
    bus: int
    number: int

    @property
    def node(self) -> str:
        return f"/dev/bus/usb/{self.bus:03}/{self.number:03}"

    @property
    def address(self) -> str:
        return f"{self.bus}:{self.number}"


def pci_functions(sys: str) -> list[PciFunction]:
    return [found for entry in _entries(sys, "bus/pci/devices") if (found := _pci(entry)) is not None]


def _pci(entry: Path) -> PciFunction | None:
    vendor, product, group = (
        _hexadecimal(entry / "vendor"),
        _hexadecimal(entry / "device"),
        _target(entry, "iommu_group"),
    )
    if not vendor or not product or not group:
        return None
    return PciFunction(entry.name, f"{vendor}:{product}", _target(entry, "driver"), group, _numa(entry))


def mediated_devices(sys: str) -> list[MediatedDevice]:
    return [found for entry in _entries(sys, "bus/mdev/devices") if (found := _mediated(entry)) is not None]


def _mediated(entry: Path) -> MediatedDevice | None:
    group, kind = _target(entry, "iommu_group"), _target(entry, "mdev_type")
    if not group or not kind:
        return None
    # A type has a name for people or else only its identifier.
    name = _text(entry / "mdev_type" / "name") or kind
    return MediatedDevice(entry.name, normal_type(name), group, _numa(Path(os.path.realpath(entry)).parent))


def cards(sys: str) -> list[Card]:
    """What can be divided into mediated devices."""
    found = ((entry, entry / "mdev_supported_types") for entry in _entries(sys, "class/mdev_bus"))
    return [Card(entry.name, tuple(_card_type(kind) for kind in _entries(str(types), ""))) for entry, types in found]


def _card_type(entry: Path) -> CardType:
    devices = tuple(each.name for each in _entries(str(entry), "devices"))
    name = normal_type(_text(entry / "name")) or entry.name
    return CardType(entry.name, name, _number(entry / "available_instances") or 0, devices)


def iommu_group(entry: str) -> str:
    return _target(Path(entry), "iommu_group")


def normal_type(name: str) -> str:
    """Selectors write the blanks in a type's name as they like."""
    return "_".join(name.split())


def usb_devices(sys: str) -> list[UsbDevice]:
    return [found for entry in _entries(sys, "bus/usb/devices") if (found := _usb(entry)) is not None]


def _usb(entry: Path) -> UsbDevice | None:
    vendor, product = _hexadecimal(entry / "idVendor"), _hexadecimal(entry / "idProduct")
    bus, number = _number(entry / "busnum"), _number(entry / "devnum")
    if not vendor or not product or bus is None or number is None:
        return None  # An interface of a device has an entry as well, without these.
    return UsbDevice(entry.name, f"{vendor}:{product}", bus, number)


def normal_selector(text: str) -> str:
    """`vendor:product` as above, whether or not it was written with 0x, zeros or capitals."""
    return ":".join(part.strip().lower().removeprefix("0x").rjust(4, "0") for part in text.split(":"))


def _entries(sys: str, below: str) -> Iterator[Path]:
    try:
        yield from sorted(Path(sys, below).iterdir())
    except OSError:
        return


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _hexadecimal(path: Path) -> str:
    return _text(path).lower().removeprefix("0x")


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdecimal() else None


def _target(entry: Path, link: str) -> str:
    """The last part of where a link leads."""
    try:
        return os.path.basename(os.readlink(entry / link))
    except OSError:
        return ""


def _numa(entry: Path) -> int | None:
    """The kernel writes -1 for "of no node in particular"."""
    return _number(entry / "numa_node")
