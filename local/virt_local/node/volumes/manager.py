"""Makes the volumes of a Pod and turns a container's volumeMounts into mounts of its bundle."""

from __future__ import annotations

import stat
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from virt_core.apis import names
from virt_core.apis.pods import Container, Pod
from virt_core.apis.podvolumes import EmptyDirVolumeSource, HostPathVolumeSource, Volume
from virt_core.apis.quantity import parse_bytes
from virt_core.runtime.clock import Clock
from virt_local.node import kernel
from virt_local.node.layout import NodeLayout, shared_directory
from virt_local.node.oci.downward import DownwardFacts
from virt_local.node.volumes.atomic import write_files
from virt_local.node.volumes.base import (
    EMPTY_DIR_MODE,
    Mounted,
    ObjectSource,
    VolumeError,
    fs_group,
    give_to_group,
    huge_pages,
    make_owned_directory,
)
from virt_local.node.volumes.payload import Collector

_PAYLOAD_PLUGINS = {
    "config_map": "configmap",
    "secret": "secret",
    "downward_api": "downward-api",
    "projected": "projected",
}


@dataclass
class VolumeSet:
    """The volumes of one Pod, and when their content must be renewed."""

    mounted: dict[str, Mounted] = field(default_factory=dict)
    renew_at: datetime | None = None
    refreshable: bool = False


class VolumeManager:
    def __init__(self, layout: NodeLayout, source: ObjectSource, clock: Clock) -> None:
        self._layout = layout
        self._source = source
        self._clock = clock

    def prepare(self, pod: Pod, facts: DownwardFacts, images: dict[str, Path]) -> VolumeSet:
        """All volumes; `images` holds the unpacked content of image volumes by volume name. Raises VolumeError."""
        result = VolumeSet()
        for volume in pod.spec.volumes:
            try:
                result.mounted[volume.name] = self._make(pod, volume, facts, images, result)
            except OSError as err:
                raise VolumeError(f"volume {volume.name!r}: {err}") from err
            except VolumeError as err:
                raise VolumeError(f"volume {volume.name!r}: {err}") from err
        return result

    def refresh(self, pod: Pod, facts: DownwardFacts) -> VolumeSet:
        """Writes changed content into running volumes."""
        result = VolumeSet()
        for volume in pod.spec.volumes:
            if _payload_plugin(volume):
                result.mounted[volume.name] = self._payload(pod, volume, facts, result)
        return result

    def _make(
        self, pod: Pod, volume: Volume, facts: DownwardFacts, images: dict[str, Path], result: VolumeSet
    ) -> Mounted:
        if volume.empty_dir is not None:
            return self._empty_dir(pod, volume.name, volume.empty_dir)
        if volume.host_path is not None:
            return _host_path(volume.host_path)
        if volume.image is not None:
            return Mounted(images[volume.name], read_only=True, no_exec=True)
        if volume.persistent_volume_claim is not None:
            claim = volume.persistent_volume_claim
            return self._claim(pod, claim.claim_name, claim.read_only)
        if volume.ephemeral is not None:
            return self._claim(pod, f"{pod.metadata.name}-{volume.name}", False)
        if _payload_plugin(volume):
            return self._payload(pod, volume, facts, result)
        raise VolumeError("its kind is not one that this node can make")

    def _empty_dir(self, pod: Pod, name: str, source: EmptyDirVolumeSource) -> Mounted:
        path = self._layout.volume(pod.metadata.uid, "empty-dir", name)
        group = fs_group(pod)
        kind, options = _medium(pod, source)
        make_owned_directory(path, EMPTY_DIR_MODE, group)
        if kind and not kernel.mounts_below(path):
            kernel.mount(kind, str(path), kind, kernel.MS_NOSUID | kernel.MS_NODEV, f"mode=0777{options}")
            give_to_group(path, EMPTY_DIR_MODE, group)
        return Mounted(path)

    def _payload(self, pod: Pod, volume: Volume, facts: DownwardFacts, result: VolumeSet) -> Mounted:
        now = self._clock.now()
        payload = Collector(pod, self._source, facts, now).collect(volume)
        assert payload is not None
        path = self._layout.volume(pod.metadata.uid, _payload_plugin(volume), volume.name)
        make_owned_directory(path, 0o755, None)
        if _is_secret(volume) and not kernel.mounts_below(path):
            kernel.mount("tmpfs", str(path), "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=0755")
        write_files(path, payload.files, fs_group(pod))
        result.refreshable = True
        if payload.renew_at is not None:
            result.renew_at = min(payload.renew_at, result.renew_at or payload.renew_at)
        return Mounted(path, read_only=True)

    def _claim(self, pod: Pod, name: str, read_only: bool) -> Mounted:
        claim = self._source.claim(pod.metadata.namespace, name)
        where = f"PersistentVolumeClaim {pod.metadata.namespace}/{name}"
        if claim is None:
            raise VolumeError(f"there is no {where}")
        if claim.status.phase != "Bound" or not claim.spec.volume_name:
            raise VolumeError(f"{where} is not bound to a volume yet")
        volume = self._source.volume(claim.spec.volume_name)
        if volume is None:
            raise VolumeError(f"there is no PersistentVolume {claim.spec.volume_name}")
        reference = volume.spec.claim_ref
        if reference is None or reference.uid != claim.metadata.uid:
            raise VolumeError(f"PersistentVolume {volume.metadata.name} belongs to another claim than {where}")
        if volume.spec.host_path is not None:
            mounted = _host_path(volume.spec.host_path)
        elif volume.spec.local is not None:
            mounted = _host_path(HostPathVolumeSource(path=volume.spec.local.path))
        else:
            raise VolumeError(f"PersistentVolume {volume.metadata.name} is neither hostPath nor local")
        return Mounted(mounted.path, read_only=read_only)


