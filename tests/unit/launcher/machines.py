"""A running machine as libvirt shows it, and one that takes changes: models for the tests of convergence."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from tests.unit.launcher.cases import Case, context_of
from virt_launcher.converge.changes import Act, Change, DeviceChange, MoreProcessors
from virt_launcher.converge.kinds import OUR_ALIAS, PLUGGABLE
from virt_launcher.converge.wanted import wanted_domain
from virt_launcher.convert.converter import convert
from virt_launcher.domain.devices import Address, Controller, Input, MemoryDevice
from virt_launcher.domain.domain import Domain, from_xml, to_xml

_SLOTS = {kind.tag: kind.slot for kind in PLUGGABLE}


def started(case: Case) -> Domain:
    """As libvirt would show it: with aliases, addresses and devices of its own."""
    live = from_xml(to_xml(convert(context_of(case))))
    live.os.machine = {"q35": "pc-q35-7.2"}.get(live.os.machine or "", f"{live.os.machine}-7.2")
    if live.memory is not None:
        live.memory.unit, live.memory.value = "KiB", (live.memory.value or 0) // 1024
        for device in live.devices.memories:
            _count_memory(live, device)
    devices = live.devices
    devices.inputs += [
        Input(type="mouse", bus="ps2", alias="input0"),
        Input(type="keyboard", bus="ps2", alias="input1"),
    ]
    devices.controllers += [Controller(type="sata", index=0), Controller(type="pci", index=0, model="pcie-root")]
    for number, device in enumerate(i for i in devices.inputs if i.alias is None):
        device.alias = f"input{number}"
    for channel in devices.channels:
        channel.target_state = "connected"
    return live


def _count_memory(live: Domain, device: MemoryDevice) -> None:
    """With all that it could bring."""
    assert live.memory is not None
    assert device.size is not None
    live.memory.value = (live.memory.value or 0) + (device.size.value or 0)


def wanted(case: Case, live: Domain) -> Domain:
    return wanted_domain(context_of(case), live)


def changed(live: Domain, changes: Iterable[Change]) -> Domain:
    """What libvirt makes of the changes: a device that comes is put where it says."""
    result = copy.deepcopy(live)
    for change in changes:
        if isinstance(change, DeviceChange):
            _change(getattr(result.devices, _SLOTS[change.tag]), change)
            if change.act is Act.ATTACH and isinstance(change.device, MemoryDevice):
                _count_memory(result, change.device)
        elif isinstance(change, MoreProcessors) and result.vcpu is not None:
            result.vcpu.current = change.count
    return result


def _change(listed: list[Any], change: DeviceChange) -> None:
    alias = getattr(change.device, "alias", None)
    known = [device for device in listed if alias is not None and device.alias == alias]
    if change.act is Act.ATTACH:
        assert not known
        assert change.device.address is not None
        assert change.device.address not in [device.address for device in listed]
        listed.append(copy.deepcopy(change.device))
        return
    assert len(known) == 1, change
    index = listed.index(known[0])
    listed[index : index + 1] = [copy.deepcopy(change.device)] if change.act is Act.UPDATE else []


def named(domain: Domain, slot: str) -> dict[str, tuple[str | None, Address | None]]:
    """Target and address of each device that we named."""
    devices = getattr(domain.devices, slot)
    return {d.alias.removeprefix(OUR_ALIAS): (d.target, d.address) for d in devices}
