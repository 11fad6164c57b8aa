"""The kinds of devices: how one is known again, whose it is, and which of its fields libvirt leaves as we wrote them.

Identity never comes from the place in a list: it is the alias that we gave it, or what only one device can have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from virt_launcher.domain.devices import CARD_ALIAS, Address
from virt_launcher.domain.domain import Domain

OUR_ALIAS = "ua-"
_DEVICES = "spec.domain.devices"
#: Who a device is and where it sits: kept from the running machine, never compared.
IDENTITY = frozenset({"alias", "address", "target"})


@dataclass(frozen=True, slots=True)
class Kind:
    tag: str
    #: The field of domain.Devices.
    slot: str
    #: The field of the VMI.
    field: str
    key: Callable[[Any], str]
    #: Whether a device that we do not want (any more) was ours; others are libvirt's own.
    ours: Callable[[Any], bool] = lambda _device: True
    #: Fields in which our silence means "none". In all others it means that the choice is libvirt's.
    exact: frozenset[str] = frozenset()
    #: Fields that somebody else changes: libvirt, the guest, the cluster's configuration.
    ignored: frozenset[str] = frozenset()
    #: Which devices of the slot are of this kind.
    member: Callable[[Any], bool] = lambda _device: True


def _alias(device: Any) -> str:
    return device.alias or ""


def _is_named(device: Any) -> bool:
    return _alias(device).startswith(OUR_ALIAS)


def _alias_or(*fields: str) -> Callable[[Any], str]:
    def key(device: Any) -> str:
        if _is_named(device):
            return str(device.alias)
        return "-".join(str(getattr(device, field)) for field in fields)

    return key


def _by(*fields: str) -> Callable[[Any], str]:
    return lambda device: "-".join(str(getattr(device, field)) for field in fields)


def _is_card(device: Any) -> bool:
    """A network card that is a device of the node."""
    return _alias(device).startswith(CARD_ALIAS)


def _only(_device: Any) -> str:
    return "the only one"


DISK = Kind(
    "disk",
    "disks",
    f"{_DEVICES}.disks",
    _alias,
    ours=_is_named,
    exact=frozenset({"source_file", "source_dev", "serial", "boot_order", "iothread", "queues", "shareable"}),
    ignored=frozenset({"backing_store", "tray"}),
)
INTERFACE = Kind(
    "interface",
    "interfaces",
    f"{_DEVICES}.interfaces",
    _alias,
    ours=_is_named,
    exact=frozenset({"link", "boot_order", "queues", "mtu", "acpi_index"}),
)
CARD = Kind(
    "hostdev",
    "hostdevs",
    f"{_DEVICES}.interfaces",
    _alias,
    exact=frozenset({"boot_order", "acpi_index"}),
    member=_is_card,
)
MEMORY = Kind("memory", "memories", "spec.domain.memory.guest", _only, ignored=frozenset({"current", "base"}))
CONTROLLER = Kind("controller", "controllers", _DEVICES, _by("type", "index"), ours=lambda _device: False)

#: In the order in which they are plugged in: a disk may need the controller.
PLUGGABLE = (CONTROLLER, DISK, INTERFACE, CARD, MEMORY)
FIXED = (
    Kind("filesystem", "filesystems", f"{_DEVICES}.filesystems", _by("target")),
    Kind("serial", "serials", f"{_DEVICES}.autoattachSerialConsole", _by("target_port")),
    Kind("channel", "channels", _DEVICES, _by("target_name"), ignored=frozenset({"target_state"})),
    Kind("tpm", "tpms", f"{_DEVICES}.tpm", _only),
    Kind("input", "inputs", f"{_DEVICES}.inputs", _alias_or("type", "bus"), ours=lambda i: i.type == "tablet"),
    Kind("graphics", "graphics", f"{_DEVICES}.autoattachGraphicsDevice", _by("type")),
    Kind("sound", "sounds", f"{_DEVICES}.sound", _only),
    Kind("video", "videos", f"{_DEVICES}.video", _only),
    Kind(
        "hostdev",
        "hostdevs",
        f"{_DEVICES}.hostDevices",
        _alias_or("type", "source"),
        member=lambda device: not _is_card(device),
    ),
    Kind("redirdev", "redirdevs", f"{_DEVICES}.clientPassthrough", _by("source_path")),
    # libvirt 9.1 and later also show the one in the chipset of every q35 machine.
    Kind("watchdog", "watchdogs", f"{_DEVICES}.watchdog", _by("model"), ours=lambda dog: dog.model != "itco"),
    Kind("memballoon", "memballoon", f"{_DEVICES}.autoattachMemBalloon", _only, ignored=frozenset({"stats_period"})),
    Kind("rng", "rngs", f"{_DEVICES}.rng", _only),
    Kind("panic", "panics", f"{_DEVICES}.panicDevices", _by("model")),
    Kind("vsock", "vsock", f"{_DEVICES}.autoattachVSOCK", _only),
)
KINDS = (*PLUGGABLE, *FIXED)


def devices_of(domain: Domain, kind: Kind) -> dict[str, Any]:
    """By their keys. Devices that share one are counted through, as nothing tells them apart."""
    found = getattr(domain.devices, kind.slot)
    listed = found if isinstance(found, list) else [] if found is None else [found]
    result: dict[str, Any] = {}
    for device in filter(kind.member, listed):
        key, number = kind.key(device), 1
        while (unique := key if number == 1 else f"{key} #{number}") in result:
            number += 1
        result[unique] = device
    return result


def name_of(device: Any, key: str) -> str:
    """As the user calls it."""
    alias = getattr(device, "alias", None) or key
    return str(alias).removeprefix(OUR_ALIAS)


def on_root_complex(address: Address | None) -> bool:
    """Where no device can come or go while the machine runs."""
    return address is not None and address.type == "pci" and int(address.bus or "0", 16) == 0
