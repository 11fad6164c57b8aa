"""Which units a node offers for a resource, from a made-up sysfs and device directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from virt_core.kube.configvalues import ClusterConfig
from virt_handler.node.devices.permitted import permitted_pools
from virt_handler.node.devices.plugin import PluginServicer, socket_name
from virt_handler.node.devices.shared import SharedDevice, machines_per_node
from virt_handler.node.devices.sockets import Place, quotes
from virt_handler.node.devices.units import Host, Pool, UnitGoneError
from virt_protos.deviceplugin.v1beta1 import deviceplugin_pb2 as pb

GPU, AUDIO = "0000:65:00.0", "0000:65:00.1"


class Machine:
    """A root directory with what a kernel would show. Every device node is a link to /dev/null."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.host = Host(str(root))

    def node(self, path: str) -> Path:
        node = self.root / path.lstrip("/")
        node.parent.mkdir(parents=True, exist_ok=True)
        node.symlink_to("/dev/null")
        return node

    def pci(self, address: str, ids: str, group: int, driver: str = "vfio-pci", numa: int = -1) -> Path:
        entry = self._entry(f"sys/bus/pci/devices/{address}")
        vendor, product = ids.split(":")
        for name, text in {"vendor": f"0x{vendor}", "device": f"0x{product}", "numa_node": str(numa)}.items():
            (entry / name).write_text(text + "\n")
        (entry / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
        (entry / "iommu_group").symlink_to(f"../../../kernel/iommu_groups/{group}")
        return entry

    def mediated(self, uuid: str, type_id: str, name: str, group: int) -> None:
        parent = self._entry(f"sys/devices/{GPU}")
        (parent / "numa_node").write_text("1\n")
        kind = self._entry(f"sys/devices/{GPU}/mdev_supported_types/{type_id}")
        if name:
            (kind / "name").write_text(f"{name}\n")
        entry = self._entry(f"sys/devices/{GPU}/{uuid}")
        (entry / "mdev_type").symlink_to(kind)
        (entry / "iommu_group").symlink_to(f"../../kernel/iommu_groups/{group}")
        devices = self._entry("sys/bus/mdev/devices")
        (devices / uuid).symlink_to(entry)

    def usb(self, port: str, ids: str, bus: int, number: int) -> None:
        entry = self._entry(f"sys/bus/usb/devices/{port}")
        vendor, product = ids.split(":")
        for name, text in {"idVendor": vendor, "idProduct": product, "busnum": str(bus), "devnum": str(number)}.items():
            (entry / name).write_text(text + "\n")
        self._entry(f"sys/bus/usb/devices/{port}:1.0")
        self.node(f"/dev/bus/usb/{bus:03}/{number:03}")

    def _entry(self, path: str) -> Path:
        entry = self.root / path
        entry.mkdir(parents=True, exist_ok=True)
        return entry


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def pools(machine: Machine, **permitted: list[dict[str, Any]]) -> dict[str, Pool]:
    return permitted_pools(ClusterConfig(permitted_host_devices=permitted), machine.host)


def pci(selector: str, resource: str = "example.com/gpu", **more: Any) -> dict[str, Any]:
    return {"pciVendorSelector": selector, "resourceName": resource, **more}


def test_shared_device_is_one_node_for_all(machine: Machine) -> None:
    pool = SharedDevice("devices.kubevirt.io/tun", "/dev/net/tun", machine.host, lambda: 3)
    assert not pool.usable
    assert [unit.healthy for unit in pool.look()] == [False] * 3
    with pytest.raises(UnitGoneError, match="/dev/net/tun"):
        pool.allot(["tun0"])
    machine.node("/dev/net/tun")
    assert [(unit.id, unit.healthy) for unit in pool.look()] == [("tun0", True), ("tun1", True), ("tun2", True)]
    assert pool.allot(["tun1", "tun2"]).nodes == ("/dev/net/tun",)


def test_kvm_needs_more_than_its_device(machine: Machine) -> None:
    machine.node("/dev/kvm")
    assert not SharedDevice("devices.kubevirt.io/kvm", "/dev/kvm", machine.host, lambda: 1, lambda: False).usable
    assert SharedDevice("devices.kubevirt.io/kvm", "/dev/kvm", machine.host, lambda: 1, lambda: True).usable


def test_file_in_a_devices_place_is_no_device(machine: Machine) -> None:
    (machine.root / "dev").mkdir()
    (machine.root / "dev" / "kvm").write_text("")
    assert not SharedDevice("devices.kubevirt.io/kvm", "/dev/kvm", machine.host, lambda: 1).usable


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/var/run/tdx-qgs/qgs.socket", Place("/run/tdx-qgs/qgs.socket", "/var/run/tdx-qgs/qgs.socket")),
        ("/run/tdx/qgs.socket", Place("/run/tdx/qgs.socket", "/run/tdx/qgs.socket")),
        ("", None),
        ("relative/tdx/qgs.socket", None),
        ("/run/../etc/passwd", None),
        # The directory is handed out whole.
        ("/qgs.socket", None),
        ("/run/qgs.socket", None),
        ("/var/run/qgs.socket", None),
        (7, None),
    ],
)
def test_the_quote_service_is_reached_by_a_directory_of_its_own(path: object, place: Place | None) -> None:
    raw = {"confidentialCompute": {"tdx": {"attestation": {"qgsSocketPath": path}}}}
    assert quotes(ClusterConfig(raw=raw, feature_gates=frozenset({"WorkloadEncryptionTDX"}))) == place
    assert quotes(ClusterConfig(raw=raw)) is None


