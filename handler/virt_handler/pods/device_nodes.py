"""Gives a launcher the device nodes that its container got: a runtime makes them with the node's owner and mode.

The launcher is an ordinary user, and on many nodes /dev/net/tun or /dev/kvm belong to root alone. A container has
device nodes of its own; only those change hands, never the node's. Each is opened beneath the launcher's root without
following links, compared with the node's device of the same name, and changed by its descriptor.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import signal
import stat
from collections.abc import Callable, Iterable, Iterator

from virt_core.apis import names
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.runtime.files import SafeDir, open_beneath
from virt_core.runtime.logs import get_logger
from virt_handler.node.devices.units import Host
from virt_handler.pods import isolation

log = get_logger(__name__)

DEVICES = ("dev/kvm", "dev/net/tun", "dev/vhost-net", "dev/vhost-vsock", "dev/sev", "dev/userfaultfd")
#: Directories of devices, and how deep they go.
TREES = (("dev/vfio", 1), ("dev/bus/usb", 2))
#: More devices than any machine has.
_MAX_ENTRIES = 4096
_AT_EMPTY_PATH = 0x1000

_VOLUME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")

_libc = ctypes.CDLL(None, use_errno=True)

Fit = Callable[[os.stat_result, str, Host], bool]


def hand_over(
    pid: int,
    pidfd: int,
    host: Host,
    *,
    volumes: Iterable[str] = (),
) -> int:
    """Lets the launcher's user open its devices, and the volumes that are block devices, by their names. Returns how
    many changed hands. Raises OSError."""
    with isolation.open_root(pid) as root:
        if root is None:
            return 0
        # Asked after the open: the number cannot have gone to another process before it.
        signal.pidfd_send_signal(pidfd, 0)
        to = (isolation.node_id(pid, names.LAUNCHER_UID), isolation.node_id(pid, names.LAUNCHER_GID, "gid"))
        given = sum(_give(root, path, to, _is_the_containers_own, host) for path in _candidates(root))
        wanted = [f"dev/{name}" for name in volumes if _VOLUME.fullmatch(name)]
        return given + sum(_give(root, path, to, _is_a_volume, host) for path in wanted)


def block_volumes(vmi: VirtualMachineInstance) -> list[str]:
    """The volumes that are block devices in the launcher's container."""
    known = (status for status in vmi.status.volume_status if status.hotplug_volume is None)
    claims = ((status.name, status.persistent_volume_claim_info) for status in known)
    return [name for name, claim in claims if claim is not None and claim.volume_mode == names.VOLUME_MODE_BLOCK]


def _candidates(root: int) -> Iterator[str]:
    yield from DEVICES
    for tree, depth in TREES:
        yield from _leaves(root, tree, depth)


def _leaves(root: int, directory: str, depth: int) -> Iterator[str]:
    try:
        entries = SafeDir(root).listdir(directory)[:_MAX_ENTRIES]
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        path = f"{directory}/{entry}"
        if depth == 1:
            yield path
        else:
            yield from _leaves(root, path, depth - 1)


def _give(root: int, path: str, to: tuple[int, int], is_fit: Fit, host: Host) -> bool:
    try:
        fd = open_beneath(root, path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        found = os.fstat(fd)
        if (found.st_uid, found.st_gid) == to or not is_fit(found, path, host):
            return False
        chown(fd, *to, path)
        log.debug("gave a device to the launcher", path=path)
        return True
    finally:
        os.close(fd)


def _is_the_containers_own(found: os.stat_result, path: str, host: Host) -> bool:
    """The same device as the node's of that name, but another node of the file system."""
    theirs = host.device("/" + path)
    if theirs is None or not stat.S_ISCHR(found.st_mode) or found.st_rdev != theirs.st_rdev:
        return False
    return (found.st_dev, found.st_ino) != (theirs.st_dev, theirs.st_ino)


def _is_a_volume(found: os.stat_result, _path: str, host: Host) -> bool:
    """A block device that the runtime made in the container's own /dev, not one of the node's nodes."""
    return stat.S_ISBLK(found.st_mode) and found.st_dev != os.stat(host.path("/dev")).st_dev


def chown(fd: int, uid: int, gid: int, path: str) -> None:
    """By a descriptor that was opened with O_PATH, which fchown refuses."""
    if _libc.fchownat(fd, b"", uid, gid, _AT_EMPTY_PATH) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)


def explain(error: OSError) -> str:
    """For the VMI: what stands in the way, in a sentence."""
    if error.errno in (errno.ELOOP, errno.EXDEV):
        return f"{error.filename} in the launcher Pod leads over a symbolic link, so the launcher was not given it"
    return f"the devices could not be given to the launcher: {error}"
