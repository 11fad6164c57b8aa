"""The way of one NIC, station by station: how each is, and what was seen there. Pure."""

from __future__ import annotations

from virt_core.apis.netplan import DROPPED, NAT_IN, NAT_OUT, NetLink
from virt_core.apis.networkview import (
    AGENT,
    BRIDGE,
    DHCP,
    GUEST,
    NONE,
    ODD,
    PASSES,
    POD_NIC,
    RULES,
    STOPS,
    TAP,
    UNKNOWN,
    NetworkStation,
    NetworkWalk,
)
from virt_handler.decisions.limits import MAX_TEXT, clip
from virt_handler.decisions.verdicts import verdict
from virt_handler.decisions.walkfacts import NicFacts, listed

_MOST_ADDRESSES = 8


def walk(facts: NicFacts) -> NetworkWalk:
    found = verdict(facts)
    stations = [_pod(facts), _bridge(facts), _tap(facts), _rules(facts), _dhcp(facts), _guest(facts), _agent(facts)]
    for station in stations:
        station.seen = clip(station.seen, MAX_TEXT)
        if station.name == found.stops_at:
            station.state = STOPS
    return NetworkWalk(
        name=facts.name,
        binding=facts.binding,
        state=found.state,
        stops_at=found.stops_at,
        sentence=clip(found.sentence, MAX_TEXT),
        pod_addresses=list(facts.wired.pod_ips),
        guest_addresses=list(facts.wired.guest_ips),
        answered=facts.answered,
        stations=stations,
    )


def _link(name: str, link: NetLink | None, *more: str) -> NetworkStation:
    if link is None:
        return NetworkStation(name, UNKNOWN, "not there")
    state = "up" if link.up else "down"
    carrier = "" if link.carrier else ", no carrier"
    passed = f"packets: {link.rx_packets} in, {link.tx_packets} out"
    lost = f", {link.rx_dropped + link.tx_dropped} dropped" if link.rx_dropped or link.tx_dropped else ""
    words = [f"{link.name} {link.mac} {state}{carrier}", *more, f"mtu {link.mtu}", passed + lost]
    return NetworkStation(name, PASSES if link.up and link.carrier else ODD, "; ".join(filter(None, words)))


def _pod(facts: NicFacts) -> NetworkStation:
    seen = facts.seen
    if seen is None or seen.error:
        return NetworkStation(POD_NIC, UNKNOWN, facts.trouble or (seen.error if seen is not None else ""))
    default = next((route for route in seen.routes if route.startswith("default ")), "")
    return _link(POD_NIC, seen.pod, listed(seen.addresses) or "no address", default)


def _bridge(facts: NicFacts) -> NetworkStation:
    seen = facts.seen
    if seen is None or seen.bridge is None:
        return NetworkStation(BRIDGE, UNKNOWN, "not there")
    known = [f"{each.ip} is {each.mac or 'nobody'} ({each.state})" for each in seen.neighbours if "fe80" not in each.ip]
    return _link(BRIDGE, seen.bridge, f"neighbours: {', '.join(known[:4]) or 'none'}")


def _tap(facts: NicFacts) -> NetworkStation:
    """Its packets in are those that the guest sent."""
    seen = facts.seen
    if seen is None or seen.tap is None:
        return NetworkStation(TAP, UNKNOWN, "not there")
    link = facts.card.link_state if facts.card is not None else ""
    learnt = (
        f"the bridge knows {listed(seen.learnt[:4])} behind it" if seen.learnt else "the bridge knows nobody behind it"
    )
    return _link(TAP, seen.tap, f"link of the card: {link or 'none'}", learnt)


def _rules(facts: NicFacts) -> NetworkStation:
    """Of the guest's own packets, at its TAP, and the translation of addresses behind it."""
    counters = facts.seen.counters if facts.seen is not None else {}
    if not counters:
        return NetworkStation(RULES, UNKNOWN, "nothing is counted")
    dropped = [f"{counters[name]} {name.removeprefix('dropped_')}" for name in DROPPED if counters.get(name)]
    words = [f"dropped: {', '.join(dropped) or 'none'}"]
    if NAT_OUT in counters:
        words.append(f"translated connections: {counters[NAT_OUT]} out, {counters.get(NAT_IN, 0)} in")
    return NetworkStation(RULES, ODD if dropped else PASSES, "; ".join(words))


def _dhcp(facts: NicFacts) -> NetworkStation:
    if facts.seen is None or facts.seen.serves is None:
        return NetworkStation(DHCP, NONE, "no server: this network gives no address by it")
    runs = "the server runs" if facts.seen.serves else "the server does not run"
    words = [runs]
    if facts.counts_leases:
        words.append(f"asked {facts.asked} times, given {facts.given}, refused {facts.refused}")
        words += [f"by DHCPv6 given {facts.given6}"] if facts.given6 else []
    return NetworkStation(DHCP, PASSES if facts.seen.serves else ODD, "; ".join(words))


def _guest(facts: NicFacts) -> NetworkStation:
    if facts.seen is None or not facts.seen.probes:
        return NetworkStation(GUEST, UNKNOWN, f"nobody was asked; {facts.from_guest} packets came from it")
    words = [
        f"{probe.kind} {probe.ip}: " + (f"{probe.mac} after {probe.ms:g} ms" if probe.mac else "no answer")
        for probe in facts.seen.probes[:_MOST_ADDRESSES]
    ]
    words += [f"heard from {listed(facts.seen.heard)}"] if facts.seen.heard else []
    return NetworkStation(GUEST, PASSES if facts.answered else ODD, "; ".join(words))


def _agent(facts: NicFacts) -> NetworkStation:
    """What the guest says of itself; nobody checks that."""
    if not facts.agent:
        return NetworkStation(AGENT, NONE, "no guest agent is connected")
    told = facts.from_agent
    if told is None:
        return NetworkStation(AGENT, ODD, "the agent does not know this card")
    addresses = listed(told.ip_addresses[:_MOST_ADDRESSES]) or "no address"
    far = [ip for ip in told.ip_addresses if not ip.lower().startswith("fe80:")]
    return NetworkStation(AGENT, PASSES if far else ODD, f"{told.guest_name or 'it'} has {addresses}")
