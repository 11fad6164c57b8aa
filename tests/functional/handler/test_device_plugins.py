"""The device plugins against a kubelet: registration, health, restarts on either side, changes of the configuration."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import chdir as within
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from framework.fake_kubelet import FakeKubelet
from framework.waiting import eventually, no_leaked_threads, running

from tests.unit.launcher.cases import Case, context_of
from virt_core.apis import names
from virt_core.kube.configvalues import ClusterConfig
from virt_core.rpc.status import failure_of
from virt_core.runtime.clock import SystemClock
from virt_handler.node.devices import manager as managers
from virt_handler.node.devices.manager import DeviceManager
from virt_handler.node.devices.units import Host
from virt_launcher.convert.converter import convert
from virt_launcher.domain.devices import HostAddress

TUN, KVM, VHOST = (f"devices.kubevirt.io/{name}" for name in ("tun", "kvm", "vhost-net"))
VSOCK = "devices.kubevirt.io/vhost-vsock"
GPU = "example.com/gpu"
PERMITTED = {"pciHostDevices": [{"pciVendorSelector": "10de:1eb8", "resourceName": GPU}]}


class Rig:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.configuration = ClusterConfig(raw={"virtualMachineInstancesPerNode": 3})
        self.kubelet = FakeKubelet(root / "kubelet" / "device-plugins")
        self.readiness: list[bool] = []

    @contextmanager
    def manager(self) -> Iterator[DeviceManager]:
        directory, host = str(self.kubelet.directory), Host(str(self.root))
        manager = DeviceManager(directory, lambda: self.configuration, SystemClock(), host)
        manager.readiness_changed = lambda: self.readiness.append(manager.ready())
        with running(manager.run):
            yield manager

    def node(self, path: str) -> Path:
        node = self.root / path.lstrip("/")
        node.parent.mkdir(parents=True, exist_ok=True)
        node.symlink_to("/dev/null")
        return node

    def stick(self, port: str, bus: int, number: int) -> None:
        entry = self.root / "sys/bus/usb/devices" / port
        entry.mkdir(parents=True)
        for name, value in {"idVendor": "46f4", "idProduct": "0001", "busnum": bus, "devnum": number}.items():
            (entry / name).write_text(f"{value}\n")
        self.node(f"/dev/bus/usb/{bus:03}/{number:03}")

    def slice(self, uuid: str, group: int) -> None:
        card = self.root / "sys/devices/0000:65:00.0"
        kind = card / "mdev_supported_types/nvidia-222"
        kind.mkdir(parents=True, exist_ok=True)
        (kind / "name").write_text("GRID T4-1B\n")
        entry = card / uuid
        entry.mkdir()
        (entry / "mdev_type").symlink_to(kind)
        (entry / "iommu_group").symlink_to(f"../groups/{group}")
        devices = self.root / "sys/bus/mdev/devices"
        devices.mkdir(parents=True, exist_ok=True)
        (devices / uuid).symlink_to(entry)
        self.node(f"/dev/vfio/{group}")

    def gpu(self) -> None:
        entry = self.root / "sys/bus/pci/devices/0000:65:00.0"
        entry.mkdir(parents=True)
        for name, text in {"vendor": "0x10de", "device": "0x1eb8", "numa_node": "1"}.items():
            (entry / name).write_text(text)
        (entry / "driver").symlink_to("../drivers/vfio-pci")
        (entry / "iommu_group").symlink_to("../groups/12")
        for node in ("/dev/vfio/vfio", "/dev/vfio/12"):
            self.node(node)


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setattr(managers, "_BACKOFF_S", (0.05,))
    monkeypatch.setattr(managers, "CONNECT_WITHIN_S", 0.3)
    rig = Rig(tmp_path)
    with no_leaked_threads():
        rig.kubelet.start()
        yield rig
        rig.kubelet.stop()


def test_node_offers_what_it_has_and_nothing_else(rig: Rig) -> None:
    rig.node("/dev/net/tun")
    rig.node("/dev/vhost-net")
    with rig.manager() as manager:
        eventually(lambda: rig.kubelet.healthy(TUN) == ["tun0", "tun1", "tun2"])
        eventually(lambda: len(rig.kubelet.healthy(VHOST)) == 3)
        assert KVM not in rig.kubelet.registrations
        eventually(manager.ready)
        (device,) = rig.kubelet.allocate(TUN, "tun1").devices
        assert (device.host_path, device.container_path, device.permissions) == ("/dev/net/tun", "/dev/net/tun", "rw")
        options = rig.kubelet.options(TUN)
        assert not options.pre_start_required
        assert not options.get_preferred_allocation_available
    assert rig.readiness[0] is True
    eventually(lambda: not (rig.kubelet.directory / "kubevirt-tun.sock").exists())


def test_a_helpers_socket_is_a_mount_of_its_directory(rig: Rig) -> None:
    """Offered while the cluster allows it and somebody listens; a socket that is made anew is the same one."""
    path = rig.root / names.NODE_SOCKET_RESERVATIONS.lstrip("/")
    path.parent.mkdir(parents=True)
    resource = names.RESOURCE_RESERVATIONS

    def listen() -> None:
        with socket.socket(socket.AF_UNIX) as server, within(path.parent):
            server.bind(path.name)

    listen()
    rig.node("/dev/net/tun")
    with rig.manager() as manager:
        eventually(manager.ready)
        assert resource not in rig.kubelet.registrations
        rig.configuration = ClusterConfig(persistent_reservation=True, raw={"virtualMachineInstancesPerNode": 3})
        manager.wake()
        eventually(lambda: len(rig.kubelet.healthy(resource)) == 3)
        answer = rig.kubelet.allocate(resource, "pr-helper0")
        assert not answer.devices
        [mount] = answer.mounts
        assert (mount.host_path, mount.container_path) == (
            os.path.dirname(names.NODE_SOCKET_RESERVATIONS),
            os.path.dirname(names.SOCKET_RESERVATIONS),
        )
        assert mount.read_only
        path.unlink()
        eventually(lambda: not rig.kubelet.healthy(resource))
        with pytest.raises(grpc.RpcError, match="nobody listens"):
            rig.kubelet.allocate(resource, "pr-helper0")
        listen()
        eventually(lambda: len(rig.kubelet.healthy(resource)) == 3)
        assert manager.ready()


def test_device_vanishes_and_returns(rig: Rig) -> None:
    tun = rig.node("/dev/net/tun")
    with rig.manager():
        eventually(lambda: len(rig.kubelet.healthy(TUN)) == 3)
        tun.unlink()
        eventually(lambda: len(rig.kubelet.devices[TUN]) == 3 and not rig.kubelet.healthy(TUN))
        with pytest.raises(grpc.RpcError) as refused:
            rig.kubelet.allocate(TUN, "tun0")
        assert failure_of(refused.value).code is grpc.StatusCode.FAILED_PRECONDITION
        shutil.rmtree(tun.parent)
        rig.node("/dev/net/tun")
        eventually(lambda: len(rig.kubelet.healthy(TUN)) == 3)
    assert rig.kubelet.registrations == [TUN]


def test_device_that_comes_late_is_offered_then(rig: Rig) -> None:
    (rig.root / "dev").mkdir()
    with rig.manager() as manager:
        assert not manager.ready()
        rig.node("/dev/net/tun")
        eventually(lambda: len(rig.kubelet.healthy(TUN)) == 3)
        eventually(manager.ready)


def test_kubelet_restarts(rig: Rig) -> None:
    """It clears its directory, so the sockets are made anew as well."""
    rig.node("/dev/net/tun")
    with rig.manager() as manager:
        for count in range(1, 4):
            eventually(lambda count=count: rig.kubelet.registrations == [TUN] * count)
            eventually(lambda: len(rig.kubelet.healthy(TUN)) == 3)
            eventually(manager.ready)
            rig.kubelet.stop()
            eventually(lambda: not manager.ready())
            rig.kubelet.start()


def test_kubelet_comes_late_and_is_not_ready_at_once(rig: Rig) -> None:
    rig.kubelet.stop()
    shutil.rmtree(rig.kubelet.directory)
    rig.kubelet.directory.mkdir(parents=True)
    rig.node("/dev/net/tun")
    with rig.manager():
        rig.kubelet.refusals = 2
        rig.kubelet.start()
        eventually(lambda: len(rig.kubelet.healthy(TUN)) == 3)


def test_kubelet_that_forgot_us_is_told_again(rig: Rig) -> None:
    """Its stream to us broke, and nothing else tells that it will not come back by itself."""
    rig.node("/dev/net/tun")
    with rig.manager():
        eventually(lambda: len(rig.kubelet.healthy(TUN)) == 3)
        rig.kubelet._channels[TUN].close()
        eventually(lambda: rig.kubelet.registrations == [TUN, TUN])
        eventually(lambda: len(rig.kubelet.healthy(TUN)) == 3)


def test_restart_of_ours_takes_over(rig: Rig) -> None:
    rig.node("/dev/net/tun")
    for _ in range(2):
        with rig.manager():
            eventually(lambda: len(rig.kubelet.healthy(TUN)) == 3)
        eventually(lambda: not rig.kubelet.healthy(TUN))


def test_permitted_devices_follow_the_configuration(rig: Rig) -> None:
    rig.node("/dev/net/tun")
    rig.gpu()

    def configure(permitted: dict[str, Any], count: int = 3) -> None:
        raw = {"virtualMachineInstancesPerNode": count}
        rig.configuration = ClusterConfig(permitted_host_devices=permitted, raw=raw)
        manager.wake()

    with rig.manager() as manager:
        eventually(lambda: len(rig.kubelet.healthy(TUN)) == 3)
        configure(PERMITTED)
        eventually(lambda: rig.kubelet.healthy(GPU) == ["0000:65:00.0"])
        assert rig.kubelet.topology[GPU] == {"0000:65:00.0": [1]}
        given = rig.kubelet.allocate(GPU, "0000:65:00.0")
        assert [device.host_path for device in given.devices] == ["/dev/vfio/vfio", "/dev/vfio/12"]
        assert dict(given.envs) == {"PCI_RESOURCE_EXAMPLE_COM_GPU": "0000:65:00.0"}
        (rig.root / "dev/vfio/12").unlink()
        eventually(lambda: rig.kubelet.devices[GPU] == {"0000:65:00.0": "Unhealthy"})
        configure({"pciHostDevices": [PERMITTED["pciHostDevices"][0] | {"externalResourceProvider": True}]})
        eventually(lambda: rig.kubelet.devices[GPU] == {})
        eventually(lambda: not (rig.kubelet.directory / "kubevirt-example.com-gpu.sock").exists())
        configure({}, count=5)
        eventually(lambda: len(rig.kubelet.healthy(TUN)) == 5)


def test_gated_device_is_offered_while_its_gate_is_open(rig: Rig) -> None:
    rig.node("/dev/net/tun")
    rig.node("/dev/vhost-vsock")

    def gates(*names: str) -> None:
        rig.configuration = ClusterConfig(feature_gates=frozenset(names), raw={"virtualMachineInstancesPerNode": 3})
        manager.wake()

    with rig.manager() as manager:
        eventually(lambda: len(rig.kubelet.healthy(TUN)) == 3)
        assert VSOCK not in rig.kubelet.registrations
        gates("VSOCK")
        eventually(lambda: len(rig.kubelet.healthy(VSOCK)) == 3)
        gates()
        eventually(lambda: rig.kubelet.devices[VSOCK] == {})
        assert len(rig.kubelet.healthy(TUN)) == 3


def test_what_the_kubelet_is_given_becomes_the_guests_devices(rig: Rig) -> None:
    """From sysfs over the kubelet into the container's environment, and from there into the domain."""
    first, second = "b3a1c2d4-0000-4000-8000-000000000001", "b3a1c2d4-0000-4000-8000-000000000002"
    rig.gpu()
    rig.slice(first, 30)
    rig.slice(second, 31)
    for number, port in enumerate(("1-1", "1-2", "2-1", "2-2"), start=3):
        rig.stick(port, int(port[0]), number)
    selector = {"vendor": "46F4", "product": "0001"}
    permitted = PERMITTED | {
        "mediatedDevices": [{"mdevNameSelector": "GRID T4-1B", "resourceName": "example.com/slice"}],
        "usb": [{"resourceName": "example.com/pair", "selectors": [selector, selector]}],
    }
    rig.configuration = ClusterConfig(permitted_host_devices=permitted)
    environment: dict[str, str] = {}
    with rig.manager():
        for resource in (GPU, "example.com/slice", "example.com/pair"):
            eventually(lambda resource=resource: rig.kubelet.healthy(resource))
            given = rig.kubelet.allocate(resource, *rig.kubelet.healthy(resource))
            environment |= dict(given.envs)
    asked = {
        "gpus": [{"name": "whole", "deviceName": GPU}, {"name": "part", "deviceName": "example.com/slice"}],
        "hostDevices": [
            {"name": "other", "deviceName": "example.com/slice"},
            {"name": "one", "deviceName": "example.com/pair"},
            {"name": "two", "deviceName": "example.com/pair"},
        ],
    }
    domain = convert(context_of(Case(domain={"devices": asked}, context={"environment": environment})))
    found = {device.alias: device.source for device in domain.devices.hostdevs if device.source is not None}
    assert found["ua-gpu-whole"] == HostAddress(domain="0x0000", bus="0x65", slot="0x00", function="0x0")
    assert {found["ua-gpu-part"].uuid, found["ua-hostdevice-other"].uuid} == {first, second}
    pairs = {name: (found[f"ua-usb-host-{name}"], found[f"ua-usb-host-{name}-1"]) for name in ("one", "two")}
    assert [(each.bus, each.device) for pair in pairs.values() for each in pair] == [
        ("1", "3"),
        ("1", "4"),
        ("2", "5"),
        ("2", "6"),
    ]
