"""Rules about volumes."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator

import msgspec

from virt_api.admission.causes import Cause, invalid, not_found, one_of, required
from virt_api.admission.rules.base import Check, image_path
from virt_core.apis import names
from virt_core.apis.quantity import parse_quantity
from virt_core.apis.volumes import (
    CloudInitConfigDriveSource,
    CloudInitNoCloudSource,
    ContainerPathVolumeSource,
    HostDisk,
    Volume,
)

INLINE_LIMIT = 2048
PULL_POLICIES = ("", "Always", "IfNotPresent", "Never")
#: A volume's sources, and what they are called on the wire.
_SOURCES = {f.name: f.encode_name for f in msgspec.structs.fields(Volume) if f.name != "name"}
_OWN_PATHS = (names.PATH_SHARE, names.PATH_LIBVIRT)
#: The kernel's own limit.
_LONGEST_PATH = 4096


def volume_names(check: Check) -> Iterator[Cause]:
    seen: set[str] = set()
    for i, volume in enumerate(check.spec.volumes):
        if volume.name in seen:
            yield invalid(f"{check.path}.volumes[{i}].name", f"two volumes are called {volume.name!r}")
        seen.add(volume.name)


def volume_sources(check: Check) -> Iterator[Cause]:
    for i, volume in enumerate(check.spec.volumes):
        given = [source for source in _SOURCES if getattr(volume, source) is not None]
        if len(given) != 1:
            found = "none" if not given else f"{len(given)}: {', '.join(_SOURCES[source] for source in given)}"
            yield invalid(
                f"{check.path}.volumes[{i}]", f"volume {volume.name!r} must have exactly one source, not {found}"
            )


def volume_references(check: Check) -> Iterator[Cause]:
    """The names that a source points at."""
    for i, volume in enumerate(check.spec.volumes):
        field = f"{check.path}.volumes[{i}]"
        if volume.data_volume is not None and not volume.data_volume.name:
            yield required(f"{field}.name", "a dataVolume needs a name")
        if volume.config_map is not None and not volume.config_map.name:
            yield invalid(f"{field}.configMap.name", "must not be empty")
        if volume.secret is not None and not volume.secret.secret_name:
            yield invalid(f"{field}.secret.secretName", "must not be empty")
        if volume.service_account is not None and not volume.service_account.service_account_name:
            yield invalid(f"{field}.serviceAccount.serviceAccountName", "must not be empty")


def container_disks(check: Check) -> Iterator[Cause]:
    for i, volume in enumerate(check.spec.volumes):
        disk = volume.container_disk
        if disk is None:
            continue
        field = f"{check.path}.volumes[{i}].containerDisk"
        if not disk.image:
            yield required(f"{field}.image", "must name the image that holds the disk")
        if disk.path:
            yield from image_path(field, disk.path)
        if disk.image_pull_policy not in PULL_POLICIES:
            yield invalid(f"{field}.imagePullPolicy", one_of(disk.image_pull_policy, PULL_POLICIES[1:]))


def empty_disks(check: Check) -> Iterator[Cause]:
    for i, volume in enumerate(check.spec.volumes):
        if volume.empty_disk is not None and parse_quantity(volume.empty_disk.capacity) <= 0:
            yield invalid(f"{check.path}.volumes[{i}].emptyDisk.capacity", "must be more than 0")


def cloud_init(check: Check) -> Iterator[Cause]:
    for i, volume in enumerate(check.spec.volumes):
        root = f"{check.path}.volumes[{i}]"
        if volume.cloud_init_no_cloud is not None:
            yield from _cloud_init(f"{root}.cloudInitNoCloud", volume.cloud_init_no_cloud)
        if volume.cloud_init_config_drive is not None:
            yield from _cloud_init(f"{root}.cloudInitConfigDrive", volume.cloud_init_config_drive)


def _cloud_init(field: str, source: CloudInitNoCloudSource | CloudInitConfigDriveSource) -> Iterator[Cause]:
    user = (source.user_data, source.user_data_base64, source.secret_ref)
    network = (source.network_data, source.network_data_base64, source.network_data_secret_ref)
    if not any(user) and not any(network):
        yield invalid(field, "user data or network data must be given")
    yield from _cloud_init_part(field, "userData", user)
    yield from _cloud_init_part(field, "networkData", network)


def _cloud_init_part(field: str, name: str, sources: tuple[str, str, object]) -> Iterator[Cause]:
    plain, encoded, _ = sources
    if sum(bool(source) for source in sources) > 1:
        yield invalid(field, f"only one source of {name} can be given")
        return
    size = len(plain.encode())
    if encoded:
        try:
            size = len(base64.b64decode(encoded, validate=True))
        except (binascii.Error, ValueError):
            yield invalid(f"{field}.{name}Base64", "is not base64")
    if size > INLINE_LIMIT:
        yield invalid(field, f"{name} holds {size} bytes, more than {INLINE_LIMIT}: put it in a Secret")


def host_disks(check: Check) -> Iterator[Cause]:
    for i, volume in enumerate(check.spec.volumes):
        if volume.host_disk is not None:
            yield from _host_disk(check, f"{check.path}.volumes[{i}]", volume.host_disk)


def _host_disk(check: Check, field: str, disk: HostDisk) -> Iterator[Cause]:
    if not check.config.has("HostDisk"):
        yield invalid(field, "needs the feature gate HostDisk")
    if not disk.path:
        yield not_found(f"{field}.hostDisk.path", "must name the file of the disk")
    if disk.type not in ("Disk", "DiskOrCreate"):
        yield invalid(f"{field}.hostDisk.type", one_of(disk.type, ("Disk", "DiskOrCreate")))
    elif disk.type == "Disk" and disk.capacity is not None:
        yield invalid(f"{field}.hostDisk.capacity", "cannot be given for an existing disk, which has its own size")


def at_most_one(check: Check) -> Iterator[Cause]:
    for source, name in (
        ("service_account", "serviceAccount"),
        ("downward_metrics", "downwardMetrics"),
        ("memory_dump", "memoryDump"),
    ):
        if sum(getattr(volume, source) is not None for volume in check.spec.volumes) > 1:
            yield invalid(f"{check.path}.volumes", f"only one {name} volume can be given")


def downward_metrics(check: Check) -> Iterator[Cause]:
    if check.config.has("DownwardMetrics"):
        return
    for i, volume in enumerate(check.spec.volumes):
        if volume.downward_metrics is not None:
            yield invalid(f"{check.path}.volumes[{i}]", "needs the feature gate DownwardMetrics")
    if check.spec.domain.devices.downward_metrics is not None:
        yield invalid(f"{check.devices}.downwardMetrics", "needs the feature gate DownwardMetrics")


def utility_volumes(check: Check) -> Iterator[Cause]:
    if check.spec.utility_volumes:
        yield invalid(f"{check.path}.utilityVolumes", "can only be added to a running machine")


def service_account(check: Check) -> Iterator[Cause]:
    name = check.spec.service_account_name
    for i, volume in enumerate(check.spec.volumes):
        account = volume.service_account
        if name and account is not None and account.service_account_name not in ("", name):
            yield invalid(f"{check.path}.serviceAccountName", f"must equal that of {check.path}.volumes[{i}]")


def volumes_are_shown(check: Check) -> Iterator[Cause]:
    """A volume that no disk and no filesystem shows is a mistake."""
    devices = check.spec.domain.devices
    shown = {disk.name for disk in devices.disks} | {filesystem.name for filesystem in devices.filesystems}
    for i, volume in enumerate(check.spec.volumes):
        if volume.memory_dump is None and volume.name not in shown:
            yield invalid(
                f"domain.volumes[{i}].name", f"there is neither a disk nor a filesystem for volume {volume.name!r}"
            )


def container_paths(check: Check) -> Iterator[Cause]:
    disks = {disk.name for disk in check.spec.domain.devices.disks}
    for i, volume in enumerate(check.spec.volumes):
        if volume.container_path is None:
            continue
        field = f"domain.volumes[{i}]"
        if not check.config.has("ContainerPathVolumes"):
            yield invalid(field, "needs the feature gate ContainerPathVolumes")
        if volume.name in disks:
            yield invalid(field, "a containerPath volume must be a filesystem, not a disk")
        yield from _container_path(volume.container_path, field)


def _container_path(source: ContainerPathVolumeSource, field: str) -> Iterator[Cause]:
    path = source.path
    if source.read_only is False:
        yield invalid(field, "readOnly must be true: the guest can only read such a path")
    if not path.startswith("/") or ".." in path.split("/") or len(path) > _LONGEST_PATH:
        yield invalid(field, f"path must be absolute, without '..' and of at most {_LONGEST_PATH} characters")
    # Two slashes are one to the kernel, and /var/run is a link to /run.
    plain = "/".join(["", *(part for part in path.split("/") if part not in ("", "."))])
    plain = f"/var{plain}" if plain.startswith("/run/") else plain
    if any(plain == own or plain.startswith(own + "/") for own in _OWN_PATHS):
        yield invalid(field, f"{path!r} is reserved for the launcher")
