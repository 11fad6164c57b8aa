"""Which addresses and ports of the machine's Services are whose: chosen for new Services, kept, and given back.

What stands in the store is taken; what a request under way has chosen is held until it is stored or has failed, so two
requests never choose the same.
"""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from virt_local.apiserver.builtins.service_fields import (
    NONE,
    choose_families,
    drop_unneeded,
    is_address,
    keep_assigned,
    needs_address,
    needs_node_ports,
)
from virt_local.apiserver.errors import Cause
from virt_local.apiserver.schema.validate import bad_value
from virt_local.apiserver.storage import Record, Store
from virt_local.apiserver.storage.feed import DELETED, Change

Object = dict[str, Any]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

NODE_PORTS = range(30000, 32768)
#: Those below are left to people who name a port or an address themselves, as long as there are others.
_FIRST_CHOSEN_PORT = 30086
_FIRST_CHOSEN_ADDRESS = 256
_TRIES = 64


@dataclass(frozen=True, slots=True)
class Ranges:
    """By family, `IPv4` first. Without any nothing is given out: a server of its own, without nodes."""

    networks: dict[str, Network] = field(default_factory=dict)


def parse_ranges(texts: list[str]) -> Ranges:
    networks = [ipaddress.ip_network(text) for text in texts]
    return Ranges({f"IPv{network.version}": network for network in networks})


class Full(Exception):
    """There is nothing left to give."""


class Addresses:
    """Use it from the server's event loop only."""

    def __init__(self, store: Store, ranges: Ranges) -> None:
        self.ranges = ranges
        self._taken: dict[tuple[str, str], frozenset[str]] = {}
        self._counts: dict[str, int] = {}
        self._held: set[str] = set()
        self._random = random.SystemRandom()
        for record in store.list("services"):
            self._remember(record)
        store.subscribe("services", self._changed)

    @contextmanager
    def settle(self, service: Object, old: Object | None) -> Iterator[list[Cause]]:
        """Completes the Service in place. What it got is held until the block ends; yields what could not be had."""
        if old is not None:
            keep_assigned(service, old)
            drop_unneeded(service, old)
        causes = choose_families(service["spec"], list(self.ranges.networks) or ["IPv4", "IPv6"])
        mine = claims(old) if old is not None else frozenset()
        got: set[str] = set()
        try:
            if self.ranges.networks and not causes:
                causes = self._addresses(service["spec"], mine, got) + self._node_ports(service["spec"], mine, got)
            yield causes
        finally:
            self._held -= got

    def _addresses(self, spec: Object, mine: frozenset[str], got: set[str]) -> list[Cause]:
        wanted = list(spec.get("clusterIPs") or ())
        if not needs_address(spec) or not all(map(is_address, wanted)):
            return []  # The rules of its kind name what is none.
        for index, family in enumerate(spec["ipFamilies"]):
            try:
                if index >= len(wanted):
                    wanted.append(self._choose_address(family))
                elif wanted[index] not in mine:
                    self._check_address(family, wanted[index])
            except (Full, ValueError) as error:
                shown = wanted[index : index + 1]
                text = f"failed to allocate IP {shown[0]}: {error}" if shown else str(error)
                return [bad_value("spec.clusterIPs", shown, text)]
            self._hold(wanted[index], mine, got)
        spec["clusterIP"], spec["clusterIPs"] = wanted[0], wanted
        return []

    def _choose_address(self, family: str) -> str:
        network = self.ranges.networks[family]
        size = min(network.num_addresses, 1 << 16)
        for _ in range(_TRIES):
            chosen = str(network[self._random.randrange(min(_FIRST_CHOSEN_ADDRESS, size // 2), size - 1)])
            if self._free(chosen):
                return chosen
        for offset in range(1, size - 1):
            if self._free(str(network[offset])):
                return str(network[offset])
        raise Full(f"failed to allocate a serviceIP: range {network} is full")

    def _check_address(self, family: str, text: str) -> None:
        network, address = self.ranges.networks[family], ipaddress.ip_address(text)
        if address not in network or address in (network[0], network[-1]):
            why = f"the provided IP ({text}) is not in the valid range. The range of valid IPs is {network}"
            raise ValueError(why)
        if not self._free(text):
            raise ValueError("provided IP is already allocated")

    def _node_ports(self, spec: Object, mine: frozenset[str], got: set[str]) -> list[Cause]:
        causes: list[Cause] = []
        ports = (spec.get("ports") or ()) if needs_node_ports(spec) else ()
        for index, port in enumerate(ports):
            wanted = port.get("nodePort")
            if not wanted:
                continue
            if wanted not in NODE_PORTS:
                why = f"The range of valid ports is {NODE_PORTS[0]}-{NODE_PORTS[-1]}"
                why = f"provided port is not in the valid range. {why}"
            else:
                why = (
                    "" if self._free(str(wanted)) or str(wanted) in mine | got else "provided port is already allocated"
                )
            if why:
                causes.append(bad_value(f"spec.ports[{index}].nodePort", wanted, why))
            else:
                self._hold(str(wanted), mine, got)
        if not causes:
            causes += self._choose_ports(ports, got)
        return causes

    def _choose_ports(self, ports: Any, got: set[str]) -> list[Cause]:
        for index, port in enumerate(ports):
            if not port.get("nodePort"):
                try:
                    port["nodePort"] = self._choose_port()
                except Full as error:
                    return [bad_value(f"spec.ports[{index}].nodePort", 0, f"failed to allocate a nodePort: {error}")]
                self._hold(str(port["nodePort"]), frozenset(), got)
        return []

    def _choose_port(self) -> int:
        for _ in range(_TRIES):
            chosen = self._random.randrange(_FIRST_CHOSEN_PORT, NODE_PORTS.stop)
            if self._free(str(chosen)):
                return chosen
        for chosen in NODE_PORTS:
            if self._free(str(chosen)):
                return chosen
        raise Full("range is full")

    def _free(self, claim: str) -> bool:
        return claim not in self._counts and claim not in self._held

    def _hold(self, claim: str, mine: frozenset[str], got: set[str]) -> None:
        if claim not in mine:
            self._held.add(claim)
            got.add(claim)

    def _changed(self, change: Change) -> None:
        self._forget((change.record.namespace, change.record.name))
        if change.type != DELETED:
            self._remember(change.record)

    def _remember(self, record: Record) -> None:
        taken = self._taken[record.namespace, record.name] = claims(record.object())
        for claim in taken:
            self._counts[claim] = self._counts.get(claim, 0) + 1

    def _forget(self, key: tuple[str, str]) -> None:
        for claim in self._taken.pop(key, frozenset()):
            self._counts[claim] -= 1
            if not self._counts[claim]:
                del self._counts[claim]


def claims(service: Object) -> frozenset[str]:
    """Its addresses and its ports of the machine, as words."""
    spec = service.get("spec") or {}
    addresses = [each for each in spec.get("clusterIPs") or [spec.get("clusterIP")] if each and each != NONE]
    ports = [str(port["nodePort"]) for port in spec.get("ports") or () if port.get("nodePort")]
    return frozenset((*addresses, *ports))
