"""All storage controllers with what they need: inside virt-local's controllers, or as a program of its own
(`virt-local storage`) beside any API server whose nodes have the directory at the same path."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from virt_core.apis.pods import Pod
from virt_core.apis.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from virt_core.apis.volumesnapshots import VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent
from virt_core.kube.client import KubeClient
from virt_core.kube.connect import load_connection
from virt_core.kube.controller import Controller
from virt_core.kube.informer import Informer
from virt_core.kube.recorder import EventRecorder
from virt_core.runtime.supervisor import Supervisor
from virt_local.storage.contents import Contents
from virt_local.storage.devices import Devices
from virt_local.storage.provisioner import Provisioner
from virt_local.storage.resizer import Resizer
from virt_local.storage.snapshots import Snapshots
from virt_local.storage.store import VolumeStore
from virt_local.storage.vocabulary import PROVISIONER
from virt_local.storage.world import World


@dataclass
class Options:
    kubeconfig: str
    volume_dir: Path


def run(options: Options) -> NoReturn:
    supervisor = Supervisor("storage")
    client = KubeClient(load_connection(options.kubeconfig), "virt-local-storage")
    shared: dict[str, Informer[Any]] = {
        "pods": Informer(client, Pod),
        "claims": Informer(client, PersistentVolumeClaim),
        "volumes": Informer(client, PersistentVolume),
        "classes": Informer(client, StorageClass),
    }
    world = make_world(client, supervisor, options.volume_dir, **shared)
    for name, informer in (shared | own_informers(world)).items():
        supervisor.thread(f"informer-{name}", informer.run)
    for controller in controllers(world):
        supervisor.thread(controller.name, controller.run)
    supervisor.on_stop(client.close)
    supervisor.run_and_exit()


def make_world(
    client: KubeClient,
    supervisor: Supervisor,
    volume_dir: Path,
    *,
    pods: Informer[Pod],
    claims: Informer[PersistentVolumeClaim],
    volumes: Informer[PersistentVolume],
    classes: Informer[StorageClass],
) -> World:
    recorder = EventRecorder(client, PROVISIONER.replace("/", "-"))
    supervisor.thread("events-storage", recorder.run)
    return World(
        *(client, recorder, VolumeStore(volume_dir).open(), pods, claims, volumes, classes),
        Informer(client, VolumeSnapshot),
        Informer(client, VolumeSnapshotContent),
        Informer(client, VolumeSnapshotClass),
    )


def own_informers(world: World) -> dict[str, Informer[Any]]:
    """Of kinds that come with CRDs: they may be there a moment later than the API."""
    return {
        "snapshots": world.snapshots,
        "snapshot-contents": world.contents,
        "snapshot-classes": world.snapshot_classes,
    }


def controllers(world: World) -> Iterable[Controller]:
    for each in (Provisioner(world), Resizer(world), Devices(world), Snapshots(world), Contents(world)):
        yield each.controller()
