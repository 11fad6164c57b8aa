"""Every name that two programs must agree on: labels, annotations, finalizers, phases, conditions, reasons, paths."""

from __future__ import annotations

from collections.abc import Mapping

# API groups and versions
GROUP = "kubevirt.io"
SUBRESOURCE_GROUP = "subresources.kubevirt.io"
VERSION = "v1"
VERSION_OLD = "v1alpha3"
API_VERSION = "kubevirt.io/v1"

# Where we are installed
INSTALL_NAMESPACE = "virtpod"
SA_API = "virt-api"
SA_CONTROLLER = "virt-controller"
SA_HANDLER = "virt-handler"
SERVICE_ACCOUNTS = (SA_API, SA_CONTROLLER, SA_HANDLER)
LEASE_CONTROLLER = "virt-controller"
SERVICE_API = "virt-api"

# TLS: one role each
TLS_NAME_API = "virt-api.virtpod.internal"
# The Secrets that hold them, made by virt-controller's leader; the serving one by cert-manager, where that is wished
CERTS_CA = "virtpod-ca"
CERTS_API_SERVING = "virt-api-serving"
CERTS_API_CLIENT = "virt-api-client"
# What the metric calls a node's own certificate, which no Secret holds
CERTS_HANDLER = "virt-handler"
# Who signs it, on request; and the ConfigMap with whom to trust (ca.crt) and who signs now (signer.crt)
SIGNER_HANDLER = "virtpod.io/virt-handler"
CERTS_BUNDLE = "virtpod-ca-bundle"
TLS_SIGNER_FILE = "signer.crt"
# What the API server says of a token: on which node its Pod runs
EXTRA_NODE_NAME = "authentication.kubernetes.io/node-name"
TLS_CERT_FILE = "tls.crt"
TLS_KEY_FILE = "tls.key"
TLS_CA_FILE = "ca.crt"

# Labels
LABEL_APP = "kubevirt.io"
APP_LAUNCHER = "virt-launcher"
APP_ATTACHMENT = "hotplug-disk"
APP_IMPORTER = "virt-importer"
APP_EXPORTER = "virt-exporter"
LABEL_EXPORT_SERVICE = "kubevirt.io.virt-export-service"
ATTACHMENT_PREFIX = "hp-volume-"
LABEL_CREATED_BY = "kubevirt.io/created-by"
LABEL_VMI_ID = "vmi.kubevirt.io/id"
LABEL_VM_NAME = "vm.kubevirt.io/name"
LABEL_NODE_NAME = "kubevirt.io/nodeName"
LABEL_MIGRATION_TARGET_NODE = "kubevirt.io/migrationTargetNodeName"
LABEL_MIGRATION_JOB_UID = "kubevirt.io/migrationJobUID"
LABEL_MIGRATION_VMI_NAME = "kubevirt.io/vmi-name"
#: On a job that takes volumes to other claims: the VMI.
LABEL_VOLUME_UPDATE = "kubevirt.io/volume-update-migration"
LABEL_OUTDATED_LAUNCHER = "kubevirt.io/outdatedLauncherImage"
LABEL_SCHEDULABLE = "kubevirt.io/schedulable"
LABEL_CPU_MANAGER = "cpumanager"
LABEL_CPU_MANAGER_NEW = "kubevirt.io/cpumanager"
LABEL_NODE_ARCH = "kubernetes.io/arch"
LABEL_NODE_HOSTNAME = "kubernetes.io/hostname"
LABEL_PREFIX_CPU_MODEL = "cpu-model.node.kubevirt.io/"
LABEL_PREFIX_CPU_MODEL_MIGRATION = "cpu-model-migration.node.kubevirt.io/"
LABEL_PREFIX_CPU_FEATURE = "cpu-feature.node.kubevirt.io/"
LABEL_PREFIX_CPU_TIMER = "cpu-timer.node.kubevirt.io/"
LABEL_PREFIX_CPU_VENDOR = "cpu-vendor.node.kubevirt.io/"
LABEL_PREFIX_HYPERV = "hyperv.node.kubevirt.io/"
LABEL_PREFIX_MACHINE_TYPE = "machine-type.node.kubevirt.io/"
LABEL_PREFIX_HOST_MODEL_CPU = "host-model-cpu.node.kubevirt.io/"
LABEL_PREFIX_HOST_MODEL_FEATURES = "host-model-required-features.node.kubevirt.io/"
LABEL_PREFIX_VM_ARCH = "kubevirt.io/vm-arch-"
#: On a launcher Pod, with the UID of a claim that it may reserve.
LABEL_PREFIX_RESERVATION = "pr.kubevirt.io/"
LABEL_KSM_ENABLED = "kubevirt.io/ksm-enabled"
LABEL_REALTIME = "kubevirt.io/realtime"
LABEL_SEV = "kubevirt.io/sev"
LABEL_SEV_ES = "kubevirt.io/sev-es"
LABEL_SEV_SNP = "kubevirt.io/sev-snp"
LABEL_TDX = "kubevirt.io/tdx"
LABEL_S390_PV = "kubevirt.io/s390-pv"
LABEL_KEPT_STATE = "persistent-state-for"
LABEL_MIGRATION_NAME = "kubevirt.io/migrationName"
LABEL_APPLY_STORAGE_PROFILE = "cdi.kubevirt.io/applyStorageProfile"
#: Those of a machine that only our own programs may set.
RESTRICTED_LABELS = (
    LABEL_CREATED_BY,
    LABEL_MIGRATION_JOB_UID,
    LABEL_NODE_NAME,
    LABEL_MIGRATION_TARGET_NODE,
    LABEL_SCHEDULABLE,
    "kubevirt.io/install-strategy",
)