def _medium(pod: Pod, source: EmptyDirVolumeSource) -> tuple[str, str]:
    """The file system of an emptyDir that is not on the node's disk, and its options."""
    if source.medium == "":
        return "", ""
    if source.medium == "Memory":
        return "tmpfs", f",size={parse_bytes(source.size_limit)}" if source.size_limit else ""
    if source.medium == names.MEDIUM_HUGE_PAGES:
        size, total = huge_pages(pod)
        return "hugetlbfs", f",pagesize={size},size={total}"
    raise VolumeError(f"the medium {source.medium!r} is not one that this node has")


def _payload_plugin(volume: Volume) -> str:
    for name, plugin in _PAYLOAD_PLUGINS.items():
        if getattr(volume, name) is not None:
            return plugin
    return ""


def _is_secret(volume: Volume) -> bool:
    """Secrets and tokens never touch the disk."""
    return volume.secret is not None or volume.projected is not None


def _host_path(source: HostPathVolumeSource) -> Mounted:
    path, kind = Path(source.path), source.type or ""
    if kind == "DirectoryOrCreate" and not path.exists():
        shared_directory(path)
    elif kind == "FileOrCreate" and not path.exists():
        path.touch(mode=0o600, exist_ok=False)
        path.chmod(0o644)
    try:
        mode = path.stat().st_mode
    except FileNotFoundError as err:
        raise VolumeError(f"the node has no {path}") from err
    checks = {
        "Directory": stat.S_ISDIR,
        "DirectoryOrCreate": stat.S_ISDIR,
        "File": stat.S_ISREG,
        "FileOrCreate": stat.S_ISREG,
        "Socket": stat.S_ISSOCK,
        "CharDevice": stat.S_ISCHR,
        "BlockDevice": stat.S_ISBLK,
    }
    if kind and kind in checks and not checks[kind](mode):
        raise VolumeError(f"{path} of the node is not a {kind}")
    return Mounted(path)


def containers_of(pod: Pod) -> list[Container]:
    return [*pod.spec.init_containers, *pod.spec.containers]
