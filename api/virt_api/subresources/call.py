"""One request for a subresource, as its handler sees it: who asks for which object is settled before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import msgspec
from aiohttp import web

from virt_api.authn import Identity
from virt_api.kube import Kube
from virt_api.nodes import Nodes
from virt_api.problems import Problem, from_api
from virt_api.serving.limits import OPTIONS_BYTES
from virt_api.serving.requests import read_body
from virt_core.apis.base import UNREADABLE, Struct, decode
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.configvalues import ClusterConfig
from virt_core.kube.errors import ApiError, NotFound

T = TypeVar("T", bound=Struct)

DRY_RUN_ALL = "All"


@dataclass(frozen=True, slots=True)
class Call:
    request: web.Request
    kube: Kube
    nodes: Nodes
    config: ClusterConfig
    who: Identity
    namespace: str
    name: str = ""

    async def vmi(self) -> VirtualMachineInstance:
        """Raises Problem 404."""
        try:
            return await self.kube.vmi(self.namespace, self.name)
        except ApiError as error:
            raise from_api(error, self.name) from error

    async def vm(self) -> VirtualMachine:
        """Raises Problem 404."""
        try:
            return await self.kube.vm(self.namespace, self.name)
        except ApiError as error:
            raise from_api(error, self.name, kind="virtualmachine") from error

    async def vmi_of_vm(self) -> VirtualMachineInstance | None:
        """The VMI of the VM of this name; None when there is none."""
        try:
            return await self.kube.vmi(self.namespace, self.name)
        except NotFound:
            return None
        except ApiError as error:
            raise from_api(error, self.name) from error

    async def body(self, cls: type[T], *, required: bool = False) -> T:
        """JSON. Fields that nobody knows are ignored, as clients may be newer. Raises Problem 400."""
        body = await read_body(self.request, OPTIONS_BYTES)
        if not body.strip():
            if required:
                raise Problem(400, "this call needs a body")
            body = b"{}"
        try:
            return decode(body, cls)
        except msgspec.ValidationError as error:
            raise Problem(400, f"the body does not fit this call: {error}") from error
        except UNREADABLE as error:
            raise not_json() from error


def not_json() -> Problem:
    """YAML is not read here: a few bytes of it can stand for gigabytes, and its parser holds up everybody else."""
    return Problem(400, "the body is not JSON")


def accepted() -> web.Response:
    return web.Response(status=202)


def json_response(document: object, status: int = 200) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(document), content_type="application/json")
