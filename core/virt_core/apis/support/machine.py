"""The table, first half: the fields of a machine (processor, memory, firmware, devices)."""

from __future__ import annotations

from functools import partial

from virt_core.apis import names
from virt_core.apis.support.feature import GATED, NEVER, NOT_YET, WORKS, Feature, row

_cpu = partial(row, "processor and memory")
_firmware = partial(row, "firmware")
_device = partial(row, "devices")
_host = partial(row, "devices of the node")
_life = partial(row, "life of a machine")

PROCESSOR: tuple[Feature, ...] = (
    _cpu(WORKS, "the processor's topology", "a change of anything but the sockets needs a restart",
         fields="domain.cpu.cores domain.cpu.sockets domain.cpu.threads domain.cpu.maxSockets"),
    _cpu(WORKS, "the processor's model and features", "host-model, host-passthrough or a named model",
         fields="domain.cpu.model domain.cpu.features"),
    _cpu(WORKS, "memory, requests and limits", "a change of requests and limits needs a restart",
         fields="domain.memory.guest domain.resources",
         gates="AutoResourceLimitsGate VmiMemoryOverheadReport"),
    _cpu(WORKS, "a pool of IO threads", fields="domain.ioThreadsPolicy domain.ioThreads"
         " domain.devices.disks[].dedicatedIOThread domain.devices.blockMultiQueue"),
    _cpu(WORKS, "the clock and its timers", "a guest that relies on its time stamp counter (`invtsc`, Hyper-V's"
         " reenlightenment) is promised the lowest frequency of the nodes", fields="domain.clock"),
    _cpu(WORKS, "ACPI, APIC, SMM and what hides KVM", fields="domain.features.acpi domain.features.apic"
         " domain.features.smm domain.features.kvm domain.features.pvspinlock"),
    _cpu(WORKS, "Hyper-V enlightenments", fields="domain.features.hyperv domain.features.hypervPassthrough"),
    _cpu(GATED, "the choice of a node by its Hyper-V features", "without it a node that lacks one fails the start",
         gates="HypervStrictCheck"),
    _cpu(WORKS, "a direct or extended Hyper-V TLB flush", "needs libvirt 11.0 on the node",
         fields="domain.features.hyperv.tlbflush.direct domain.features.hyperv.tlbflush.extended"),
    _cpu(WORKS, "the pinning of vCPUs to CPUs of the node", "waits for a node whose kubelet has the static CPU"
         " manager policy, which virt-local's has not; needs the gate CPUManager",
         fields="domain.cpu.dedicatedCpuPlacement domain.cpu.isolateEmulatorThread", gates="CPUManager AlignCPUs"),
    _cpu(WORKS, "NUMA in the guest", "the memory cells of the node in which its own CPUs are; needs huge pages, and a"
         " profile of system calls that allows mbind, as our own does (seccompConfiguration); such a machine does not"
         " move",
         fields="domain.cpu.numa", gates="NUMA"),
    _cpu(GATED, "devices of the node close to the guest's memory cells", "for a guest that sees the cells of its node;"
         " a guest found a plain device in its cell; no device of a node with several cells was here to try it on",
         gates="PCINUMAAwareTopology"),
    _cpu(WORKS, "real-time scheduling of vCPUs", "waits for a node that gives real-time threads all of a CPU"
         " (`kernel.sched_rt_runtime_us` is -1); needs NUMA in the guest", fields="domain.cpu.realtime"),
    _cpu(WORKS, "memory in huge pages", "the node needs such pages; virt-local's counts them at its start",
         fields="domain.memory.hugepages", annotations=f"{names.ANNOTATION_MEMFD}=false"),
    _cpu(GATED, "reserved memory beside the guest's", fields="domain.memory.reservedOverhead", in_launcher=False,
         gates="ReservedOverheadMemlock"),
    _cpu(WORKS, "amd64, arm64 and s390x", "that of the node; arm64 was tried under emulation, s390x as XML only",
         fields="architecture", gates="MultiArchitecture"),
    _cpu(GATED, "a machine of another architecture than its node's", "by emulation, where the launcher has a QEMU"
         " for it; without a screen", gates="CrossArchitectureVirtualization"),
    _cpu(WORKS, "a protected guest on s390x", "by launchSecurity; as XML, no such machine was here to try it on",
         gates="SecureExecution"),
    _cpu(NEVER, "a hypervisor other than QEMU with KVM or emulation", "one hypervisor, known well",
         gates="ConfigurableHypervisor"),
)  # fmt: skip

