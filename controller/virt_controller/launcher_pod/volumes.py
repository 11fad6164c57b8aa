"""The VMI's volumes as volumes of its Pod. A table: what is not in it is refused by name, never left out silently."""

from __future__ import annotations

from collections.abc import Callable

from virt_controller.launcher_pod.parts import Parts, UnsupportedSpecError
from virt_controller.launcher_pod.sections import TemplateConfig
from virt_core.apis import names
from virt_core.apis.base import to_plain
from virt_core.apis.pods import VolumeMount
from virt_core.apis.podvolumes import ImageVolumeSource, SecretVolumeSource, Volume
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.volumes import Volume as GuestVolume

Render = Callable[[int, GuestVolume], Parts]


def _image(name: str, path: str, image: str, policy: str, secret: str) -> Parts:
    source = ImageVolumeSource(reference=image, pull_policy=policy or "IfNotPresent")
    return Parts(
        volumes=(Volume(name=name, image=source),),
        mounts=(VolumeMount(name=name, mount_path=path, read_only=True),),
        pull_secrets=(secret,) if secret else (),
    )


def _secret(name: str, path: str, secret: str) -> Parts:
    return Parts(
        volumes=(Volume(name=name, secret=SecretVolumeSource(secret_name=secret)),),
        mounts=(VolumeMount(name=name, mount_path=path, read_only=True),),
    )


def _container_disk(index: int, volume: GuestVolume) -> Parts:
    disk = volume.container_disk
    if disk is None:
        return Parts()
    name, path = names.container_disk_volume(index), names.container_disk_path(index)
    return _image(name, path, disk.image, disk.image_pull_policy, disk.image_pull_secret)


def _cloud_init(index: int, volume: GuestVolume) -> Parts:
    source = volume.cloud_init_no_cloud or volume.cloud_init_config_drive
    parts = Parts()
    if source is not None and source.secret_ref is not None:
        parts = _secret(f"secret-{index}", names.cloud_init_secret_path(volume.name), source.secret_ref.name)
    if source is not None and source.network_data_secret_ref is not None:
        path = names.cloud_init_network_secret_path(volume.name)
        more = _secret(f"secret-{index}-network", path, source.network_data_secret_ref.name)
        parts = Parts(volumes=parts.volumes + more.volumes, mounts=parts.mounts + more.mounts)
    return parts


def _inside(_index: int, _volume: GuestVolume) -> Parts:
    """Made by the launcher in its own scratch space."""
    return Parts()


_SOURCES: dict[str, Render] = {
    "containerDisk": _container_disk,
    "cloudInitNoCloud": _cloud_init,
    "cloudInitConfigDrive": _cloud_init,
    "emptyDisk": _inside,
}


def _source(volume: GuestVolume) -> str:
    return next((key for key in to_plain(volume) if key != "name"), "no source")


def volumes(vmi: VirtualMachineInstance, _config: TemplateConfig) -> Parts:
    parts = Parts()
    for index, volume in enumerate(vmi.spec.volumes):
        source = _source(volume)
        if source not in _SOURCES:
            raise UnsupportedSpecError(
                f"spec.volumes[{index}] ({volume.name}): volumes of type {source} are not supported"
            )
        more = _SOURCES[source](index, volume)
        parts = Parts(
            volumes=parts.volumes + more.volumes,
            mounts=parts.mounts + more.mounts,
            pull_secrets=parts.pull_secrets + more.pull_secrets,
        )
    return parts


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
