"""The side that a machine moves to: what it makes ready, what it refuses, and how its domain differs."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from msgspec import structs

from tests.unit.launcher.cases import CASES, UID, context_of
from tests.unit.launcher.parts import Parts, make_parts
from tests.unit.launcher.test_golden import GOLDEN, SCHEMA
from virt_core.apis import topology, travel
from virt_core.apis.base import from_plain
from virt_core.apis.owncpus import is_dedicated, sees_cells
from virt_core.apis.topology import Cpu
from virt_core.apis.vmi import VirtualMachineInstance
from virt_launcher.convert import firmware
from virt_launcher.convert.context import Context
from virt_launcher.convert.converter import convert
from virt_launcher.convert.cpuplan import HostCpu
from virt_launcher.disks.checksums import checksum
from virt_launcher.disks.held import Identity
from virt_launcher.domain.domain import Domain, from_xml, to_xml
from virt_launcher.errors import InvalidVMIError, WrongStateError
from virt_launcher.machine.manager import SyncOptions
from virt_launcher.machine.state import AgentView
from virt_launcher.moves.destination import images_there, rewritten
from virt_launcher.moves.pins import pins_there
from virt_launcher.moves.plan import copied_disks

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _image_with_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firmware, "is_there", lambda _path: True)
    monkeypatch.setattr("virt_launcher.convert.devices.shutil.which", lambda *_, **__: "/usr/bin/swtpm")


# The domain there


def elsewhere(context: Context) -> Context:
    """The other Pod has other CPUs, as many; its handler has told which."""
    cpus = [Cpu(cell=c.cell, core=c.core + 100, number=c.number + 100) for c in context.host_cpus]
    state = {"targetCPUSet": [cpu.number for cpu in cpus], "targetNodeTopology": topology.text_of(cpus)}
    status = from_plain({"migrationState": state}, type(context.vmi.status))
    return dataclasses.replace(context, vmi=structs.replace(context.vmi, status=status))


@pytest.mark.parametrize("name", CASES)
def test_the_domain_there_differs_only_where_it_must(name: str) -> None:
    context = elsewhere(context_of(CASES[name]))
    here = (GOLDEN / f"{name}.xml").read_text()
    tune = pins_there(context, from_xml(here))
    there = rewritten(here, tune, images_there(context.vmi, from_xml(here), "/var/run/kubevirt-image-volume"), {})
    if not is_dedicated(context.vmi):
        assert there == here
        return
    before, after = (_without(text, "cputune") for text in (here, there))
    assert after == before
    cpus = tuple(HostCpu(c.cell, c.core + 100, c.number + 100) for c in context.host_cpus)
    fresh = convert(dataclasses.replace(context, host_cpus=cpus))
    assert from_xml(there).cpu_tune == fresh.cpu_tune
    if not sees_cells(context.vmi):
        assert from_xml(there) == fresh, "as if it had been started there"


def _without(xml: str, tag: str) -> bytes:
    root = ElementTree.fromstring(xml)
    for each in root.findall(tag):
        root.remove(each)
    for each in root.iter():
        each.text, each.tail = (each.text or "").strip(), (each.tail or "").strip()
    return ElementTree.tostring(root)


@pytest.mark.skipif(
    not SCHEMA.exists() or shutil.which("xmllint") is None, reason="no libvirt schema or no xmllint here"
)
def test_libvirts_schema_accepts_it(tmp_path: Path) -> None:
    here = (GOLDEN / "pinned-pool.xml").read_text()
    context = elsewhere(context_of(CASES["pinned-pool"]))
    there = tmp_path / "there.xml"
    there.write_text(rewritten(here, pins_there(context, from_xml(here)), {}, {}))
    subprocess.run(["xmllint", "--noout", "--relaxng", str(SCHEMA), str(there)], check=True, capture_output=True)


def test_a_machine_with_its_own_cpus_waits_for_the_word_which_they_are() -> None:
    context = context_of(CASES["pinned"])
    with pytest.raises(WrongStateError, match="has not told which CPUs"):
        pins_there(context, from_xml((GOLDEN / "pinned.xml").read_text()))


def test_an_image_is_found_where_the_other_pod_has_it() -> None:
    """A volume before it has gone since the start, so it is the first there."""
    xml = """<domain type="kvm"><name>a</name><devices><disk type="file" device="disk"><source file="/o"/>
      <backingStore type="file"><format type="raw"/><source file="/images/disk_1/disk/x.img"/></backingStore>
      <target dev="vda"/><alias name="ua-root"/></disk></devices></domain>"""
    plain = {"spec": {"volumes": [{"name": "root", "containerDisk": {"image": "i"}}]}}
    vmi = from_plain(plain, VirtualMachineInstance)
    found = images_there(vmi, from_xml(xml), "/images")
    assert found == {"ua-root": "/images/disk_0/disk/x.img"}
    assert "/images/disk_0/disk/x.img" in rewritten(xml, None, found, {})


# The disks


def test_a_checksum_is_of_what_is_there_and_where(tmp_path: Path) -> None:
    whole, holed = tmp_path / "whole", tmp_path / "holed"
    whole.write_bytes(bytes(3 * MIB) + b"x" * 100)
    with open(holed, "wb") as file:
        file.truncate(3 * MIB + 100)
        file.seek(3 * MIB)
        file.write(b"x" * 100)
    assert checksum(str(whole)) == checksum(str(holed))
    others = (bytes(2 * MIB) + b"x" * 100 + bytes(MIB), bytes(3 * MIB) + b"x" * 99 + b"y", bytes(3 * MIB) + b"x" * 101)
    for number, other in enumerate(others):
        path = tmp_path / f"other-{number}"
        path.write_bytes(other)
        assert checksum(str(path)) != checksum(str(whole))
    (tmp_path / "empty").touch()
    assert checksum(str(tmp_path / "empty"))


def machine(status: list[dict[str, Any]], image: str = "guest:v1") -> VirtualMachineInstance:
    disks = [
        {"name": "root", "disk": {}},
        {"name": "cloud", "disk": {}},
        {"name": "config", "cdrom": {"bus": "sata"}},
        {"name": "fixed", "disk": {"readonly": True}},
    ]
    volumes = [
        {"name": "root", "containerDisk": {"image": image}},
        {"name": "cloud", "cloudInitNoCloud": {"userData": "new words"}},
        {"name": "config", "cloudInitConfigDrive": {"userData": "x"}},
        {"name": "fixed", "containerDisk": {"image": "other@sha256:00"}},
    ]
    plain = {
        "metadata": {"name": "vm1", "namespace": "ns", "uid": UID, "creationTimestamp": "2026-01-02T03:04:05Z"},
        "spec": {"domain": {"memory": {"guest": "64Mi"}, "devices": {"disks": disks}}, "volumes": volumes},
        "status": {"volumeStatus": status},
    }
    return from_plain(plain, VirtualMachineInstance)


def test_what_is_copied_and_what_is_not() -> None:
    """QEMU has no way to copy onto what it opened only to read; and nobody wrote to it."""
    vmi = machine([])
    assert [volume.name for volume in travel.copied(vmi)] == ["root", "cloud"]
    assert [volume.name for volume in travel.to_compare(vmi)] == ["root"]
    assert [volume.name for volume in travel.to_measure(vmi)] == ["cloud"]


def test_only_disks_that_the_domain_can_write_are_copied() -> None:
    xml = """<domain type="kvm"><name>a</name><devices>
      <disk type="file" device="disk"><target dev="vda"/><alias name="ua-root"/></disk>
      <disk type="file" device="disk"><target dev="vdb"/><readonly/><alias name="ua-cloud"/></disk>
      </devices></domain>"""
    assert copied_disks(machine([]), from_xml(xml)) == ("vda",)


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Parts:
    parts = make_parts(tmp_path, role="target")
    for index in (0, 3):
        image = parts.settings.paths.images / f"disk_{index}/disk/guest.img"
        image.parent.mkdir(parents=True)
        image.write_bytes(b"bytes" * MIB)
    monkeypatch.setattr("virt_launcher.disks.iso.IsoJob.finish", lambda _job: None)
    monkeypatch.setattr("virt_launcher.process.children.Children.spawn", lambda *_a, **_k: None)
    return parts


def test_another_image_under_the_same_name_is_refused(target: Parts) -> None:
    """The guest's own layer lies over the blocks of the image that it started from: over others it is garbage."""
    told = [{"name": "cloud", "size": 65536}]
    same = checksum(str(target.settings.paths.images / "disk_0/disk/guest.img"))
    wrong = machine([*told, {"name": "root", "containerDiskVolume": {"checksum": same ^ 1}}])
    with pytest.raises(InvalidVMIError, match=r"spec\.volumes\[0\].*'guest:v1' is another image on this node"):
        target.manager.prepare_target(wrong, SyncOptions())
    right = machine([*told, {"name": "root", "containerDiskVolume": {"checksum": same}}])
    target.manager.prepare_target(right, SyncOptions())


