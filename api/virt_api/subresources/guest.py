"""Subresources that tell about the guest: its agent's answers, and a picture of its screen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from aiohttp import web

from virt_api.problems import Problem
from virt_api.subresources import checks
from virt_api.subresources.actions import vmi_ref
from virt_api.subresources.call import Call, json_response
from virt_core.apis.base import to_plain
from virt_core.apis.guestinfo import (
    VirtualMachineInstanceFileSystemInfo,
    VirtualMachineInstanceFileSystemList,
    VirtualMachineInstanceGuestAgentInfo,
    VirtualMachineInstanceGuestOSUser,
    VirtualMachineInstanceGuestOSUserList,
)
from virt_core.apis.vmi import VirtualMachineInstance, VirtualMachineInstanceFileSystem
from virt_core.apis.vmi import VirtualMachineInstanceFileSystemDisk as FileSystemDisk
from virt_core.apis.vmistatus import VirtualMachineInstanceGuestOSInfo
from virt_core.runtime.logs import get_logger
from virt_protos.node.v1 import node_pb2

log = get_logger(__name__)


async def os_info(call: Call) -> web.Response:
    """With users and filesystems, if the agent tells them: it may know the one command and not the other."""
    vmi = await call.vmi()
    checks.guest_agent(vmi)
    answer = await _ask(call, vmi, "GetGuestInfo")
    users, filesystems = await asyncio.gather(
        _if_it_tells(_ask(call, vmi, "GetUsers")), _if_it_tells(_ask(call, vmi, "GetFilesystems"))
    )
    info = _agent_info(answer.info)
    info.user_list = [_user(found) for found in users.users] if users is not None else []
    if filesystems is not None:
        info.fs_info = VirtualMachineInstanceFileSystemInfo(
            disks=[_filesystem(found) for found in filesystems.filesystems]
        )
    return _kinded(info)


async def _if_it_tells(question: Awaitable[Any]) -> Any:
    try:
        return await question
    except Problem as problem:
        log.info("the guest agent does not tell everything", error=problem.message)
        return None


async def user_list(call: Call) -> web.Response:
    answer = await _ask_agent(call, "GetUsers")
    return _kinded(VirtualMachineInstanceGuestOSUserList(items=[_user(found) for found in answer.users]))


async def filesystem_list(call: Call) -> web.Response:
    answer = await _ask_agent(call, "GetFilesystems")
    return _kinded(VirtualMachineInstanceFileSystemList(items=[_filesystem(found) for found in answer.filesystems]))


async def screenshot(call: Call) -> web.Response:
    """PNG. `moveCursor`, which is to wake a blank screen, is accepted and has no effect, as in KubeVirt."""
    vmi = await call.vmi()
    checks.vnc(vmi)
    answer = await _ask(call, vmi, "Screenshot")
    return web.Response(body=answer.image, content_type="image/png", headers={"X-Content-Type-Options": "nosniff"})


async def _ask_agent(call: Call, method: str) -> Any:
    vmi = await call.vmi()
    checks.guest_agent(vmi)
    return await _ask(call, vmi, method)


async def _ask(call: Call, vmi: VirtualMachineInstance, method: str) -> Any:
    node = await call.nodes.of(vmi)
    return await node.call(method, node_pb2.VMIRequest(vmi=vmi_ref(vmi)))


def _kinded(obj: Any) -> web.Response:
    """A list without entries still shows that it is one."""
    body = {"apiVersion": obj.api_version, "kind": obj.kind, **to_plain(obj)}
    if hasattr(obj, "items"):
        body.setdefault("metadata", {})
        body.setdefault("items", [])
    return json_response(body)


def _agent_info(info: Any) -> VirtualMachineInstanceGuestAgentInfo:
    fields = VirtualMachineInstanceGuestOSInfo.__struct_fields__
    return VirtualMachineInstanceGuestAgentInfo(
        guest_agent_version=info.agent_version,
        hostname=info.hostname,
        timezone=info.timezone,
        os=VirtualMachineInstanceGuestOSInfo(**{name: getattr(info.os_info, name, "") for name in fields}),
    )


def _user(found: Any) -> VirtualMachineInstanceGuestOSUser:
    return VirtualMachineInstanceGuestOSUser(user_name=found.name, domain=found.domain, login_time=found.login_time)


def _filesystem(found: Any) -> VirtualMachineInstanceFileSystem:
    return VirtualMachineInstanceFileSystem(
        disk_name=found.disk_name,
        mount_point=found.mount_point,
        file_system_type=found.type,
        used_bytes=found.used_bytes,
        total_bytes=found.total_bytes,
        disk=[FileSystemDisk(serial=disk.serial, bus_type=disk.bus_type) for disk in found.disks],
    )
