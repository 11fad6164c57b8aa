"""The volumes of a VMI: where the bytes of its disks come from."""

from __future__ import annotations

from msgspec import field

from virt_core.apis.base import Struct
from virt_core.apis.podparts import DownwardAPIVolumeFile, LocalObjectReference, PersistentVolumeClaimVolumeSource
from virt_core.apis.quantity import Quantity


class HostDisk(Struct):
    """A disk image on the node. Only where the cluster allows it."""

    path: str  #: The path of the image on the node.
    type: str  #: Disk (must exist) or DiskOrCreate.
    capacity: Quantity | None = None  #: The size of an image to create.
    shared: bool | None = None  #: Whether the path is the same on all nodes.


class VMIPersistentVolumeClaim(Struct):
    """A claim of the same namespace as a disk."""

    claim_name: str  #: The claim's name.
    read_only: bool = False  #: Attach it read-only.
    hotpluggable: bool = False  #: Whether it was attached to a running machine.


class DataVolumeSource(Struct):
    """A DataVolume of the same namespace as a disk."""

    name: str  #: The DataVolume's name.
    hotpluggable: bool = False  #: Whether it was attached to a running machine.


class EphemeralVolumeSource(Struct):
    """A claim that is only read; what the guest writes is lost with it."""

    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None  #: The claim.


class ContainerDiskSource(Struct):
    """A disk image inside an OCI image; what the guest writes is lost with it."""

    image: str  #: The OCI image that holds the disk.
    image_pull_secret: str = ""  #: The Secret to pull it with.
    path: str = ""  #: The path of the disk in the image; the only file of /disk by default.
    image_pull_policy: str = ""  #: Always, IfNotPresent or Never.


class EmptyDiskSource(Struct):
    """An empty disk that lives as long as the VMI."""

    capacity: Quantity  #: Its size.


class ConfigMapVolumeSource(Struct):
    """A ConfigMap as a disk or filesystem."""

    name: str = ""  #: The ConfigMap's name.
    optional: bool | None = None  #: Whether it may be absent.
    volume_label: str = ""  #: The label of the filesystem.


class SecretVolumeSource(Struct):
    """A Secret as a disk or filesystem."""

    secret_name: str = ""  #: The Secret's name.
    optional: bool | None = None  #: Whether it may be absent.
    volume_label: str = ""  #: The label of the filesystem.


class CloudInitNoCloudSource(Struct):
    """Cloud-init data on a disk of the NoCloud kind."""

    secret_ref: LocalObjectReference | None = None  #: A Secret with the key userdata.
    user_data_base64: str = ""  #: The user data, base64.
    user_data: str = ""  #: The user data as text.
    network_data_secret_ref: LocalObjectReference | None = None  #: A Secret with the key networkdata.
    network_data_base64: str = ""  #: The network data, base64.
    network_data: str = ""  #: The network data as text.


class CloudInitConfigDriveSource(Struct):
    """Cloud-init data on a disk of the ConfigDrive kind."""

    secret_ref: LocalObjectReference | None = None  #: A Secret with the key userdata.
    user_data_base64: str = ""  #: The user data, base64.
    user_data: str = ""  #: The user data as text.
    network_data_secret_ref: LocalObjectReference | None = None  #: A Secret with the key networkdata.
    network_data_base64: str = ""  #: The network data, base64.
    network_data: str = ""  #: The network data as text.


class SysprepSource(Struct):
    """An answer file for Windows, from a Secret or a ConfigMap."""

    secret: LocalObjectReference | None = None  #: The Secret.
    config_map: LocalObjectReference | None = None  #: The ConfigMap.


class DownwardAPIVolumeSource(Struct):
    """Fields of the VMI as files on a disk."""

    fields: list[DownwardAPIVolumeFile] = []  #: The files.
    volume_label: str = ""  #: The label of the filesystem.


class ServiceAccountVolumeSource(Struct):
    """The token of a service account as a disk."""

    service_account_name: str = ""  #: The service account.


class DownwardMetricsVolumeSource(Struct):
    """Metrics of the host as a disk."""


class MemoryDumpVolumeSource(Struct):
    """A claim that takes a dump of the guest's memory."""

    claim_name: str  #: The claim's name.
    read_only: bool = False  #: Attach it read-only.
    hotpluggable: bool = False  #: Whether it was attached to a running machine.


class ContainerPathVolumeSource(Struct):
    """A directory of the compute container, shared with the guest."""

    path: str  #: The absolute path in the container.
    read_only: bool | None = None  #: Must be true.


class Volume(Struct):
    """A volume: a name and exactly one source."""

    name: str  #: The name; a disk or filesystem of the same name shows it to the guest.
    host_disk: HostDisk | None = None  #: A disk image on the node.
    persistent_volume_claim: VMIPersistentVolumeClaim | None = None  #: A claim.
    data_volume: DataVolumeSource | None = None  #: A DataVolume.
    ephemeral: EphemeralVolumeSource | None = None  #: A claim with a throw-away layer on top.
    container_disk: ContainerDiskSource | None = None  #: A disk in an OCI image.
    empty_disk: EmptyDiskSource | None = None  #: An empty disk.
    config_map: ConfigMapVolumeSource | None = None  #: A ConfigMap.
    secret: SecretVolumeSource | None = None  #: A Secret.
    cloud_init_no_cloud: CloudInitNoCloudSource | None = None  #: Cloud-init data, NoCloud.
    cloud_init_config_drive: CloudInitConfigDriveSource | None = None  #: Cloud-init data, ConfigDrive.
    sysprep: SysprepSource | None = None  #: A Windows answer file.
    #: Fields of the VMI.
    downward_api: DownwardAPIVolumeSource | None = field(default=None, name="downwardAPI")
    service_account: ServiceAccountVolumeSource | None = None  #: A service account's token.
    downward_metrics: DownwardMetricsVolumeSource | None = None  #: Metrics of the host.
    memory_dump: MemoryDumpVolumeSource | None = None  #: A target of memory dumps.
    container_path: ContainerPathVolumeSource | None = None  #: A directory of the compute container.


class UtilityVolume(Struct):
    """A claim attached to the Pod but not shown to the guest."""

    name: str  #: The volume's name.
    claim_name: str  #: The claim's name.
    read_only: bool = False  #: Attach it read-only.
    type: str | None = None  #: MemoryDump or Backup.


def claim_of(volume: Volume) -> str:
    """The name of the claim behind a volume; empty when there is none. A DataVolume's claim has its name."""
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name
    if volume.data_volume is not None:
        return volume.data_volume.name
    if volume.memory_dump is not None:
        return volume.memory_dump.claim_name
    if volume.ephemeral is not None and volume.ephemeral.persistent_volume_claim is not None:
        return volume.ephemeral.persistent_volume_claim.claim_name
    return ""


def is_hotplug(volume: Volume) -> bool:
    """Whether it may come and go while the machine runs. The launcher Pod does not have it; virt-handler brings it."""
    sources = (volume.persistent_volume_claim, volume.data_volume, volume.memory_dump)
    return any(source is not None and source.hotpluggable for source in sources)
