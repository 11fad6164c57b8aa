"""The devices that Pods ask for as resources: which this node has, and their nodes in a container."""

from __future__ import annotations

import errno
import os
import platform
import re
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from virt_core.apis import names
from virt_core.apis.pods import Container
from virt_core.apis.quantity import parse_int
from virt_local.node.oci.context import ContainerConfigError, Device

if TYPE_CHECKING:
    from virt_local.node.images.root import OciMount

PREFIX = names.RESOURCE_DOMAIN
COUNT = 1000
PATHS = {
    "kvm": "/dev/kvm",
    "tun": "/dev/net/tun",
    "vhost-net": "/dev/vhost-net",
    "vhost-vsock": "/dev/vhost-vsock",
    "userfaultfd": "/dev/userfaultfd",
}
#: Sockets of services on this machine, and where a container finds them: by a mount of their directory.
SOCKETS = {"pr-helper": (names.NODE_SOCKET_RESERVATIONS, names.SOCKET_RESERVATIONS)}
_VIRTUALIZATION_FLAGS = frozenset({"vmx", "svm"})
#: The first QEMU that asks the device; older ones make a system call that a launcher may not make.
_QEMU_WITH_USER_FAULTS = (8, 1)
_QEMU_VERSION = re.compile(r"version (\d+)\.(\d+)")
_QEMU_S = 10.0


def offered(
    cpuinfo: Path = Path("/proc/cpuinfo"), paths: Mapping[str, str] = PATHS, machine: str = ""
) -> dict[str, str]:
    """The resources of this node. A KVM device that opens on a CPU without virtualization still runs no guest."""
    usable = {
        "kvm": lambda: _cpu_virtualizes(cpuinfo, machine or platform.machine()),
        "userfaultfd": lambda: qemu_version(machine or platform.machine()) >= _QEMU_WITH_USER_FAULTS,
    }
    found = (name for name, path in paths.items() if _opens(path) and usable.get(name, lambda: True)())
    sockets = (name for name, (path, _) in SOCKETS.items() if _listens(path))
    return {PREFIX + name: str(COUNT) for name in (*found, *sockets)}


def qemu_version(machine: str) -> tuple[int, int]:
    """Of this machine's QEMU; (0, 0) if it has none that says so."""
    try:
        told = subprocess.run(
            [f"qemu-system-{machine}", "--version"], capture_output=True, text=True, timeout=_QEMU_S, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0, 0
    found = _QEMU_VERSION.search(told)
    return (int(found[1]), int(found[2])) if found is not None else (0, 0)


def _listens(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False


def _opens(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as err:
        return err.errno == errno.EBUSY
    os.close(fd)
    return True


def _cpu_virtualizes(cpuinfo: Path, machine: str) -> bool:
    if machine not in ("x86_64", "i686"):
        return True
    for line in cpuinfo.read_text().splitlines():
        if line.startswith("flags"):
            return bool(_VIRTUALIZATION_FLAGS & set(line.split()))
    return False


def devices_of(container: Container, paths: Mapping[str, str] = PATHS) -> list[Device]:
    return [_device(name, paths) for name in _wanted(container) if name not in SOCKETS]


def socket_mounts(container: Container) -> list[OciMount]:
    """Of the directory, so that a service that starts anew is found again; only to be read."""
    mounts: list[OciMount] = []
    for name in _wanted(container):
        outside, inside = SOCKETS.get(name, ("", ""))
        if not outside:
            continue
        if not _listens(outside):
            raise ContainerConfigError(f"nobody listens for {PREFIX}{name} on this node now")
        place: OciMount = {"destination": os.path.dirname(inside), "type": "bind", "source": os.path.dirname(outside)}
        mounts.append({**place, "options": ["bind", "ro", "nosuid", "nodev", "noexec"]})
    return mounts


def _wanted(container: Container) -> list[str]:
    limits = container.resources.limits if container.resources else {}
    return [
        name.removeprefix(PREFIX) for name, amount in limits.items() if name.startswith(PREFIX) and parse_int(amount)
    ]


def _device(name: str, paths: Mapping[str, str]) -> Device:
    path = paths.get(name, "")
    try:
        status = os.stat(path)
    except OSError as err:
        raise ContainerConfigError(f"this node has no device {PREFIX}{name}") from err
    if not stat.S_ISCHR(status.st_mode):
        raise ContainerConfigError(f"{path} is not a device")
    return Device(path, os.major(status.st_rdev), os.minor(status.st_rdev))
