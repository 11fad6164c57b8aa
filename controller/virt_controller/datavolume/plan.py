"""What an importer is asked to do for a DataVolume. Pure."""

from __future__ import annotations

from virt_controller.datavolume.claims import is_block, room_of
from virt_core.apis import importplan, names
from virt_core.apis.datavolume import ClaimSpec, DataVolumeSpec
from virt_core.apis.importplan import ImportPlan
from virt_core.apis.storage import PersistentVolumeClaim


def kind_of(spec: DataVolumeSpec) -> str:
    """The kind of its source; empty: none of ours."""
    source = spec.source
    if source is None:
        return ""
    if source.http is not None:
        return importplan.HTTP
    if source.registry is not None:
        return importplan.IMAGE if source.registry.pull_method == "node" else importplan.REGISTRY
    if source.pvc is not None:
        return importplan.CLONE
    if source.upload is not None:
        return importplan.UPLOAD
    return importplan.BLANK if source.blank is not None else ""


def image_of(spec: DataVolumeSpec) -> str:
    """The image that the node is to pull."""
    registry = spec.source.registry if spec.source is not None else None
    return (registry.url or "").removeprefix("docker://") if registry is not None else ""


def plan_of(
    spec: DataVolumeSpec,
    size: int,
    claim: PersistentVolumeClaim | None = None,
    copied: PersistentVolumeClaim | None = None,
) -> ImportPlan:
    source, wanted = spec.source, spec.storage or spec.pvc or ClaimSpec()
    plan = ImportPlan(source=kind_of(spec), size=size, block=is_block(wanted), preallocate=bool(spec.preallocation))
    if source is not None and (http := source.http) is not None:
        plan.url, plan.checksum, plan.headers = http.url, http.checksum, list(http.extra_headers)
        plan.secret_headers = len(http.secret_extra_headers)
    if source is not None and source.registry is not None:
        plan.url = source.registry.url or ""
    plan.room = room_of(claim) if claim is not None else 0
    plan.source_block = copied is not None and copied.spec.volume_mode == names.VOLUME_MODE_BLOCK
    return plan
