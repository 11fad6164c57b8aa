"""Tags of devices: which ones the guest is told of, and by which address."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.launcher.parts import Parts, make_parts, plain_vmi
from virt_launcher.convert.context import Attachment
from virt_launcher.disks.cloud_init import IsoPlan
from virt_launcher.disks.device_tags import devices
from virt_launcher.machine.manager import SyncOptions
from virt_launcher.process.children import Children

MAC = "02:00:00:00:00:01"
OPTIONS = SyncOptions(attachments={"n": Attachment("tap0", MAC)})
DRIVE = {"name": "ci", "cloudInitConfigDrive": {"userData": "#!/bin/sh\n"}}


def spec(**lists: Any) -> dict[str, Any]:
    return {"domain": {"memory": {"guest": "64Mi"}, "devices": lists}}


def told(xml: str, cells: tuple[int, ...] = (), pci: Path = Path("/nowhere"), **lists: Any) -> list[dict[str, Any]]:
    return [*devices(plain_vmi(**spec(**lists)), f"<domain><devices>{xml}</devices></domain>", cells, pci)]


def disk(address: str, bus: str = "virtio") -> str:
    return f'<disk><target dev="x" bus="{bus}"/><serial>S1</serial><alias name="ua-d"/><address {address}/></disk>'


@pytest.mark.parametrize(
    ("address", "bus", "seen"),
    [
        ('type="pci" domain="0x0000" bus="0x0a" slot="0x1f" function="0x1"', "virtio", ("pci", "0000:0a:1f.1")),
        ('type="drive" controller="1" bus="0" target="0" unit="5"', "scsi", ("scsi", "1:0:0:5")),
        ('type="drive" controller="0" bus="0" target="0" unit="1"', "sata", ("sata", "0:0:0:1")),
        ('type="usb" bus="0" port="2"', "usb", ("usb", "0:2")),
        ('type="ccw" cssid="0xfe" ssid="0x0" devno="0x000a"', "virtio", ("ccw", "fe.0.000a")),
    ],
)
def test_where_a_disk_sits(address: str, bus: str, seen: tuple[str, str]) -> None:
    [found] = told(disk(address, bus), disks=[{"name": "d", "tag": "data"}])
    assert found == {"type": "disk", "bus": seen[0], "address": seen[1], "serial": "S1", "tags": ["data"]}


def test_a_device_without_a_tag_is_not_told_of_nor_taken_for_its_namesake() -> None:
    xml = disk('type="pci" domain="0x0000" bus="0x01" slot="0x00" function="0x0"')
    assert told(xml, disks=[{"name": "d"}], interfaces=[{"name": "d", "tag": "net"}]) == []


HOST = (
    '<hostdev type="{kind}"><source><address domain="0x0000" bus="0x81" slot="0x01" function="0x0"/></source>'
    '<alias name="{alias}"/><address type="{bus}" domain="0x0000" bus="{place}" slot="0x00" function="0x0" port="1"/>'
    "</hostdev>"
)


def test_a_device_of_the_node_and_the_processors_near_it(tmp_path: Path) -> None:
    (tmp_path / "0000:81:01.0").mkdir()
    near = tmp_path / "0000:81:01.0/numa_node"
    near.write_text("1\n")
    gpu, xml = [{"name": "g", "tag": "fast"}], HOST.format(kind="pci", alias="ua-gpu-g", bus="pci", place="0x05")
    plain = {"type": "hostdev", "bus": "pci", "address": "0000:05:00.0", "tags": ["fast"]}
    assert told(xml, (0, 1, 1), tmp_path, gpus=gpu) == [plain | {"numaNode": 1, "alignedCPUs": [1, 2]}]
    assert told(xml, (), tmp_path, gpus=gpu) == [plain], "vCPUs that wander are near to nothing"
    near.write_text("-1\n")
    assert told(xml, (0, 1, 1), tmp_path, gpus=gpu) == [plain]


def test_usb_devices_that_belong_together() -> None:
    xml = "".join(
        HOST.format(kind="usb", alias=alias, bus="usb", place="0") for alias in ("ua-usb-host-k", "ua-usb-host-k-1")
    )
    found = told(xml, hostDevices=[{"name": "k", "tag": "keys"}])
    assert [(each["bus"], each["address"], each["tags"]) for each in found] == [("usb", "0:1", ["keys"])] * 2


def test_another_device_whose_name_ends_in_a_number_keeps_its_tag() -> None:
    xml = HOST.format(kind="usb", alias="ua-usb-host-k-1", bus="usb", place="0")
    assert told(xml, hostDevices=[{"name": "k", "tag": "keys"}, {"name": "k-1"}]) == []


@dataclass
class Builder:
    """Takes the plans of images instead of building them, and notes what libvirt had been asked by then."""

    parts: Parts
    plans: list[tuple[IsoPlan, list[str]]] = field(default_factory=list)

    def begin(self, plan: IsoPlan, _target: Path, _children: Children, _moment: int) -> Any:
        self.plans.append((plan, [*self.parts.hypervisor.calls]))
        return SimpleNamespace(finish=lambda: None)

    def metadata(self) -> dict[str, Any]:
        [(plan, _)] = self.plans
        found: dict[str, Any] = json.loads(plan.files["openstack/latest/meta_data.json"])
        return found


@pytest.mark.parametrize("role", ["active", "target"])
def test_the_image_has_them_on_both_sides_of_a_move(tmp_path: Path, role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = make_parts(tmp_path, role=role)
    monkeypatch.setattr("virt_launcher.disks.iso.begin", (builder := Builder(parts)).begin)
    card = {"name": "n", "bridge": {}, "tag": "uplink"}
    vmi = plain_vmi(**spec(disks=[{"name": "ci", "disk": {"bus": "virtio"}}], interfaces=[card]), volumes=[DRIVE])
    if role == "target":
        parts.manager.prepare_target(vmi, OPTIONS)
    else:
        parts.manager.sync(vmi, OPTIONS)
    nic = {"type": "nic", "bus": "pci", "address": "0000:01:00.0", "mac": MAC, "tags": ["uplink"]}
    found = builder.metadata()
    assert (found["hostname"], found["devices"]) == ("vm1", [nic])


def test_the_image_of_a_machine_without_tags_does_not_wait_for_the_definition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = make_parts(tmp_path)
    monkeypatch.setattr("virt_launcher.disks.iso.begin", (builder := Builder(parts)).begin)
    vmi = plain_vmi(**spec(disks=[{"name": "ci", "disk": {"bus": "virtio"}}]), volumes=[DRIVE])
    parts.manager.sync(vmi, OPTIONS)
    assert "devices" not in builder.metadata()
    [(_, asked)] = builder.plans
    assert "define" not in asked
    assert "define" in parts.hypervisor.calls
