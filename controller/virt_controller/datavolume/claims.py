"""The claim of a DataVolume. Pure."""

from __future__ import annotations

from virt_core.apis import names
from virt_core.apis.datavolume import (
    DONE,
    KEY_BIND_NOW,
    KEY_CONTENT_TYPE,
    KEY_POD_PHASE,
    KEY_POPULATED_FOR,
    KEY_PREPOPULATED,
    KEY_UPLOAD_TARGET,
    ClaimSpec,
    DataVolume,
    DataVolumeSpec,
)
from virt_core.apis.meta import ObjectMeta, OwnerReference
from virt_core.apis.podvolumes import PersistentVolumeClaimSpec, VolumeResourceRequirements
from virt_core.apis.quantity import parse_bytes
from virt_core.apis.registry import owner_reference
from virt_core.apis.storage import PersistentVolumeClaim

_STORAGE = "storage"
#: What a file system takes of a volume, as CDI counts it where nobody has set it.
_OVERHEAD = 0.055
_MIB = 1 << 20
_CLAIM_KIND = "kubevirt"
#: What is the DataVolume's own affair or kubectl's, and not the claim's.
_NOT_COPIED = frozenset(
    {"kubectl.kubernetes.io/last-applied-configuration", KEY_PREPOPULATED, names.ANNOTATION_PREALLOCATION}
)


def is_block(spec: ClaimSpec) -> bool:
    return spec.volume_mode == names.VOLUME_MODE_BLOCK


def disk_size(spec: DataVolumeSpec, source: PersistentVolumeClaim | None = None) -> int:
    """How large the disk may be; that of the claim that is copied, if nothing is said. 0: nobody says."""
    wanted = spec.storage or spec.pvc or ClaimSpec()
    asked = (wanted.resources.requests if wanted.resources is not None else {}).get(_STORAGE)
    if asked is None and source is not None:
        asked = source.status.capacity.get(_STORAGE)
    return 0 if asked is None else parse_bytes(asked)


def room_of(claim: PersistentVolumeClaim) -> int:
    """What it has; what it asks for, as long as it has nothing. A disk in it may have grown to that."""
    asked = claim.spec.resources.requests if claim.spec.resources is not None else {}
    found = claim.status.capacity.get(_STORAGE) or asked.get(_STORAGE)
    return parse_bytes(found) if found else 0


def claim_of(volume: DataVolume, spec: DataVolumeSpec, size: int) -> PersistentVolumeClaim:
    wanted = spec.storage or spec.pvc or ClaimSpec()
    if spec.storage is not None and not is_block(wanted):
        size = -(-int(size * (1 + _OVERHEAD)) // _MIB) * _MIB
    return PersistentVolumeClaim(
        metadata=ObjectMeta(
            name=volume.metadata.name,
            namespace=volume.metadata.namespace,
            labels=dict(volume.metadata.labels),
            annotations=_annotations(volume, spec),
            owner_references=[owner_reference(volume)],
        ),
        spec=PersistentVolumeClaimSpec(
            access_modes=wanted.access_modes or [names.ACCESS_ONE_NODE],
            resources=VolumeResourceRequirements(requests={_STORAGE: str(size)}),
            volume_name=wanted.volume_name,
            storage_class_name=wanted.storage_class_name,
            volume_mode=wanted.volume_mode,
        ),
    )


def _annotations(volume: DataVolume, spec: DataVolumeSpec) -> dict[str, str]:
    """What people say of the DataVolume goes for the claim: the instance types that suit its disk among it."""
    copied = {key: value for key, value in volume.metadata.annotations.items() if key not in _NOT_COPIED}
    own = {KEY_CONTENT_TYPE: _CLAIM_KIND}
    if spec.source is not None and spec.source.upload is not None:
        own[KEY_UPLOAD_TARGET] = ""
    if spec.preallocation:
        own[names.ANNOTATION_PREALLOCATION] = "true"
    return copied | own


def is_ours(volume: DataVolume, claim: PersistentVolumeClaim) -> bool:
    return any(ref.uid == volume.metadata.uid for ref in claim.metadata.owner_references) or came_first(volume, claim)


# Claims that were there first, and ask for an upload by an annotation


def asks_for_upload(claim: PersistentVolumeClaim) -> bool:
    annotations = claim.metadata.annotations
    owned = any(ref.kind == DataVolume.__name__ for ref in claim.metadata.owner_references)
    return KEY_UPLOAD_TARGET in annotations and annotations.get(KEY_POD_PHASE) != DONE and not owned


def came_first(volume: DataVolume, claim: PersistentVolumeClaim) -> bool:
    """The DataVolume belongs to the claim. The claim must say itself that it is to be written to."""
    belongs = any(ref.uid == claim.metadata.uid for ref in volume.metadata.owner_references)
    return belongs and KEY_UPLOAD_TARGET in claim.metadata.annotations and "upload" in volume.spec.get("source", {})


def volume_for(claim: PersistentVolumeClaim) -> DataVolume:
    """It goes with the claim, and not the other way round."""
    meta, spec = claim.metadata, claim.spec
    asked = spec.resources.requests if spec.resources is not None else {}
    wanted: dict[str, object] = {"accessModes": list(spec.access_modes), "resources": {"requests": dict(asked)}}
    if spec.volume_mode:
        wanted["volumeMode"] = spec.volume_mode
    if spec.storage_class_name:
        wanted["storageClassName"] = spec.storage_class_name
    owner = OwnerReference(claim.api_version, claim.kind, meta.name, meta.uid)
    now = {KEY_BIND_NOW: ""} if KEY_BIND_NOW in meta.annotations else {}
    return DataVolume(
        metadata=ObjectMeta(name=meta.name, namespace=meta.namespace, annotations=now, owner_references=[owner]),
        spec={"source": {"upload": {}}, "pvc": wanted},
    )


def is_archive(claim: PersistentVolumeClaim) -> bool:
    return claim.metadata.annotations.get(KEY_CONTENT_TYPE, _CLAIM_KIND) not in (_CLAIM_KIND, "")


def is_populated(volume: DataVolume, claim: PersistentVolumeClaim) -> bool:
    """Somebody else has filled it, and says so: a restore."""
    name = volume.metadata.name
    return claim.metadata.annotations.get(KEY_POPULATED_FOR) == name or volume.metadata.annotations.get(
        KEY_PREPOPULATED, ""
    ) in (name, "true")


def binds_now(volume: DataVolume) -> bool:
    return KEY_BIND_NOW in volume.metadata.annotations