@pytest.mark.parametrize(("wish", "count"), [(None, 1000), (25, 25), (0, 1000), ("7", 1000), (10**9, 10_000)])
def test_number_of_machines_is_the_clusters(wish: object, count: int) -> None:
    assert machines_per_node({"virtualMachineInstancesPerNode": wish}) == count


def test_pci_functions_go_by_their_iommu_group(machine: Machine) -> None:
    machine.pci(GPU, "10de:1eb8", 12, numa=1)
    machine.pci(AUDIO, "10de:1eb8", 12)
    machine.pci("0000:66:00.0", "10de:1eb8", 13, driver="nvidia")
    machine.pci("0000:67:00.0", "8086:1572", 14)
    for node in ("/dev/vfio/vfio", "/dev/vfio/12", "/dev/vfio/13", "/dev/vfio/14"):
        machine.node(node)
    pool = pools(machine, pciHostDevices=[pci("10DE:1EB8")])["example.com/gpu"]
    (unit,) = pool.look()
    assert (unit.id, unit.healthy, unit.numa) == (GPU, True, 1)
    given = pool.allot([GPU])
    assert given.nodes == ("/dev/vfio/vfio", "/dev/vfio/12")
    assert given.env == {"PCI_RESOURCE_EXAMPLE_COM_GPU": GPU}


def test_device_that_vanishes_is_unhealthy_until_it_returns(machine: Machine) -> None:
    machine.pci(GPU, "10de:1eb8", 12)
    machine.node("/dev/vfio/vfio")
    group = machine.node("/dev/vfio/12")
    pool = pools(machine, pciHostDevices=[pci("10de:1eb8")])["example.com/gpu"]
    assert [unit.healthy for unit in pool.look()] == [True]
    group.unlink()
    assert [unit.healthy for unit in pool.look()] == [False]
    with pytest.raises(UnitGoneError, match=GPU):
        pool.allot([GPU])
    entry = machine.root / f"sys/bus/pci/devices/{GPU}"
    entry.rename(machine.root / "unplugged")
    assert [(unit.id, unit.healthy) for unit in pool.look()] == [(GPU, False)]
    (machine.root / "unplugged").rename(entry)
    machine.node("/dev/vfio/12")
    assert [unit.healthy for unit in pool.look()] == [True]
    with pytest.raises(UnitGoneError, match="0000:99"):
        pool.allot(["0000:99:00.0"])


