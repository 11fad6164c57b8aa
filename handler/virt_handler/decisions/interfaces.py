"""The NICs of a VMI as its status shows them, from the domain, the network report and the guest agent. Pure."""

from __future__ import annotations

from virt_core.apis.netplan import NetReport, NetReportInterface
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import VirtualMachineInstanceNetworkInterface as StatusInterface
from virt_handler.decisions.limits import MAX_GUEST_ONLY_INTERFACES
from virt_handler.decisions.netplans import queues, wanted_interfaces
from virt_protos.launcher.v1 import launcher_pb2 as pb

DOMAIN = "domain"
GUEST_AGENT = "guest-agent"


def merged(vmi: VirtualMachineInstance, domain: pb.Domain, report: NetReport | None) -> list[StatusInterface]:
    """First the NICs of the spec in their order, then what only the guest knows of, up to a limit."""
    reports = {entry.name: entry for entry in report.interfaces} if report is not None else {}
    if report is None:
        # A report that got lost does not make an address wrong that we told before.
        reports = {entry.name: _from_status(entry) for entry in vmi.status.interfaces if entry.name}
    by_name = {nic.name: nic for nic in domain.interfaces if nic.name}
    ours = [
        _of_spec(nic.name, by_name.get(nic.name), reports.get(nic.name), queues(vmi, nic))
        for nic in wanted_interfaces(vmi)
    ]
    macs = {entry.mac for entry in ours if entry.mac}
    guest_only = [nic for nic in domain.interfaces if _only_in_guest(nic, macs)]
    return ours + [_of_guest(nic) for nic in guest_only[:MAX_GUEST_ONLY_INTERFACES]]


def _from_status(told: StatusInterface) -> NetReportInterface:
    return NetReportInterface(
        name=told.name, mac=told.mac, pod_ips=told.ip_addresses, pod_interface=told.pod_interface_name
    )


def _only_in_guest(nic: pb.GuestInterface, macs: set[str]) -> bool:
    return not nic.name and nic.from_agent and bool(nic.mac) and nic.mac.lower() not in macs


def _of_spec(
    name: str, nic: pb.GuestInterface | None, report: NetReportInterface | None, queue_count: int
) -> StatusInterface:
    nic = nic or pb.GuestInterface()
    report = report or NetReportInterface(name=name)
    # Behind masquerade the Pod's address is the one that others reach the guest at; with a bridge they are the same.
    addresses = [_bare(ip) for ip in report.pod_ips] or [_bare(ip) for ip in nic.ip_addresses]
    sources = [DOMAIN, GUEST_AGENT] if nic.from_agent else [DOMAIN]
    return StatusInterface(
        name=name,
        mac=(nic.mac or report.mac).lower(),
        ip_address=addresses[0] if addresses else "",
        ip_addresses=addresses,
        pod_interface_name=report.pod_interface or "eth0",
        interface_name=nic.guest_name,
        info_source=", ".join(sources),
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
        info_source=GUEST_AGENT,
    )


def _bare(address: str) -> str:
    return address.partition("/")[0]
