"""The table, second half: storage, networks, moves between nodes, and the kinds around a machine."""

from __future__ import annotations

from functools import partial

from virt_core.apis.support.feature import GATED, NEVER, NOT_YET, WORKS, Feature, row

#: Rows that code asks for by name.
LIVE_MIGRATION = "live migration"
HOTPLUG_VOLUMES = "the attaching and detaching of volumes of a running machine"
HOTPLUG_CPU = "a change of CPU sockets of a running machine"
HOTPLUG_NICS = "the adding and removing of interfaces of a running machine"
HOTPLUG_MEMORY = "a change of the memory of a running machine"
OTHER_NETWORKS = "a network beside the Pod network"

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
    _storage(WORKS, "persistent volume claims", "files and block devices, whose disks grow with them, also in a running"
             " guest; ephemeral: a layer that is thrown away",
             fields="volumes[].persistentVolumeClaim volumes[].ephemeral", gates="ExpandDisks"),
    _storage(WORKS, "DataVolumes", "by CDI where the cluster has it; else by our own importer (virt-local; the chart's"
             " value dataVolumes.enabled): http, registry, upload (also by KubeVirt's own virtctl), blank and copies of"
             " claims of the same namespace",
             fields="volumes[].dataVolume", vm_fields="dataVolumeTemplates"),
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
    _storage(WORKS, "SCSI persistent reservation", "where the cluster's configuration allows it"
             " (persistentReservationConfiguration); not on multipath devices, for which Debian's helper is not built;"
             " such a machine does not move. The helper and QEMU's way to it were tried, no shared SCSI disk was here;"
             " virt-local's node offers it if virt-reserve runs on the machine at its start",
             fields="domain.devices.disks[].lun.reservation", gates="PersistentReservation"),
    _storage(GATED, "a path of the launcher's container as a volume", "a directory that the API server or a webhook of"
             " the cluster mounts in each container of the Pod, such as that of a token; by virtiofs, only to be read",
             fields="volumes[].containerPath", gates="ContainerPathVolumes"),
    _storage(WORKS, "a snapshot of a VM, and its restore", "of claims whose class has a VolumeSnapshotClass, while the"
             " guest runs (frozen through its agent) or is stopped; restored in place or to a new VM. With its memory"
             " (annotation virtpod.io/memory, Virtpod's own) only to the same VM",
             kinds="VirtualMachineSnapshot VirtualMachineSnapshotContent VirtualMachineRestore", gates="Snapshot"),
    _storage(WORKS, "the cloning of a VM", "of VMs and of their snapshots, in one namespace; not of VMs that keep what"
             " their firmware or TPM stores; filters of labels and annotations without the more dangerous parts of"
             " regular expressions", kinds="VirtualMachineClone"),
    _storage(WORKS, "the export of a VM or a volume", "of a claim, of a stopped VM and of a snapshot: raw, gzip, files"
             " and tar.gz; the token counts as a header only; external links where virt-controller is told how virt-api"
             " is reached. Not that of a backup", kinds="VirtualMachineExport", gates="VMExport"),
    _storage(NOT_YET, "the export of a VM as an OCI artifact", gates="OCIExport"),
    _storage(GATED, "the backup of a VM", "of the disks of a running machine, whole or what has changed, pushed into a"
             " claim as qcow2; chains last over a restart; over a move they were not tried. Pull mode is refused",
             kinds="VirtualMachineBackup VirtualMachineBackupTracker", gates="IncrementalBackup"),
    _storage(NOT_YET, "changed block tracking by disk", "choose VMs by changedBlockTrackingLabelSelectors",
             fields="domain.devices.disks[].changedBlockTracking",
             subresources="backup redefine-checkpoint"),
    _storage(WORKS, "a memory dump", "into a claim, while the machine runs",
             fields="volumes[].memoryDump", subresources="memorydump removememorydump"),
    _storage(WORKS, "the hibernation of a VM", "Virtpod's own: memory and devices in a claim; the next start goes on"
             " from there. Of machines whose disks are all claims, without devices of the node",
             subresources="hibernate"),
    _storage(GATED, "a utility volume", "a directory in the launcher that the guest does not see; only our own"
             " programs ask for one", fields="utilityVolumes", gates="UtilityVolumes",
             in_launcher=False),
)  # fmt: skip

