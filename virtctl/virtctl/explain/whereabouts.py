"""Whose the address is that a machine's status shows, and whether the guest was seen using it. Pure.

With masquerade and with a bridge it is the Pod's, and it stands there before any guest has taken it. A guest that has
just begun is given time to start.
"""

from __future__ import annotations

from virt_core.apis.names import PHASE_RUNNING
from virt_core.apis.networkview import GUEST, REACHED, STOPPED, NetworkWalk
from virt_core.apis.podnetworks import SOURCE_AGENT, sources
from virt_core.apis.vmistatus import VirtualMachineInstanceNetworkInterface as StatusInterface
from virt_core.runtime.times import parse_rfc3339
from virtctl.explain.facts import Facts

_STARTS_WITHIN_S = 60.0


def whereabouts(facts: Facts) -> tuple[str, bool]:
    """The words, and whether the guest is not at its address, as far as its node sees."""
    nics = facts.vmi.status.interfaces if facts.vmi is not None else []
    nic = next((each for each in nics if each.ip_address), None)
    if nic is None:
        return "; it has no address (yet)", False
    walk = _walk(facts, nic)
    if walk is not None and walk.state == REACHED:
        return f"; its address is {nic.ip_address}, and the guest answers there", False
    if walk is not None and walk.stops_at == GUEST and _is_young(facts):
        return f"; its Pod has the address {nic.ip_address}, which the guest does not use yet", False
    if walk is not None and walk.state == STOPPED:
        why = walk.sentence.rstrip(".")
        return f"; its Pod has the address {nic.ip_address}, but the guest was not seen using it: {why}", True
    if SOURCE_AGENT in sources(nic.info_source):
        return f"; its address is {nic.ip_address}, and its guest agent is connected", False
    return f"; its Pod has the address {nic.ip_address} (nobody could look whether the guest uses it)", False


def _walk(facts: Facts, nic: StatusInterface) -> NetworkWalk | None:
    walks = facts.network.interfaces if facts.network is not None else []
    return next((walk for walk in walks if walk.name == nic.name), None)


def _is_young(facts: Facts) -> bool:
    stamps = facts.vmi.status.phase_transition_timestamps if facts.vmi is not None else []
    began = next((s.phase_transition_timestamp for s in reversed(stamps) if s.phase == PHASE_RUNNING), None)
    return began is not None and (facts.now - parse_rfc3339(began)).total_seconds() < _STARTS_WITHIN_S
