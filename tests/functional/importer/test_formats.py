"""Images of every format that we take, made by qemu-img, against the disk that they hold; and packed ones."""

from __future__ import annotations

import gzip
import lzma
import random
import subprocess
from pathlib import Path

import pytest

from virt_core.apis import importplan
from virt_core.apis.importplan import ImportPlan
from virt_core.runtime.files import SafeDir
from virt_launcher.importer.errors import Refused
from virt_launcher.importer.fill import Filler
from virt_launcher.importer.journal import Journal
from virt_launcher.importer.progress import Meter
from virt_launcher.importer.target import FileTarget

from .rig import MIB, converted, disk_bytes, disk_of, import_from, qemu_img
from .server import Habits, serving

RAW = disk_bytes()

FORMATS = {
    "qcow2": ("-O", "qcow2"),
    "old qcow2": ("-O", "qcow2", "-o", "compat=0.10"),
    "compressed": ("-c", "-O", "qcow2"),
    "zstd": ("-c", "-O", "qcow2", "-o", "compression_type=zstd"),
    "small clusters": ("-O", "qcow2", "-o", "cluster_size=4096"),
    "small compressed": ("-c", "-O", "qcow2", "-o", "cluster_size=4096"),
    "large clusters": ("-O", "qcow2", "-o", "cluster_size=2M"),
    "preallocated": ("-O", "qcow2", "-o", "preallocation=metadata"),
    "vdi": ("-O", "vdi"),
    "static vdi": ("-O", "vdi", "-o", "static=on"),
    "vmdk": ("-O", "vmdk"),
    "streamed vmdk": ("-O", "vmdk", "-o", "subformat=streamOptimized"),
    "vhdx": ("-O", "vhdx"),
    "small vhdx": ("-O", "vhdx", "-o", "block_size=1M"),
    "raw": ("-O", "raw"),
}


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("name", FORMATS)
def test_the_disk_is_the_same_byte_for_byte(tmp_path: Path, name: str, ranges: bool) -> None:
    image = converted(tmp_path, RAW, *FORMATS[name])
    with serving(Habits(image, ranges=ranges)) as url:
        report = import_from(tmp_path / "claim", url)
    assert report.reason == "Completed", report
    assert disk_of(tmp_path / "claim")[: len(RAW)] == RAW
    assert not any(disk_of(tmp_path / "claim")[len(RAW) :])


def _written_at_random(tmp_path: Path) -> bytes:
    """As a guest leaves it: clusters in any order, a snapshot, tables that were copied and moved."""
    made = tmp_path / "guest.qcow2"
    qemu_img("create", "-f", "qcow2", "-o", "cluster_size=4096", made, "24M")
    order = [17, 3, 11, 5, 0, 23, 9]
    for part, at in enumerate(order):
        source = tmp_path / "part"
        source.write_bytes(RAW[at * MIB : (at + 1) * MIB])
        subprocess.run(
            ["qemu-io", "-f", "qcow2", "-c", f"write -s {source} {at * MIB} {MIB}", str(made)],
            check=True, capture_output=True, timeout=60,
        )  # fmt: skip
        if part in (2, 4):
            qemu_img("snapshot", "-c", f"snap{part}", made)
    qemu_img("snapshot", "-d", "snap2", made)
    return made.read_bytes()


@pytest.mark.parametrize("ranges", [True, False])
def test_an_image_that_a_guest_wrote_is_read_as_a_stream_too(tmp_path: Path, ranges: bool) -> None:
    image = _written_at_random(tmp_path)
    with serving(Habits(image, ranges=ranges)) as url:
        report = import_from(tmp_path / "claim", url)
    assert report.reason == "Completed", report
    qemu_img("convert", "-f", "qcow2", "-O", "raw", tmp_path / "guest.qcow2", tmp_path / "expected.raw")
    assert disk_of(tmp_path / "claim") == (tmp_path / "expected.raw").read_bytes()


@pytest.mark.parametrize("ranges", [True, False])
def test_an_image_whose_tables_were_moved_to_its_end(tmp_path: Path, ranges: bool) -> None:
    converted(tmp_path, RAW, "-O", "qcow2", "-o", "cluster_size=512")
    qemu_img("resize", "-f", "qcow2", tmp_path / "made.img", "60M")
    with serving(Habits((tmp_path / "made.img").read_bytes(), ranges=ranges)) as url:
        report = import_from(tmp_path / "claim", url)
    assert report.reason == "Completed", report
    assert report.virtual_size == 60 * MIB
    assert disk_of(tmp_path / "claim")[: len(RAW)] == RAW


def _zstd(data: bytes) -> bytes:
    return subprocess.run(["zstd", "-q"], input=data, capture_output=True, check=True, timeout=60).stdout


@pytest.mark.parametrize("inner", ["raw", "compressed"])
@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, _zstd])
def test_packed_images_are_unpacked_on_the_way(tmp_path: Path, pack: object, inner: str) -> None:
    assert callable(pack)
    image = converted(tmp_path, RAW, *FORMATS[inner])
    half = len(image) // 2
    packed = pack(image[:half]) + pack(image[half:])  # Two members, streams or frames are one file.
    with serving(Habits(packed)) as url:
        report = import_from(tmp_path / "claim", url)
    assert report.reason == "Completed", report
    assert disk_of(tmp_path / "claim") == RAW
    with serving(Habits(packed[:-20])) as url:
        report = import_from(tmp_path / "other", url)
    assert report.reason == "ImageRefused", report
    assert not (tmp_path / "other" / "disk.img").exists()


def _broken(image: bytes, rng: random.Random) -> bytes:
    """A few bytes changed, mostly near the front, where the tables are; or the end is missing."""
    made = bytearray(image)
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(min(rng.choice([512, 4096, 1 << 18, len(made)]), len(made)))
        if rng.random() < 0.1:
            made = made[: max(at, 600)]
        else:
            made[at : at + 8] = rng.choice([b"\xff" * 8, bytes(8), rng.randbytes(8), b"\0\0\0\0\0\1\0\0"])
    return bytes(made)


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "raw"])
def test_a_broken_image_is_refused_or_read_and_surprises_nobody(tmp_path: Path, name: str) -> None:
    """Whatever is wrong with it, the answer is one of ours, and nothing is placed outside of the disk."""
    image, rng = converted(tmp_path, disk_bytes(MIB), *FORMATS[name]), random.Random(name)
    claim = tmp_path / "claim"
    claim.mkdir()
    refused: list[str] = []
    for _ in range(12):
        broken = _broken(image, rng)
        with SafeDir.open_trusted(claim) as directory:
            target, journal = FileTarget(directory, 8 * MIB), Journal(directory)
            filler = Filler(ImportPlan(source=importplan.HTTP, size=8 * MIB), target, journal, Meter())
            try:
                report = filler.fill(broken[at : at + 50_000] for at in range(0, len(broken), 50_000))
                assert report.virtual_size == (claim / "disk.img").stat().st_size <= 8 * MIB
                (claim / "disk.img").unlink()
            except Refused as error:
                refused.append(error.reason)
            finally:
                target.close()
        assert not (claim / "disk.img").exists()
    assert set(refused) <= importplan.FINAL
