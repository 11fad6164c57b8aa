"""What a container's root file system is made of, whatever image it comes from."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from virt_local.node import kernel
from virt_local.node.images.layout import RunConfig
from virt_local.node.layout import remove_tree, shared_directory

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
    return {
        "destination": destination,
        "type": "bind",
        "source": str(source),
        "options": ["bind", "ro", "nosuid", "nodev"],
    }


def mount_overlay(root: Root, bundle: Path) -> Path:
    """A writable view of the image that belongs to one container. Returns where it is mounted."""
    target, upper, work = bundle / "rootfs", bundle / "upper", bundle / "work"
    for directory in (target, upper, work):
        shared_directory(directory)
    kernel.mount("overlay", str(target), "overlay", 0, f"lowerdir={root.lower},upperdir={upper},workdir={work}")
    return target


def drop_overlay(bundle: Path) -> None:
    """Takes the view away and what the container wrote into it. Fine when there is none."""
    kernel.unmount(bundle / "rootfs")
    for name in ("rootfs", "upper", "work"):
        remove_tree(bundle / name)
