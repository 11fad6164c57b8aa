"""Sockets of the node's own services that some machines may use: the helper for SCSI reservations, and the service that
vouches for guests on Intel TDX.

A launcher gets the directory of such a socket as a mount, only to be read, so that it also finds the one that a
restarted service makes anew. No Pod has to name a path of the node for it, and the count means nothing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from virt_core.apis import names
from virt_core.kube.configvalues import ClusterConfig
from virt_handler.node.devices.units import Allotment, Host, Unit, UnitGoneError

TDX_GATE = "WorkloadEncryptionTDX"


@dataclass(frozen=True, slots=True)
class Place:
    """The path of a socket on the node, and in a launcher."""

    outside: str
    inside: str


@dataclass(frozen=True, slots=True)
class SharedSocket:
    resource: str
    #: None while the cluster's configuration does not open it to machines.
    where: Callable[[ClusterConfig], Place | None]
    host: Host
    config: Callable[[], ClusterConfig]
    count: Callable[[], int]
    #: No machine waits for it unless it asks for it.
    common: bool = False

    def allowed(self, config: ClusterConfig) -> bool:
        return self.where(config) is not None

    @property
    def usable(self) -> bool:
        return self._listens(self._place())

    def look(self) -> list[Unit]:
        name, healthy = self.resource.rpartition("/")[2], self.usable
        return [Unit(f"{name}{number}", (), healthy) for number in range(self.count())]

    def paths(self) -> list[str]:
        place = self._place()
        return [] if place is None else [place.outside]

    def allot(self, ids: Iterable[str]) -> Allotment:
        del ids  # One is like the other.
        place = self._place()
        if place is None or not self._listens(place):
            raise UnitGoneError(f"{self.resource}: nobody listens for it on this node now")
        return Allotment((), mounts=((os.path.dirname(place.outside), os.path.dirname(place.inside)),))

    def _place(self) -> Place | None:
        return self.where(self.config())

    def _listens(self, place: Place | None) -> bool:
        try:
            return place is not None and stat.S_ISSOCK(os.lstat(self.host.path(place.outside)).st_mode)
        except OSError:
            return False


def sockets(host: Host, config: Callable[[], ClusterConfig], count: Callable[[], int]) -> list[SharedSocket]:
    return [
        SharedSocket(names.RESOURCE_RESERVATIONS, reservations, host, config, count),
        SharedSocket(names.RESOURCE_TDX, quotes, host, config, count),
    ]


def reservations(config: ClusterConfig) -> Place | None:
    return Place(names.NODE_SOCKET_RESERVATIONS, names.SOCKET_RESERVATIONS) if config.persistent_reservation else None


def quotes(config: ClusterConfig) -> Place | None:
    """`confidentialCompute.tdx.attestation.qgsSocketPath` of the KubeVirt object."""
    value: object = config.raw if config.has(TDX_GATE) else None
    for key in ("confidentialCompute", "tdx", "attestation", "qgsSocketPath"):
        value = value.get(key) if isinstance(value, Mapping) else None
    path = value if isinstance(value, str) else ""
    # The directory is handed out whole, so it must be one of the service's own: /run itself is not.
    outside = f"/run{path.removeprefix('/var/run')}" if path.startswith("/var/run/") else path
    if not os.path.isabs(path) or os.path.normpath(path) != path or outside.count("/") < 3:
        return None
    return Place(outside, path)