NETWORKS: tuple[Feature, ...] = (
    _net(WORKS, "the Pod network by masquerade", "IPv4, IPv6 and both, with DHCP and router advertisements; all ports"
         " or those that are listed; beside the proxy of a service mesh (sidecar.istio.io/inject), which was here as"
         " rules only",
         fields="networks[].pod domain.devices.interfaces[].masquerade domain.devices.interfaces[].ports"),
    _net(WORKS, "the Pod network by bridge", fields="domain.devices.interfaces[].bridge"),
    _net(WORKS, "the options of an interface", fields="domain.devices.interfaces[].model"
         " domain.devices.interfaces[].macAddress domain.devices.interfaces[].bootOrder"
         " domain.devices.interfaces[].pciAddress domain.devices.interfaces[].acpiIndex"
         " domain.devices.interfaces[].dhcpOptions"
         " domain.devices.networkInterfaceMultiqueue domain.devices.autoattachPodInterface"),
    _net(WORKS, "port forwarding", subresources="portforward"),
    _net(WORKS, OTHER_NETWORKS, "by a NetworkAttachmentDefinition and the bridge binding, where the cluster has Multus"
         " or what does the same; virt-local has it built in", fields="networks[].multus",
         gates="DynamicPodInterfaceNaming PodSecondaryInterfaceNamingUpgrade ExternalNetResourceInjection"),
    _net(WORKS, "another network for an interface of a running machine", "by a migration (workloadUpdateStrategy"
         " LiveMigrate, or one that you ask for), for a card by bridge on a network that hands out no addresses itself;"
         " else the change waits for a restart",
         gates="LiveUpdateNADRef"),
    _net(WORKS, "SR-IOV", "as XML and plans, no such card was here to try it on; on a network of a"
         " NetworkAttachmentDefinition, whose resource the Pod asks for where ExternalNetResourceInjection is off;"
         " pulled before a move and plugged after it; not while the machine runs",
         fields="domain.devices.interfaces[].sriov", gates="SRIOVLiveMigration"),
    _net(WORKS, "the Pod network by passt", "the guest has the Pod's address, IPv4 and IPv6, without a TAP; without a"
         " list of ports the node must let a process open 80,000 files",
         fields="domain.devices.interfaces[].passtBinding", gates="PasstBinding"),
    _net(WORKS, "a network binding plugin", "by what network.binding of the KubeVirt object says of it: sidecar, CNI"
         " plugin, tap or managedTap, memory, link-refresh after a move; not its downwardAPI",
         gates="NetworkBindingPlugins", fields="domain.devices.interfaces[].binding"),
    _net(GATED, "a range of ports", "at most 10, with masquerade", fields="domain.devices.interfaces[].portRanges",
         gates="PortRangesSpec"),
)  # fmt: skip

MOVES: tuple[Feature, ...] = (
    _move(WORKS, LIVE_MIGRATION, "whether a machine can move, and what ties it to its node, says its condition"
          " LiveMigratable",
          kinds="VirtualMachineInstanceMigration", subresources="migrate",
          gates="LiveMigration MigrationPriorityQueue MigrationStallDetection MigrationDowntimeTuning"),
    _move(WORKS, "a migration policy", kinds="MigrationPolicy"),
    _move(NOT_YET, "the move of a machine between clusters", vm_fields="runStrategy=WaitAsReceiver",
          gates="DecentralizedLiveMigration"),
    _move(WORKS, "the move of a running machine's volumes", "claims and DataVolumes to others of at least the disk's"
          " size, between file systems and block devices as well, by a migration to another node"
          " (workloadUpdateStrategy LiveMigrate, or one that you ask for). Not hot-plugged or shared ones, luns and"
          " what is only read: they wait for a restart",
          vm_fields="updateVolumesStrategy", gates="VolumesUpdateStrategy VolumeMigration"),
    _move(WORKS, "eviction", "LiveMigrate and LiveMigrateIfPossible move the machine to another node; if it cannot"
          " move, the first keeps it where it is and the second lets it go, as None does. External marks it for others",
          fields="evictionStrategy", subresources="evacuate/cancel"),
)  # fmt: skip

