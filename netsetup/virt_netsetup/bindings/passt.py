"""passt: the guest's traffic goes by sockets of a program in the launcher's container, which has no rights of its own.

The Pod's NIC stays as it is, and there is no link for the guest. All that is needed is what an ordinary user may not do
by himself: take ports below 1024, and send echo requests.
"""

from __future__ import annotations

from virt_core.apis.netplan import NetPlan, NetPlanInterface, NetReportInterface
from virt_netsetup.bindings.bridge import gateway
from virt_netsetup.bindings.wiring import Wiring, private_mac
from virt_netsetup.model import NetsetupError, PodNic, Record
from virt_netsetup.steps import Step, Sysctl

_PORTS, _ECHO = "net/ipv4/ip_unprivileged_port_start", "net/ipv4/ping_group_range"


def setup(plan: NetPlan, interface: NetPlanInterface, nic: PodNic, position: int) -> Wiring:  # noqa: ARG001
    if not nic.global_addresses(4) and not nic.global_addresses(6):
        raise NetsetupError("podInterface", f"{nic.name} has no global address, so there is none for the guest")
    group = plan.launcher_uid  # Its user and its group have the same number, in whatever namespace.
    steps: list[Step] = [Sysctl(_PORTS, "0"), Sysctl(_ECHO, f"{group}\t{group}")]
    return Wiring(steps, _report(plan, interface, nic))


def _report(plan: NetPlan, interface: NetPlanInterface, nic: PodNic) -> NetReportInterface:
    addresses = [address.ip for version in (4, 6) for address in nic.global_addresses(version)]
    return NetReportInterface(
        name=interface.name,
        mac=interface.mac.lower() or private_mac(plan.vmi_uid, interface.name),
        mtu=nic.mtu,
        pod_interface=nic.name,
        pod_ips=addresses,
        guest_ips=list(addresses),
        gateway=gateway(nic),
    )


def teardown(record: Record) -> list[Step]:
    return [Sysctl(name, value) for name, value in record.sysctls.items()]