def test_images_that_come_with_the_machine_find_a_file_of_their_size(target: Parts) -> None:
    """And not one made from what the Secret says today."""
    status = [{"name": "cloud", "size": 131072}, {"name": "root", "containerDiskVolume": {"checksum": 0}}]
    target.manager.prepare_target(machine(status), SyncOptions())
    made = target.settings.paths.cloud_init / "cloud.iso"
    assert made.read_bytes() == bytes(131072)
    assert os.stat(made).st_mode & 0o777 == 0o640
    target.manager.prepare_target(machine(status), SyncOptions())


def test_a_volume_that_is_still_on_its_way_is_not_waited_for(target: Parts) -> None:
    vmi = machine([{"name": "cloud", "size": 65536}, {"name": "late", "phase": "Pending", "hotplugVolume": {}}])
    plain = {"name": "late", "persistentVolumeClaim": {"claimName": "late", "hotpluggable": True}}
    vmi.spec.volumes.append(from_plain(plain, type(vmi.spec.volumes[0])))
    vmi.spec.domain.devices.disks.append(
        from_plain({"name": "late", "disk": {}}, type(vmi.spec.domain.devices.disks[0]))
    )
    target.manager.prepare_target(vmi, SyncOptions())


def pack(directory: Path, target: Path, moment: str) -> bytes:
    argv = [sys.executable, "-m", "virt_launcher.disks.iso_child", "cidata", str(directory), str(target), moment]
    subprocess.run(argv, check=True, env=os.environ | {"TZ": "UTC"})
    return target.read_bytes()


