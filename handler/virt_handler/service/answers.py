"""What a launcher says about its guest, cut to size: neither of the two is trusted."""

from __future__ import annotations

from collections.abc import Sequence

from virt_core.rpc.status import internal
from virt_handler.decisions.limits import MAX_WORD, clip
from virt_protos.launcher.v1 import launcher_pb2 as pb

MAX_ROWS = 256
MAX_DISKS = 16
MAX_PICTURE = 8 << 20
#: Certificates and measurements are a few kilobytes.
MAX_BLOB = 64 << 10
_PNG = b"\x89PNG\r\n\x1a\n"


def picture(image: bytes) -> bytes:
    """Raises RpcFailure for anything but a PNG: a browser might show it."""
    if not image.startswith(_PNG) or len(image) > MAX_PICTURE:
        raise internal("the launcher's picture of the screen is not a PNG")
    return image


def sev_info(found: pb.GetSevInfoResponse) -> pb.GetSevInfoResponse:
    return pb.GetSevInfoResponse(pdh=clip(found.pdh, MAX_BLOB), cert_chain=clip(found.cert_chain, MAX_BLOB))


def measurement(found: pb.GetLaunchMeasurementResponse) -> pb.GetLaunchMeasurementResponse:
    cut = pb.GetLaunchMeasurementResponse()
    cut.CopyFrom(found)
    cut.measurement, cut.loader_sha = clip(found.measurement, MAX_BLOB), clip(found.loader_sha, MAX_WORD)
    return cut


def users(found: Sequence[pb.GuestUser]) -> list[pb.GuestUser]:
    return [
        pb.GuestUser(name=clip(user.name, MAX_WORD), domain=clip(user.domain, MAX_WORD), login_time=user.login_time)
        for user in found[:MAX_ROWS]
    ]


def filesystems(found: Sequence[pb.GuestFilesystem]) -> list[pb.GuestFilesystem]:
    return [_filesystem(filesystem) for filesystem in found[:MAX_ROWS]]


def _filesystem(given: pb.GuestFilesystem) -> pb.GuestFilesystem:
    return pb.GuestFilesystem(
        disk_name=clip(given.disk_name, MAX_WORD),
        mount_point=clip(given.mount_point),
        type=clip(given.type, MAX_WORD),
        used_bytes=given.used_bytes,
        total_bytes=given.total_bytes,
        disks=[
            pb.GuestFilesystemDisk(serial=clip(disk.serial, MAX_WORD), bus_type=clip(disk.bus_type, MAX_WORD))
            for disk in given.disks[:MAX_DISKS]
        ],
    )
