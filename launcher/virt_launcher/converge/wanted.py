"""The machine that a VMI asks for while one runs: converted as at the first start, with the names that devices have.

Whatever is in the machine keeps its alias, its target, its address and its IO thread, wherever the manifest now lists
it; a new device gets what is free. Sources and TAP devices of what is there are read from it, not made again: a
volume's place in the list may have changed, and the machine holds what it was given.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from msgspec.structs import replace as changed

from virt_core.apis.devices import Devices as DevicesSpec
from virt_core.apis.vmi import VirtualMachineInstance
from virt_launcher.converge.kinds import DISK, KINDS, OUR_ALIAS, devices_of
from virt_launcher.converge.places import give_ports
from virt_launcher.convert.context import Attachment, Context
from virt_launcher.convert.converter import convert
from virt_launcher.convert.disks import letters, prefix_of
from virt_launcher.disks.qcow2 import Backing
from virt_launcher.disks.sources import BlockSizes, DiskSource
from virt_launcher.domain.devices import Address, Controller
from virt_launcher.domain.disks import BackingStore, Disk, IOThreadRef
from virt_launcher.domain.domain import Domain
from virt_launcher.domain.machine import Amount


def wanted_domain(context: Context, live: Domain) -> Domain:
    """Raises InvalidVMIError."""
    known = {nic.alias.removeprefix(OUR_ALIAS): nic for nic in live.devices.interfaces if nic.alias}
    taps = {
        name: Attachment(nic.target or "", nic.mac or "", nic.mtu or 0, nic.queues or 0) for name, nic in known.items()
    }
    volumes = {volume.name for volume in context.vmi.spec.volumes}
    held = {name: source for name, source in live_sources(live).items() if name in volumes}
    attachments = {**context.attachments, **taps}
    context = replace(
        context,
        vmi=_wired(context.vmi, attachments),
        kvm=live.type == "kvm",
        sources={**context.sources, **held},
        attachments=attachments,
        vhost_vsock=context.vhost_vsock or live.devices.vsock is not None,
    )
    domain = convert(context)
    _keep_memory(domain, live)
    keep_identities(domain, live, context.vmi.spec.domain.devices)
    return domain


def _keep_memory(domain: Domain, live: Domain) -> None:
    """A guest that shall give back all that it got keeps the empty device: it may want some again."""
    if not domain.devices.memories:
        none = [replace(device, requested=Amount(unit="KiB", value=0)) for device in live.devices.memories]
        domain.devices.memories += none


def _wired(vmi: VirtualMachineInstance, attachments: Mapping[str, Attachment]) -> VirtualMachineInstance:
    """Leaves out network cards for which nobody has made a TAP device yet; we are asked again when there is one."""
    devices = vmi.spec.domain.devices
    cards = [card for card in devices.interfaces if card.name in attachments]
    if len(cards) == len(devices.interfaces):
        return vmi
    devices = changed(devices, interfaces=cards)
    return changed(vmi, spec=changed(vmi.spec, domain=changed(vmi.spec.domain, devices=devices)))


def live_sources(live: Domain) -> dict[str, DiskSource]:
    """What the disks of the machine stand on, by volume."""
    disks = [disk for disk in live.devices.disks if (disk.alias or "").startswith(OUR_ALIAS)]
    return {
        (disk.alias or "").removeprefix(OUR_ALIAS): _source(disk, path)
        for disk in disks
        if (path := disk.source_dev or disk.source_file)
    }


def _source(disk: Disk, path: str) -> DiskSource:
    return DiskSource(
        path,
        disk.driver_type or "raw",
        _backing(disk.backing_store),
        direct_io=disk.cache in ("none", "directsync"),
        block=disk.type == "block",
        read_only=disk.readonly,
        preallocated=disk.discard is None,
        blocks=_blocks(disk),
    )


def _blocks(disk: Disk) -> BlockSizes | None:
    if disk.logical_block_size is None or disk.physical_block_size is None:
        return None
    return BlockSizes(disk.logical_block_size, disk.physical_block_size, disk.discard_granularity or 0)


def _backing(below: BackingStore | None) -> Backing | None:
    if below is None or below.type is None:
        return None
    return Backing(below.source_dev or below.source_file or "", below.format or "raw", block=below.type == "block")


def keep_identities(domain: Domain, live: Domain, spec: DevicesSpec) -> None:
    """Gives each device of `domain` the identity that it has in `live`, and new ones what is free there."""
    new: list[Any] = []
    for kind in KINDS:
        have = devices_of(live, kind)
        for key, device in devices_of(domain, kind).items():
            if key in have:
                _keep(device, have[key])
            else:
                new.append(device)
    placed = _placed_by_the_user(spec)
    give_ports([device for device in new if (getattr(device, "alias", None) or "") not in placed], live)
    disks = [device for device in new if isinstance(device, Disk)]
    _name_disks(disks, live)
    _give_threads(domain, disks, live, {f"{OUR_ALIAS}{disk.name}" for disk in spec.disks if disk.dedicated_io_thread})


def _keep(device: Any, live: Any) -> None:
    for name in ("alias", "address", "target"):
        if hasattr(device, name):
            setattr(device, name, getattr(live, name))
    if isinstance(device, Disk):
        device.iothread, device.iothreads = live.iothread, live.iothreads
        # As many as there were processors at the start.
        device.queues = device.queues and live.queues
    elif isinstance(device, Controller) and device.iothread and live.iothread:
        device.iothread, device.queues = live.iothread, live.queues


def _placed_by_the_user(spec: DevicesSpec) -> set[str]:
    disks = {disk.name for disk in spec.disks if disk.disk is not None and disk.disk.pci_address}
    return {f"{OUR_ALIAS}{name}" for name in disks | {nic.name for nic in spec.interfaces if nic.pci_address}}


def _name_disks(disks: list[Disk], live: Domain) -> None:
    """A name is free when no disk of the machine has it, also none that is about to go."""
    taken = {disk.target for disk in live.devices.disks}
    for disk in disks:
        prefix = prefix_of(disk)
        number = next(n for n in itertools.count() if f"{prefix}{letters(n)}" not in taken)
        disk.target = f"{prefix}{letters(number)}"
        taken.add(disk.target)
        if disk.bus == "scsi":
            disk.address = Address(type="drive", controller=0, bus="0", target=0, unit=number)


def _give_threads(domain: Domain, disks: list[Disk], live: Domain, dedicated: set[str]) -> None:
    """A new disk joins the common thread that serves the fewest, if there is one. Own ones come after all there are."""
    count = live.iothreads or 0
    there = devices_of(live, DISK)
    users = Counter(disk.iothread for disk in there.values() if disk.iothread)
    own = {disk.iothread for alias, disk in there.items() if alias in dedicated}
    own |= {controller.iothread for controller in live.devices.controllers}
    common = [number for number in range(1, count + 1) if number not in own]
    for disk in disks:
        if disk.iothread is None and not disk.iothreads:
            continue
        if disk.alias in dedicated:
            count += 1
            disk.iothread = count
        elif disk.iothreads:
            disk.iothreads = [IOThreadRef(id=number) for number in common]
        elif live.iothreads:
            disk.iothread = min(common, key=lambda number: users[number], default=None)
            users[disk.iothread] += 1
    if live.iothreads:
        domain.iothreads = count
