"""Network cards that come and go while the machine runs, as the VM's template says. Pure.

A card on a secondary network by a bridge is plugged in when the template gets it, and pulled when its state becomes
`absent`. Once the machine has let go of it and the Pod too, it is taken out of the VMI and of the template.
"""

from __future__ import annotations

from typing import Any

from virt_core.apis.base import to_plain
from virt_core.apis.eviction import is_movable
from virt_core.apis.podnetworks import ABSENT, pluggable, secondary
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec
from virt_core.kube.patch import op, pointer

Operations = list[dict[str, Any]]
_TEMPLATE = ("spec", "template", "spec")


def operations(wanted: VirtualMachineInstanceSpec, vmi: VirtualMachineInstance) -> Operations:
    """What the VMI lacks: new cards with their networks, and the word that a card is to go."""
    found = [*_states(wanted, vmi), *_other_networks(wanted, vmi)]
    new = [nic for name, nic in pluggable(wanted).items() if name in _new(wanted, vmi)]
    if new:
        names = {nic.name for nic in new}
        nics = [*vmi.spec.domain.devices.interfaces, *new]
        networks = [*vmi.spec.networks, *(n for n in wanted.networks if n.name in names)]
        found += [
            op.add("/spec/domain/devices/interfaces", to_plain(nics)),
            op.add("/spec/networks", to_plain(networks)),
        ]
    return found


def _states(wanted: VirtualMachineInstanceSpec, vmi: VirtualMachineInstance) -> Operations:
    going = {name for name, nic in pluggable(wanted).items() if nic.state == ABSENT}
    return [
        op.add(pointer("spec", "domain", "devices", "interfaces", str(index), "state"), ABSENT)
        for index, nic in enumerate(vmi.spec.domain.devices.interfaces)
        if nic.name in going and nic.state != ABSENT
    ]


def _other_networks(wanted: VirtualMachineInstanceSpec, vmi: VirtualMachineInstance) -> Operations:
    """A card whose network is another one by now: the machine gets it by a move, for its Pod has the old one."""
    nets, names = secondary(wanted), _replugged(wanted, vmi)
    return [
        op.add(pointer("spec", "networks", str(index), "multus"), to_plain(nets[network.name].multus))
        for index, network in enumerate(vmi.spec.networks)
        if network.name in names
    ]


def _replugged(wanted: VirtualMachineInstanceSpec, vmi: VirtualMachineInstance) -> set[str]:
    """Cards that stay as they are and go to another network. A machine that cannot move keeps the old one."""
    ours, theirs, nets, running = pluggable(wanted), pluggable(vmi.spec), secondary(wanted), secondary(vmi.spec)
    if not is_movable(vmi):
        return set()
    return {
        name
        for name in ours.keys() & theirs.keys()
        if nets[name] != running[name] and ABSENT not in (ours[name].state, theirs[name].state)
        if _but_state(ours[name]) == _but_state(theirs[name])
    }


def _new(wanted: VirtualMachineInstanceSpec, vmi: VirtualMachineInstance) -> set[str]:
    have = {nic.name for nic in vmi.spec.domain.devices.interfaces} | {n.name for n in vmi.spec.networks}
    return {name for name, nic in pluggable(wanted).items() if name not in have and nic.state != ABSENT}


def unfollowed(wanted: VirtualMachineInstanceSpec, vmi: VirtualMachineInstance) -> list[str]:
    """Cards that the running machine keeps although the template has dropped them: only `absent` pulls one."""
    named = {nic.name for nic in wanted.domain.devices.interfaces}
    return [name for name in pluggable(vmi.spec) if name not in named]


def without_followed(plain: dict[str, Any], wanted: VirtualMachineInstanceSpec, vmi: VirtualMachineInstance) -> None:
    """Takes out of a spec the cards that `operations` takes care of, or took care of before."""
    ours, theirs = pluggable(wanted), pluggable(vmi.spec)
    nets, running = secondary(wanted), secondary(vmi.spec)
    followed = _new(wanted, vmi) | {
        name
        for name in ours.keys() & theirs.keys()
        if nets[name] == running[name] and _but_state(ours[name]) == _but_state(theirs[name])
    }
    followed |= {name for name, nic in ours.items() if nic.state == ABSENT} | _replugged(wanted, vmi)
    kept = {nic.name for spec in (wanted, vmi.spec) for nic in spec.domain.devices.interfaces}
    devices = (plain.get("domain") or {}).get("devices") or {}
    gone = {nic["name"] for nic in devices.get("interfaces") or [] if _was_pluggable(plain, nic)} - kept
    for owner, key in ((devices, "interfaces"), (plain, "networks")):
        if key in owner:
            owner[key] = [each for each in owner[key] if each["name"] not in followed | gone]


def _was_pluggable(plain: dict[str, Any], nic: dict[str, Any]) -> bool:
    network: dict[str, Any] = next((n for n in plain.get("networks") or [] if n["name"] == nic["name"]), {})
    return "bridge" in nic and "multus" in network and not network["multus"].get("default")


def _but_state(nic: Any) -> Any:
    return {key: value for key, value in to_plain(nic).items() if key != "state"}


def pruned_vmi(vmi: VirtualMachineInstance) -> Operations:
    """Takes out of a running VMI the cards that are gone for good."""
    return _pruned(vmi.spec, _gone(vmi.spec, vmi), ("spec",))


def pruned_template(vm: VirtualMachine, vmi: VirtualMachineInstance | None) -> Operations:
    """Likewise out of the VM, also when it does not run."""
    if vm.spec.template is None:
        return []
    return _pruned(vm.spec.template.spec, _gone(vm.spec.template.spec, vmi), _TEMPLATE)


def _gone(spec: VirtualMachineInstanceSpec, vmi: VirtualMachineInstance | None) -> set[str]:
    """To be absent, and the machine was told so and nobody knows of it any more."""
    held: set[str] = set()
    if vmi is not None:
        held = {nic.name for nic in vmi.status.interfaces if nic.name}
        held |= {nic.name for nic in vmi.spec.domain.devices.interfaces if nic.state != ABSENT}
    return {name for name, nic in pluggable(spec).items() if nic.state == ABSENT} - held


def _pruned(spec: VirtualMachineInstanceSpec, gone: set[str], path: tuple[str, ...]) -> Operations:
    if not gone:
        return []
    nics = [nic for nic in spec.domain.devices.interfaces if nic.name not in gone]
    networks = [network for network in spec.networks if network.name not in gone]
    return [
        op.add(pointer(*path, "domain", "devices", "interfaces"), to_plain(nics)),
        op.add(pointer(*path, "networks"), to_plain(networks)),
    ]
