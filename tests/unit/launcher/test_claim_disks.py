"""Disks that outlive the machine: made once, grown at most, never led out of their directory, never overwritten."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.unit.launcher.parts import make_parts, paths_in, plain_vmi
from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.vmi import VirtualMachineInstance
from virt_launcher.disks import claim_disk, foreign
from virt_launcher.disks.prepare import DiskPreparer
from virt_launcher.disks.sources import DiskSource
from virt_launcher.errors import InvalidVMIError
from virt_launcher.machine.manager import SyncOptions
from virt_launcher.process.children import Children

MIB = 1 << 20
CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}
FIELD = r"spec\.volumes\[0\]\.persistentVolumeClaim"


def info(capacity: str = "10Mi", requests: str = "10Mi", **more: Any) -> dict[str, Any]:
    return {
        "claimName": "c", "volumeMode": "Filesystem", "capacity": {"storage": capacity},
        "requests": {"storage": requests}, **more,
    }  # fmt: skip


def source(root: Path, volume: dict[str, Any], claim: dict[str, Any] | None = None) -> DiskSource:
    """The one volume of a VMI, prepared."""
    devices = {"disks": [{"name": volume["name"]}]}
    vmi = plain_vmi(domain={"memory": {"guest": "64Mi"}, "devices": devices}, volumes=[volume])
    status = {"volumeStatus": [{"name": volume["name"], "persistentVolumeClaimInfo": claim}]} if claim else {}
    vmi = from_plain({**to_plain(vmi), "status": status}, VirtualMachineInstance)
    return DiskPreparer(paths_in(root), Children()).prepare(vmi).sources[volume["name"]]


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    path = tmp_path / "private/vmi-disks/data"
    path.mkdir(parents=True)
    return path


def test_an_empty_claim_gets_a_sparse_disk_of_its_size(tmp_path: Path, mounted: Path) -> None:
    found = source(tmp_path, CLAIM, info("11.5Mi", "10.5Mi"))
    disk = mounted / "disk.img"
    assert (found.path, found.format, found.block) == (str(disk), "raw", False)
    assert disk.stat().st_size == 10 * MIB
    assert disk.stat().st_blocks * 512 < MIB
    assert stat.S_IMODE(disk.stat().st_mode) & 0o007 == 0


def test_a_claim_that_came_while_the_machine_runs_is_where_virt_handler_put_it(tmp_path: Path) -> None:
    place = tmp_path / "private/hotplug-disks/data"
    place.mkdir(parents=True)
    devices = {"disks": [{"name": "data"}]}
    vmi = plain_vmi(domain={"memory": {"guest": "64Mi"}, "devices": devices}, volumes=[CLAIM])
    plugged = {"name": "data", "persistentVolumeClaimInfo": info(), "hotplugVolume": {}, "phase": "MountedToPod"}
    vmi = from_plain({**to_plain(vmi), "status": {"volumeStatus": [plugged]}}, VirtualMachineInstance)
    found = DiskPreparer(paths_in(tmp_path), Children()).prepare(vmi).sources["data"]
    assert (found.path, (place / "disk.img").stat().st_size) == (str(place / "disk.img"), 10 * MIB)


def test_what_is_there_stays(tmp_path: Path, mounted: Path) -> None:
    disk = mounted / "disk.img"
    disk.write_bytes(b"precious" * (2 * MIB))
    for _ in range(2):
        source(tmp_path, CLAIM, info("4Mi", "4Mi"))
        assert disk.read_bytes() == b"precious" * (2 * MIB)


def test_a_disk_grows_with_its_claim_and_keeps_its_bytes(tmp_path: Path, mounted: Path) -> None:
    disk = mounted / "disk.img"
    disk.write_bytes(b"precious")
    source(tmp_path, CLAIM, info("20Mi", "20Mi"))
    assert disk.stat().st_size == 20 * MIB
    assert disk.read_bytes()[:8] == b"precious"


def make_qcow2(path: Path, size: str = "8M") -> None:
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", str(path), size], check=True)


def test_a_qcow2_in_the_place_of_a_raw_disk_is_refused_and_left_alone(tmp_path: Path, mounted: Path) -> None:
    """Run as raw it boots nothing, and would be made longer."""
    disk = mounted / "disk.img"
    make_qcow2(disk)
    before = disk.read_bytes()
    with pytest.raises(InvalidVMIError, match=rf"{FIELD}.*disk\.img is a qcow2 image.*qemu-img convert -O raw"):
        source(tmp_path, CLAIM, info())
    assert disk.read_bytes() == before


def test_a_guest_may_write_the_start_of_a_qcow2_to_its_own_disk(tmp_path: Path, mounted: Path) -> None:
    """Nor does it lose the disk when its claim grows afterwards; it stays raw to QEMU."""
    disk = mounted / "disk.img"
    source(tmp_path, CLAIM, info())
    make_qcow2(tmp_path / "made.qcow2")
    with open(disk, "r+b") as guest:
        guest.write((tmp_path / "made.qcow2").read_bytes())
    assert source(tmp_path, CLAIM, info()).format == "raw"
    assert source(tmp_path, CLAIM, info("20Mi", "20Mi")).format == "raw"
    assert disk.stat().st_size == 20 * MIB


def test_a_qcow2_copied_over_a_used_disk_is_refused(tmp_path: Path, mounted: Path) -> None:
    """The mark stays on the file; its length tells."""
    source(tmp_path, CLAIM, info())
    make_qcow2(tmp_path / "made.qcow2")
    shutil.copyfile(tmp_path / "made.qcow2", mounted / "disk.img")
    with pytest.raises(InvalidVMIError, match="is a qcow2 image"):
        source(tmp_path, CLAIM, info())


@pytest.mark.parametrize("spoiled", [0, 7, 23, 24, 40, 48])
def test_four_bytes_are_no_qcow2(tmp_path: Path, mounted: Path, spoiled: int) -> None:
    """Every field of the start must make sense: magic, version, cluster bits, size, and where the tables lie."""
    make_qcow2(tmp_path / "made.qcow2")
    text = bytearray((tmp_path / "made.qcow2").read_bytes())
    assert foreign.is_qcow2(text, len(text))
    text[spoiled] ^= 0xFF
    assert not foreign.is_qcow2(text, len(text))
    assert not foreign.is_qcow2(text[:20], len(text))


def test_a_disk_of_the_importer_leaves_the_filesystem_its_share(tmp_path: Path, mounted: Path) -> None:
    source(tmp_path, CLAIM, info("100Mi", "100Mi", filesystemOverhead="0.055"))
    assert (mounted / "disk.img").stat().st_size == 94 * MIB


@pytest.mark.parametrize("target", ["/etc/passwd", "../../secret", "other.img"])
def test_a_link_is_not_followed(tmp_path: Path, mounted: Path, target: str) -> None:
    """Whoever can write to the claim must not choose which file of the Pod the guest reads."""
    (mounted / "other.img").write_bytes(b"x" * MIB)
    (mounted / "disk.img").symlink_to(target)
    with pytest.raises(InvalidVMIError, match=f"{FIELD}: .*symbolic link"):
        source(tmp_path, CLAIM, info())


def test_only_a_regular_file_is_a_disk(tmp_path: Path, mounted: Path) -> None:
    (mounted / "disk.img").mkdir()
    with pytest.raises(InvalidVMIError, match=FIELD):
        source(tmp_path, CLAIM, info())
    (mounted / "disk.img").rmdir()
    os.mkfifo(mounted / "disk.img")
    with pytest.raises(InvalidVMIError, match="not a regular file"):
        source(tmp_path, CLAIM, info())


@pytest.mark.parametrize("head", [b"QFI\xfb", b"KDMV", b"# Disk DescriptorFile", b"vhdxfile", b"QED\0", b"json:{"])
def test_a_header_says_nothing_about_the_format(tmp_path: Path, mounted: Path, head: bytes) -> None:
    """A guest could write the header of a qcow2 with a backing file of its choice into its raw disk."""
    (mounted / "disk.img").write_bytes(head + b"\0" * MIB)
    assert source(tmp_path, CLAIM, info()).format == "raw"


def test_a_read_only_claim_is_never_written(tmp_path: Path, mounted: Path) -> None:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "c", "readOnly": True}}
    with pytest.raises(InvalidVMIError, match=r"there is no file disk\.img"):
        source(tmp_path, volume, info())
    assert list(mounted.iterdir()) == []
    (mounted / "disk.img").write_bytes(b"x" * 512)
    found = source(tmp_path, volume, info())
    assert found.read_only
    assert (mounted / "disk.img").stat().st_size == 512


def test_too_little_space_is_told_and_a_little_too_little_is_taken(
    tmp_path: Path, mounted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_disk, "_free_bytes", lambda _disk: 5 * MIB)
    with pytest.raises(InvalidVMIError, match="of the 10485760 bytes"):
        source(tmp_path, CLAIM, info())
    assert list(mounted.iterdir()) == []
    monkeypatch.setattr(claim_disk, "_free_bytes", lambda _disk: 10 * MIB)
    source(tmp_path, CLAIM, info())
    assert (mounted / "disk.img").stat().st_size == 9 * MIB


def test_a_claim_of_unknown_size_makes_no_disk(tmp_path: Path, mounted: Path) -> None:
    with pytest.raises(InvalidVMIError, match="nothing says how large"):
        source(tmp_path, CLAIM)
    (mounted / "disk.img").write_bytes(b"x" * 512)
    assert source(tmp_path, CLAIM).path == str(mounted / "disk.img")


def test_data_volumes_are_claims(tmp_path: Path, mounted: Path) -> None:
    found = source(tmp_path, {"name": "data", "dataVolume": {"name": "dv"}}, info())
    assert found.path == str(mounted / "disk.img")


def test_a_throw_away_layer_leaves_its_claim_alone(tmp_path: Path, mounted: Path) -> None:
    volume = {"name": "data", "ephemeral": {"persistentVolumeClaim": {"claimName": "c"}}}
    with pytest.raises(InvalidVMIError, match=r"there is no file disk\.img"):
        source(tmp_path, volume, info())
    (mounted / "disk.img").write_bytes(b"x" * (3 * MIB))
    found = source(tmp_path, volume, info())
    assert found.backing is not None
    assert (found.format, found.backing.path, found.backing.format) == ("qcow2", str(mounted / "disk.img"), "raw")
    fd = os.open(found.path, os.O_RDONLY)
    try:
        header = os.pread(fd, 32, 0)
    finally:
        os.close(fd)
    assert int.from_bytes(header[24:32], "big") == 3 * MIB
    assert (mounted / "disk.img").stat().st_size == 3 * MIB


def host_disk(type: str, **more: Any) -> dict[str, Any]:
    return {"name": "data", "hostDisk": {"path": "/srv/vms/one.img", "type": type, **more}}


def test_a_disk_of_the_node_must_exist_or_have_a_size(tmp_path: Path, mounted: Path) -> None:
    with pytest.raises(InvalidVMIError, match=r"there is no file one\.img"):
        source(tmp_path, host_disk("Disk"))
    with pytest.raises(InvalidVMIError, match="nothing says how large"):
        source(tmp_path, host_disk("DiskOrCreate"))
    source(tmp_path, host_disk("DiskOrCreate", capacity="2Mi"))
    assert (mounted / "one.img").stat().st_size == 2 * MIB
    assert source(tmp_path, host_disk("Disk")).path == str(mounted / "one.img")


def test_nothing_is_chowned(tmp_path: Path, mounted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("chown", "fchown", "lchown", "chmod", "fchmod"):
        monkeypatch.setattr(os, name, lambda *_, **__: pytest.fail("an owner or mode was changed"))
    (mounted / "one.img").write_bytes(b"x" * MIB)
    source(tmp_path, host_disk("DiskOrCreate", capacity="2Mi"))
    source(tmp_path, CLAIM, info())


def test_a_block_claim_is_the_device_itself(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    block = info(volumeMode="Block")
    with pytest.raises(InvalidVMIError, match="cannot be opened"):
        source(tmp_path, CLAIM, block)
    (tmp_path / "dev/data").symlink_to("/dev/null")
    with pytest.raises(InvalidVMIError, match="cannot be opened"):
        source(tmp_path, CLAIM, block)


def test_a_machine_that_holds_another_file_is_ended(tmp_path: Path) -> None:
    """Somebody exchanged the disk between our look and QEMU's."""
    parts = make_parts(tmp_path)
    mounted = parts.settings.paths.disk_directory("data")
    mounted.mkdir(parents=True)
    (mounted / "disk.img").write_bytes(b"x" * MIB)
    devices = {"disks": [{"name": "data"}]}
    vmi = plain_vmi(domain={"memory": {"guest": "64Mi"}, "devices": devices}, volumes=[CLAIM])
    pid_file = parts.settings.paths.qemu_pid_file(parts.settings.domain_name)
    pid_file.write_text(str(os.getpid()))
    with pytest.raises(InvalidVMIError, match=f"{FIELD}: the disk was replaced"):
        parts.manager.sync(vmi, SyncOptions(allow_emulation=True))
    assert parts.hypervisor.calls[-2:] == ["destroy", "undefine"]
    with open(mounted / "disk.img", "rb"):
        parts.manager.sync(vmi, SyncOptions(allow_emulation=True))
    assert parts.manager.view().alive
