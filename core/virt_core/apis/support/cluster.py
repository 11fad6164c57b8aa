"""The table, second half: storage, networks, moves between nodes, and the kinds around a machine."""

from __future__ import annotations

from functools import partial

from virt_core.apis.support.feature import GATED, NOT_YET, WORKS, Feature, row

#: Rows that code asks for by name.
LIVE_MIGRATION = "live migration"
HOTPLUG_VOLUMES = "the attaching and detaching of volumes of a running machine"
HOTPLUG_CPU = "a change of CPU sockets of a running machine"
HOTPLUG_MEMORY = "a change of the memory of a running machine"
OTHER_NETWORKS = "a network beside the Pod network"
LAUNCHER_UPDATE = "the update of running machines to a new launcher"

_storage = partial(row, "storage")
_net = partial(row, "networking")
_move = partial(row, "live migration")
_hot = partial(row, "hot-plug")
_kind = partial(row, "kinds")
_run = partial(row, "operation")

STORAGE: tuple[Feature, ...] = (
    _storage(WORKS, "disks from an image", "what the guest writes is lost at a stop", fields="volumes[].containerDisk",
             gates="ImageVolume"),
    _storage(WORKS, "scratch disks", "lost at a stop", fields="volumes[].emptyDisk"),
    _storage(WORKS, "persistent volume claims", "files and block devices; ephemeral: a layer that is thrown away",
             fields="volumes[].persistentVolumeClaim volumes[].ephemeral", gates="ExpandDisks"),
    _storage(WORKS, "DataVolumes", "where the cluster has CDI", fields="volumes[].dataVolume",
             vm_fields="dataVolumeTemplates"),
    _storage(GATED, "a disk in a directory of the node", fields="volumes[].hostDisk", gates="HostDisk"),
    _storage(WORKS, "small disks of text", fields="volumes[].configMap volumes[].secret volumes[].downwardAPI"),
    _storage(WORKS, "disks, LUNs and CD-ROMs with their options", fields="domain.devices.disks[].disk"
             " domain.devices.disks[].lun domain.devices.disks[].cdrom domain.devices.disks[].bootOrder"
             " domain.devices.disks[].serial domain.devices.disks[].cache domain.devices.disks[].io"
             " domain.devices.disks[].shareable domain.devices.disks[].errorPolicy"
             " domain.devices.disks[].blockSize.custom"),
    _storage(WORKS, "a block size taken from the volume", "of its device or its file system",
             fields="domain.devices.disks[].blockSize.matchVolume"),
    _storage(WORKS, "a discard granularity", "needs libvirt 9.7 on the node",
             fields="domain.devices.disks[].blockSize.custom.discardGranularity"),
    _storage(NOT_YET, "SCSI persistent reservation", fields="domain.devices.disks[].lun.reservation",
             gates="PersistentReservation"),
    _storage(NOT_YET, "a path of the launcher's container as a volume", fields="volumes[].containerPath",
             gates="ContainerPathVolumes"),
    _storage(NOT_YET, "a snapshot of a VM", "copy the claims of a stopped VM by your storage's own means",
             kinds="VirtualMachineSnapshot VirtualMachineSnapshotContent VirtualMachineRestore", gates="Snapshot"),
    _storage(NOT_YET, "the cloning of a VM", "copy the claims of a stopped VM by your storage's own means",
             kinds="VirtualMachineClone"),
    _storage(NOT_YET, "the export of a VM or a volume", kinds="VirtualMachineExport", gates="VMExport OCIExport"),
    _storage(NOT_YET, "the backup of a VM", "copy the claims of a stopped VM by your storage's own means",
             kinds="VirtualMachineBackup VirtualMachineBackupTracker", gates="IncrementalBackup",
             fields="domain.devices.disks[].changedBlockTracking", subresources="backup redefine-checkpoint"),
    _storage(NOT_YET, "a memory dump", fields="volumes[].memoryDump", subresources="memorydump removememorydump"),
    _storage(NOT_YET, "a utility volume", fields="utilityVolumes", gates="UtilityVolumes", in_launcher=False),
)  # fmt: skip

NETWORKS: tuple[Feature, ...] = (
    _net(WORKS, "the Pod network by masquerade", "IPv4 and IPv6",
         fields="networks[].pod domain.devices.interfaces[].masquerade domain.devices.interfaces[].ports"),
    _net(WORKS, "the Pod network by bridge", fields="domain.devices.interfaces[].bridge"),
    _net(WORKS, "the options of an interface", fields="domain.devices.interfaces[].model"
         " domain.devices.interfaces[].macAddress domain.devices.interfaces[].bootOrder"
         " domain.devices.interfaces[].pciAddress domain.devices.interfaces[].acpiIndex"
         " domain.devices.interfaces[].dhcpOptions"
         " domain.devices.networkInterfaceMultiqueue domain.devices.autoattachPodInterface"),
    _net(WORKS, "port forwarding", subresources="portforward"),
    _net(NOT_YET, OTHER_NETWORKS, "use a network of type pod", in_launcher=False,
         fields="networks[].multus",
         gates="DynamicPodInterfaceNaming PodSecondaryInterfaceNamingUpgrade ExternalNetResourceInjection"
               " LiveUpdateNADRef"),
    _net(NOT_YET, "SR-IOV", "use masquerade or bridge", fields="domain.devices.interfaces[].sriov",
         gates="SRIOVLiveMigration"),
    _net(NOT_YET, "the passt binding", "use masquerade or bridge", fields="domain.devices.interfaces[].passtBinding",
         gates="PasstBinding"),
    _net(NOT_YET, "a network binding plugin", "use masquerade or bridge", gates="NetworkBindingPlugins",
         fields="domain.devices.interfaces[].binding"),
    _net(NOT_YET, "a range of ports", "list the ports one by one", fields="domain.devices.interfaces[].portRanges",
         gates="PortRangesSpec", in_launcher=False),
)  # fmt: skip

