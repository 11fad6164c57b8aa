"""The probes of a VMI: which there are, and which of them ask the guest itself rather than its network. Pure."""

from __future__ import annotations

from virt_core.apis.vmi import Probe, VirtualMachineInstance


def by_agent(probe: Probe | None) -> bool:
    """Whether it needs the guest agent."""
    return probe is not None and (probe.exec_ is not None or probe.guest_agent_ping is not None)


def asks_guest(vmi: VirtualMachineInstance) -> bool:
    return by_agent(vmi.spec.readiness_probe) or by_agent(vmi.spec.liveness_probe)


def action(probe: Probe) -> str:
    """What it does, by the name of its field."""
    names = {"exec": probe.exec_, "guestAgentPing": probe.guest_agent_ping, "httpGet": probe.http_get}
    return next((name for name, given in names.items() if given is not None), "tcpSocket")
