"""PersistentVolume, PersistentVolumeClaim and StorageClass."""

from __future__ import annotations

from msgspec import field

from virt_core.apis.base import Struct
from virt_core.apis.meta import ObjectMeta, Time
from virt_core.apis.podparts import ObjectReference
from virt_core.apis.podvolumes import HostPathVolumeSource, PersistentVolumeClaimSpec
from virt_core.apis.quantity import Quantity
from virt_core.apis.scheduling import NodeSelector


class PersistentVolumeClaimCondition(Struct):
    """Resizing and others."""

    type: str
    status: str
    last_probe_time: Time | None = None
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""


class PersistentVolumeClaimStatus(Struct):
    """What a claim got."""

    phase: str = ""
    access_modes: list[str] = []
    capacity: dict[str, Quantity] = {}
    conditions: list[PersistentVolumeClaimCondition] = []
    allocated_resources: dict[str, Quantity] = {}
    allocated_resource_statuses: dict[str, str] = {}


class PersistentVolumeClaim(Struct):
    """A wish for storage."""

    api_version: str = "v1"
    kind: str = "PersistentVolumeClaim"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PersistentVolumeClaimSpec = field(default_factory=PersistentVolumeClaimSpec)
    status: PersistentVolumeClaimStatus = field(default_factory=PersistentVolumeClaimStatus)


class LocalVolumeSource(Struct):
    """A disk or directory of one node."""

    path: str
    fs_type: str | None = None


class CSIPersistentVolumeSource(Struct):
    """A volume of a CSI driver."""

    driver: str
    volume_handle: str
    read_only: bool = False
    fs_type: str = ""
    volume_attributes: dict[str, str] = {}


class NFSVolumeSource(Struct):
    """A directory of an NFS server."""

    server: str
    path: str
    read_only: bool = False


class VolumeNodeAffinity(Struct):
    """Which nodes reach the volume."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(Struct):
    """What a volume is."""

    capacity: dict[str, Quantity] = {}
    access_modes: list[str] = []
    claim_ref: ObjectReference | None = None
    persistent_volume_reclaim_policy: str = ""
    storage_class_name: str = ""
    mount_options: list[str] = []
    volume_mode: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    host_path: HostPathVolumeSource | None = None
    local: LocalVolumeSource | None = None
    csi: CSIPersistentVolumeSource | None = None
    nfs: NFSVolumeSource | None = None


class PersistentVolumeStatus(Struct):
    """Available, Bound, Released or Failed."""

    phase: str = ""
    message: str = ""
    reason: str = ""


class PersistentVolume(Struct):
    """A piece of storage."""

    api_version: str = "v1"
    kind: str = "PersistentVolume"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PersistentVolumeSpec = field(default_factory=PersistentVolumeSpec)
    status: PersistentVolumeStatus = field(default_factory=PersistentVolumeStatus)


class StorageClass(Struct):
    """A way to make volumes."""

    api_version: str = "storage.k8s.io/v1"
    kind: str = "StorageClass"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    provisioner: str = ""
    parameters: dict[str, str] = {}
    reclaim_policy: str | None = None
    mount_options: list[str] = []
    allow_volume_expansion: bool | None = None
    volume_binding_mode: str | None = None
