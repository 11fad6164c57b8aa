"""Feature gates: what exists, how mature it is, and whether a cluster has it.

A gate that is GA is always on and one that is Discontinued never. Between them the cluster's configuration decides:
what it enables is on, what it disables is off, and where it says nothing Beta is on, Alpha and Deprecated are off.
A gate behind which nothing is built (`virt_core.apis.support`) is off whatever its state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from virt_core.apis.support.table import TODAY

ALPHA = "Alpha"
BETA = "Beta"
GA = "GA"
DEPRECATED = "Deprecated"
DISCONTINUED = "Discontinued"
NOT_BUILT = "NotBuilt"

_BY_STATE: dict[str, str] = {
    BETA: """ImageVolume Snapshot WorkloadEncryptionSEV KubevirtSeccompProfile NodeRestriction GPUsWithDRA
        HostDevicesWithDRA DecentralizedLiveMigration DeclarativeHotplugVolumes PasstBinding
        PodSecondaryInterfaceNamingUpgrade ExternalNetResourceInjection RebootPolicy Template OptOutRoleAggregation""",
    ALPHA: """CPUManager ExperimentalIgnitionSupport HypervStrictCheck Sidecar HostDevices HostDisk DownwardMetrics Root
        WorkloadEncryptionTDX VSOCK AlignCPUs EnableVirtioFsStorageVolumes PCINUMAAwareTopology NetworkDevicesWithDRA
        ObjectGraph UtilityVolumes ConfigurableHypervisor IncrementalBackup ContainerPathVolumes
        ReservedOverheadMemlock VGPULiveMigration VMStatsCollector OCIExport Plugins GraceIOVirtualization IOMMUFD
        FirmwareAutoSelection MigrationStallDetection MigrationDowntimeTuning CrossArchitectureVirtualization
        PortRangesSpec""",
    GA: """LiveMigration SRIOVLiveMigration NonRoot PSA CPUNodeDiscovery NUMA GPU CommonInstancetypesDeploymentGate
        HotplugNICs BochsDisplayForEFIGuests VMLiveUpdateFeatures NetworkBindingPlugins DynamicPodInterfaceNaming
        VolumesUpdateStrategy VolumeMigration DisableCustomSELinuxPolicy AutoResourceLimitsGate ClusterProfiler
        VMPersistentState VMExport PersistentReservation InstancetypeReferencePolicy EnableVirtioFsConfigVolumes
        ExpandDisks PanicDevices LiveUpdateNADRef VideoConfig SecureExecution MigrationPriorityQueue
        VmiMemoryOverheadReport LibvirtHooksServerAndClient""",
    DEPRECATED: "DockerSELinuxMCSWorkaround MultiArchitecture DisableMDEVConfiguration HotplugVolumes",
    DISCONTINUED: "ExperimentalVirtiofsSupport Passt Macvtap PasstIPStackMigration",
}

#: gate → state
GATES: Mapping[str, str] = MappingProxyType(
    {gate: state for state, gates in _BY_STATE.items() for gate in gates.split()}
)


def is_enabled(
    gate: str,
    enabled: Iterable[str] = (),
    disabled: Iterable[str] = (),
    missing: frozenset[str] = TODAY.missing_gates,
) -> bool:
    """Whether a cluster that lists these gates has this one. A gate that nobody knows is off."""
    state = GATES.get(gate)
    if gate in missing:
        return False
    if state in (GA, DISCONTINUED, None):
        return state == GA
    if gate in enabled:
        return True
    return state == BETA and gate not in disabled


def enabled_gates(
    enabled: Iterable[str] = (),
    disabled: Iterable[str] = (),
    missing: frozenset[str] = TODAY.missing_gates,
) -> frozenset[str]:
    """All gates that are on."""
    on, off = frozenset(enabled), frozenset(disabled)
    return frozenset(gate for gate in GATES if is_enabled(gate, on, off, missing))


def why_off(gate: str) -> str:
    """The sentence for somebody who would need it."""
    if gate in TODAY.missing_gates:
        return f"what the feature gate {gate} stands for is not built yet"
    return f"the feature gate {gate} is off"


def warnings(enabled: Iterable[str]) -> list[str]:
    """What to tell somebody who lists these gates."""
    said = {
        NOT_BUILT: "stands for something that is not built and has no effect",
        GA: "is always on and need not be listed",
        DEPRECATED: "is deprecated",
        DISCONTINUED: "is discontinued and has no effect",
        None: "is not known and has no effect",
    }
    states = [(gate, NOT_BUILT if gate in TODAY.missing_gates else GATES.get(gate)) for gate in enabled]
    return [f"feature gate {gate} {said[state]}" for gate, state in states if state in said]
