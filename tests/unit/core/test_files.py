"""The safe file API against a volume whose owner is hostile."""

from __future__ import annotations

import errno
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from framework.waiting import eventually

from virt_core.runtime.files import (
    SafeDir,
    TooLarge,
    connectable_socket,
    open_beneath,
    private_directory,
    read_beneath,
    socket_path,
)
from virt_core.runtime.inotify import Inotify, wait_for_entry
from virt_core.runtime.procs import ProcessGone, ProcessId, cgroup_paths, children, start_time


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[SafeDir]:
    (tmp_path / "secret").write_text("root only")
    (tmp_path / "volume/sub").mkdir(parents=True)
    (tmp_path / "volume/sub/file").write_text("hello")
    with SafeDir.open_trusted(tmp_path / "volume") as directory:
        yield directory


def test_reads_what_is_beneath(volume: SafeDir) -> None:
    assert volume.read("sub/file") == b"hello"
    assert volume.read("sub/../sub/file") == b"hello"
    assert volume.listdir() == ["sub"]
    assert volume.listdir("sub") == ["file"]
    assert volume.exists("sub/file")
    assert not volume.exists("sub/other")


@pytest.mark.parametrize("path", ["../secret", "sub/../../secret", "/etc/passwd"])
def test_nothing_outside(volume: SafeDir, path: str) -> None:
    with pytest.raises(OSError, match=r"Errno") as caught:
        volume.read(path)
    assert caught.value.errno == errno.EXDEV


@pytest.mark.parametrize("target", ["../secret", "sub/file", "/etc/passwd", "/proc/self/root/etc/passwd"])
def test_no_symbolic_link_at_the_end(volume: SafeDir, target: str) -> None:
    os.symlink(target, Path(volume.name, "link"))
    with pytest.raises(OSError, match=r"Errno") as caught:
        volume.read("link")
    assert caught.value.errno == errno.ELOOP


def test_no_symbolic_link_on_the_way(volume: SafeDir, tmp_path: Path) -> None:
    os.symlink(tmp_path, Path(volume.name, "way"))
    for action in (volume.read, volume.stat, volume.unlink, volume.subdir, volume.connectable_socket):
        with pytest.raises(OSError, match=r"Errno") as caught:
            action("way/secret")
        assert caught.value.errno == errno.ELOOP
    with pytest.raises(OSError, match=r"Errno 40"):
        volume.write_atomic("way/new", b"x")
    with pytest.raises(OSError, match=r"Errno 40"):
        volume.mkdir("way/new")
    assert (tmp_path / "secret").exists()
    assert not (tmp_path / "new").exists()


def test_unlink_takes_the_link_itself(volume: SafeDir, tmp_path: Path) -> None:
    os.symlink(tmp_path / "secret", Path(volume.name, "link"))
    volume.unlink("link")
    volume.unlink("link")
    assert (tmp_path / "secret").exists()
    with pytest.raises(FileNotFoundError):
        volume.unlink("link", missing_ok=False)


@pytest.mark.parametrize("path", ["", ".", "..", "sub/..", "/"])
def test_an_entry_needs_a_name(volume: SafeDir, path: str) -> None:
    with pytest.raises(ValueError, match="names no entry"):
        volume.unlink(path)


def test_a_large_file_is_refused(volume: SafeDir) -> None:
    volume.write_atomic("big", b"x" * 1000)
    assert len(volume.read("big", 1000)) == 1000
    with pytest.raises(TooLarge, match="999 bytes"):
        volume.read("big", 999)


def test_a_fifo_does_not_block(volume: SafeDir) -> None:
    os.mkfifo(Path(volume.name, "fifo"))
    with pytest.raises(OSError, match="not a regular file"):
        volume.read("fifo")


def test_atomic_write_replaces_and_leaves_nothing_else(volume: SafeDir) -> None:
    volume.write_atomic("sub/file", b"new", 0o640)
    assert volume.read("sub/file") == b"new"
    assert volume.stat("sub/file").st_mode & 0o777 == 0o640
    assert volume.listdir("sub") == ["file"]


def test_a_failed_write_leaves_nothing(volume: SafeDir) -> None:
    Path(volume.name, "sub/dir").mkdir()
    with pytest.raises(IsADirectoryError):
        volume.write_atomic("sub/dir", b"x")
    assert volume.listdir("sub") == ["dir", "file"]