# Annotations
ANNOTATION_DOMAIN = "kubevirt.io/domain"
ANNOTATION_HEARTBEAT = "kubevirt.io/heartbeat"
ANNOTATION_HANDLER_ADDRESS = "virtpod.io/handler-address"
ANNOTATION_LATEST_API_VERSION = "kubevirt.io/latest-observed-api-version"
ANNOTATION_STORAGE_API_VERSION = "kubevirt.io/storage-observed-api-version"
ANNOTATION_PCI_TOPOLOGY_VERSION = "kubevirt.io/pci-topology-version"
ANNOTATION_PCI_ON_ROOT_COMPLEX = "kubevirt.io/placePCIDevicesOnRootComplex"
ANNOTATION_PCI_INTERFACE_SLOTS = "kubevirt.io/pci-interface-slot-count"
ANNOTATION_NO_PCI_HOLE64 = "kubevirt.io/disablePCIHole64"
ANNOTATION_VM_GENERATION = "kubevirt.io/vm-generation"
#: In Hz, on the launcher Pod: what its machine was promised.
ANNOTATION_TSC_FREQUENCY = "virtpod.io/tsc-frequency"
#: For a machine of which size a target Pod was made. What it asks for, others may have changed.
ANNOTATION_TARGET_ROOM = "virtpod.io/target-room"
ANNOTATION_MEMORY_OVERHEAD = "kubevirt.io/memory-overhead-bytes"
ANNOTATION_HOOK_SIDECARS = "hooks.kubevirt.io/hookSidecars"
ANNOTATION_IGNITION = "kubevirt.io/ignitiondata"
ANNOTATION_FREE_PAGE_REPORTING_DISABLED = "kubevirt.io/free-page-reporting-disabled"
ANNOTATION_KEEP_LAUNCHER = "kubevirt.io/keep-launcher-alive-after-failure"
ANNOTATION_FAIL_FAST = "kubevirt.io/func-test-virt-launcher-fail-fast"
#: Not ours, but Multus's: what a Pod asks for beside its own network, what it has in place of that, what became of it.
ANNOTATION_NETWORKS = "k8s.v1.cni.cncf.io/networks"
ANNOTATION_DEFAULT_NETWORK = "v1.multus-cni.io/default-network"
ANNOTATION_NETWORK_STATUS = "k8s.v1.cni.cncf.io/network-status"
#: On a NetworkAttachmentDefinition: which resource of a node a Pod on this network needs.
ANNOTATION_NETWORK_RESOURCE = "k8s.v1.cni.cncf.io/resourceName"
#: On a launcher Pod: which device it got for which network.
ANNOTATION_NETWORK_INFO = "kubevirt.io/network-info"
#: Istio's: whether a proxy is put into the Pod (there as a label), and which of the Pod's links it takes traffic of;
#: the last is the older name.
ANNOTATION_MESH = "sidecar.istio.io/inject"
ANNOTATION_MESH_INTERFACES = "istio.io/reroute-virtual-interfaces"
ANNOTATION_MESH_INTERFACES_OLD = "traffic.sidecar.istio.io/kubevirtInterfaces"
ANNOTATION_POD_BRIDGE_MIGRATION = "kubevirt.io/allow-pod-bridge-network-live-migration"
ANNOTATION_SKIP_NODE_LABELLER = "node-labeller.kubevirt.io/skip-node"
ANNOTATION_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
ANNOTATION_PREFIX_KUBECTL = "kubectl.kubernetes.io"
#: Kubernetes' own: the node that a claim was made for.
ANNOTATION_SELECTED_NODE = "volume.kubernetes.io/selected-node"
ANNOTATION_MIGRATION_JOB_NAME = "kubevirt.io/migrationJobName"
ANNOTATION_MIGRATION_UNSCHEDULABLE = "kubevirt.io/migrationUnschedulablePodTimeoutSeconds"
ANNOTATION_MIGRATION_UTILITY_VOLUMES = "kubevirt.io/migrationUtilityVolumesTimeoutSeconds"
ANNOTATION_MIGRATION_PENDING = "kubevirt.io/migrationPendingPodTimeoutSeconds"
#: On a job: the node that the machine must leave, or that it gets a new launcher.
ANNOTATION_EVACUATION = "kubevirt.io/evacuationMigration"
ANNOTATION_WORKLOAD_UPDATE = "kubevirt.io/workloadUpdateMigration"
#: On a VMI that must leave: who said so.
ANNOTATION_EVICTION_SOURCE = "kubevirt.io/eviction-source"
ANNOTATION_EPHEMERAL_PROVISIONING = "kubevirt.io/ephemeral-provisioning"
ANNOTATION_EVEN_PARITY = "alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity"
ANNOTATION_QUOTE_SOCKET = "kubevirt.io/qgs-socket-path"
ANNOTATION_MEMFD = "kubevirt.io/memfd"
ANNOTATION_OWNER_VMI_NAME = "kubevirt.io/owner-vmi-name"
ANNOTATION_OWNER_VMI_UID = "kubevirt.io/owner-vmi-uid"
ANNOTATION_PREALLOCATION = "cdi.kubevirt.io/storage.preallocation"
ANNOTATION_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
ANNOTATION_DEFAULT_VIRT_CLASS = "storageclass.kubevirt.io/is-default-virt-class"
PCI_TOPOLOGY_V3 = "v3"

