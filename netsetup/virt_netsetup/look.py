"""`observe`: looks at each guest NIC of a Pod, from the Pod's interface to the guest. Changes nothing.

A NIC of which something is missing is no failure: what is missing is the answer.
"""

from __future__ import annotations

from virt_core.apis.netplan import NetObservation, NetPlan, NetPlanInterface, NetReport, NetReportInterface
from virt_netsetup import compose, guard, probe
from virt_netsetup.bindings.wiring import Wiring
from virt_netsetup.frames import ASK_ARP, ASK_ECHO, ASK_ND, Question
from virt_netsetup.model import Address, NetsetupError, Record
from virt_netsetup.sight import MOST, Sight, counters
from virt_netsetup.state import State
from virt_netsetup.steps import InstallTables, StartDhcp, Step, World, describe, name_of


def observe(plan: NetPlan, world: World, state: State, sight: Sight, within_s: float = probe.WITHIN_S) -> NetReport:
    seen = [_look(plan, interface, world, state, sight) for interface in plan.interfaces]
    lines = probe.ask([asked for each in seen if (asked := _questions(each, world))], within_s)
    for each in seen:
        line = lines.get(each.tap.name) if each.tap is not None else None
        if line is not None:
            each.probes, each.heard = list(line.probes.values()), list(line.heard)
    return NetReport(observed=seen)


def _look(plan: NetPlan, interface: NetPlanInterface, world: World, state: State, sight: Sight) -> NetObservation:
    found = NetObservation(name=interface.name, binding=interface.binding)
    record = state.load(interface.pod_interface)
    if record is None or record.namespace != world.namespace:
        there = sorted(link.name for link in world.kernel.links())
        known = f"{interface.pod_interface} was never wired" if interface.pod_interface in there else ""
        found.error = known or f"the Pod has no interface {interface.pod_interface} (it has: {', '.join(there)})"
        return found
    try:
        wiring = compose.setup(plan, interface, record.nic, max(record.position, 0))
    except NetsetupError as error:
        found.error = error.message
        return found
    _compare(found, wiring, world)
    _links(found, wiring.report, record, world, sight)
    found.counters = counters(world.firewall, record.nic)
    return found


def _compare(found: NetObservation, wiring: Wiring, world: World) -> None:
    """What is there with what should be."""
    found.wired = wiring.report
    servers = [step.server.name for step in wiring.steps if isinstance(step, StartDhcp)]
    found.serves = all(map(world.dhcp.alive, servers)) if servers else None
    step = next((step for step in wiring.steps if _is_missing(step, world)), None)
    if step is not None:
        found.missing, found.missing_step = describe(step), name_of(step)


def _is_missing(step: Step, world: World) -> bool:
    """Rules and servers may be those of another version of ours, which serve as well."""
    if isinstance(step, StartDhcp):
        return False
    try:
        if isinstance(step, InstallTables):
            return not all(world.firewall.exists(table.family, table.name) for table in step.tables[:1])
        return not step.satisfied(world)
    except (NetsetupError, OSError):
        return True


def _links(found: NetObservation, report: NetReportInterface, record: Record, world: World, sight: Sight) -> None:
    nic = next((link for link in world.kernel.links() if link.index == record.nic.index), None)
    found.pod = sight.link(nic.name) if nic is not None else None
    found.addresses = [str(address) for address in record.nic.addresses][:MOST]
    found.routes = [
        f"{route.destination or 'default'} via {route.gateway or 'the link'}" for route in record.nic.routes
    ]
    del found.routes[MOST:]
    if report.bridge and (bridge := world.kernel.link(report.bridge)) is not None:
        found.bridge = sight.link(bridge.name)
        found.neighbours = sight.neighbours(bridge.index)
    if report.tap and (tap := world.kernel.link(report.tap)) is not None:
        found.tap = sight.link(tap.name)
        found.learnt = sight.learnt(tap.index)


def _questions(found: NetObservation, world: World) -> probe.Asked | None:
    """As the bridge, which is the guest's neighbour: with an address of its own, never with somebody else's, for the
    guest would believe it."""
    wired, bridge = found.wired, world.kernel.link(found.bridge.name) if found.bridge is not None else None
    if wired is None or bridge is None or found.tap is None or not found.tap.up:
        return None
    own = [address for address in world.kernel.addresses(bridge.index) if address.is_global or address.version == 4]
    questions: list[Question] = []
    for ip in wired.guest_ips:
        questions += _about(Address(ip=ip, prefix=0), own, bridge.mac, wired)
    return probe.Asked(found.tap.name, tuple(wired.guest_ips), tuple(questions))


def _about(guest: Address, own: list[Address], mac: str, wired: NetReportInterface) -> list[Question]:
    near = next((each.ip for each in own if each.version == guest.version), "")
    found = []
    if guest.version == 6:
        found.append(Question(ASK_ND, guest.ip, guard.link_local(mac), mac))
    elif near:
        found.append(Question(ASK_ARP, guest.ip, near, mac))
    if near and near in (wired.gateway, wired.gateway_ipv6) and wired.mac:
        found.append(Question(ASK_ECHO, guest.ip, near, mac, wired.mac))
    return found
