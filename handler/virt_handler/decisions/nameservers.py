"""Which name servers a guest is told: those of its Pod and those that its spec adds, each word checked. Pure."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from virt_core.apis.networks import decimal_octets
from virt_core.apis.vmi import VirtualMachineInstance

#: More does not fit into an answer of DHCP that every client takes; libc itself uses three servers.
MAX_SERVERS = 6
MAX_SEARCHES = 16

_DOMAIN = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,62})(?:\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62})*")


@dataclass(frozen=True, slots=True)
class Resolver:
    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()


def asks_for_pods(vmi: VirtualMachineInstance) -> bool:
    """With the policy None, only what the spec names counts."""
    return vmi.spec.dns_policy != "None"


def combined(vmi: VirtualMachineInstance, pod: Resolver) -> Resolver:
    """The Pod's resolver with what the spec asks for."""
    config = vmi.spec.dns_config
    asked = Resolver(tuple(config.nameservers), tuple(config.searches)) if config is not None else Resolver()
    searches = pod.searches + asked.searches
    return _checked(Resolver(asked.servers + pod.servers, (*_own_domain(vmi, searches), *searches)))


def _own_domain(vmi: VirtualMachineInstance, searches: tuple[str, ...]) -> list[str]:
    """The domain in which a guest with a subdomain has its name. Kubernetes searches its namespace only."""
    services = next((each for each in searches if each.startswith(f"{vmi.metadata.namespace}.svc.")), "")
    return [f"{vmi.spec.subdomain}.{services}"] if vmi.spec.subdomain and services else []


def parse(text: str) -> Resolver:
    """As resolv.conf(5): the last `search` or `domain` line counts."""
    servers: list[str] = []
    searches: list[str] = []
    for line in text.splitlines():
        words = re.split(r"[#;]", line, maxsplit=1)[0].split()
        if len(words) < 2:
            continue
        if words[0] == "nameserver":
            servers.append(words[1])
        elif words[0] in ("search", "domain"):
            searches = words[1:]
    return Resolver(tuple(servers), tuple(searches))


def _checked(resolver: Resolver) -> Resolver:
    servers = dict.fromkeys(server for server in map(decimal_octets, resolver.servers) if _reachable(server))
    searches = dict.fromkeys(search.rstrip(".") for search in resolver.searches)
    return Resolver(
        tuple(servers)[:MAX_SERVERS], tuple(search for search in searches if _DOMAIN.fullmatch(search))[:MAX_SEARCHES]
    )


def _reachable(server: str) -> bool:
    """Not a loopback address, which is another machine's for the guest, and not one that needs the node's links."""
    try:
        address = ipaddress.ip_address(server)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast)
