"""From spec.configuration of the KubeVirt object to a `ClusterConfig`. Pure.

The configuration is laid over built-in defaults as JSON: objects merge, lists and scalars replace. What cannot work is
refused as a whole, with the field's path, so that a slip of the pen never takes half an effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Any

from virt_core.apis import bindingplugins, bindings, eviction
from virt_core.apis.base import from_plain
from virt_core.apis.gates import enabled_gates
from virt_core.apis.meta import LabelSelector
from virt_core.apis.quantity import QuantityError, parse_quantity
from virt_core.kube.configvalues import EXPAND, EXPAND_ALL, REFERENCE, ClusterConfig, MigrationLimits, SMBios

Document = Mapping[str, Any]

ROOT = "spec.configuration"
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_ROLLOUT = ("LiveUpdate", "Stage")
_CUSTOM_PROFILE = ("seccompConfiguration", "virtualMachineInstanceProfile", "customProfile")
_LOCAL_PROFILE = (*_CUSTOM_PROFILE, "localhostProfile")
_TRACKED = "changedBlockTrackingLabelSelectors"
_ROLE_AGGREGATION = ("AggregateToDefault", "Manual")
_ARCHITECTURES = ("amd64", "arm64", "s390x")


@dataclass(frozen=True, slots=True)
class Flaw:
    """A value that cannot work, and where it stands."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class InvalidConfigurationError(ValueError):
    """Says every flaw."""

    def __init__(self, flaws: list[Flaw]) -> None:
        super().__init__("; ".join(str(flaw) for flaw in flaws))
        self.flaws = flaws


def effective(configuration: Document | None, base: ClusterConfig | None = None) -> ClusterConfig:
    """The snapshot of a spec.configuration. Raises InvalidConfigurationError."""
    given = configuration or {}
    if flaws := list(find_flaws(given)):
        raise InvalidConfigurationError(flaws)
    config = base or ClusterConfig()
    for part in (_developer, _sizes, _network, _life, _machines, _nodes, _logs):
        config = replace(config, **_known(part(given, config)))
    return replace(config, raw=MappingProxyType(dict(given)))


def _known(values: dict[str, Any]) -> dict[str, Any]:
    """None means: keep the default."""
    return {key: value for key, value in values.items() if value is not None}


def _at(document: Document, *path: str) -> Any:
    node: Any = document
    for key in path:
        node = node.get(key) if isinstance(node, Mapping) else None
    return node


def _developer(given: Document, _: ClusterConfig) -> dict[str, Any]:
    dev = _at(given, "developerConfiguration") or {}
    gates = enabled_gates(dev.get("featureGates") or (), dev.get("disabledFeatureGates") or ())
    return {
        "feature_gates": gates,
        "use_emulation": dev.get("useEmulation"),
        "memory_overcommit": dev.get("memoryOvercommit"),
        "cpu_allocation_ratio": dev.get("cpuAllocationRatio"),
        "pvc_tolerate_less_space_percent": dev.get("pvcTolerateLessSpaceUpToPercent"),
        "minimum_reserve_pvc_bytes": dev.get("minimumReservePVCBytes"),
        "node_selectors": dev.get("nodeSelectors"),
    }


def _sizes(given: Document, config: ClusterConfig) -> dict[str, Any]:
    models: Document = given.get("obsoleteCPUModels") or {}
    named = frozenset(models)
    rollout = given.get("vmRolloutStrategy")
    request = given.get("cpuRequest")
    return {
        "cpu_model": given.get("cpuModel") or None,
        "cpu_request": str(request) if request is not None else None,
        "obsolete_cpu_models": (config.obsolete_cpu_models - named) | {name for name in named if models[name]},
        "overhead_ratio": given.get("additionalGuestMemoryOverheadRatio"),
        "mem_balloon_stats_period_s": given.get("memBalloonStatsPeriod"),
        "max_hotplug_ratio": _at(given, "liveUpdateConfiguration", "maxHotplugRatio") or None,
        "max_cpu_sockets": _at(given, "liveUpdateConfiguration", "maxCpuSockets"),
        "max_guest": _at(given, "liveUpdateConfiguration", "maxGuest"),
        "live_update": rollout != "Stage" if rollout else None,
    }


