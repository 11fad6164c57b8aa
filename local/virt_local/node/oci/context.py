"""Everything that a bundle is rendered from. Collected by whoever starts a container; the rendering itself is pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from virt_core.apis.pods import Container, Pod

if TYPE_CHECKING:
    from virt_local.node.images.root import OciMount, Root
    from virt_local.node.users import PodUsers


class ContainerConfigError(ValueError):
    """The container cannot be run as it is written: a sentence for its status."""


@dataclass(frozen=True)
class User:
    uid: int = 0
    gid: int = 0
    groups: tuple[int, ...] = ()


@dataclass(frozen=True)
class Device:
    """A device node of the host that the container gets."""

    path: str
    major: int
    minor: int
    kind: str = "c"


@dataclass(frozen=True)
class BundleContext:
    pod: Pod
    container: Container
    root: Root
    root_path: Path
    user: User
    env: dict[str, str]
    hostname: str
    cgroup: str
    netns: Path | None
    mounts: list[OciMount] = field(default_factory=list)
    devices: list[Device] = field(default_factory=list)
    seccomp: dict[str, Any] | None = None
    unified_cgroups: bool = False
    #: The Pod's own users; None: those of the node.
    users: PodUsers | None = None