# Finalizers
FINALIZER_VMI = "kubevirt.io/foregroundDeleteVirtualMachine"
FINALIZER_VMI_LEGACY = "foregroundDeleteVirtualMachine"
FINALIZER_VM_CONTROLLER = "kubevirt.io/virtualMachineControllerFinalize"
FINALIZER_MIGRATION = "kubevirt.io/migrationJobFinalize"

# VMI phases
PHASE_UNSET = ""
PHASE_PENDING = "Pending"
PHASE_SCHEDULING = "Scheduling"
PHASE_SCHEDULED = "Scheduled"
PHASE_RUNNING = "Running"
PHASE_SUCCEEDED = "Succeeded"
PHASE_FAILED = "Failed"
PHASE_WAITING_FOR_SYNC = "WaitingForSync"
PHASE_UNKNOWN = "Unknown"
FINAL_PHASES = frozenset({PHASE_SUCCEEDED, PHASE_FAILED})
MIGRATION_PENDING = "Pending"
MIGRATION_SCHEDULING = "Scheduling"
MIGRATION_SCHEDULED = "Scheduled"
MIGRATION_PREPARING_TARGET = "PreparingTarget"
MIGRATION_TARGET_READY = "TargetReady"
MIGRATION_RUNNING = "Running"
MIGRATION_SUCCEEDED = "Succeeded"
MIGRATION_FAILED = "Failed"
PRIORITY_CRITICAL = "system-critical"
PRIORITY_USER = "user-triggered"
PRIORITY_MAINTENANCE = "system-maintenance"

# Condition status
TRUE = "True"
FALSE = "False"

# VMI condition types
CONDITION_READY = "Ready"
CONDITION_SYNCHRONIZED = "Synchronized"
CONDITION_POD_SCHEDULED = "PodScheduled"
CONDITION_PROVISIONING = "Provisioning"
CONDITION_DATA_VOLUMES_READY = "DataVolumesReady"
CONDITION_LIVE_MIGRATABLE = "LiveMigratable"
CONDITION_MIGRATION_UTILITY_VOLUMES = "migrationBlockedByUtilityVolumes"
REASON_UTILITY_VOLUMES = "UtilityVolumesPresent"
#: The namespace has a quota that leaves no room for the target Pod; the job waits.
CONDITION_MIGRATION_QUOTA = "migrationRejectedByResourceQuota"
CONDITION_MIGRATION_ABORT = "migrationAbortRequested"
#: What the machine asks for it can have in another Pod only.
CONDITION_MIGRATION_REQUIRED = "MigrationRequired"
CONDITION_EVICTION_REQUESTED = "EvictionRequested"
#: Volumes are to be on other claims, and the machine goes there with them.
CONDITION_VOLUMES_CHANGE = "VolumesChange"
REASON_VOLUMES_CANCELLED = "VolumesChangeCancellation"
#: Ours: why it has not begun yet; only on a job that is Pending or Scheduling.
CONDITION_MIGRATION_WAITING = "migrationWaiting"
#: Ours: what the move takes, as it was foreseen; on the job, and while it runs on the VMI, from which the job has it.
CONDITION_MIGRATION_FORECAST = "migrationForecast"
CONDITION_FORECAST = "MigrationForecast"
CONDITION_STORAGE_LIVE_MIGRATABLE = "StorageLiveMigratable"
CONDITION_EMULATION = "SoftwareEmulation"
CONDITION_PAUSED = "Paused"
#: Of a launcher Pod: it has the guest, and the guest goes on. Its readiness gate, so a Service sends it nobody else.
CONDITION_POD_UNPAUSED = "kubevirt.io/virtual-machine-unpaused"
CONDITION_AGENT_CONNECTED = "AgentConnected"
CONDITION_AGENT_VERSION_NOT_SUPPORTED = "AgentVersionNotSupported"
#: Ours: nothing was seen of a guest without an agent that should be, see its reason. True or absent.
CONDITION_GUEST_SILENT = "GuestSilent"
CONDITION_ACCESS_CREDENTIALS = "AccessCredentialsSynchronized"

