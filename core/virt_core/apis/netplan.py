"""What virt-handler asks virt-netsetup to do, and what it answers: one JSON document each way, no other channel.

`virt-netsetup` reads the plan from its standard input and writes the report to its standard output. To `virt-netsetup
serve` that input is a socket for packets: each packet is a request, `REQUEST` with the descriptors of `DESCRIPTORS` in
that order. The report comes, as one packet, on the request's own socket, which is closed afterwards.
"""

from __future__ import annotations

from typing import Literal

from virt_core.apis.base import Struct

#: What virt-handler starts, and what a request to it says.
SERVE = "serve"
REQUEST = b"virt-netsetup/1"
#: Where to answer, a file with the plan, the Pod's network and process namespaces, and the process that they were taken
#: from: by descriptor, because a number can have gone to somebody else by the time that it is used.
DESCRIPTORS = ("answer", "plan", "netns", "pidns", "process")
MAX_PLAN = 4 << 20
#: One packet; a report has a few hundred bytes for each NIC.
MAX_REPORT = 1 << 17

#: Names of counters at the guest's TAP: what was dropped there and why, and how leases were asked for and given.
DROPPED_MAC, DROPPED_VLAN, DROPPED_OTHER = "dropped_mac", "dropped_vlan", "dropped_other"
DROPPED_ARP, DROPPED_IPV4, DROPPED_IPV6 = "dropped_arp", "dropped_ipv4", "dropped_ipv6"
DROPPED_LOOPBACK, DROPPED_SERVER = "dropped_loopback", "dropped_server"
DROPPED = (
    DROPPED_MAC, DROPPED_VLAN, DROPPED_OTHER, DROPPED_ARP, DROPPED_IPV4, DROPPED_IPV6, DROPPED_LOOPBACK, DROPPED_SERVER,
)  # fmt: skip
LEASE_ASKED, LEASE_GIVEN, LEASE_REFUSED, LEASE_GIVEN6 = "lease_asked", "lease_given", "lease_refused", "lease_given6"
#: Connections that were translated, outwards and inwards.
NAT_OUT, NAT_IN = "nat_out", "nat_in"

DEFAULT_VM_NETWORK_CIDR = "10.0.2.0/24"
DEFAULT_VM_IPV6_NETWORK_CIDR = "fd10:0:2::/120"


class NetPort(Struct):
    """A port of the guest that the Pod forwards; with `last`, all from the one to the other."""

    port: int
    protocol: str = "TCP"
    name: str = ""
    last: int = 0


class NetDhcpOption(Struct):
    """A DHCP option by number, sent to the guest as it is."""

    option: int
    value: str


class NetDhcpOptions(Struct):
    """What the guest's DHCP answer carries beside the address."""

    boot_file_name: str = ""
    tftp_server_name: str = ""
    ntp_servers: list[str] = []
    private_options: list[NetDhcpOption] = []


class NetPlanInterface(Struct):
    """One guest NIC and the Pod interface behind it."""

    name: str
    binding: str
    pod_interface: str = "eth0"
    mac: str = ""
    ports: list[NetPort] = []
    vm_network_cidr: str = ""
    vm_ipv6_network_cidr: str = ""
    queues: int = 1
    hostname: str = ""
    search_domains: list[str] = []
    dns_servers: list[str] = []
    dhcp_options: NetDhcpOptions | None = None
    link_down: bool = False
    #: A proxy of a service mesh in the Pod takes what comes from outside, and hands it on.
    mesh: bool = False


class NetPlan(Struct):
    """The whole wish. The namespace is that of `podPid`, or the one at `netnsPath`.

    A VMI can have several Pods on one machine, and each is wired by itself: what is kept about it goes by the Pod's
    UID (a plan without one is of a version that knew one Pod only). The guest's MAC addresses follow from the VMI's
    UID, so that they stay the same wherever it runs.
    """

    vmi_uid: str
    pod_uid: str = ""
    action: Literal["setup", "teardown", "check", "observe"] = "setup"
    pod_pid: int = 0
    netns_path: str = ""
    launcher_uid: int = 107
    state_dir: str = ""
    interfaces: list[NetPlanInterface] = []


class NetReportInterface(Struct):
    """What was made for one guest NIC."""

    name: str
    tap: str = ""
    mac: str = ""
    mtu: int = 0
    bridge: str = ""
    pod_interface: str = ""
    pod_ips: list[str] = []
    guest_ips: list[str] = []
    gateway: str = ""
    gateway_ipv6: str = ""


class NetServer(Struct):
    """A process in the Pod that serves its guest, and when it started: a number alone may be somebody else's by now."""

    name: str
    pid: int
    start_time: int


class NetReportError(Struct):
    """Why it failed: the step or field, a sentence, and whether a retry is pointless."""

    step: str
    message: str
    critical: bool = False


class NetLink(Struct):
    """A link as the kernel shows it, and what passed it: `rx` came in by it, `tx` went out."""

    name: str
    mac: str = ""
    mtu: int = 0
    up: bool = False
    #: Somebody is at the other end: for a TAP, a machine that holds it.
    carrier: bool = False
    rx_packets: int = 0
    tx_packets: int = 0
    rx_dropped: int = 0
    tx_dropped: int = 0


class NetNeighbour(Struct):
    """Who the Pod believes to be at an address of the guest's side."""

    ip: str
    mac: str = ""
    state: str = ""


class NetProbe(Struct):
    """One question to the guest at one of its addresses: arp, nd or echo. Without a MAC nobody answered."""

    kind: str
    ip: str
    mac: str = ""
    ms: float = 0.0


class NetObservation(Struct):
    """What is there of one guest NIC, from the Pod's side to the guest's. Nothing is changed by looking."""

    name: str
    binding: str = ""
    #: Why there is nothing to be seen.
    error: str = ""
    #: The first step of the wiring that is not in place, and its kind.
    missing: str = ""
    missing_step: str = ""
    wired: NetReportInterface | None = None
    pod: NetLink | None = None
    bridge: NetLink | None = None
    tap: NetLink | None = None
    addresses: list[str] = []
    routes: list[str] = []
    neighbours: list[NetNeighbour] = []
    #: MACs that the bridge has learnt at the TAP.
    learnt: list[str] = []
    #: Whether the guest's DHCP server runs; nothing where it has none.
    serves: bool | None = None
    #: By the names above; what the rules do not count is not in it.
    counters: dict[str, int] = {}
    probes: list[NetProbe] = []
    #: Senders of what the guest sent while it was asked.
    heard: list[str] = []


class NetReport(Struct):
    """The answer. `observed` is that of `observe`."""

    interfaces: list[NetReportInterface] = []
    observed: list[NetObservation] = []
    error: NetReportError | None = None
    servers: list[NetServer] = []
