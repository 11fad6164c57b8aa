"""Directories that the guest mounts by their tag. virtiofsd is in a container of its own; QEMU meets it at a socket."""

from __future__ import annotations

from virt_core.apis.names import share_socket
from virt_launcher.convert.context import Context
from virt_launcher.domain.devices import Filesystem
from virt_launcher.domain.domain import Domain
from virt_launcher.errors import InvalidVMIError

_QUEUE = 1024
#: The device's configuration has this much room for it.
_MAX_TAG = 36


def configure_filesystems(context: Context, domain: Domain) -> None:
    volumes = {volume.name for volume in context.vmi.spec.volumes}
    tags: set[str] = set()
    for index, spec in enumerate(context.vmi.spec.domain.devices.filesystems):
        field = f"spec.domain.devices.filesystems[{index}].name"
        if spec.name not in volumes:
            raise InvalidVMIError(field, f"there is no volume {spec.name!r}")
        if len(spec.name.encode()) > _MAX_TAG:
            raise InvalidVMIError(field, f"a tag has at most {_MAX_TAG} bytes")
        if spec.name in tags:
            raise InvalidVMIError(field, f"{spec.name!r} is the tag of another filesystem")
        tags.add(spec.name)
        domain.devices.filesystems.append(_filesystem(spec.name, context.share_sockets))


def _filesystem(tag: str, sockets: str) -> Filesystem:
    return Filesystem(
        type="mount",
        access_mode="passthrough",
        driver="virtiofs",
        queue=_QUEUE,
        socket=share_socket(tag, sockets),
        target=tag,
    )
