"""VolumeSnapshot, its content and its class, as `snapshot.storage.k8s.io/v1` has them. Not our own kinds."""

from __future__ import annotations

from msgspec import field

from virt_core.apis.base import Int64, Struct
from virt_core.apis.meta import ObjectMeta, Time
from virt_core.apis.podparts import ObjectReference
from virt_core.apis.quantity import Quantity

SNAPSHOT_GROUP = "snapshot.storage.k8s.io"
ANNOTATION_DEFAULT_CLASS = "snapshot.storage.kubernetes.io/is-default-class"


class VolumeSnapshotError(Struct):
    """What went wrong last."""

    time: Time | None = None
    message: str = ""


class VolumeSnapshotSource(Struct):
    """A claim to be taken, or content that is there already."""

    persistent_volume_claim_name: str | None = None
    volume_snapshot_content_name: str | None = None


class VolumeSnapshotSpec(Struct):
    """What is to be kept, and how."""

    source: VolumeSnapshotSource = field(default_factory=VolumeSnapshotSource)
    volume_snapshot_class_name: str | None = None


class VolumeSnapshotStatus(Struct):
    """What became of it."""

    bound_volume_snapshot_content_name: str | None = None
    creation_time: Time | None = None
    ready_to_use: bool | None = None
    restore_size: Quantity | None = None
    error: VolumeSnapshotError | None = None


class VolumeSnapshot(Struct):
    """A claim's bytes at one instant, for the people of a namespace."""

    api_version: str = "snapshot.storage.k8s.io/v1"
    kind: str = "VolumeSnapshot"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: VolumeSnapshotSpec = field(default_factory=VolumeSnapshotSpec)
    status: VolumeSnapshotStatus = field(default_factory=VolumeSnapshotStatus)


class VolumeSnapshotContentSource(Struct):
    """The volume to be taken, or the driver's own name of a snapshot that it has."""

    volume_handle: str | None = None
    snapshot_handle: str | None = None


class VolumeSnapshotContentSpec(Struct):
    """What the driver shall make or keep, and for whom."""

    volume_snapshot_ref: ObjectReference = field(default_factory=ObjectReference)
    deletion_policy: str = ""
    driver: str = ""
    volume_snapshot_class_name: str | None = None
    source: VolumeSnapshotContentSource = field(default_factory=VolumeSnapshotContentSource)
    source_volume_mode: str | None = None


class VolumeSnapshotContentStatus(Struct):
    """What the driver has made."""

    snapshot_handle: str | None = None
    creation_time: Int64 | None = None  #: Nanoseconds since 1970.
    restore_size: Int64 | None = None  #: Bytes.
    ready_to_use: bool | None = None
    error: VolumeSnapshotError | None = None


class VolumeSnapshotContent(Struct):
    """A claim's bytes at one instant, as the driver keeps them."""

    api_version: str = "snapshot.storage.k8s.io/v1"
    kind: str = "VolumeSnapshotContent"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: VolumeSnapshotContentSpec = field(default_factory=VolumeSnapshotContentSpec)
    status: VolumeSnapshotContentStatus = field(default_factory=VolumeSnapshotContentStatus)


class VolumeSnapshotClass(Struct):
    """A way to take snapshots."""

    api_version: str = "snapshot.storage.k8s.io/v1"
    kind: str = "VolumeSnapshotClass"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    driver: str = ""
    parameters: dict[str, str] = {}
    deletion_policy: str = ""
