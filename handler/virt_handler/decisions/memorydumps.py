"""Dumps of a guest's memory into a volume that is in its Pod: when one begins, and how it went. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from msgspec.structs import replace

from virt_core.apis import names
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import DomainMemoryDumpInfo, VolumeStatus
from virt_core.runtime.times import rfc3339
from virt_protos.launcher.v1 import launcher_pb2 as pb


def targets(vmi: VirtualMachineInstance) -> dict[str, str]:
    """Claims by the names of the volumes that shall take a dump."""
    return {v.name: v.memory_dump.claim_name for v in vmi.spec.volumes if v.memory_dump is not None}


def told(
    vmi: VirtualMachineInstance, statuses: list[VolumeStatus], domain: pb.Domain, refused: dict[str, str], now: datetime
) -> list[VolumeStatus]:
    """`refused` says by file why a launcher did not even begin."""
    claims = targets(vmi)
    return [
        _next(vmi, each, claims[each.name], domain.memory_dump, refused, now) if each.name in claims else each
        for each in statuses
    ]


def due(vmi: VirtualMachineInstance, domain: pb.Domain, refused: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """Volume, file and kind of each dump that the launcher has not begun."""
    claims = targets(vmi)
    for status in vmi.status.volume_status:
        info = status.memory_dump_volume
        if status.name not in claims or status.phase != names.VOLUME_DUMPING or info is None:
            continue
        if domain.memory_dump.file_name != info.target_file_name and info.target_file_name not in refused:
            yield status.name, info.target_file_name, kind_of(vmi, status.name)


def kind_of(vmi: VirtualMachineInstance, volume: str) -> str:
    """What becomes of the guest whose whole state this volume takes; empty: it takes a core."""
    return vmi.metadata.annotations.get(names.ANNOTATION_SAVE_STATE, "") if volume == names.VOLUME_MACHINE_STATE else ""


def is_releasable(vmi: VirtualMachineInstance, domain: pb.Domain) -> bool:
    """The guest stands still for a snapshot, and nobody asks for that any more."""
    return domain.memory_dump.held and domain.memory_dump.kind == pb.DUMP_KIND_SNAPSHOT and not targets(vmi)


def file_name(vmi: VirtualMachineInstance, volume: str, now: datetime) -> str:
    suffix = names.MACHINE_STATE_SUFFIX if kind_of(vmi, volume) else names.MEMORY_DUMP_SUFFIX
    # No other state of the same VM may ever have this name: by it a state is known.
    told = vmi.metadata.uid if kind_of(vmi, volume) else volume
    return f"{vmi.metadata.name}-{told}-{now:%Y%m%d-%H%M%S}{suffix}"


def _next(  # noqa: PLR0917 - what a dump is decided by
    vmi: VirtualMachineInstance,
    status: VolumeStatus,
    claim: str,
    dump: pb.MemoryDump,
    refused: dict[str, str],
    now: datetime,
) -> VolumeStatus:
    info = status.memory_dump_volume
    if status.phase == names.VOLUME_MOUNTED:
        begun = DomainMemoryDumpInfo(
            claim_name=claim, target_file_name=file_name(vmi, status.name, now), start_timestamp=rfc3339(now)
        )
        words = f"Memory dump Volume {status.name} is attached, getting memory dump"
        return _said(replace(status, memory_dump_volume=begun), names.VOLUME_DUMPING, words)
    if status.phase != names.VOLUME_DUMPING or info is None:
        return status
    if why := refused.get(info.target_file_name):
        return _ended(status, info, now, why)
    if dump.file_name != info.target_file_name or not dump.ended_us:
        return status
    return _ended(status, info, now, dump.failure)


def _ended(status: VolumeStatus, info: DomainMemoryDumpInfo, now: datetime, failure: str) -> VolumeStatus:
    status = replace(status, memory_dump_volume=replace(info, end_timestamp=rfc3339(now)))
    if failure:
        return _said(status, names.VOLUME_DUMP_FAILED, f"Memory dump to pvc {status.name} failed: {failure}")
    return _said(status, names.VOLUME_DUMPED, f"Memory dump to pvc {status.name} has completed successfully")


def _said(status: VolumeStatus, phase: str, message: str) -> VolumeStatus:
    return replace(status, phase=phase, reason=phase, message=message)
