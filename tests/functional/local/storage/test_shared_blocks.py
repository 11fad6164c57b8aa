"""On a file system that shares blocks, a disk is copied at one instant while it is written, and costs nothing."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from framework.waiting import eventually

from virt_local.storage import loops
from virt_local.storage.store import VolumeStore

pytestmark = pytest.mark.root

MIB = 1 << 20
BLOCK = 4096
BLOCKS = 64


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, as laptops and servers have it that chose XFS."""
    try:
        loops.check()
    except loops.NoLoopDevices as error:
        pytest.skip(str(error))
    if "\txfs\n" not in Path("/proc/filesystems").read_text():
        pytest.skip("this kernel has no XFS")
    image, place = tmp_path / "xfs.img", tmp_path / "mounted"
    image.touch()
    os.truncate(image, 512 * MIB)
    place.mkdir()
    subprocess.run(["mkfs.xfs", "-q", "-m", "reflink=1", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def write_rounds(path: Path, stop: threading.Event) -> None:
    """Block after block gets the number of the round: at any instant the numbers fall by one at most one place."""
    with open(path, "r+b", buffering=0) as disk:
        number = 1
        while not stop.is_set():
            for block in range(BLOCKS):
                disk.seek(block * BLOCK)
                disk.write(number.to_bytes(8) * (BLOCK // 8))
            number += 1


@pytest.mark.parametrize("block", [False, True])
def test_a_disk_that_is_written_all_the_time_is_taken_at_one_instant(shared: Path, block: bool) -> None:
    store = VolumeStore(shared / "volumes").open()
    store.make("pvc-a", block=block, size=BLOCK * BLOCKS)
    place = store.place("pvc-a", block=block)
    disk = place if block else place / "disk.img"
    disk.write_bytes(bytes(BLOCK * BLOCKS))
    if not block:
        (place / "note").write_text("still")
    stop = threading.Event()
    writer = threading.Thread(target=write_rounds, args=(disk, stop), daemon=True)
    writer.start()
    try:
        eventually(lambda: disk.read_bytes()[-8:] != bytes(8))
        for turn in range(5):
            store.take(f"snap-{turn}", place, block=block, size=BLOCK * BLOCKS)
            kept = store.snapshot_place(f"snap-{turn}", block=block)
            found = (kept if block else kept / "disk.img").read_bytes()
            rounds = [int.from_bytes(found[at : at + 8]) for at in range(0, len(found), 8)]
            assert rounds == sorted(rounds, reverse=True)
            assert rounds[0] - rounds[-1] <= 1
    finally:
        stop.set()
        writer.join(10)
        store.close()


def test_a_copy_costs_no_room(shared: Path) -> None:
    store = VolumeStore(shared / "volumes").open()
    store.make("pvc-a", block=True, size=64 * MIB)
    with open(store.place("pvc-a", block=True), "r+b") as disk:
        disk.write(os.urandom(64 * MIB))
    os.sync()
    before = store.free()
    store.make_copy("pvc-b", store.place("pvc-a", block=True), block=True, size=64 * MIB)
    assert before - store.free() < 8 * MIB
    store.close()
