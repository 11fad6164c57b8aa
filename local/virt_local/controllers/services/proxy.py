"""Keeps the tables of the machine and of its nodes as `rules.py` says, whenever a Service or its endpoints change."""

from __future__ import annotations

import ipaddress
import subprocess
from dataclasses import dataclass

from virt_core.apis.services import EndpointSlice, Service
from virt_core.kube.controller import Controller, Result
from virt_core.kube.informer import Informer
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.logs import get_logger
from virt_local.controllers.services import flows
from virt_local.controllers.services.frontends import Frontend, Network, frontends, slices_by_service
from virt_local.controllers.services.rules import Place, render
from virt_local.up.errors import NetworkError
from virt_local.up.instance import Instance

log = get_logger("virt-local.services")

_ALL = "all"
#: Changes that come closer together than this are carried out together: nobody makes the machine load rules all day.
PAUSE_S = 0.1
_DEADLINE_S = 20.0


@dataclass(frozen=True, slots=True)
class Site:
    """A network namespace (the machine's own without a name), and its tables."""

    netns: str
    places: tuple[Place, ...]


def sites(instance: Instance, *, ipv6: bool) -> list[Site]:
    families = {"ip": instance.service_range} | ({"ip6": instance.service_range_v6} if ipv6 else {})
    table, bridge = instance.services_table, instance.bridge
    found = [Site("", tuple(Place(table, family, each, closed_to=bridge) for family, each in families.items()))]
    for node in instance.nodes:
        pods = {"ip": node.pod_cidr, "ip6": node.pod_cidr_v6}
        places = tuple(Place(table, family, each, node.name, pods[family]) for family, each in families.items())
        found.append(Site(node.netns_path, places))
    return found


def pod_networks(instance: Instance) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(text) for node in instance.nodes for text in (node.pod_cidr, node.pod_cidr_v6))


class Proxy:
    def __init__(
        self, services: Informer[Service], slices: Informer[EndpointSlice], instance: Instance, *, ipv6: bool
    ) -> None:
        self._services = services
        self._slices = slices
        self._sites = sites(instance, ipv6=ipv6)
        self._pods = pod_networks(instance)
        self._loaded: dict[str, str] = {}
        self._datagrams: frozenset[tuple[str, str]] = frozenset()
        self.queue = WorkQueue(name="service-rules", max_delay_s=10.0)
        for informer in (services, slices):
            informer.add_handler(on_add=self._wake, on_update=self._wake, on_delete=self._wake)

    def controller(self) -> Controller:
        self._wake()  # Without any Service the tables refuse.
        informers = (self._services, self._slices)
        return Controller("service-rules", self.queue, self.reconcile, workers=1, informers=informers)

    def reconcile(self, _key: str) -> Result | None:
        found = frontends(self._services.list(), slices_by_service(self._slices.list()), self._pods)
        changed = [site for site in self._sites if self._load(site, found)]
        if changed:
            log.info("loaded the rules of Services", ports=len(found), places=len(changed))
        self._end_old_flows(found)
        return None

    def _load(self, site: Site, found: list[Frontend]) -> bool:
        script = "".join(render(place, found) for place in site.places)
        if self._loaded.get(site.netns) == script:
            return False
        load(site.netns, script)
        self._loaded[site.netns] = script
        return True

    def _end_old_flows(self, found: list[Frontend]) -> None:
        """Datagrams have no end that the kernel sees: a busy client would be sent for ever to a Pod that is gone."""
        now = frozenset(
            (each.address, end.address) for each in found if each.protocol == "udp" for end in each.backends
        )
        gone = {end for _, end in self._datagrams - now}
        if gone:
            for site in self._sites:
                flows.end(site.netns, gone)
        self._datagrams = now

    def _wake(self, *_: object) -> None:
        self.queue.add_after(_ALL, PAUSE_S if self._loaded else 0.0)


def load(netns: str, script: str) -> None:
    """In one transaction: the kernel has the old rules or the new ones."""
    enter = ["nsenter", f"--net={netns}", "--"] if netns else []
    try:
        done = subprocess.run(
            [*enter, "nft", "-f", "-"], input=script, capture_output=True, text=True, timeout=_DEADLINE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as err:
        raise NetworkError(f"nft: {err}") from err
    if done.returncode != 0:
        raise NetworkError(f"nft in {netns or 'the machine'}: {done.stderr.strip()[:2000] or done.returncode}")
