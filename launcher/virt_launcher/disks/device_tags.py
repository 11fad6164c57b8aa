"""Tags of devices: what the config drive tells the guest about each device that has one.

The form is OpenStack's, which guests know: kind, bus, address on it, and what else the device is known by. Addresses
are those of the definition that libvirt took, so this runs after it. Imported only where a device has a tag.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from virt_core.apis.vmi import VirtualMachineInstance
from virt_launcher.disks.cloud_init import Device

_PCI = Path("/sys/bus/pci/devices")
#: By the element of the definition.
_KINDS = {"interface": "nic", "disk": "disk", "hostdev": "hostdev"}
#: USB devices that belong together share a name, and all but the first have a number behind it.
_NUMBER = re.compile(r"(?<=^ua-usb-host-)(.+)-\d+$")

Tags = Mapping[tuple[str, str], str]


def devices(vmi: VirtualMachineInstance, xml: str, cells: Sequence[int] = (), pci: Path = _PCI) -> tuple[Device, ...]:
    """In the order of the definition. `cells` says in which memory cell of the node each vCPU is, if it is in one."""
    tags = _tags(vmi)
    root = ET.fromstring(xml)  # noqa: S314 - libvirt wrote it
    return tuple(
        {**_device(element, cells, pci), "tags": [tag]}
        for element in root.iterfind("devices/*")
        if element.tag in _KINDS and (tag := _tag(element, tags))
    )


def _tags(vmi: VirtualMachineInstance) -> Tags:
    """By the device's element and alias."""
    spec = vmi.spec.domain.devices
    found = {("disk", f"ua-{disk.name}"): disk.tag for disk in spec.disks}
    found |= {("interface", f"ua-{card.name}"): card.tag for card in spec.interfaces}
    found |= {("hostdev", f"ua-sriov-{card.name}"): card.tag for card in spec.interfaces}
    for kind, listed in (("hostdevice", spec.host_devices), ("gpu", spec.gpus)):
        for device in listed:
            found |= {("hostdev", f"ua-{prefix}-{device.name}"): device.tag for prefix in (kind, "usb-host")}
    return found


def _tag(element: ET.Element, tags: Tags) -> str:
    alias = _of(element, "alias", "name")
    found = tags.get((element.tag, alias))
    return tags.get((element.tag, _NUMBER.sub(r"\1", alias)), "") if found is None else found


def _device(element: ET.Element, cells: Sequence[int], pci: Path) -> Device:
    address = element.find("address")
    place = {} if address is None else dict(address.attrib)
    bus = place.get("type", "")
    device: Device = {
        "type": _KINDS[element.tag],
        # Only the target says what kind of drive it is.
        "bus": _of(element, "target", "bus") if bus == "drive" else bus,
        "address": _ADDRESSES[bus](place) if bus in _ADDRESSES else "",
    }
    if mac := _of(element, "mac", "address"):
        device["mac"] = mac
    if serial := element.findtext("serial", ""):
        device["serial"] = serial
    if element.tag == "hostdev" and element.get("type") == "pci" and cells:
        device |= _closeness(element.find("source/address"), cells, pci)
    return device


def _closeness(source: ET.Element | None, cells: Sequence[int], pci: Path) -> Device:
    """In which memory cell of the node the device is, and which vCPUs are in the same one."""
    if source is None:
        return {}
    try:
        cell = int((pci / _pci(source.attrib) / "numa_node").read_text())
    except (OSError, ValueError):
        return {}
    if cell < 0:
        return {}  # The node has only one, or does not know.
    return {"numaNode": cell, "alignedCPUs": [vcpu for vcpu, its in enumerate(cells) if its == cell]}


def _of(element: ET.Element, name: str, attribute: str) -> str:
    found = element.find(name)
    return "" if found is None else found.get(attribute, "")


def _pci(place: Mapping[str, str]) -> str:
    domain, bus, slot, function = _hex(place, "domain", "bus", "slot", "function")
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"


def _ccw(place: Mapping[str, str]) -> str:
    css, subchannel_set, number = _hex(place, "cssid", "ssid", "devno")
    return f"{css:x}.{subchannel_set:x}.{number:04x}"


def _hex(place: Mapping[str, str], *names: str) -> Iterator[int]:
    return (int(place.get(name, "0"), 16) for name in names)


_ADDRESSES: Mapping[str, Callable[[Mapping[str, str]], str]] = {
    "pci": _pci,
    "ccw": _ccw,
    "drive": lambda place: ":".join(place.get(name, "0") for name in ("controller", "bus", "target", "unit")),
    "usb": lambda place: ":".join(place.get(name, "0") for name in ("bus", "port")),
}
