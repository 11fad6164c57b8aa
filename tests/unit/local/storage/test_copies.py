"""Copies of volumes: whole or not at all, as at one instant, and never through a link."""

from __future__ import annotations

import os
import socket
import stat
import time
from pathlib import Path

import pytest
from framework.waiting import eventually

from virt_core.runtime.files import SafeDir
from virt_local.storage import content, filecopy, still, walk
from virt_local.storage.content import InUse, copy_block, copy_tree
from virt_local.storage.walk import ContentError

MIB = 1 << 20


@pytest.fixture
def target(tmp_path: Path) -> Path:
    made = tmp_path / "target"
    made.mkdir()
    return made


@pytest.fixture
def source(tmp_path: Path) -> Path:
    made = tmp_path / "source"
    made.mkdir()
    return made


def settled(path: Path) -> None:
    """As if nobody had written for a while: the stamps' clock is coarse."""
    for each in [path, *path.rglob("*")]:
        if not each.is_symlink():
            os.utime(each)
    since = time.time_ns()
    eventually(lambda: time.time_ns() > since + 2 * still.TICK_NS)


def copy(source: Path, target: Path) -> Path:
    settled(source)
    with SafeDir.open_trusted(target) as into:
        copy_tree(source, into, "copy")
    return target / "copy"


def test_everything_of_a_tree_is_copied(source: Path, target: Path) -> None:
    (source / "dir").mkdir()
    os.chmod(source / "dir", 0o2750)
    (source / "dir" / "disk.img").write_bytes(b"x" * 5000)
    os.chmod(source / "dir" / "disk.img", 0o640)
    os.link(source / "dir" / "disk.img", source / "again")
    os.symlink("/etc/passwd", source / "link")
    os.mkfifo(source / "pipe", 0o622)
    os.setxattr(source / "again", "user.note", b"mine")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(source / "sock"))
    os.truncate(source / "dir" / "disk.img", 64 * MIB)
    made = copy(source, target)
    assert sorted(os.listdir(made)) == ["again", "dir", "link", "pipe"]
    assert os.readlink(made / "link") == "/etc/passwd"
    assert (made / "again").samefile(made / "dir" / "disk.img")
    assert os.getxattr(made / "again", "user.note") == b"mine"
    found = (made / "dir" / "disk.img").stat()
    assert (stat.S_IMODE(found.st_mode), found.st_size) == (0o640, 64 * MIB)
    assert found.st_blocks * 512 < MIB, "holes stay holes"
    assert found.st_mtime_ns == (source / "again").stat().st_mtime_ns
    assert stat.S_IMODE((made / "dir").stat().st_mode) == 0o2750
    assert stat.S_ISFIFO((made / "pipe").stat().st_mode)


def test_a_link_in_a_volume_leads_nowhere(source: Path, target: Path, tmp_path: Path) -> None:
    """The content is the Pod's to choose: neither a file nor a directory beyond it is read or written."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("hush")
    os.symlink(secret, source / "dir")
    os.symlink(secret / "key", source / "disk.img")
    made = copy(source, target)
    assert os.path.islink(made / "dir")
    assert os.path.islink(made / "disk.img")
    fd = os.open(source, os.O_RDONLY)
    try:
        assert sorted(entry.path for entry in walk.walk(fd)) == ["dir", "disk.img"]
        assert walk.disk_usage(fd) < MIB
    finally:
        os.close(fd)


def test_an_entry_that_becomes_a_link_under_us_is_not_followed(source: Path, tmp_path: Path) -> None:
    """What was opened is what is read, whatever the name means by then."""
    (source / "file").write_text("own")
    (tmp_path / "key").write_text("hush")
    fd = os.open(source, os.O_RDONLY)
    try:
        entry = next(entries := walk.walk(fd))
        (source / "file").unlink()
        os.symlink(tmp_path / "key", source / "file")
        with entry.reading() as reading:
            assert os.read(reading, 10) == b"own"
        entries.close()  # type: ignore[attr-defined]
    finally:
        os.close(fd)


@pytest.mark.root
def test_a_device_node_is_refused(source: Path, target: Path) -> None:
    os.mknod(source / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    with pytest.raises(ContentError, match="'null' is a device node"):
        copy(source, target)


def test_content_has_limits(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        (source / str(number)).touch()
    deep = source
    for _ in range(4):
        deep /= "d"
        deep.mkdir()
    fd = os.open(source, os.O_RDONLY)
    try:
        with pytest.raises(ContentError, match="more than 4 files"):
            list(walk.walk(fd, most=4))
        monkeypatch.setattr(walk, "DEEPEST", 2)
        with pytest.raises(ContentError, match="nested deeper"):
            list(walk.walk(fd))
    finally:
        os.close(fd)


def test_a_copy_of_what_changes_all_the_time_is_refused(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer between the stamps: without reflinks there is no instant that the copy shows."""
    (source / "a").write_bytes(b"1" * 4096)
    settled(source)

    def busy(reading: int, writing: int) -> bool:
        with open(source / "a", "r+b") as file:
            file.write(b"2")
        return filecopy.copy_file(reading, writing)

    monkeypatch.setattr(filecopy, "reflink", lambda *_: False)
    monkeypatch.setattr("virt_local.storage.treecopy.copy_file", busy)
    monkeypatch.setattr(content, "_PAUSE_S", 0.001)
    with SafeDir.open_trusted(target) as into, pytest.raises(InUse, match="freeze or stop"):
        copy_tree(source, into, "copy")
    assert not (target / "copy").exists()


def test_a_copy_that_was_disturbed_once_is_made_again(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = source / "disk.img"
    file.write_bytes(b"1" * 4096)
    settled(source)
    writes = iter([b"2" * 4096])

    def busy_once(reading: int, writing: int) -> bool:
        done = filecopy.copy_file(reading, writing)
        if (text := next(writes, None)) is not None:
            file.write_bytes(text)
        return done

    monkeypatch.setattr(filecopy, "reflink", lambda *_: False)
    monkeypatch.setattr("virt_local.storage.content.copy_file", busy_once)
    with SafeDir.open_trusted(target) as into:
        copy_block(file, into, "copy.img")
    assert (target / "copy.img").read_bytes() == b"2" * 4096


STAMP = (1, 2, 10**18, 10**18)
LATER = 2 * 10**18


@pytest.mark.parametrize(
    ("before", "after", "at_once", "whole"),
    [
        ({"a": STAMP}, {"a": STAMP}, set(), True),
        ({"a": STAMP}, {"a": (1, 2, 10**18, 10**18 + 1)}, set(), False),
        ({"a": STAMP}, {"a": (1, 2, 10**18, 10**18 + 1)}, {"a"}, True),
        ({"a": STAMP, "b": STAMP}, {"a": (2, 2, 1, 1), "b": (2, 2, 1, 1)}, {"a", "b"}, False),
        ({"a": STAMP}, {}, {"a"}, True),
        ({}, {"a": STAMP}, set(), False),
        # Changed within a tick of the look: it may change again without a trace.
        ({"a": (1, 2, LATER - 1, LATER - 1)}, {"a": (1, 2, LATER - 1, LATER - 1)}, set(), False),
    ],
)
def test_what_counts_as_one_instant(
    before: dict[str, still.Stamp], after: dict[str, still.Stamp], at_once: set[str], whole: bool
) -> None:
    assert still.is_whole(still.changed(before, after, LATER), at_once) is whole