MOVES: tuple[Feature, ...] = (
    _move(NOT_YET, LIVE_MIGRATION, "cordon the node and restart the VM, and it comes up on another one",
          kinds="VirtualMachineInstanceMigration", subresources="migrate",
          gates="LiveMigration MigrationPriorityQueue MigrationStallDetection MigrationDowntimeTuning"),
    _move(NOT_YET, "a migration policy", "it would have no effect before live migration is there",
          kinds="MigrationPolicy"),
    _move(NOT_YET, "the move of a machine between clusters", vm_fields="runStrategy=WaitAsReceiver",
          gates="DecentralizedLiveMigration"),
    _move(NOT_YET, "the move of a running machine's volumes", "stop the VM and copy the volume",
          vm_fields="updateVolumesStrategy=Migration", gates="VolumesUpdateStrategy VolumeMigration"),
    _move(WORKS, "eviction", "None and LiveMigrateIfPossible let the machine go, External marks it for others,"
          " LiveMigrate keeps it where it is", fields="evictionStrategy", subresources="evacuate/cancel"),
)  # fmt: skip

CHANGES: tuple[Feature, ...] = (
    _hot(NOT_YET, HOTPLUG_VOLUMES, "stop the VM first; a stopped VM takes the change and has it at its next start",
         gates="HotplugVolumes DeclarativeHotplugVolumes"),
    _hot(WORKS, "the adding and removing of volumes of a stopped VM", subresources="addvolume removevolume"),
    _hot(NOT_YET, "the adding and removing of interfaces of a running machine", "the change waits for a restart",
         gates="HotplugNICs"),
    _hot(NOT_YET, HOTPLUG_CPU, "the change waits for a restart", gates="VMLiveUpdateFeatures"),
    _hot(NOT_YET, HOTPLUG_MEMORY, "the change waits for a restart", gates="VMLiveUpdateFeatures"),
    _hot(WORKS, "a change of an interface's link state", "up and down, while the machine runs",
         fields="domain.devices.interfaces[].state"),
)  # fmt: skip

KINDS: tuple[Feature, ...] = (
    _kind(WORKS, "a machine", kinds="VirtualMachineInstance"),
    _kind(WORKS, "a machine that is kept", "all run strategies but WaitAsReceiver", kinds="VirtualMachine",
          vm_fields="runStrategy running"),
    _kind(WORKS, "replica sets and pools", kinds="VirtualMachineInstanceReplicaSet VirtualMachinePool"),
    _kind(WORKS, "instance types and preferences", gates="InstancetypeReferencePolicy", subresources="expand-spec",
          vm_fields="instancetype preference", kinds="VirtualMachineInstancetype VirtualMachineClusterInstancetype"
          " VirtualMachinePreference VirtualMachineClusterPreference"),
    _kind(NOT_YET, "a set of common instance types", "apply those that you want",
          gates="CommonInstancetypesDeploymentGate"),
    _kind(NOT_YET, "a template of VMs", gates="Template"),
    _kind(WORKS, "presets", "deprecated", kinds="VirtualMachineInstancePreset"),
    _kind(WORKS, "the KubeVirt object", "as live configuration, without an operator: fields for one, and"
          " workloadUpdateStrategy, have no effect, and a warning says so", kinds="KubeVirt"),
)  # fmt: skip

OPERATION: tuple[Feature, ...] = (
    _run(WORKS, "the rights of virt-handler, bound to its own node", gates="NodeRestriction"),
    _run(GATED, "the graph of objects", gates="ObjectGraph", subresources="objectgraph"),
    _run(WORKS, "the cluster profiler", "of virt-api", gates="ClusterProfiler"),
    _run(NOT_YET, LAUNCHER_UPDATE, "a machine has it from its next start on"),
    _run(NOT_YET, "a seccomp profile of our own", "Pods have the runtime's default profile",
         gates="KubevirtSeccompProfile"),
    _run(NOT_YET, "the taking of our roles out of view, edit and admin", gates="OptOutRoleAggregation"),
    _run(WORKS, "SELinux without a policy of our own", gates="DisableCustomSELinuxPolicy DockerSELinuxMCSWorkaround"),
    _run(NOT_YET, "a hook of libvirt in the launcher", gates="LibvirtHooksServerAndClient"),
    _run(NOT_YET, "metrics of machines as a collector of its own", gates="VMStatsCollector"),
)  # fmt: skip

FEATURES = STORAGE + NETWORKS + MOVES + CHANGES + KINDS + OPERATION
