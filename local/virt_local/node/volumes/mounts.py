"""A container's volumeMounts as mounts of its bundle, with sub-paths resolved where the Pod cannot trick us."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from virt_core.apis.pods import Container
from virt_core.runtime.files import open_beneath
from virt_local.node import kernel
from virt_local.node.images.root import OciMount
from virt_local.node.oci.context import ContainerConfigError, Device
from virt_local.node.oci.env import expand
from virt_local.node.oci.spec import propagation_option
from virt_local.node.volumes.base import Mounted, VolumeError

_NEW_DIRECTORY_MODE = 0o750


def volume_mounts(
    container: Container, volumes: dict[str, Mounted], env: dict[str, str], subpaths: Path
) -> list[OciMount]:
    """`subpaths` is where the sub-paths of this container are pinned by bind mounts."""
    mounts: list[OciMount] = []
    for index, wish in enumerate(container.volume_mounts):
        volume = volumes.get(wish.name)
        if volume is None:
            raise ContainerConfigError(
                f"container {container.name!r} mounts {wish.name!r}, which is no volume of the Pod"
            )
        sub_path = wish.sub_path or expand(wish.sub_path_expr, env)
        source = volume.path
        if sub_path:
            source = pin_subpath(volume, sub_path, subpaths / wish.name / container.name / str(index))
        options = ["rbind", propagation_option(wish.mount_propagation)]
        options.append("ro" if wish.read_only or volume.read_only else "rw")
        if volume.no_exec:
            options += ["noexec", "nosuid", "nodev"]
        mounts.append({"destination": wish.mount_path, "type": "bind", "source": str(source), "options": options})
    return mounts


def block_devices(container: Container, volumes: dict[str, Mounted]) -> list[Device]:
    """The volumeDevices: volumes that are block devices, as such."""
    found = []
    for wish in container.volume_devices:
        volume = volumes.get(wish.name)
        if volume is None:
            raise ContainerConfigError(
                f"container {container.name!r} uses {wish.name!r}, which is no volume of the Pod"
            )
        status = os.stat(volume.path)
        if not stat.S_ISBLK(status.st_mode):
            raise ContainerConfigError(f"the volume {wish.name!r} is not a block device")
        found.append(Device(wish.device_path, os.major(status.st_rdev), os.minor(status.st_rdev), "b"))
    return found


def pin_subpath(volume: Mounted, sub_path: str, point: Path) -> Path:
    """Opens the sub-path without following a link and binds what was opened: later tricks with names change nothing."""
    fd = _open(volume, sub_path)
    try:
        kernel.unmount(point)
        _make_point(point, is_directory=stat.S_ISDIR(os.fstat(fd).st_mode))
        kernel.bind(f"/proc/self/fd/{fd}", str(point))
    finally:
        os.close(fd)
    return point


def _open(volume: Mounted, sub_path: str) -> int:
    root = os.open(volume.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not volume.read_only:
            _make_directories(root, sub_path)
        return open_beneath(root, _through_data(volume, root, sub_path), os.O_PATH)
    except OSError as err:
        raise VolumeError(f"the sub-path {sub_path!r} cannot be used: {err.strerror}") from err
    finally:
        os.close(root)


def _through_data(volume: Mounted, root: int, sub_path: str) -> str:
    """In a volume that we write, the visible names are our own links through `..data`: go where they lead."""
    if not volume.read_only:
        return sub_path
    try:
        return f"{os.readlink('..data', dir_fd=root)}/{sub_path}"
    except OSError:
        return sub_path


def _make_directories(root: int, sub_path: str) -> None:
    """Makes what is missing, step by step, each opened beneath the last."""
    done = ""
    for part in Path(sub_path).parts:
        parent = open_beneath(root, done or ".", os.O_PATH | os.O_DIRECTORY)
        try:
            os.mkdir(part, _NEW_DIRECTORY_MODE, dir_fd=parent)
            _hand_to_group(parent, part)
        except FileExistsError:
            pass
        finally:
            os.close(parent)
        done = f"{done}/{part}" if done else part
        if not stat.S_ISDIR(_mode(root, done)):
            return


def _hand_to_group(parent: int, name: str) -> None:
    """A new directory takes over owner and mode from the one around it, so that the Pod's user can use it."""
    around = os.fstat(parent)
    fd = open_beneath(parent, name, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fchown(fd, around.st_uid, around.st_gid)
        os.fchmod(fd, stat.S_IMODE(around.st_mode))
    finally:
        os.close(fd)


def _mode(root: int, path: str) -> int:
    fd = open_beneath(root, path, os.O_PATH)
    try:
        return os.fstat(fd).st_mode
    finally:
        os.close(fd)


def _make_point(point: Path, *, is_directory: bool) -> None:
    point.parent.mkdir(parents=True, exist_ok=True)
    if is_directory:
        point.mkdir(exist_ok=True)
    else:
        point.touch()
