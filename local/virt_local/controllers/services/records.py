"""What the cluster's names mean, as the files that dnsmasq reads. Pure.

Addresses go into a file that it reads again on a signal; what stands in its settings needs a new start, so only the
ports of Services are there, which change seldom.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from virt_local.controllers.services.frontends import Frontend, Headless

DOMAIN = "cluster.local"
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def service_domain(service: str) -> str:
    """Of `namespace/name`."""
    namespace, _, name = service.partition("/")
    return f"{name}.{namespace}.svc.{DOMAIN}"


def hosts(frontends: Iterable[Frontend], headless: Iterable[Headless]) -> str:
    """As /etc/hosts; a name with several addresses has several lines. The first name of an address is its own."""
    lines = [(each.address, service_domain(each.service)) for each in frontends]
    for each in headless:
        domain = service_domain(each.service)
        lines += [(address, f"{name}.{domain}") for name, address in each.hosts if _LABEL.fullmatch(name)]
        lines += [(address, domain) for address in each.addresses]
    return "".join(f"{address} {name}\n" for address, name in dict.fromkeys(lines) if _is_name(name))


def ports(frontends: Iterable[Frontend], headless: Iterable[Headless]) -> str:
    """SRV records of named ports. Of a headless Service they lead to its name, which means all of its Pods."""
    found = [(each.service, each.port_name, each.protocol, each.port) for each in frontends if each.port_name]
    found += [(each.service, *port) for each in headless for port in each.ports]
    lines = [
        f"srv-host=_{name}._{protocol}.{service_domain(service)},{service_domain(service)},{number}"
        for service, name, protocol, number in dict.fromkeys(found)
        if _LABEL.fullmatch(name) and _is_name(service_domain(service))
    ]
    return "".join(f"{line}\n" for line in sorted(lines))


def _is_name(text: str) -> bool:
    """The API server checks names; here a line break would be a setting of somebody else."""
    return all(_LABEL.fullmatch(part) for part in text.split("."))
