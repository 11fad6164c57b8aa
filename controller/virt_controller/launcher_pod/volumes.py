"""The VMI's volumes as volumes of its Pod. A table: what is not in it is refused by name, never left out silently."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from dataclasses import dataclass, replace

from virt_controller.launcher_pod.contributions import Parts, UnsupportedSpecError, combine
from virt_controller.launcher_pod.sections import TemplateConfig
from virt_core.apis import names
from virt_core.apis.base import to_plain
from virt_core.apis.containers import VolumeDevice
from virt_core.apis.credentials import secrets
from virt_core.apis.podparts import PersistentVolumeClaimVolumeSource
from virt_core.apis.pods import VolumeMount
from virt_core.apis.podvolumes import (
    ConfigMapVolumeSource,
    DownwardAPIVolumeSource,
    HostPathVolumeSource,
    ImageVolumeSource,
    SecretVolumeSource,
    Volume,
)
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.volumes import Volume as GuestVolume
from virt_core.apis.volumes import is_hotplug


@dataclass(frozen=True, slots=True)
class Wish:
    """A volume of the VMI, where it stands, and what the cluster says about it."""

    index: int
    volume: GuestVolume
    config: TemplateConfig

    @property
    def pod_volume(self) -> str:
        return names.guest_volume(self.index)

    def refuse(self, why: str) -> UnsupportedSpecError:
        return UnsupportedSpecError(f"spec.volumes[{self.index}] ({self.volume.name}): {why}")


Render = Callable[[Wish], Parts]


def _mounted(volume: Volume, path: str, *, read_only: bool = True) -> Parts:
    mount = VolumeMount(name=volume.name, mount_path=path, read_only=read_only)
    return Parts(volumes=(volume,), mounts=(mount,))


def _image(name: str, path: str, image: str, policy: str, secret: str) -> Parts:
    source = ImageVolumeSource(reference=image, pull_policy=policy or "IfNotPresent")
    pulled = Parts(pull_secrets=(secret,) if secret else ())
    return combine((_mounted(Volume(name=name, image=source), path), pulled))


def _secret(name: str, path: str, secret: str, optional: bool | None = None) -> Parts:
    source = SecretVolumeSource(secret_name=secret, optional=optional)
    return _mounted(Volume(name=name, secret=source), path)


def _config_map(name: str, path: str, config_map: str, optional: bool | None = None) -> Parts:
    source = ConfigMapVolumeSource(name=config_map, optional=optional)
    return _mounted(Volume(name=name, config_map=source), path)


def _container_disk(wish: Wish) -> Parts:
    disk = wish.volume.container_disk
    if disk is None:
        return Parts()
    name, path = names.container_disk_volume(wish.index), names.container_disk_path(wish.index)
    return _image(name, path, disk.image, disk.image_pull_policy, disk.image_pull_secret)


def _cloud_init(wish: Wish) -> Parts:
    volume = wish.volume
    source = volume.cloud_init_no_cloud or volume.cloud_init_config_drive
    found: list[Parts] = []
    if source is not None and source.secret_ref is not None:
        path = names.cloud_init_secret_path(volume.name)
        found.append(_secret(f"secret-{wish.index}", path, source.secret_ref.name))
    if source is not None and source.network_data_secret_ref is not None:
        path = names.cloud_init_network_secret_path(volume.name)
        found.append(_secret(f"secret-{wish.index}-network", path, source.network_data_secret_ref.name))
    return combine(found)


def _claim(wish: Wish, name: str, *, read_only: bool) -> Parts:
    """A directory with the disk in it, or a block device that is the disk."""
    claim = wish.config.claims.get(name)
    if claim is None:
        raise wish.refuse(f"there is no PersistentVolumeClaim {name!r}")
    source = PersistentVolumeClaimVolumeSource(claim_name=name, read_only=read_only)
    volume = Volume(name=wish.pod_volume, persistent_volume_claim=source)
    if claim.spec.volume_mode == names.VOLUME_MODE_BLOCK:
        device = VolumeDevice(name=volume.name, device_path=names.disk_device(wish.volume.name))
        return Parts(volumes=(volume,), devices=(device,))
    return _mounted(volume, names.disk_directory(wish.volume.name), read_only=read_only)


def _persistent(wish: Wish) -> Parts:
    source = wish.volume.persistent_volume_claim
    return Parts() if source is None else _claim(wish, source.claim_name, read_only=source.read_only)


def _data_volume(wish: Wish) -> Parts:
    """Its claim has its name."""
    source = wish.volume.data_volume
    return Parts() if source is None else _claim(wish, source.name, read_only=False)


def _ephemeral(wish: Wish) -> Parts:
    """What the guest writes goes elsewhere, so nobody can change the claim through it."""
    source = wish.volume.ephemeral.persistent_volume_claim if wish.volume.ephemeral is not None else None
    if source is None:
        raise wish.refuse("an ephemeral volume must name a PersistentVolumeClaim")
    return _claim(wish, source.claim_name, read_only=True)


def _host_disk(wish: Wish) -> Parts:
    """The directory around the disk. Asked again here: the gate may have closed since the VMI was accepted."""
    disk = wish.volume.host_disk
    if disk is None:
        return Parts()
    if not wish.config.cluster.has("HostDisk"):
        raise wish.refuse("needs the feature gate HostDisk")
    directory, name = posixpath.split(disk.path)
    plain = posixpath.normpath(disk.path) == disk.path and disk.path.startswith("/") and disk.path[1:2] != "/"
    if not plain or not name or directory == "/":
        raise wish.refuse(f"{disk.path!r} is not the plain, absolute path of a file in a directory of the node")
    source = HostPathVolumeSource(path=directory, type="Directory" if disk.type == "Disk" else "DirectoryOrCreate")
    path = names.disk_directory(wish.volume.name)
    return _mounted(Volume(name=wish.pod_volume, host_path=source), path, read_only=False)


def _files(wish: Wish) -> Parts:
    """Small files that the launcher packs into an image."""
    volume, name, path = wish.volume, wish.pod_volume, names.file_volume_path(wish.volume.name)
    if volume.config_map is not None:
        return _config_map(name, path, volume.config_map.name, volume.config_map.optional)
    if volume.secret is not None:
        return _secret(name, path, volume.secret.secret_name, volume.secret.optional)
    if volume.downward_api is not None:
        return _mounted(Volume(name=name, downward_api=DownwardAPIVolumeSource(items=volume.downward_api.fields)), path)
    if volume.sysprep is not None and volume.sysprep.secret is not None:
        return _secret(name, path, volume.sysprep.secret.name)
    if volume.sysprep is not None and volume.sysprep.config_map is not None:
        return _config_map(name, path, volume.sysprep.config_map.name)
    raise wish.refuse("must name a Secret or a ConfigMap")


def _service_account(wish: Wish) -> Parts:
    """The API server mounts the token where Pods expect it."""
    source = wish.volume.service_account
    return Parts() if source is None else Parts(service_account=source.service_account_name)


def _container_path(wish: Wish) -> Parts:
    """What others bring into the containers of the Pod, after we have made it."""
    if not wish.config.cluster.has("ContainerPathVolumes"):
        raise wish.refuse("needs the feature gate ContainerPathVolumes")
    return Parts()


def _inside(_wish: Wish) -> Parts:
    """Made by the launcher in its own scratch space."""
    return Parts()


_SOURCES: dict[str, Render] = {
    "containerDisk": _container_disk,
    "cloudInitNoCloud": _cloud_init,
    "cloudInitConfigDrive": _cloud_init,
    "emptyDisk": _inside,
    "downwardMetrics": _inside,
    "persistentVolumeClaim": _persistent,
    "dataVolume": _data_volume,
    "ephemeral": _ephemeral,
    "hostDisk": _host_disk,
    "configMap": _files,
    "secret": _files,
    "downwardAPI": _files,
    "sysprep": _files,
    "serviceAccount": _service_account,
    "containerPath": _container_path,
}


def source_of(volume: GuestVolume) -> str:
    """The kind of the volume, as the API spells it."""
    return next((key for key in to_plain(volume) if key != "name"), "")


def volumes(vmi: VirtualMachineInstance, config: TemplateConfig) -> Parts:
    """What is only shared as a filesystem is mounted where it is shared, and not in the launcher's container."""
    devices = vmi.spec.domain.devices
    elsewhere = {each.name for each in devices.filesystems} - {disk.name for disk in devices.disks}
    found: list[Parts] = []
    for index, volume in enumerate(vmi.spec.volumes):
        if is_hotplug(volume):
            continue  # An attachment Pod holds it, and virt-handler brings it.
        parts = rendered(Wish(index, volume, config))
        found.append(replace(parts, mounts=(), devices=()) if volume.name in elsewhere else parts)
    return combine(found)


def rendered(wish: Wish) -> Parts:
    source = source_of(wish.volume)
    if source not in _SOURCES:
        raise wish.refuse(f"a {source} volume is not built yet" if source else "must have a source")
    return _SOURCES[source](wish)


def credentials(vmi: VirtualMachineInstance, _config: TemplateConfig) -> Parts:
    """The Secrets of access credentials. The node changes what is mounted when they change."""
    return combine(
        _secret(f"access-cred-{index}", f"{names.PATH_SECRETS}/{names.access_credential_directory(secret)}", secret)
        for index, secret in enumerate(secrets(vmi))
    )


def kernel_boot(vmi: VirtualMachineInstance, _config: TemplateConfig) -> Parts:
    firmware = vmi.spec.domain.firmware
    container = firmware.kernel_boot.container if firmware is not None and firmware.kernel_boot is not None else None
    if container is None:
        return Parts()
    return _image(
        names.VOLUME_KERNEL_BOOT,
        names.PATH_KERNEL_BOOT,
        container.image,
        container.image_pull_policy,
        container.image_pull_secret,
    )
