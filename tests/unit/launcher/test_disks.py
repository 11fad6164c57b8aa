"""Disks: formats are checked, not trusted; overlays are what qemu-img would make; errors are in the user's words."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.unit.launcher.parts import paths_in, plain_vmi
from virt_launcher.disks import qcow2
from virt_launcher.disks.container_disk import ImageFile, find_disk, kernel_file, make_overlay
from virt_launcher.disks.empty_disk import make_empty_disk
from virt_launcher.disks.images import BadImageError, ImageFacts, inspect
from virt_launcher.disks.prepare import DiskPreparer
from virt_launcher.errors import InvalidVMIError
from virt_launcher.process.children import Children

needs_qemu_img = pytest.mark.skipif(shutil.which("qemu-img") is None, reason="no qemu-img here")
MIB = 1 << 20


def facts_of(path: Path) -> ImageFacts:
    fd = os.open(path, os.O_RDONLY)
    try:
        return inspect(fd)
    finally:
        os.close(fd)


def patched(path: Path, offset: int, data: bytes) -> Path:
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)
    return path


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    path = tmp_path / "x.qcow2"
    qcow2.create(path, 10 * MIB)
    return path


@needs_qemu_img
@pytest.mark.parametrize("size", [512, MIB, 10 << 30, (4 << 40) + 512, 16 << 40])
def test_qemu_img_finds_no_fault(tmp_path: Path, size: int) -> None:
    path = tmp_path / "x.qcow2"
    qcow2.create(path, size)
    check = subprocess.run(["qemu-img", "check", "--output=json", str(path)], capture_output=True, check=True)
    report = json.loads(check.stdout)
    assert not {"corruptions", "leaks", "check-errors"} & {key for key, value in report.items() if value}
    info = subprocess.run(["qemu-img", "info", "--output=json", str(path)], capture_output=True, check=True)
    assert json.loads(info.stdout)["virtual-size"] == size
    assert facts_of(path) == ImageFacts("qcow2", size)


def qemu_img(*arguments: str | Path) -> None:
    subprocess.run(["qemu-img", *map(str, arguments)], check=True, capture_output=True)


@needs_qemu_img
@pytest.mark.parametrize("options", ["compat=0.10", "compat=1.1", "extended_l2=on,cluster_size=64k", "cluster_size=512",
                                     "cluster_size=2M", "preallocation=metadata", "compression_type=zstd"])  # fmt: skip
def test_what_qemu_img_makes_passes_and_a_part_of_it_does_not(tmp_path: Path, options: str) -> None:
    plain, image = tmp_path / "plain", tmp_path / "x.qcow2"
    plain.write_bytes(b"\0" * MIB + os.urandom(6 * MIB) + b"\0" * MIB)
    qemu_img("convert", "-f", "raw", "-O", "qcow2", "-o", options, plain, image)
    assert facts_of(image) == ImageFacts("qcow2", 8 * MIB)
    bare = tmp_path / "bare.qcow2"
    qemu_img("create", "-f", "qcow2", "-o", options, bare, "8M")
    assert facts_of(bare) == ImageFacts("qcow2", 8 * MIB)
    os.truncate(image, 3 * 512)
    with pytest.raises(BadImageError, match="cut off"):
        facts_of(image)


@needs_qemu_img
def test_an_overlay_shows_its_backing_file(tmp_path: Path) -> None:
    (tmp_path / "base.img").write_bytes(b"x" * MIB)
    overlay = tmp_path / "o.qcow2"
    qcow2.create(overlay, MIB, qcow2.Backing(str(tmp_path / "base.img"), "raw"))
    command = ["qemu-img", "compare", "-f", "raw", "-F", "qcow2", str(tmp_path / "base.img"), str(overlay)]
    subprocess.run(command, check=True, capture_output=True)
    info = subprocess.run(["qemu-img", "info", "--output=json", str(overlay)], capture_output=True, check=True)
    found = json.loads(info.stdout)
    assert (found["backing-filename"], found["backing-filename-format"]) == (str(tmp_path / "base.img"), "raw")


def test_raw_sizes_are_whole_sectors(tmp_path: Path) -> None:
    path = tmp_path / "x.img"
    path.write_bytes(b"x" * 1000)
    assert facts_of(path) == ImageFacts("raw", 1024)


@pytest.mark.parametrize(
    ("offset", "data", "words"),
    [
        (8, struct.pack(">Q", 200), "backing file"),
        (72, struct.pack(">Q", 1 << 2), "external data file"),
        (72, struct.pack(">Q", 1 << 1), "corrupt"),
        (72, struct.pack(">Q", 1 << 40), "virt-launcher does not know"),
        (32, struct.pack(">I", 1), "encrypted"),
        (4, struct.pack(">I", 9), "not valid"),
        (20, struct.pack(">I", 30), "not valid"),
        (24, struct.pack(">Q", 0), "zero"),
        (24, struct.pack(">Q", 8 << 40), "too small"),
        (36, struct.pack(">I", 0), "too small"),
        (36, struct.pack(">I", (1 << 32) - 1), "too large"),
        (36, struct.pack(">I", (4 << 20) + 1), "too large"),
        (56, struct.pack(">I", (1 << 32) - 1), "too large"),
        (60, struct.pack(">I", (1 << 32) - 1), "too large"),
        (40, struct.pack(">Q", 1 << 62), "cut off"),
        (40, struct.pack(">Q", (1 << 64) - 1), "cut off"),
        (48, struct.pack(">Q", 1 << 40), "cut off"),
        (3 << 16, struct.pack(">Q", (1 << 63) | (1 << 30)), "cut off"),
        (100, struct.pack(">I", (1 << 32) - 1), "its length"),
        (100, struct.pack(">I", 0), "its length"),
    ],
)
def test_qcow2_that_is_refused(empty: Path, offset: int, data: bytes, words: str) -> None:
    with pytest.raises(BadImageError, match=words):
        facts_of(patched(empty, offset, data))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"QFI\xfb", "cut off"),
        (b"QFI\xfb" + struct.pack(">IQIIQI", 3, 0, 0, 16, MIB, 0), "cut off"),
        (b"QFI\xfb" + struct.pack(">IQIIQIIQQIIQ", 3, 0, 0, 16, MIB, 0, 1, 1 << 16, 1 << 16, 1, 0, 0), "cut off"),
        (b"QFI\xfb" + struct.pack(">IQIIQIIQQIIQ", 2, 0, 0, 16, MIB, 0, 1, 1 << 16, 1 << 16, 1, 0, 0), "cut off"),
        (b"KDMV....", "VMDK"),
        (b"COWD....", "VMDK"),
        (b"WithoutFreeSpace", "Parallels"),
        (b"# Disk DescriptorFile\n", "VMDK"),
        (b"vhdxfile", "VHDX"),
        (b"\x1f\x8b rest", "gzip"),
        (b"\0" * 64 + b"\x7f\x10\xda\xbe", "VDI"),
    ],
)
def test_files_that_are_no_disks(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(BadImageError, match=words):
        facts_of(path)


class TestContainerDisk:
    @pytest.fixture
    def image(self, tmp_path: Path) -> ImageFile:
        root = tmp_path / "disk_0"
        (root / "disk").mkdir(parents=True)
        return ImageFile(root, "spec.volumes[0].containerDisk", "example/disk:v1")

    def test_the_only_file_is_the_disk(self, image: ImageFile) -> None:
        (image.root / "disk/a.img").write_bytes(b"x")
        assert find_disk(image, "") == "/disk/a.img"
        assert find_disk(image, "/other") == "/other"

    def test_overlay_is_made_once(self, image: ImageFile, tmp_path: Path) -> None:
        (image.root / "disk/a.img").write_bytes(b"x" * 512)
        overlay = tmp_path / "data/root/disk.qcow2"
        source = make_overlay(image, "", overlay)
        assert source.backing == qcow2.Backing(str(image.root / "disk/a.img"), "raw")
        stamp = overlay.stat().st_mtime_ns
        assert make_overlay(image, "", overlay) == source
        assert overlay.stat().st_mtime_ns == stamp

    @pytest.mark.parametrize(
        ("files", "path", "words"),
        [
            ([], "", "exactly one disk file, found nothing"),
            (["disk/a", "disk/b"], "", "found a, b; choose one with containerDisk.path"),
            (["disk/a"], "/disk/c", "there is no file /disk/c; /disk has: a"),
            (["disk/a"], "/../../etc/passwd", "symbolic link|outside|no file"),
            (["disk/a"], "/disk", "not a regular file"),
        ],
    )
    def test_words(self, image: ImageFile, tmp_path: Path, files: list[str], path: str, words: str) -> None:
        for name in files:
            (image.root / name).write_bytes(b"x")
        with pytest.raises(InvalidVMIError, match=words) as caught:
            make_overlay(image, path, tmp_path / "o")
        assert str(caught.value).startswith("spec.volumes[0].containerDisk: image 'example/disk:v1': ")
        assert not (tmp_path / "o").exists()

    def test_links_are_not_followed(self, image: ImageFile, tmp_path: Path) -> None:
        (image.root / "disk/a").symlink_to("/etc/passwd")
        with pytest.raises(InvalidVMIError, match="found nothing"):
            make_overlay(image, "", tmp_path / "o")
        with pytest.raises(InvalidVMIError, match="symbolic link; name the file itself"):
            make_overlay(image, "/disk/a", tmp_path / "o")

    def test_image_without_the_directory(self, tmp_path: Path) -> None:
        (tmp_path / "i").mkdir()
        (tmp_path / "i/readme").touch()
        with pytest.raises(InvalidVMIError, match="no directory /disk with a disk file; its root has: readme"):
            find_disk(ImageFile(tmp_path / "i", "f", "i"), "")

    def test_image_that_is_not_mounted(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidVMIError, match="it is not mounted at"):
            find_disk(ImageFile(tmp_path / "i", "f", "i"), "")

    def test_kernel_names_path_and_field(self, tmp_path: Path) -> None:
        (tmp_path / "boot").mkdir()
        with pytest.raises(InvalidVMIError, match=r"^f\.kernelPath: image 'i': there is no file /boot/vmlinuz"):
            kernel_file(tmp_path, "f.kernelPath", "i", "/boot/vmlinuz")
        (tmp_path / "boot/vmlinuz").touch()
        assert kernel_file(tmp_path, "f", "i", "/boot/vmlinuz") == str(tmp_path / "boot/vmlinuz")


@pytest.mark.parametrize(("capacity", "size"), [("1Mi", MIB), ("1500k", MIB), (3 * MIB + 5, 3 * MIB)])
def test_empty_disks_are_whole_mebibytes(tmp_path: Path, capacity: Any, size: int) -> None:
    make_empty_disk(tmp_path / "e/x.qcow2", capacity, "f")
    assert facts_of(tmp_path / "e/x.qcow2").virtual_size == size


@pytest.mark.parametrize("capacity", ["0", "-1Gi", "1k", "much"])
def test_empty_disks_of_no_size(tmp_path: Path, capacity: str) -> None:
    with pytest.raises(InvalidVMIError, match=r"^spec\.volumes\[0\]\.emptyDisk\.capacity: "):
        make_empty_disk(tmp_path / "x", capacity, "spec.volumes[0].emptyDisk.capacity")


class TestPreparer:
    def prepare(self, root: Path, *volumes: dict[str, Any], disks: tuple[str, ...] = ("a",)) -> Any:
        devices = {"disks": [{"name": name} for name in disks]}
        vmi = plain_vmi(domain={"memory": {"guest": "64Mi"}, "devices": devices}, volumes=list(volumes))
        return DiskPreparer(paths_in(root), Children()).prepare(vmi)

    def test_images_are_found_by_the_index_of_their_volume(self, tmp_path: Path) -> None:
        (tmp_path / "images/disk_1/disk").mkdir(parents=True)
        (tmp_path / "images/disk_1/disk/x").write_bytes(b"x")
        first = {"name": "e", "emptyDisk": {"capacity": "1Mi"}}
        prepared = self.prepare(tmp_path, first, {"name": "a", "containerDisk": {"image": "i"}}, disks=("e", "a"))
        assert set(prepared.sources) == {"e", "a"}

    def test_volumes_without_a_disk_are_left_alone(self, tmp_path: Path) -> None:
        assert self.prepare(tmp_path, {"name": "b", "containerDisk": {"image": "i"}}).sources == {}

    @pytest.mark.parametrize("name", ["../a", "a/b", "", "."])
    def test_names_are_no_paths(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(InvalidVMIError, match=r"spec\.volumes\[0\]\.name"):
            self.prepare(tmp_path, {"name": name, "emptyDisk": {"capacity": "1Mi"}}, disks=(name,))

    def test_sources_that_are_not_built_yet(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidVMIError, match=r"spec\.volumes\[0\]: the source of volume 'a' is not built yet"):
            self.prepare(tmp_path, {"name": "a", "containerPath": {"path": "/x"}})
