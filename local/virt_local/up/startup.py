"""The order in which an instance comes up, and how each part is known to be ready."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from virt_core.kube.client import KubeClient
from virt_core.kube.connect import load_connection
from virt_local.node import users
from virt_local.storage.store import forget_stale_devices
from virt_local.up import components, network, readiness, whereabouts
from virt_local.up.accounts import Accounts
from virt_local.up.bootstrap import apply_all
from virt_local.up.ending import open_nodes
from virt_local.up.instance import Instance
from virt_local.up.manifests import base_objects, default_configuration, product_objects
from virt_local.up.material import Material, make_material
from virt_local.up.probe import ensure_probe, run_probe
from virt_local.up.processes import ProcessTable
from virt_local.up.progress import Progress
from virt_local.up.readiness import Check, wait_ready
from virt_local.up.state import save_settings

_API_S = 30.0
_READY_S = 90.0
_MAX_RESTARTS = 5


class Startup:
    """Runs once, in its own thread, while the process table already restarts what dies."""

    def __init__(
        self,
        instance: Instance,
        table: ProcessTable,
        progress: Progress,
        stop: threading.Event,
        *,
        product: bool,
        host_users: bool = False,
    ) -> None:
        self._instance = instance
        self._table = table
        self._progress = progress
        self._stop = stop
        self._product = product
        self._host_users = host_users
        self._material: Material = make_material(instance)
        self._client = KubeClient(load_connection(str(instance.admin_kubeconfig)), "virt-local")
        self.accounts = Accounts(instance, self._material, self._client)

    def run(self) -> None:
        save_settings(self._instance, components=self._product)
        whereabouts.remember(self._instance)
        network.set_up(self._instance)
        self._progress.step(f"made certificates, and network {self._instance.network} on {self._instance.bridge}")
        self._table.start(components.apiserver(self._instance, self._material))
        self._wait([Check(components.API_SERVER, partial(readiness.api_ready, self._client))], _API_S)
        open_nodes(self._client)
        forget_stale_devices(components.volume_dir(self._instance))
        self._start_cluster()
        self._write_objects()
        checks = self._cluster_checks()
        if self._product:
            self._start_product()
            checks += self._product_checks()
        self._wait(checks, _READY_S)
        if self._product and apply_all(self._client, [default_configuration()]):
            self._progress.step("wrote the default configuration")

    def close(self) -> None:
        self._client.close()

    def _start_cluster(self) -> None:
        """Controllers and nodes start while the first objects are written."""
        components.controllers_ready(self._instance).unlink(missing_ok=True)
        self._table.start(components.controllers(self._instance))
        for each in self._instance.nodes:
            self._table.start(components.node(self._instance, each, self._material))

    def _write_objects(self) -> None:
        written = apply_all(self._client, base_objects(self._material))
        if self._product:
            written += apply_all(self._client, product_objects(self._instance, self._material))
        self._progress.step(f"wrote {written} API objects" if written else "all API objects are up to date")

    def _start_product(self) -> None:
        instance = self._instance
        self.accounts.issue("virt-api")
        self._table.start(components.virt_api(instance, self._material))
        self.accounts.issue("virt-controller")
        self._table.start(components.virt_controller(instance, user_namespaces=self._user_namespaces()))
        ensure_probe(components.node_info_dir(instance), self._probe)
        for each in instance.nodes:
            known = partial(readiness.node_registered, self._client, each)
            self._wait([Check(components.node_component(each), known)], _API_S, quiet=True)
            self.accounts.issue_for_node("virt-handler", each.name)
            self._table.start(components.virt_handler(instance, each))

    def _user_namespaces(self) -> bool:
        """For each machine, unless it was switched off or cannot be: then all of them share a user of this machine."""
        if self._host_users:
            return False
        if users.work_here(self._instance.run_dir):
            return True
        self._progress.line(
            "Note: this kernel or the file system of the data has no idmapped mounts; guests share uid 107."
        )
        return False

    def _probe(self, directory: Path) -> None:
        self._progress.step("asking QEMU and libvirt what they can do (once; takes some seconds)")
        run_probe(self._instance, directory, self._stop)

    def _cluster_checks(self) -> list[Check]:
        nodes = [
            Check(components.node_component(each), partial(readiness.node_ready, self._client, each))
            for each in self._instance.nodes
        ]
        return [Check("controllers", components.controllers_ready(self._instance).exists), *nodes]

    def _product_checks(self) -> list[Check]:
        instance, ca = self._instance, self._material.virtpod_ca.pem
        controller = partial(readiness.http_ok, "127.0.0.1", instance.controller_health_port, "/readyz")
        checks = [
            Check("virt-api", partial(readiness.virt_api_ready, self._client, instance, ca)),
            Check("virt-controller", controller),
        ]
        for each in instance.nodes:
            ready = partial(readiness.handler_ready, each, components.HANDLER_HEALTH_PORT)
            checks.append(Check(components.handler_component(each), ready))
        return checks

    def _wait(self, checks: list[Check], within_s: float, *, quiet: bool = False) -> None:
        tell: Callable[[str], None] = (lambda _: None) if quiet else self._tell
        wait_ready(checks, within_s=within_s, stop=self._stop, tell=tell, hopeless=self._hopeless)

    def _hopeless(self, component: str) -> str:
        """A component that ends again and again will not become ready by waiting."""
        for state in self._table.states():
            if state.name == component and state.restarts >= _MAX_RESTARTS:
                return f"it ended {state.restarts} times, last with {state.last_exit}"
        return ""

    def _tell(self, component: str) -> None:
        self._progress.step(f"{component} is ready")