# Reasons of VMI conditions
REASON_POD_TERMINATING = "PodTerminating"
REASON_POD_NOT_READY = "PodNotReady"
REASON_GUEST_NOT_RUNNING = "GuestNotRunning"
REASON_UNSCHEDULABLE = "Unschedulable"
REASON_FAILED_CREATE = "FailedCreate"
REASON_FAILED_FIND_INSTANCETYPE = "FailedFindInstancetype"
REASON_FAILED_FIND_PREFERENCE = "FailedFindPreference"
REASON_FAILED_DELETE = "FailedDelete"
REASON_ERR_IMAGE_PULL = "ErrImagePull"
REASON_IMAGE_PULL_BACKOFF = "ImagePullBackOff"
REASON_STATE_NOT_CREATED = "FailedBackendStorageCreate"
REASON_STATE_LOST = "FailedBackendStorageProbe"
REASON_STATE_NOT_READY = "BackendStorageNotReady"
REASON_PAUSED_BY_USER = "PausedByUser"
REASON_PAUSED_IO_ERROR = "PausedIOError"
REASON_PAUSED_BY_MIGRATION = "PausedByMigrationMonitor"
REASON_DISKS_NOT_MIGRATABLE = "DisksNotLiveMigratable"
REASON_INTERFACE_NOT_MIGRATABLE = "InterfaceNotLiveMigratable"
REASON_CPU_NOT_MIGRATABLE = "CPUModeLiveMigratable"
REASON_VIRTIOFS_NOT_MIGRATABLE = "VirtIOFSNotLiveMigratable"
REASON_FOREIGN_ARCHITECTURE = "CrossArchitectureEmulation"
REASON_TSC_NOT_MIGRATABLE = "NoTSCFrequencyNotLiveMigratable"
REASON_HOST_DEVICE_NOT_MIGRATABLE = "HostDeviceNotLiveMigratable"
REASON_SEV_NOT_MIGRATABLE = "SEVNotLiveMigratable"
REASON_TDX_NOT_MIGRATABLE = "TDXNotLiveMigratable"
REASON_PV_NOT_MIGRATABLE = "SecureExecutionNotLiveMigratable"
REASON_RESERVATION_NOT_MIGRATABLE = "PersistentReservationNotLiveMigratable"
REASON_HYPERV_NOT_MIGRATABLE = "HypervPassthroughNotLiveMigratable"

# status.reason of a failed VMI
FAILED_GUEST_CRASHED = "GuestCrashed"
FAILED_LAUNCHER = "LauncherFailed"
FAILED_LAUNCHER_UNRESPONSIVE = "LauncherUnresponsive"
FAILED_SYNC = "SyncFailed"
FAILED_NETWORK_SETUP = "NetworkSetupFailed"
FAILED_INVALID_SPEC = "InvalidSpec"
FAILED_NODE_UNRESPONSIVE = "NodeUnresponsive"
FAILED_POD_GONE = "PodGone"
FAILED_SHARE = "MissingVirtiofsContainers"

