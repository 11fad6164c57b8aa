"""Brings the volumes of an attachment Pod into the Pod of a running launcher, and takes them out again.

Nothing of this goes by a path that a Pod could change. The source is opened beneath the root of a process of the
attachment Pod and cloned there. The place in the launcher's Pod is a directory that belongs to us, so that the launcher
can put nothing there; it is opened from the node's side and, in the launcher's own mount namespace, recognized by what
it is. The mount lives in that namespace alone: nobody else sees it, it goes with the launcher, and a restart of ours
finds it again. So there is no record to keep and none that could be wrong.
"""

from __future__ import annotations

import errno
import os
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from virt_core.apis import names
from virt_core.runtime import mounts
from virt_core.runtime.files import open_beneath
from virt_core.runtime.logs import get_logger
from virt_handler.decisions.hotplug import Plugged
from virt_handler.node.devices.units import Host
from virt_handler.pods import device_cgroups, device_nodes, isolation
from virt_handler.pods.files import PodFiles, UnsafeFileError, checked_name
from virt_handler.pods.launchers import Launcher

log = get_logger(__name__)

T = TypeVar("T")

_PATH = os.O_PATH | os.O_CLOEXEC
_LOOK = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class NotThereError(OSError):
    """The attachment Pod has no process that shows the volume: it has just begun, or has ended."""


class Plugging:
    def __init__(self, files: PodFiles, host: Host) -> None:
        self._files, self._host = files, host

    def mounted(self, pod_uid: str, launcher: Launcher) -> frozenset[str]:
        """The volumes that are mounted in the launcher's Pod by us."""
        with self._place(pod_uid, make=False) as place:
            if place is None:
                return frozenset()
            points = {name: _identity(place, name) for name in os.listdir(place)}
            return self._inside(
                launcher, pod_uid, place, lambda there: frozenset(n for n in points if _identity(there, n) != points[n])
            )

    def mount(self, pod_uid: str, launcher: Launcher, volume: Plugged) -> None:
        """Raises OSError; NotThereError when it may work in a moment."""
        name = checked_name(volume.name)
        tree = self._source(volume)
        try:
            if volume.block:
                self._give(tree, launcher)
            else:
                _translate(tree, launcher)
            with self._place(pod_uid, make=True) as place:
                assert place is not None
                _make_point(place, name, block=volume.block)
                point = _identity(place, name)
                self._inside(launcher, pod_uid, place, lambda there: _put(tree, there, name, point))
        finally:
            os.close(tree)
        log.info("mounted a volume into a launcher", pod=pod_uid, volume=name, source=volume.pod_uid)

    def unmount(self, pod_uid: str, launcher: Launcher, name: str) -> None:
        """Raises OSError."""
        with self._place(pod_uid, make=False) as place:
            if place is None:
                return
            point = _identity(place, checked_name(name))
            device = self._inside(launcher, pod_uid, place, lambda there: _take(there, name, point))
            if device:
                device_cgroups.deny(launcher.pid, device, self._host)
            _remove_point(place, name)
        log.info("took a volume out of a launcher", pod=pod_uid, volume=name)

    def _source(self, volume: Plugged) -> int:
        """A clone of the volume as the attachment Pod has it."""
        path = (names.attachment_device if volume.block else names.attachment_directory)(checked_name(volume.name))
        is_fit = stat.S_ISBLK if volume.block else stat.S_ISDIR
        for pid in isolation.pod_pids(volume.pod_uid):
            with _mount_namespace(pid) as namespace:
                # Asked after the open: the number may have gone to another process before it.
                if namespace is None or isolation.pod_of(pid) != volume.pod_uid:
                    continue
                try:
                    return mounts.in_namespace(namespace, lambda: _clone(path, is_fit))
                except FileNotFoundError:
                    continue  # The Pod's sandbox, which has no volumes.
        raise NotThereError(errno.ENOENT, f"no process of the attachment Pod {volume.pod_uid} has it", path)

    def _give(self, tree: int, launcher: Launcher) -> None:
        """The node of the device belongs to the attachment Pod's container; its owner may be the launcher's user."""
        found = os.fstat(tree)
        if found.st_dev == os.stat(self._host.path("/dev")).st_dev:
            raise UnsafeFileError(errno.EPERM, "the device of the attachment Pod is the node's own")
        user = isolation.node_id(launcher.pid, names.LAUNCHER_UID)
        group = isolation.node_id(launcher.pid, names.LAUNCHER_GID, "gid")
        device_nodes.chown(tree, user, group, "the block device")
        device_cgroups.allow(launcher.pid, found.st_rdev, self._host)

    @contextmanager
    def _place(self, pod_uid: str, *, make: bool) -> Iterator[int | None]:
        """Our directory in the launcher's private volume, from the node's side. None: there is none."""
        volume = self._files.open_volume(pod_uid, names.VOLUME_PRIVATE)
        try:
            if make:
                _make_directory(volume, names.DIRECTORY_HOTPLUG)
            place = _open_own(volume, names.DIRECTORY_HOTPLUG)
        finally:
            os.close(volume)
        try:
            yield place
        finally:
            if place is not None:
                os.close(place)

    def _inside(self, launcher: Launcher, pod_uid: str, place: int, body: Callable[[int], T]) -> T:
        """Runs `body` with the same directory as the launcher has it."""
        expected = _identity(place)
        path = f"{names.PATH_PRIVATE}/{names.DIRECTORY_HOTPLUG}"

        def entered() -> T:
            # The way there is the image's. Where it leads is checked.
            there = os.open(path, _PATH | os.O_DIRECTORY)
            try:
                if _identity(there) != expected:
                    raise UnsafeFileError(errno.EPERM, f"{path} of Pod {pod_uid} is not the directory that we made")
                return body(there)
            finally:
                os.close(there)

        with _mount_namespace(launcher.pid) as namespace:
            signal.pidfd_send_signal(launcher.pidfd, 0)
            if namespace is None:
                raise ProcessLookupError(errno.ESRCH, "the launcher has ended, or shares the node's mounts")
            return mounts.in_namespace(namespace, entered)


