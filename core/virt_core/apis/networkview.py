"""What people and programs are told of a guest's way to the network: each station of it, and where packets stop.

Not KubeVirt's: the answer of the VMI's subresource `networkreport`.
"""

from __future__ import annotations

from virt_core.apis.base import Struct

#: The stations, from the Pod's side to the guest's.
POD_NIC, BRIDGE, TAP, RULES, DHCP, GUEST, AGENT = "pod-nic", "bridge", "tap", "rules", "dhcp", "guest", "agent"
#: How a station is: packets pass, packets stop, something is odd, nobody can say, there is none.
PASSES, STOPS, ODD, UNKNOWN, NONE = "passes", "stops", "odd", "unknown", "-"
#: How a walk ended.
REACHED, STOPPED, UNSEEN = "Reached", "Stopped", "Unknown"


class NetworkStation(Struct):
    """One station of the way."""

    name: str = ""  #: pod-nic, bridge, tap, rules, dhcp, guest or agent.
    state: str = ""  #: passes, stops, odd, unknown or -.
    seen: str = ""  #: What was seen there, for people.


class NetworkWalk(Struct):
    """The way of one NIC."""

    name: str = ""  #: As in the VMI's spec.
    binding: str = ""  #: How it is tied to its network.
    state: str = ""  #: Reached: the guest answers. Stopped: it does not. Unknown: there is no address to ask at.
    stops_at: str = ""  #: The station where packets stop.
    sentence: str = ""  #: Where packets stop and why, for people.
    pod_addresses: list[str] = []  #: Of the Pod: what others use.
    guest_addresses: list[str] = []  #: What the guest is given, and may use.
    answered: list[str] = []  #: Those of them at which it answered.
    stations: list[NetworkStation] = []  #: From the Pod's side to the guest's.


class NetworkReport(Struct):
    """The ways of all NICs of a machine."""

    interfaces: list[NetworkWalk] = []  #: In the order of the spec.