# Phases of a hot-plugged volume, and why it is in one
VOLUME_PENDING = "Pending"
VOLUME_BOUND = "Bound"
VOLUME_ATTACHED = "AttachedToNode"
VOLUME_MOUNTED = "MountedToPod"
VOLUME_READY = "Ready"
VOLUME_UNMOUNTED = "UnMountedFromPod"
VOLUME_DETACHING = "Detaching"
VOLUME_DUMPING = "MemoryDumpInProgress"
VOLUME_DUMPED = "MemoryDumpCompleted"
VOLUME_DUMP_FAILED = "MemoryDumpFailed"
#: The phases of a request for a memory dump.
DUMP_ASSOCIATING = "Associating"
DUMP_IN_PROGRESS = "InProgress"
DUMP_UNMOUNTING = "Unmounting"
DUMP_COMPLETED = "Completed"
DUMP_FAILED = "Failed"
DUMP_DISSOCIATING = "Dissociating"
MEMORY_DUMP_SUFFIX = ".memory.dump"
MACHINE_STATE_SUFFIX = ".machine.state"
#: A state that was resumed has this added, so that it is never resumed again.
MACHINE_STATE_USED = ".used"
#: What becomes of a guest whose state was saved: it ends, or it goes on once its disks are saved too.
STATE_HIBERNATE = "hibernate"
STATE_SNAPSHOT = "snapshot"
#: The volume of a VMI that takes the state of the machine, and what becomes of the guest then.
VOLUME_MACHINE_STATE = "virtpod-machine-state"
ANNOTATION_SAVE_STATE = "virtpod.io/save-state"
#: Ours, on a VMI: the state that it goes on from instead of booting.
ANNOTATION_RESUME_FROM = "virtpod.io/resume-from"
#: Those of a machine that only our own programs may set.
RESTRICTED_ANNOTATIONS = (ANNOTATION_SAVE_STATE, ANNOTATION_RESUME_FROM)
CONDITION_HIBERNATED = "Hibernated"
REASON_STATE_SAVED = "StateSaved"
REASON_STATE_BEING_SAVED = "StateBeingSaved"
REASON_STATE_NOT_SAVED = "StateNotSaved"
REASON_STATE_DOES_NOT_FIT = "SavedStateDoesNotFit"
EVENT_HIBERNATED = "Hibernated"
EVENT_STATE_USED = "SavedStateUsed"
PATH_MACHINE_STATE = "/var/run/kubevirt-private/machine-state"
#: On a claim: the file of the last dump in it.
ANNOTATION_MEMORY_DUMP = "kubevirt.io/memory-dump"
VOLUME_IN_LAUNCHER = frozenset({VOLUME_MOUNTED, VOLUME_READY})
REASON_PVC_NOT_READY = "PVCNotReady"
REASON_VOLUME_MOUNTED = "VolumeMountedToPod"
REASON_VOLUME_READY = "VolumeReady"
REASON_VOLUME_UNMOUNTED = "VolumeUnMountedFromPod"

# VMs: run strategies, what they print, their conditions
STRATEGY_ALWAYS = "Always"
STRATEGY_HALTED = "Halted"
STRATEGY_MANUAL = "Manual"
STRATEGY_RERUN_ON_FAILURE = "RerunOnFailure"
STRATEGY_ONCE = "Once"
STRATEGY_WAIT_AS_RECEIVER = "WaitAsReceiver"
ACTION_START = "Start"
ACTION_STOP = "Stop"
REQUEST_PAUSED = "paused"
PRINT_TERMINATING = "Terminating"
PRINT_STOPPING = "Stopping"
PRINT_MIGRATING = "Migrating"
PRINT_PAUSED = "Paused"
PRINT_RUNNING = "Running"
PRINT_PVC_NOT_FOUND = "ErrorPvcNotFound"
PRINT_DATA_VOLUME_ERROR = "DataVolumeError"
PRINT_UNSCHEDULABLE = "ErrorUnschedulable"
PRINT_PROVISIONING = "Provisioning"
PRINT_WAITING_FOR_BINDING = "WaitingForVolumeBinding"
PRINT_ERR_IMAGE_PULL = "ErrImagePull"
PRINT_IMAGE_PULL_BACKOFF = "ImagePullBackOff"
PRINT_STARTING = "Starting"
PRINT_CRASH_LOOP = "CrashLoopBackOff"
PRINT_STOPPED = "Stopped"
PRINT_WAITING_FOR_RECEIVER = "WaitingForReceiver"
PRINT_UNKNOWN = "Unknown"
CONDITION_FAILURE = "Failure"
CONDITION_RESTART_REQUIRED = "RestartRequired"
CONDITION_MANUAL_RECOVERY_REQUIRED = "ManualRecoveryRequired"
CONDITION_HOT_VCPU_CHANGE = "HotVCPUChange"
CONDITION_HOT_MEMORY_CHANGE = "HotMemoryChange"
#: A Pod's own: the node has not taken a change of its resources.
CONDITION_POD_RESIZE_PENDING = "PodResizePending"
REASON_POD_RESIZE_REFUSED = "PodResizeRefused"
REASON_POD_RESIZE_INFEASIBLE = "PodResizeInfeasible"
REASON_POD_RESIZE_DEFERRED = "PodResizeDeferred"
REASON_WAITING_FOR_GUEST = "WaitingForGuest"
REASON_MEMORY_HOTPLUG_FAILED = "Memory Hotplug Failed"
REASON_VMI_NOT_EXISTS = "VMINotExists"
REASON_VMI_CONDITION_MISSING = "VMIConditionMissing"
REASON_NO_TOPOLOGY_HINTS = "FailedGatherhingClusterTopologyHints"  # So spelled by KubeVirt.
REASON_PVC_NOT_FOUND = "FailedPvcNotFound"
REASON_NETWORK_NOT_FOUND = "FailedNetworkNotFound"
REASON_DATA_VOLUME_IMPORT = "FailedDataVolumeImport"
ANNOTATION_CREATE_MIGRATION_TARGET = "kubevirt.io/create-migration-target"
ANNOTATION_RESTORE_RUN_STRATEGY = "kubevirt.io/restore-run-strategy"
ANNOTATION_IMMEDIATE_DATA_VOLUMES = "kubevirt.io/immediate-data-volume-creation"
LABEL_POOL_REVISION = "kubevirt.io/vm-pool-revision-name"
FINALIZER_POOL = "pool.kubevirt.io/finalizer"
FINALIZER_ORPHAN = "orphan"
APP_VM_REVISION = "vm-revision"