def _network(given: Document, _: ClusterConfig) -> dict[str, Any]:
    return {
        "default_network_interface": _at(given, "network", "defaultNetworkInterface") or None,
        "permit_bridge_on_pod_network": _at(given, "network", "permitBridgeInterfaceOnPodNetwork"),
        "network_bindings": _at(given, "network", "binding"),
    }


def _life(given: Document, config: ClusterConfig) -> dict[str, Any]:
    block = given.get("migrations")
    return {
        "eviction_strategy": given.get("evictionStrategy") or None,
        "migrations": _migrations(block, config.migrations) if block else None,
        "reference_policy": _at(given, "instancetype", "referencePolicy") or None,
        "supported_agent_versions": tuple(given.get("supportedGuestAgentVersions") or ()) or None,
        "auto_cpu_limit_selector": _selector(given.get("autoCPULimitNamespaceLabelSelector")),
        "disable_free_page_reporting": _at(given, "virtualMachineOptions", "disableFreePageReporting") is not None,
        "disable_serial_console_log": _at(given, "virtualMachineOptions", "disableSerialConsoleLog") is not None,
        "vm_state_storage_class": given.get("vmStateStorageClass"),
        "tracked_namespaces": _selector(_at(given, _TRACKED, "namespaceLabelSelector")),
        "tracked_vms": _selector(_at(given, _TRACKED, "virtualMachineLabelSelector")),
    }


def _migrations(block: Document, limits: MigrationLimits) -> MigrationLimits:
    bandwidth = block.get("bandwidthPerMigration")
    disruption = block.get("allowWorkloadDisruption")
    values = {
        "parallel_per_cluster": block.get("parallelMigrationsPerCluster"),
        "parallel_outbound_per_node": block.get("parallelOutboundMigrationsPerNode"),
        "bandwidth": int(parse_quantity(bandwidth)) if bandwidth is not None else None,
        "progress_timeout_s": block.get("progressTimeout"),
        "completion_timeout_per_gib_s": block.get("completionTimeoutPerGiB"),
        "max_downtime_ms": block.get("maxDowntimeMs"),
        "utility_volumes_timeout_s": block.get("utilityVolumesTimeout"),
        "node_drain_taint_key": block.get("nodeDrainTaintKey") or None,
        "allow_auto_converge": block.get("allowAutoConverge"),
        "allow_post_copy": block.get("allowPostCopy"),
        "allow_workload_disruption": block.get("allowPostCopy") if disruption is None else disruption,
        "unsafe_migration_override": block.get("unsafeMigrationOverride"),
        "disable_tls": block.get("disableTLS"),
        "network": block.get("network"),
        "match_selinux_level": block.get("matchSELinuxLevelOnMigration"),
    }
    return replace(limits, **_known(values))


def _machines(given: Document, config: ClusterConfig) -> dict[str, Any]:
    types, emulated = dict(config.machine_types), dict(config.emulated_machines)
    # `machineType` and `emulatedMachines` are the older spelling, for the first architecture only.
    types["amd64"] = given.get("machineType") or types["amd64"]
    emulated["amd64"] = tuple(given.get("emulatedMachines") or emulated["amd64"])
    block = given.get("architectureConfiguration") or {}
    for architecture in _ARCHITECTURES:
        own = block.get(architecture) or {}
        types[architecture] = own.get("machineType") or types[architecture]
        emulated[architecture] = tuple(own.get("emulatedMachines") or emulated[architecture])
    return {
        "default_architecture": block.get("defaultArchitecture") or None,
        "machine_types": MappingProxyType(types),
        "emulated_machines": MappingProxyType(emulated),
    }


def _nodes(given: Document, config: ClusterConfig) -> dict[str, Any]:
    bios = _known({key: (given.get("smbios") or {}).get(key) for key in SMBios.__dataclass_fields__})
    return {
        "image_pull_policy": given.get("imagePullPolicy") or None,
        "permitted_host_devices": given.get("permittedHostDevices"),
        "minimum_tsc_hz": _at(given, "developerConfiguration", "minimumClusterTSCFrequency") or None,
        "persistent_reservation": _at(given, "persistentReservationConfiguration", "enabled"),
        "seccomp_profile": _at(given, *_LOCAL_PROFILE) or "",
        "smbios": replace(config.smbios, **bios),
    }


