"""spec.configuration over the built-in defaults."""

from __future__ import annotations

from typing import Any

import pytest

from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.configuration import KubeVirtConfiguration
from virt_core.kube.clusterconfig import (
    ClusterConfig,
    InvalidConfigurationError,
    MigrationLimits,
    effective,
    find_flaws,
)


def test_nothing_configured_is_the_defaults() -> None:
    config = effective(None)
    assert config == effective({}) == ClusterConfig()
    assert (config.memory_overcommit, config.cpu_allocation_ratio, config.cpu_request) == (100, 10, "100m")
    assert (config.default_network_interface, config.permit_bridge_on_pod_network) == ("bridge", True)
    assert (config.machine_types["amd64"], config.emulated_machines["amd64"]) == ("q35", ("q35*", "pc-q35*"))
    assert (config.migrations.parallel_per_cluster, config.migrations.max_downtime_ms) == (5, 900)
    assert (config.max_hotplug_ratio, config.live_update, config.reference_policy) == (4, True, "reference")
    assert (config.smbios.manufacturer, config.smbios.product, config.mem_balloon_stats_period_s) == (
        "KubeVirt",
        "None",
        10,
    )
    assert config.use_emulation is False
    assert config.has("RebootPolicy")
    assert not config.has("HostDisk")


PROFILE = "seccompConfiguration.virtualMachineInstanceProfile.customProfile"


def seccomp(**profile: Any) -> dict[str, Any]:
    return {"seccompConfiguration": {"virtualMachineInstanceProfile": {"customProfile": profile}}}


@pytest.mark.parametrize(
    ("given", "field", "expected"),
    [
        ({"developerConfiguration": {"useEmulation": True}}, "use_emulation", True),
        ({"developerConfiguration": {"memoryOvercommit": 150}}, "memory_overcommit", 150),
        ({"developerConfiguration": {"cpuAllocationRatio": 4}}, "cpu_allocation_ratio", 4),
        ({"developerConfiguration": {"nodeSelectors": {"a": "b"}}}, "node_selectors", {"a": "b"}),
        ({"developerConfiguration": {"minimumReservePVCBytes": 1}}, "minimum_reserve_pvc_bytes", 1),
        ({"cpuModel": "Nehalem"}, "cpu_model", "Nehalem"),
        ({"cpuRequest": "200m"}, "cpu_request", "200m"),
        ({"additionalGuestMemoryOverheadRatio": "1.5"}, "overhead_ratio", "1.5"),
        ({"memBalloonStatsPeriod": 0}, "mem_balloon_stats_period_s", 0),
        ({"liveUpdateConfiguration": {"maxHotplugRatio": 2}}, "max_hotplug_ratio", 2),
        ({"liveUpdateConfiguration": {"maxCpuSockets": 8}}, "max_cpu_sockets", 8),
        ({"liveUpdateConfiguration": {"maxGuest": "8Gi"}}, "max_guest", "8Gi"),
        ({"vmRolloutStrategy": "Stage"}, "live_update", False),
        ({"vmRolloutStrategy": "LiveUpdate"}, "live_update", True),
        ({"network": {"defaultNetworkInterface": "masquerade"}}, "default_network_interface", "masquerade"),
        ({"network": {"permitBridgeInterfaceOnPodNetwork": False}}, "permit_bridge_on_pod_network", False),
        (
            {"network": {"binding": {"p": {"domainAttachmentType": "tap"}}}},
            "network_bindings",
            {"p": {"domainAttachmentType": "tap"}},
        ),
        ({"evictionStrategy": "LiveMigrate"}, "eviction_strategy", "LiveMigrate"),
        ({"instancetype": {"referencePolicy": "expandAll"}}, "reference_policy", "expandAll"),
        ({"supportedGuestAgentVersions": ["9.*"]}, "supported_agent_versions", ("9.*",)),
        ({"imagePullPolicy": "Always"}, "image_pull_policy", "Always"),
        ({"permittedHostDevices": {"usb": []}}, "permitted_host_devices", {"usb": []}),
        ({"persistentReservationConfiguration": {"enabled": True}}, "persistent_reservation", True),
        (seccomp(localhostProfile="kubevirt/kubevirt.json"), "seccomp_profile", "kubevirt/kubevirt.json"),
        (seccomp(runtimeDefaultProfile=True), "seccomp_profile", ""),
        ({"virtualMachineOptions": {"disableFreePageReporting": {}}}, "disable_free_page_reporting", True),
        ({"virtualMachineOptions": {"disableSerialConsoleLog": {}}}, "disable_serial_console_log", True),
        ({"vmStateStorageClass": "fast"}, "vm_state_storage_class", "fast"),
        ({"architectureConfiguration": {"defaultArchitecture": "arm64"}}, "default_architecture", "arm64"),
    ],
)
def test_a_field_that_is_set_holds(given: dict[str, Any], field: str, expected: Any) -> None:
    assert getattr(effective(given), field) == expected
    assert effective(given).raw == given


