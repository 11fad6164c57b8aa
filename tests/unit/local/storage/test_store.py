"""The directory of volumes: nothing half made stands under its name, whenever its maker dies."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from framework.waiting import eventually

from virt_local.storage import still
from virt_local.storage.store import VolumeStore

MIB = 1 << 20
#: What changes the disk: a death before any of these calls is a step of its own.
STEPS = ("fsync", "rename", "mkdir", "ftruncate", "copy_file_range", "unlink", "rmdir", "fchmod", "utime")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "volumes"


def fill(root: Path) -> Path:
    """A volume with a disk and a directory, untouched for a while."""
    store = VolumeStore(root).open()
    store.make("pvc-source", block=False, size=MIB)
    place = store.place("pvc-source", block=False)
    (place / "disk.img").write_bytes(os.urandom(2 * MIB))
    (place / "sub").mkdir()
    (place / "sub" / "note").write_text("kept")
    store.settle("pvc-source")
    store.close()
    since = time.time_ns()
    eventually(lambda: time.time_ns() > since + 2 * still.TICK_NS)
    return place


def content(place: Path) -> dict[str, bytes]:
    return {str(each.relative_to(place)): each.read_bytes() for each in sorted(place.rglob("*")) if each.is_file()}


def dies_at(step: int, work: object) -> bool:
    """Runs the work in a process that kills itself at a step. False: it ended before it got there."""
    pid = os.fork()
    if pid == 0:
        left = [step]

        def deadly(name: str) -> None:
            real = getattr(os, name)

            def call(*args: object, **more: object) -> object:
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*args, **more)

            setattr(os, name, call)

        for name in STEPS:
            deadly(name)
        try:
            work()  # type: ignore[operator]
        except BaseException:
            os._exit(2)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return True
    assert os.waitstatus_to_exitcode(status) == 0
    return False


@pytest.mark.parametrize("what", ["copy", "snapshot", "discard"])
def test_killed_at_every_step(root: Path, what: str) -> None:
    source = fill(root)
    wanted = content(source)
    step = 0

    def work() -> None:
        store = VolumeStore(root).open()
        if what == "copy":
            store.make_copy("pvc-new", source, block=False, size=MIB)
        elif what == "snapshot":
            store.take("snap-new", source, block=False, size=MIB)
        else:
            store.discard("pvc-new")

    while True:
        if what == "discard":
            store = VolumeStore(root).open()
            store.make_copy("pvc-new", source, block=False, size=MIB)
            store.close()
        died = dies_at(step, work)
        store = VolumeStore(root).open()
        made = store.place("pvc-new", block=False)
        if what == "snapshot" and store.snapshot("snap-new") is not None:
            made = store.snapshot_place("snap-new", block=False)
        assert not made.exists() or content(made) == wanted, f"half of it after step {step}"
        assert os.listdir(root / ".new") == os.listdir(root / ".trash") == []
        if what == "copy" and made.exists():
            assert store.marked() == ["pvc-new"], "nobody was told of it, so it must be found again"
        if not died:
            break
        store.discard("pvc-new")
        store.discard_snapshot("snap-new")
        store.close()
        step += 1
    assert step > (4 if what == "discard" else 10)
    assert made.exists() is (what != "discard")


def test_one_process_at_a_time(root: Path) -> None:
    first = VolumeStore(root).open()
    ticks = iter(range(0, 1000, 15))
    with pytest.raises(TimeoutError, match="another process works on"):
        VolumeStore(root).open(clock=lambda: next(ticks))
    first.close()
    VolumeStore(root).open().close()


@pytest.mark.parametrize(
    "name", ["", "..", "pvc-", "pvc-a/b", "../pvc-a", "other-a", "pvc-a\n", ".new", "pvc-" + "a" * 200]
)
def test_names_are_not_paths(root: Path, name: str) -> None:
    """A snapshot's handle can be written by an administrator, and none leads out of the directory."""
    store = VolumeStore(root).open()
    for act in (store.snapshot, store.discard, store.discard_snapshot, store.attach, store.settle):
        with pytest.raises(ValueError, match="is no name"):
            act(name)


def test_removing_follows_no_link(root: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    store = VolumeStore(root).open()
    store.make("pvc-a", block=False, size=MIB)
    (store.place("pvc-a", block=False) / "link").symlink_to(kept)
    store.discard("pvc-a")
    (root / "pvc-b").symlink_to(kept)
    store.discard("pvc-b")
    assert (kept / "file").exists()
    assert sorted(each.name for each in root.iterdir() if each.name.startswith("pvc")) == []


def test_a_block_volume_has_its_size_grows_and_is_copied(root: Path) -> None:
    store = VolumeStore(root).open()
    store.make("pvc-a", block=True, size=4 * MIB)
    place = store.place("pvc-a", block=True)
    assert (place.stat().st_size, store.used("pvc-a", block=True)) == (4 * MIB, 0)
    with open(place, "r+b") as file:
        file.write(b"bytes")
    since = time.time_ns()
    eventually(lambda: time.time_ns() > since + 2 * still.TICK_NS)
    store.make_copy("pvc-b", place, block=True, size=8 * MIB)
    copied = store.place("pvc-b", block=True)
    assert copied.stat().st_size == 8 * MIB
    assert copied.read_bytes()[:5] == b"bytes"
    store.grow("pvc-a", block=True, size=2 * MIB)
    assert place.stat().st_size == 4 * MIB, "never shorter"