FIRMWARE: tuple[Feature, ...] = (
    _firmware(WORKS, "BIOS", fields="domain.firmware.bootloader.bios"),
    _firmware(WORKS, "UEFI and secure boot",
              "the node needs OVMF; what the firmware stores is lost at a stop unless it is to be kept",
              fields="domain.firmware.bootloader.efi", gates="BochsDisplayForEFIGuests"),
    _firmware(WORKS, "the keeping of firmware variables over a stop", "in a claim of the VM",
              fields="domain.firmware.bootloader.efi.persistent", gates="VMPersistentState"),
    _firmware(GATED, "firmware that libvirt chooses", "among those of which the image has a description",
              gates="FirmwareAutoSelection"),
    _firmware(WORKS, "a kernel out of an image", fields="domain.firmware.kernelBoot"),
    _firmware(WORKS, "SMBIOS: UUID, serial number, chassis",
              fields="domain.firmware.uuid domain.firmware.serial domain.chassis"),
    _firmware(WORKS, "the machine type", "q35, virt or s390-ccw-virtio, by architecture", fields="domain.machine"),
    _firmware(WORKS, "an ACPI table of your own", "SLIC and MSDM, out of Secrets", fields="domain.firmware.acpi"),
    _firmware(GATED, "Ignition", annotations=names.ANNOTATION_IGNITION, gates="ExperimentalIgnitionSupport"),
)  # fmt: skip

DEVICES: tuple[Feature, ...] = (
    _device(WORKS, "a serial console and a screen", fields="domain.devices.autoattachSerialConsole"
            " domain.devices.autoattachGraphicsDevice domain.devices.video", subresources="console vnc vnc/screenshot",
            gates="VideoConfig"),
    _device(WORKS, "the log of the serial console", "a file in the Pod, rotated at 4 MiB; the cluster's configuration"
            " can switch it off", fields="domain.devices.logSerialConsole"),
    _device(WORKS, "sound, tablet, watchdog, rng and balloon", fields="domain.devices.sound domain.devices.inputs"
            " domain.devices.watchdog domain.devices.rng domain.devices.autoattachMemBalloon"
            " domain.devices.autoattachInputDevice"),
    _device(WORKS, "a panic device", "pvpanic needs libvirt 9.1 on the node", fields="domain.devices.panicDevices",
            gates="PanicDevices"),
    _device(WORKS, "USB redirection", "four devices", fields="domain.devices.clientPassthrough",
            subresources="usbredir"),
    _device(GATED, "vsock", fields="domain.devices.autoattachVSOCK", subresources="vsock", gates="VSOCK"),
    _device(WORKS, "a TPM", "the node needs swtpm; its state is lost at a stop unless it is to be kept",
            fields="domain.devices.tpm"),
    _device(WORKS, "a TPM whose state outlives a stop", "in a claim of the VM",
            fields="domain.devices.tpm.persistent", gates="VMPersistentState"),
    _device(WORKS, "virtio devices of the older kind", fields="domain.devices.useVirtioTransitional"),
    _device(WORKS, "a shared filesystem", "by virtiofs; for claims and DataVolumes behind the gate"
            " EnableVirtioFsStorageVolumes; such a machine does not move", fields="domain.devices.filesystems",
            gates="EnableVirtioFsStorageVolumes EnableVirtioFsConfigVolumes"),
    _device(GATED, "the delivery of the host's metrics", "as vhostmd does it", gates="DownwardMetrics",
            fields="domain.devices.downwardMetrics volumes[].downwardMetrics"),
    _device(WORKS, "the tag of a device", "the guest reads it in the metadata of a cloudInitConfigDrive volume, and"
            " that of a device which comes later after a restart",
            fields="domain.devices.disks[].tag domain.devices.interfaces[].tag"),
    _device(WORKS, "the placement of PCI devices by annotation",
            annotations=f"{names.ANNOTATION_PCI_ON_ROOT_COMPLEX}=true {names.ANNOTATION_NO_PCI_HOLE64}=true"
                        f" {names.ANNOTATION_PCI_INTERFACE_SLOTS}"),
    _device(WORKS, "free page reporting by annotation", "the cluster's configuration can switch it off for all;"
            " off for a guest with CPUs or memory of its own",
            annotations=f"{names.ANNOTATION_FREE_PAGE_REPORTING_DISABLED}=true"),
)  # fmt: skip

