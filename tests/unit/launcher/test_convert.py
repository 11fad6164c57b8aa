"""What the golden files cannot show: refusals with the path of the field, and the rules behind the numbers."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.unit.launcher.cases import FIRMWARE_UUID, ON_ROOT, ROOT, TWO_CELLS, Case, context_of, disk, empty
from virt_launcher.convert.converter import convert
from virt_launcher.convert.cpu import topology_of
from virt_launcher.convert.disks import letters
from virt_launcher.convert.ports import bus_of
from virt_launcher.disks.sources import DiskSource
from virt_launcher.errors import InvalidVMIError, WrongStateError

D = "spec.domain"
V = D + ".devices"


def one_disk(**spec: Any) -> Case:
    return Case(domain={"devices": {"disks": [{"name": "a"} | spec]}}, spec={"volumes": empty("a")})


def pinned(cpus: int, **cpu: Any) -> Case:
    return Case(domain={"cpu": {"dedicatedCpuPlacement": True, **cpu}}, context={"host_cpus": TWO_CELLS[:cpus]})


HUGE = {"guest": "128Mi", "hugepages": {"pageSize": "2Mi"}}


def numa(cpus: int, guest: str, pages: str | None = "2Mi", most: str | None = None, **cpu: Any) -> Case:
    """A guest that sees the cells of its node, whose CPUs are taken in their order."""
    huge = {"hugepages": {"pageSize": pages}} if pages else {}
    case = pinned(cpus, **{"sockets": cpus, "numa": {"guestMappingPassthrough": {}}} | cpu)
    return dataclasses.replace(case, domain=case.domain | {"memory": {"guest": guest, "maxGuest": most, **huge}})


def arm64(domain: dict[str, Any], name: str = "arm64") -> Case:
    return Case(domain=domain, spec={"architecture": name}, context={"node_architecture": name})


def node_devices(given: dict[str, str] | None = None, **devices: Any) -> Case:
    return Case(domain={"devices": devices}, context={"environment": given or {}})


REFUSED: dict[str, tuple[Case, str]] = {
    "acpi-index": (
        Case(domain={"devices": {"interfaces": [{"name": "n", "bridge": {}, "acpiIndex": -1}]}}),
        f"{V}.interfaces[0].acpiIndex",
    ),
    "architecture": (Case(spec={"architecture": "arm64"}), "spec.architecture"),
    "unknown-architecture": (
        Case(spec={"architecture": "vax"}, context={"any_architecture": True}),
        "spec.architecture",
    ),
    "pc-on-arm64": (Case(context={"node_architecture": "arm64"}), "spec.architecture"),
    "watchdog-on-arm64": (
        arm64({"devices": {"watchdog": {"name": "w", "i6300esb": {}}}}),
        f"{V}.watchdog",
    ),
    "screen-on-arm64": (arm64({"devices": {"video": {"type": "vga"}}}), f"{V}.video.type"),
    "panic-on-arm64": (arm64({"devices": {"panicDevices": [{"model": "isa"}]}}), f"{V}.panicDevices[0].model"),
    "panic-on-s390x": (arm64({"devices": {"panicDevices": [{}]}}, "s390x"), f"{V}.panicDevices[0].model"),
    "uefi-on-s390x": (arm64({"firmware": {"bootloader": {"efi": {}}}}, "s390x"), f"{D}.firmware.bootloader.efi"),
    "negative-memory": (Case(domain={"memory": {"guest": "-1Mi"}}), f"{D}.memory.guest"),
    "no-memory": (Case(domain={"memory": None}), f"{D}.memory.guest"),
    "odd-memory": (Case(domain={"memory": {"guest": "lots"}}), f"{D}.memory.guest"),
    "hugepages": (
        Case(domain={"memory": {"guest": "3Mi", "hugepages": {"pageSize": "2Mi"}}}),
        f"{D}.memory.hugepages.pageSize",
    ),
    "uuid": (Case(domain={"firmware": {"uuid": "x"}}), f"{D}.firmware.uuid"),
    "cpu-request": (Case(domain={"resources": {"requests": {"cpu": "many"}}}), f"{D}.resources.requests.cpu"),
    "too-few-cpus": (pinned(2, cores=3), f"{D}.cpu.dedicatedCpuPlacement"),
    "no-cpu-for-the-emulator": (pinned(2, cores=2, isolateEmulatorThread=True), f"{D}.cpu.dedicatedCpuPlacement"),
    "cpus-that-others-have": (pinned(3, cores=2), f"{D}.cpu.dedicatedCpuPlacement"),
    "numa-on-shared-cpus": (
        Case(domain={"cpu": {"numa": {"guestMappingPassthrough": {}}}, "memory": HUGE}),
        f"{D}.cpu.numa.guestMappingPassthrough",
    ),
    "numa-in-small-pages": (numa(2, "128Mi", None), f"{D}.cpu.numa.guestMappingPassthrough"),
    "numa-with-a-page-too-few": (numa(6, "2Mi"), f"{D}.memory.hugepages.pageSize"),
    "numa-with-a-core-in-two-cells": (
        dataclasses.replace(
            numa(2, "128Mi", sockets=1, threads=2), context={"host_cpus": (TWO_CELLS[0], TWO_CELLS[4])}
        ),
        f"{D}.cpu.numa.guestMappingPassthrough",
    ),
    "realtime-without-cells": (pinned(2, cores=2, realtime={}), f"{D}.cpu.realtime"),
    "realtime-of-an-odd-mask": (numa(2, "128Mi", realtime={"mask": "all"}), f"{D}.cpu.realtime.mask"),
    "numa-that-grows": (numa(2, "128Mi", most="256Mi"), f"{D}.memory.maxGuest"),
    "gpu-without-resource": (node_devices(gpus=[{"name": "g"}]), f"{V}.gpus[0].deviceName"),
    "gpu-not-given": (node_devices(gpus=[{"name": "g", "deviceName": "a/b"}]), f"{V}.gpus[0].deviceName"),
    "one-given-for-two": (
        node_devices(
            {"PCI_RESOURCE_A_B": "0000:01:00.0"},
            gpus=[{"name": "g", "deviceName": "a/b"}],
            hostDevices=[{"name": "h", "deviceName": "a/b"}],
        ),
        f"{V}.hostDevices[0].deviceName",
    ),
    "odd-pci-address": (
        node_devices({"PCI_RESOURCE_A_B": "1:0"}, gpus=[{"name": "g", "deviceName": "a/b"}]),
        f"{V}.gpus[0].deviceName",
    ),
    "odd-mediated-device": (
        node_devices({"MDEV_PCI_RESOURCE_A_B": "x"}, hostDevices=[{"name": "h", "deviceName": "a/b"}]),
        f"{V}.hostDevices[0].deviceName",
    ),
    "odd-usb-device": (
        node_devices({"USB_RESOURCE_A_B": "1"}, hostDevices=[{"name": "h", "deviceName": "a/b"}]),
        f"{V}.hostDevices[0].deviceName",
    ),
    "usb-not-for-all": (
        node_devices({"USB_RESOURCE_A_B": "1:2"}, hostDevices=[{"name": n, "deviceName": "a/b"} for n in "gh"]),
        f"{V}.hostDevices[0].deviceName",
    ),
    "devices-of-one-name": (node_devices(gpus=[{"name": "g", "deviceName": "a/b"}] * 2), f"{V}.gpus[1].name"),
    "display-without-screen": (
        node_devices(
            {"MDEV_PCI_RESOURCE_A_B": FIRMWARE_UUID},
            gpus=[{"name": "g", "deviceName": "a/b", "virtualGPUOptions": {"display": {}}}],
            autoattachGraphicsDevice=False,
        ),
        f"{V}.gpus[0].virtualGPUOptions.display",
    ),
    "reboot": (Case(domain={"rebootPolicy": "Maybe"}), f"{D}.rebootPolicy"),
    "tlbflush": (
        Case(domain={"features": {"hyperv": {"tlbflush": {"direct": {}}}}}),
        f"{D}.features.hyperv.tlbflush.direct",
    ),
    "pvpanic": (Case(domain={"devices": {"panicDevices": [{"model": "pvpanic"}]}}), f"{V}.panicDevices[0].model"),
    "no-volume": (Case(domain={"devices": {"disks": [disk("x")]}}), f"{V}.disks[0].name"),
    "bus": (one_disk(disk={"bus": "ide"}), f"{V}.disks[0].disk.bus"),
    "cdrom-bus": (one_disk(cdrom={"bus": "floppy"}), f"{V}.disks[0].cdrom.bus"),
    "lun": (one_disk(lun={"bus": "scsi"}), f"{V}.disks[0].lun"),
    "shareable": (one_disk(shareable=True), f"{V}.disks[0].shareable"),
    "granularity": (
        one_disk(blockSize={"custom": {"logical": 512, "physical": 512, "discardGranularity": 512}}),
        f"{V}.disks[0].blockSize.custom.discardGranularity",
    ),
    "tracking": (one_disk(changedBlockTracking=True), f"{V}.disks[0].changedBlockTracking"),
    "pci-address": (one_disk(disk={"bus": "virtio", "pciAddress": "7"}), f"{V}.disks[0].disk.pciAddress"),
    "iothreads": (Case(domain={"ioThreadsPolicy": "some"}), f"{D}.ioThreadsPolicy"),
    "pool-size": (Case(domain={"ioThreadsPolicy": "supplementalPool"}), f"{D}.ioThreads.supplementalPoolThreadCount"),
    "nic-model": (
        Case(domain={"devices": {"interfaces": [{"name": "n", "bridge": {}, "model": "ne1000"}]}}),
        f"{V}.interfaces[0].model",
    ),
    "nic-binding": (Case(domain={"devices": {"interfaces": [{"name": "n"}]}}), f"{V}.interfaces[0]"),
    "input-type": (Case(domain={"devices": {"inputs": [{"name": "i", "type": "mouse"}]}}), f"{V}.inputs[0].type"),
    "input-bus": (
        Case(domain={"devices": {"inputs": [{"name": "i", "type": "tablet", "bus": "ps2"}]}}),
        f"{V}.inputs[0].bus",
    ),
    "watchdog": (Case(domain={"devices": {"watchdog": {"name": "w", "diag288": {}}}}), f"{V}.watchdog"),
    "sound": (Case(domain={"devices": {"sound": {"name": "s", "model": "gus"}}}), f"{V}.sound.model"),
    "video": (Case(domain={"devices": {"video": {"type": "qxl"}}}), f"{V}.video.type"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_the_path_of_the_field(name: str) -> None:
    case, path = REFUSED[name]
    with pytest.raises(InvalidVMIError) as caught:
        convert(context_of(case))
    assert caught.value.field == path
    assert str(caught.value).startswith(f"{path}: ")


def test_missing_uefi_names_what_was_looked_for_and_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("virt_launcher.convert.firmware.Ovmf.present", property(lambda self: False))
    with pytest.raises(InvalidVMIError, match=r"bootloader\.efi: .*secure boot.*OVMF_CODE.*package is ovmf"):
        convert(context_of(Case(domain={"firmware": {"bootloader": {"efi": {}}}})))


@pytest.mark.parametrize(("program", "package"), [("swtpm", "swtpm"), ("swtpm_setup", "swtpm-tools")])
def test_missing_tpm_program_names_its_package(monkeypatch: pytest.MonkeyPatch, program: str, package: str) -> None:
    present = {"swtpm", "swtpm_setup"} - {program}
    monkeypatch.setattr(
        "virt_launcher.convert.devices.shutil.which", lambda name, path: name if name in present else None
    )
    with pytest.raises(InvalidVMIError, match=rf"devices\.tpm: there is no {program} .*package is {package}$"):
        convert(context_of(Case(domain={"devices": {"tpm": {}}})))


def test_missing_tap_is_not_the_users_fault() -> None:
    case = Case(domain={"devices": {"interfaces": [{"name": "n", "bridge": {}}]}}, context={"attachments": {}})
    with pytest.raises(WrongStateError, match="no TAP device"):
        convert(context_of(case))


def test_cache_none_needs_direct_io() -> None:
    case = Case(
        domain={"devices": {"disks": [disk("a", cache="none")]}},
        context={"sources": {"a": DiskSource("/a", "raw", None, False)}},
    )
    with pytest.raises(InvalidVMIError, match=r"disks\[0\]\.cache: .*direct IO"):
        convert(context_of(case))


@pytest.mark.parametrize(
    ("cpu", "resources", "expected"),
    [
        ({}, {}, (1, 1, 1, 1)),
        ({}, {"limits": {"cpu": "3"}, "requests": {"cpu": "1"}}, (3, 1, 1, 3)),
        ({}, {"requests": {"cpu": "100m"}}, (1, 1, 1, 1)),
        ({"cores": 2}, {"requests": {"cpu": "8"}}, (1, 2, 1, 1)),
        ({"sockets": 2, "maxSockets": 8}, {}, (2, 1, 1, 8)),
        ({"sockets": 4, "maxSockets": 2}, {}, (4, 1, 1, 4)),
    ],
)
def test_topology(cpu: dict[str, Any], resources: dict[str, Any], expected: tuple[int, ...]) -> None:
    topology = topology_of(context_of(Case(domain={"cpu": cpu, "resources": resources})))
    assert (topology.sockets, topology.cores, topology.threads, topology.max_sockets) == expected


def test_plugged_sockets_can_be_taken_out_but_not_the_first() -> None:
    domain = convert(context_of(Case(domain={"cpu": {"sockets": 2, "cores": 2, "maxSockets": 3}})))
    assert [(v.enabled, v.hotpluggable) for v in domain.vcpus] == [
        *[(True, False)] * 2,
        *[(True, True)] * 2,
        *[(False, True)] * 2,
    ]


def test_never_the_hosts_processor_under_emulation() -> None:
    for model in ("", "host-model", "host-passthrough"):
        domain = convert(context_of(Case(domain={"cpu": {"model": model}})))
        assert domain.cpu is not None
        assert domain.cpu.mode == "maximum"


def test_letters() -> None:
    assert [letters(n) for n in (0, 25, 26, 51, 52, 701, 702)] == ["a", "z", "aa", "az", "ba", "zz", "aaa"]


def test_devices_beyond_the_root_complex_are_left_to_libvirt() -> None:
    names = [f"d{n}" for n in range(40)]
    devices = {"disks": [disk(n) for n in names]}
    case = Case(domain={"devices": devices}, spec={"volumes": empty(*names)}, annotations=ON_ROOT)
    slots = [d.address.slot for d in convert(context_of(case)).devices.disks if d.address is not None]
    assert len(slots) == len(set(slots)) < 40


def ports(case: Case) -> tuple[list[int], int]:
    """The buses of the virtio disks, and how many ports there are."""
    devices = convert(context_of(case)).devices
    count = sum(1 for controller in devices.controllers if controller.model == "pcie-root-port")
    return [bus_of(disk.address) for disk in devices.disks if disk.address is not None], count


@pytest.mark.parametrize(
    ("disks", "memory", "count"),
    [
        (0, "64Mi", 8),
        (1, "2Gi", 8),
        (1, "2049Mi", 16),
        (5, "64Mi", 11),
        (7, "4Gi", 16),
        (26, "4Gi", 31),
        (40, "4Gi", 43),
    ],
)
def test_free_ports(disks: int, memory: str, count: int) -> None:
    """Beside the disks: the port kept for SCSI, the serial devices, the balloon."""
    names = [f"d{n}" for n in range(disks)]
    domain = {"memory": {"guest": memory}, "devices": {"disks": [disk(n) for n in names]}}
    buses, found = ports(Case(domain=domain, spec={"volumes": empty(*names)}))
    assert (buses, found) == ([*range(3, disks + 3)], count)


@pytest.mark.parametrize("text", ["many", "-1", "32", "1e1", "٣", ""])
def test_a_number_of_ports_that_is_none(text: str) -> None:
    case = Case(annotations={"kubevirt.io/pci-interface-slot-count": text})
    with pytest.raises(InvalidVMIError, match="pci-interface-slot-count") as failure:
        convert(context_of(case))
    assert failure.value.field == "metadata.annotations[kubevirt.io/pci-interface-slot-count]"


def test_a_slot_that_the_user_took_is_not_given_away() -> None:
    body = {"disks": [disk("a"), {"name": "b", "disk": {"bus": "virtio", "pciAddress": "0000:00:03.0"}}]}
    domain = convert(context_of(Case(domain={"devices": body}, spec={"volumes": empty("a", "b")})))
    assert [d.address.slot for d in domain.devices.disks if d.address] != ["0x03", "0x03"]


def test_disks_keep_the_order_of_the_manifest() -> None:
    devices = {"disks": [disk("root", "sata"), disk("a"), disk("b", "scsi")]}
    domain = convert(context_of(Case(domain={"devices": devices}, spec={"volumes": [ROOT, *empty("a", "b")]})))
    assert [d.target for d in domain.devices.disks] == ["sda", "vda", "sdb"]


@pytest.mark.parametrize(
    ("domain", "context"),
    [
        ({"cpu": {"features": [{"name": "aes"}]}}, {}),
        ({"cpu": {"features": [{"name": "aes", "policy": "disable"}]}}, {}),
        ({"cpu": {"model": "Nehalem"}}, {}),
        ({"cpu": {"model": "Nehalem"}}, {"kvm": True}),
        ({"cpu": {"model": "host-model"}}, {"kvm": True}),
        ({"cpu": {"model": "host-passthrough", "features": [{"name": "invtsc"}]}}, {"kvm": True}),
        ({"features": {"hyperv": {"vpindex": {}}}}, {}),
        ({"features": {"hypervPassthrough": {}}}, {}),
        ({"features": {"pvspinlock": {}}}, {}),
        ({}, {"libvirt_version": 11_008_000}),
    ],
)
def test_a_processor_that_libvirt_compares_is_read_back(domain: dict[str, Any], context: dict[str, Any]) -> None:
    assert convert(context_of(Case(domain=domain, context=context))).without_capabilities == []


@pytest.mark.parametrize(
    ("domain", "context"),
    [
        ({}, {}),
        ({"cpu": {"model": "host-model"}}, {"libvirt_version": 11_003_000}),
        ({"cpu": {"model": "host-passthrough"}}, {"kvm": True}),
        ({"features": {"acpi": {}, "kvm": {"hidden": True}}}, {}),
    ],
)
def test_a_processor_that_is_whatever_there_is_is_not_read_back(
    domain: dict[str, Any], context: dict[str, Any]
) -> None:
    found = convert(context_of(Case(domain=domain, context=context))).without_capabilities
    assert [capability.name for capability in found] == ["cpu-unavailable-features"]


def test_what_was_not_given_is_named_with_where_it_should_stand() -> None:
    case = node_devices({"PCI_RESOURCE_OTHER": "0000:01:00.0"}, gpus=[{"name": "g", "deviceName": "example.com/t4"}])
    with pytest.raises(InvalidVMIError, match=r"example\.com/t4: .* PCI_RESOURCE_EXAMPLE_COM_T4 or MDEV_PCI_RESOURCE_"):
        convert(context_of(case))


def test_usb_devices_that_belong_together_go_to_one_device_of_the_guest() -> None:
    wished = [{"name": name, "deviceName": "a/b"} for name in ("x", "y")]
    domain = convert(context_of(node_devices({"USB_RESOURCE_A_B": "1:2,1:3,2:4,2:5"}, hostDevices=wished)))
    found = [(d.alias, d.source.bus, d.source.device) for d in domain.devices.hostdevs if d.source is not None]
    assert found == [
        ("ua-usb-host-x", "1", "2"),
        ("ua-usb-host-x-1", "1", "3"),
        ("ua-usb-host-y", "2", "4"),
        ("ua-usb-host-y-1", "2", "5"),
    ]


def test_without_a_screen_no_virtual_gpu_has_one() -> None:
    given = {"MDEV_PCI_RESOURCE_A_B": FIRMWARE_UUID}
    case = node_devices(given, gpus=[{"name": "g", "deviceName": "a/b"}], autoattachGraphicsDevice=False)
    assert [(d.display, d.ramfb) for d in convert(context_of(case)).devices.hostdevs] == [(None, None)]
