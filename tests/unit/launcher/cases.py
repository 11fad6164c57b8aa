"""The table of VMIs whose domain XML is kept in tests/golden/launcher. One row for each thing that one can say."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from virt_core.apis.base import from_plain
from virt_core.apis.vmi import VirtualMachineInstance
from virt_launcher.convert.context import Attachment, Context, Smbios
from virt_launcher.convert.cpuplan import HostCpu
from virt_launcher.disks.qcow2 import Backing
from virt_launcher.disks.sources import BlockSizes, DiskSource, FirmwareFiles, KernelFiles

UID = "7043063b-e1c9-464f-9ce7-9189037edf72"
FIRMWARE_UUID = "6e311d7c-7bc3-4420-8f30-ea6a144a4f7b"
MACHINE_DIR = f"/var/run/kubevirt-private/{UID}"

#: What drivers of resource claims left in the Pod.
DEVICE_METADATA = Path(__file__).parent / "device-metadata"

#: What the kernel says of devices: some are near a memory cell, some near none.
SYSFS = Path(__file__).parent / "sysfs"

ON_ROOT = {"kubevirt.io/placePCIDevicesOnRootComplex": "true"}


@dataclass(frozen=True)
class Case:
    """A VMI's domain and spec, and what the context says beyond the usual."""

    domain: dict[str, Any] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    context: dict[str, Any] = field(default_factory=dict)
    status: dict[str, Any] = field(default_factory=dict)
    #: False where the schema of Debian 12's libvirt is older than what the case uses.
    valid_here: bool = True


def vmi_of(case: Case, name: str = "vm1") -> VirtualMachineInstance:
    domain = {"memory": {"guest": "128Mi"}, "firmware": {"uuid": FIRMWARE_UUID}, "devices": {}} | case.domain
    metadata = {"name": name, "namespace": "ns", "uid": UID, "annotations": case.annotations}
    plain = {"metadata": metadata, "spec": {"domain": domain} | case.spec, "status": case.status}
    return from_plain(plain, VirtualMachineInstance)


def source_of(volume: Any) -> DiskSource:
    if volume.container_disk is not None:
        backing = Backing("/var/run/kubevirt-image-volume/disk_0/disk/disk.img", "raw")
        return DiskSource(f"/var/run/kubevirt-ephemeral-disks/disk-data/{volume.name}/disk.qcow2", "qcow2", backing)
    disks = f"/var/run/kubevirt-private/vmi-disks/{volume.name}/disk.img"
    if volume.persistent_volume_claim is not None:
        read_only = volume.persistent_volume_claim.read_only
        if "block" in volume.name:
            return DiskSource(f"/dev/{volume.name}", "raw", block=True, read_only=read_only)
        return DiskSource(disks, "raw", read_only=read_only, preallocated="full" in volume.name)
    if volume.ephemeral is not None:
        block = "block" in volume.name
        backing = Backing(f"/dev/{volume.name}" if block else disks, "raw", block=block)
        return DiskSource(f"/var/run/kubevirt-ephemeral-disks/disk-data/{volume.name}/disk.qcow2", "qcow2", backing)
    if volume.downward_metrics is not None:
        return DiskSource("/var/run/kubevirt-private/downwardapi-disks/vhostmd0", "raw", None, False, read_only=True)
    if volume.config_map is not None:
        return DiskSource(f"/var/run/kubevirt-ephemeral-disks/file-disks/{volume.name}.iso", "raw")
    if volume.empty_disk is not None:
        return DiskSource(f"/var/run/kubevirt-ephemeral-disks/disk-data/{volume.name}/empty.qcow2", "qcow2")
    return DiskSource(f"/var/run/kubevirt-ephemeral-disks/cloud-init-data/{volume.name}.iso", "raw")


def context_of(case: Case, name: str = "vm1") -> Context:
    vmi = vmi_of(case, name)
    interfaces = vmi.spec.domain.devices.interfaces
    values: dict[str, Any] = {
        "vmi": vmi,
        "machine_dir": MACHINE_DIR,
        "kvm": False,
        "libvirt_version": 9_000_000,
        "sources": {volume.name: source_of(volume) for volume in vmi.spec.volumes},
        "attachments": {
            spec.name: Attachment(f"tap{index}", f"02:00:00:aa:bb:{index:02x}", 1450)
            for index, spec in enumerate(interfaces)
        },
    }
    return Context(**values | case.context)


