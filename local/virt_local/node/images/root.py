"""What a container's root file system is made of, whatever image it comes from."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from virt_local.node import kernel
from virt_local.node.images.layout import RunConfig
from virt_local.node.layout import remove_tree, shared_directory
from virt_local.node.users import PodUsers, show

#: Roots of containers with users of their own, for all instances: names of containers never meet.
ROOTS = Path("/run/virtpod-roots")

#: A mount of an OCI runtime bundle.
OciMount = dict[str, Any]


@dataclass(frozen=True)
class Root:
    """The lower directory of the overlay, mounts that belong to the image, and how the image wants to be run."""

    image: str
    image_id: str
    lower: Path
    config: RunConfig = field(default_factory=RunConfig)
    mounts: tuple[OciMount, ...] = ()


def read_only_bind(source: Path, destination: str) -> OciMount:
    """With what is mounted below it: a Pod with users of its own may not take that off."""
    return {
        "destination": destination,
        "type": "bind",
        "source": str(source),
        "options": ["rbind", "rro", "rnosuid", "rnodev"],
    }


def mount_overlay(root: Root, bundle: Path, users: PodUsers | None = None) -> Path:
    """A writable view of the image that belongs to one container. Returns where it is mounted."""
    target, upper, work, lower = bundle / "rootfs", bundle / "upper", bundle / "work", root.lower
    for directory in (upper, work):
        shared_directory(directory)
    if users is not None:
        target, lower = _reachable(bundle, users), bundle / "lower"
        show(root.lower, lower, users)
        os.chown(upper, users.base, users.base)
    shared_directory(target)
    kernel.mount("overlay", str(target), "overlay", 0, f"lowerdir={lower},upperdir={upper},workdir={work}")
    return target


def _reachable(bundle: Path, users: PodUsers) -> Path:
    """runc goes there as the Pod's root, who cannot pass our closed directories; and nobody else can pass this one."""
    ROOTS.mkdir(exist_ok=True)
    ROOTS.chmod(0o711)
    own = ROOTS / bundle.name
    own.mkdir(exist_ok=True)
    os.chown(own, 0, users.base)
    own.chmod(0o710)
    return own / "rootfs"


def drop_overlay(bundle: Path) -> None:
    """Takes the view away and what the container wrote into it, and what was mounted to be shown in it. Fine when
    there is none."""
    for place in (ROOTS / bundle.name, bundle):
        kernel.unmount_below(place)
    remove_tree(ROOTS / bundle.name)
    for name in ("rootfs", "upper", "work", "lower", "shown"):
        remove_tree(bundle / name)