def test_an_image_made_anew_is_the_same(tmp_path: Path) -> None:
    """A CD-ROM that the guest has mounted must not change under it."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files/user-data").write_text("x")
    first = pack(tmp_path / "files", tmp_path / "first.iso", "1767323045")
    os.utime(tmp_path / "files/user-data", (1, 1))
    assert pack(tmp_path / "files", tmp_path / "second.iso", "1767323045") == first
    assert b"2026010203040500" in first


def test_a_machine_that_holds_another_disk_than_was_checked_is_ended(target: Parts) -> None:
    """Whoever can write to a claim could exchange the file between the look at it and QEMU's."""
    target.manager.prepare_target(machine([{"name": "cloud", "size": 65536}]), SyncOptions())
    assert target.manager._expected is not None
    target.manager._expected.prepared.files.append(Identity(1, 2, "spec.volumes[0]"))
    pid_file = target.settings.paths.qemu_pid_file(target.settings.domain_name)
    pid_file.write_text(str(os.getpid()))
    target.hypervisor.define(to_xml(Domain(name=target.settings.domain_name)))
    target.hypervisor.start()
    target.manager.arrived()
    assert "destroy" in target.hypervisor.calls


def test_the_clock_is_set_when_the_agent_is_met(target: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[bool] = []
    monkeypatch.setattr(target.manager.clock, "begin", lambda: begun.append(True))
    target.manager.arrived()
    assert begun == []
    target.agent._view = AgentView(connected=True)
    for listener in target.agent._listeners:
        listener()
        listener()
    assert begun == [True]