@contextmanager
def _mount_namespace(pid: int) -> Iterator[int | None]:
    """None: it has ended, or its mounts are our own."""
    try:
        namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError):
        yield None
        return
    try:
        own = os.stat("/proc/self/ns/mnt").st_ino
        yield None if os.fstat(namespace).st_ino == own else namespace
    finally:
        os.close(namespace)


def _identity(directory: int, name: str = "") -> tuple[int, int]:
    """Of a directory, or of what a name in it leads to; a link is itself. A mount there shows what is mounted."""
    if not name:
        found = os.fstat(directory)
    else:
        fd = open_beneath(directory, name, _PATH | os.O_NOFOLLOW)
        found = os.fstat(fd)
        os.close(fd)
    return found.st_dev, found.st_ino


def _clone(path: str, is_fit: Callable[[int], bool]) -> int:
    """In the attachment Pod's namespace."""
    fd = open_beneath("/", path.lstrip("/"), _PATH)
    try:
        if not is_fit(os.fstat(fd).st_mode):
            raise UnsafeFileError(errno.EPERM, f"{path} of the attachment Pod is another kind of file")
        return mounts.clone(fd)
    finally:
        os.close(fd)


def _put(tree: int, there: int, name: str, point: tuple[int, int]) -> bool:
    """In the launcher's namespace. False: it is there already."""
    target = open_beneath(there, name, _PATH | os.O_NOFOLLOW)
    try:
        found = os.fstat(target)
        if (found.st_dev, found.st_ino) != point:
            return False
        mounts.put(tree, target)
        return True
    finally:
        os.close(target)


def _take(there: int, name: str, point: tuple[int, int]) -> int:
    """In the launcher's namespace. The number of the device that was mounted, or 0."""
    target = open_beneath(there, name, _PATH | os.O_NOFOLLOW)
    try:
        found = os.fstat(target)
    finally:
        os.close(target)
    if (found.st_dev, found.st_ino) == point:
        return 0
    mounts.take_away(there, name)
    return found.st_rdev if stat.S_ISBLK(found.st_mode) else 0


def _translate(tree: int, launcher: Launcher) -> None:
    """Where the launcher has users of its own it shall find the same owners as in any other Pod."""
    userns = os.open(f"/proc/{launcher.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    try:
        signal.pidfd_send_signal(launcher.pidfd, 0)
        if os.fstat(userns).st_ino != os.stat("/proc/self/ns/user").st_ino:
            mounts.translate(tree, userns)
    finally:
        os.close(userns)


def _make_directory(parent: int, name: str) -> None:
    try:
        os.mkdir(name, 0o700, dir_fd=parent)
    except FileExistsError:
        return
    fd = open_beneath(parent, name, _LOOK)
    try:
        os.fchmod(fd, 0o755)
    finally:
        os.close(fd)


def _open_own(parent: int, name: str) -> int | None:
    """A directory in which nobody but us can have put anything."""
    try:
        fd = open_beneath(parent, name, _LOOK)
    except FileNotFoundError:
        return None
    found = os.fstat(fd)
    if found.st_uid != os.geteuid() or found.st_mode & _OTHERS_WRITE:
        os.close(fd)
        raise UnsafeFileError(errno.EPERM, f"{name} in the launcher's volume was not made by virt-handler")
    return fd


def _make_point(place: int, name: str, *, block: bool) -> None:
    if not block:
        _make_directory(place, name)
        return
    try:
        os.close(open_beneath(place, name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return


def _remove_point(place: int, name: str) -> None:
    try:
        os.rmdir(name, dir_fd=place)
    except NotADirectoryError:
        os.unlink(name, dir_fd=place)