def test_objects_merge_and_lists_replace() -> None:
    given = {
        "architectureConfiguration": {"amd64": {"emulatedMachines": ["pc*"]}, "arm64": {"machineType": "virt-9"}},
        "smbios": {"family": "Ours"},
        "obsoleteCPUModels": {"Penryn": True, "kvm64": False},
    }
    config = effective(given)
    assert config.emulated_machines["amd64"] == ("pc*",)
    assert config.emulated_machines["s390x"] == ("s390-ccw-virtio*",)
    assert (config.machine_types["amd64"], config.machine_types["arm64"]) == ("q35", "virt-9")
    assert (config.smbios.family, config.smbios.manufacturer) == ("Ours", "KubeVirt")
    assert "Penryn" in config.obsolete_cpu_models
    assert "kvm64" not in config.obsolete_cpu_models
    assert "pentium" in config.obsolete_cpu_models


def test_the_older_machine_type_still_counts() -> None:
    assert effective({"machineType": "pc-q35-7.2"}).machine_types["amd64"] == "pc-q35-7.2"
    assert effective({"emulatedMachines": ["pc*"]}).emulated_machines["amd64"] == ("pc*",)


def test_migrations() -> None:
    given = {"migrations": {"parallelMigrationsPerCluster": 9, "bandwidthPerMigration": "64Mi", "allowPostCopy": True}}
    limits = effective(given).migrations
    assert (limits.parallel_per_cluster, limits.parallel_outbound_per_node) == (9, 2)
    assert limits.bandwidth == 64 << 20
    assert limits.allow_workload_disruption is True  # Follows allowPostCopy unless it is set itself.
    given["migrations"]["allowWorkloadDisruption"] = False
    assert effective(given).migrations.allow_workload_disruption is False


def test_gates() -> None:
    config = effective({"developerConfiguration": {"featureGates": ["HostDisk"], "disabledFeatureGates": ["Snapshot"]}})
    assert config.has("HostDisk")
    assert not config.has("Snapshot")


@pytest.mark.parametrize(
    ("verbosity", "component", "node", "expected"),
    [
        ({}, "virtAPI", "", None),
        ({"virtAPI": 6}, "virtAPI", "", "debug"),
        ({"virtAPI": 2}, "virtAPI", "", "info"),
        ({"virtAPI": 6}, "virtHandler", "", None),
        ({"virtHandler": 2, "nodeVerbosity": {"n1": 9}}, "virtHandler", "n1", "debug"),
        ({"virtHandler": 2, "nodeVerbosity": {"n1": 9}}, "virtHandler", "n2", "info"),
        ({"nodeVerbosity": {"n1": 0}}, "virtHandler", "n1", "warning"),
    ],
)
def test_log_levels(verbosity: dict[str, Any], component: str, node: str, expected: str | None) -> None:
    config = effective({"developerConfiguration": {"logVerbosity": verbosity}})
    assert config.log_level(component, node) == expected


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"imagePullPolicy": "Sometimes"}, "imagePullPolicy"),
        ({"developerConfiguration": {"memoryOvercommit": 0}}, "developerConfiguration.memoryOvercommit"),
        ({"developerConfiguration": {"cpuAllocationRatio": -1}}, "developerConfiguration.cpuAllocationRatio"),
        (
            {"developerConfiguration": {"pvcTolerateLessSpaceUpToPercent": 101}},
            "developerConfiguration.pvcTolerateLessSpaceUpToPercent",
        ),
        ({"network": {"defaultNetworkInterface": "smoke"}}, "network.defaultNetworkInterface"),
        ({"evictionStrategy": "Later"}, "evictionStrategy"),
        ({"vmRolloutStrategy": "Now"}, "vmRolloutStrategy"),
        (seccomp(localhostProfile="../../etc/passwd"), f"{PROFILE}.localhostProfile"),
        (seccomp(localhostProfile="/etc/passwd"), f"{PROFILE}.localhostProfile"),
        (seccomp(localhostProfile="a.json", runtimeDefaultProfile=True), PROFILE),
        ({"instancetype": {"referencePolicy": "guess"}}, "instancetype.referencePolicy"),
        (
            {"architectureConfiguration": {"defaultArchitecture": "vax"}},
            "architectureConfiguration.defaultArchitecture",
        ),
        ({"migrations": {"parallelMigrationsPerCluster": 0}}, "migrations.parallelMigrationsPerCluster"),
        ({"migrations": {"bandwidthPerMigration": "much"}}, "migrations.bandwidthPerMigration"),
        ({"cpuRequest": "-1"}, "cpuRequest"),
        ({"additionalGuestMemoryOverheadRatio": "0.5"}, "additionalGuestMemoryOverheadRatio"),
        ({"additionalGuestMemoryOverheadRatio": "lots"}, "additionalGuestMemoryOverheadRatio"),
        ({"additionalGuestMemoryOverheadRatio": "NaN"}, "additionalGuestMemoryOverheadRatio"),
    ],
)
def test_what_can_not_work_is_refused_with_its_path(given: dict[str, Any], field: str) -> None:
    assert [flaw.field for flaw in find_flaws(given)] == [f"spec.configuration.{field}"]
    with pytest.raises(InvalidConfigurationError, match=field.rpartition(".")[2]):
        effective(given)


