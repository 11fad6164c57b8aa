"""Images that want something else than to be a disk: each is refused, and told why."""

from __future__ import annotations

import os
import struct
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from virt_core.apis import importplan
from virt_launcher.importer import packing
from virt_launcher.importer.errors import Refused
from virt_launcher.importer.formats import detect
from virt_launcher.importer.formats.base import Blocks
from virt_launcher.importer.formats.early import Early

MIB = 1 << 20
CLUSTER = 1 << 16


class Disk:
    """A target that remembers."""

    def __init__(self, room: int = 64 * MIB) -> None:
        self.room, self.size, self.placed = room, 0, 0

    def announce(self, size: int) -> None:
        if size > self.room:
            raise Refused(importplan.TOO_SMALL, "too small")
        self.size = size

    def place(self, offset: int, data: bytes, start: int = 0, end: int | None = None) -> None:
        assert 0 <= offset < self.size
        self.placed += len(data[start:end])

    def unpack(self, offset: int, size: int, make: Callable[[], bytes]) -> None:
        data = make()
        assert len(data) <= size
        self.place(offset, data)


def take(image: bytes, room: int = 64 * MIB, *, piece: int = 100_000, spare: Callable[[], int] | None = None) -> Disk:
    disk = Disk(room)
    decoder = detect.decoder(detect.format_of(image[: detect.HEAD]), image[: detect.HEAD], disk, spare)
    for at in range(0, len(image), piece):
        decoder.feed(image[at : at + piece])
    decoder.finish()
    return disk


def qcow2(
    *, size: int = MIB, backing: int = 0, crypt: int = 0, features: int = 0, l1: list[int] | None = None,
    l2: list[int] | None = None, bits: int = 16, l1_at: int = CLUSTER, l1_entries: int = 1, version: int = 3,
    clusters: int = 4,
) -> bytes:  # fmt: skip
    """Header, first level, second level, one cluster of data."""
    head = struct.pack(">4sIQIIQIIQQIIQ", b"QFI\xfb", version, backing, 8 if backing else 0, bits, size, crypt,
                       l1_entries, l1_at, 0, 0, 0, 0)  # fmt: skip
    head += struct.pack(">QQQII", features, 0, 0, 4, 104)
    image = bytearray(clusters * CLUSTER)
    image[: len(head)] = head
    for number, entry in enumerate([2 * CLUSTER] if l1 is None else l1):
        struct.pack_into(">Q", image, CLUSTER + 8 * number, entry)
    for number, entry in enumerate([3 * CLUSTER] if l2 is None else l2):
        struct.pack_into(">Q", image, 2 * CLUSTER + 8 * number, entry)
    return bytes(image)


def test_a_good_one_is_taken() -> None:
    disk = take(qcow2())
    assert (disk.size, disk.placed) == (MIB, CLUSTER)


