"""Which class a snapshot has, what it may be taken of, and what its status says. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from virt_core.apis.meta import ObjectMeta
from virt_core.apis.podparts import ObjectReference
from virt_core.apis.quantity import format_bytes, parse_bytes
from virt_core.apis.storage import PersistentVolume, PersistentVolumeClaim
from virt_core.apis.volumesnapshots import (
    VolumeSnapshot,
    VolumeSnapshotClass,
    VolumeSnapshotContent,
    VolumeSnapshotContentSource,
    VolumeSnapshotContentSpec,
)
from virt_core.runtime.times import rfc3339
from virt_local.storage import rules
from virt_local.storage import vocabulary as words
from virt_local.storage.rules import Refused

_SET_DEFAULT, _CREATION = "SetDefaultSnapshotClassFailed", "SnapshotCreationFailed"
_MISSING, _MISBOUND = "SnapshotContentMissing", "SnapshotContentMisbound"


def content_name(snapshot: VolumeSnapshot) -> str:
    return snapshot.spec.source.volume_snapshot_content_name or f"snapcontent-{snapshot.metadata.uid}"


def handle_of(content: VolumeSnapshotContent) -> str:
    """The name of its bytes; known before there are any, so that a crash does not lose them."""
    given = content.status.snapshot_handle or content.spec.source.snapshot_handle
    return given or f"snap-{content.spec.volume_snapshot_ref.uid}"


def default_class(classes: Iterable[VolumeSnapshotClass]) -> VolumeSnapshotClass:
    """Of our driver. Raises Refused."""
    marked = [
        each
        for each in classes
        if each.metadata.annotations.get(words.DEFAULT_SNAPSHOT_CLASS) == "true" and each.driver == words.PROVISIONER
    ]
    if len(marked) == 1:
        return marked[0]
    if not marked:
        raise Refused(f"there is no default VolumeSnapshotClass of {words.PROVISIONER}", _SET_DEFAULT)
    raise Refused(f"{len(marked)} default VolumeSnapshotClasses of {words.PROVISIONER} are found", _SET_DEFAULT)


def check_source(name: str, claim: PersistentVolumeClaim | None, volume: PersistentVolume | None) -> PersistentVolume:
    """Raises Refused."""
    if claim is None:
        raise Refused(f"there is no claim {name}", _CREATION)
    if claim.metadata.deletion_timestamp:
        raise Refused(f"the claim {name} is being deleted", _CREATION)
    if claim.status.phase != "Bound" or volume is None:
        raise Refused(f"the claim {name} is not bound to a volume yet", _CREATION)
    reference = volume.spec.claim_ref
    if reference is None or reference.uid != claim.metadata.uid:
        raise Refused(f"the claim {name} and its volume are not bound to each other", _CREATION)
    return volume


def new_content(
    snapshot: VolumeSnapshot, chosen: VolumeSnapshotClass, volume: PersistentVolume
) -> VolumeSnapshotContent:
    return VolumeSnapshotContent(
        metadata=ObjectMeta(name=content_name(snapshot), finalizers=[words.CONTENT_BOUND]),
        spec=VolumeSnapshotContentSpec(
            volume_snapshot_ref=reference_to(snapshot),
            deletion_policy=chosen.deletion_policy,
            driver=chosen.driver,
            volume_snapshot_class_name=chosen.metadata.name,
            source=VolumeSnapshotContentSource(volume_handle=volume.metadata.name),
            source_volume_mode=volume.spec.volume_mode or "Filesystem",
        ),
    )


def reference_to(snapshot: VolumeSnapshot) -> ObjectReference:
    meta = snapshot.metadata
    return ObjectReference(
        api_version=snapshot.api_version,
        kind=snapshot.kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
    )


def check_bound(snapshot: VolumeSnapshot, content: VolumeSnapshotContent | None) -> VolumeSnapshotContent:
    """The content names this very snapshot. Raises Refused."""
    if content is None:
        raise Refused(f"there is no VolumeSnapshotContent {content_name(snapshot)}", _MISSING)
    ref, meta = content.spec.volume_snapshot_ref, snapshot.metadata
    if (ref.namespace, ref.name) != (meta.namespace, meta.name) or ref.uid not in ("", meta.uid):
        raise Refused(f"VolumeSnapshotContent {content.metadata.name} belongs to another snapshot", _MISBOUND)
    return content


def status_from(content: VolumeSnapshotContent) -> dict[str, Any]:
    """A snapshot's status, as its content has it."""
    found = content.status
    created = datetime.fromtimestamp(found.creation_time / 1e9, UTC) if found.creation_time else None
    return {
        "boundVolumeSnapshotContentName": content.metadata.name,
        "readyToUse": bool(found.ready_to_use),
        "creationTime": rfc3339(created) if created else None,
        "restoreSize": format_bytes(found.restore_size) if found.restore_size is not None else None,
        "error": {"message": found.error.message, "time": found.error.time} if found.error else None,
    }


def differs(snapshot: VolumeSnapshot, wanted: dict[str, Any]) -> bool:
    found = snapshot.status
    error = {"message": found.error.message, "time": found.error.time} if found.error else None
    size = parse_bytes(found.restore_size) if found.restore_size is not None else None
    asked = wanted["restoreSize"]
    return (
        found.bound_volume_snapshot_content_name,
        found.ready_to_use,
        found.creation_time,
        size,
        error,
    ) != (
        wanted["boundVolumeSnapshotContentName"],
        wanted["readyToUse"],
        wanted["creationTime"],
        parse_bytes(asked) if asked is not None else None,
        wanted["error"],
    )


def takes_from(snapshot: VolumeSnapshot, claim: PersistentVolumeClaim) -> bool:
    """A snapshot that is being taken of a claim."""
    here = (snapshot.metadata.namespace, snapshot.spec.source.persistent_volume_claim_name)
    there = (claim.metadata.namespace, claim.metadata.name)
    return here == there and not snapshot.status.ready_to_use and not snapshot.metadata.deletion_timestamp


def restores_from(claim: PersistentVolumeClaim, snapshot: VolumeSnapshot) -> bool:
    """A claim that is being made from a snapshot."""
    if claim.spec.volume_name or claim.metadata.deletion_timestamp:
        return False
    try:
        source = rules.source_of(claim)
    except Refused:
        return False
    here = (claim.metadata.namespace, source.kind, source.name) if source is not None else None
    return here == (snapshot.metadata.namespace, words.SNAPSHOT_KIND, snapshot.metadata.name)