def _logs(given: Document, _: ClusterConfig) -> dict[str, Any]:
    block = _at(given, "developerConfiguration", "logVerbosity") or {}
    return {
        "log_verbosity": {key: value for key, value in block.items() if isinstance(value, int) and value},
        "node_verbosity": block.get("nodeVerbosity"),
    }


def find_flaws(given: Document) -> Iterator[Flaw]:
    """What cannot work, each with its path."""
    for path, allowed in _CHOICES.items():
        value = _at(given, *path)
        if value and value not in allowed:
            yield Flaw(_path(*path), f"{value!r} is not one of {', '.join(allowed)}")
    for path in _POSITIVE:
        value = _at(given, *path)
        if value is not None and value <= 0:
            yield Flaw(_path(*path), f"must be more than 0, not {value}")
    percent = _at(given, "developerConfiguration", "pvcTolerateLessSpaceUpToPercent")
    if percent is not None and not 0 <= percent <= 100:
        yield Flaw(_path("developerConfiguration", "pvcTolerateLessSpaceUpToPercent"), "must be between 0 and 100")
    yield from _seccomp(given)
    yield from _unreadable(given)
    yield from _plugins(given)


def _plugins(given: Document) -> Iterator[Flaw]:
    for field, message in bindingplugins.flaws(_at(given, "network", "binding") or {}):
        yield Flaw(_path("network", "binding", field), message)


def _seccomp(given: Document) -> Iterator[Flaw]:
    local = _at(given, *_LOCAL_PROFILE)
    if local and _at(given, *_CUSTOM_PROFILE, "runtimeDefaultProfile"):
        yield Flaw(_path(*_CUSTOM_PROFILE), "must name a profile of the nodes or that of the runtime, not both")
    if local and (local.startswith("/") or ".." in local.split("/")):
        yield Flaw(_path(*_LOCAL_PROFILE), f"must be a path below the kubelet's directory of profiles, not {local!r}")


def _unreadable(given: Document) -> Iterator[Flaw]:
    for path in _QUANTITIES:
        value = _at(given, *path)
        try:
            if value is not None and parse_quantity(value) < 0:
                yield Flaw(_path(*path), f"must not be negative, but is {value}")
        except QuantityError as error:
            yield Flaw(_path(*path), str(error))
    ratio = given.get("additionalGuestMemoryOverheadRatio")
    try:
        if ratio is not None and not Decimal(ratio) >= 1:
            yield Flaw(_path("additionalGuestMemoryOverheadRatio"), f"must be 1.0 or more, not {ratio}")
    except InvalidOperation:
        yield Flaw(_path("additionalGuestMemoryOverheadRatio"), f"{ratio!r} is not a number")


def _path(*keys: str) -> str:
    return ".".join((ROOT, *keys))


_CHOICES: dict[tuple[str, ...], tuple[str, ...]] = {
    ("imagePullPolicy",): _PULL_POLICIES,
    ("roleAggregationStrategy",): _ROLE_AGGREGATION,
    ("network", "defaultNetworkInterface"): bindings.DEFAULTS,
    ("evictionStrategy",): eviction.STRATEGIES,
    ("vmRolloutStrategy",): _ROLLOUT,
    ("instancetype", "referencePolicy"): (REFERENCE, EXPAND, EXPAND_ALL),
    ("architectureConfiguration", "defaultArchitecture"): _ARCHITECTURES,
}
_POSITIVE: tuple[tuple[str, ...], ...] = (
    ("developerConfiguration", "memoryOvercommit"),
    ("developerConfiguration", "cpuAllocationRatio"),
    ("migrations", "parallelMigrationsPerCluster"),
    ("migrations", "parallelOutboundMigrationsPerNode"),
)
_QUANTITIES: tuple[tuple[str, ...], ...] = (
    ("cpuRequest",),
    ("liveUpdateConfiguration", "maxGuest"),
    ("migrations", "bandwidthPerMigration"),
    ("developerConfiguration", "minimumReservePVCBytes"),
)


def _selector(given: Mapping[str, Any] | None) -> LabelSelector | None:
    return from_plain(given, LabelSelector) if given is not None else None