HOSTILE = {
    "backing file": (qcow2(backing=104), "backing file"),
    "external data": (qcow2(features=1 << 2), "external data file"),
    "corrupt": (qcow2(features=1 << 1), "corrupt"),
    "encrypted": (qcow2(crypt=1), "encrypted"),
    "unknown feature": (qcow2(features=1 << 40), "does not know"),
    "extended entries": (qcow2(features=1 << 4), "extended L2"),
    "too large": (qcow2(size=1 << 60), "TiB"),
    "no size": (qcow2(size=0), "zero"),
    "version": (qcow2(version=9), "not valid"),
    "cluster bits": (qcow2(bits=30), "not valid"),
    "large table": (qcow2(l1_entries=1 << 30), "too large"),
    "small table": (qcow2(size=32 * MIB, l1_entries=0), "too small"),
    "table at the header": (qcow2(l1_at=0), "not valid"),
    "table between clusters": (qcow2(l1_at=CLUSTER + 8), "not valid"),
    "entry between clusters": (qcow2(l1=[2 * CLUSTER + 512]), "no cluster can be"),
    "data far away": (qcow2(l2=[1 << 55]), "no cluster can be"),
    "data on the tables": (qcow2(l2=[CLUSTER]), "overlap"),
    "data twice": (qcow2(l2=[3 * CLUSTER, 3 * CLUSTER]), "share one cluster"),
    "tables twice": (qcow2(size=600 * MIB, l1=[2 * CLUSTER] * 2, l1_entries=2), "share one cluster"),
    "cut off": (qcow2(l2=[9 * CLUSTER]), "cut off"),
    "packed nothing": (qcow2(l2=[(1 << 62) | 3 * CLUSTER]), "compressed cluster"),
    "packed far away": (qcow2(l2=[(1 << 62) | (1 << 53)]), "no cluster can be"),
    "split VMDK": (b"# Disk DescriptorFile\nRW 100 FLAT \"/etc/shadow\" 0\n" + bytes(512), "names other files"),
    "old VMDK": (b"COWD" + bytes(4096), "names other files"),
    "QED": (b"QED\0" + bytes(4096), "it is a QED file"),
    "VHD": (b"conectix" + bytes(4096), "it is a VHD file"),
    "LUKS": (b"LUKS\xba\xbe" + bytes(4096), "it is a LUKS file"),
    "first qcow": (qcow2(version=1), "not valid"),
    "zip": (b"PK\x03\x04" + bytes(4096), "it is a zip file"),
    "bzip2": (b"BZh91AY" + bytes(4096), "it is a bzip2 file"),
    "7z": (b"7z\xbc\xaf\x27\x1c" + bytes(4096), "it is a 7z file"),
    "OVA": (b"disk.vmdk" + bytes(248) + b"ustar\x00" + bytes(4096), "it is a tar or OVA file"),
    "Bochs": (b"Bochs Virtual HD Image" + bytes(4096), "it is a Bochs file"),
    "cloop": (b"#!/bin/sh\n#V2.0 Format\n" + bytes(4096), "it is a cloop file"),
    "new Parallels": (b"WithouFreSpacExt" + bytes(4096), "it is a Parallels file"),
    "Parallels": (b"WithoutFreeSpace" + bytes(4096), "it is a Parallels file"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_it_is_refused_by_name(name: str) -> None:
    image, words = HOSTILE[name]
    with pytest.raises(Refused, match=words):
        take(image, room=1 << 40)


def vmdk(text: str, *, flags: int = 3, entries: int = 512, grain: int = 128, directory: int = 21) -> bytes:
    head = struct.pack("<4sIIQQQQIQQQ", b"KDMV", 1, flags, 2048, grain, 1, 20, entries, 0, directory, 128)
    image = bytearray(128 * 512 + 65536)
    image[: len(head)] = head
    image[512 : 512 + len(text)] = text.encode()
    return bytes(image)


_PLAIN = 'createType="{}"\nparentCID={}\nRW 2048 SPARSE "x.vmdk"\n'


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (vmdk(_PLAIN.format("monolithicFlat", "ffffffff")), "names other files"),
        (vmdk(_PLAIN.format("monolithicSparse", "12345678")), "with a parent"),
        (vmdk(_PLAIN.format("monolithicSparse", "ffffffff") + 'RW 1 FLAT "/etc/shadow" 0\n'), "several files"),
        (vmdk(_PLAIN.format("monolithicSparse", "ffffffff") + 'parentFileNameHint="/x"\n'), "with a parent"),
        (vmdk(_PLAIN.format("monolithicSparse", "ffffffff"), grain=1 << 40), "not valid"),
        (vmdk(_PLAIN.format("monolithicSparse", "ffffffff"), directory=1 << 40), "after its data"),
        (vmdk(_PLAIN.format("streamOptimized", "ffffffff"), flags=3 << 16), "not valid"),
    ],
)
def test_vmdks_that_are_more_than_one_file(image: bytes, words: str) -> None:
    with pytest.raises(Refused, match=words):
        take(image)


def test_a_vdi_with_a_parent_is_refused() -> None:
    image = bytearray(1 << 20)
    struct.pack_into("<II", image, 64, 0xBEDA107F, 0x00010001)
    struct.pack_into("<I", image, 76, 4)  # a difference
    with pytest.raises(Refused, match="needs another file"):
        take(bytes(image))


