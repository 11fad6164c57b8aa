"""What a claim is given: how much, of which kind, from which source, or the sentence why not. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from virt_core.apis import names
from virt_core.apis.podparts import TypedObjectReference
from virt_core.apis.quantity import format_bytes, parse_bytes, parse_quantity
from virt_core.apis.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from virt_core.apis.volumesnapshots import SNAPSHOT_GROUP, VolumeSnapshot, VolumeSnapshotContent
from virt_local.storage import vocabulary as words

_GRAIN = 4096
_LARGEST = 1 << 60


class Refused(Exception):
    """The claim cannot have what it asks for; the text goes into an Event. `reason` is the Event's."""

    def __init__(self, text: str, reason: str = "ProvisioningFailed") -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a new volume's content comes from: a volume or a snapshot of ours."""

    name: str
    is_snapshot: bool = False


def is_block(mode: str | None) -> bool:
    return mode == names.VOLUME_MODE_BLOCK


def is_asked(claim: PersistentVolumeClaim, chosen: StorageClass | None) -> bool:
    """Whether we shall make its volume, now."""
    if claim.metadata.deletion_timestamp or claim.spec.volume_name or chosen is None:
        return False
    marks = claim.metadata.annotations
    if words.PROVISIONER not in (marks.get(words.ASKED), marks.get(words.ASKED_BETA)):
        return False  # Nobody has looked yet whether a volume that is there fits.
    if chosen.provisioner != words.PROVISIONER:
        return False
    waits = chosen.volume_binding_mode == names.BINDING_FIRST_CONSUMER
    return not waits or names.ANNOTATION_SELECTED_NODE in marks


def is_ours(volume: PersistentVolume) -> bool:
    return volume.metadata.annotations.get(words.PROVISIONED_BY) == words.PROVISIONER