# Event types and reasons
EVENT_NORMAL = "Normal"
EVENT_WARNING = "Warning"
EVENT_SUCCESSFUL_CREATE = "SuccessfulCreate"
EVENT_SUCCESSFUL_DELETE = "SuccessfulDelete"
EVENT_SUCCESSFUL_MIGRATION = "SuccessfulMigration"
EVENT_UTILITY_VOLUMES = "UtilityVolumeMigrationPending"
EVENT_FAILED_MIGRATION = "FailedMigration"
EVENT_FAILED_HAND_OVER = "FailedHandOver"
EVENT_SUCCESSFUL_ABORT = "SuccessfulAbortMigration"
EVENT_FAILED_ABORT = "FailedAbortMigration"
EVENT_TARGET_UNSCHEDULABLE = "migrationTargetPodUnschedulable"
EVENT_NO_POST_COPY = "PostCopyNotPossible"
EVENT_MIGRATION_BACKOFF = "MigrationBackoff"
EVENT_SUCCESSFUL_EVICT = "SuccessfulEvict"
EVENT_FAILED_EVICT = "FailedEvict"
EVENT_FAILED_CREATE = REASON_FAILED_CREATE
EVENT_FAILED_DELETE = REASON_FAILED_DELETE
EVENT_DELETED = "Deleted"
EVENT_STARTED = "Started"
EVENT_SHUTTING_DOWN = "ShuttingDown"
EVENT_STOPPED = "Stopped"
EVENT_SYNC_FAILED = FAILED_SYNC
EVENT_CREDENTIALS_SET = "AccessCredentialsSyncSuccess"
EVENT_CREDENTIALS_FAILED = "AccessCredentialsSyncFailed"
EVENT_STRANGER = "StrangerPod"
EVENT_HOTPLUG_FAILED = "HotplugFailed"

# Resources that a node offers, and how a launcher learns which devices it got for them
RESOURCE_DOMAIN = "devices.kubevirt.io/"
ENV_PREFIX_PCI = "PCI_RESOURCE"
ENV_PREFIX_MDEV = "MDEV_PCI_RESOURCE"
ENV_PREFIX_USB = "USB_RESOURCE"
#: The SR-IOV device plugin's own.
ENV_PREFIX_NETWORK_DEVICE = "PCIDEVICE"
RESOURCE_KVM = "devices.kubevirt.io/kvm"
RESOURCE_TUN = "devices.kubevirt.io/tun"
RESOURCE_VHOST_NET = "devices.kubevirt.io/vhost-net"
RESOURCE_VHOST_VSOCK = "devices.kubevirt.io/vhost-vsock"
#: With it QEMU fetches memory of a guest that runs already: what post-copy is.
RESOURCE_USERFAULTFD = "devices.kubevirt.io/userfaultfd"
RESOURCE_PREFIX_HUGE_PAGES = "hugepages-"
RESOURCE_SEV = "devices.kubevirt.io/sev"
RESOURCE_TDX = "devices.kubevirt.io/tdx"
RESOURCE_RESERVATIONS = "devices.kubevirt.io/pr-helper"

#: Where a launcher that may ask it finds the helper for SCSI reservations, and where it listens on the node.
SOCKET_RESERVATIONS = "/var/run/kubevirt/daemons/pr/pr-helper.sock"
NODE_SOCKET_RESERVATIONS = "/run/virtpod/reservations/open/pr-helper.sock"

#: Our profile of system calls, below the kubelet's directory of such profiles.
SECCOMP_PROFILE = "kubevirt/kubevirt.json"

