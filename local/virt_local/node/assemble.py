"""Puts the parts of the Pod runtime together. Used by the node process and by tests, with other sources and sinks."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from virt_core.runtime.clock import Clock
from virt_local.node.cni import Cni, CniSettings, pod_bridge
from virt_local.node.images.host import HOST_IMAGE, HostImage
from virt_local.node.images.pull import pull
from virt_local.node.images.service import ImageService
from virt_local.node.images.store import ImageStore
from virt_local.node.layout import NodeLayout
from virt_local.node.networks.keeper import PodNetworks
from virt_local.node.oci.downward import DownwardFacts
from virt_local.node.pods.bundles import Parts
from virt_local.node.pods.manager import PodManager
from virt_local.node.pods.ports import Events, PodSource, StatusSink
from virt_local.node.runtime import cgroups
from virt_local.node.runtime.containers import Containers
from virt_local.node.runtime.monitor import MonitorSettings
from virt_local.node.runtime.runc import Runc
from virt_local.node.sandbox import Sandboxes
from virt_local.node.volumes.base import ObjectSource
from virt_local.node.volumes.manager import VolumeManager

CNI_DIRS = ("/usr/lib/cni", "/opt/cni/bin")


class SetupError(RuntimeError):
    """The node cannot work on this machine; says what to do."""


@dataclass(frozen=True)
class NodeSettings:
    instance: str
    name: str
    root: Path
    image_store: Path
    pod_cidrs: tuple[str, ...]
    node_ips: tuple[str, ...]
    cpus: Decimal
    memory: int
    protected: tuple[Path, ...] = ()
    host_image: str = HOST_IMAGE
    cni_dirs: tuple[str, ...] = CNI_DIRS
    runc: str = "runc"
    conmon: str = "conmon"
    cgroup_parent: str = ""
    cluster_dns: tuple[str, ...] = ()

    @property
    def cgroup(self) -> str:
        return f"{self.cgroup_parent or cgroups.of_instance(self.instance)}/{self.name}"

    @property
    def bridge(self) -> str:
        return pod_bridge(self.instance)

    @property
    def network(self) -> str:
        return f"{self.instance}-pods"


@dataclass(frozen=True)
class Runtime:
    manager: PodManager
    containers: Containers
    layout: NodeLayout
    store: ImageStore
    executors: tuple[ThreadPoolExecutor, ...]

    def close(self) -> None:
        for executor in self.executors:
            executor.shutdown(wait=False, cancel_futures=True)


def find_program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise SetupError(f"the program {name} is missing: install the package of that name")
    return found


def cni_of(settings: NodeSettings) -> Cni:
    return Cni(
        CniSettings(
            network=settings.network,
            bridge=settings.bridge,
            pod_cidrs=settings.pod_cidrs,
            lease_dir=settings.root / "ipam",
            plugin_dirs=settings.cni_dirs,
        )
    )


def containers_of(settings: NodeSettings, layout: NodeLayout, clock: Clock) -> Containers:
    runc = find_program(settings.runc)
    monitor = MonitorSettings(find_program(settings.conmon), runc, layout.runc, f"{settings.cgroup}/monitors")
    return Containers(layout, Runc(runc, layout.runc), monitor, clock)


def assemble(
    settings: NodeSettings,
    source: PodSource,
    sink: StatusSink,
    *,
    objects: ObjectSource,
    events: Events,
    clock: Clock,
) -> Runtime:
    """Ready to run: the directories are there, nothing has been started."""
    if set(str(settings.root)) & set(",:\\"):
        raise SetupError(f"the data directory {settings.root} must not contain a comma, a colon or a backslash")
    layout = NodeLayout(settings.root)
    layout.make()
    work, pulls = ThreadPoolExecutor(24, "node-work"), ThreadPoolExecutor(3, "node-pull")
    store, cni = ImageStore(settings.image_store), cni_of(settings)
    host = HostImage(settings.root / "host-image", [settings.root, settings.image_store, *settings.protected])
    images = ImageService(store, host, settings.host_image, puller=pull, executor=pulls, clock=clock)
    containers, networks = containers_of(settings, layout, clock), PodNetworks(layout, cni.plugins, objects)
    parts = Parts(
        layout=layout,
        sandboxes=Sandboxes(layout, cni, clock, networks, cluster_dns=settings.cluster_dns),
        volumes=VolumeManager(layout, objects, clock),
        images=images,
        containers=containers,
        objects=objects,
        events=events,
        executor=work,
        clock=clock,
        cgroup=settings.cgroup,
        facts=DownwardFacts(settings.name, settings.node_ips, (), "", settings.cpus, settings.memory),
    )
    return Runtime(PodManager(parts, source, sink, cni), containers, layout, store, (work, pulls))
