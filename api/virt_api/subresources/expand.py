"""expand-spec and expand-vm-spec: a VM with its instance type and preference written out."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from aiohttp import web

from virt_api.admission import bounds, document
from virt_api.admission.causes import Refused
from virt_api.admission.review import short
from virt_api.problems import Problem
from virt_api.serving.limits import OBJECT_BYTES
from virt_api.serving.requests import read_body
from virt_api.subresources.call import Call, json_response, not_json
from virt_core.apis.base import UNREADABLE, to_plain
from virt_core.apis.meta import StatusCause, StatusDetails
from virt_core.apis.names import GROUP
from virt_core.apis.vm import VirtualMachine
from virt_core.instancetype import ConflictError, NotFoundError
from virt_core.kube.errors import ApiError

_MAX_CAUSES = 10


async def of_vm(call: Call) -> web.Response:
    vm = await call.vm()
    return _answer(await _expand(call, vm, code=500))


async def of_body(call: Call) -> web.Response:
    """The VM need not exist; it must be one that could."""
    vm = await read_vm(call)
    if vm.metadata.namespace and vm.metadata.namespace != call.namespace:
        raise Problem(400, f"the VM's namespace {vm.metadata.namespace} is not that of the request, {call.namespace}")
    vm.metadata.namespace = call.namespace
    return _answer(await _expand(call, vm, code=400))


async def read_vm(call: Call) -> VirtualMachine:
    """Every mistake of its form is named with its path. Raises Problem 400."""
    body = await read_body(call.request, OBJECT_BYTES)
    try:
        return await asyncio.to_thread(_vm, body)
    except Refused as refused:
        causes = [
            StatusCause(reason=c.type, message=short(c.message), field=short(c.field))
            for c in refused.causes[:_MAX_CAUSES]
        ]
        details = StatusDetails(group=GROUP, kind="VirtualMachine", causes=causes)
        message = short(f"the body is not a valid VirtualMachine: {refused}")
        raise Problem(400, message, details=details) from refused


def _vm(body: bytes) -> VirtualMachine:
    found = _document(body)
    if found.get("kind", "VirtualMachine") != "VirtualMachine":
        raise Problem(400, short(f"the body is a {found['kind']}, not a VirtualMachine"))
    # What became of a VM may carry more than we know.
    asked = {key: value for key, value in found.items() if key != "status"}
    return document.read(asked, VirtualMachine, "")


def _document(body: bytes) -> dict[str, Any]:
    if not body.strip():
        raise Problem(400, "this call needs a body: a VirtualMachine")
    try:
        found = msgspec.json.decode(body)
    except UNREADABLE as error:
        raise not_json() from error
    bounds.check(msgspec.Raw(body))
    if not isinstance(found, dict):
        raise Problem(400, "the body is not an object")
    return found


async def _expand(call: Call, vm: VirtualMachine, *, code: int) -> VirtualMachine:
    """Raises Problem."""
    try:
        return await call.kube.expand(vm, call.config.default_network_interface)
    except (NotFoundError, ConflictError) as error:
        raise Problem(code, f"VM {vm.metadata.name} cannot be expanded: {error}") from error
    except ApiError as error:
        raise Problem(500, f"the API server refused: {error}") from error


def _answer(vm: VirtualMachine) -> web.Response:
    return json_response({"apiVersion": vm.api_version, "kind": vm.kind, **to_plain(vm)})