HOST: tuple[Feature, ...] = (
    _host(WORKS, "a GPU of the node", "whole or virtual, of a kind that permittedHostDevices names; virt-local's node"
          " takes no device plugins, so it has none", fields="domain.devices.gpus", gates="GPU"),
    _host(GATED, "a host device", "PCI, mediated or USB, likewise", fields="domain.devices.hostDevices",
          gates="HostDevices"),
    _host(WORKS, "the tag of a host device", "likewise as that of any device",
          fields="domain.devices.gpus[].tag domain.devices.hostDevices[].tag"),
    _host(WORKS, "the making of mediated devices", "by mediatedDevicesConfiguration of the KubeVirt object, one type"
          " for each card; those that are not wanted any more go when nobody uses them, and those that others made"
          " stay. Tried on a made-up sysfs, no such card was here; virt-local's node makes none",
          gates="DisableMDEVConfiguration"),
    _host(NOT_YET, "the move of a virtual GPU", "a machine with a device of the node does not move; no such card"
          " was here to try it on",
          gates="VGPULiveMigration"),
    _host(NOT_YET, "an IOMMU by file descriptor", "devices of the node come by their VFIO groups; no node with an IOMMU"
          " was here to try it on",
          gates="IOMMUFD GraceIOVirtualization"),
    _host(WORKS, "a GPU or host device by resource claim", "its driver must tell the Pod its address (Kubernetes'"
          " device metadata); as XML, no such driver was here to try it on; virt-local has no resource claims",
          fields="resourceClaims domain.devices.gpus[].claimName domain.devices.hostDevices[].claimName",
          gates="GPUsWithDRA HostDevicesWithDRA"),
    _host(GATED, "a network card by resource claim", "with the sriov binding; likewise; one of a claim template moves"
          " with its machine",
          fields="networks[].resourceClaim", gates="NetworkDevicesWithDRA"),
    _host(GATED, "guest memory that AMD SEV encrypts", "as XML; no such processor was here to try it on",
          fields="domain.launchSecurity.sev domain.launchSecurity.snp",
          subresources="sev/fetchcertchain sev/querylaunchmeasurement sev/setupsession sev/injectlaunchsecret",
          gates="WorkloadEncryptionSEV"),
    _host(GATED, "guest memory that Intel TDX encrypts", "as XML; no such processor was here to try it on",
          fields="domain.launchSecurity.tdx", gates="WorkloadEncryptionTDX"),
)  # fmt: skip

LIFE: tuple[Feature, ...] = (
    _life(WORKS, "start, stop, restart, pause, reset and soft reboot", fields="startStrategy"
          " terminationGracePeriodSeconds", subresources="start stop restart pause unpause reset softreboot"),
    _life(WORKS, "the reboot policy", fields="domain.rebootPolicy", gates="RebootPolicy"),
    _life(WORKS, "the guest agent", subresources="guestosinfo userlist filesystemlist freeze unfreeze"),
    _life(WORKS, "cloud-init and sysprep",
          fields="volumes[].cloudInitNoCloud volumes[].cloudInitConfigDrive volumes[].sysprep"),
    _life(WORKS, "the delivery of access credentials", "by cloud-init, or by the agent into the running guest",
          fields="accessCredentials"),
    _life(WORKS, "a readiness probe of the guest", "by TCP, HTTP, a command in the guest or its agent",
          fields="readinessProbe"),
    _life(WORKS, "a liveness probe of the guest", "likewise; a guest that fails it is ended, and its VM starts it anew",
          fields="livenessProbe"),
    _life(GATED, "a hook sidecar", "from an image, or a script out of a ConfigMap; with a claim that it shares with"
          " the launcher",
          annotations=names.ANNOTATION_HOOK_SIDECARS, gates="Sidecar"),
    _life(NEVER, "a plugin that changes all machines", "a hook sidecar does it for one machine, which says so",
          gates="Plugins"),
    _life(NEVER, "a launcher that runs as root", "it runs as uid 107, and never as root", gates="Root"),
    _life(WORKS, "a launcher without root", "its Pod fits a namespace that enforces `restricted`", gates="NonRoot PSA"),
    _life(WORKS, "the choice of a node", fields="nodeSelector affinity tolerations topologySpreadConstraints"
          " priorityClassName schedulerName", gates="CPUNodeDiscovery"),
    _life(WORKS, "name resolution", fields="dnsPolicy dnsConfig hostname subdomain"),
    _life(WORKS, "a service account", fields="serviceAccountName volumes[].serviceAccount"),
)  # fmt: skip

FEATURES = PROCESSOR + FIRMWARE + DEVICES + HOST + LIFE
