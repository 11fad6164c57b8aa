"""The machine as the other side is to have it: the same, but for what is different there. Pure.

Paths and names of TAPs are the same in every launcher, and so are the sockets. The CPUs that a machine has to itself
are others, and so may be the number under which the Pod has the image of a container disk. A disk that goes to another
claim may be a file here and a block device there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from xml.etree import ElementTree

from virt_core.apis import names
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.volumemoves import goes_to_block, moving
from virt_launcher.domain.domain import Domain
from virt_launcher.domain.machine import CpuTune
from virt_launcher.settings import Paths

_PINS = ("vcpupin", "emulatorpin", "iothreadpin")
ElementTree.register_namespace("qemu", "http://libvirt.org/schemas/domain/qemu/1.0")


@dataclass(frozen=True, slots=True)
class Place:
    """Where the bytes of a disk are."""

    path: str
    block: bool
    #: Of a block device: the bytes that the disk has. QEMU copies a disk only onto one of the same size.
    size: int = 0


def rewritten(xml: str, tune: CpuTune | None, images: Mapping[str, str], places: Mapping[str, Place]) -> str:
    """`images`: the files below container disks, by the disks' aliases; `places`: disks of another kind there."""
    if tune is None and not images and not places:
        return xml
    root = ElementTree.fromstring(xml)  # noqa: S314 - libvirt's own
    if tune is not None:
        _pin(root, tune)
    for disk in root.iterfind("./devices/disk"):
        alias, below = disk.find("alias"), disk.find("./backingStore/source")
        if alias is not None and below is not None and alias.get("name") in images:
            below.set("file", images[alias.get("name", "")])
        if alias is not None and alias.get("name") in places:
            _put(disk, places[alias.get("name", "")])
    return ElementTree.tostring(root, encoding="unicode")


def _put(disk: ElementTree.Element, place: Place) -> None:
    old, driver = disk.find("source"), disk.find("driver")
    at = list(disk).index(old) if old is not None else 0
    if old is not None:
        disk.remove(old)
    disk.set("type", "block" if place.block else "file")
    source = ElementTree.Element("source", {"dev" if place.block else "file": place.path})
    disk.insert(at, source)
    if place.size:
        slices = ElementTree.SubElement(source, "slices")
        ElementTree.SubElement(slices, "slice", type="storage", offset="0", size=str(place.size))
    if driver is not None and place.block and driver.get("cache") == "none":
        driver.set("io", driver.get("io", "native"))  # As of one that is started there.


def places_there(vmi: VirtualMachineInstance, domain: Domain, paths: Paths) -> dict[str, Place]:
    """Disks that go to a block device, or come from one, by their aliases. Of a file that stays one the path stays."""
    found, kinds = {}, {disk.alias: disk.type for disk in domain.devices.disks}
    sizes = {status.name: status.size for status in vmi.status.volume_status}
    for name, info in moving(vmi.status).items():
        block, alias = goes_to_block(info), f"ua-{name}"
        if alias in kinds and (block or kinds[alias] == "block"):
            file = paths.disk_directory(name) / names.FILE_DISK
            path = paths.devices / name if block else file
            found[alias] = Place(str(path), block, sizes.get(name, 0) if block else 0)
    return found


def _pin(root: ElementTree.Element, tune: CpuTune) -> None:
    found = root.find("cputune")
    place = ElementTree.SubElement(root, "cputune") if found is None else found
    for each in [each for each in place if each.tag in _PINS]:
        place.remove(each)
    for vcpu in tune.vcpu_pins:
        ElementTree.SubElement(place, "vcpupin", vcpu=str(vcpu.vcpu), cpuset=vcpu.cpuset or "")
    if tune.emulator_cpuset:
        ElementTree.SubElement(place, "emulatorpin", cpuset=tune.emulator_cpuset)
    for thread in tune.io_thread_pins:
        ElementTree.SubElement(place, "iothreadpin", iothread=str(thread.iothread), cpuset=thread.cpuset or "")


def images_there(vmi: VirtualMachineInstance, domain: Domain, images: str) -> dict[str, str]:
    """Those that another Pod has under another number than this one: volumes may have come or gone since."""
    files = {
        disk.alias or "": disk.backing_store.source_file
        for disk in domain.devices.disks
        if disk.backing_store is not None and disk.backing_store.source_file
    }
    found = {}
    for index, volume in enumerate(vmi.spec.volumes):
        alias = f"ua-{volume.name}"
        if volume.container_disk is None or not files.get(alias, "").startswith(f"{images}/"):
            continue
        _, _, inside = files[alias].removeprefix(f"{images}/").partition("/")
        there = f"{images}/disk_{index}/{inside}"
        if there != files[alias]:
            found[alias] = there
    return found
