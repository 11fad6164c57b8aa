"""Disks that go to other claims with their machine: the room there, what is copied, and how the domain names them."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.unit.launcher.parts import make_parts, paths_in, plain_vmi
from virt_core.apis import travel
from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.volumemoves import at_target
from virt_launcher.disks.claims import ClaimDisks
from virt_launcher.domain.domain import from_xml
from virt_launcher.errors import InvalidVMIError
from virt_launcher.machine.manager import SyncOptions
from virt_launcher.moves.destination import Place, places_there, rewritten
from virt_launcher.moves.plan import copied_disks, size_bytes
from virt_launcher.moves.reception import facts_of

MIB = 1 << 20
XML = """<domain type="kvm"><name>a</name><memory unit="KiB">1024</memory><devices>
  <disk type="{kind}" device="disk"><driver name="qemu" type="raw" cache="none"/><source {source}/>
    <target dev="vda" bus="virtio"/><alias name="ua-data"/></disk>
  <disk type="file" device="disk"><source file="/o"/><target dev="vdb"/><alias name="ua-kept"/></disk>
</devices></domain>"""


def info(claim: str, mode: str = "Filesystem", size: str = "10Mi") -> dict[str, Any]:
    return {"claimName": claim, "volumeMode": mode, "requests": {"storage": size}, "capacity": {"storage": size}}


def machine(size: int = 8 * MIB, to: dict[str, Any] | None = None, **moved: Any) -> VirtualMachineInstance:
    """Two disks on claims, of which one goes to another."""
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "new"}},
        {"name": "kept", "persistentVolumeClaim": {"claimName": "kept"}},
    ]
    disks = [{"name": "data", "disk": {}}, {"name": "kept", "disk": {}}]
    vmi = plain_vmi(domain={"memory": {"guest": "64Mi"}, "devices": {"disks": disks}}, volumes=volumes)
    status = {
        "volumeStatus": [
            {"name": "data", "size": size, "persistentVolumeClaimInfo": info("old")},
            {"name": "kept", "persistentVolumeClaimInfo": info("kept")},
        ],
        "migratedVolumes": [
            {"volumeName": "data", "sourcePVCInfo": info("old"), "destinationPVCInfo": to or info("new"), **moved}
        ],
    }
    return from_plain({**to_plain(vmi), "status": status}, VirtualMachineInstance)


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """The claim that the disk comes to, as the other launcher has it."""
    for name in ("data", "kept"):
        (tmp_path / f"private/vmi-disks/{name}").mkdir(parents=True)
    return tmp_path / "private/vmi-disks/data/disk.img"


def receive(root: Path, vmi: VirtualMachineInstance) -> None:
    shutil.rmtree(root / "libvirt", ignore_errors=True)
    make_parts(root, role="target").manager.prepare_target(at_target(vmi), SyncOptions())


def test_the_disk_that_moves_is_copied_whole_and_its_size_is_told() -> None:
    vmi, domain = machine(), from_xml(XML.format(kind="file", source='file="/d"'))
    assert [volume.name for volume in travel.copied(vmi)] == ["data"]
    assert copied_disks(vmi, domain) == ("vda",)
    assert facts_of(vmi, domain, paths_in(Path("/x")), {"vda": 77}.__getitem__) == {"data": (0, 77)}
    assert travel.untold(machine(size=0))
    assert not travel.untold(vmi)
    assert size_bytes(vmi, domain) == MIB + 8 * MIB


def test_the_file_there_has_the_size_of_the_disk_and_no_old_byte(tmp_path: Path, there: Path) -> None:
    """It does not grow with its claim before the guest is there: both sides must have the same disk."""
    there.write_bytes(b"QFI\xfb" + b"stale" * MIB)
    for _ in range(2):
        receive(tmp_path, machine())
        assert there.read_bytes() == bytes(8 * MIB)
    assert (there.parent.parent / "kept/disk.img").stat().st_size == 10 * MIB


@pytest.mark.parametrize(
    ("vmi", "words"),
    [
        (machine(11 * MIB), "claim 'new' has 10485760 bytes, and the disk that is to be copied there has 11534336"),
        (machine(0), "nobody has said how large"),
    ],
)
def test_a_disk_that_does_not_fit_is_refused_and_nothing_is_touched(
    tmp_path: Path, there: Path, vmi: VirtualMachineInstance, words: str
) -> None:
    there.write_bytes(b"precious")
    with pytest.raises(InvalidVMIError, match=rf"spec\.volumes\[0\].*{words}"):
        receive(tmp_path, vmi)
    assert there.read_bytes() == b"precious"


def test_a_file_that_a_machine_holds_is_not_emptied(tmp_path: Path, there: Path) -> None:
    """As QEMU holds it: a lock on some byte, shared or not."""
    there.write_bytes(b"precious" * MIB)
    with there.open("rb") as held:
        lock = struct.pack("@hhqqi4x", fcntl.F_RDLCK, 0, 201, 1, 0)
        fcntl.fcntl(held, fcntl.F_OFD_SETLK, lock)
        with pytest.raises(InvalidVMIError, match=r"disk\.img is in use by another machine"):
            receive(tmp_path, machine())
    assert there.read_bytes() == b"precious" * MIB
    receive(tmp_path, machine())


def test_a_link_is_not_followed(tmp_path: Path, there: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    there.symlink_to(victim)
    with pytest.raises(InvalidVMIError, match="symbolic link"):
        receive(tmp_path, machine())
    assert victim.read_bytes() == b"precious"


def test_a_disk_on_its_way_does_not_grow(tmp_path: Path, there: Path) -> None:
    there.write_bytes(bytes(MIB))
    (there.parent.parent / "kept/disk.img").write_bytes(bytes(MIB))
    vmi = machine()
    claims = ClaimDisks(paths_in(tmp_path), vmi)
    assert [claims.room(volume, "") for volume in vmi.spec.volumes] == [0, 10 * MIB]


@pytest.mark.parametrize(
    ("kind", "source", "mode", "found"),
    [
        ("file", 'file="/d"', "Block", True),
        ("block", 'dev="/dev/data"', "Block", True),
        ("block", 'dev="/dev/data"', "Filesystem", True),
        ("file", 'file="/d"', "Filesystem", False),
    ],
)
def test_the_domain_there_names_the_disk_as_it_is_there(kind: str, source: str, mode: str, found: bool) -> None:
    """A device may be larger than the disk: the guest has as much of it as there was."""
    here, paths, block = XML.format(kind=kind, source=source), paths_in(Path("/run")), mode == "Block"
    places = places_there(machine(to=info("new", mode)), from_xml(here), paths)
    path = str(paths.devices / "data" if block else paths.disk_directory("data") / "disk.img")
    assert places == ({"ua-data": Place(path, block, 8 * MIB if block else 0)} if found else {})
    root = ElementTree.fromstring(rewritten(here, None, {}, places))
    disk = root.find("./devices/disk")
    assert disk is not None
    assert disk.get("type") == ("block" if block else "file")
    [place] = disk.iterfind("source")
    assert list(place.attrib) == ["dev" if block else "file"]
    slices = [each.attrib for each in place.iterfind("slices/slice")]
    assert slices == ([{"type": "storage", "offset": "0", "size": str(8 * MIB)}] if block else [])
    driver = disk.find("driver")
    assert driver is not None
    assert driver.get("io") == ("native" if block else None)
    assert from_xml(ElementTree.tostring(root, encoding="unicode")).devices.disks[1].source_file == "/o"


def test_half_a_copy_is_nobodys_disk_until_it_is_whole(tmp_path: Path, there: Path) -> None:
    """A machine that starts from it says so; another copy begins anew, and one that has ended well is a disk."""
    receive(tmp_path, machine())
    try:
        os.getxattr(there, "user.virtpod.incoming")
    except OSError:
        pytest.skip("this file system keeps no attributes")
    plain = to_plain(machine())
    plain["status"] = {"volumeStatus": [{"name": "data", "persistentVolumeClaimInfo": info("new")}]}
    started = from_plain(plain, VirtualMachineInstance)
    claims, volume = ClaimDisks(paths_in(tmp_path), started), started.spec.volumes[0]
    with pytest.raises(InvalidVMIError, match="the beginning of a copy that was given up"):
        claims.source(volume, "spec.volumes[0]")
    receive(tmp_path, machine())
    here = ClaimDisks(paths_in(tmp_path), at_target(machine()))
    here.has_come(volume, "")
    here.has_come(volume, "")
    found = claims.source(volume, "spec.volumes[0]")
    assert found is not None
    assert (found.path, there.stat().st_size) == (str(there), 10 * MIB)
