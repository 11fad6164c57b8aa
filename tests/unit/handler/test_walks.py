"""Where packets for a guest stop, told from what was seen; and how often a guest is looked at."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from msgspec.structs import replace as changed

from virt_core.apis.base import from_plain
from virt_core.apis.netplan import (
    DROPPED_ARP,
    DROPPED_IPV6,
    DROPPED_MAC,
    LEASE_ASKED,
    LEASE_GIVEN,
    LEASE_REFUSED,
    NAT_IN,
    NAT_OUT,
    NetLink,
    NetObservation,
    NetProbe,
    NetReport,
    NetReportInterface,
)
from virt_core.apis.networkview import REACHED, STOPPED, UNSEEN
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.rpc.status import RpcFailure
from virt_handler.decisions.netplans import NetworkError
from virt_handler.decisions.vocabulary import Task, Work
from virt_handler.decisions.walkfacts import NicFacts, listed
from virt_handler.decisions.walks import walk
from virt_handler.service.networks import FRESH_S, MOST_AT_ONCE, Networks
from virt_protos.launcher.v1 import launcher_pb2 as pb

MAC = "02:11:22:33:44:55"
WIRED = NetReportInterface(
    name="default", tap="tap0", mac=MAC, mtu=1400, bridge="k6t-eth0", pod_interface="eth0",
    pod_ips=["10.99.0.5"], guest_ips=["10.0.2.2"], gateway="10.0.2.1",
)  # fmt: skip
COUNTERS = {LEASE_ASKED: 2, LEASE_GIVEN: 1, LEASE_REFUSED: 0, DROPPED_ARP: 0, NAT_OUT: 3, NAT_IN: 1}
SEEN = NetObservation(
    name="default",
    binding="masquerade",
    wired=WIRED,
    pod=NetLink(name="eth0", mac="0a:58:0a:63:00:05", mtu=1400, up=True, carrier=True),
    bridge=NetLink(name="k6t-eth0", mac="02:00:00:00:00:00", mtu=1400, up=True, carrier=True),
    tap=NetLink(name="tap0", mac="fe:00:00:00:00:01", mtu=1400, up=True, carrier=True, rx_packets=12, tx_packets=7),
    addresses=["10.99.0.5/24"],
    routes=["default via 10.99.0.1"],
    serves=True,
    counters=COUNTERS,
    probes=[
        NetProbe(kind="arp", ip="10.0.2.2", mac=MAC, ms=0.4),
        NetProbe(kind="echo", ip="10.0.2.2", mac=MAC, ms=0.5),
    ],
)
CARD = pb.GuestInterface(name="default", mac=MAC, link_state="up", from_domain=True)
FINE = NicFacts("default", "masquerade", SEEN, card=CARD)
NOBODY = [NetProbe(kind="arp", ip="10.0.2.2"), NetProbe(kind="echo", ip="10.0.2.2")]


def seen(counters: dict[str, int] | None = None, facts: NicFacts = FINE, **changes: Any) -> NicFacts:
    """A guest that does not answer, unless the changes say otherwise."""
    changes.setdefault("probes", NOBODY)
    assert facts.seen is not None
    return replace(facts, seen=changed(facts.seen, counters={**COUNTERS, **(counters or {})}, **changes))


def agent(*addresses: str) -> pb.GuestInterface:
    return pb.GuestInterface(
        name="default", mac=MAC, link_state="up", from_agent=True, guest_name="eth0", ip_addresses=addresses
    )


def with_tap(**changes: Any) -> NetLink:
    assert SEEN.tap is not None
    return changed(SEEN.tap, **changes)


CASES: list[tuple[str, NicFacts, str, str]] = [
    ("failed", replace(FINE, seen=None, trouble="dhcp: no room"), "pod-nic", "is not wired: dhcp: no room."),
    ("never", replace(FINE, seen=NetObservation(name="default", error="the Pod has no interface net1")), "pod-nic",
     "is not wired: the Pod has no interface net1."),
    ("lost", seen(pod=None), "pod-nic", "The Pod has lost its interface eth0"),
    ("pod-down", seen(pod=NetLink(name="eth0", carrier=True)), "pod-nic", "interface eth0 is down"),
    ("no-carrier", seen(pod=NetLink(name="eth0", up=True)), "pod-nic", "interface eth0 has no carrier"),
    ("half", seen(missing="AddLink k6t-eth0 bridge", missing_step="AddLink"), "bridge", "not whole: AddLink k6t-eth0"),
    ("no-tap", seen(missing="SetUp tap0", missing_step="SetUp"), "tap", "not whole: SetUp tap0"),
    ("no-rules", seen(missing="InstallTables", missing_step="InstallTables"), "rules", "not whole: InstallTables"),
    ("spec-down", replace(seen(), wanted="down", card=pb.GuestInterface(link_state="down")), "tap", "down by spec"),
    ("card-down", replace(seen(), card=pb.GuestInterface(link_state="down")), "tap", "spec does not ask for that"),
    ("no-card", replace(seen(), card=None), "tap", "The machine has no such card"),
    ("paused", replace(seen(), paused=True), "guest", "The machine is paused"),
    ("unheld", seen(tap=with_tap(carrier=False)), "tap", "Nobody holds the guest's end of tap0"),
    ("other-mac", seen(probes=[NetProbe(kind="arp", ip="10.0.2.2", mac="02:66:66:66:66:66", ms=1)]), "rules",
     "it answers as 02:66:66:66:66:66, but may send as 02:11:22:33:44:55 only"),
    ("mute", seen(tap=with_tap(rx_packets=0)), "guest", "has sent nothing since its start: no system runs in it"),
    ("down-inside", replace(seen(tap=with_tap(rx_packets=0)), card=agent(), agent=True), "guest",
     "its agent says that eth0 has no address"),
    ("no-server", seen({LEASE_GIVEN: 0}, serves=False), "dhcp", "asked for a lease 2 times, and its DHCP server"),
    ("no-server-unasked", seen({LEASE_ASKED: 0, LEASE_GIVEN: 0}, serves=False), "dhcp", "has not asked for a lease"),
    ("refused", seen({LEASE_GIVEN: 0, LEASE_REFUSED: 1}), "dhcp", "was refused once: it wants another address"),
    ("unanswered", seen({LEASE_GIVEN: 0}), "dhcp", "asked for a lease 2 times and got no answer"),
    ("wrong-mac", seen({DROPPED_MAC: 3}), "rules", "it sends as another MAC than its own, 02:11:22:33:44:55"),
    ("wrong-address", seen({DROPPED_ARP: 4}, heard=["10.9.9.9"]), "rules",
     "wrong sender address (10.9.9.9); it may use 10.0.2.2 only"),
    ("static", seen({LEASE_ASKED: 0, LEASE_GIVEN: 0}), "guest", "never asked for a lease, and does not use 10.0.2.2"),
    ("gone", seen(), "guest", "asked for a lease and got one, but does not answer at 10.0.2.2: it gave the address up"),
    ("moved", replace(seen(), card=agent("10.0.2.9"), agent=True), "guest", "its agent says that eth0 has 10.0.2.9"),
]  # fmt: skip


@pytest.mark.parametrize(("facts", "where", "words"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_where_packets_stop(facts: NicFacts, where: str, words: str) -> None:
    found = walk(facts)
    assert words in found.sentence
    assert found.sentence.endswith(".")
    assert "\n" not in found.sentence
    assert (found.state, found.stops_at) == (STOPPED, where)
    assert [station.name for station in found.stations if station.state == "stops"] == [where]
    assert [station.name for station in found.stations] == [
        "pod-nic",
        "bridge",
        "tap",
        "rules",
        "dhcp",
        "guest",
        "agent",
    ]
    assert all(station.seen for station in found.stations)


def test_a_guest_that_answers() -> None:
    found = walk(FINE)
    assert (found.state, found.stops_at, found.answered) == (REACHED, "", ["10.0.2.2"])
    assert found.sentence == "Packets reach the guest: it answers at 10.0.2.2, which others reach at 10.99.0.5."
    seen_at = {station.name: station for station in found.stations}
    assert {station.state for station in found.stations} == {"passes", "-"}
    assert "10.99.0.5/24" in seen_at["pod-nic"].seen
    assert "packets: 12 in, 7 out" in seen_at["tap"].seen
    assert "translated connections: 3 out, 1 in" in seen_at["rules"].seen
    assert "asked 2 times, given 1" in seen_at["dhcp"].seen
    assert f"arp 10.0.2.2: {MAC} after 0.4 ms" in seen_at["guest"].seen


def test_what_is_odd_about_a_guest_that_answers() -> None:
    probes = SEEN.probes
    assert "it took no lease here" in walk(seen({LEASE_GIVEN: 0, LEASE_ASKED: 0}, probes=probes)).sentence
    assert "its DHCP server does not run" in walk(seen(serves=False, probes=probes)).sentence
    half = seen(probes=[*probes, NetProbe(kind="nd", ip="fd10:0:2::2")])
    assert walk(half).sentence.endswith("It does not use fd10:0:2::2.")
    assert walk(half).state == REACHED
    lied = walk(seen({DROPPED_ARP: 3}, probes=probes))
    assert lied.state == REACHED, "what was dropped once is told, and is not why nobody answers"
    assert next(station for station in lied.stations if station.name == "rules").seen.startswith("dropped: 3 arp")


def test_a_network_without_addresses() -> None:
    bare = NetReportInterface(name="second", tap="tap1", mac=MAC, bridge="k6t-1", pod_interface="pod1")
    facts = replace(FINE, binding="bridge", seen=changed(SEEN, wired=bare, serves=None, probes=[]))
    found = walk(facts)
    assert (found.state, found.stops_at) == (UNSEEN, "")
    assert "gives the guest no address" in found.sentence
    assert "uses 10.7.0.2" in walk(replace(facts, card=agent("10.7.0.2"), agent=True)).sentence
    mute = replace(facts, seen=changed(SEEN, wired=bare, probes=[], tap=with_tap(rx_packets=0)))
    assert walk(mute).stops_at == "guest"


def test_rules_of_an_older_version_accuse_nobody() -> None:
    found = walk(replace(FINE, seen=changed(SEEN, counters={}, probes=NOBODY)))
    assert found.sentence.startswith("The guest sends, but does not answer at 10.0.2.2")


def test_the_other_family_counts_where_it_is_the_only_one() -> None:
    only6 = changed(WIRED, guest_ips=["fd10:0:2::2"])
    facts = seen({DROPPED_IPV6: 2}, wired=only6, probes=[NetProbe(kind="nd", ip="fd10:0:2::2")], heard=["fd66::1"])
    assert "wrong sender address (fd66::1)" in walk(facts).sentence
    assert "wrong sender" not in walk(seen({DROPPED_IPV6: 2})).sentence


def test_words_of_a_guest_are_cut() -> None:
    long = agent(*["x" * 253] * 32)
    found = walk(replace(seen(), card=long, agent=True))
    assert max(len(found.sentence), *(len(station.seen) for station in found.stations)) <= 1024


def test_lists() -> None:
    assert [listed(words) for words in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]


# -- how often it is looked


class Session:
    """As much of one as is asked for."""

    def __init__(self, pod_uid: str = "pod-1", network: Work | None = None) -> None:
        self.pod_uid, self.vmi_uid, self.key = pod_uid, "uid-1", "default/guest"
        self._view = SimpleNamespace(domain=pb.Domain(interfaces=[CARD]), network=network or Work(Task.DONE))

    def view(self) -> Any:
        return self._view


def machine(**nic: Any) -> VirtualMachineInstance:
    nics = [{"name": "default", "masquerade": {}, **nic}]
    spec = {"domain": {"devices": {"interfaces": nics}}, "networks": [{"name": "default", "pod": {}}]}
    return from_plain({"metadata": {"name": "guest", "uid": "uid-1"}, "spec": spec}, VirtualMachineInstance)


class Looks:
    def __init__(self, vmi: VirtualMachineInstance | None = None) -> None:
        self.now, self.count, self.gate = 0.0, 0, threading.Event()
        self.gate.set()
        self.begun = threading.Semaphore(0)
        known = vmi or machine()
        self.networks = Networks(lambda _key: known, self.observe, lambda: self.now)

    def observe(self, _pod: str, _vmi: Any, nics: list[Any]) -> NetReport:
        self.count += 1
        self.begun.release()
        assert self.gate.wait(10)
        return NetReport(observed=[changed(SEEN, name=nic.name) for nic in nics])

    def of(self, session: Any) -> Any:
        return self.networks.of(session)


def test_one_look_serves_for_some_seconds_whoever_asks() -> None:
    looks = Looks()
    first = looks.of(Session())
    assert [found.state for found in first.walks] == [REACHED]
    looks.now = FRESH_S - 0.1
    assert looks.of(Session()) == first
    assert looks.count == 1
    looks.of(Session("pod-2"))
    assert looks.count == 2, "another machine is another look"
    looks.now = FRESH_S + 0.1
    looks.of(Session())
    assert looks.count == 3


def test_who_asks_meanwhile_waits_for_the_same_look_and_few_are_looked_at_at_once() -> None:
    looks = Looks()
    looks.gate.clear()
    with ThreadPoolExecutor(16) as pool:
        first = [pool.submit(looks.of, Session(f"pod-{number}")) for number in range(MOST_AT_ONCE)]
        for _ in first:
            assert looks.begun.acquire(timeout=10)
        same = [pool.submit(looks.of, Session("pod-0")) for _ in range(4)]
        with pytest.raises(RpcFailure, match="are looked at already") as refused:
            looks.of(Session("pod-99"))
        assert refused.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        looks.gate.set()
        answers = [future.result(10) for future in (*first, *same)]
    assert looks.count == MOST_AT_ONCE
    assert all(answer.walks[0].state == REACHED for answer in answers)


def test_a_failure_is_told_and_not_kept() -> None:
    looks = Looks()
    looks.networks._observe = failing  # type: ignore[assignment]
    assert "virt-netsetup did not answer" in looks.of(Session()).walks[0].sentence
    looks.now = FRESH_S + 1
    looks.networks._vmi = lambda _key: None
    for _ in range(2):
        with pytest.raises(RpcFailure, match="not known on this node"):
            looks.of(Session())
    looks.networks._vmi, looks.networks._observe = lambda _key: machine(), looks.observe
    assert looks.of(Session()).walks[0].state == REACHED


def failing(_pod: str, _vmi: Any, _nics: Any) -> NetReport:
    raise NetworkError("virt-netsetup did not answer within 30 s")


def test_a_network_that_could_not_be_wired_is_not_looked_at() -> None:
    looks = Looks()
    found = looks.of(Session(network=Work(Task.FAILED, error="podInterface: eth0 has no global address"))).walks[0]
    assert (found.stops_at, looks.count) == ("pod-nic", 0)
    assert "eth0 has no global address" in found.sentence


def test_a_binding_that_leads_past_the_pod_is_named() -> None:
    looks = Looks(machine(masquerade=None, sriov={}))
    [found] = looks.of(Session()).walks
    assert "leads past the Pod's network" in found.sentence
    assert looks.count == 0