def test_rename_and_mkdir(volume: SafeDir) -> None:
    with volume.mkdir("sub/new") as made:
        made.write_atomic("x", b"1", sync=False)
    volume.rename("sub/new/x", "moved")
    assert volume.read("moved") == b"1"
    with pytest.raises(FileExistsError):
        volume.mkdir("sub/new", exist_ok=False)


def test_open_beneath_a_path(volume: SafeDir) -> None:
    assert read_beneath(volume.name, "sub/file") == b"hello"
    with pytest.raises(ValueError, match="zero byte"):
        open_beneath(volume.fd, "a\0b")


def test_socket_is_reached_by_its_inode(volume: SafeDir) -> None:
    """Connecting goes to the socket that was checked, also after somebody has swapped the name."""
    path = Path(volume.name, "sub/s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        fd = volume.connectable_socket("sub/s")
        path.rename(Path(volume.name, "elsewhere"))
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(socket_path(fd))
        os.close(fd)


def test_what_is_no_socket_is_refused(volume: SafeDir) -> None:
    with pytest.raises(OSError, match="not a socket"):
        connectable_socket(volume.fd, "sub/file")


def test_wait_for_entry_sees_old_and_new(volume: SafeDir) -> None:
    assert wait_for_entry(volume.fd, "sub", 5)
    outcome: list[bool] = []
    thread = threading.Thread(target=lambda: outcome.append(wait_for_entry(volume.fd, "late", 10)))
    thread.start()
    Path(volume.name, "other").touch()
    Path(volume.name, "other").rename(Path(volume.name, "late"))
    thread.join(5)
    assert outcome == [True]


def test_wait_for_entry_ends_by_deadline_and_by_stop(volume: SafeDir) -> None:
    assert not wait_for_entry(volume.fd, "never", 0.01)
    read_end, write_end = os.pipe()
    os.write(write_end, b"x")
    assert not wait_for_entry(volume.fd, "never", 30, read_end)
    os.close(read_end)
    os.close(write_end)


def test_inotify_names_the_entries(volume: SafeDir) -> None:
    with Inotify() as inotify:
        watch = inotify.watch_fd(volume.fd)
        assert inotify.wait(0) == []
        Path(volume.name, "a").touch()
        Path(volume.name, "b").touch()
        events = inotify.wait(5)
        assert [(e.watch, e.name, e.overflow) for e in events] == [(watch, "a", False), (watch, "b", False)]
        inotify.unwatch(watch)
        with pytest.raises(FileNotFoundError):
            inotify.watch("/no/such/place")


def test_a_process_is_its_pid_and_start_time() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    me = ProcessId.of(child.pid)
    assert me.alive()
    assert child.pid in children(os.getpid())
    assert cgroup_paths(child.pid)
    other = ProcessId(child.pid, me.start_time + 1)
    assert not other.alive()
    with pytest.raises(ProcessGone, match="another process"):
        other.signal()
    assert not me.wait(0.01)
    me.signal()
    assert me.wait(5)
    eventually(lambda: not me.alive())
    child.communicate(timeout=5)
    with pytest.raises(ProcessGone):
        start_time(child.pid)
    with pytest.raises(ProcessGone):
        me.signal()


def test_a_private_directory_is_closed_whatever_the_umask_says(tmp_path: Path) -> None:
    """virt-handler runs with umask 0 for its sockets; a link planted in an open directory of its own was followed."""
    before = os.umask(0)
    try:
        private_directory(str(tmp_path / "a" / "b"))
    finally:
        os.umask(before)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "a/b")] == [0o700, 0o700]
    (tmp_path / "a" / "b").chmod(0o777)
    private_directory(str(tmp_path / "a" / "b"))
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700


def test_a_private_directory_is_no_link(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "theirs")
    with pytest.raises(OSError, match="link"):
        private_directory(str(tmp_path / "link"))


def test_a_private_directory_stands_where_nobody_can_replace_it(tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    with pytest.raises(PermissionError, match="everybody may write") as caught:
        private_directory(str(open_to_all / "a" / "b"))
    assert caught.value.filename == str(open_to_all)
    assert not (open_to_all / "a").exists()
    (tmp_path / "link").symlink_to(open_to_all)
    with pytest.raises(PermissionError, match="everybody may write"):
        private_directory(str(tmp_path / "link" / "a"))
    open_to_all.chmod(0o1777)
    private_directory(str(open_to_all / "a" / "b"))
