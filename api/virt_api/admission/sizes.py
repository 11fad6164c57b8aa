"""Admission of instance types, preferences, migration policies and of the KubeVirt object."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from virt_api.admission.causes import Cause, Denied, Refused, invalid, one_of
from virt_api.admission.cluster import Cluster
from virt_api.admission.objects import document_of, is_terminating, name_of, read_member
from virt_api.admission.review import Accepted
from virt_api.config import ClusterConfig
from virt_core.apis import gates
from virt_core.apis.admission import AdmissionRequest
from virt_core.apis.instancetype import VirtualMachineInstancetypeSpec
from virt_core.apis.kubevirt import KubeVirt, KubeVirtSpec
from virt_core.apis.policy import MigrationPolicySpec
from virt_core.apis.preference import VirtualMachinePreferenceSpec
from virt_core.apis.quantity import parse_quantity
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.clusterconfig import find_flaws

TOPOLOGIES = ("sockets", "cores", "threads", "spread", "any")
_OLD_TOPOLOGIES = ("preferSockets", "preferCores", "preferThreads", "preferSpread", "preferAny")
SPREADS = ("SocketsCores", "SocketsCoresThreads", "CoresThreads")
_MAX_DOWNTIME_MS = 2_000_000
_BLOCK_UNINSTALL = "BlockUninstallIfWorkloadsExist"


def validate_instancetype(request: AdmissionRequest) -> None:
    spec = read_member(document_of(request.object), VirtualMachineInstancetypeSpec)
    if causes := list(_instancetype(spec)):
        raise Refused(causes)


def _instancetype(spec: VirtualMachineInstancetypeSpec) -> Iterator[Cause]:
    if spec.cpu.guest < 1:
        yield invalid("spec.cpu.guest", "must be 1 or more")
    if parse_quantity(spec.memory.guest) <= 0:
        yield invalid("spec.memory.guest", "must be more than 0")
    field = "spec.memory.overcommitPercent"
    if not 0 <= spec.memory.overcommit_percent <= 100:
        yield invalid(field, "must be from 0 to 100")
    if spec.memory.overcommit_percent and spec.memory.hugepages is not None:
        yield invalid(field, "huge pages cannot be promised twice")


def validate_preference(request: AdmissionRequest) -> None:
    spec = read_member(document_of(request.object), VirtualMachinePreferenceSpec)
    if causes := list(_preference(spec)):
        raise Refused(causes)


def _preference(spec: VirtualMachinePreferenceSpec) -> Iterator[Cause]:
    if spec.cpu is None:
        return
    topology, options = spec.cpu.preferred_cpu_topology, spec.cpu.spread_options
    if topology and topology not in TOPOLOGIES + _OLD_TOPOLOGIES:
        yield invalid("spec.cpu.preferredCPUTopology", one_of(topology, TOPOLOGIES))
    if options is None:
        return
    if options.across is not None and options.across not in SPREADS:
        yield invalid("spec.cpu.spreadOptions.across", one_of(options.across, SPREADS))
    if topology in ("spread", "preferSpread") and options.across == "CoresThreads" and options.ratio not in (None, 2):
        yield invalid("spec.cpu.spreadOptions.ratio", "CoresThreads goes with a ratio of 2 only")


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


class KubeVirtValidator:
    """One in a cluster, with a configuration that can work; kept while machines need it, if it says so."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def __call__(self, request: AdmissionRequest) -> Accepted:
        """Raises Refused or Denied; warns of feature gates that have no effect or soon will not."""
        if request.operation == "DELETE":
            self._delete(document_of(request.old_object))
            return Accepted()
        document = document_of(request.object)
        if is_terminating(document):
            return Accepted()
        developer = read_member(document, KubeVirtSpec).configuration.developer_configuration
        configuration = document["spec"].get("configuration") or {}
        if causes := [invalid(flaw.field, flaw.message) for flaw in find_flaws(configuration)]:
            raise Refused(causes)
        if request.operation == "CREATE" and (others := self._cluster.list(KubeVirt)):
            where = f"{others[0].metadata.namespace}/{others[0].metadata.name}"
            raise Denied(f"there already is a KubeVirt object, {where}; a cluster has one")
        return Accepted(warnings=gates.warnings(developer.feature_gates if developer is not None else ()))

    def _delete(self, old: dict[str, Any]) -> None:
        spec = old.get("spec")
        if not isinstance(spec, dict) or spec.get("uninstallStrategy") != _BLOCK_UNINSTALL:
            return
        for cls in (VirtualMachineInstance, VirtualMachine):
            if self._cluster.list(cls):
                name = name_of(old)
                raise Denied(f"{name} cannot be deleted while there are {cls.__name__}s")
