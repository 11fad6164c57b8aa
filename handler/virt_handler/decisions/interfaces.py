"""The NICs of a VMI as its status shows them, from the domain, the network report and the guest agent. Pure."""

from __future__ import annotations

from virt_core.apis.interfaces import Interface
from virt_core.apis.netplan import NetReport, NetReportInterface
from virt_core.apis.nodedevices import cards
from virt_core.apis.podnetworks import (
    ABSENT,
    PRIMARY,
    SOURCE_AGENT,
    SOURCE_DOMAIN,
    SOURCE_MULTUS,
    joined,
    secondary,
    sources,
)
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import VirtualMachineInstanceNetworkInterface as StatusInterface
from virt_handler.decisions.limits import MAX_GUEST_ONLY_INTERFACES
from virt_handler.decisions.netplans import queues
from virt_protos.launcher.v1 import launcher_pb2 as pb


def merged(vmi: VirtualMachineInstance, domain: pb.Domain, report: NetReport | None) -> list[StatusInterface]:
    """First the Pod network's NIC, then the others of the spec in their order, then what only the guest knows of, up to
    a limit."""
    reports = {entry.name: entry for entry in report.interfaces} if report is not None else {}
    if report is None:
        # A report that got lost does not make an address wrong that we told before.
        reports = {entry.name: _from_status(entry) for entry in vmi.status.interfaces if entry.name}
    reports = _unwired(vmi) | reports
    by_name = {nic.name: nic for nic in domain.interfaces if nic.name} | _seen_by_guest(vmi, domain)
    others = secondary(vmi.spec)
    ours = [
        _of_spec(nic.name, by_name.get(nic.name), reports.get(nic.name), known_from, queues(vmi, nic))
        for nic in sorted(vmi.spec.domain.devices.interfaces, key=lambda nic: nic.name in others)
        if (known_from := _sources(vmi, nic, by_name, reports))
    ]
    macs = {entry.mac for entry in ours if entry.mac}
    guest_only = [nic for nic in domain.interfaces if _only_in_guest(nic, macs)]
    return ours + [_of_guest(nic) for nic in guest_only[:MAX_GUEST_ONLY_INTERFACES]]


def _unwired(vmi: VirtualMachineInstance) -> dict[str, NetReportInterface]:
    """Of devices of the node nobody reports; what virt-controller found out about them stays."""
    named = {nic.name for nic in cards(vmi.spec)}
    return {
        entry.name: NetReportInterface(name=entry.name, mac=entry.mac, pod_interface=entry.pod_interface_name)
        for entry in vmi.status.interfaces
        if entry.name in named
    }


def _seen_by_guest(vmi: VirtualMachineInstance, domain: pb.Domain) -> dict[str, pb.GuestInterface]:
    """They are no interfaces of the domain, so they are known again by their MAC, if they were given one."""
    wanted = {nic.mac_address.lower().replace("-", ":"): nic.name for nic in cards(vmi.spec) if nic.mac_address}
    seen = (nic for nic in domain.interfaces if not nic.name and nic.from_agent)
    return {wanted[nic.mac.lower()]: nic for nic in seen if nic.mac.lower() in wanted}


def _sources(
    vmi: VirtualMachineInstance,
    nic: Interface,
    by_name: dict[str, pb.GuestInterface],
    reports: dict[str, NetReportInterface],
) -> list[str]:
    """Where the NIC is known from. One that goes counts as the machine's until its wiring is gone too: by that
    virt-controller sees when the Pod may lose it. That the Pod has it says virt-controller."""
    told = next((sources(entry.info_source) for entry in vmi.status.interfaces if entry.name == nic.name), [])
    found = [SOURCE_MULTUS] if SOURCE_MULTUS in told else []
    is_ours = nic.name in by_name or (nic.state == ABSENT and nic.name in reports)
    if is_ours or (nic.state != ABSENT and nic.name not in secondary(vmi.spec)):
        found.append(SOURCE_DOMAIN)
    if nic.name in by_name and by_name[nic.name].from_agent:
        found.append(SOURCE_AGENT)
    return found


def _from_status(told: StatusInterface) -> NetReportInterface:
    return NetReportInterface(
        name=told.name, mac=told.mac, pod_ips=told.ip_addresses, pod_interface=told.pod_interface_name
    )


def _only_in_guest(nic: pb.GuestInterface, macs: set[str]) -> bool:
    return not nic.name and nic.from_agent and bool(nic.mac) and nic.mac.lower() not in macs


def _of_spec(
    name: str,
    nic: pb.GuestInterface | None,
    report: NetReportInterface | None,
    known_from: list[str],
    queue_count: int,
) -> StatusInterface:
    nic = nic or pb.GuestInterface()
    report = report or NetReportInterface(name=name)
    # Behind masquerade the Pod's address is the one that others reach the guest at; with a bridge they are the same.
    addresses = [_bare(ip) for ip in report.pod_ips] or [_bare(ip) for ip in nic.ip_addresses]
    return StatusInterface(
        name=name,
        mac=(nic.mac or report.mac).lower(),
        ip_address=addresses[0] if addresses else "",
        ip_addresses=addresses,
        pod_interface_name=report.pod_interface or PRIMARY,
        interface_name=nic.guest_name,
        info_source=joined(*known_from),
        queue_count=queue_count,
        link_state=nic.link_state or "up",
    )


def _of_guest(nic: pb.GuestInterface) -> StatusInterface:
    addresses = [_bare(ip) for ip in nic.ip_addresses]
    return StatusInterface(
        mac=nic.mac.lower(),
        ip_address=addresses[0] if addresses else "",
        ip_addresses=addresses,
        interface_name=nic.guest_name,
        info_source=SOURCE_AGENT,
    )


def _bare(address: str) -> str:
    return address.partition("/")[0]
