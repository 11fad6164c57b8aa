"""Mounts and devices for a container whose users are its own: each mount translates owners, devices come as mounts."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from virt_local.node import kernel
from virt_local.node.images.root import OciMount
from virt_local.node.oci.context import Device
from virt_local.node.users import PodUsers, show

#: In the container's own bundle; taken away with it.
PLACE = "shown"
_FLAGS = {
    "nosuid": os.ST_NOSUID,
    "nodev": os.ST_NODEV,
    "noexec": os.ST_NOEXEC,
    "noatime": os.ST_NOATIME,
    "nodiratime": os.ST_NODIRATIME,
    "relatime": os.ST_RELATIME,
}
_KINDS = {"c": stat.S_IFCHR, "b": stat.S_IFBLK}


def show_mounts(mounts: list[OciMount], bundle: Path, users: PodUsers) -> list[OciMount]:
    """The same mounts, from places where the owners are translated. Raises OSError for a file system that cannot."""
    shown = []
    for number, mount in enumerate(mounts):
        target = bundle / PLACE / str(number)
        show(Path(mount["source"]), target, users)
        shown.append(with_flags({**mount, "source": str(target)}))
    return shown


def with_flags(mount: OciMount) -> OciMount:
    """With the flags that its source has: in a user namespace nobody may take them away, also not by omission."""
    found = os.statvfs(mount["source"]).f_flag
    return {**mount, "options": [*mount["options"], *(name for name, flag in _FLAGS.items() if found & flag)]}


def device_mounts(devices: list[Device], bundle: Path) -> list[OciMount]:
    """Nodes of our own making, which every user of the container may open: the device cgroup says which it may use."""
    if not devices:
        return []
    place = bundle / PLACE / "dev"
    place.mkdir(parents=True, exist_ok=True)
    kernel.mount("tmpfs", str(place), "tmpfs", kernel.MS_NOSUID | kernel.MS_NOEXEC, "mode=0755,size=64k")
    return [_device_mount(device, place / str(number)) for number, device in enumerate(devices)]


def _device_mount(device: Device, node: Path) -> OciMount:
    os.mknod(node, 0o600 | _KINDS[device.kind], os.makedev(device.major, device.minor))
    node.chmod(0o666)
    options = ["bind", "rw", "nosuid", "noexec"]
    return {"destination": device.path, "type": "bind", "source": str(node), "options": options}
