"""Snapshots as a metric: when each was taken. Only the leader has anything to tell."""

from __future__ import annotations

from typing import Protocol

from virt_core.apis.snapshot import SUCCEEDED, VirtualMachineSnapshot
from virt_core.runtime.metrics import Family
from virt_core.runtime.times import parse_rfc3339

NAME = "kubevirt_vmsnapshot_succeeded_timestamp_seconds"


class Snapshots(Protocol):
    def list(self) -> list[VirtualMachineSnapshot]: ...


class SnapshotFigures:
    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots

    def collect(self) -> list[Family]:
        rows: list[tuple[tuple[str, ...], float]] = []
        for each in self._snapshots.list():
            created, meta = each.status.creation_time, each.metadata
            if each.status.phase == SUCCEEDED and created:
                labels = (each.spec.source.name, meta.name, meta.namespace)
                rows.append((labels, parse_rfc3339(created).timestamp()))
        words = "When a snapshot of a VM was taken."
        return [Family(NAME, words, "gauge", ("name", "snapshot_name", "namespace"), rows)]
