"""Where the packets of one NIC stop, and why, in one sentence. Pure.

One function for each cause, tried in order, from the Pod's side to the guest's; each returns nothing when it is not the
cause.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from virt_core.apis.netplan import DROPPED_ARP, DROPPED_IPV4, DROPPED_IPV6, DROPPED_MAC
from virt_core.apis.networkview import BRIDGE, DHCP, GUEST, POD_NIC, REACHED, RULES, STOPPED, TAP, UNSEEN
from virt_handler.decisions.walkfacts import NicFacts, listed


@dataclass(frozen=True, slots=True)
class Verdict:
    sentence: str
    stops_at: str = ""
    state: str = STOPPED


def verdict(facts: NicFacts) -> Verdict:
    for cause in _CAUSES:
        if (found := cause(facts)) is not None:
            return found
    return _lost(facts)


def _not_wired(facts: NicFacts) -> Verdict | None:
    why = facts.trouble or (facts.seen.error if facts.seen is not None else "nobody has looked")
    return Verdict(f"The network is not wired: {why.rstrip('.')}.", POD_NIC) if why else None


def _pod_nic(facts: NicFacts) -> Verdict | None:
    nic, name = facts.seen.pod if facts.seen is not None else None, facts.wired.pod_interface
    if nic is None:
        return Verdict(f"The Pod has lost its interface {name}: its network is no longer there.", POD_NIC)
    if not nic.up:
        return Verdict(f"The Pod's interface {nic.name} is down: somebody in the Pod or on the node did that.", POD_NIC)
    if not nic.carrier:
        words = f"The Pod's interface {nic.name} has no carrier: its other end, on the node, is down or gone."
        return Verdict(words, POD_NIC)
    return None


def _incomplete(facts: NicFacts) -> Verdict | None:
    if facts.seen is None or not facts.seen.missing:
        return None
    where = {"AddTap": TAP, "InstallTables": RULES}.get(facts.seen.missing_step, BRIDGE)
    where = TAP if facts.wired.tap and facts.wired.tap in facts.seen.missing else where
    return Verdict(f"The wiring in the Pod is not whole: {facts.seen.missing} is not in place.", where)


def _link_down(facts: NicFacts) -> Verdict | None:
    down = facts.card is not None and facts.card.link_state == "down"
    if facts.wanted == "down":
        state = "is down" if down else "is about to go down"
        return Verdict(f'The link {state} by spec: interface "{facts.name}" has `state: down`.', TAP)
    if down:
        return Verdict("The link of the machine's card is down, though the spec does not ask for that.", TAP)
    return None


def _no_card(facts: NicFacts) -> Verdict | None:
    if facts.card is None:
        return Verdict("The machine has no such card: it is on its way in or out, or the machine does not run.", TAP)
    if facts.paused:
        return Verdict("The machine is paused, so its guest answers nobody.", GUEST)
    if facts.seen is not None and facts.seen.tap is not None and not facts.seen.tap.carrier:
        return Verdict(f"Nobody holds the guest's end of {facts.seen.tap.name}: its machine does not run.", TAP)
    return None


def _no_address(facts: NicFacts) -> Verdict | None:
    """A network without addresses of its own: there is nothing to ask for."""
    if facts.proofs:
        return None
    if not facts.from_guest:
        return _mute(facts)
    told = facts.from_agent
    own = f", and its agent says that it uses {listed(told.ip_addresses)}" if told and told.ip_addresses else ""
    words = f"This network gives the guest no address that could be asked at; the guest sends{own}."
    return Verdict(words, state=UNSEEN)


def _reached(facts: NicFacts) -> Verdict | None:
    if not facts.answered:
        return None
    at, pods = listed(facts.answered), [ip for ip in facts.wired.pod_ips if ip not in facts.wired.guest_ips]
    others = f", which others reach at {listed(pods)}" if pods else ""
    rest = listed(facts.silent)
    half = f" It does not use {rest}." if rest else ""
    return Verdict(f"Packets reach the guest: it answers at {at}{others}{_lease_words(facts)}.{half}", state=REACHED)


def _lease_words(facts: NicFacts) -> str:
    if facts.seen is None or facts.seen.serves is None or not facts.counts_leases:
        return ""
    if facts.seen.serves is False:
        return ", but its DHCP server does not run, so it will get no lease when it asks again"
    return "" if facts.given or facts.given6 else "; it took no lease here, so it had that address before or by hand"


def _masked(facts: NicFacts) -> Verdict | None:
    if not facts.masked:
        return None
    words = f"it answers as {listed(sorted(set(facts.masked)))}, but may send as {facts.mac} only"
    return Verdict(f"Packets leave the guest and are dropped at its TAP: {words}.", RULES)


def _mute(facts: NicFacts) -> Verdict | None:
    if facts.from_guest:
        return None
    told = facts.from_agent
    if told is not None and not told.ip_addresses:
        words = f"its agent says that {told.guest_name or 'its interface'} has no address: it is down there"
        return Verdict(f"The guest has sent nothing since its start: {words}.", GUEST)
    words = f"no system runs in it, or it has no driver for its card ({facts.model}), or left it down"
    return Verdict(f"The guest has sent nothing since its start: {words}.", GUEST)


def _no_lease(facts: NicFacts) -> Verdict | None:
    """It asked for one and got none, or would get none."""
    if facts.seen is None or facts.seen.serves is None or facts.given or not facts.counts_leases:
        return None
    often = f"asked for a lease {_times(facts.asked)}" if facts.asked else "has not asked for a lease"
    if not facts.seen.serves:
        return Verdict(f"The guest {often}, and its DHCP server does not run.", DHCP)
    if facts.asked and facts.refused:
        return Verdict(f"The guest {often} and was refused {_times(facts.refused)}: it wants another address.", DHCP)
    if facts.asked:
        return Verdict(f"The guest {often} and got no answer from its DHCP server, though that runs.", DHCP)
    return None


def _dropped(facts: NicFacts) -> Verdict | None:
    own, ipv4 = listed(facts.wired.guest_ips), any("." in ip for ip in facts.wired.guest_ips)
    if facts.counted(DROPPED_MAC):
        words = f"it sends as another MAC than its own, {facts.mac}"
        return Verdict(f"Packets leave the guest and are dropped at its TAP: {words}.", RULES)
    if not facts.counted(*((DROPPED_ARP, DROPPED_IPV4) if ipv4 else (DROPPED_IPV6,))):
        return None
    heard = listed(facts.seen.heard) if facts.seen is not None else ""
    words = f"wrong sender address ({heard})" if heard else "wrong sender address"
    return Verdict(f"Packets leave the guest and are dropped at its TAP: {words}; it may use {own} only.", RULES)


def _never_asked(facts: NicFacts) -> Verdict | None:
    if not facts.counts_leases or facts.asked or facts.given6 or facts.seen is None or not facts.seen.serves:
        return None
    own = listed(facts.silent)
    words = f"The guest sends, but never asked for a lease, and does not use {own}: its DHCP client is off."
    return Verdict(words, GUEST)


def _lost(facts: NicFacts) -> Verdict:
    own, told = listed(facts.silent) or "its address", facts.from_agent
    took = "The guest asked for a lease and got one" if facts.given or facts.given6 else "The guest sends"
    if told is not None and told.ip_addresses:
        where = f"its agent says that {told.guest_name} has {listed(told.ip_addresses)}"
    else:
        where = "it gave the address up, or went down, or filters what asks for its neighbours"
    return Verdict(f"{took}, but does not answer at {own}: {where}.", GUEST)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


_CAUSES: tuple[Callable[[NicFacts], Verdict | None], ...] = (
    _not_wired,
    _pod_nic,
    _incomplete,
    _link_down,
    _no_card,
    _no_address,
    _reached,
    _masked,
    _mute,
    _no_lease,
    _dropped,
    _never_asked,
)