# Inside the launcher Pod
CONTAINER_COMPUTE = "compute"
CONTAINER_PREFIX_SHARE = "virtiofs-"
LAUNCHER_UID = 107
LAUNCHER_GID = 107
DEFAULT_GRACE_PERIOD_S = 30
IO_THREADS_POOL = "supplementalPool"
VOLUME_PRIVATE = "private"
VOLUME_PUBLIC = "public"
VOLUME_SOCKETS = "sockets"
VOLUME_LIBVIRT = "libvirt-runtime"
VOLUME_EPHEMERAL_DISKS = "ephemeral-disks"
VOLUME_TMP = "tmp"
VOLUME_KERNEL_BOOT = "kernel-boot"
VOLUME_HUGE_PAGES = "hugepages"
VOLUME_KEPT_STATE = "vm-state"
VOLUME_NETWORK_INFO = "network-info-annotation"
VOLUME_METRICS = "downward-metrics"
VOLUME_SHARE_SOCKETS = "virtiofs-containers"
PATH_SHARE = "/var/run/kubevirt"
PATH_SOCKETS = "/var/run/kubevirt/sockets"
PATH_PRIVATE = "/var/run/kubevirt-private"
PATH_EPHEMERAL_DISKS = "/var/run/kubevirt-ephemeral-disks"
PATH_LIBVIRT = "/var/run/libvirt"
PATH_IMAGE_VOLUMES = "/var/run/kubevirt-image-volume"
PATH_KERNEL_BOOT = "/var/run/kubevirt-kernel-boot"
PATH_SECRETS = "/var/run/kubevirt-private/secret"
PATH_VM_DISKS = "/var/run/kubevirt-private/vmi-disks"
PATH_FILE_VOLUMES = "/var/run/kubevirt-private/file-volumes"
PATH_HUGE_PAGES = "/dev/hugepages"
PATH_METRICS = "/var/run/kubevirt-private/downwardapi-disks"
#: Where drivers of resource claims describe their devices, in every container that uses them. Kubernetes says so.
PATH_DEVICE_METADATA = "/var/run/kubernetes.io/dra-device-attributes"
#: A file of the Pod's own annotation ANNOTATION_NETWORK_INFO.
PATH_POD_INFO = "/etc/podinfo"
FILE_NETWORK_INFO = "network-info"
PATH_KEPT_STATE = "/var/run/kubevirt-private/vm-state"
PATH_SHARE_SOCKETS = "/var/run/kubevirt/virtiofs-containers"
PATH_SHARED = "/var/run/kubevirt-shared"
PATH_HOOKS = "/var/run/kubevirt-hooks"
PATH_HOOK_SCRIPTS = "/var/run/kubevirt-hook-scripts"
PATH_SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
#: Below PATH_PRIVATE, and the same in the volume of that name: what virt-handler brings while the machine runs.
DIRECTORY_HOTPLUG = "hotplug-disks"
FILE_DISK = "disk.img"
MEDIUM_HUGE_PAGES = "HugePages"
MEDIUM_MEMORY = "Memory"
FILE_METRICS = "vhostmd0"
CHANNEL_METRICS = "org.github.vhostmd.1"
# What lies in the claim with the state of a machine's firmware and TPM, and how status.volumeStatus calls it
KEPT_META = "meta"
KEPT_NVRAM = "nvram"
KEPT_TPM = "swtpm"
KEPT_TPM_CA = "swtpm-localca"
KEPT_BLOCKS = "cbt"
STATUS_KEPT_STATE = "persistent-state-for-this-vm"
ACCESS_ONE_NODE = "ReadWriteOnce"
ACCESS_ALL_NODES = "ReadWriteMany"
BINDING_FIRST_CONSUMER = "WaitForFirstConsumer"
VOLUME_MODE_BLOCK = "Block"
VOLUME_MODE_FILESYSTEM = "Filesystem"
SOCKET_LAUNCHER = "launcher-sock"
SOCKET_LAUNCHER_INIT = "launcher-init-sock"
SOCKET_NOTIFY = "notify-sock"
#: Where a machine leaves and arrives: libvirt's own words, memory, disks.
SOCKET_MOVE_LIBVIRT = "move-libvirt"
SOCKET_MOVE_MEMORY = "move-memory"
SOCKET_MOVE_DISKS = "move-disks"
#: Where a node waits for machines of others, a port for each channel of a move: above what the kernel gives to those
#: who do not care, and few enough to be named in a firewall's rule.
MOVE_PORTS = range(61000, 61256)
SOCKET_SERIAL = "virt-serial0"
SOCKET_VNC = "virt-vnc"
SOCKET_METRICS = "downwardmetrics.sock"
SOCKET_USBREDIR_PREFIX = "virt-usbredir-"
FILE_SERIAL_LOG = "virt-serial0-log"
EMPTY_DIR_SEGMENT = "volumes/kubernetes.io~empty-dir"

