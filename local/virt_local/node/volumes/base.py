"""What every kind of volume has in common."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from virt_core.apis import names
from virt_core.apis.auth import TokenRequestSpec, TokenRequestStatus
from virt_core.apis.podnetworks import NetworkAttachmentDefinition
from virt_core.apis.pods import Pod
from virt_core.apis.quantity import parse_bytes
from virt_core.apis.storage import PersistentVolume, PersistentVolumeClaim
from virt_local.node.oci.env import ConfigSource

EMPTY_DIR_MODE = 0o777


class VolumeError(RuntimeError):
    """A volume cannot be made now; the text says which and what is missing. Tried again later."""


class ObjectSource(ConfigSource, Protocol):
    """The objects that volumes and networks are made from; None when there is none of that name."""

    def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None: ...

    def volume(self, name: str) -> PersistentVolume | None: ...

    def network(self, namespace: str, name: str) -> NetworkAttachmentDefinition | None: ...

    def token(self, namespace: str, account: str, request: TokenRequestSpec) -> TokenRequestStatus: ...


@dataclass(frozen=True)
class Mounted:
    """A volume as containers see it: a path of the node."""

    path: Path
    read_only: bool = False
    no_exec: bool = False


def fs_group(pod: Pod) -> int | None:
    context = pod.spec.security_context
    return context.fs_group if context else None


def huge_pages(pod: Pod) -> tuple[int, int]:
    """The bytes of a page, and of all that the Pod may have. Raises VolumeError unless it asks for one size."""
    asked: dict[str, int] = {}
    for container in pod.spec.containers:
        for name, amount in (container.resources.limits if container.resources else {}).items():
            if name.startswith(names.RESOURCE_PREFIX_HUGE_PAGES):
                asked[name] = asked.get(name, 0) + parse_bytes(amount)
    if len(asked) != 1:
        raise VolumeError(f"the medium {names.MEDIUM_HUGE_PAGES!r} needs a limit of one size of huge pages in the Pod")
    ((name, total),) = asked.items()
    return parse_bytes(name.removeprefix(names.RESOURCE_PREFIX_HUGE_PAGES)), total


def make_owned_directory(path: Path, mode: int, group: int | None) -> bool:
    """Makes a directory of ours for the Pod's group; says whether it is new. What exists keeps its owner and mode."""
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        return False
    give_to_group(path, mode, group)
    return True


def give_to_group(path: Path, mode: int, group: int | None) -> None:
    """With a group: its members may write, and what they make stays the group's. Only for what we just made."""
    if group is not None:
        os.chown(path, -1, group)
        mode |= 0o2070
    path.chmod(mode)