def test_what_another_plugin_offers_is_not_ours(machine: Machine) -> None:
    external: dict[str, Any] = {"externalResourceProvider": True}
    found = pools(
        machine,
        pciHostDevices=[pci("10de:1eb8", **external)],
        mediatedDevices=[{"mdevNameSelector": "X", "resourceName": "example.com/m", **external}],
        usb=[{"resourceName": "example.com/u", "selectors": [{"vendor": "1", "product": "2"}], **external}],
    )
    assert found == {}


def test_two_selectors_of_one_resource_are_one_pool(machine: Machine) -> None:
    machine.pci(GPU, "10de:1eb8", 12)
    machine.pci("0000:67:00.0", "10de:1eb9", 14)
    found = pools(machine, pciHostDevices=[pci("10de:1eb8"), pci("10de:1eb9")])
    assert [unit.id for unit in found["example.com/gpu"].look()] == [GPU, "0000:67:00.0"]


def test_our_own_resources_can_not_be_taken_over(machine: Machine) -> None:
    assert pools(machine, pciHostDevices=[pci("10de:1eb8", "devices.kubevirt.io/kvm")]) == {}


def test_mediated_devices_go_by_the_name_of_their_type(machine: Machine) -> None:
    machine.mediated("u-1", "nvidia-222", "GRID T4-1Q", 20)
    machine.mediated("u-2", "i915-GVTg_V5_8", "", 21)
    for node in ("/dev/vfio/vfio", "/dev/vfio/20", "/dev/vfio/21"):
        machine.node(node)
    types = [{"mdevNameSelector": "GRID T4-1Q", "resourceName": "example.com/t4"}]
    types.append({"mdevNameSelector": "i915-GVTg_V5_8", "resourceName": "example.com/i915"})
    found = pools(machine, mediatedDevices=types)
    assert [(unit.id, unit.numa) for unit in found["example.com/t4"].look()] == [("u-1", 1)]
    given = found["example.com/i915"].allot(["u-2"])
    assert given.nodes == ("/dev/vfio/vfio", "/dev/vfio/21")
    assert given.env == {"MDEV_PCI_RESOURCE_EXAMPLE_COM_I915": "u-2"}


def test_usb_devices_that_belong_together(machine: Machine) -> None:
    for port, ids, number in [("1-1", "46f4:0001", 2), ("1-2", "46f4:0002", 3), ("1-3", "46f4:0001", 4)]:
        machine.usb(port, ids, 1, number)
    selectors = [{"vendor": "46f4", "product": "0001"}, {"vendor": "46F4", "product": "2"}]
    pool = pools(machine, usb=[{"resourceName": "example.com/kit", "selectors": selectors}])["example.com/kit"]
    assert [unit.id for unit in pool.look()] == ["1-1,1-2"]
    given = pool.allot(["1-1,1-2"])
    assert given.nodes == ("/dev/bus/usb/001/002", "/dev/bus/usb/001/003")
    assert given.env == {"USB_RESOURCE_EXAMPLE_COM_KIT": "1:2,1:3"}


def test_names_of_sockets() -> None:
    assert socket_name("devices.kubevirt.io/vhost-net") == "kubevirt-vhost-net.sock"
    assert socket_name("example.com/kvm") == "kubevirt-example.com-kvm.sock"


def test_preferred_allocation_holds_to_what_must_be(machine: Machine) -> None:
    servicer = PluginServicer(SharedDevice("devices.kubevirt.io/tun", "/dev/net/tun", machine.host, lambda: 3), list)
    request = pb.PreferredAllocationRequest()
    request.container_requests.add(
        available_device_ids=["tun2", "tun0", "tun1"], must_include_device_ids=["tun2"], allocation_size=2
    )
    context: Any = None
    (answer,) = servicer.GetPreferredAllocation(request, context).container_responses
    assert answer.device_ids == ["tun2", "tun0"]