def vhdx(*, log: bytes = bytes(16), parent: bool = False, size: int = 4 * MIB) -> bytes:
    image = bytearray(3 * MIB)
    image[:8] = b"vhdxfile"
    for at in (64 << 10, 128 << 10):
        image[at : at + 4] = b"head"
        image[at + 48 : at + 64] = log
    struct.pack_into("<4sII", image, 192 << 10, b"regi", 0, 2)
    table, metadata = "2dc27766-f623-4200-9d64-115e9bfd4a08", "8b7ca206-4790-4b9a-b8fe-575f050f886e"
    for number, (kind, at) in enumerate(((table, 2 * MIB), (metadata, MIB))):
        struct.pack_into("<16sQII", image, (192 << 10) + 16 + 32 * number, uuid.UUID(kind).bytes_le, at, MIB, 1)
    image[MIB : MIB + 12] = b"metadata\0\0\3\0"
    items = (("caa16737-fa36-4d43-b3b6-33f0aa44e76b", struct.pack("<II", MIB, 2 if parent else 0)),
             ("2fa54224-cd1b-4876-b211-5dbed83bf4b8", struct.pack("<Q", size)),
             ("8141bf1d-a96f-4709-ba47-f233a8faab5f", struct.pack("<I", 512)))  # fmt: skip
    for number, (kind, value) in enumerate(items):
        place = 65536 + 64 * number
        struct.pack_into("<16sIII", image, MIB + 32 + 32 * number, uuid.UUID(kind).bytes_le, place, len(value), 0)
        image[MIB + place : MIB + place + len(value)] = value
    return bytes(image)


def test_vhdx() -> None:
    assert take(vhdx()).size == 4 * MIB
    with pytest.raises(Refused, match="log must be replayed"):
        take(vhdx(log=b"x" * 16))
    with pytest.raises(Refused, match="with a parent"):
        take(vhdx(parent=True))
    with pytest.raises(Refused, match="not valid"):
        take(vhdx(size=1 << 60))
    with pytest.raises(Refused, match="too small"):
        take(vhdx(size=1 << 40), room=1 << 41)


def test_a_raw_image_that_grows_beyond_the_claim_is_stopped_at_its_end() -> None:
    with pytest.raises(Refused) as error:
        take(bytes(2 * MIB), room=MIB)
    assert error.value.reason == importplan.TOO_SMALL


def test_blocks_that_overlap_are_refused() -> None:
    blocks = Blocks(Disk(), 4096)
    blocks.add(4096, 0)
    blocks.add(5000, 4096)
    with pytest.raises(Refused, match="overlap"):
        blocks.ready()


@pytest.mark.parametrize("kind", ["gzip", "xz", "zstd"])
def test_what_only_looks_packed_is_refused(kind: str) -> None:
    magic = {"gzip": b"\x1f\x8b\x08\0", "xz": b"\xfd7zXZ\0", "zstd": b"\x28\xb5\x2f\xfd"}[kind]
    with pytest.raises(Refused, match=kind):
        list(packing.unpacked(iter([magic + b"\xff" * 5000]), kind))


def test_a_bomb_comes_in_pieces() -> None:
    """Each piece is bounded, so that whoever counts them can stop; a second packing inside is refused elsewhere."""
    bomb = zlib.compressobj(9, wbits=31)
    packed = bomb.compress(bytes(64 * MIB)) + bomb.flush()
    sizes = [len(piece) for piece in packing.unpacked(iter([packed]), "gzip")]
    assert max(sizes) <= packing.PIECE
    assert sum(sizes) == 64 * MIB


def fill(early: Early) -> None:
    for number in range(300):
        early.keep(number, bytes([number % 256]) * CLUSTER)


def test_what_comes_too_early_has_no_place_on_a_device(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="qemu-img convert"):
        fill(Early(None))
    spare = tmp_path / "spare"
    kept = Early(lambda: os.open(spare, os.O_RDWR | os.O_CREAT))
    fill(kept)
    assert kept.get(299) == bytes([299 % 256]) * CLUSTER
    assert kept.get(0) == bytes(CLUSTER)
    assert kept.get(1000) is None
    kept.drop()