def wanted_size(claim: PersistentVolumeClaim) -> int:
    """In whole pieces of a disk. Raises Refused."""
    resources = claim.spec.resources
    try:
        asked = parse_bytes(resources.requests.get("storage", "0") if resources else "0")
    except ValueError as error:
        raise Refused(f"spec.resources.requests.storage: {error}") from error
    if not 0 < asked <= _LARGEST:
        raise Refused(f"spec.resources.requests.storage: {asked} bytes is no size for a volume")
    return -(-asked // _GRAIN) * _GRAIN


def capacity_of(volume: PersistentVolume) -> int:
    return parse_bytes(volume.spec.capacity.get("storage", "0"))


def overcommit(chosen: StorageClass) -> float:
    """Raises Refused."""
    text = chosen.parameters.get(words.OVERCOMMIT, "1")
    try:
        factor = float(parse_quantity(text))
    except ValueError as error:
        raise Refused(f"storage class {chosen.metadata.name}: parameters.{words.OVERCOMMIT}: {error}") from error
    if not 1 <= factor <= 1000:
        raise Refused(f"storage class {chosen.metadata.name}: parameters.{words.OVERCOMMIT} must be 1 to 1000")
    return factor


def check_parameters(chosen: StorageClass) -> None:
    strange = sorted(set(chosen.parameters) - {words.OVERCOMMIT})
    if strange:
        raise Refused(f"storage class {chosen.metadata.name}: parameters.{strange[0]} is not one that {_WE} knows")
    if chosen.mount_options:
        raise Refused(f"storage class {chosen.metadata.name}: mountOptions cannot be had from {_WE}")


_WE = f"the provisioner {words.PROVISIONER}"


def check_room(size: int, promised: int, free: int, factor: float) -> None:
    """`promised`: what others were promised and have not used. Raises Refused."""
    room = int(free * factor) - promised
    if size > room:
        raise Refused(
            f"the disk has no room for {format_bytes(size)}: {format_bytes(free)} are free, and other claims were "
            f"promised {format_bytes(promised)} of that. A storage class with parameters.{words.OVERCOMMIT} above 1 "
            "promises more than there is"
        )


def source_of(claim: PersistentVolumeClaim) -> TypedObjectReference | None:
    """Raises Refused for what we cannot take content from."""
    reference, older = claim.spec.data_source_ref, claim.spec.data_source
    if reference is None and older is not None:
        reference = TypedObjectReference(kind=older.kind, name=older.name, api_group=older.api_group)
    if reference is None:
        return None
    if reference.namespace and reference.namespace != claim.metadata.namespace:
        raise Refused("spec.dataSourceRef.namespace: content of another namespace is not given away")
    group = reference.api_group or ""
    if (group, reference.kind) not in (("", words.CLAIM_KIND), (SNAPSHOT_GROUP, words.SNAPSHOT_KIND)):
        raise Refused(
            f"spec.dataSourceRef: {reference.kind} ({group or 'core'}) is filled by its own populator, not by {_WE}",
            reason="Provisioning",
        )
    return reference


def clone_origin(
    claim: PersistentVolumeClaim, source: PersistentVolumeClaim | None, volume: PersistentVolume | None, size: int
) -> Origin:
    """From another claim of the namespace. Raises Refused."""
    name = (claim.spec.data_source_ref or claim.spec.data_source).name  # type: ignore[union-attr]
    where = f"the source claim {claim.metadata.namespace}/{name}"
    if source is None:
        raise Refused(f"{where} is not there")
    if source.metadata.deletion_timestamp:
        raise Refused(f"{where} is being deleted")
    if source.status.phase != "Bound" or volume is None:
        raise Refused(f"{where} is not bound to a volume yet")
    _check_source(where, volume, source.metadata.uid)
    if is_block(volume.spec.volume_mode) != is_block(claim.spec.volume_mode):
        raise Refused(f"{where} has another volumeMode")
    _check_larger(size, capacity_of(volume), where)
    return Origin(volume.metadata.name)


def snapshot_origin(
    claim: PersistentVolumeClaim, snapshot: VolumeSnapshot | None, content: VolumeSnapshotContent | None, size: int
) -> Origin:
    """From a snapshot of the namespace, which must be bound to its content both ways. Raises Refused."""
    name = (claim.spec.data_source_ref or claim.spec.data_source).name  # type: ignore[union-attr]
    where = f"the source snapshot {claim.metadata.namespace}/{name}"
    if snapshot is None:
        raise Refused(f"{where} is not there")
    if snapshot.metadata.deletion_timestamp:
        raise Refused(f"{where} is being deleted")
    if not snapshot.status.ready_to_use or content is None:
        raise Refused(f"{where} is not ready")
    if not is_bound(snapshot, content) or not content.status.snapshot_handle:
        raise Refused(f"{where} and its content are not bound to each other")
    if content.spec.driver != words.PROVISIONER:
        raise Refused(f"{where} belongs to the driver {content.spec.driver}")
    mode = content.spec.source_volume_mode
    if mode and is_block(mode) != is_block(claim.spec.volume_mode):
        raise Refused(f"{where} was taken of a claim with another volumeMode")
    _check_larger(size, content.status.restore_size or 0, where)
    return Origin(content.status.snapshot_handle, is_snapshot=True)


def is_bound(snapshot: VolumeSnapshot, content: VolumeSnapshotContent) -> bool:
    ref = content.spec.volume_snapshot_ref
    there = (ref.namespace, ref.name, ref.uid)
    here = snapshot.status.bound_volume_snapshot_content_name
    meta = snapshot.metadata
    return there == (meta.namespace, meta.name, meta.uid) and here == content.metadata.name


def _check_source(where: str, volume: PersistentVolume, claim_uid: str) -> None:
    reference = volume.spec.claim_ref
    if reference is None or reference.uid != claim_uid:
        raise Refused(f"{where} and its volume are not bound to each other")
    if not is_ours(volume):
        raise Refused(f"{where} has a volume that {_WE} did not make")


def _check_larger(size: int, least: int, where: str) -> None:
    if size < least:
        raise Refused(
            f"requested volume size {size} is less than the size {least} of {where}: spec.resources.requests.storage "
            f"must be at least {format_bytes(least)}"
        )


def promised_rest(volumes: Iterable[PersistentVolume], used: Mapping[str, int], without: str = "") -> int:
    """What our volumes may still take of the disk."""
    ours = [each for each in volumes if is_ours(each) and each.metadata.name != without]
    return sum(max(capacity_of(each) - used.get(each.metadata.name, 0), 0) for each in ours)


def told_capacity(claim: PersistentVolumeClaim) -> int:
    return parse_bytes(claim.status.capacity.get("storage", "0"))
