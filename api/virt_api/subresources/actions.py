"""Subresources that ask the node something and return: pause, unpause, guestosinfo."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from virt_api.nodes import Nodes
from virt_api.problems import Problem
from virt_core.apis.base import Struct, decode, to_plain
from virt_core.apis.guestinfo import VirtualMachineInstanceGuestAgentInfo
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import VirtualMachineInstanceGuestOSInfo
from virt_protos.node.v1 import node_pb2


class Options(Struct):
    """The body of pause and unpause; it may be absent."""

    dry_run: list[str] = []


def vmi_ref(vmi: VirtualMachineInstance) -> node_pb2.VMIRef:
    return node_pb2.VMIRef(namespace=vmi.metadata.namespace, name=vmi.metadata.name, uid=vmi.metadata.uid)


async def pause(request: web.Request, vmi: VirtualMachineInstance, nodes: Nodes) -> web.Response:
    return await _command("Pause", request, vmi, nodes)


async def unpause(request: web.Request, vmi: VirtualMachineInstance, nodes: Nodes) -> web.Response:
    return await _command("Unpause", request, vmi, nodes)


async def _command(method: str, request: web.Request, vmi: VirtualMachineInstance, nodes: Nodes) -> web.Response:
    if "All" not in (await read_options(request)).dry_run:
        node = await nodes.of(vmi)
        await node.call(method, node_pb2.VMIRequest(vmi=vmi_ref(vmi)))
    return web.Response()


async def read_options(request: web.Request) -> Options:
    """Raises Problem 400."""
    body = await request.read()
    if not body.strip():
        return Options()
    try:
        return decode(body, Options)
    except msgspec.MsgspecError as error:
        raise Problem(400, f"the body is not what this call takes: {error}") from error


async def guest_os_info(_: web.Request, vmi: VirtualMachineInstance, nodes: Nodes) -> web.Response:
    node = await nodes.of(vmi)
    answer = await node.call("GetGuestInfo", node_pb2.VMIRequest(vmi=vmi_ref(vmi)))
    info = _agent_info(answer.info)
    body = {"apiVersion": info.api_version, "kind": info.kind, **to_plain(info)}
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")


def _agent_info(info: Any) -> VirtualMachineInstanceGuestAgentInfo:
    fields = VirtualMachineInstanceGuestOSInfo.__struct_fields__
    return VirtualMachineInstanceGuestAgentInfo(
        guest_agent_version=info.agent_version,
        hostname=info.hostname,
        timezone=info.timezone,
        os=VirtualMachineInstanceGuestOSInfo(**{name: getattr(info.os_info, name, "") for name in fields}),
    )