def test_every_flaw_is_told() -> None:
    with pytest.raises(InvalidConfigurationError) as caught:
        effective({"imagePullPolicy": "x", "evictionStrategy": "y"})
    assert len(caught.value.flaws) == 2


def test_nothing_is_lost_on_the_way_through_the_api_types() -> None:
    """The watcher reads structs; a field whose name or default differs there would silently have no effect."""
    given: dict[str, Any] = {
        "additionalGuestMemoryOverheadRatio": "1.5",
        "architectureConfiguration": {"amd64": {"emulatedMachines": ["pc*"], "machineType": "pc"}},
        "cpuModel": "Nehalem",
        "cpuRequest": "200m",
        "developerConfiguration": {
            "cpuAllocationRatio": 3,
            "disabledFeatureGates": ["Snapshot"],
            "featureGates": ["HostDisk"],
            "logVerbosity": {
                "virtAPI": 5,
                "virtController": 5,
                "virtHandler": 5,
                "virtLauncher": 5,
                "nodeVerbosity": {"n": 0},
            },
            "memoryOvercommit": 150,
            "minimumReservePVCBytes": 0,
            "nodeSelectors": {"a": "b"},
            "pvcTolerateLessSpaceUpToPercent": 0,
            "useEmulation": True,
        },
        "evictionStrategy": "LiveMigrate",
        "imagePullPolicy": "Always",
        "instancetype": {"referencePolicy": "expand"},
        "liveUpdateConfiguration": {"maxCpuSockets": 8, "maxGuest": "8Gi", "maxHotplugRatio": 2},
        "memBalloonStatsPeriod": 0,
        "migrations": {
            "allowAutoConverge": True,
            "allowPostCopy": True,
            "allowWorkloadDisruption": False,
            "bandwidthPerMigration": "1Mi",
            "completionTimeoutPerGiB": 1,
            "disableTLS": True,
            "matchSELinuxLevelOnMigration": False,
            "maxDowntimeMs": 1,
            "network": "net",
            "nodeDrainTaintKey": "key",
            "parallelMigrationsPerCluster": 1,
            "parallelOutboundMigrationsPerNode": 1,
            "progressTimeout": 1,
            "unsafeMigrationOverride": True,
            "utilityVolumesTimeout": 1,
        },
        "network": {"defaultNetworkInterface": "masquerade", "permitBridgeInterfaceOnPodNetwork": False},
        "obsoleteCPUModels": {"kvm64": False},
        "persistentReservationConfiguration": {"enabled": True},
        "smbios": {"family": "f", "manufacturer": "m", "product": "p", "sku": "s", "version": "v"},
        "supportedGuestAgentVersions": ["9.*"],
        "virtualMachineOptions": {"disableFreePageReporting": {}, "disableSerialConsoleLog": {}},
        "vmRolloutStrategy": "Stage",
        "vmStateStorageClass": "fast",
    }
    read = to_plain(from_plain(given, KubeVirtConfiguration))
    assert read == given
    defaults, config = ClusterConfig(), effective(read)
    same = {name for name in MigrationLimits.__dataclass_fields__ if name != "allow_workload_disruption"}
    unchanged = [name for name in same if getattr(config.migrations, name) == getattr(defaults.migrations, name)]
    assert unchanged == []
