"""Makes the bundle of a container: its root, its mounts, its rights, and the container itself up to its start."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path

from virt_core.apis.pods import Container, Pod
from virt_core.runtime.clock import Clock
from virt_local.node.devices import devices_of, socket_mounts
from virt_local.node.hostfiles import hostname_of
from virt_local.node.images.root import OciMount, Root, mount_overlay
from virt_local.node.images.service import ImageService
from virt_local.node.layout import NodeLayout
from virt_local.node.oci.context import BundleContext, Device
from virt_local.node.oci.downward import DownwardFacts
from virt_local.node.oci.env import environment
from virt_local.node.oci.security import choose_user, is_privileged, seccomp_profile
from virt_local.node.oci.spec import render
from virt_local.node.pods.ports import Events
from virt_local.node.pods.state import PodState
from virt_local.node.runtime import cgroups
from virt_local.node.runtime.containers import Containers, Streams
from virt_local.node.runtime.records import ContainerRecord
from virt_local.node.sandbox import Sandboxes
from virt_local.node.users import PodUsers
from virt_local.node.volumes.base import ObjectSource
from virt_local.node.volumes.manager import VolumeManager
from virt_local.node.volumes.mounts import block_devices, volume_mounts
from virt_local.node.volumes.shown import device_mounts, show_mounts, with_flags

DEFAULT_MESSAGE_PATH = "/dev/termination-log"


@dataclass(frozen=True)
class Parts:
    """The services that starting a container needs."""

    layout: NodeLayout
    sandboxes: Sandboxes
    volumes: VolumeManager
    images: ImageService
    containers: Containers
    objects: ObjectSource
    events: Events
    executor: Executor
    clock: Clock
    cgroup: str
    facts: DownwardFacts


class BundleMaker:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def facts(self, pod: Pod, state: PodState) -> DownwardFacts:
        ips = tuple(state.sandbox.ips) if state.sandbox else ()
        return replace(self._parts.facts, pod_ips=ips, hostname=hostname_of(pod))

    def make(self, pod: Pod, state: PodState, container: Container, record: ContainerRecord, root: Root) -> None:
        """Everything up to the point where only the program has to begin."""
        parts, uid = self._parts, state.uid
        message = parts.layout.messages(uid, container.name) / record.id
        message.parent.mkdir(parents=True, exist_ok=True)
        message.touch()
        message.chmod(0o666)
        record.message_path = str(message)
        bundle = parts.containers.prepare(uid, record)
        root_path = mount_overlay(root, bundle, self._users(state))
        context = self._context(pod, state, container, record, root=root, root_path=root_path)
        stdin = "" if not container.stdin else "once" if container.stdin_once else "keep"
        streams = Streams(Path(record.log_path), stdin, container.tty)
        parts.containers.create(uid, record, render(context), streams)

    def _context(
        self,
        pod: Pod,
        state: PodState,
        container: Container,
        record: ContainerRecord,
        *,
        root: Root,
        root_path: Path,
    ) -> BundleContext:
        parts, uid = self._parts, state.uid
        assert state.sandbox is not None
        facts, users = self.facts(pod, state), self._users(state)
        env = environment(pod, container, root.config, facts, parts.objects)
        mounts, devices = self._mounts(state, container, record, env), self._devices(state, container)
        if users is not None:
            bundle = parts.containers.bundle(uid, record)
            mounts = [*show_mounts(mounts, bundle, users), *device_mounts(devices, bundle)]
            root = replace(root, mounts=tuple(map(with_flags, root.mounts)))
        return BundleContext(
            pod=pod,
            container=container,
            root=root,
            root_path=root_path,
            user=choose_user(pod, container, root.config.user, root_path),
            env=env,
            hostname=facts.hostname,
            cgroup=f"{parts.cgroup}/pod{uid}/{record.id}",
            netns=parts.sandboxes.netns(state.sandbox),
            mounts=mounts,
            devices=devices,
            seccomp=seccomp_profile(pod, container, parts.layout.seccomp),
            unified_cgroups=cgroups.only_unified(),
            users=users,
        )

    def _users(self, state: PodState) -> PodUsers | None:
        return self._parts.sandboxes.users(state.sandbox) if state.sandbox is not None else None

    def _devices(self, state: PodState, container: Container) -> list[Device]:
        """A privileged container sees all devices of the node anyway."""
        assert state.volumes is not None
        own = [] if is_privileged(container) else devices_of(container)
        return [*own, *block_devices(container, state.volumes.mounted)]

    def _mounts(
        self, state: PodState, container: Container, record: ContainerRecord, env: dict[str, str]
    ) -> list[OciMount]:
        assert state.volumes is not None
        subpaths = self._parts.layout.subpaths(state.uid)
        mounts = [*volume_mounts(container, state.volumes.mounted, env, subpaths), *socket_mounts(container)]
        own = self._parts.sandboxes.mounts(state.uid)
        own.append(
            {
                "destination": container.termination_message_path or DEFAULT_MESSAGE_PATH,
                "type": "bind",
                "source": record.message_path,
                "options": ["bind", "rw", "nosuid", "nodev"],
            }
        )
        taken = {mount["destination"] for mount in mounts}
        return [*mounts, *(mount for mount in own if mount["destination"] not in taken)]
