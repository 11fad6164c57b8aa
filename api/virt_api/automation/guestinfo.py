"""The guest agent's answer as a message."""

from __future__ import annotations

import msgspec

from virt_core.apis.base import decode
from virt_core.apis.guestinfo import VirtualMachineInstanceGuestAgentInfo
from virt_core.apis.vmistatus import VirtualMachineInstanceGuestOSInfo
from virt_core.rpc.status import internal
from virt_protos.automation.v1 import automation_pb2 as pb


def to_guest_info(body: bytes) -> pb.GetGuestInfoResponse:
    try:
        info = decode(body, VirtualMachineInstanceGuestAgentInfo)
    except msgspec.MsgspecError as error:
        raise internal(f"the guest agent's answer cannot be read: {error}") from error
    disks = info.fs_info.disks if info.fs_info else []
    return pb.GetGuestInfoResponse(
        agent_version=info.guest_agent_version,
        hostname=info.hostname,
        timezone=info.timezone,
        os=_system(info.os or VirtualMachineInstanceGuestOSInfo()),
        users=[pb.GuestUser(name=u.user_name, domain=u.domain, login_time=u.login_time) for u in info.user_list],
        filesystems=[
            pb.GuestFilesystem(
                disk_name=each.disk_name,
                mount_point=each.mount_point,
                type=each.file_system_type,
                used_bytes=each.used_bytes,
                total_bytes=each.total_bytes,
            )
            for each in disks
        ],
        json=body,
    )


def _system(info: VirtualMachineInstanceGuestOSInfo) -> pb.GuestOS:
    return pb.GuestOS(**{name: getattr(info, name) for name in info.__struct_fields__})
