"""The table, first half: the fields of a machine (processor, memory, firmware, devices)."""

from __future__ import annotations

from functools import partial

from virt_core.apis import names
from virt_core.apis.support.feature import GATED, NOT_YET, WORKS, Feature, row

_cpu = partial(row, "processor and memory")
_firmware = partial(row, "firmware")
_device = partial(row, "devices")
_host = partial(row, "devices of the node")
_life = partial(row, "life of a machine")

PROCESSOR: tuple[Feature, ...] = (
    _cpu(WORKS, "the processor's topology", "a change needs a restart",
         fields="domain.cpu.cores domain.cpu.sockets domain.cpu.threads domain.cpu.maxSockets"),
    _cpu(WORKS, "the processor's model and features", "host-model, host-passthrough or a named model",
         fields="domain.cpu.model domain.cpu.features"),
    _cpu(WORKS, "memory, requests and limits", "a change needs a restart",
         fields="domain.memory.guest domain.resources",
         gates="AutoResourceLimitsGate VmiMemoryOverheadReport"),
    _cpu(WORKS, "a pool of IO threads", fields="domain.ioThreadsPolicy domain.ioThreads"
         " domain.devices.disks[].dedicatedIOThread domain.devices.blockMultiQueue"),
    _cpu(WORKS, "the clock and its timers", fields="domain.clock"),
    _cpu(WORKS, "ACPI, APIC, SMM and what hides KVM", fields="domain.features.acpi domain.features.apic"
         " domain.features.smm domain.features.kvm domain.features.pvspinlock"),
    _cpu(WORKS, "Hyper-V enlightenments", fields="domain.features.hyperv domain.features.hypervPassthrough"),
    _cpu(NOT_YET, "the choice of a node by its Hyper-V features", gates="HypervStrictCheck"),
    _cpu(WORKS, "a direct or extended Hyper-V TLB flush", "needs libvirt 11.0 on the node",
         fields="domain.features.hyperv.tlbflush.direct domain.features.hyperv.tlbflush.extended"),
    _cpu(WORKS, "the pinning of vCPUs to CPUs of the node", "waits for a node whose kubelet has the static CPU"
         " manager policy, which virt-local's has not; needs the gate CPUManager",
         fields="domain.cpu.dedicatedCpuPlacement domain.cpu.isolateEmulatorThread", gates="CPUManager AlignCPUs"),
    _cpu(NOT_YET, "NUMA in the guest", fields="domain.cpu.numa", gates="NUMA PCINUMAAwareTopology"),
    _cpu(NOT_YET, "real-time scheduling of vCPUs", fields="domain.cpu.realtime"),
    _cpu(WORKS, "memory in huge pages", "the node needs such pages; virt-local's counts them at its start",
         fields="domain.memory.hugepages", annotations=f"{names.ANNOTATION_MEMFD}=false"),
    _cpu(NOT_YET, "reserved memory beside the guest's", fields="domain.memory.reservedOverhead", in_launcher=False,
         gates="ReservedOverheadMemlock"),
    _cpu(NOT_YET, "an architecture other than amd64", fields="architecture=arm64|s390x",
         gates="CrossArchitectureVirtualization MultiArchitecture SecureExecution"),
    _cpu(NOT_YET, "a hypervisor other than QEMU with KVM or emulation", gates="ConfigurableHypervisor"),
)  # fmt: skip

FIRMWARE: tuple[Feature, ...] = (
    _firmware(WORKS, "BIOS", fields="domain.firmware.bootloader.bios"),
    _firmware(WORKS, "UEFI and secure boot", "the node needs OVMF; what the firmware stores is lost at a stop",
              fields="domain.firmware.bootloader.efi", gates="BochsDisplayForEFIGuests"),
    _firmware(NOT_YET, "the keeping of firmware variables over a stop", "UEFI itself works",
              fields="domain.firmware.bootloader.efi.persistent", gates="VMPersistentState"),
    _firmware(NOT_YET, "firmware that libvirt chooses", gates="FirmwareAutoSelection"),
    _firmware(WORKS, "a kernel out of an image", fields="domain.firmware.kernelBoot"),
    _firmware(WORKS, "SMBIOS: UUID, serial number, chassis",
              fields="domain.firmware.uuid domain.firmware.serial domain.chassis"),
    _firmware(WORKS, "the machine type", "q35", fields="domain.machine"),
    _firmware(WORKS, "an ACPI table of your own", "SLIC and MSDM, out of Secrets", fields="domain.firmware.acpi"),
    _firmware(GATED, "Ignition", annotations=names.ANNOTATION_IGNITION, gates="ExperimentalIgnitionSupport"),
)  # fmt: skip

