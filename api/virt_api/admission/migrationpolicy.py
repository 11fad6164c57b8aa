"""Admission of migration policies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from virt_api.admission.causes import Cause, Refused, invalid, one_of
from virt_api.admission.objects import document_of, read_member
from virt_core.apis.admission import AdmissionRequest
from virt_core.apis.policy import MigrationPolicySpec
from virt_core.apis.quantity import parse_quantity
from virt_core.kube.configvalues import ClusterConfig

_MAX_DOWNTIME_MS = 2_000_000


class PolicyValidator:
    def __init__(self, config: Callable[[], ClusterConfig]) -> None:
        self._config = config

    def __call__(self, request: AdmissionRequest) -> None:
        """Raises Refused with every cause."""
        spec = read_member(document_of(request.object), MigrationPolicySpec)
        old = document_of(request.old_object).get("spec")
        if causes := list(self._causes(spec, old if isinstance(old, dict) else {})):
            raise Refused(causes)

    def _causes(self, spec: MigrationPolicySpec, old: dict[str, Any]) -> Iterator[Cause]:
        if spec.completion_timeout_per_gi_b is not None and spec.completion_timeout_per_gi_b < 0:
            yield invalid("spec.completionTimeoutPerGiB", "must not be negative")
        if spec.bandwidth_per_migration is not None and parse_quantity(spec.bandwidth_per_migration) < 0:
            yield invalid("spec.bandwidthPerMigration", "must not be negative")
        downtime = spec.max_downtime_ms
        if downtime is not None:
            if not 1 <= downtime <= _MAX_DOWNTIME_MS:
                yield invalid("spec.maxDowntimeMs", f"must be from 1 to {_MAX_DOWNTIME_MS}")
            elif downtime != old.get("maxDowntimeMs"):
                yield from self._gated("spec.maxDowntimeMs", "MigrationDowntimeTuning")
        extra, before = spec.experimental, old.get("experimental") or {}
        if extra is None:
            return
        if extra.downtime_tuning is not None and "downtimeTuning" not in before:
            yield from self._gated("spec.experimental.downtimeTuning", "MigrationDowntimeTuning")
        if extra.stall_detector is not None and "stallDetector" not in before:
            yield from self._gated("spec.experimental.stallDetector", "MigrationStallDetection")
        if extra.compression not in (None, "none", "zstd"):
            yield invalid("spec.experimental.compression", one_of(extra.compression or "", ("none", "zstd")))

    def _gated(self, field: str, gate: str) -> Iterator[Cause]:
        if not self._config().has(gate):
            yield invalid(field, f"needs the feature gate {gate}")