CHANGES: tuple[Feature, ...] = (
    _hot(WORKS, HOTPLUG_VOLUMES, "claims and DataVolumes as disks and LUNs on the scsi and virtio buses, as media of"
         " CD-ROM drives; a stopped VM has the change at its next start", subresources="addvolume removevolume",
         gates="HotplugVolumes DeclarativeHotplugVolumes"),
    _hot(WORKS, HOTPLUG_NICS, "on secondary networks by bridge; it goes by the state absent", gates="HotplugNICs"),
    _hot(WORKS, HOTPLUG_CPU, "more, up to maxSockets; in place, with Kubernetes 1.33 and a node that can give the"
         " launcher Pod more, else by a migration (workloadUpdateStrategy LiveMigrate). Fewer need a restart, and so do"
         " CPUs of its own", gates="VMLiveUpdateFeatures"),
    _hot(WORKS, HOTPLUG_MEMORY, "from what it booted with to maxGuest, by virtio-mem, for which the guest needs a"
         " driver; under the same conditions", fields="domain.memory.maxGuest", gates="VMLiveUpdateFeatures"),
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
    _kind(NEVER, "a set of common instance types that comes along", "apply those that you want; they are plain objects",
          gates="CommonInstancetypesDeploymentGate"),
    _kind(NEVER, "a template of VMs", "instance types and preferences say what VMs share, and Helm or Kustomize fill in"
          " the rest", gates="Template"),
    _kind(WORKS, "presets", "deprecated", kinds="VirtualMachineInstancePreset"),
    _kind(WORKS, "the KubeVirt object", "as live configuration, without an operator: fields for one have no"
          " effect, and a warning says so", kinds="KubeVirt"),
)  # fmt: skip

OPERATION: tuple[Feature, ...] = (
    _run(WORKS, "the rights of virt-handler, bound to its own node", gates="NodeRestriction"),
    _run(GATED, "the graph of objects", gates="ObjectGraph", subresources="objectgraph"),
    _run(WORKS, "the cluster profiler", "of virt-api", gates="ClusterProfiler"),
    _run(WORKS, "the update of running machines to a new launcher", "by workloadUpdateStrategy of the KubeVirt object:"
         " LiveMigrate moves those that can move, Evict ends those that cannot, a few at a time; without it a machine"
         " has the new launcher from its next start on"),
    _run(WORKS, "a seccomp profile of our own", "the runtime's with what post-copy and memory cells need; virt-handler"
         " puts it on each node, and launchers have it where seccompConfiguration says kubevirt/kubevirt.json, else"
         " the runtime's", gates="KubevirtSeccompProfile"),
    _run(WORKS, "the taking of our roles out of view, edit and admin", "by roleAggregationStrategy in the values of the"
         " chart (kubevirt.configuration)", gates="OptOutRoleAggregation"),
    _run(WORKS, "SELinux without a policy of our own", gates="DisableCustomSELinuxPolicy DockerSELinuxMCSWorkaround"),
    _run(NEVER, "a hook of libvirt in the launcher", "the launcher itself changes the machine that comes in a move",
         gates="LibvirtHooksServerAndClient"),
    _run(NEVER, "metrics of machines by a collector of its own", "virt-handler collects them, in time and bounded",
         gates="VMStatsCollector"),
)  # fmt: skip

FEATURES = STORAGE + NETWORKS + MOVES + CHANGES + KINDS + OPERATION
