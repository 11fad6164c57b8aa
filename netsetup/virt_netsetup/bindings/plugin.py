"""Bindings of plugins whose link is not ours: a TAP that the CNI plugin made, or what a sidecar puts into the domain.

Nothing is changed, and no rule of ours is put on it: whoever made the link answers for what passes over it.
"""

from __future__ import annotations

from virt_core.apis.netplan import NetPlan, NetPlanInterface, NetReportInterface
from virt_netsetup.bindings.wiring import Wiring
from virt_netsetup.model import NetsetupError, PodNic, Record
from virt_netsetup.steps import Step


def tap(plan: NetPlan, interface: NetPlanInterface, nic: PodNic, position: int) -> Wiring:  # noqa: ARG001
    """The Pod's interface itself, where that is one, else the TAP that goes by its name."""
    if not nic.given_tap:
        words = f"the CNI plugin of the binding made no TAP: neither is {nic.name} one, nor is there a {nic.tap}"
        raise NetsetupError("binding", words, critical=True)
    return Wiring([], _report(interface, nic, nic.given_tap))


def sidecar(plan: NetPlan, interface: NetPlanInterface, nic: PodNic, position: int) -> Wiring:  # noqa: ARG001
    return Wiring([], _report(interface, nic, ""))


def _report(interface: NetPlanInterface, nic: PodNic, name: str) -> NetReportInterface:
    addresses = [address.ip for version in (4, 6) for address in nic.global_addresses(version)]
    return NetReportInterface(
        name=interface.name,
        tap=name,
        mac=interface.mac.lower() or nic.mac,
        mtu=nic.mtu,
        pod_interface=nic.name,
        pod_ips=addresses,
        guest_ips=list(addresses),
    )


def teardown(record: Record) -> list[Step]:  # noqa: ARG001
    return []
