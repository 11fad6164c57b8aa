"""What Pods and their guests may not reach on the machine that runs them, as rules for nft. Pure.

A Pod's packets arrive with the Pod's own address: at its node, and at the machine through the node. Of the machine they
need the way through, names (DNS) and answers to what they were asked; they have no business with the ports of the
machine, of virt-handler and the node, or with another instance.
"""

from __future__ import annotations

from virt_local.node.networks.definition import LINK_PREFIX
from virt_local.up.instance import Instance, Node

#: The bridges of all instances carry this number, so that each instance knows the others' without their names.
BRIDGE_GROUP = 0x7670
_ICMP = {"ip": "icmp", "ip6": "icmpv6"}
_LOOPBACK = {"ip": "127.0.0.0/8", "ip6": "::1"}


def host_chains(instance: Instance, family: str, nodes: str) -> str:
    """`nodes` is the range in which the nodes themselves are, whose programs are ours. Nothing when it is all open."""
    if instance.guests_reach_host:
        return ""
    bridge = instance.bridge
    others = f"meta {{}}group {BRIDGE_GROUP} counter drop"
    return f"""  chain input {{
    type filter hook input priority filter; policy accept;
    iifname "{bridge}" {family} saddr != {nodes} goto from_pods
    iifname "{bridge}" {family} saddr {_dns_address(instance, family)} goto from_pods
  }}
  chain from_pods {{
    ct state established,related accept
    meta l4proto {_ICMP[family]} accept
    {family} daddr != {_LOOPBACK[family]} meta l4proto {{ tcp, udp }} th dport 53 accept
    counter drop
  }}
  chain forward {{
    type filter hook forward priority filter; policy accept;
    iifname "{bridge}" oifname != "{bridge}" {others.format("oif")}
    oifname "{bridge}" iifname != "{bridge}" {others.format("iif")}
  }}
"""


def node_table(instance: Instance, node: Node, family: str, bridge: str) -> str:
    """For the node's own namespace: the Pods on the bridge pass with their own addresses only, and do not get in.

    The networks beside the Pod network are no way to anywhere: nothing that comes from them is let in or routed. Where
    the kernel shows bridged packets to these rules, they go from a link to itself; there is no route between links.
    """
    pods = node.pod_cidr if family == "ip" else node.pod_cidr_v6
    table = f"{family} {instance.nft_table}"
    return f"""add table {table}
delete table {table}
table {table} {{
  chain input {{
    type filter hook input priority filter; policy accept;
    iifname "{bridge}" goto from_pods
    iifname "{LINK_PREFIX}*" counter drop
    iifname != "lo" {family} saddr {_pods_of_all(instance, family)} goto from_pods
  }}
  chain from_pods {{
    ct state established,related accept
    meta l4proto {_ICMP[family]} accept
    counter drop
  }}
  chain forward {{
    type filter hook forward priority filter; policy accept;
    iifname "{LINK_PREFIX}*" oifname != "{LINK_PREFIX}*" counter drop
    iifname "{bridge}" {family} saddr != {pods} counter drop
  }}
}}
"""


#: Questions that the name server takes in a second, of one Pod and of all, and connections of one Pod. More are not
#: answered, so that a flood costs the machine no more than counting it.
_OF_ONE, _OF_ALL, _CALLS = 200, 2000, 4


def dns_table(instance: Instance, family: str) -> str:
    """For the name server's own namespace: the instance asks it, it asks others, and does nothing else."""
    kind = {"ip": "ipv4_addr", "ip6": "ipv6_addr"}[family]
    table = f"{family} {instance.nft_table}"
    return f"""add table {table}
delete table {table}
table {table} {{
  set askers {{
    type {kind}; size 4096; flags dynamic,timeout; timeout 10s;
  }}
  set callers {{
    type {kind}; size 4096; flags dynamic;
  }}
  chain untracked {{
    type filter hook prerouting priority raw; policy accept;
    udp dport 53 notrack
  }}
  chain untracked_answers {{
    type filter hook output priority raw; policy accept;
    udp sport 53 notrack
  }}
  chain input {{
    type filter hook input priority filter; policy drop;
    iifname "lo" accept
    meta l4proto {{ tcp, udp }} th dport 53 {family} saddr != {_network(instance, family)} counter drop
    udp dport 53 update @askers {{ {family} saddr limit rate over {_OF_ONE}/second burst {_OF_ONE} packets }} drop
    udp dport 53 limit rate over {_OF_ALL}/second burst {_OF_ALL} packets counter drop
    udp dport 53 accept
    tcp dport 53 ct state new add @callers {{ {family} saddr ct count over {_CALLS} }} counter reject with tcp reset
    tcp dport 53 accept
    meta l4proto {_ICMP[family]} accept
    ct state established,related accept
    counter drop
  }}
  chain output {{
    type filter hook output priority filter; policy drop;
    oifname "lo" accept
    meta l4proto {{ tcp, udp }} th sport 53 accept
    meta l4proto {{ tcp, udp }} th dport 53 accept
    meta l4proto {_ICMP[family]} accept
    counter drop
  }}
}}
"""


def _dns_address(instance: Instance, family: str) -> str:
    return instance.dns_address if family == "ip" else instance.dns_address_v6


def _network(instance: Instance, family: str) -> str:
    return str(instance.network) if family == "ip" else instance.network_v6


def _pods_of_all(instance: Instance, family: str) -> str:
    ranges = [each.pod_cidr if family == "ip" else each.pod_cidr_v6 for each in instance.nodes]
    return f"{{ {', '.join(ranges)} }}"