# Inside an attachment Pod
CONTAINER_ATTACHMENT = "hotplug-disk"

# Websockets
#: Why a stream ends when its guest leaves the node; whoever wants to go on connects again.
STREAM_MOVED = "the guest has moved to another node"
SUBPROTOCOL_PLAIN = "plain.kubevirt.io"

_LABEL_VALUE_LIMIT = 63


def service_account_user(name: str, namespace: str = INSTALL_NAMESPACE) -> str:
    """The user name of one of our service accounts."""
    return f"system:serviceaccount:{namespace}:{name}"


def network_resource_env(network: str) -> str:
    """The environment variable with the resource that a network's device is of."""
    return f"KUBEVIRT_RESOURCE_NAME_{network}"


def resource_env(prefix: str, resource: str) -> str:
    """The environment variable with the devices of a resource, e.g. PCI_RESOURCE_NVIDIA_COM_T4."""
    return f"{prefix}_{resource.upper().replace('/', '_').replace('.', '_')}"


def tls_name_api(namespace: str = INSTALL_NAMESPACE) -> str:
    """The role of virt-api towards virt-handler."""
    return f"virt-api.{namespace}.internal"


def tls_name_node(node: str, namespace: str = INSTALL_NAMESPACE) -> str:
    """The role of the virt-handler of one node, whatever its address is."""
    return f"{node}.virt-handler.{namespace}.internal"


def keeps_launcher(annotations: Mapping[str, str]) -> bool:
    """Whether the launcher's container is to stay after a failure, for who wants to look into it."""
    return annotations.get(ANNOTATION_KEEP_LAUNCHER) in ("", "true")


def vmi_id(name: str) -> str:
    """The VMI's name as a label value; a long name is cut and made unique by a digest."""
    if len(name) <= _LABEL_VALUE_LIMIT:
        return name
    from hashlib import sha1  # A launcher, which never needs it, would pay milliseconds for it.

    return f"{name[:54]}-{sha1(name.encode(), usedforsecurity=False).hexdigest()[:8]}"


def container_disk_volume(index: int) -> str:
    """The Pod volume of the container disk at `index` of spec.volumes."""
    return f"disk-{index}"


def container_disk_path(index: int) -> str:
    """Where that volume is mounted in the compute container."""
    return f"{PATH_IMAGE_VOLUMES}/disk_{index}"


def share_container(volume: str) -> str:
    """The container that shares a volume with the guest."""
    return vmi_id(f"{CONTAINER_PREFIX_SHARE}{volume}")


def hook_container(index: int) -> str:
    """The hook sidecar at `index` of the annotation."""
    return f"hook-sidecar-{index}"


def hook_sockets(index: int, directory: str = PATH_HOOKS) -> str:
    """Where the launcher sees the sockets of that sidecar. In the sidecar it is the directory itself."""
    return f"{directory}/{hook_container(index)}"


def share_socket(volume: str, directory: str = PATH_SHARE_SOCKETS) -> str:
    """Where that container and QEMU meet, for both of them."""
    return f"{directory}/{volume}.sock"


def guest_volume(index: int) -> str:
    """The Pod volume of the claim, host directory, ConfigMap or Secret at `index` of spec.volumes."""
    return f"volume-{index}"


def disk_directory(volume: str) -> str:
    """Where the claim or host directory of a volume is mounted; its disk is a file in there."""
    return f"{PATH_VM_DISKS}/{volume}"


def disk_device(volume: str) -> str:
    """Where the claim of a volume appears if it is a block device."""
    return f"/dev/{volume}"


def attachment_directory(volume: str) -> str:
    """Where a claim is mounted in an attachment Pod."""
    return f"/hotplug/{volume}"


def attachment_device(volume: str) -> str:
    """Where a claim appears in an attachment Pod if it is a block device."""
    return f"/dev/hotplug/{volume}"


def file_volume_path(volume: str) -> str:
    """Where the files of a ConfigMap, Secret or downward API volume are mounted."""
    return f"{PATH_FILE_VOLUMES}/{volume}"


def cloud_init_secret_path(volume: str) -> str:
    """Where the user data Secret of a cloud-init volume is mounted."""
    return f"{PATH_SECRETS}/{volume}"


def access_credential_directory(secret: str) -> str:
    """Where below PATH_SECRETS the Secret of access credentials is mounted."""
    return f"{secret}-access-cred"


def cloud_init_network_secret_path(volume: str) -> str:
    """Where the network data Secret of a cloud-init volume is mounted."""
    return f"{PATH_SECRETS}/{volume}-network"