DEVICES: tuple[Feature, ...] = (
    _device(WORKS, "a serial console and a screen", fields="domain.devices.autoattachSerialConsole"
            " domain.devices.autoattachGraphicsDevice domain.devices.video", subresources="console vnc vnc/screenshot",
            gates="VideoConfig"),
    _device(WORKS, "the log of the serial console", "a file in the Pod, rotated at 4 MiB",
            fields="domain.devices.logSerialConsole"),
    _device(WORKS, "sound, tablet, watchdog, rng and balloon", fields="domain.devices.sound domain.devices.inputs"
            " domain.devices.watchdog domain.devices.rng domain.devices.autoattachMemBalloon"
            " domain.devices.autoattachInputDevice"),
    _device(WORKS, "a panic device", "pvpanic needs libvirt 9.1 on the node", fields="domain.devices.panicDevices",
            gates="PanicDevices"),
    _device(WORKS, "USB redirection", "four devices", fields="domain.devices.clientPassthrough",
            subresources="usbredir"),
    _device(GATED, "vsock", fields="domain.devices.autoattachVSOCK", subresources="vsock", gates="VSOCK"),
    _device(WORKS, "a TPM", "the node needs swtpm; its state is lost at a stop", fields="domain.devices.tpm"),
    _device(NOT_YET, "a TPM whose state outlives a stop", "a TPM without persistent works",
            fields="domain.devices.tpm.persistent", gates="VMPersistentState"),
    _device(WORKS, "virtio devices of the older kind", fields="domain.devices.useVirtioTransitional"),
    _device(NOT_YET, "a shared filesystem", "use a disk", fields="domain.devices.filesystems",
            gates="EnableVirtioFsStorageVolumes EnableVirtioFsConfigVolumes"),
    _device(NOT_YET, "the delivery of the host's metrics", gates="DownwardMetrics",
            fields="domain.devices.downwardMetrics volumes[].downwardMetrics"),
    _device(NOT_YET, "the tag of a device", "the guest would not be told of it", in_launcher=False,
            fields="domain.devices.disks[].tag domain.devices.interfaces[].tag"),
    _device(WORKS, "the placement of PCI devices by annotation",
            annotations=f"{names.ANNOTATION_PCI_ON_ROOT_COMPLEX}=true {names.ANNOTATION_NO_PCI_HOLE64}=true"
                        f" {names.ANNOTATION_PCI_INTERFACE_SLOTS}"),
    _device(WORKS, "free page reporting by annotation", "the cluster's configuration can switch it off for all",
            annotations=f"{names.ANNOTATION_FREE_PAGE_REPORTING_DISABLED}=true"),
)  # fmt: skip

HOST: tuple[Feature, ...] = (
    _host(NOT_YET, "a GPU of the node", fields="domain.devices.gpus", gates="GPU VGPULiveMigration"),
    _host(NOT_YET, "a host device", fields="domain.devices.hostDevices",
          gates="HostDevices DisableMDEVConfiguration GraceIOVirtualization IOMMUFD"),
    _host(NOT_YET, "a device by resource claim", fields="resourceClaims networks[].resourceClaim", in_launcher=False,
          gates="GPUsWithDRA HostDevicesWithDRA NetworkDevicesWithDRA"),
    _host(NOT_YET, "encrypted guest memory", fields="domain.launchSecurity",
          gates="WorkloadEncryptionSEV WorkloadEncryptionTDX"),
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
    _life(NOT_YET, "a hook sidecar", annotations=names.ANNOTATION_HOOK_SIDECARS, gates="Sidecar Plugins"),
    _life(NOT_YET, "a launcher that runs as root", "it runs as uid 107", gates="Root"),
    _life(WORKS, "a launcher without root", "its Pod fits a namespace that enforces `restricted`", gates="NonRoot PSA"),
    _life(WORKS, "the choice of a node", fields="nodeSelector affinity tolerations topologySpreadConstraints"
          " priorityClassName schedulerName", gates="CPUNodeDiscovery"),
    _life(WORKS, "name resolution", fields="dnsPolicy dnsConfig hostname subdomain"),
    _life(WORKS, "a service account", fields="serviceAccountName volumes[].serviceAccount"),
)  # fmt: skip

FEATURES = PROCESSOR + FIRMWARE + DEVICES + HOST + LIFE
