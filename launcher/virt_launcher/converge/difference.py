"""What must happen to a running machine so that it is the wanted one. Pure.

libvirt shows more than we wrote: addresses, aliases, defaults, controllers, backing chains. So only what we declare is
compared, and devices are matched by who they are (kinds.py), never by their place in a list.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from virt_launcher.converge.changes import Act, Change, DeviceChange, MoreProcessors, NeedsRestart
from virt_launcher.converge.kinds import (
    CONTROLLER,
    DISK,
    FIXED,
    IDENTITY,
    INTERFACE,
    PLUGGABLE,
    Kind,
    devices_of,
    name_of,
    on_root_complex,
)
from virt_launcher.converge.machine import machine_differences, processors
from virt_launcher.converge.places import free_ports, has_ports
from virt_launcher.domain.codec import FLAG, Slot, slots_of
from virt_launcher.domain.devices import Controller, Interface, MemoryDevice
from virt_launcher.domain.disks import Disk
from virt_launcher.domain.domain import Domain

#: What another medium in a drive changes, and what stays as the drive was made, whatever the medium is.
_MEDIUM = ("type", "driver_type", "source_file", "source_dev")
_DRIVE = frozenset({"cache", "io", "discard", "readonly"})
#: Cards that sit in a PCI Express port; the older ones need a bridge that a running machine does not get.
_PLUGGABLE_CARDS = ("virtio", "e1000e", "igb")
_PLUGGABLE_BUSES = ("virtio", "scsi")
_NO_PORT = "the machine has no free PCI port for it; after a restart it has one"
#: Changes that wait for nobody come first; a device that goes may keep us waiting for the guest.
_ORDER = (Act.UPDATE, Act.DETACH, Act.ATTACH)


def difference(wanted: Domain, live: Domain) -> tuple[Change, ...]:
    """Device changes in the order in which they are to be made, then what needs a restart."""
    found = [change for kind in PLUGGABLE for change in _pluggable(kind, wanted, live)]
    found += [change for kind in FIXED for change in _fixed(kind, wanted, live)]
    devices = [change for change in found if isinstance(change, DeviceChange)]
    restarts = [change for change in found if isinstance(change, NeedsRestart)]
    ordered = [change for act in _ORDER for change in devices if change.act is act]
    return (*_more_processors(wanted, live), *ordered, *machine_differences(wanted, live), *restarts)


def _more_processors(wanted: Domain, live: Domain) -> Iterator[Change]:
    """Sockets that the machine was started with room for."""
    (want, room), (have, same) = processors(wanted), processors(live)
    if room == same and want > have:
        yield MoreProcessors(want)


def _pluggable(kind: Kind, wanted: Domain, live: Domain) -> Iterator[Change]:
    want, have = devices_of(wanted, kind), devices_of(live, kind)
    for key, device in want.items():
        if key not in have:
            yield from _attach(kind, key, device, live)
        elif fields := differing(kind, device, have[key]):
            yield from _change(kind, key, device, have[key], fields)
    for key, device in have.items():
        if key not in want and kind.ours(device):
            yield _detach(kind, key, device)


def _fixed(kind: Kind, wanted: Domain, live: Domain) -> Iterator[Change]:
    want, have = devices_of(wanted, kind), devices_of(live, kind)
    for key, device in want.items():
        if key not in have:
            yield _restart(kind, key, device, "it is added when the machine is restarted")
        elif fields := differing(kind, device, have[key]):
            yield _unchangeable(kind, key, device, fields)
    for key, device in have.items():
        if key not in want and kind.ours(device):
            yield _restart(kind, key, device, "it stays until the machine is restarted")


def _attach(kind: Kind, key: str, device: Any, live: Domain) -> Iterator[Change]:
    if reason := _cannot_come(kind, device, live):
        yield _restart(kind, key, device, reason)
    elif kind is not CONTROLLER or _is_worth(device):
        yield DeviceChange(Act.ATTACH, kind.tag, name_of(device, key), device)


def _cannot_come(kind: Kind, device: Any, live: Domain) -> str:
    if kind is DISK and (reason := _disk_cannot_come(device, live)):
        return reason
    if kind is INTERFACE and not _is_pluggable(device):
        return f"a card of model {device.model} cannot be plugged into a running machine"
    if kind is CONTROLLER and not _is_worth(device):
        return ""
    if kind is CONTROLLER and device.type == "usb":
        return "the machine was started without USB"
    return _NO_PORT if device.address is None and has_ports(live) else ""


def _disk_cannot_come(disk: Disk, live: Domain) -> str:
    if disk.device == "cdrom":
        return "a CD-ROM drive cannot be plugged into a running machine"
    if disk.bus not in _PLUGGABLE_BUSES:
        return f"a disk on the bus {disk.bus} cannot be plugged into a running machine; virtio and scsi can"
    if (disk.iothread or 0) > (live.iothreads or 0):
        return "an IO thread of its own is made only when the machine starts"
    if disk.bus == "scsi" and not any(c.type == "scsi" for c in live.devices.controllers) and not free_ports(live):
        return _NO_PORT
    return ""


def _is_pluggable(card: Interface) -> bool:
    return (card.model or "").startswith(_PLUGGABLE_CARDS)


def _is_worth(controller: Controller) -> bool:
    """Whether it is more than a place where nothing is, or a free port."""
    return controller.model != "none" and controller.type != "pci"


def _detach(kind: Kind, key: str, device: Any) -> Change:
    if isinstance(device, Disk) and (device.device == "cdrom" or device.bus not in _PLUGGABLE_BUSES):
        return _restart(kind, key, device, f"a disk on the bus {device.bus} stays until the machine is restarted")
    if on_root_complex(device.address):
        return _restart(kind, key, device, "it sits on the root complex and stays until the machine is restarted")
    if isinstance(device, Interface) and not _is_pluggable(device):
        return _restart(kind, key, device, f"a card of model {device.model} stays until the machine is restarted")
    return DeviceChange(Act.DETACH, kind.tag, name_of(device, key), device)


def _change(kind: Kind, key: str, wanted: Any, live: Any, fields: list[str]) -> Iterator[Change]:
    """The live device with what changes: libvirt refuses an update that is silent about the rest."""
    name = name_of(wanted, key)
    if isinstance(wanted, Interface) and fields == ["link"]:
        yield DeviceChange(Act.UPDATE, kind.tag, name, dataclasses.replace(live, link=wanted.link or "up"))
    elif isinstance(wanted, Disk) and set(_MEDIUM).issuperset(fields) and wanted.device == live.device == "cdrom":
        medium = {field: getattr(wanted, field) for field in _MEDIUM}
        yield DeviceChange(Act.UPDATE, kind.tag, name, dataclasses.replace(live, backing_store=None, **medium))
    elif isinstance(wanted, MemoryDevice) and fields == ["requested"]:
        size = dataclasses.replace(live, requested=wanted.requested, current=None)
        yield DeviceChange(Act.UPDATE, kind.tag, name, size)
    elif not isinstance(wanted, Controller):
        yield _unchangeable(kind, key, wanted, fields)
    elif _is_worth(wanted):
        yield _restart(
            kind, key, wanted, f"the controller stays {live.model or live.type} until the machine is restarted"
        )


def _unchangeable(kind: Kind, key: str, device: Any, fields: list[str]) -> NeedsRestart:
    words = ", ".join(field.replace("_", " ") for field in fields)
    return _restart(kind, key, device, f"{words} cannot change while the machine runs")


def _restart(kind: Kind, key: str, device: Any, reason: str) -> NeedsRestart:
    return NeedsRestart(kind.field, f'{kind.tag} "{name_of(device, key)}": {reason}')


def differing(kind: Kind, wanted: Any, live: Any) -> list[str]:
    """The fields of a device that are not as we want them."""
    skipped = kind.ignored | IDENTITY
    if isinstance(wanted, Disk) and wanted.device == "cdrom":
        skipped |= _DRIVE
    slots = [slot for slot in slots_of(type(wanted)) if slot.name not in skipped]
    return [slot.name for slot in slots if not _agrees(slot, wanted, live, slot.name in kind.exact)]


def _agrees(slot: Slot, wanted: Any, live: Any, exact: bool) -> bool:
    want, have = getattr(wanted, slot.name), getattr(live, slot.name)
    if slot.name == "link":
        return (want or "up") == (have or "up")
    if slot.place.words is FLAG:
        return bool(want) == bool(have)
    if want is None or want == []:
        return not exact or not have
    if dataclasses.is_dataclass(want):
        return have is not None and all(_agrees(inner, want, have, False) for inner in slots_of(type(want)))
    return _same(want, have)


def _same(want: Any, have: Any) -> bool:
    """A MAC address in any case: libvirt writes it its own way."""
    if isinstance(want, str) and isinstance(have, str) and ":" in want:
        return want.lower() == have.lower()
    return bool(want == have)
