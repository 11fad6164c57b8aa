"""A probe that is started as root becomes the launchers' user before it asks anything.

libvirt's answers hold for the user and the access to KVM with which they were asked for. Launchers get the device from
the device plugin; the probe sees it in the /dev that a privileged container has of its own, with the node's owner and
mode (Debian: for a group only). Opening that node to its own user needs root, and nothing after it does. Where KVM can
not run guests no launcher gets it, so the probe does not see it either: answers given with the device are no good
without it, and each launcher would ask again, for a third of a second.
"""

from __future__ import annotations

import os
import stat

from virt_core.apis.names import LAUNCHER_UID
from virt_launcher.hypervisor.kvm import virtualises

_DEVICE = "/dev/kvm"


def become_launcher(device: str = _DEVICE) -> None:
    """For the main thread, before there are others. Nothing to do for who is not root."""
    if os.getuid() != 0:
        return
    if virtualises():
        open_to_all(device)
    else:
        hide(device)
    os.setgroups([])
    os.setgid(LAUNCHER_UID)
    # From root to another user for good: the kernel takes every capability away.
    os.setuid(LAUNCHER_UID)


def open_to_all(device: str) -> None:
    """Only a device node that is no link; where the node is the host's own and not ours to change, it stays."""
    try:
        found = os.lstat(device)
        if stat.S_ISCHR(found.st_mode):
            os.chmod(device, 0o666)  # noqa: S103 - the container's own node, which nobody else sees
    except OSError:
        return


def hide(device: str, of_the_node: str = "/proc/1/root") -> None:
    """Takes a device node out of the container's own /dev; never the node's own one, nor what is no device."""
    try:
        found, original = os.lstat(device), os.lstat(of_the_node + device)
        if stat.S_ISCHR(found.st_mode) and (found.st_dev, found.st_ino) != (original.st_dev, original.st_ino):
            os.unlink(device)
    except OSError:
        return
