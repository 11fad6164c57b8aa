"""Keeps the name server of the instance: its files as `records.py` says, and the process itself."""

from __future__ import annotations

import os
import time
from pathlib import Path

from virt_core.apis.services import EndpointSlice, Service
from virt_core.kube.controller import Controller, Result
from virt_core.kube.informer import Informer
from virt_core.kube.workqueue import WorkQueue
from virt_local.controllers.services import records
from virt_local.controllers.services.dnsmasq import UID, Process, Server
from virt_local.controllers.services.frontends import frontends, headless, slices_by_service
from virt_local.controllers.services.proxy import PAUSE_S, pod_networks
from virt_local.node.hostfiles import upstream_file
from virt_local.node.layout import write_atomic
from virt_local.up.instance import Instance

_ALL = "all"
#: A new start loses the questions under way, so whoever makes and removes Services all day does not get one each time.
_BETWEEN_STARTS_S = 2.0


class Names:
    def __init__(
        self, services: Informer[Service], slices: Informer[EndpointSlice], instance: Instance, *, ipv6: bool
    ) -> None:
        self._services = services
        self._slices = slices
        self._pods = pod_networks(instance)
        addresses = (instance.dns_address, *([instance.dns_address_v6] if ipv6 else []))
        self._server = Server(instance.dns_netns_path, addresses, instance.dns_dir, upstream_file())
        self._process = Process(self._server, self._wake)
        self._written: dict[Path, str] = {}
        self._started = 0.0
        self.queue = WorkQueue(name="service-names", max_delay_s=10.0)
        for informer in (services, slices):
            informer.add_handler(on_add=self._wake, on_update=self._wake, on_delete=self._wake)

    def controller(self) -> Controller:
        self._wake()
        informers = (self._services, self._slices)
        return Controller("service-names", self.queue, self.reconcile, workers=1, informers=informers)

    def reconcile(self, _key: str) -> Result | None:
        pieces, services = slices_by_service(self._slices.list()), self._services.list()
        fronts, bare = frontends(services, pieces, self._pods), headless(services, pieces, self._pods)
        self._make_directory()
        if self._write(self._server.hosts, records.hosts(fronts, bare)):
            self._process.read_again()
        later = self._settle_ports(records.ports(fronts, bare))
        if self._process.ensure():
            self._started = time.monotonic()
        return Result(requeue_after_s=later) if later > 0 else None

    def _settle_ports(self, wanted: str) -> float:
        """How long it has to wait, if there was a start just now."""
        there = self._written.get(self._server.ports)
        left = self._started + _BETWEEN_STARTS_S - time.monotonic()
        if there == wanted or (there is not None and left > 0):
            return 0.0 if there == wanted else left
        self._write(self._server.ports, wanted)
        self._process.stop()
        return 0.0

    def close(self) -> None:
        self._process.stop()

    def _make_directory(self) -> None:
        """Only the name server reads what Services there are; other users of the machine do not."""
        directory = self._server.directory
        if not self._written:
            directory.mkdir(mode=0o700, exist_ok=True)
            os.chown(directory, 0, UID)
            directory.chmod(0o710)

    def _write(self, path: Path, text: str) -> bool:
        if self._written.get(path) == text:
            return False
        write_atomic(path, text.encode(), 0o640)
        os.chown(path, 0, UID)
        self._written[path] = text
        return True

    def _wake(self, *_: object) -> None:
        self.queue.add_after(_ALL, PAUSE_S if self._written else 0.0)
