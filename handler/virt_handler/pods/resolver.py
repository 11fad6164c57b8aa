"""Which name servers a guest is told: those of its Pod. Parsing is pure; reading goes through the Pod's own root.

The file lies in a root that the VM's process may have changed, so it is opened beneath that root without following
links, read up to a limit, and every word in it is checked before it goes on.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from virt_core.apis.networks import decimal_octets
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.runtime.logs import get_logger
from virt_handler.pods import isolation

log = get_logger(__name__)

PATH = "etc/resolv.conf"
MAX_BYTES = 64 * 1024
#: More does not fit into an answer of DHCP that every client takes; libc itself uses three servers.
MAX_SERVERS = 6
MAX_SEARCHES = 16

_DOMAIN = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,62})(?:\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62})*")


@dataclass(frozen=True, slots=True)
class Resolver:
    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()


def of_vmi(vmi: VirtualMachineInstance, pod_uid: str) -> Resolver:
    """The Pod's resolver with what the spec asks for; with the policy None, only the latter."""
    config = vmi.spec.dns_config
    asked = Resolver(tuple(config.nameservers), tuple(config.searches)) if config is not None else Resolver()
    if vmi.spec.dns_policy == "None":
        return _checked(asked)
    pod = of_pod(pod_uid)
    return _checked(Resolver(asked.servers + pod.servers, pod.searches + asked.searches))


def of_pod(pod_uid: str) -> Resolver:
    """Without a readable file the guest goes without: that must not keep it from starting."""
    try:
        text = isolation.read_file(pod_uid, PATH, MAX_BYTES).decode(errors="replace")
    except (OSError, isolation.NoNamespaceError) as error:
        log.warning(
            "the Pod's resolv.conf cannot be read; the guest gets no name servers", pod=pod_uid, error=str(error)
        )
        return Resolver()
    return parse(text)


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
