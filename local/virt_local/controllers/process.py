"""`virt-local controllers`: all controllers in one process, each with its own queue, all fed by shared informers."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from virt_core.apis.coordination import Lease
from virt_core.apis.nodes import Node
from virt_core.apis.pods import Pod
from virt_core.apis.services import EndpointSlice, Service
from virt_core.apis.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from virt_core.kube.client import KubeClient
from virt_core.kube.connect import load_connection
from virt_core.kube.controller import Controller
from virt_core.kube.informer import Informer, wait_for_sync
from virt_core.kube.recorder import EventRecorder
from virt_core.runtime.logs import get_logger
from virt_core.runtime.supervisor import Supervisor
from virt_local.controllers.node_lifecycle import LEASE_NAMESPACE, NodeLifecycle
from virt_local.controllers.pod_gc import PodCollector
from virt_local.controllers.scheduler.controller import NAME as SCHEDULER
from virt_local.controllers.scheduler.controller import Scheduler
from virt_local.controllers.services.endpoints import Endpoints
from virt_local.controllers.services.names import Names
from virt_local.controllers.services.proxy import Proxy
from virt_local.controllers.volume_claims import VolumeClaims
from virt_local.storage import process as storage
from virt_local.up.forwarding import has_ipv6
from virt_local.up.state import load_instance

log = get_logger("virt-local.controllers")


@dataclass
class Options:
    kubeconfig: str
    volume_dir: Path
    data_dir: Path | None = None  # of an instance, whose Services are then served
    ready_file: Path | None = None


def run(options: Options) -> NoReturn:
    supervisor = Supervisor("controllers")
    client = KubeClient(load_connection(options.kubeconfig), "virt-local-controllers")
    informers, controllers = build(client, supervisor, options)
    for name, informer in informers.items():
        supervisor.thread(f"informer-{name}", informer.run)
    for controller in controllers:
        supervisor.thread(controller.name, controller.run)
    supervisor.thread("ready", lambda stop: _announce(stop, informers, options.ready_file), may_end=True)
    supervisor.on_stop(client.close)
    supervisor.run_and_exit()


def build(
    client: KubeClient, supervisor: Supervisor, options: Options
) -> tuple[dict[str, Informer[Any]], list[Controller]]:
    pods = Informer(client, Pod)
    nodes = Informer(client, Node)
    leases = Informer(client, Lease, LEASE_NAMESPACE)
    claims = Informer(client, PersistentVolumeClaim)
    volumes = Informer(client, PersistentVolume)
    classes = Informer(client, StorageClass)
    scheduling = EventRecorder(client, SCHEDULER)
    lifecycle = EventRecorder(client, "node-controller")
    binding = EventRecorder(client, "persistentvolume-controller")
    for name, recorder in (("scheduler", scheduling), ("nodes", lifecycle), ("claims", binding)):
        supervisor.thread(f"events-{name}", recorder.run)
    world = storage.make_world(
        client, supervisor, options.volume_dir, pods=pods, claims=claims, volumes=volumes, classes=classes
    )
    controllers = [
        Scheduler(client, pods, nodes, scheduling, claims=claims, volumes=volumes, classes=classes).controller(),
        NodeLifecycle(client, nodes, leases, lifecycle).controller(),
        PodCollector(client, pods, nodes).controller(),
        VolumeClaims(client, claims, volumes, classes, recorder=binding).controller(),
        *storage.controllers(world),
    ]
    informers: dict[str, Informer[Any]] = {
        "pods": pods,
        "nodes": nodes,
        "leases": leases,
        "claims": claims,
        "volumes": volumes,
        "classes": classes,
        **storage.own_informers(world),
    }
    if options.data_dir is not None:
        informers |= _serve_services(client, supervisor, pods, options.data_dir, controllers)
    return informers, controllers


def _serve_services(
    client: KubeClient, supervisor: Supervisor, pods: Informer[Pod], data_dir: Path, controllers: list[Controller]
) -> dict[str, Informer[Any]]:
    """Adds what makes Services work in an instance; returns the informers of it."""
    found = load_instance(data_dir)
    if found is None:
        raise RuntimeError(f"there is no instance in {data_dir}")
    instance, ipv6 = found[0], has_ipv6()
    services, slices = Informer(client, Service), Informer(client, EndpointSlice)
    names = Names(services, slices, instance, ipv6=ipv6)
    supervisor.on_stop(names.close)
    controllers += [
        Endpoints(client, services, pods, slices).controller(),
        Proxy(services, slices, instance, ipv6=ipv6).controller(),
        names.controller(),
    ]
    return {"services": services, "endpointslices": slices}


def _announce(stop: threading.Event, informers: dict[str, Informer[Any]], ready_file: Path | None) -> None:
    """Tells the supervisor, by a file, that every informer has seen the world once."""
    while not wait_for_sync(stop, *informers.values(), timeout_s=30.0):
        if stop.is_set():
            return
        log.warning("still waiting for the API server")
    if ready_file is not None:
        ready_file.touch()
    log.info("ready")
