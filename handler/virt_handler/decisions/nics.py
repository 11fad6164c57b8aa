"""Which NICs of a running machine are to be wired, and which are on their way. Pure.

A NIC that comes is wired when the Pod has its interface, and the launcher hears of it when it is wired. One that goes
stays wired until the machine has let go of it; then its wiring is taken down, and only then the Pod may lose it.
"""

from __future__ import annotations

from virt_core.apis.bindings import BRIDGE, binding_of
from virt_core.apis.devices import Interface
from virt_core.apis.netplan import NetReport
from virt_core.apis.podnetworks import ABSENT, SOURCE_DOMAIN, SOURCE_MULTUS, secondary, sources
from virt_core.apis.vmi import VirtualMachineInstance
from virt_handler.decisions.domains import is_alive
from virt_handler.decisions.netplans import is_wired, wanted_interfaces
from virt_protos.launcher.v1 import launcher_pb2 as pb


def due(vmi: VirtualMachineInstance, domain: pb.Domain | None) -> list[Interface]:
    """The NICs that are to be wired by now. At the start all: whoever waits for one learns by that what is missing."""
    if domain is None or not is_alive(domain):
        return wanted_interfaces(vmi)
    held = {nic.name for nic in domain.interfaces if nic.name}
    there = {nic.name for nic in vmi.status.interfaces if SOURCE_MULTUS in sources(nic.info_source)}
    others = secondary(vmi.spec)
    return [
        nic
        for nic in vmi.spec.domain.devices.interfaces
        if is_wired(nic)
        and (nic.name in held or (nic.state != ABSENT and (nic.name not in others or nic.name in there)))
    ]


def arriving(vmi: VirtualMachineInstance) -> list[Interface]:
    """The NICs that a machine brings along which moves in: those that it has, also one that is just going."""
    held = {nic.name for nic in vmi.status.interfaces if SOURCE_DOMAIN in sources(nic.info_source)}
    others = secondary(vmi.spec)
    return [
        nic
        for nic in vmi.spec.domain.devices.interfaces
        if is_wired(nic) and (nic.name in held or (nic.state != ABSENT and nic.name not in others))
    ]


def changed_address(vmi: VirtualMachineInstance, report: NetReport | None) -> str:
    """A guest on a bridge has the address that its network gave to its Pod, and goes on using it where it moves to.
    Why it cannot; empty: it can. On the Pod network somebody has allowed it in so many words."""
    known = {nic.name: nic.ip_addresses for nic in vmi.status.interfaces}
    others = secondary(vmi.spec)
    bridged = {nic.name for nic in vmi.spec.domain.devices.interfaces if binding_of(nic) == BRIDGE}
    for entry in report.interfaces if report is not None else []:
        given = {ip.partition("/")[0] for ip in entry.pod_ips}
        had = {ip.partition("/")[0] for ip in known.get(entry.name, [])}
        if entry.name in others and entry.name in bridged and given and not given <= had:
            return (
                f'network "{entry.name}" gave the target the address {", ".join(sorted(given))}, '
                f"but the guest has {', '.join(sorted(had)) or 'none'}"
            )
    return ""


def differs(vmi: VirtualMachineInstance, domain: pb.Domain, report: NetReport | None) -> bool:
    """Whether the wiring of a running machine is not what is due."""
    if report is None:
        return False
    return {nic.name for nic in due(vmi, domain)} != {entry.name for entry in report.interfaces}


def on_their_way(vmi: VirtualMachineInstance, report: NetReport | None) -> set[str]:
    """The NICs that the launcher cannot use yet."""
    if report is None:
        return set()
    wired = {entry.name for entry in report.interfaces}
    return {nic.name for nic in wanted_interfaces(vmi) if nic.name not in wired and nic.name in secondary(vmi.spec)}