def disk(name: str, bus: str = "virtio", **more: Any) -> dict[str, Any]:
    return {"name": name, "disk": {"bus": bus}} | more


def empty(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "emptyDisk": {"capacity": "1Gi"}} for name in names]


ROOT = {"name": "root", "containerDisk": {"image": "example/disk:v1"}}
NIC = {"name": "default", "masquerade": {}}
TIMERS = {
    "hpet": {"present": False},
    "kvm": {},
    "pit": {"tickPolicy": "delay"},
    "rtc": {"tickPolicy": "catchup", "track": "guest"},
    "hyperv": {},
}
HYPERV = {
    "relaxed": {},
    "vapic": {},
    "spinlocks": {"spinlocks": 8191},
    "vpindex": {},
    "runtime": {},
    "synic": {},
    "synictimer": {"direct": {}},
    "reset": {"enabled": False},
    "vendorid": {"vendorid": "example"},
    "frequencies": {},
    "reenlightenment": {},
    "tlbflush": {},
    "ipi": {},
    "evmcs": {"enabled": False},
}

#: Two memory cells of two cores of two threads, numbered as most machines do: second threads after all first ones.
TWO_CELLS = tuple(HostCpu(core // 2, core, core + 4 * thread) for core in range(4) for thread in range(2))

BLOCKS = {"logical": 4096, "physical": 4096, "discardGranularity": 65536}

TABLES = "/var/run/kubevirt-ephemeral-disks/acpi-tables"
#: Disks that know what they are made of.
SIZED = {
    **{name: DiskSource(f"/{name}.qcow2", "qcow2", blocks=BlockSizes(4096, 4096, 4096)) for name in "abc"},
    "block": DiskSource("/dev/block", "raw", block=True, blocks=BlockSizes(512, 4096)),
}

#: What device plugins say of what they gave the Pod.
GIVEN = {
    "PCI_RESOURCE_EXAMPLE_COM_CARD": "0000:3b:00.0,0000:af:00.1",
    "MDEV_PCI_RESOURCE_EXAMPLE_COM_VGPU": "b3a1c2d4-0000-4000-8000-000000000001,b3a1c2d4-0000-4000-8000-000000000002",
    "USB_RESOURCE_EXAMPLE_COM_STICK": "1:5,2:14",
}
GROWING = {"guest": "1Gi", "maxGuest": "4Gi"}

CASES: dict[str, Case] = {
    "minimal": Case(),
    "base": Case(
        domain={
            "cpu": {"cores": 1, "sockets": 1, "threads": 1, "maxSockets": 4, "model": "host-model"},
            "features": {"acpi": {"enabled": True}},
            "machine": {"type": "q35"},
            "devices": {"disks": [disk("root")], "interfaces": [NIC]},
        },
        spec={"volumes": [ROOT], "architecture": "amd64"},
    ),
    "kvm": Case(context={"kvm": True}),
    "cpu-passthrough": Case(domain={"cpu": {"model": "host-passthrough"}}, context={"kvm": True}),
    "cpu-named": Case(
        domain={"cpu": {"model": "Nehalem", "features": [{"name": "aes"}, {"name": "x2apic", "policy": "disable"}]}},
        context={"kvm": True},
    ),
    "cpu-named-emulated": Case(domain={"cpu": {"model": "Nehalem", "cores": 2, "threads": 2}}),
    "cpu-required-emulated": Case(
        domain={"cpu": {"features": [{"name": "aes"}, {"name": "avx", "policy": "disable"}]}}
    ),
    "memory-from-limit": Case(domain={"resources": {"limits": {"memory": "96Mi"}}, "memory": None}),
    "cpu-from-resources": Case(domain={"resources": {"requests": {"cpu": "1500m", "memory": "64Mi"}}, "memory": None}),
    "memory-that-can-grow": Case(domain={"cpu": {"sockets": 2, "maxSockets": 4}, "memory": GROWING}),
    "memory-that-grew": Case(domain={"memory": GROWING | {"guest": "3Gi"}}, status={"memory": {"guestAtBoot": "1Gi"}}),
    "memory-that-grew-by-large-pages": Case(
        domain={"memory": GROWING | {"guest": "2Gi", "hugepages": {"pageSize": "1Gi"}}},
        status={"memory": {"guestAtBoot": "1Gi"}},
    ),
    "hugepages": Case(domain={"memory": {"guest": "128Mi", "hugepages": {"pageSize": "2Mi"}}}),
    "hugepages-as-file": Case(
        domain={"memory": {"guest": "1Gi", "hugepages": {"pageSize": "1Gi"}}},
        annotations={"kubevirt.io/memfd": "false"},
    ),
    "pinned": Case(
        domain={
            "cpu": {"sockets": 1, "cores": 2, "threads": 2, "maxSockets": 2, "dedicatedCpuPlacement": True},
            "ioThreadsPolicy": "auto",
            "devices": {"disks": [disk("a"), disk("b")]},
        },
        spec={"volumes": empty("a", "b")},
        context={"kvm": True, "host_cpus": TWO_CELLS[:4]},
    ),
    "pinned-isolated": Case(
        domain={
            "cpu": {"cores": 2, "dedicatedCpuPlacement": True, "isolateEmulatorThread": True},
            "ioThreadsPolicy": "auto",
            "devices": {"disks": [disk("a"), disk("b")]},
        },
        spec={"volumes": empty("a", "b")},
        annotations={"alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity": ""},
        context={"kvm": True, "host_cpus": TWO_CELLS[:4]},
    ),
    "pinned-pool": Case(
        domain={
            "cpu": {"cores": 2, "dedicatedCpuPlacement": True, "isolateEmulatorThread": True},
            "ioThreadsPolicy": "supplementalPool",
            "ioThreads": {"supplementalPoolThreadCount": 2},
            "devices": {"disks": [disk("a"), disk("b", dedicatedIOThread=True)]},
        },
        spec={"volumes": empty("a", "b")},
        context={"kvm": True, "host_cpus": TWO_CELLS[:5]},
    ),
    "pinned-emulated": Case(
        domain={"cpu": {"cores": 2, "dedicatedCpuPlacement": True, "isolateEmulatorThread": True}},
        context={"host_cpus": TWO_CELLS[:3]},
    ),
    "numa-two-cells": Case(
        domain={
            "cpu": {"cores": 3, "dedicatedCpuPlacement": True, "numa": {"guestMappingPassthrough": {}}},
            "memory": {"guest": "130Mi", "hugepages": {"pageSize": "2Mi"}},
        },
        context={"kvm": True, "host_cpus": (TWO_CELLS[0], TWO_CELLS[4], TWO_CELLS[1])},
    ),
    "numa-one-cell": Case(
        domain={
            "cpu": {
                "threads": 2,
                "maxSockets": 2,
                "dedicatedCpuPlacement": True,
                "isolateEmulatorThread": True,
                "numa": {"guestMappingPassthrough": {}},
            },
            "memory": {"guest": "1Gi", "hugepages": {"pageSize": "1Gi"}},
        },
        annotations={"kubevirt.io/memfd": "false"},
        context={"kvm": True, "host_cpus": (*TWO_CELLS[6:8], TWO_CELLS[0])},
    ),
    "realtime": Case(
        domain={
            "cpu": {
                "cores": 2,
                "dedicatedCpuPlacement": True,
                "numa": {"guestMappingPassthrough": {}},
                "realtime": {"mask": "0"},
            },
            "memory": {"guest": "128Mi", "hugepages": {"pageSize": "2Mi"}},
        },
        context={"kvm": True, "host_cpus": TWO_CELLS[:2]},
    ),
    "features": Case(
        domain={
            "features": {
                "acpi": {},
                "apic": {"endOfInterrupt": True},
                "smm": {},
                "pvspinlock": {"enabled": False},
                "kvm": {"hidden": True},
                "hyperv": HYPERV,
            }
        }
    ),
    "newer-libvirt": Case(
        domain={
            "features": {"hyperv": {"vpindex": {}, "tlbflush": {"direct": {}, "extended": {}}}},
            "devices": {"disks": [disk("a", blockSize={"custom": BLOCKS})], "panicDevices": [{"model": "pvpanic"}]},
        },
        spec={"volumes": empty("a")},
        context={"kvm": True, "libvirt_version": 11_003_000},
        valid_here=False,
    ),
    "hyperv-passthrough": Case(domain={"features": {"hypervPassthrough": {}}}, context={"kvm": True}),
    "clock-utc": Case(domain={"clock": {"utc": {"offsetSeconds": 3600}, "timer": TIMERS}}),
    "clock-reset": Case(domain={"clock": {"utc": {}}}),
    "clock-zone": Case(domain={"clock": {"timezone": "Europe/Berlin"}}),
    "identity": Case(
        domain={
            "firmware": {"uuid": FIRMWARE_UUID, "serial": "abc123"},
            "chassis": {"manufacturer": "m", "version": "v", "serial": "s", "asset": "a", "sku": "k"},
        },
        context={"smbios": Smbios("Example", "Box", "2", "SKU", "Boxes")},
    ),
    "bios-serial": Case(domain={"firmware": {"bootloader": {"bios": {"useSerial": True}}}}),
    "efi": Case(domain={"firmware": {"bootloader": {"efi": {"secureBoot": False}}}}),
    "kept-state": Case(
        domain={
            "firmware": {"uuid": FIRMWARE_UUID, "bootloader": {"efi": {"secureBoot": False, "persistent": True}}},
            "devices": {"tpm": {"persistent": True}},
        }
    ),
    "downward-metrics": Case(
        domain={"devices": {"disks": [disk("figures")], "downwardMetrics": {}}},
        spec={"volumes": [{"name": "figures", "downwardMetrics": {}}]},
    ),
    "sev": Case(
        domain={
            "firmware": {"uuid": FIRMWARE_UUID, "bootloader": {"efi": {"secureBoot": False}}},
            "launchSecurity": {
                "sev": {
                    "policy": {"encryptedState": True},
                    "attestation": {},
                    "session": "c2Vzc2lvbg==",
                    "dhCert": "Y2VydA==",
                }
            },
            "devices": {
                "disks": [disk("a"), disk("b", "scsi"), disk("c", "sata")],
                "interfaces": [NIC],
                "inputs": [{"name": "pointer", "type": "tablet", "bus": "virtio"}],
                "rng": {},
                "autoattachVSOCK": True,
            },
        },
        spec={"startStrategy": "Paused", "volumes": empty("a", "b", "c"), "networks": [{"name": "default", "pod": {}}]},
        context={"vhost_vsock": True},
        status={"VSOCKCID": 77},
    ),
    "sev-snp": Case(
        domain={
            "firmware": {"uuid": FIRMWARE_UUID, "bootloader": {"efi": {"secureBoot": False}}},
            "launchSecurity": {"snp": {}},
        },
        valid_here=False,
    ),
    "tdx": Case(
        domain={
            "firmware": {"uuid": FIRMWARE_UUID, "bootloader": {"efi": {}}},
            "launchSecurity": {"tdx": {}},
        },
        annotations={"kubevirt.io/qgs-socket-path": "/var/run/tdx-qgs/qgs.socket"},
        valid_here=False,
    ),
    "efi-secure": Case(domain={"firmware": {"bootloader": {"efi": {}}}, "features": {"smm": {}}}),
    "efi-chosen-by-libvirt": Case(
        domain={"firmware": {"bootloader": {"efi": {}}}, "features": {"smm": {}}},
        context={"libvirt_chooses_firmware": True},
    ),
    "kernel-boot": Case(
        domain={
            "firmware": {"kernelBoot": {"kernelArgs": "console=ttyS0", "container": {"image": "example/kernel:v1"}}}
        },
        context={
            "kernel": KernelFiles("/var/run/kubevirt-kernel-boot/vmlinuz", "/var/run/kubevirt-kernel-boot/initrd")
        },
    ),
    "acpi-tables": Case(
        domain={"firmware": {"uuid": FIRMWARE_UUID, "acpi": {"slicNameRef": "keys"}}},
        context={"firmware": FirmwareFiles(slic=f"{TABLES}/slic.bin")},
    ),
    "acpi-table-msdm": Case(
        domain={"firmware": {"uuid": FIRMWARE_UUID, "acpi": {"msdmNameRef": "keys"}}},
        context={"firmware": FirmwareFiles(msdm=f"{TABLES}/msdm.bin")},
    ),
    "acpi-tables-newer": Case(
        domain={"firmware": {"uuid": FIRMWARE_UUID, "acpi": {"slicNameRef": "keys", "msdmNameRef": "keys"}}},
        context={
            "firmware": FirmwareFiles(slic=f"{TABLES}/slic.bin", msdm=f"{TABLES}/msdm.bin"),
            "libvirt_version": 11_003_000,
        },
        valid_here=False,
    ),
    "ignition": Case(
        annotations={"kubevirt.io/ignitiondata": '{"ignition": {"version": "3.4.0"}}'},
        context={"firmware": FirmwareFiles(ignition="/var/run/kubevirt-ephemeral-disks/ignition-data/data.ign")},
    ),
    "paused": Case(spec={"startStrategy": "Paused"}),
    "reboot-restarts": Case(domain={"rebootPolicy": "Reboot"}),
    "reboot-terminates": Case(domain={"rebootPolicy": "Terminate"}),
    "cdrom-empty": Case(domain={"devices": {"disks": [{"name": "cd", "cdrom": {"bus": "sata"}}]}}),
    "disk-buses": Case(
        domain={
            "devices": {
                "disks": [
                    disk("root", bootOrder=1, serial="sn-1", cache="writeback", io="threads"),
                    disk("a", "sata", errorPolicy="report"),
                    disk("b", "scsi"),
                    disk("ci", shareable=True),
                    disk("c", "usb"),
                    {"name": "d", "cdrom": {"bus": "sata", "tray": "open"}},
                    {"name": "e", "cdrom": {"bus": "scsi", "readonly": False}},
                    {"name": "f", "disk": {"bus": "virtio", "readonly": True, "pciAddress": "0000:00:0a.0"}},
                    {"name": "g", "disk": {}},
                    disk("h", blockSize={"custom": {"logical": 512, "physical": 4096}}),
                ]
            }
        },
        spec={"volumes": [ROOT, *empty(*"abcdefgh"), {"name": "ci", "cloudInitNoCloud": {"userData": "x"}}]},
    ),
    "disk-without-direct-io": Case(
        domain={"devices": {"disks": [disk("a")]}},
        spec={"volumes": empty("a")},
        context={"sources": {"a": DiskSource("/tmp/a.qcow2", "qcow2", None, False)}},
    ),
    "block-sizes": Case(
        domain={
            "devices": {
                "disks": [
                    disk("a", blockSize={"matchVolume": {}}),
                    disk("b", "sata", blockSize={"matchVolume": {"enabled": True}}),
                    {"name": "c", "cdrom": {"bus": "sata"}, "blockSize": {"matchVolume": {}}},
                    disk("block", "scsi", blockSize={"matchVolume": {}}),
                ]
            }
        },
        spec={"volumes": empty("a", "b", "c")},
        context={"sources": SIZED},
    ),
    "block-sizes-newer": Case(
        domain={"devices": {"disks": [disk("a", blockSize={"matchVolume": {}})]}},
        spec={"volumes": empty("a")},
        context={"sources": SIZED, "libvirt_version": 11_003_000},
        valid_here=False,
    ),
    "cloud-init": Case(
        domain={"devices": {"disks": [disk("root"), disk("ci")]}},
        spec={"volumes": [ROOT, {"name": "ci", "cloudInitNoCloud": {"userData": "#cloud-config"}}]},
    ),
    "io-shared": Case(
        domain={
            "ioThreadsPolicy": "shared",
            "devices": {
                "blockMultiQueue": True,
                "disks": [disk("a", dedicatedIOThread=True), disk("b"), disk("c", "sata")],
            },
        },
        spec={"volumes": empty("a", "b", "c")},
    ),
    "io-own": Case(
        domain={"ioThreadsPolicy": "shared", "devices": {"disks": [disk("a", dedicatedIOThread=True)]}},
        spec={"volumes": empty("a")},
    ),
    "io-scsi": Case(
        domain={
            "ioThreadsPolicy": "shared",
            "cpu": {"cores": 2},
            "devices": {"disks": [disk("a"), disk("b", "scsi", dedicatedIOThread=True), disk("c", "scsi")]},
        },
        spec={"volumes": empty("a", "b", "c")},
    ),
    "io-auto": Case(
        domain={"ioThreadsPolicy": "auto", "devices": {"disks": [disk("a"), disk("b"), disk("c")]}},
        spec={"volumes": empty("a", "b", "c")},
    ),
    "io-pool": Case(
        domain={
            "ioThreadsPolicy": "supplementalPool",
            "ioThreads": {"supplementalPoolThreadCount": 2},
            "devices": {"disks": [disk("a"), disk("b"), disk("c")]},
        },
        spec={"volumes": empty("a", "b", "c")},
    ),
    "io-pool-mapped": Case(
        domain={
            "ioThreadsPolicy": "supplementalPool",
            "ioThreads": {"supplementalPoolThreadCount": 2},
            "devices": {"disks": [disk("a")]},
        },
        spec={"volumes": empty("a")},
        context={"libvirt_version": 10_000_000},
        valid_here=False,
    ),
    "nics": Case(
        domain={
            "devices": {
                "interfaces": [
                    {"name": "one", "masquerade": {}, "bootOrder": 1, "acpiIndex": 3},
                    {"name": "two", "bridge": {}, "model": "e1000e", "state": "down"},
                    {"name": "three", "bridge": {}, "model": "rtl8139", "pciAddress": "0000:00:0b.0"},
                    {"name": "four", "bridge": {}, "state": "absent"},
                ]
            }
        },
        context={
            "attachments": {
                "one": Attachment("tap0", "02:00:00:aa:bb:00", 1500, 4),
                "two": Attachment("tap1", "02:00:00:aa:bb:01", 1500, 4),
                "three": Attachment("tap2"),
            }
        },
    ),
    "small-devices": Case(
        domain={
            "devices": {
                "rng": {},
                "inputs": [
                    {"name": "pointer", "type": "tablet"},
                    {"name": "virtual", "type": "tablet", "bus": "virtio"},
                ],
                "watchdog": {"name": "dog", "i6300esb": {"action": "poweroff"}},
                "sound": {"name": "noise", "model": "ac97"},
                "tpm": {},
                "panicDevices": [{"model": "hyperv"}, {}],
                "clientPassthrough": {},
                "video": {"type": "virtio"},
            }
        },
        annotations={"kubevirt.io/free-page-reporting-disabled": "true"},
    ),
    "claims": Case(
        domain={
            "devices": {
                "disks": [
                    disk("file"),
                    disk("file-full"),
                    disk("file-ro"),
                    disk("block"),
                    {"name": "block-lun", "lun": {"bus": "scsi"}, "serial": "of-nobody"},
                    {"name": "block-held", "lun": {"bus": "scsi", "reservation": True}, "shareable": True},
                    disk("layer"),
                    disk("layer-block"),
                    {"name": "files", "cdrom": {"bus": "sata"}},
                    disk("shared", shareable=True),
                ]
            }
        },
        spec={
            "volumes": [
                *(
                    {"name": name, "persistentVolumeClaim": {"claimName": name}}
                    for name in ("file", "file-full", "block", "block-lun", "block-held", "shared")
                ),
                {"name": "file-ro", "persistentVolumeClaim": {"claimName": "c", "readOnly": True}},
                {"name": "layer", "ephemeral": {"persistentVolumeClaim": {"claimName": "c"}}},
                {"name": "layer-block", "ephemeral": {"persistentVolumeClaim": {"claimName": "c"}}},
                {"name": "files", "configMap": {"name": "c"}},
            ]
        },
    ),
    "filesystems": Case(
        domain={
            "devices": {"filesystems": [{"name": "data", "virtiofs": {}}, {"name": "conf", "virtiofs": {}}], "rng": {}}
        },
        spec={
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
                {"name": "conf", "configMap": {"name": "c"}},
            ]
        },
    ),
    "filesystem-pinned": Case(
        domain={
            "cpu": {"cores": 2, "dedicatedCpuPlacement": True},
            "devices": {"filesystems": [{"name": "conf", "virtiofs": {}}], "interfaces": [NIC]},
        },
        spec={"volumes": [{"name": "conf", "configMap": {"name": "c"}}]},
        context={"kvm": True, "host_cpus": TWO_CELLS[:2]},
    ),
    "tsc": Case(
        domain={
            "cpu": {"features": [{"name": "invtsc", "policy": "require"}]},
            "clock": {"utc": {}, "timer": {"hpet": {}}},
        },
        status={"topologyHints": {"tscFrequency": 2593906000}},
    ),
    "tsc-alone": Case(
        domain={"features": {"hyperv": {"reenlightenment": {}, "vpindex": {}}}},
        status={"topologyHints": {"tscFrequency": 2593906000}},
    ),
    "vsock": Case(
        domain={"devices": {"autoattachVSOCK": True}},
        context={"vhost_vsock": True},
        status={"VSOCKCID": 4242},
    ),
    "host-devices": Case(
        domain={
            "devices": {
                "disks": [disk("root")],
                "interfaces": [NIC],
                "gpus": [
                    {"name": "first", "deviceName": "example.com/vgpu"},
                    {"name": "second", "deviceName": "example.com/vgpu"},
                    {"name": "whole", "deviceName": "example.com/card"},
                ],
                "hostDevices": [
                    {"name": "card", "deviceName": "example.com/card"},
                    {"name": "sticks", "deviceName": "example.com/stick"},
                ],
            }
        },
        spec={"volumes": [ROOT]},
        context={"environment": GIVEN},
    ),
    "host-devices-near-memory": Case(
        domain={
            "cpu": {"cores": 3, "dedicatedCpuPlacement": True, "numa": {"guestMappingPassthrough": {}}},
            "memory": {"guest": "130Mi", "hugepages": {"pageSize": "2Mi"}},
            "devices": {
                "disks": [disk("root")],
                "interfaces": [NIC],
                "gpus": [
                    {"name": "first", "deviceName": "example.com/vgpu"},
                    {"name": "of-no-cell", "deviceName": "example.com/vgpu"},
                    {"name": "whole", "deviceName": "example.com/card"},
                ],
                "hostDevices": [{"name": "card", "deviceName": "example.com/card"}],
            },
        },
        spec={"volumes": [ROOT]},
        context={
            "kvm": True,
            "host_cpus": (TWO_CELLS[0], TWO_CELLS[4], TWO_CELLS[1]),
            "environment": GIVEN,
            "sys": SYSFS,
        },
    ),
    "claimed-devices": Case(
        domain={
            "devices": {
                "gpus": [{"name": "part", "claimName": "own", "requestName": "part"}],
                "hostDevices": [{"name": "card", "claimName": "shared", "requestName": "whole"}],
            }
        },
        spec={
            "resourceClaims": [
                {"name": "own", "resourceClaimTemplateName": "parts"},
                {"name": "shared", "resourceClaimName": "shared-card"},
            ]
        },
        context={"device_metadata": DEVICE_METADATA},
    ),
    "sriov": Case(
        domain={
            "devices": {
                "interfaces": [
                    NIC,
                    {"name": "fast", "sriov": {}, "macAddress": "02:00:00:00:00:09", "bootOrder": 1, "acpiIndex": 7},
                    {"name": "near", "sriov": {}, "pciAddress": "0000:0a:00.0"},
                    {"name": "claimed", "sriov": {}},
                    {"name": "single", "sriov": {}},
                ],
            }
        },
        spec={
            "networks": [
                {"name": "default", "pod": {}},
                {"name": "fast", "multus": {"networkName": "vlan7"}},
                {"name": "near", "multus": {"networkName": "other/vlan8"}},
                {"name": "claimed", "resourceClaim": {"claimName": "shared", "requestName": "whole"}},
                {"name": "single", "multus": {"networkName": "vlan9"}},
            ],
            "resourceClaims": [{"name": "shared", "resourceClaimName": "shared-card"}],
        },
        context={
            "device_metadata": DEVICE_METADATA,
            "network_info": Path(__file__).parent / "network-info.json",
            "environment": {
                "KUBEVIRT_RESOURCE_NAME_fast": "example.com/vf",
                "KUBEVIRT_RESOURCE_NAME_near": "example.com/vf",
                "KUBEVIRT_RESOURCE_NAME_single": "example.com/lone",
                "PCIDEVICE_EXAMPLE_COM_VF": "0000:65:00.3,0000:65:00.2",
                "PCIDEVICE_EXAMPLE_COM_LONE": "0000:66:00.1",
            },
        },
    ),
    "host-device-displays": Case(
        domain={
            "devices": {
                "gpus": [
                    {"name": "dark", "deviceName": "example.com/vgpu", "virtualGPUOptions": {}},
                    {
                        "name": "screen",
                        "deviceName": "example.com/vgpu",
                        "virtualGPUOptions": {"display": {"ramFB": {"enabled": False}}},
                    },
                ],
            }
        },
        annotations=ON_ROOT,
        context={"environment": GIVEN},
    ),
    "arm64": Case(
        domain={
            "firmware": {"uuid": FIRMWARE_UUID, "bootloader": {"efi": {"secureBoot": False}}},
            "cpu": {"cores": 2, "model": "host-passthrough"},
            "devices": {
                "disks": [disk("root"), {"name": "cd", "cdrom": {"bus": "scsi"}}, {"name": "plain"}],
                "interfaces": [NIC],
                "rng": {},
                "tpm": {},
            },
        },
        spec={"architecture": "arm64", "volumes": [ROOT, *empty("cd", "plain")]},
        context={"node_architecture": "arm64"},
    ),
    "arm64-kvm": Case(
        domain={
            "firmware": {"uuid": FIRMWARE_UUID, "bootloader": {"efi": {}}},
            "devices": {
                "inputs": [{"name": "pointer", "type": "tablet", "bus": "virtio"}],
                "video": {"type": "ramfb"},
                "panicDevices": [{}],
            },
        },
        spec={"architecture": "arm64"},
        context={"node_architecture": "arm64", "kvm": True, "libvirt_version": 11_003_000},
        valid_here=False,
    ),
    "arm64-foreign": Case(
        domain={
            "firmware": {"uuid": FIRMWARE_UUID, "bootloader": {"efi": {"secureBoot": False}}},
            "cpu": {"model": "host-passthrough"},
            "devices": {"disks": [disk("root")], "interfaces": [NIC]},
        },
        spec={"architecture": "arm64", "volumes": [ROOT]},
        annotations={"kubevirt.io/disablePCIHole64": "true"},
        context={"any_architecture": True},
    ),
    "s390x-protected": Case(
        domain={"launchSecurity": {}, "devices": {"disks": [disk("root")], "interfaces": [NIC], "rng": {}}},
        spec={"architecture": "s390x", "volumes": [ROOT]},
        context={"node_architecture": "s390x", "kvm": True},
    ),
    "s390x": Case(
        domain={
            "devices": {
                "disks": [disk("root"), disk("a", "scsi")],
                "interfaces": [NIC],
                "rng": {},
                "watchdog": {"name": "dog", "diag288": {}},
                "autoattachVSOCK": True,
            }
        },
        spec={"architecture": "s390x", "volumes": [ROOT, *empty("a")]},
        context={"node_architecture": "s390x", "vhost_vsock": True},
        status={"VSOCKCID": 4242},
    ),
    "pci-on-root-complex": Case(
        domain={"devices": {"disks": [disk("root")], "interfaces": [NIC], "watchdog": {"name": "dog", "i6300esb": {}}}},
        spec={"volumes": [ROOT]},
        annotations=ON_ROOT | {"kubevirt.io/disablePCIHole64": "true"},
    ),
    "pci-large-guest": Case(
        domain={"memory": {"guest": "4Gi"}, "devices": {"disks": [disk("root")], "interfaces": [NIC]}},
        spec={"volumes": [ROOT]},
        annotations={"kubevirt.io/pci-interface-slot-count": "6"},
    ),
    "pci-without-hotplug": Case(
        domain={"devices": {"disks": [disk("root")], "interfaces": [NIC], "disableHotplug": True}},
        spec={"volumes": [ROOT]},
    ),
    "pci-by-hand": Case(
        domain={
            "devices": {
                "disks": [disk("root"), {"name": "a", "disk": {"bus": "virtio", "pciAddress": "0000:00:03.0"}}],
                "interfaces": [NIC | {"pciAddress": "0000:02:00.0"}, NIC | {"name": "second"}],
            }
        },
        spec={"volumes": [ROOT, *empty("a")]},
    ),
    "sound-ich9": Case(domain={"devices": {"sound": {"name": "noise"}}}),
    "bare": Case(
        domain={
            "devices": {
                "autoattachSerialConsole": False,
                "autoattachGraphicsDevice": False,
                "autoattachMemBalloon": False,
                "disableHotplug": True,
            }
        }
    ),
    "passt": Case(
        domain={
            "devices": {
                "networkInterfaceMultiqueue": True,
                "interfaces": [{"name": "default", "passtBinding": {}, "ports": [{"port": 80}]}],
            }
        },
        context={"attachments": {"default": Attachment("", "02:00:00:aa:bb:00", 1450)}},
    ),
    "binding-plugins": Case(
        domain={
            "devices": {
                "interfaces": [
                    {"name": "default", "binding": {"name": "flat"}},
                    {"name": "theirs", "binding": {"name": "sidecar"}},
                ],
            }
        },
        context={
            "attachments": {
                "default": Attachment("pod37a8eec1ce1", "02:00:00:aa:bb:00", 1450),
                "theirs": Attachment("", "02:00:00:aa:bb:01", 1450),
            }
        },
    ),
    "no-serial-log": Case(domain={"devices": {"logSerialConsole": False}}),
    "switched-off-by-the-cluster": Case(context={"serial_log": False, "free_page_reporting": False}),
    "serial-log-by-hand": Case(domain={"devices": {"logSerialConsole": True}}, context={"serial_log": False}),
    "transitional": Case(
        domain={"devices": {"useVirtioTransitional": True, "disks": [disk("a")], "interfaces": [NIC], "rng": {}}},
        spec={"volumes": empty("a")},
    ),
    "many-disks": Case(
        domain={"devices": {"disks": [disk(f"d{n}") for n in range(30)]}},
        spec={"volumes": empty(*(f"d{n}" for n in range(30)))},
    ),
}
