"""What an importer is asked to do for a DataVolume. Pure."""

from __future__ import annotations

from virt_controller.datavolume.claims import is_block
from virt_core.apis import importplan
from virt_core.apis.datavolume import ClaimSpec, DataVolumeSpec
from virt_core.apis.importplan import ImportPlan


def kind_of(spec: DataVolumeSpec) -> str:
    """The kind of its source; empty: none of ours."""
    source = spec.source
    if source is None:
        return ""
    if source.http is not None:
        return importplan.HTTP
    return importplan.BLANK if source.blank is not None else ""


def plan_of(spec: DataVolumeSpec, size: int) -> ImportPlan:
    source, wanted = spec.source, spec.storage or spec.pvc or ClaimSpec()
    plan = ImportPlan(source=kind_of(spec), size=size, block=is_block(wanted), preallocate=bool(spec.preallocation))
    if source is not None and (http := source.http) is not None:
        plan.url, plan.checksum, plan.headers = http.url, http.checksum, list(http.extra_headers)
        plan.secret_headers = len(http.secret_extra_headers)
    return plan
